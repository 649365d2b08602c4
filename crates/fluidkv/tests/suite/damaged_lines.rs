//! Damage of single lines of the store's files.

use crate::each;
use lodestore_fluidkv::{FluidKv, FluidOptions};
use lodestore_media::PoolOptions;

/// Regression: the end of a log, and the word of its extent, were zeroed without a report.
#[test]
fn no_damaged_line_gives_a_wrong_value_or_hides_a_key() {
    let options = FluidOptions {
        pool: PoolOptions { capacity: 16 << 20, region_bytes: 16 << 20, ..PoolOptions::default() },
        memtable_bytes: 1 << 20,
        segment_bytes: 16 << 10,
        workers: 0,
        ..FluidOptions::default()
    };
    each::check_each_line(
        |scratch| FluidKv::create(&scratch.store(), &options).expect("create"),
        |scratch| FluidKv::open(&scratch.store(), &options),
    );
}
