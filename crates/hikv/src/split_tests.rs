//! Refusals and results of splits.

use lodestore_contract::Error;
use lodestore_contract::testing::Scratch;
use lodestore_media::{Pool, PoolOptions, Prefault};

use crate::entry::Entry;
use crate::hash::{DEPTH_MAX, Signature};
use crate::layout::{Deep, ENGINE, FORMAT, Superblock, WordPlace};
use crate::split::{format, split};
use crate::table::Table;

#[test]
fn a_split_of_a_segment_of_maximum_depth_is_index_full() {
    let scratch = Scratch::new();
    let options =
        PoolOptions { capacity: 1 << 20, region_bytes: 1 << 20, prefault: Prefault::None, ..PoolOptions::default() };
    let (pool, _) = Pool::create(&scratch.store(), ENGINE, FORMAT, options).expect("a pool");
    let table = Table::new(Superblock { partitions: 1, segment_bytes: 512, seed: 1, modes: 0 });
    format(&table, &pool).expect("room");
    let sig = Signature(1);
    split(&table, &pool, sig, false).expect("one that can be split");
    let segment = table.segment(&pool, sig);
    let directory = table.directory(&pool, 0);
    for index in 0..1 << directory.depth {
        let place = WordPlace::in_directory(directory, 0, index);
        pool.publish_u64(place.at, Deep { at: segment.at, depth: DEPTH_MAX }.pack(&pool, place));
    }
    let refused = split(&table, &pool, sig, false);
    match refused {
        Err(error @ Error::IndexFull { depth: DEPTH_MAX, .. }) => {
            assert!(error.to_string().contains("`Builder::set(\"segment\", ..)`"))
        }
        other => panic!("{other:?}"),
    }
}

/// A flipped bit of a signature can make an entry one of the sibling. The slot then looks like one
/// left by an earlier split, but its check bits do not match.
#[test]
fn a_split_keeps_an_entry_of_the_sibling_whose_check_bits_differ() {
    let scratch = Scratch::new();
    let options =
        PoolOptions { capacity: 1 << 20, region_bytes: 1 << 20, prefault: Prefault::None, ..PoolOptions::default() };
    let (pool, _) = Pool::create(&scratch.store(), ENGINE, FORMAT, options).expect("a pool");
    let table = Table::new(Superblock { partitions: 1, segment_bytes: 512, seed: 1, modes: 0 });
    format(&table, &pool).expect("room");
    let sig = Signature(1);
    split(&table, &pool, sig, false).expect("a split");
    let segment = table.segment(&pool, sig);
    let stray = Signature(sig.0 | 1 << 63);
    let slot = Table::bucket(segment, table.placement.buckets(stray).0);
    let entry = Entry::naming(slot, stray.0, segment.at, 12345);
    pool.cas_u128(slot, Entry::free(&pool, slot).pair(), entry.pair()).expect("a free slot");
    split(&table, &pool, sig, false).expect("a split");
    assert_eq!(Entry::load(&pool, slot), entry);
}

#[test]
fn a_directory_word_is_valid_at_its_own_place_only() {
    let scratch = Scratch::new();
    let options =
        PoolOptions { capacity: 1 << 20, region_bytes: 1 << 20, prefault: Prefault::None, ..PoolOptions::default() };
    let (pool, _) = Pool::create(&scratch.store(), ENGINE, FORMAT, options).expect("a pool");
    let directory = Deep { at: pool.root(), depth: 10 };
    let (mut tried, mut missed) = (0, 0);
    for (partition, other_partition) in [(0, 0), (0, 1), (255, 254)] {
        for index in 0..1 << directory.depth {
            let place = WordPlace::in_directory(directory, partition, index);
            let word = Deep { at: pool.root(), depth: 3 }.pack(&pool, place);
            assert!(Deep::is_valid(word, &pool, place));
            let flipped = (0..64).filter(|bit| Deep::is_valid(word ^ 1 << bit, &pool, place)).count();
            assert_eq!(flipped, 0, "word {index}");
            let other = WordPlace::in_directory(directory, other_partition, index ^ 1);
            tried += 1;
            missed += u32::from(Deep::is_valid(word, &pool, other));
        }
    }
    // Expected: 2^-12 of 3,072, as the parity bit is the same at each place.
    assert!(missed < 10, "{missed} of {tried}");
}
