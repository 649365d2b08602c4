//! Damage: a store is never recreated over its remains, and intact data stays available.

use std::path::{Path, PathBuf};

use crate::common::{Scratch, small_dax};
use lodestore_contract::{Change, Error, Expiry, Lifetime, ScanRange, Store, Visit};
use lodestore_hikv::{ENGINE, FORMAT, HiKv};
use lodestore_media::{NvPtr, Pool, RegionLayout};

/// A store with one key, stopped cleanly or killed.
fn with_a_key(clean: bool) -> (Scratch, PathBuf) {
    let scratch = Scratch::new();
    let path = scratch.store();
    let store = HiKv::create(&path, &small_dax()).expect("create");
    store.put(b"key", b"value").expect("put");
    if clean {
        store.close().expect("close");
    }
    (scratch, path)
}

/// Changes region 0 of a store at rest.
fn edit<T>(path: &Path, change: impl FnOnce(&mut [u8]) -> T) -> T {
    let file = path.join("pool.0000");
    let mut bytes = std::fs::read(&file).expect("readable");
    let done = change(&mut bytes);
    std::fs::write(&file, &bytes).expect("writable");
    done
}

#[test]
fn an_empty_root_area_is_damage_and_not_a_new_store() {
    for clean in [false, true] {
        let (_scratch, path) = with_a_key(clean);
        let kept = edit(&path, |bytes| {
            let kept = bytes[8192..12288].to_vec();
            bytes[8192..12288].fill(0);
            kept
        });
        for _again in 0..2 {
            match HiKv::open(&path, &small_dax()).map(|_| ()) {
                Err(error @ Error::Corrupt { .. }) => {
                    assert!(error.to_string().contains("restore the store from a backup or an export"), "{error}");
                }
                other => panic!("{other:?}"),
            }
        }
        // The rest was not overwritten: with its root area restored, the store is whole.
        edit(&path, |bytes| bytes[8192..12288].copy_from_slice(&kept));
        let store = HiKv::open(&path, &small_dax()).expect("open");
        assert_eq!(store.get(b"key").expect("get"), Some(b"value".to_vec()));
    }
}

#[test]
fn an_interrupted_creation_is_repeated() {
    let scratch = Scratch::new();
    let path = scratch.store();
    drop(Pool::create(&path, ENGINE, FORMAT, small_dax().pool).expect("a pool and no engine in it"));
    let store = HiKv::open(&path, &small_dax()).expect("open");
    store.put(b"key", b"value").expect("put");
    drop(store);
    let store = HiKv::open(&path, &small_dax()).expect("open");
    assert_eq!(store.get(b"key").expect("get"), Some(b"value".to_vec()));
}

#[test]
fn a_walk_continues_after_damaged_records_and_reports_them() {
    let scratch = Scratch::new();
    let path = scratch.store();
    let store = HiKv::create(&path, &small_dax()).expect("create");
    for key in 0..300u32 {
        store.put(format!("key{key:03}").as_bytes(), format!("the value of {key:03}").as_bytes()).expect("put");
    }
    store.close().expect("close");
    drop(store);
    edit(&path, |bytes| {
        for key in [17, 230] {
            let value = format!("the value of {key:03}");
            let at = bytes.windows(value.len()).position(|part| part == value.as_bytes()).expect("in the file");
            bytes[at] ^= 1;
        }
    });
    let store = HiKv::open(&path, &small_dax()).expect("open");
    let mut seen = std::collections::BTreeSet::new();
    let walked = store.for_each(&mut |key, _| {
        assert!(seen.insert(key.to_vec()));
        Visit::More
    });
    assert!(matches!(walked, Err(Error::Corrupt { .. })), "{walked:?}");
    assert_eq!(seen.len(), 298);
    assert!(!seen.contains(&b"key017"[..]) && !seen.contains(&b"key230"[..]));
}

#[test]
fn an_index_missing_from_the_extent_table_is_readable_and_refuses_writes() {
    for clean in [false, true] {
        let (_scratch, path) = with_a_key(clean);
        // Both copies of a word of region 0's table; kind 16 is a segment.
        edit(&path, |bytes| {
            let chunk_bytes = u32::from_le_bytes(bytes[112..116].try_into().expect("four bytes"));
            let layout = RegionLayout::new(0, bytes.len() as u64, chunk_bytes).expect("region 0");
            let is_segment = |copies: &[NvPtr; 2]| bytes[copies[0].offset() as usize] == 16;
            let copies = (0..layout.chunks).map(|chunk| layout.extent_words(chunk)).find(is_segment);
            for copy in copies.expect("a segment has a word") {
                bytes[copy.offset() as usize..][..8].fill(0);
            }
        });
        for is_second in [false, true] {
            let mut options = small_dax();
            if clean {
                // The table fails the seal of the clean stop.
                let refused = HiKv::open(&path, &options).map(|_| ());
                assert!(matches!(refused, Err(Error::Corrupt { .. })), "{refused:?}");
                options.pool.salvage = true;
            }
            let store = HiKv::open(&path, &options).expect("open");
            match store.put(b"key", b"other") {
                Err(error @ Error::Poisoned { .. }) => assert!(error.to_string().contains(
                    "import the export into a \
                     new store"
                )),
                other => panic!("{other:?}"),
            }
            assert_eq!(store.get(b"key").expect("get"), Some(b"value".to_vec()));
            let mut visited = 0;
            let walked = store.for_each(&mut |_, _| {
                visited += 1;
                Visit::More
            });
            // A second salvage knows that the first left records out, but not which ones.
            assert_eq!((visited, walked.is_err()), (1, clean && is_second), "{walked:?}");
            let scanned = store.scan(&lodestore_contract::ScanRange::all()).expect("scan");
            assert_eq!(scanned.filter(Result::is_ok).count(), 1);
            let _ = store.close();
        }
    }
}

#[test]
fn a_scan_continues_after_consecutive_damaged_records_and_reports_each_once() {
    let scratch = Scratch::new();
    let path = scratch.store();
    let store = HiKv::create(&path, &small_dax()).expect("create");
    let value = |key: u32| format!("the value of {key:03}, told apart from all others").into_bytes();
    for key in 0..400u32 {
        store.put(format!("key{key:03}").as_bytes(), &value(key)).expect("put");
    }
    store.close().expect("close");
    drop(store);
    let file = path.join("pool.0000");
    let mut bytes = std::fs::read(&file).expect("readable");
    let damaged: Vec<u32> = (50..250).chain(398..400).collect();
    for key in &damaged {
        let value = value(*key);
        let at = bytes.windows(value.len()).position(|part| part == value).expect("in the file");
        bytes[at] ^= 1;
    }
    std::fs::write(&file, &bytes).expect("writable");
    let store = HiKv::open(&path, &small_dax()).expect("open");
    let (mut right, mut wrong) = (Vec::new(), 0);
    for entry in store.scan(&ScanRange::all()).expect("scan") {
        match entry {
            Ok(entry) => right.push(String::from_utf8(entry.key().to_vec()).expect("text")),
            Err(Error::Corrupt { .. }) => wrong += 1,
            Err(other) => panic!("{other}"),
        }
    }
    let expected: Vec<String> =
        (0..400).filter(|key| !damaged.contains(key)).map(|key| format!("key{key:03}")).collect();
    assert_eq!(right, expected);
    assert_eq!(wrong, damaged.len());
}

#[test]
fn a_store_of_an_older_format_is_refused_as_such() {
    let (_scratch, path) = with_a_key(false);
    edit(&path, |bytes| {
        let superblock = &mut bytes[8192..];
        superblock[8..12].copy_from_slice(&1u32.to_le_bytes());
        let crc = lodestore_media::crc32c(&[&superblock[..32]]);
        superblock[32..36].copy_from_slice(&crc.to_le_bytes());
    });
    match HiKv::open(&path, &small_dax()).map(|_| ()) {
        Err(Error::OlderFormat { found: 1, oldest: lodestore_hikv::FORMAT, .. }) => {}
        other => panic!("{other:?}"),
    }
}

/// Damages bytes of a killed store's root area or directory, one word at a time.
#[test]
fn each_damaged_root_or_directory_word_refuses_the_open() {
    let (_scratch, path) = with_a_key(false);
    let file = path.join("pool.0000");
    let whole = std::fs::read(&file).expect("readable");
    let word = |at: usize| u64::from_le_bytes(whole[at..at + 8].try_into().expect("eight bytes"));
    let directory = |root: usize| (word(root) & 0x00ff_ffff_ffc0) as usize;
    for root in (8192 + 128..).step_by(8).take(4) {
        for at in [root, directory(root)] {
            let zero = word(at);
            for flips in (0..64).map(|bit| 1 << bit).chain([zero, 0x8000_0000_0000_0020]) {
                let mut bytes = whole.clone();
                bytes[at..at + 8].copy_from_slice(&(word(at) ^ flips).to_le_bytes());
                std::fs::write(&file, &bytes).expect("writable");
                let refused = HiKv::open(&path, &small_dax()).map(|_| ());
                assert!(matches!(refused, Err(Error::Corrupt { .. })), "{at:#x} {flips:#x}: {refused:?}");
            }
        }
    }
}

/// The expiry of the expired record. Few records have these bytes by chance.
const EXPIRED_MILLIS: u64 = 0x0102_0304_0506;

/// Regression: an update of an expired key returned that the key was present.
#[test]
fn a_record_whose_expiry_is_damaged_is_neither_present_nor_replaced() {
    let scratch = Scratch::new();
    let path = scratch.store();
    let store = HiKv::create(&path, &small_dax()).expect("create");
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
        let store = HiKv::open(&path, &small_dax()).expect("open");
        let updated = store.update(b"key", b"other", Lifetime::Forever);
        assert!(!matches!(updated, Ok(true)), "bit {bit}: {updated:?}");
        let swapped = store.update_with(b"key", &mut |present, _| {
            assert_eq!(present, None, "bit {bit}");
            Change::Keep
        });
        assert!(matches!(swapped, Ok(_) | Err(Error::Corrupt { .. })), "bit {bit}: {swapped:?}");
    }
}
