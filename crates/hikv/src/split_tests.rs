//! Refusals and results of splits.

use lodestore_contract::Error;
use lodestore_contract::testing::Scratch;
use lodestore_media::{Pool, PoolOptions, Prefault};

use crate::entry::Entry;
use crate::hash::{DEPTH_MAX, Signature};
use crate::layout::{Deep, ENGINE, FORMAT, Owner, Superblock};
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
        pool.publish_u64(
            directory.at.add(index * 8),
            Deep { at: segment.at, depth: DEPTH_MAX }.pack(&pool, Owner::Directory(0)),
        );
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
