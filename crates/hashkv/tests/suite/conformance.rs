//! The contract's suite over HashKV: each supported medium, level and mode.
//!
//! All behaviours run in all places, at a cost of some seconds per place. The mode without
//! separation has default sizes: in a full store the free pieces of tiny tables are too short for
//! values of 60 KB.

use lodestore_hashkv::{HashKv, HashKvOptions, Mode};
use lodestore_inplace::testing::{self, Kind};

type Place = testing::Place<HashKv, HashKvOptions>;

static KIND: Kind<HashKv, HashKvOptions> =
    Kind { engine: "hashkv", create: HashKv::create, open: HashKv::open, pool: |options| &mut options.index.pool };

/// Tiny memtables, segments and groups, for constant flushes, collections and splits. Nearly every
/// value is separated.
fn place(name: &'static str) -> Place {
    let mut options = HashKvOptions {
        value_threshold: 32,
        segment_bytes: 16 << 10,
        group_bytes: 64 << 10,
        ..HashKvOptions::default()
    };
    options.index.memtable_bytes = 128 << 10;
    options.index.segment_bytes = 16 << 10;
    options.index.table_bytes = 16 << 10;
    options.index.range_bytes = 64 << 10;
    options.index.runs_max = 3;
    Place::new(&KIND, name, options)
}

fn shm_process() -> Place {
    place("tmpfs, process")
}

fn shm_dax() -> Place {
    place("tmpfs as DAX, power").dax()
}

fn file_power() -> Place {
    place("file, power").on_file(env!("CARGO_TARGET_TMPDIR")).power()
}

/// Default options, except for the capacity.
fn shm_defaults() -> Place {
    place("tmpfs, process, default options").short().with(|old| *old = HashKvOptions::default())
}

fn no_threads() -> Place {
    place("tmpfs as DAX, no threads").dax().with(|options| options.index.workers = 0)
}

/// A circular log for all values.
fn vlog() -> Place {
    place("tmpfs, process, one log").short().with(|options| options.mode = Mode::Vlog)
}

fn nosep() -> Place {
    let options = HashKvOptions { mode: Mode::Nosep, ..HashKvOptions::default() };
    place("tmpfs, process, values with their keys, default options").short().with(|old| *old = options)
}

fn hotness_off() -> Place {
    place("tmpfs, process, hotness off").short().with(|options| options.hotness = false)
}

/// On a file system that supports O_DIRECT.
fn direct() -> Place {
    place("file, process, past the page cache")
        .on_file(env!("CARGO_TARGET_TMPDIR"))
        .short()
        .with(|options| options.direct = true)
}

lodestore_contract::conformance! { over shm_process shm_dax file_power shm_defaults no_threads vlog nosep hotness_off direct }
