//! Tests of chains that an open continues.

use std::sync::Arc;

use lodestore_media::sim::SimSpec;
use lodestore_media::{PlantedFault, PoolOptions};

use super::*;
use crate::planted;
use crate::space::sizes::Sizes;
use crate::values::ValueExtent;
use crate::version::manifest::Edit;
use crate::version::manifest::record::{encode, encode_checkpoint, replay};
use crate::version::manifest::state::ManifestState;
use crate::{ENGINE, FORMAT, FluidOptions};

const NONCE: u64 = 0x1234_5678_9ABC_DEF0;
/// Offsets of the value segments of the two records.
const FIRST: u64 = 0x55_5000;
const SECOND: u64 = 0x2A_A000;

/// Returns a pool with garbage in its free space and this planted fault, and a reserve.
fn pool(mutant: Option<PlantedFault>) -> (Arc<Pool>, Reserve) {
    let pool = PoolOptions { capacity: 4 << 20, region_bytes: 4 << 20, ..PoolOptions::default() };
    let options = FluidOptions { pool, ..FluidOptions::default() };
    let spec = SimSpec { record: false, mutant, ..SimSpec::default() };
    let (pool, _) = Pool::create_sim(&spec, ENGINE, FORMAT, options.pool.clone()).expect("a pool");
    let extents: Vec<_> =
        std::iter::from_fn(|| pool.allocator().alloc_extent(&pool, 64 << 10, KIND_MANIFEST).ok()).collect();
    for at in extents {
        pool.store(at, &[0xA5; 64 << 10]);
        pool.allocator().free_extent(&pool, at);
    }
    let reserve = Reserve::new(&pool, &Sizes::of(&options, 4 << 20));
    (pool, reserve)
}

/// Returns a chain with a checkpoint, and the checkpoint's length.
fn begun(pool: &Pool, reserve: &Reserve) -> (Chain, u64) {
    let checkpoint = encode_checkpoint(&ManifestState::new(), NONCE, 1);
    let mut chain = Chain::new(NONCE);
    chain.ensure_space(pool, reserve, checkpoint.len() as u64).expect("room");
    chain.append(pool, &checkpoint).expect("appended");
    (chain, checkpoint.len() as u64)
}

/// Returns the record of a change that begins a value segment at this offset.
fn begins_at(offset: u64) -> Vec<u8> {
    let begun = vec![ValueExtent { id: ManifestState::new().next_value(), at: NvPtr::new(0, offset), bytes: 4096 }];
    encode(&Edit::Values { begun, ended: Vec::new() }, NONCE, 2)
}

#[test]
fn a_continued_chain_has_nothing_after_its_records() {
    let (pool, reserve) = pool(None);
    let (chain, end) = begun(&pool, &reserve);
    let (mut chain, before) = Chain::read(&pool, chain.first()).expect("a chain");
    assert_eq!(before[end as usize], 0xA5);
    chain.continue_at(&pool, end).expect("gone on");
    let (_, behind) = before.split_at(end as usize);
    let (_, after) = Chain::read(&pool, chain.first()).expect("a chain");
    assert_eq!(after[..end as usize], before[..end as usize]);
    assert_eq!(after[end as usize..][..WORD_BYTES], NO_RECORD_MAGIC.to_le_bytes());
    assert!(after[end as usize + WORD_BYTES..].iter().all(|byte| *byte == 0));
    // New extents have no record bytes either: a crash may have undone their earlier allocation,
    // with a record in them, before they were linked.
    let links = chain.links.len();
    chain.ensure_space(&pool, &reserve, 4 * behind.len() as u64).expect("room");
    assert!(chain.links.len() > links);
    for link in &chain.links[links..] {
        let bytes = pool.bytes(link.at, link.capacity as usize).expect("an extent");
        assert!(bytes[EXTENT_HEADER_BYTES..].iter().all(|byte| *byte == 0));
    }
}

/// Two similar records with the same number: the first was cut off, and so is the second.
#[test]
fn records_cut_off_by_two_crashes_never_follow_the_first() {
    let [nothing, first, second] = found_behind_two_crashes(None);
    assert!(nothing > 0 && second > 0, "{nothing} {second}");
    assert_eq!(first, 0, "the record that was cut off has happened");
}

/// Checks that the test above detects the planted fault.
#[test]
fn records_that_are_not_wiped_follow_the_first() {
    let [nothing, first, second] = found_behind_two_crashes(Some(planted::MANIFEST_NOT_WIPED));
    assert!(nothing > 0 && first > 0 && second > 0, "{nothing} {first} {second}");
}

/// Returns how often nothing, the first record and the second record are read after the checkpoint.
/// Tries all pairs of a word that the first record lacks and a word that the second record alone
/// has, or alone lacks. Between the two records, an open continues the chain.
fn found_behind_two_crashes(mutant: Option<PlantedFault>) -> [u64; 3] {
    let (pool, reserve) = pool(mutant);
    let (mut chain, end) = begun(&pool, &reserve);
    let place = chain.position_of(end).expect("there is room");
    let (first, second) = (begins_at(FIRST), begins_at(SECOND));
    assert_eq!(first.len(), second.len());
    let places = |state: &ManifestState| -> Vec<u64> { state.values().values().map(|used| used.at.offset()).collect() };
    let words = first.len() / WORD_BYTES;
    let mut seen = [0; 3];
    for (missing, there) in (0..words).flat_map(|missing| (0..words).map(move |there| (missing, there))) {
        pool.store(place, &first);
        pool.store(place.add((missing * WORD_BYTES) as u64), &[0xA5; WORD_BYTES]);
        let bytes;
        (chain, bytes) = Chain::read(&pool, chain.first()).expect("a chain");
        assert_eq!(places(&replay(&bytes, NONCE).expect("a manifest").state), [], "it was cut off");
        chain.continue_at(&pool, end).expect("gone on");
        // One word of the second record, then the other words.
        for all_but_one in [false, true] {
            for word in (0..words).filter(|word| (*word == there) != all_but_one) {
                pool.store(place.add((word * WORD_BYTES) as u64), &second[word * WORD_BYTES..][..WORD_BYTES]);
            }
            let (_, bytes) = Chain::read(&pool, chain.first()).expect("a chain");
            match places(&replay(&bytes, NONCE).expect("a manifest").state)[..] {
                [] => seen[0] += 1,
                [FIRST] => seen[1] += 1,
                [SECOND] => seen[2] += 1,
                ref others => panic!("{others:x?}, without word {missing}, with {there}"),
            }
        }
    }
    seen
}
