//! Batches with HiKV's specifics: its ordering points, segments, damaged records and logs.

use crate::common::{Scratch, small_dax};
use lodestore_contract::{Batch, BatchOp, Error, Store};
use lodestore_hikv::{HiKv, HiKvOptions};

/// Offset of the root words of the batch logs in `pool.0000`: the root area's page plus the offset
/// in docs/format/hikv.md.
const ROOTS: usize = 8192 + 2304;

fn put(key: &[u8], value: &[u8]) -> BatchOp {
    BatchOp::Put { key: key.to_vec(), value: value.to_vec(), expiry: None }
}

fn delete(key: &[u8]) -> BatchOp {
    BatchOp::Delete { key: key.to_vec() }
}

fn name(number: u32) -> Vec<u8> {
    format!("key {number:06}").into_bytes()
}

fn alter(scratch: &Scratch, change: impl FnOnce(&mut Vec<u8>)) {
    let path = scratch.store().join("pool.0000");
    let mut bytes = std::fs::read(&path).expect("region 0");
    change(&mut bytes);
    std::fs::write(&path, bytes).expect("region 0");
}

fn findings(store: &HiKv) -> Vec<String> {
    let report = store.verify(&mut |_| ()).expect("verify");
    report.findings.iter().map(|found| format!("{}: {}", found.place, found.what)).collect()
}

#[test]
fn a_batch_has_four_ordering_points_for_any_number_of_keys() {
    let scratch = Scratch::new();
    let store = HiKv::create(&scratch.store(), &small_dax()).expect("the store can be made");
    let batch = |round: u8| {
        let ops = (0..20).map(|key| if key % 7 == 6 { delete(&name(key)) } else { put(&name(key), &[round; 100]) });
        Batch { ops: ops.collect() }
    };
    // The first write allocates the log's extent and a slab.
    store.write(&batch(0)).expect("write");
    for round in 1..4 {
        let before = store.stats().fences;
        store.write(&batch(round)).expect("write");
        assert_eq!(store.stats().fences - before, 4, "round {round}");
    }
    let before = store.stats().fences;
    store.write(&Batch::default()).expect("nothing");
    store.write(&Batch { ops: vec![delete(b"absent")] }).expect("nothing to delete");
    assert!(store.stats().fences - before <= 1, "what changes nothing logs nothing");
}

#[test]
fn a_batch_with_more_keys_than_free_slots_splits_segments() {
    let scratch = Scratch::new();
    let options = HiKvOptions { segment_bytes: 512, partitions: 2, ..small_dax() };
    let store = HiKv::create(&scratch.store(), &options).expect("the store can be made");
    for round in 0..3u8 {
        let ops = (0..5000).map(|key| put(&name(key), &[round; 9])).collect();
        store.write(&Batch { ops }).expect("write");
        assert_eq!(store.len().expect("len"), 5000);
    }
    drop(store);
    let store = HiKv::open(&scratch.store(), &options).expect("opens");
    assert!((0..5000).all(|key| store.get(&name(key)).expect("get") == Some(vec![2; 9])));
    assert_eq!(findings(&store), [""; 0]);
}

#[test]
fn a_new_key_over_the_dram_budget_refuses_the_whole_batch() {
    let scratch = Scratch::new();
    let store = HiKv::create(&scratch.store(), &small_dax()).expect("the store can be made");
    store.put(b"there", b"old").expect("put");
    drop(store);
    let options = HiKvOptions { dram_budget: 1, ..small_dax() };
    let store = HiKv::open(&scratch.store(), &options).expect("opens");
    let refused = store.write(&Batch { ops: vec![put(b"there", b"new"), put(b"another", b"new")] });
    assert!(matches!(refused, Err(Error::DramBudget { .. })), "{refused:?}");
    assert_eq!(store.get(b"there").expect("get").as_deref(), Some(&b"old"[..]));
    store.write(&Batch { ops: vec![put(b"there", b"new"), delete(b"another")] }).expect("no new key");
    assert_eq!(store.get(b"there").expect("get").as_deref(), Some(&b"new"[..]));
    assert_eq!(findings(&store), [""; 0]);
}

#[test]
fn a_batch_replaces_and_deletes_unreadable_records() {
    let scratch = Scratch::new();
    let store = HiKv::create(&scratch.store(), &small_dax()).expect("the store can be made");
    for key in 0..8 {
        store.put(&name(key), format!("value {key:06} to be damaged").as_bytes()).expect("put");
    }
    store.close().expect("closes");
    drop(store);
    alter(&scratch, |bytes| {
        for key in 0..6u32 {
            // Three records lose bytes of their value, three bytes of their key.
            let text = if key % 2 == 0 { format!("value {key:06} to be") } else { format!("key {key:06}value") };
            let at = bytes.windows(text.len()).position(|part| part == text.as_bytes()).expect("the record");
            bytes[at + 2] ^= 0x40;
        }
    });
    let store = HiKv::open(&scratch.store(), &small_dax()).expect("opens");
    assert!((0..6).all(|key| matches!(store.get(&name(key)), Err(Error::Corrupt { .. }))));
    let ops = vec![put(&name(0), b"new"), put(&name(1), b"new"), delete(&name(2)), delete(&name(3))];
    store.write(&Batch { ops }).expect("write");
    let values: Vec<_> = (0..4).map(|key| store.get(&name(key)).expect("get")).collect();
    assert_eq!(values, [Some(b"new".to_vec()), Some(b"new".to_vec()), None, None]);
    store.write(&Batch { ops: vec![put(&name(4), b"new"), put(&name(5), b"new")] }).expect("write");
    drop(store);
    let store = HiKv::open(&scratch.store(), &small_dax()).expect("opens");
    assert_eq!(store.len().expect("len"), 6);
    assert_eq!(findings(&store), [""; 0]);
}

#[test]
fn a_store_with_a_missing_batch_log_is_readable_and_refuses_writes() {
    for (word, what) in
        [(u64::MAX, "a word that cannot be"), (0x2000 | 12, "the place of something else"), (0, "a zeroed word")]
    {
        let scratch = Scratch::new();
        let store = HiKv::create(&scratch.store(), &small_dax()).expect("the store can be made");
        store.write(&Batch { ops: vec![put(b"a", b"1"), put(b"b", b"2")] }).expect("write");
        drop(store);
        alter(&scratch, |bytes| {
            assert!(bytes[ROOTS] & 63 != 0, "the first log has an extent");
            bytes[ROOTS..ROOTS + 8].copy_from_slice(&word.to_le_bytes());
        });
        let store = HiKv::open(&scratch.store(), &small_dax()).expect("opens");
        assert_eq!(store.get(b"b").expect("get").as_deref(), Some(&b"2"[..]), "{what}");
        for refused in [store.put(b"c", b"3"), store.write(&Batch { ops: vec![put(b"c", b"3")] })] {
            assert!(matches!(refused, Err(Error::Poisoned { .. })), "{what}: {refused:?}");
        }
        assert!(findings(&store).iter().any(|found| found.contains("batch log 0")), "{what}");
    }
}

#[test]
fn a_batch_log_is_kept_and_reused() {
    let scratch = Scratch::new();
    let mut store = HiKv::create(&scratch.store(), &small_dax()).expect("the store can be made");
    let batch = Batch { ops: (0..1000).map(|key| put(&name(key), b"v")).collect() };
    store.write(&batch).expect("write");
    let roots = || std::fs::read(scratch.store().join("pool.0000")).expect("region 0")[ROOTS..ROOTS + 64].to_vec();
    let made = roots();
    let has_extent = |word: &[u8]| word[0] & 63 != 0;
    let with_extent: Vec<_> = made.chunks(8).map(has_extent).collect();
    assert_eq!(with_extent, [true, false, false, false, false, false, false, false], "one log, for one thread");
    for clean in [true, false, true] {
        store.write(&batch).expect("write");
        if clean {
            store.close().expect("closes");
        }
        drop(store);
        store = HiKv::open(&scratch.store(), &small_dax()).expect("opens");
        store.write(&batch).expect("write");
        assert_eq!(roots(), made);
        assert_eq!(findings(&store), [""; 0]);
    }
}
