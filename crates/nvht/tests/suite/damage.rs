//! Flipped bits in tables, roots and records: reported, never repaired by guessing, and never an
//! absent key without a report.

use std::path::Path;

use crate::common::{Scratch, small_dax};
use lodestore_contract::{Batch, BatchOp, Change, Error, Expiry, Lifetime, Store, Visit};
use lodestore_nvht::{HashKind, Nvht, NvhtOptions};
use xxhash_rust::xxh3::xxh3_64_with_seed;

const KEYS: u32 = 3000;
/// Offset of the roots of partitions, in the engine's root area of region 0 (docs/format).
const ROOTS: usize = 8192 + 256;

fn options() -> NvhtOptions {
    NvhtOptions { hash_seed: Some(5), ..small_dax() }
}

fn key(index: u32) -> Vec<u8> {
    format!("key{index:05}").into_bytes()
}

fn filled(path: &Path) -> Nvht {
    let store = Nvht::create(path, &options()).expect("create");
    for index in 0..KEYS {
        store.put(&key(index), format!("value {index}").as_bytes()).expect("put");
    }
    store
}

fn alter(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let file = path.join("pool.0000");
    let mut bytes = std::fs::read(&file).expect("readable");
    change(&mut bytes);
    std::fs::write(&file, &bytes).expect("writable");
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// Returns the offset of line 0 of the table of a partition.
fn lines_of(bytes: &[u8], partition: usize) -> usize {
    let root = word(bytes, ROOTS + partition * 32);
    assert_eq!(root >> 48, 0, "the table is in region 0");
    (root & !63 & ((1 << 48) - 1)) as usize + 64
}

/// Returns the first slot in use from the `nth` line of a table on.
fn used_slot(bytes: &[u8], lines: usize, nth: usize) -> usize {
    let slots = (nth..nth + 8).flat_map(|line| (1..8).map(move |slot| lines + line * 64 + slot * 8));
    slots.into_iter().find(|at| word(bytes, *at) != 0).expect("a slot in use")
}

fn all_are_right(store: &Nvht) {
    for index in 0..KEYS {
        assert_eq!(store.get(&key(index)).expect("get"), Some(format!("value {index}").into_bytes()), "{index}");
    }
    assert_eq!(store.len().expect("len"), u64::from(KEYS));
    assert_eq!(store.verify(&mut |_| ()).expect("verify").findings, []);
}

/// Reads all keys. Returns the keys reported as damaged. No key may be absent or wrong.
fn damaged_keys(store: &Nvht) -> Vec<u32> {
    let is_damaged = |index: &u32| match store.get(&key(*index)) {
        Ok(found) => {
            assert_eq!(found, Some(format!("value {index}").into_bytes()), "key {index}");
            false
        }
        Err(Error::Corrupt { .. }) => true,
        Err(other) => panic!("key {index}: {other}"),
    };
    (0..KEYS).filter(is_damaged).collect()
}

#[test]
fn recovery_reports_a_tag_and_a_reach_and_an_expiry_bit_and_repairs_none() {
    let scratch = Scratch::new();
    let path = scratch.store();
    drop(filled(&path));
    alter(&path, |bytes| {
        for partition in 0..4 {
            let lines = lines_of(bytes, partition);
            let slot = used_slot(bytes, lines, 0);
            bytes[slot + 7] ^= 1 << partition;
            bytes[lines + 64] ^= 1 << partition;
            let other = used_slot(bytes, lines, 8);
            // The expiry bit.
            bytes[other + 5] ^= 1;
        }
    });
    for _open in 0..2 {
        let store = Nvht::open(&path, &options()).expect("open");
        store.wait_recovered().expect("recovered");
        assert!(store.stats().recovery.corrupt >= 12, "{:?}", store.stats().recovery);
        assert_eq!(damaged_keys(&store).len(), 8, "a tag and an expiry bit in each of four partitions");
        assert!(!store.verify(&mut |_| ()).expect("verify").is_clean());
        drop(store);
    }
    let store = Nvht::open(&path, &options()).expect("open");
    for index in damaged_keys(&store) {
        store.put(&key(index), format!("value {index}").as_bytes()).expect("put");
    }
    assert_eq!(damaged_keys(&store), [0; 0], "a key is damaged until it is put");
}

#[test]
fn a_damaged_tag_after_a_clean_stop_is_refused_and_a_salvage_reports_the_key() {
    let scratch = Scratch::new();
    let path = scratch.store();
    filled(&path).close().expect("close");
    alter(&path, |bytes| {
        let lines = lines_of(bytes, 1);
        let slot = used_slot(bytes, lines, 0);
        bytes[slot + 7] ^= 0x40;
    });
    for _open in 0..2 {
        match Nvht::open(&path, &options()) {
            Err(Error::Corrupt { place, what, .. }) => {
                assert!(place.contains("table") && what.contains("salvage"), "{place}: {what}");
            }
            Err(other) => panic!("{other}"),
            Ok(_) => panic!("a strict open took a damaged table"),
        }
    }
    let mut salvaging = options();
    salvaging.pool.salvage = true;
    let store = Nvht::open(&path, &salvaging).expect("a salvage");
    store.wait_recovered().expect("recovered");
    assert_eq!(damaged_keys(&store).len(), 1);
    assert!(store.for_each(&mut |_, _| Visit::More).is_err());
    assert!(!store.verify(&mut |_| ()).expect("verify").is_clean());
}

#[test]
fn a_count_after_a_kill_is_refused_where_a_line_is_damaged() {
    let changes: [fn(&mut [u8], usize); 3] =
        [|line, _| line.fill(0), |line, _| line.fill(0xff), |line, slot| line[slot + 7] ^= 1];
    for (nth, change) in changes.into_iter().enumerate() {
        let scratch = Scratch::new();
        let path = scratch.store();
        drop(filled(&path));
        alter(&path, |bytes| {
            let lines = lines_of(bytes, 1);
            let slot = used_slot(bytes, lines, 3);
            let line = slot / 64 * 64;
            change(&mut bytes[line..line + 64], slot - line);
        });
        let store = Nvht::open(&path, &options()).expect("open");
        // The count waits for recovery.
        let counted = store.len();
        assert!(matches!(counted, Err(Error::Corrupt { .. })), "change {nth}: {counted:?}");
        assert!(!store.verify(&mut |_| ()).expect("verify").is_clean());
        drop(store);
        let store = Nvht::open(&path, &options()).expect("open");
        assert!(store.len().is_err(), "the damage stays");
    }
}

#[test]
fn a_count_is_refused_once_a_put_adds_a_slot_next_to_a_damaged_one() {
    let scratch = Scratch::new();
    let path = scratch.store();
    drop(filled(&path));
    alter(&path, |bytes| {
        let slot = word(bytes, used_slot(bytes, lines_of(bytes, 0), 0));
        let record = ((slot & ((1 << 27) - 1)) << 4) as usize;
        // The version: the record becomes unreadable.
        bytes[record + 15] ^= 0x80;
    });
    for open in 0..3 {
        let store = Nvht::open(&path, &options()).expect("open");
        store.wait_recovered().expect("recovered");
        for index in damaged_keys(&store) {
            store.put(&key(index), format!("value {index}").as_bytes()).expect("put");
        }
        let counted = store.len();
        assert!(matches!(counted, Err(Error::Corrupt { .. })), "open {open}: {counted:?}");
        store.close().expect("close");
    }
}

#[test]
fn a_changed_root_is_refused_by_name() {
    for (offset, bit, part) in [(0, 30, "table"), (8, 20, "growth"), (16, 3, "cursor"), (16, 50, "cursor")] {
        let scratch = Scratch::new();
        let path = scratch.store();
        drop(filled(&path));
        alter(&path, |bytes| bytes[ROOTS + 2 * 32 + offset + bit / 8] ^= 1 << (bit % 8));
        match Nvht::open(&path, &options()) {
            Err(Error::Corrupt { place, what, .. }) => {
                assert!(place.contains("partition 2"), "{place}: {what}");
                assert!(what.contains(part), "{what}");
            }
            Err(other) => panic!("{offset} bit {bit}: {other}"),
            Ok(store) => {
                // A growth may have been in progress, with this word as its own.
                all_are_right(&store);
            }
        }
    }
}

#[test]
fn a_damaged_record_is_reported_before_and_after_its_table_grew() {
    let scratch = Scratch::new();
    let path = scratch.store();
    drop(filled(&path));
    alter(&path, |bytes| {
        let lines = lines_of(bytes, 0);
        let slot = word(bytes, used_slot(bytes, lines, 0));
        let record = ((slot & ((1 << 27) - 1)) << 4) as usize;
        // The version: the record becomes unreadable.
        bytes[record + 15] ^= 0x80;
    });
    let store = Nvht::open(&path, &options()).expect("open");
    store.wait_recovered().expect("recovered");
    let told = |store: &Nvht| {
        let wrong = |index: &u32| matches!(store.get(&key(*index)), Err(Error::Corrupt { .. }));
        (0..KEYS).filter(wrong).collect::<Vec<_>>()
    };
    let damaged = told(&store);
    assert_eq!(damaged.len(), 1);
    for index in KEYS..8 * KEYS {
        store.put(&key(index), b"more").expect("put");
    }
    assert_eq!(told(&store), damaged, "told after tables grew");
    store.put(&key(damaged[0]), b"again").expect("put");
    assert_eq!(store.get(&key(damaged[0])).expect("get").as_deref(), Some(&b"again"[..]));
    assert!(store.delete(&key(damaged[0])).expect("delete"));
    let told = store.contains(&key(damaged[0]));
    assert!(matches!(told, Err(Error::Corrupt { .. })), "whose slot was damaged is not known: {told:?}");
}

/// Returns two keys with the same tag (docs/format: the low 11 bits of the hash).
fn same_tag() -> (Vec<u8>, Vec<u8>) {
    let tag = |index: u32| xxh3_64_with_seed(&key(index), 5) & 0x7ff;
    let pairs = (0..2000u32).flat_map(|a| (0..a).map(move |b| (a, b)));
    let (a, b) = pairs.into_iter().find(|(a, b)| tag(*a) == tag(*b)).expect("of 2000 keys some two have one tag");
    (key(a), key(b))
}

#[test]
fn a_damaged_value_is_not_taken_for_another_keys_of_the_same_tag() {
    let (a, b) = same_tag();
    let options =
        NvhtOptions { hash: HashKind::Xxh3, partitions: 1, initial_capacity: 1, probe_length: 14, ..options() };
    let writes: [fn(&Nvht, &[u8]); 3] = [
        |store, a| store.put(a, b"new").expect("put"),
        |store, a| assert!(store.update(a, b"new", Lifetime::Forever).expect("update")),
        |store, a| {
            let op = BatchOp::Put { key: a.to_vec(), value: b"new".to_vec(), expiry: None };
            store.write(&Batch { ops: vec![op] }).expect("write");
        },
    ];
    for write in writes {
        let scratch = Scratch::new();
        let path = scratch.store();
        let store = Nvht::create(&path, &options).expect("create");
        store.put(&b, b"the value that is damaged").expect("put");
        store.put(&a, b"old").expect("put");
        drop(store);
        alter(&path, |bytes| {
            let at = bytes.windows(25).position(|bytes| bytes == b"the value that is damaged").expect("the value");
            bytes[at] ^= 1;
        });
        let store = Nvht::open(&path, &options).expect("open");
        store.wait_recovered().expect("recovered");
        write(&store, &a);
        assert_eq!(store.get(&a).expect("get").as_deref(), Some(&b"new"[..]));
        assert!(matches!(store.get(&b), Err(Error::Corrupt { .. })), "the other key is damaged, and not absent");
        let both = [&a, &b].map(|key| BatchOp::Put { key: key.clone(), value: b"both".to_vec(), expiry: None });
        store.write(&Batch { ops: both.to_vec() }).expect("write");
        for key in [&a, &b] {
            assert_eq!(store.get(key).expect("get").as_deref(), Some(&b"both"[..]));
        }
        assert_eq!(store.len().expect("len"), 2);
    }
}

/// The expiry of the expired record. Few records have these bytes by chance.
const EXPIRED_MILLIS: u64 = 0x0102_0304_0506;

/// Regression: an update of an expired key returned that the key was present.
#[test]
fn a_record_whose_expiry_is_damaged_is_neither_present_nor_replaced() {
    let scratch = Scratch::new();
    let path = scratch.store();
    let store = Nvht::create(&path, &small_dax()).expect("create");
    store.put_expiring(b"key", b"value", Some(Expiry::at_millis(EXPIRED_MILLIS))).expect("put");
    drop(store);
    let file = path.join("pool.0000");
    let whole = std::fs::read(&file).expect("readable");
    let expiry = EXPIRED_MILLIS.to_le_bytes();
    let at = whole.windows(8).position(|part| part == expiry).expect("the record's expiry");
    for bit in 0..64 {
        let mut damaged = whole.clone();
        damaged[at + bit / 8] ^= 1 << (bit % 8);
        std::fs::write(&file, &damaged).expect("writable");
        let store = Nvht::open(&path, &small_dax()).expect("open");
        let updated = store.update(b"key", b"other", Lifetime::Forever);
        assert!(!matches!(updated, Ok(true)), "bit {bit}: {updated:?}");
        let swapped = store.update_with(b"key", &mut |present, _| {
            assert_eq!(present, None, "bit {bit}");
            Change::Keep
        });
        assert!(matches!(swapped, Ok(_) | Err(Error::Corrupt { .. })), "bit {bit}: {swapped:?}");
    }
}
