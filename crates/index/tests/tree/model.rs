//! The tree compared with `BTreeMap`: all operations, difficult keys. LODESTORE_SEED reproduces the
//! long run.

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::common::{Random, Records};
use lodestore_index::{BPlusTree, Direction, Headed, sort_headed};
use proptest::prelude::*;

type Model = BTreeMap<Vec<u8>, u64>;

/// Returns a difficult key: zeros and 0xff, prefixes of one another, long shared prefixes, equal
/// heads.
fn difficult_key(random: &mut Random) -> Vec<u8> {
    let alphabet = [0x00, b'a', 0xff];
    let mut word =
        |len_max: u64| -> Vec<u8> { (0..=random.below(len_max)).map(|_| alphabet[random.below(3) as usize]).collect() };
    match random_kind(&word(4)) {
        0 => word(8),
        1 => vec![0; word(40).len()],
        2 => [vec![b'p'; 100], word(6)].concat(),
        3 => [b"user".to_vec(), word(2), vec![b'q'; 35], word(4)].concat(),
        _ => [vec![b'x'; word(70).len()], word(2)].concat(),
    }
}

fn random_kind(word: &[u8]) -> usize {
    word.iter().map(|byte| usize::from(*byte)).sum::<usize>() % 5
}

fn bound_of(key: &[u8], kind: u64) -> Bound<&[u8]> {
    match kind % 5 {
        0 | 1 => Bound::Included(key),
        2 | 3 => Bound::Excluded(key),
        _ => Bound::Unbounded,
    }
}

fn check_range(
    tree: &BPlusTree,
    records: &Records,
    model: &Model,
    from: Bound<&[u8]>,
    direction: Direction,
    max: usize,
) {
    let all: Vec<u64> = match direction {
        Direction::Forward => model.range::<[u8], _>((from, Bound::Unbounded)).map(|e| *e.1).collect(),
        Direction::Backward => model.range::<[u8], _>((Bound::Unbounded, from)).rev().map(|e| *e.1).collect(),
    };
    let mut out = vec![7];
    let end = tree.read_range(records, from, direction, max, &mut out);
    assert_eq!(out[0], 7, "what was in the list stays");
    assert_eq!(out[1..], all[..max.min(all.len())], "{from:?} {direction:?} {max}");
    assert!(if all.len() > max { !end } else { end || all.len() == max }, "{from:?} {direction:?} {max}");
}

fn step(tree: &BPlusTree, records: &Records, model: &mut Model, random: &mut Random, growing: bool) {
    let key = match model.len() as u64 {
        n if n > 0 && random.below(3) == 0 => model.keys().nth(random.below(n) as usize).unwrap().clone(),
        _ => difficult_key(random),
    };
    let had = model.get(&key).copied();
    match random.below(20) {
        0..=8 if growing => {
            let payload = records.add(&key);
            assert_eq!(tree.insert(records, &key, payload), model.insert(key, payload));
        }
        0..=3 => {
            let reads = records.reads();
            let payload = had.unwrap_or(u64::MAX);
            assert_eq!(tree.remove(records, &key, Some(payload)), had);
            assert_eq!(records.reads(), reads, "no record is touched when the payload is known");
            model.remove(&key);
        }
        4..=8 => assert_eq!(tree.remove(records, &key, None), model.remove(&key)),
        9 | 10 => {
            let (old, new) = (had.unwrap_or(u64::MAX), records.add(&key));
            let reads = records.reads();
            assert_eq!(tree.replace(records, &key, old, new), had.is_some());
            assert!(!tree.replace(records, &key, u64::MAX - 1, new));
            assert_eq!(records.reads(), reads, "no record is touched by a replacement");
            if let Some(payload) = model.get_mut(&key) {
                *payload = new;
            }
        }
        11 => assert_eq!(tree.remove(records, &key, Some(u64::MAX)), None),
        12..=14 => assert_eq!(tree.get(records, &key), had),
        kind => {
            tree.prefetch(&key);
            tree.prefetch_batch((0..random.below(20)).map(|_| key.as_slice()));
            let direction = if kind % 2 == 0 { Direction::Forward } else { Direction::Backward };
            let max = random.below(200) as usize;
            check_range(tree, records, model, bound_of(&key, random.next()), direction, max);
        }
    }
    assert_eq!(tree.len(), model.len());
}

fn run(random: &mut Random, steps: u64) {
    let (tree, records, mut model) = (BPlusTree::new(), Records::default(), Model::new());
    for i in 0..steps {
        let growing = (i / (steps / 4).max(1)).is_multiple_of(2);
        step(&tree, &records, &mut model, random, growing);
        if i % (steps / 8).max(1) == 0 {
            tree.check(&records).unwrap();
        }
    }
    tree.check(&records).unwrap();
    for key in model.keys().cloned().collect::<Vec<_>>() {
        assert_eq!(tree.remove(&records, &key, None), model.remove(&key));
    }
    tree.check(&records).unwrap();
    assert!(tree.is_empty());
}

#[test]
fn a_long_random_run_agrees_with_the_model() {
    let mut random = Random::seeded();
    for _ in 0..if cfg!(miri) { 1 } else { 4 } {
        run(&mut random, if cfg!(miri) { 150 } else { 20_000 });
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 1 } else { 64 }, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn short_random_runs_agree_with_the_model(seed: u64, steps in 1..1500u64) {
        run(&mut Random(seed), if cfg!(miri) { steps % 50 } else { steps });
    }

    #[test]
    fn a_loaded_tree_agrees_with_the_model(
        keys in proptest::collection::btree_set(proptest::collection::vec(prop_oneof![Just(0u8), Just(97), Just(255), any::<u8>()], 1..12), 0..if cfg!(miri) { 80 } else { 900 }),
        threads in 1..4usize,
        headed: bool,
    ) {
        let (tree, records) = (BPlusTree::new(), Records::default());
        let model: Model = keys.into_iter().map(|key| { let payload = records.add(&key); (key, payload) }).collect();
        if headed {
            let mut entries: Vec<Headed> = model.iter().rev().map(|(key, payload)| Headed::new(key, *payload)).collect();
            sort_headed(&records, &mut entries);
            tree.bulk_load_headed(&records, &entries, threads).unwrap();
        } else {
            tree.bulk_load(&records, &model.values().copied().collect::<Vec<_>>(), threads).unwrap();
        }
        tree.check(&records).unwrap();
        check_range(&tree, &records, &model, Bound::Unbounded, Direction::Forward, usize::MAX >> 1);
        check_range(&tree, &records, &model, Bound::Unbounded, Direction::Backward, usize::MAX >> 1);
        let mut random = Random(model.len() as u64);
        let mut model = model;
        for i in 0..if cfg!(miri) { 20 } else { 300 } {
            step(&tree, &records, &mut model, &mut random, i % 2 == 0);
        }
        tree.check(&records).unwrap();
    }
}
