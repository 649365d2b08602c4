//! Damage to the end of the newest log of a killed store: every acknowledged key keeps its newest
//! value, or an error names the damage.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;

use lodestore_contract::{Durability, Error, ScanRange, Store, Visit};
use lodestore_fluidkv::{FluidKv, FluidOptions};
use lodestore_inplace::testing::Scratch;
use lodestore_media::PoolOptions;

const KEYS: u64 = 300;
const HOT: u64 = 0;
const NEWEST: &[u8] = b"the newest value of the hot key";
const LINE: usize = 64;
const PAGE: usize = 4096;
/// Bytes of a log segment in these tests.
const SEGMENT: usize = 16 << 10;

fn options(durability: Durability) -> FluidOptions {
    FluidOptions {
        pool: PoolOptions { capacity: 16 << 20, region_bytes: 16 << 20, durability, ..PoolOptions::default() },
        memtable_bytes: 1 << 20,
        segment_bytes: SEGMENT as u64,
        workers: 0,
        ..FluidOptions::default()
    }
}

fn value_of(key: u64) -> Vec<u8> {
    if key == HOT { NEWEST.to_vec() } else { vec![key as u8; 40] }
}

/// A store of `keys` keys that was killed after it put one of them again; the bytes of its file.
fn killed(scratch: &Scratch, keys: u64, durability: Durability) -> Vec<u8> {
    let store = FluidKv::create(&scratch.store(), &options(durability)).expect("create");
    (0..keys).for_each(|key| store.put(&key.to_le_bytes(), &[key as u8; 40]).expect("put"));
    store.put(&HOT.to_le_bytes(), NEWEST).expect("put");
    assert_eq!(store.stats().engine_counters["flushes"], 0, "all records are in the log");
    drop(store);
    std::fs::read(scratch.store().join("pool.0000")).expect("the store's file")
}

/// Writes the image to the store's file, with zeros as holes.
fn restore(scratch: &Scratch, image: &[u8]) {
    let path = scratch.store().join("pool.0000");
    let file = OpenOptions::new().write(true).truncate(true).open(path).expect("the store's file");
    file.set_len(image.len() as u64).expect("its length");
    for (index, page) in image.chunks(PAGE).enumerate().filter(|(_, page)| page.iter().any(|byte| *byte != 0)) {
        file.write_all_at(page, (index * PAGE) as u64).expect("written");
    }
}

/// Opens the store with `damaged` as its file. Returns whether the open refused it; if not, every
/// key must have its newest value or an error.
fn is_refused(scratch: &Scratch, damaged: &[u8], keys: u64, durability: Durability, what: &str) -> bool {
    restore(scratch, damaged);
    let store = match FluidKv::open(&scratch.store(), &options(durability)) {
        Ok(store) => store,
        Err(Error::Corrupt { .. } | Error::OlderFormat { .. } | Error::NewerFormat { .. }) => return true,
        Err(error) => panic!("{what}: {error}"),
    };
    for key in 0..keys {
        match store.get(&key.to_le_bytes()) {
            Ok(found) => assert_eq!(found, Some(value_of(key)), "{what}: key {key}"),
            Err(error) => assert!(matches!(error, Error::Corrupt { .. }), "{what}: {error}"),
        }
    }
    let right = |key: &[u8], value: &[u8]| {
        let key = u64::from_le_bytes(key.try_into().expect("eight bytes"));
        assert_eq!(value, value_of(key), "{what}: key {key}");
    };
    let mut shown = 0;
    let walked = store.for_each(&mut |key, value| {
        right(key, value);
        shown += 1;
        Visit::More
    });
    assert!(walked.is_err() || shown == keys, "{what}: for_each shows {shown}");
    let scan: Vec<_> = store.scan(&ScanRange::all()).expect("a scan").collect();
    scan.iter().flatten().for_each(|entry| right(entry.key(), entry.value()));
    assert!(scan.iter().any(Result::is_err) || scan.len() as u64 == keys, "{what}: a scan shows {}", scan.len());
    false
}

/// Positions of the log segments, by their number.
fn segments(image: &[u8]) -> Vec<usize> {
    let number = |at: usize| u32::from_le_bytes(image[at + 12..at + 16].try_into().expect("four bytes"));
    let mut found: Vec<_> = (0..image.len()).step_by(PAGE).filter(|at| image[*at..].starts_with(b"LLOG")).collect();
    found.sort_unstable_by_key(|at| number(*at));
    found
}

/// Where the newest value of the hot key begins: in the log's last record.
fn newest_at(image: &[u8]) -> usize {
    image.windows(NEWEST.len()).position(|window| window == NEWEST).expect("the last record")
}

fn scratches() -> [(Scratch, Durability); 2] {
    let disk = || Scratch::within(Path::new(env!("CARGO_TARGET_TMPDIR")));
    [(disk(), Durability::Process), (disk(), Durability::Power)]
}

/// None of the records was left, and `verify` was clean.
#[test]
fn flips_in_all_header_copies_of_any_segment_refuse_the_open() {
    for (scratch, durability) in scratches() {
        let image = killed(&scratch, KEYS, durability);
        for at in segments(&image) {
            let capacity = u64::from_le_bytes(image[at + 40..at + 48].try_into().expect("eight bytes")) as usize;
            let mut damaged = image.clone();
            [at, at + LINE, at + capacity - LINE].into_iter().for_each(|copy| damaged[copy + 20] ^= 4);
            assert!(is_refused(&scratch, &damaged, KEYS, durability, "flips in three copies"), "segment at {at}");
        }
    }
}

/// The hot key had its old value, and `verify` was clean.
#[test]
fn flips_in_the_last_record_and_in_its_end_mark_refuse_the_open() {
    for (scratch, durability) in scratches() {
        for keys in [10, KEYS] {
            let image = killed(&scratch, keys, durability);
            let value = newest_at(&image);
            let mark = (value + NEWEST.len()).next_multiple_of(8);
            for bits in [[0, 1], [3, 9], [20, 30]] {
                let mut damaged = image.clone();
                bits.into_iter().for_each(|byte| damaged[value + byte] ^= 1);
                damaged[mark] ^= 8;
                assert!(is_refused(&scratch, &damaged, keys, durability, "flips in record and mark"), "{bits:?}");
            }
            std::fs::remove_dir_all(scratch.store()).expect("removed");
        }
    }
}

/// The hot key had its old value, and many keys were absent.
#[test]
fn a_lost_or_misplaced_page_at_the_end_of_a_log_refuses_the_open() {
    for (scratch, durability) in scratches() {
        // With one segment, and with the end in each page of a segment.
        for keys in [10, 70, 130, 190, KEYS] {
            let image = killed(&scratch, keys, durability);
            let page = newest_at(&image) / PAGE * PAGE;
            let others = segments(&image).into_iter().flat_map(|at| (at..at + SEGMENT).step_by(PAGE));
            for other in others.map(Some).chain([None]).filter(|other| *other != Some(page)) {
                let mut damaged = image.clone();
                match other {
                    Some(other) => damaged.copy_within(other..other + PAGE, page),
                    None => damaged[page..page + PAGE].fill(0),
                }
                let what = format!("{keys} keys, the page {page} replaced by {other:?}");
                assert!(is_refused(&scratch, &damaged, keys, durability, &what), "{what}");
            }
            std::fs::remove_dir_all(scratch.store()).expect("removed");
        }
    }
}

#[test]
fn a_zeroed_line_of_a_log_never_hides_a_record() {
    for (scratch, durability) in scratches() {
        let image = killed(&scratch, 200, durability);
        for at in segments(&image).into_iter().flat_map(|at| (at..at + SEGMENT).step_by(LINE)) {
            if image[at..at + LINE].iter().any(|byte| *byte != 0) {
                let mut damaged = image.clone();
                damaged[at..at + LINE].fill(0);
                is_refused(&scratch, &damaged, 200, durability, &format!("the line at {at}"));
            }
        }
    }
}
