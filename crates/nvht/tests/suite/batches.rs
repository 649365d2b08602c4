//! Batches with small tables, with many keys, and over leftovers of a crash.

use crate::common::{Scratch, small_dax};
use lodestore_contract::{Batch, BatchOp, Error, Expiry, Store, now_millis};
use lodestore_nvht::{Nvht, NvhtOptions};

fn batch(keys: std::ops::Range<u32>) -> Batch {
    let put = |key: u32| BatchOp::Put { key: key.to_le_bytes().to_vec(), value: vec![key as u8; 20], expiry: None };
    Batch { ops: keys.map(put).collect() }
}

#[test]
fn a_batch_without_free_slots_grows_its_tables_and_completes() {
    for (partitions, probe_length, load_percent) in [(1, 7, 95), (1, 14, 95), (4, 112, 80), (2, 448, 10)] {
        let scratch = Scratch::new();
        let options = NvhtOptions { partitions, initial_capacity: 7, probe_length, load_percent, ..small_dax() };
        let store = Nvht::create(&scratch.store(), &options).expect("create");
        let mut next = 0;
        // Small batches, for which tables are not prepared, and one larger than all earlier tables.
        for keys in [6, 2, 2, 7, 3, 1, 5, 5000, 2, 300] {
            store.write(&batch(next..next + keys)).expect("write");
            next += keys;
            assert_eq!(store.len().expect("len"), u64::from(next));
        }
        assert_eq!(store.verify(&mut |_| ()).expect("verify").findings, []);
    }
}

#[test]
fn a_large_batch_during_recovery_completes() {
    let scratch = Scratch::new();
    let options = NvhtOptions { recovery_threads: 1, initial_capacity: 7, ..small_dax() };
    drop({
        let store = Nvht::create(&scratch.store(), &options).expect("create");
        for key in 100_000..101_000u32 {
            store.put(&key.to_le_bytes(), &[1; 10_000]).expect("put");
        }
        store
    });
    let store = Nvht::open(&scratch.store(), &options).expect("open");
    store.write(&batch(0..20_000)).expect("write");
    store.wait_recovered().expect("recovered");
    assert_eq!(store.len().expect("len"), 21_000);
    assert_eq!(store.verify(&mut |_| ()).expect("verify").findings, []);
}

#[test]
fn a_batch_that_only_deletes_and_updates_grows_nothing() {
    let scratch = Scratch::new();
    let store = Nvht::create(&scratch.store(), &small_dax()).expect("create");
    store.write(&batch(0..2000)).expect("write");
    let before = store.stats().engine_counters["slots"];
    store.write(&batch(0..2000)).expect("write");
    let deletes = (0..2000u32).map(|key| BatchOp::Delete { key: key.to_le_bytes().to_vec() }).collect();
    store.write(&Batch { ops: deletes }).expect("write");
    assert_eq!((store.stats().engine_counters["slots"], store.len().expect("len")), (before, 0));
}

#[test]
fn slots_left_reserved_by_a_crash_are_free_after_recovery() {
    let scratch = Scratch::new();
    let options = NvhtOptions { partitions: 1, initial_capacity: 1, probe_length: 28, ..small_dax() };
    let store = Nvht::create(&scratch.store(), &options).expect("create");
    store.put(b"key", b"value").expect("put");
    drop(store);
    let file = scratch.store().join("pool.0000");
    let mut bytes = std::fs::read(&file).expect("readable");
    let root = u64::from_le_bytes(bytes[8192 + 256..8192 + 264].try_into().expect("eight bytes"));
    let lines = (root & !63) as usize + 64;
    // A reserved slot as in docs/format: tag, no offset, alternating binding bits of 1 and 0, a
    // multiple of 3.
    let tag = 0x155_u64 << 53;
    let word = tag | 0xaaaa_aaaa_aaaa_aaaa & ((1 << 38) - (1 << 27));
    let reserved_word = (0..3).map(|residue| word | residue << 38).find(|word| word % 3 == 0).expect("one of three");
    // In the home line, and in a line after the last home line. The check of neither line counts
    // it, as after a crash.
    let reserved = [lines + 56, lines + 3 * 64 + 8];
    for at in reserved {
        assert_eq!(bytes[at..at + 8], [0; 8]);
        bytes[at..at + 8].copy_from_slice(&reserved_word.to_le_bytes());
    }
    std::fs::write(&file, &bytes).expect("writable");
    let store = Nvht::open(&scratch.store(), &options).expect("open");
    store.wait_recovered().expect("recovered");
    assert_eq!(store.get(b"key").expect("get").as_deref(), Some(&b"value"[..]));
    assert_eq!(store.stats().recovery.corrupt, 0);
    drop(store);
    let bytes = std::fs::read(&file).expect("readable");
    for at in reserved {
        assert_eq!(bytes[at..at + 8], [0; 8]);
    }
}

#[test]
fn an_expiring_record_of_a_batch_is_swept() {
    let scratch = Scratch::new();
    let store = Nvht::create(&scratch.store(), &small_dax()).expect("create");
    let expiry = Some(Expiry::at_millis(now_millis() - 1));
    let op = BatchOp::Put { key: b"gone".to_vec(), value: b"soon".to_vec(), expiry };
    store.write(&Batch { ops: vec![op] }).expect("write");
    assert_eq!(store.sweep_expired().expect("sweep"), 1);
    assert_eq!(store.len().expect("len"), 0);
}

#[test]
fn an_invalid_key_leaves_the_store_unchanged() {
    let scratch = Scratch::new();
    let store = Nvht::create(&scratch.store(), &small_dax()).expect("create");
    let mut bad = batch(0..3);
    bad.ops.push(BatchOp::Delete { key: Vec::new() });
    assert!(matches!(store.write(&bad), Err(Error::KeyLength { len: 0, .. })));
    assert_eq!(store.len().expect("len"), 0);
}
