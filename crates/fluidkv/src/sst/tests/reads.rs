//! Gets, seeks and walks over random contents.

use std::ops::Bound;

use super::super::{Cursor, Reads, SeekPosition, Slot, TableMeta, hash, verify};
use super::{IDENTITY, Model, Rng, build, is_item, probes, random_model, random_options};

/// Seeds of the random tests.
const SEEDS: u64 = 150;

fn each_table(test: impl Fn(&Model, &TableMeta, &[u8], &mut Rng, u64)) {
    for seed in 0..SEEDS {
        let mut rng = Rng(seed);
        let model = random_model(&mut rng);
        let built = build(&model, &random_options(&mut rng));
        let meta = TableMeta::open(&built.bytes, IDENTITY).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert_eq!(meta, built.meta, "seed {seed}");
        test(&model, &meta, &built.bytes, &mut rng, seed);
    }
}

#[test]
fn every_key_is_found_and_no_other() {
    each_table(|model, meta, bytes, rng, seed| {
        let table = meta.table(bytes).expect("whole");
        let others = probes(model, rng);
        for key in model.keys().chain(&others) {
            for reads in [Reads::Trusted, Reads::Verified] {
                let slot = Slot::new();
                let found = table.get(key, hash(key), reads, &slot).expect("sound");
                match (found, model.get(key)) {
                    (Some(item), Some(rest)) => assert!(is_item(&item, key, rest), "seed {seed}: {key:?}"),
                    (found, rest) => assert!(found.is_none() && rest.is_none(), "seed {seed}: {key:?} is {found:?}"),
                }
            }
        }
    });
}

#[test]
fn a_get_in_two_steps_reads_the_predicted_bytes() {
    each_table(|model, meta, bytes, _, seed| {
        let table = meta.table(bytes).expect("whole");
        for (key, rest) in model {
            let block = table.locate(key).expect("sound").expect("a block");
            let slot = Slot::new();
            let item = table.get_in(&block, key, hash(key), Reads::Verified, &slot).expect("sound").expect("the key");
            assert!(is_item(&item, key, rest), "seed {seed}: {key:?}");
            for range in [table.filter_range(hash(key)), table.index_range(key), block.range(), block.near()] {
                assert!(range.start <= range.end && range.end <= bytes.len(), "seed {seed}: {range:?}");
            }
            assert!(table.may_have(hash(key), Reads::Verified), "seed {seed}: {key:?}");
        }
    });
}

#[test]
fn walks_from_every_place_go_both_ways() {
    each_table(|model, meta, bytes, rng, seed| {
        let mut cursor = Cursor::new(meta.table(bytes).expect("whole"), Reads::Verified);
        for key in &probes(model, rng) {
            for (position, bound, opposite) in [
                (SeekPosition::Before(key), Bound::Included(key), Bound::Excluded(key)),
                (SeekPosition::After(key), Bound::Excluded(key), Bound::Included(key)),
            ] {
                cursor.seek(position).expect("sound");
                for (right, rest) in model.range::<Vec<u8>, _>((bound, Bound::Unbounded)).take(20) {
                    let item = cursor.next().expect("sound").expect("one more");
                    assert!(is_item(&item, right, rest), "seed {seed}: {position:?}");
                }
                cursor.seek(position).expect("sound");
                for (right, rest) in model.range::<Vec<u8>, _>((Bound::Unbounded, opposite)).rev().take(20) {
                    let item = cursor.prev().expect("sound").expect("one more");
                    assert!(is_item(&item, right, rest), "seed {seed}: back from {position:?}");
                }
            }
        }
    });
}

#[test]
fn a_walk_yields_everything_in_order_and_turns_anywhere() {
    each_table(|model, meta, bytes, rng, seed| {
        let all: Vec<_> = model.iter().collect();
        let mut cursor = Cursor::new(meta.table(bytes).expect("whole"), Reads::Trusted);
        for (key, rest) in &all {
            assert!(is_item(&cursor.next().expect("sound").expect("one more"), key, rest), "seed {seed}");
        }
        assert_eq!(cursor.next().expect("sound"), None, "seed {seed}");
        cursor.seek(SeekPosition::Start).expect("sound");
        assert_eq!(cursor.prev().expect("sound"), None, "seed {seed}");
        cursor.seek_to_last();
        assert_eq!(cursor.next().expect("sound"), None, "seed {seed}");
        for (key, rest) in all.iter().rev() {
            assert!(is_item(&cursor.prev().expect("sound").expect("one more"), key, rest), "seed {seed}");
        }
        let mut at = 0;
        for _ in 0..200 {
            let (step, right) = if rng.below(2) == 0 {
                let right = all.get(at);
                at = (at + 1).min(all.len());
                (cursor.next(), right)
            } else {
                let right = at.checked_sub(1).and_then(|at| all.get(at));
                at = at.saturating_sub(1);
                (cursor.prev(), right)
            };
            assert_eq!(step.expect("sound").map(|item| item.key), right.map(|(key, _)| key.as_slice()), "seed {seed}");
        }
    });
}

#[test]
fn a_sound_table_verifies_and_counts_what_it_has() {
    each_table(|model, meta, bytes, _, seed| {
        let mut findings = Vec::new();
        let verified = verify(bytes, IDENTITY, &mut |finding| findings.push(finding));
        assert!(findings.is_empty(), "seed {seed}: {findings:?}");
        assert_eq!((verified.items, verified.blocks), (model.len() as u64, meta.blocks()), "seed {seed}");
        let (least, greatest) = meta.table(bytes).and_then(|table| table.keys()).expect("sound");
        let keys = (model.keys().next(), model.keys().next_back());
        assert_eq!(
            (Some(least), Some(greatest)),
            (keys.0.map(Vec::as_slice), keys.1.map(Vec::as_slice)),
            "seed {seed}"
        );
    });
}
