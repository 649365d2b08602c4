//! The contract's suite for FluidKV: each medium, level and mode that it offers.

use lodestore_contract::conformance::{Case, sizes};
use lodestore_fluidkv::{Compression, FluidKv, FluidOptions};
use lodestore_inplace::testing::{self, Kind};

type Place = testing::Place<FluidKv, FluidOptions>;

static KIND: Kind<FluidKv, FluidOptions> =
    Kind { engine: "fluidkv", create: FluidKv::create, open: FluidKv::open, pool: |options| &mut options.pool };

/// Tiny memtables and tables on tmpfs, so that flushes, compactions and splits happen all the time.
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

/// The default options, except the capacity.
fn shm_defaults() -> Place {
    place("tmpfs, process, default options").short().with(|old| *old = FluidOptions::default())
}

fn shm_dax() -> Place {
    place("tmpfs as DAX, power").dax()
}

fn file_process() -> Place {
    file("file, process").short()
}

/// Tables that compactions compress, together with those of flushes.
fn file_lz4() -> Place {
    file("file, process, lz4").short().with(|options| options.compression = Compression::Lz4)
}

fn file_power() -> Place {
    file("file, power").power()
}

/// A power failure loses unsynced writes, and nothing else.
fn file_interval() -> Place {
    file("file, interval").interval(std::time::Duration::from_millis(20))
}

fn no_threads() -> Place {
    place("tmpfs as DAX, no threads").dax().with(|options| options.workers = 0)
}

/// Nearly every value is in the value log, whose segments hold some tens of them.
fn value_log() -> Place {
    place("tmpfs, process, tiny value log").with(|options| {
        options.value_threshold = 32;
        options.value_segment_bytes = 16 << 10;
    })
}

/// The same with a power failure at every stop, and without threads: all counts are exact.
fn value_log_no_threads() -> Place {
    place("tmpfs as DAX, tiny value log, no threads").dax().short().with(|options| {
        options.value_threshold = 32;
        options.value_segment_bytes = 16 << 10;
        options.value_garbage = 10;
        options.workers = 0;
    })
}

/// A value log together with the one log of all threads.
fn value_log_power() -> Place {
    file("file, power, tiny value log").power().with(|options| {
        options.value_threshold = 32;
        options.value_segment_bytes = 16 << 10;
        options.value_garbage = 10;
    })
}

/// Reads that trust data verified at the open, and tables without filters.
fn no_filter() -> Place {
    place("tmpfs as DAX, no filter, large blocks").dax().short().with(|options| {
        options.filter_bits = 0;
        options.block_bytes = 4096;
    })
}

/// Some GiB of tmpfs; the called function has the variable that enables it.
#[test]
fn a_value_of_a_gib() {
    sizes::value_of_a_gib(&Case::new(shm_process()));
}

lodestore_contract::conformance! { over
    shm_process shm_defaults shm_dax file_process file_lz4 file_power file_interval no_threads no_filter
    value_log value_log_no_threads value_log_power
}
