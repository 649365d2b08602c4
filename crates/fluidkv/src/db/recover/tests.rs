//! Log ends after which bytes look like more records.

use std::sync::{Arc, Mutex};

use lodestore_contract::{Event, Store};
use lodestore_inplace::testing::Scratch;
use lodestore_media::{PoolOptions, u64_at};

use super::*;
use crate::wal::entry::{Frame, Op, encode_header};
use crate::wal::segment::{SEGMENT_HEADER_BYTES, place_record, spare_at};
use crate::{ENGINE, FORMAT, FluidKv, FluidOptions};

fn options(salvage: bool) -> FluidOptions {
    FluidOptions {
        pool: PoolOptions { capacity: 16 << 20, region_bytes: 16 << 20, salvage, ..PoolOptions::default() },
        memtable_bytes: 1 << 20,
        segment_bytes: 16 << 10,
        workers: 0,
        ..FluidOptions::default()
    }
}

/// Leaves a store with `keys` keys in one log as after a crash. `change` modifies the log's
/// segments, in order, before that.
fn killed(scratch: &Scratch, keys: u64, change: impl FnOnce(&Pool, &[(NvPtr, SegmentHeader)])) {
    let options = options(false);
    let (pool, report) = Pool::create(&scratch.store(), ENGINE, FORMAT, options.pool.clone()).expect("a pool");
    let store = FluidKv::start(Arc::clone(&pool), &report, &options).expect("a store");
    (0..keys).for_each(|key| store.put(&key.to_le_bytes(), &[7; 100]).expect("put"));
    let header = |at: NvPtr| {
        let bytes = pool.bytes(at, 16 << 10).expect("a segment");
        (at, SegmentHeader::decode(bytes).expect("known").expect("whole").header)
    };
    let mut segments: Vec<_> = pool.allocator().extents_of(&pool, KIND_LOG).into_iter().map(header).collect();
    segments.sort_unstable_by_key(|(_, header)| header.number);
    change(&pool, &segments);
}

/// Stores headers of entries that reach to the segment's end, over other bytes, from an offset on.
fn store_false_headers(pool: &Pool, at: NvPtr, capacity: u64, frame: Frame, from: u64) {
    let mut end = from;
    while let Some(slot) = place_record(end, 24, spare_at(capacity)) {
        let key = vec![1; (spare_at(capacity) - slot.at) as usize - 16];
        let op = Op { key: &key, payload: Payload::Value(&[]), expiry: None };
        let header = encode_header(frame, slot, frame.base + 60, true, &op).expect("in reach");
        pool.store(at.add(slot.at), header.as_bytes());
        end = slot.at + 16;
    }
}

/// Opens the store and returns it with its reports of damage.
fn open(scratch: &Scratch, salvage: bool) -> (Result<FluidKv>, Vec<String>) {
    let told = Arc::new(Mutex::new(Vec::new()));
    let mut options = options(salvage);
    let sink = Arc::clone(&told);
    options.pool.events = Some(Arc::new(move |event: &Event| {
        if let Event::Corruption { what, .. } = event {
            lock(&sink).push(what.clone());
        }
    }));
    let store = FluidKv::open(&scratch.store(), &options);
    let told = lock(&told).clone();
    (store, told)
}

#[test]
fn an_unverified_log_end_is_reported_and_counted() {
    for (salvage, unsure) in [(false, true), (true, true), (false, false)] {
        let scratch = Scratch::new();
        killed(&scratch, 10, |pool, segments| {
            let (at, header) = segments[0];
            if unsure {
                // Ten entries of 124 bytes, each on two lines.
                store_false_headers(pool, at, header.capacity, header.frame, 128 + 10 * 128);
            }
        });
        let (store, told) = open(&scratch, salvage);
        let store = store.expect("an end that is not sure is none that is known to be damage");
        let expected = u64::from(unsure);
        assert_eq!((store.stats().recovery.corrupt, store.stats().recovery.left_out), (expected, 0));
        assert!(
            told.len() as u64 == expected
                && told.iter().all(|what| what.contains(
                    "the log may end here or be \
             damaged"
                )),
            "{told:?}"
        );
        assert_eq!(store.len().expect("len"), 10);
    }
}

/// The next segment of the log has the end of this one.
#[test]
fn a_segment_with_a_successor_never_ends_where_a_search_gave_up() {
    let scratch = Scratch::new();
    killed(&scratch, 200, |pool, segments| {
        let (at, header) = segments[0];
        assert!(segments.len() > 1, "the log goes on elsewhere");
        store_false_headers(pool, at, header.capacity, header.frame, 128 + 128);
    });
    let (store, _) = open(&scratch, false);
    let refused = store.err();
    assert!(matches!(refused, Some(Error::Corrupt { .. })), "{refused:?}");
    let (store, _) = open(&scratch, true);
    let store = store.expect("salvaged");
    let recovery = store.stats().recovery;
    assert!(recovery.corrupt > 0 && recovery.left_out > 0, "{recovery:?}");
    // The stop flushes the rest, which frees the damaged log.
    store.close().expect("close");
    for _ in 0..2 {
        let (store, _) = open(&scratch, false);
        let refused = store.err();
        assert!(matches!(refused, Some(Error::Corrupt { .. })), "what was left out is not forgotten: {refused:?}");
        let (store, _) = open(&scratch, true);
        let recovery = store.expect("salvaged again").stats().recovery;
        assert!(recovery.corrupt > 0, "{recovery:?}");
    }
}

/// Every key was absent, or had the value of an older table. `verify` was clean, and a close
/// advanced the flushed generation.
#[test]
fn a_log_segment_whose_extent_is_lost_refuses_the_open() {
    for keys in [1, 10, 200] {
        let mut count = 1;
        let mut lost = 0;
        while lost < count {
            let scratch = Scratch::new();
            killed(&scratch, keys, |pool, segments| {
                count = segments.len();
                pool.allocator().free_extent(pool, segments[lost].0);
            });
            for _ in 0..2 {
                let refused = open(&scratch, false).0.err();
                let is_named = |error: &Error| matches!(error, Error::Corrupt { what, .. } if what.contains("salvage"));
                assert!(refused.as_ref().is_some_and(is_named), "{keys} keys, segment {lost}: {refused:?}");
            }
            let (store, told) = open(&scratch, true);
            let store = store.expect("salvaged");
            assert!(store.stats().recovery.corrupt > 0 && !told.is_empty(), "{keys} keys, segment {lost}");
            lost += 1;
        }
    }
}

/// A segment whose header a power failure kept, and whose first record it lost, is no damage.
#[test]
fn a_segment_without_a_record_is_not_missed() {
    let scratch = Scratch::new();
    killed(&scratch, 200, |pool, segments| {
        let (at, header) = segments[segments.len() - 1];
        let next = SegmentHeader { number: header.number + 1, previous_end: 0, ..header };
        let made = pool.allocator().alloc_extent(pool, header.capacity, KIND_LOG).expect("an extent");
        assert_ne!(made, at);
        pool.store(made, &next.encode());
    });
    assert_eq!(open(&scratch, false).0.expect("open").len().expect("len"), 200);
}

/// A power failure loses the end mark and the end hint. The open stores them again, so later damage
/// of the last record is not mistaken for a truncated write.
#[test]
fn the_open_after_a_power_failure_protects_the_last_record_again() {
    const KEYS: u64 = 10;
    let scratch = Scratch::new();
    let mut last_record = 0;
    killed(&scratch, KEYS, |pool, segments| {
        let (at, header) = segments[segments.len() - 1];
        let end = SEGMENT_HEADER_BYTES as u64 + (KEYS - 1) * 128 + 124_u64.next_multiple_of(8);
        let hint_at = end_hint_at(end, spare_at(header.capacity));
        let word = |offset: u64| u64_at(pool.bytes(at.add(offset), 8).expect("a word"), 0);
        let mark = end_mark(header.frame, end);
        assert_eq!((word(end), word(hint_at)), (mark, end_hint(mark, end)), "mark and hint are there");
        [end, hint_at].into_iter().for_each(|offset| pool.store(at.add(offset), &[0; 8]));
        last_record = at.add(end - 16).raw();
    });
    let store = open(&scratch, false).0.expect("the store after the power failure");
    assert_eq!(store.len().expect("len"), KEYS);
    drop(store);
    let path = scratch.store().join("pool.0000");
    let mut bytes = std::fs::read(&path).expect("the store's file");
    bytes[last_record as usize] ^= 1;
    std::fs::write(&path, bytes).expect("written");
    let refused = open(&scratch, false).0.err();
    assert!(matches!(refused, Some(Error::Corrupt { .. })), "{refused:?}");
}
