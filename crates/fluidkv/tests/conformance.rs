//! The contract's suite over FluidKV: each medium, level and mode that it offers.

use lodestore_contract::conformance::{Case, sizes};
use lodestore_fluidkv::{FluidKv, FluidOptions};
use lodestore_inplace::testing::{self, Kind};

type Place = testing::Place<FluidKv, FluidOptions>;

static KIND: Kind<FluidKv, FluidOptions> =
    Kind { engine: "fluidkv", create: FluidKv::create, open: FluidKv::open, pool: |options| &mut options.pool };

/// Tiny memtables and tables on tmpfs, so that flushes, compactions and splits go on all the time.
fn place(name: &'static str) -> Place {
    let options = FluidOptions {
        memtable_bytes: 128 << 10,
        segment_bytes: 16 << 10,
        table_bytes: 16 << 10,
        range_bytes: 64 << 10,
        runs_max: 3,
        ..FluidOptions::default()
    };
    Place::new(&KIND, name, options)
}

/// On an ordinary file.
fn file(name: &'static str) -> Place {
    place(name).on_file(env!("CARGO_TARGET_TMPDIR"))
}

fn shm_process() -> Place {
    place("tmpfs, process")
}

/// As users get it but for the capacity.
fn shm_defaults() -> Place {
    place("tmpfs, process, default options").short().with(|old| *old = FluidOptions::default())
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

/// What was not synced is lost with power, and with nothing else.
fn file_interval() -> Place {
    file("file, interval").interval(std::time::Duration::from_millis(20))
}

fn no_threads() -> Place {
    place("tmpfs as DAX, no threads").dax().with(|options| options.workers = 0)
}

/// Reads that trust what was checked at the open, and tables without filters.
fn no_filter() -> Place {
    place("tmpfs as DAX, no filter, large blocks").dax().short().with(|options| {
        options.filter_bits = 0;
        options.block_bytes = 4096;
    })
}

/// Some GiB of tmpfs; see there for the variable that turns it on.
#[test]
fn a_value_of_a_gib() {
    sizes::value_of_a_gib(&Case::new(shm_process()));
}

macro_rules! over {
    ($($make:ident)*) => {
        $(mod $make {
            lodestore_contract::conformance!(super::$make);
        })*
    };
}

over! { shm_process shm_defaults shm_dax file_process file_power file_interval no_threads no_filter }
