//! Root and directory words that change while the store is open. Regression: a thread that followed
//! such a word panicked, or a key was absent without an error.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::common::{Scratch, small_dax};
use lodestore_contract::{Batch, BatchOp, Error, Lifetime, ScanRange, Store, Visit};
use lodestore_hikv::{HiKv, HiKvOptions};

/// Keys before the damage.
const KEYS: u32 = 150;
/// Offset of the root word of partition 0 in region 0 (docs/format/hikv.md).
const ROOT_WORD: u64 = 8192 + 128;

fn options() -> HiKvOptions {
    let mut options =
        HiKvOptions { partitions: 1, segment_bytes: 512, hash_seed: Some(5), scrub_rate: 0, ..small_dax() };
    options.pool.region_bytes = 1 << 20;
    options.pool.first_bytes = Some(1 << 20);
    options.pool.capacity = 1 << 20;
    options
}

fn key(index: u32) -> Vec<u8> {
    format!("key{index:05}").into_bytes()
}

fn value(index: u32) -> Vec<u8> {
    format!("value of {index:05}").into_bytes()
}

fn filled(path: &Path) -> HiKv {
    let store = HiKv::create(path, &options()).expect("create");
    (0..KEYS).for_each(|index| store.put(&key(index), &value(index)).expect("put"));
    store
}

/// The file of an open store.
struct Medium(File);

impl Medium {
    fn open(path: &Path) -> Self {
        Self(OpenOptions::new().read(true).write(true).open(path.join("pool.0000")).expect("writable"))
    }

    fn word(&self, at: u64) -> u64 {
        let mut bytes = [0; 8];
        self.0.read_exact_at(&mut bytes, at).expect("readable");
        u64::from_le_bytes(bytes)
    }

    fn set(&self, at: u64, word: u64) {
        self.0.write_all_at(&word.to_le_bytes(), at).expect("written");
    }

    /// Offsets of the root word and of all directory words.
    fn words(&self) -> Vec<u64> {
        let root = self.word(ROOT_WORD);
        let (directory, depth) = (root & 0xff_ffff_ffc0, root & 31);
        std::iter::once(ROOT_WORD).chain((0..1 << depth).map(|index| directory + index * 8)).collect()
    }

    /// Calls `work` with one bit of a word flipped, unless the store has stored another word since.
    fn with_flip(&self, at: u64, bit: u32, work: impl FnOnce()) {
        let word = self.word(at);
        self.set(at, word ^ 1 << bit);
        work();
        if self.word(at) == word ^ 1 << bit {
            self.set(at, word);
        }
    }
}

fn is_corrupt<T>(answer: &Result<T, Error>) -> bool {
    matches!(answer, Err(Error::Corrupt { .. }))
}

/// Reads every key by every kind of read. Returns the number of refused gets.
fn read_all(store: &HiKv, place: &str) -> usize {
    let mut refused = 0;
    let keys: Vec<Vec<u8>> = (0..KEYS).map(key).collect();
    for index in 0..KEYS {
        let found = store.get(&keys[index as usize]);
        match &found {
            Ok(found) => assert_eq!(*found, Some(value(index)), "{place}"),
            Err(_) => refused += usize::from(is_corrupt(&found)),
        }
        assert!(found.is_ok() || is_corrupt(&found), "{place}: {found:?}");
        let contains = store.contains(&keys[index as usize]);
        assert!(matches!(contains, Ok(true)) || is_corrupt(&contains), "{place}: {contains:?}");
    }
    let absent = store.get(b"absent");
    assert!(matches!(absent, Ok(None)) || is_corrupt(&absent), "{place}: {absent:?}");
    let borrowed: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let mut read = 0;
    let many = store.multi_get(&borrowed, &mut |index, found| {
        assert_eq!(found, Some(&value(index as u32)[..]), "{place}");
        read += 1;
    });
    assert!(many.is_ok() && read == KEYS || is_corrupt(&many), "{place}: {read} keys, {many:?}");
    let mut shown = 0;
    let walked = store.for_each(&mut |_, _| {
        shown += 1;
        Visit::More
    });
    assert!(walked.is_ok() && shown == KEYS || is_corrupt(&walked), "{place}: {shown} keys, {walked:?}");
    let scanned = store.scan_each(&ScanRange::all(), &mut |_, _| Visit::More);
    assert!(matches!(scanned, Ok(count) if count == KEYS as usize), "{place}: {scanned:?}");
    refused
}

#[test]
fn a_read_by_a_changed_word_is_right_or_an_error() {
    let scratch = Scratch::new();
    let path = scratch.store();
    let (store, medium) = (filled(&path), Medium::open(&path));
    let words = medium.words();
    assert!(words.len() > 8, "{} words", words.len());
    let mut refused = 0;
    for (number, at) in words.iter().enumerate() {
        for bit in 0..64 {
            let place = format!("word {number}, bit {bit}");
            medium.with_flip(*at, bit, || {
                refused += read_all(&store, &place);
                let report = store.verify(&mut |_| ()).expect("verify");
                assert!(!report.is_clean(), "{place}");
            });
        }
    }
    assert!(refused > 100, "{refused}");
    assert_eq!(read_all(&store, "no damage"), 0);
}

#[test]
fn a_write_by_a_changed_word_is_done_or_an_error() {
    let scratch = Scratch::new();
    let path = scratch.store();
    let (store, medium) = (filled(&path), Medium::open(&path));
    let mut refused = 0;
    let mut next = KEYS;
    for bit in (0..64).step_by(3) {
        for at in medium.words() {
            let (old, new, batched) = (next % KEYS, next, next + 1);
            next += 2;
            let mut done = Vec::new();
            medium.with_flip(at, bit, || {
                done.push((old, store.update(&key(old), &value(old), Lifetime::Forever)));
                done.push((new, store.insert(&key(new), &value(new), Lifetime::Forever)));
                let put = BatchOp::Put { key: key(batched), value: value(batched), expiry: None };
                done.push((batched, store.write(&Batch { ops: vec![put] }).map(|()| true)));
            });
            for (index, done) in done {
                let found = store.get(&key(index)).expect("no damage now");
                match done {
                    Ok(is_done) => assert!(is_done && found == Some(value(index)), "bit {bit}, key {index}"),
                    Err(Error::Corrupt { .. }) => {
                        refused += 1;
                        let before = (index < KEYS).then(|| value(index));
                        assert_eq!(found, before, "bit {bit}");
                    }
                    Err(error) => panic!("bit {bit}: {error}"),
                }
            }
            // Keeps the store small.
            for index in [new, batched] {
                store.delete(&key(index)).expect("delete");
            }
        }
    }
    assert!(refused > 20, "{refused}");
    assert!(store.verify(&mut |_| ()).expect("verify").is_clean());
}

/// The stop would seal the changed word.
#[test]
fn a_stop_seals_no_root_word_that_changed_while_the_store_was_open() {
    let scratch = Scratch::new();
    let path = scratch.store();
    let (store, medium) = (filled(&path), Medium::open(&path));
    medium.with_flip(ROOT_WORD, 20, || {
        let closed = store.close();
        assert!(is_corrupt(&closed), "{closed:?}");
    });
    drop(store);
    let store = HiKv::open(&path, &options()).expect("the word is right again");
    assert_eq!(read_all(&store, "no damage"), 0);
}
