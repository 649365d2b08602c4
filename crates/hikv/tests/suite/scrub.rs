//! The background scrub finds damage in records that are never read, and a close does not wait for
//! a pass.

use lodestore_hikv::HiKvOptions;
use lodestore_inplace::testing::{check_close_ends_scrub, check_scrub_finds_damage};
use lodestore_media::PoolOptions;

use crate::common::KIND;

fn options(pool: PoolOptions, scrub_rate: u64) -> HiKvOptions {
    HiKvOptions { pool, scrub_rate, ..HiKvOptions::default() }
}

#[test]
fn a_scrub_finds_and_reports_damage_of_an_unread_record() {
    check_scrub_finds_damage(&KIND, options);
}

#[test]
fn a_close_and_a_drop_do_not_wait_for_a_pass() {
    check_close_ends_scrub(&KIND, options);
}
