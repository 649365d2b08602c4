//! Conditions of a batch while a key expires.

use std::ops::Bound;
use std::time::Duration;

use lodestore_contract::{Batch, Commit, Expiry, RangeCondition, Store};
use lodestore_fluidkv::embedding::Conditions;
use lodestore_fluidkv::{FluidKv, FluidOptions};
use lodestore_inplace::testing::Scratch;
use lodestore_media::PoolOptions;

/// No moment satisfies both conditions: the key is present, and its range has no key.
#[test]
fn a_key_that_expires_between_two_checks_is_not_present_and_absent() {
    let dir = Scratch::on_disk();
    let pool = PoolOptions { capacity: 64 << 20, region_bytes: 16 << 20, ..PoolOptions::default() };
    let options = FluidOptions { pool, ..FluidOptions::default() };
    let store = FluidKv::create(&dir.store(), &options).expect("a store");
    let expiry = Expiry::after(Duration::from_millis(500));
    store.put_expiring(b"key", b"value", Some(expiry)).expect("put");
    let ranges = [RangeCondition { from: Bound::Unbounded, to: Bound::Unbounded, keys: Vec::new() }];
    let is_met = &mut |_: usize, value: Option<&[u8]>, _: Option<Expiry>| {
        while !expiry.is_past() {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(value.is_some())
    };
    let is_present = &mut |_: &[u8], _: &[u8], _: Option<Expiry>| Ok(true);
    let mut conditions = Conditions { keys: &[b"key"], is_met, ranges: &ranges, is_present };
    let commit = store.write_checked(&mut conditions, &Batch::default()).expect("a check");
    assert!(matches!(commit, Commit::Unmet(_)), "{commit:?}");
    store.close().expect("a clean stop");
}
