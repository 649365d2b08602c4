//! Damage to the end of the newest log of a killed store: every acknowledged key keeps its newest
//! value, or an error names the damage.

#[path = "../../../fluidkv/tests/lines/log_end.rs"]
mod log_end;

use lodestore_hashkv::{HashKv, HashKvOptions, Mode};
use lodestore_inplace::testing::Scratch;
use lodestore_media::PoolOptions;
use log_end::{Place, SEGMENT};

fn options(mode: Mode) -> HashKvOptions {
    let mut options = HashKvOptions { mode, ..HashKvOptions::default() };
    options.index.pool = PoolOptions { capacity: 16 << 20, region_bytes: 4 << 20, ..PoolOptions::default() };
    options.index.memtable_bytes = 1 << 20;
    options.index.segment_bytes = SEGMENT as u64;
    options.index.workers = 0;
    options
}

fn places() -> [Place<HashKv>; 3] {
    [Mode::Hash, Mode::Vlog, Mode::Nosep].map(|mode| Place {
        name: format!("{mode:?}"),
        scratch: Scratch::new(),
        create: Box::new(move |path| HashKv::create(path, &options(mode))),
        open: Box::new(move |path| HashKv::open(path, &options(mode))),
    })
}

/// Regression: no record was left, and `verify` was clean.
#[test]
fn flips_in_all_header_copies_of_any_segment_refuse_the_open() {
    places().iter().for_each(log_end::check_header_copies);
}

/// Regression: the last record was lost, and `verify` was clean.
#[test]
fn flips_in_the_last_record_and_in_its_end_mark_refuse_the_open() {
    places().iter().for_each(log_end::check_last_record);
}

/// Regression: keys had older values or were absent.
#[test]
fn a_lost_or_misplaced_page_at_the_end_of_a_log_refuses_the_open() {
    places().iter().for_each(log_end::check_last_page);
}

#[test]
fn a_zeroed_line_of_a_log_never_hides_a_record() {
    places().iter().for_each(log_end::check_zeroed_lines);
}
