//! Refusals and results of splits.

use std::sync::Arc;

use lodestore_contract::Error;
use lodestore_contract::testing::Scratch;
use lodestore_media::{NvPtr, Pool, PoolOptions, Prefault};

use crate::entry::Entry;
use crate::hash::{DEPTH_MAX, Signature};
use crate::layout::{Deep, ENGINE, FORMAT, Superblock, WordPlace};
use crate::split::{format, repair, split};
use crate::table::Table;
use crate::walk::walk;

/// Bytes of a segment of [`formatted_table`].
pub(crate) const SEGMENT_BYTES: u32 = 512;

/// Returns an index of one partition and one segment in a new pool, as an open leaves it. The pool
/// is in the directory of the `Scratch`.
pub(crate) fn formatted_table() -> (Scratch, Arc<Pool>, Table) {
    let scratch = Scratch::new();
    let options =
        PoolOptions { capacity: 1 << 20, region_bytes: 1 << 20, prefault: Prefault::None, ..PoolOptions::default() };
    let (pool, _) = Pool::create(&scratch.store(), ENGINE, FORMAT, options).expect("a pool");
    let table = Table::new(Superblock { partitions: 1, segment_bytes: SEGMENT_BYTES, seed: 1, modes: 0 });
    format(&table, &pool).expect("room");
    repair(&table, &pool, 0).expect("a directory");
    (scratch, pool, table)
}

#[test]
fn a_split_of_a_segment_of_maximum_depth_is_index_full() {
    let (_scratch, pool, table) = formatted_table();
    let sig = Signature(1);
    split(&table, &pool, sig, false).expect("one that can be split");
    let segment = table.segment(&pool, sig).expect("a segment");
    // The directory index of the signature is 0 at each depth.
    let directory = Deep { depth: DEPTH_MAX, ..table.roots.load(0) };
    table.roots.store(0, directory);
    let place = WordPlace::in_directory(directory, 0, 0);
    pool.publish_u64(place.at, Deep { at: segment.at, depth: DEPTH_MAX }.pack(&pool, place));
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
    let (_scratch, pool, table) = formatted_table();
    let sig = Signature(1);
    split(&table, &pool, sig, false).expect("a split");
    let segment = table.segment(&pool, sig).expect("a segment");
    let stray = Signature(sig.0 | 1 << 63);
    let slot = Table::bucket(segment, table.placement.buckets(stray).0);
    let entry = Entry::naming(slot, stray.0, segment.at, 12345);
    pool.cas_u128(slot, Entry::free(&pool, slot).pair(), entry.pair()).expect("a free slot");
    split(&table, &pool, sig, false).expect("a split");
    assert_eq!(Entry::load(&pool, slot), entry);
}

#[test]
fn a_directory_word_is_valid_at_its_own_place_only() {
    let (_scratch, pool, _) = formatted_table();
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

/// A word whose check bits are right by chance may name any position.
#[test]
fn a_directory_word_that_names_no_segment_is_corrupt() {
    let (_scratch, pool, table) = formatted_table();
    let directory = table.roots.load(0);
    let place = WordPlace::in_directory(directory, 0, 0);
    let word = pool.load_u64(place.at);
    let end = NvPtr::new(0, (1 << 20) - 64);
    for at in [end, NvPtr::new(0, 1 << 30), NvPtr::new(4095, 64), NvPtr::new(9, (1 << 40) - 64)] {
        for depth in [0, 1, DEPTH_MAX] {
            let sig = Signature(99);
            pool.publish_u64(place.at, Deep { at, depth }.pack(&pool, place));
            let likely = table.likely_segment(&pool, sig);
            assert_eq!(likely.at, at);
            table.prefetch(&pool, likely, sig);
            assert!(table.candidate(&pool, likely, sig).is_none());
            assert!(matches!(table.find(&pool, likely, sig, b"key"), Err(Error::Corrupt { .. })));
            assert!(table.segment(&pool, sig).is_none());
            assert!(matches!(split(&table, &pool, sig, false), Err(Error::Corrupt { .. })));
            let walked = walk(&table, &pool, 0, |_, _| Ok(true));
            assert!(matches!(walked, Err(Error::Corrupt { .. })));
        }
    }
    pool.publish_u64(place.at, word);
    table.segment(&pool, Signature(99)).expect("a segment");
}
