//! Damage to the end of the manifest of a closed or killed store: the record was durable, and the
//! logs that it covers are freed.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex};

use lodestore_contract::{Error, Event, Result, Store, Visit};
use lodestore_fluidkv::{FluidKv, FluidOptions};
use lodestore_inplace::testing::Scratch;
use lodestore_media::PoolOptions;

const KEYS: u32 = 4_000;

fn options(salvage: bool) -> FluidOptions {
    FluidOptions {
        pool: PoolOptions { capacity: 16 << 20, region_bytes: 16 << 20, salvage, ..PoolOptions::default() },
        memtable_bytes: 64 << 10,
        segment_bytes: 16 << 10,
        workers: 0,
        ..FluidOptions::default()
    }
}

fn filled(scratch: &Scratch) -> FluidKv {
    let store = FluidKv::create(&scratch.store(), &options(false)).expect("create");
    put(&store, 0..KEYS);
    store
}

fn put(store: &FluidKv, keys: std::ops::Range<u32>) {
    keys.for_each(|key| store.put(&key.to_le_bytes(), &[7; 40]).expect("put"));
}

fn bytes_of(scratch: &Scratch) -> Vec<u8> {
    std::fs::read(scratch.store().join("pool.0000")).expect("the store's file")
}

fn store_at(scratch: &Scratch, at: usize, bytes: &[u8]) {
    let file = OpenOptions::new().write(true).open(scratch.store().join("pool.0000")).expect("the store's file");
    file.write_all_at(bytes, at as u64).expect("written");
}

/// Returns where the bytes of the manifest's last record are, in the chain of extents that the root
/// word names.
fn last_record(bytes: &[u8]) -> Vec<usize> {
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    let root = (0..bytes.len()).step_by(64).find(|at| bytes[*at..].starts_with(b"LFLUID1\0")).expect("a root area");
    let (mut next, mut row) = (word(root + 64) as usize, Vec::new());
    while next != 0 {
        row.extend(next + 64..next + word(next + 24) as usize);
        next = word(next + 32) as usize;
    }
    let number = |from: usize| if from + 24 <= row.len() { word(row[from + 8]) } else { 0 };
    let (mut from, mut last, mut expected) = (0, 0..0, number(0));
    while number(from) == expected {
        last = from..from + 24 + 8 * (word(row[from]) >> 32) as usize;
        (from, expected) = (last.end, expected + 1);
    }
    row[last].to_vec()
}

/// Opens the store and returns it with its reports of damage.
fn open(scratch: &Scratch, salvage: bool) -> (Result<FluidKv>, Vec<String>) {
    let told = Arc::new(Mutex::new(Vec::new()));
    let mut options = options(salvage);
    let sink = Arc::clone(&told);
    options.pool.events = Some(Arc::new(move |event: &Event| {
        if let Event::Corruption { place, what, .. } = event {
            sink.lock().expect("not poisoned").push(format!("{place}: {what}"));
        }
    }));
    let store = FluidKv::open(&scratch.store(), &options);
    let told = told.lock().expect("not poisoned").clone();
    (store, told)
}

fn count(store: &FluidKv) -> u32 {
    let mut count = 0;
    let more = &mut |_: &[u8], _: &[u8]| {
        count += 1;
        Visit::More
    };
    store.for_each(more).expect("a walk");
    count
}

/// Regression: the open corrected the bit by trying bits.
#[test]
fn a_wrong_bit_of_the_last_record_of_a_closed_store_refuses_it() {
    let scratch = Scratch::new();
    filled(&scratch).close().expect("close");
    let bytes = bytes_of(&scratch);
    let record = last_record(&bytes);
    for offset in [0, 4, 8, 16, 24, record.len() / 2, record.len() - 1] {
        store_at(&scratch, 0, &bytes);
        store_at(&scratch, record[offset], &[bytes[record[offset]] ^ 1]);
        let refused = open(&scratch, false).0.err();
        assert!(matches!(&refused, Some(Error::Corrupt { what, .. }) if what.contains("salvage")), "{refused:?}");
    }
}

/// The same, with the end of the record lost.
#[test]
fn a_closed_store_whose_manifest_ends_too_early_is_refused_and_salvage_says_so() {
    let scratch = Scratch::new();
    filled(&scratch).close().expect("close");
    let bytes = bytes_of(&scratch);
    let record = last_record(&bytes);
    for cut in [0, 16, record.len() / 2] {
        store_at(&scratch, 0, &bytes);
        record[cut..].iter().for_each(|at| store_at(&scratch, *at, &[0]));
        let refused = open(&scratch, false).0.err();
        assert!(matches!(&refused, Some(Error::Corrupt { what, .. }) if what.contains("salvage")), "{refused:?}");
        let (store, told) = open(&scratch, true);
        let store = store.expect("salvaged");
        assert!(store.stats().recovery.corrupt > 0, "cut at {cut}");
        // The rest of the store is readable.
        assert!((1..=KEYS).contains(&count(&store)), "cut at {cut}");
        assert!(told.len() == 1 && told[0].contains("its durable mark"), "{told:?}");
    }
}

#[test]
fn a_closed_store_whose_mark_is_damaged_opens_and_says_so_if_no_copy_is_whole() {
    let scratch = Scratch::new();
    filled(&scratch).close().expect("close");
    let bytes = bytes_of(&scratch);
    let marks: Vec<usize> = (0..bytes.len()).step_by(64).filter(|at| bytes[*at..].starts_with(b"LFREACH")).collect();
    assert_eq!(marks.len(), 2);
    for mark in &marks {
        store_at(&scratch, 0, &bytes);
        store_at(&scratch, *mark, &[0; 64]);
        let (store, _) = open(&scratch, false);
        assert_eq!(count(&store.expect("the other one is whole")), KEYS);
    }
    store_at(&scratch, 0, &bytes);
    marks.iter().for_each(|mark| store_at(&scratch, *mark, &[0; 64]));
    let (store, told) = open(&scratch, false);
    let store = store.expect("nothing is known to be missing");
    assert_eq!((count(&store), told.len(), store.stats().recovery.corrupt), (KEYS, 1, 1));
}

/// The mark of the earlier close is another manifest's.
#[test]
fn a_store_that_is_written_to_and_killed_after_a_close_is_not_reported_as_damaged() {
    let scratch = Scratch::new();
    filled(&scratch).close().expect("close");
    for round in 1..4 {
        let (store, told) = open(&scratch, false);
        let store = store.expect("open");
        assert_eq!((told.len(), store.stats().recovery.corrupt), (0, 0));
        put(&store, KEYS * round..KEYS * (round + 1));
        if round == 2 {
            store.settle().expect("settle");
        }
        drop(store);
        let (store, told) = open(&scratch, false);
        let store = store.expect("open");
        assert_eq!((count(&store), told.len()), (KEYS * (round + 1), 0));
        store.close().expect("close");
    }
}

/// Puts keys until the last record of the manifest is a new one of a flush. Returns the number of
/// keys.
fn put_until_flushed(scratch: &Scratch, store: &FluidKv, mut keys: u32) -> u32 {
    let before = last_record(&bytes_of(scratch));
    loop {
        put(store, keys..keys + 20);
        keys += 20;
        let bytes = bytes_of(scratch);
        let last = last_record(&bytes);
        if last != before && bytes[last[16]] == 2 {
            return keys;
        }
    }
}

/// Its logs were freed, and no others prove it.
#[test]
fn a_killed_store_whose_last_flush_is_damaged_is_refused() {
    for more in [0, 1, 100, 300] {
        let scratch = Scratch::new();
        let store = filled(&scratch);
        let keys = put_until_flushed(&scratch, &store, KEYS);
        let record = last_record(&bytes_of(&scratch));
        put(&store, keys..keys + more);
        assert_eq!(last_record(&bytes_of(&scratch)), record, "no other flush came");
        drop(store);
        record[record.len() / 2..].iter().take(16).for_each(|at| store_at(&scratch, *at, &[0xA5]));
        for _ in 0..2 {
            let refused = open(&scratch, false).0.err();
            assert!(matches!(&refused, Some(Error::Corrupt { what, .. }) if what.contains("salvage")), "{refused:?}");
        }
        let (store, told) = open(&scratch, true);
        let store = store.expect("salvaged");
        assert!(store.stats().recovery.corrupt > 0 && !told.is_empty() && count(&store) > 0);
    }
}
