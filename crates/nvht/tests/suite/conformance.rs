//! The contract's suite over NVHT: each supported medium, level and mode.

use lodestore_contract::conformance::{Case, seed, sizes};
use lodestore_inplace::testing;
use lodestore_nvht::{HashKind, Nvht, NvhtOptions};

use crate::common::KIND;

type Place = testing::Place<Nvht, NvhtOptions>;

/// A place on tmpfs with small regions and tables, to make both grow. Keys hash by the run's seed.
fn place(name: &'static str) -> Place {
    Place::new(
        &KIND,
        name,
        NvhtOptions { partitions: 4, initial_capacity: 64, hash_seed: Some(seed()), ..NvhtOptions::default() },
    )
}

/// On an ordinary file.
fn file(name: &'static str) -> Place {
    place(name).on_file(env!("CARGO_TARGET_TMPDIR"))
}

fn shm_process() -> Place {
    place("tmpfs, process")
}

/// Default options, except for the capacity: 64 partitions, 8192 slots, regions of 256 MiB.
fn shm_defaults() -> Place {
    let options = NvhtOptions { hash_seed: Some(seed()), ..NvhtOptions::default() };
    place("tmpfs, process, default options").short().with(|old| *old = options)
}

fn shm_dax() -> Place {
    place("tmpfs as DAX, power").dax()
}

fn file_process() -> Place {
    file("file, process").short()
}

fn file_power() -> Place {
    file("file, power").power()
}

fn no_threads() -> Place {
    place("tmpfs as DAX, no threads").dax().with(|options| (options.recovery_threads, options.sweep_ms) = (0, 0))
}

/// Two lines are probed and tables are filled completely: keys are often outside their home lines,
/// and tables grow for lack of slots.
fn short_probes() -> Place {
    place("tmpfs as DAX, 14 slots probed, load 0.95").dax().short().with(|options| {
        options.probe_length = 14;
        options.load_percent = 95;
        options.partitions = 1;
    })
}

fn xxh3() -> Place {
    place("tmpfs, hash=xxh3, one partition").short().with(|options| {
        options.hash = HashKind::Xxh3;
        options.partitions = 1;
        options.initial_capacity = 1;
    })
}

/// Needs some GiB of tmpfs; `sizes` documents the variable that enables it.
#[test]
fn a_value_of_a_gib() {
    sizes::value_of_a_gib(&Case::new(shm_process()));
}

lodestore_contract::conformance! { over shm_process shm_defaults shm_dax file_process file_power no_threads short_probes xxh3 }
