//! Damage to the end of the newest log of a killed store: every acknowledged key keeps its newest
//! value, or an error names the damage.

use std::path::Path;

use crate::log_end;
use crate::log_end::{Place, SEGMENT};
use lodestore_contract::Durability;
use lodestore_fluidkv::{FluidKv, FluidOptions};
use lodestore_inplace::testing::Scratch;
use lodestore_media::PoolOptions;

fn options(durability: Durability) -> FluidOptions {
    FluidOptions {
        pool: PoolOptions { capacity: 16 << 20, region_bytes: 16 << 20, durability, ..PoolOptions::default() },
        memtable_bytes: 1 << 20,
        segment_bytes: SEGMENT as u64,
        workers: 0,
        ..FluidOptions::default()
    }
}

fn places() -> [Place<FluidKv>; 2] {
    [Durability::Process, Durability::Power].map(|durability| Place {
        name: format!("{durability:?}"),
        scratch: Scratch::within(Path::new(env!("CARGO_TARGET_TMPDIR"))),
        create: Box::new(move |path| FluidKv::create(path, &options(durability))),
        open: Box::new(move |path| FluidKv::open(path, &options(durability))),
    })
}

/// Regression: none of the records was left, and `verify` was clean.
#[test]
fn flips_in_all_header_copies_of_any_segment_refuse_the_open() {
    places().iter().for_each(log_end::check_header_copies);
}

/// Regression: the hot key had its old value, and `verify` was clean.
#[test]
fn flips_in_the_last_record_and_in_its_end_mark_refuse_the_open() {
    places().iter().for_each(log_end::check_last_record);
}

/// Regression: the hot key had its old value, and many keys were absent.
#[test]
fn a_lost_or_misplaced_page_at_the_end_of_a_log_refuses_the_open() {
    places().iter().for_each(log_end::check_last_page);
}

#[test]
fn a_zeroed_line_of_a_log_never_hides_a_record() {
    places().iter().for_each(log_end::check_zeroed_lines);
}
