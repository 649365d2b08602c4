//! The contract's suite over HiKV: each supported medium, level and mode.

use lodestore_contract::conformance::{Case, seed, sizes};
use lodestore_hikv::{Backends, HiKv, HiKvOptions};
use lodestore_inplace::testing;

use crate::common::KIND;

type Place = testing::Place<HiKv, HiKvOptions>;

/// A place on tmpfs with small regions and segments, to make both grow. Keys hash by the run's
/// seed.
fn place(name: &'static str) -> Place {
    Place::new(
        &KIND,
        name,
        HiKvOptions { partitions: 4, segment_bytes: 2048, hash_seed: Some(seed()), ..HiKvOptions::default() },
    )
}

/// On an ordinary file.
fn file(name: &'static str) -> Place {
    place(name).on_file(env!("CARGO_TARGET_TMPDIR"))
}

fn shm_process() -> Place {
    place("tmpfs, process")
}

/// Default options, except for the capacity: 64 partitions, segments of 16 KiB, regions of 256 MiB.
fn shm_defaults() -> Place {
    let options = HiKvOptions { hash_seed: Some(seed()), ..HiKvOptions::default() };
    place("tmpfs, process, default options").short().with(|old| *old = options)
}

fn shm_dax() -> Place {
    place("tmpfs as DAX, power, one backend").dax().with(|options| options.backends = Backends::Fixed(1))
}

fn file_process() -> Place {
    file("file, process, two backends").short().with(|options| options.backends = Backends::Fixed(2))
}

fn file_power() -> Place {
    file("file, power").power()
}

fn no_threads() -> Place {
    place("tmpfs as DAX, no threads").dax().with(|options| {
        options.backends = Backends::Fixed(0);
        options.recovery_threads = 0;
        options.sweep_ms = 0;
    })
}

fn sync_update() -> Place {
    place("tmpfs as DAX, update=sync").dax().short().with(|options| options.sync_update = true)
}

fn partitioned_tree() -> Place {
    place("tmpfs, tree=partitioned").short().with(|options| options.partitioned_tree = true)
}

fn wal() -> Place {
    place("tmpfs as DAX, wal=on").dax().short().with(|options| options.wal = true)
}

/// Queues of two entries: writers help all the time.
fn tiny_queues() -> Place {
    place("tmpfs, queues of 2").short().with(|options| (options.queues, options.queue_len) = (2, 2))
}

/// Needs some GiB of tmpfs; `sizes` documents the variable that enables it.
#[test]
fn a_value_of_a_gib() {
    sizes::value_of_a_gib(&Case::new(shm_process()));
}

lodestore_contract::conformance! { over
    shm_process shm_defaults shm_dax file_process file_power
    no_threads sync_update partitioned_tree wal tiny_queues
}
