//! Random operations against ordered maps.

use std::collections::BTreeMap;
use std::ops::Bound;

use lodestore::db::{Keyspace, Map};
use lodestore::store::{Batch, BatchOp, Change, Direction, ScanRange, Visit};
use lodestore::{Db, Lifetime};
use lodestore_contract::conformance::Rng;

use crate::setup::{Setup, each};

const OPS: usize = 900;
/// Operations between two comparisons of everything.
const OPS_PER_CHECK: usize = 150;
/// Bytes that the mapping treats in different ways.
const BYTES: [u8; 9] = [0, 1, 2, 0x61, 0xF7, 0xF8, 0xFB, 0xFE, 0xFF];

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Calls the same method of a store's handle or of a keyspace.
macro_rules! call {
    ($maps:expr, $at:expr, $($call:tt)*) => {
        match $at {
            0 => $maps.db.$($call)*,
            at => $maps.named[at - 1].$($call)*,
        }
    };
}

struct Maps {
    db: Db,
    named: Vec<Keyspace>,
}

fn open(setup: &Setup, path: &std::path::Path) -> Maps {
    let db = setup.open(path);
    let named = ["a", "b"].map(|name| db.keyspace(name).expect("a keyspace")).into();
    Maps { db, named }
}

/// Returns a key, often with the reserved bytes.
fn key(rng: &mut Rng) -> Vec<u8> {
    let begins: [&[u8]; 6] = [b"", b"", b"\xff", b"\xff\xff", b"\xff\xff\0", b"\xff\xff\x01"];
    let mut key = rng.pick(&begins).to_vec();
    for _ in 0..=rng.below(3) {
        key.push(*rng.pick(&BYTES));
    }
    key
}

fn change(maps: &Maps, models: &mut [Model; 3], rng: &mut Rng) {
    let (at, key, len) = (rng.below(3), key(rng), rng.below(40));
    let value = rng.bytes(len);
    let model = &mut models[at];
    let is_there = model.contains_key(&key);
    match rng.below(8) {
        0 | 1 => {
            call!(maps, at, put(&key, &value)).expect("put");
            model.insert(key, value);
        }
        2 => {
            assert_eq!(call!(maps, at, delete(&key)).expect("delete"), is_there);
            model.remove(&key);
        }
        3 => {
            assert_eq!(call!(maps, at, insert(&key, &value, Lifetime::Forever)).expect("insert"), !is_there);
            model.entry(key).or_insert(value);
        }
        4 => {
            assert_eq!(call!(maps, at, update(&key, &value, Lifetime::Keep)).expect("update"), is_there);
            model.entry(key).and_modify(|present| *present = value);
        }
        5 => {
            let present = model.get(&key).cloned();
            call!(maps, at, compare_and_swap(&key, present.as_deref(), Some(&value), Lifetime::Keep)).expect("swap");
            model.insert(key, value);
        }
        6 => {
            let next = |_: Option<&[u8]>, _| Change::Put(value.clone(), Lifetime::Forever);
            call!(maps, at, update_with(&key, next)).expect("update");
            model.insert(key, value);
        }
        _ => {
            let ops = vec![BatchOp::Put { key: key.clone(), value: value.clone(), expiry: None }];
            // Engines without batches refuse them.
            let is_written = match at {
                0 => maps.db.write(&Batch { ops }).is_ok(),
                at => maps.db.batch().put(&maps.named[at - 1], &key, &value).commit().is_ok(),
            };
            if is_written {
                model.insert(key, value);
            }
        }
    }
}

/// Returns the pairs of a range, without bounds for which `BTreeMap::range` panics.
fn expected(model: &Model, range: &ScanRange) -> Vec<(Vec<u8>, Vec<u8>)> {
    let pairs = model.iter().filter(|(key, _)| range.contains(key) && !range.excludes_all());
    pairs.map(|(key, value)| (key.clone(), value.clone())).collect()
}

fn random_range(rng: &mut Rng) -> ScanRange {
    let mut bound = || match rng.below(5) {
        0 | 1 => Bound::Unbounded,
        2 => Bound::Excluded(key(rng)),
        _ => Bound::Included(key(rng)),
    };
    ScanRange { from: bound(), to: bound(), ..ScanRange::all() }
}

/// Compares walks from both ends, in random order, with the model.
fn check_walks(maps: &Maps, models: &[Model; 3], rng: &mut Rng) {
    let prefixes: [&[u8]; 8] =
        [b"", b"\xff", b"\xff\xff", b"\xff\xff\0", b"\xff\xff\x01", b"\xff\xff\xff", b"\xfe", b"\0"];
    for round in 0..40 {
        let at = rng.below(3);
        let (range, pairs) = match prefixes.get(round) {
            Some(prefix) => (ScanRange::prefix(prefix), call!(maps, at, prefix(prefix))),
            None => {
                let range = random_range(rng);
                let bounds = (range.from.clone(), range.to.clone());
                (range, call!(maps, at, range(bounds)))
            }
        };
        let mut pairs = pairs.expect("a walk");
        let bias = rng.below(101);
        let (mut front, mut back) = (Vec::new(), Vec::new());
        loop {
            let is_front = rng.below(100) < bias;
            let Some(pair) = (if is_front { pairs.next() } else { pairs.next_back() }) else { break };
            let (key, value) = pair.expect("a pair");
            let pair = (key.into_vec(), value.into_vec());
            if is_front { front.push(pair) } else { back.push(pair) }
        }
        assert!(pairs.next().is_none() && pairs.next_back().is_none());
        front.extend(back.into_iter().rev());
        assert_eq!(front, expected(&models[at], &range), "{range:?} of map {at}");
    }
}

fn check_views(maps: &Maps, models: &[Model; 3], rng: &mut Rng) {
    let Ok(view) = maps.db.snapshot() else { return };
    fn scan(view: &lodestore::db::View, map: &impl Map, range: &ScanRange) -> Vec<(Vec<u8>, Vec<u8>)> {
        let scan = view.of(map).and_then(|view| view.scan(range)).expect("a scan");
        scan.map(|entry| entry.expect("a pair").into_pair()).collect()
    }
    for _ in 0..20 {
        let (at, range) = (rng.below(3), random_range(rng));
        let limit = *rng.pick(&[0, 1, 7, 100, usize::MAX]);
        let direction = *rng.pick(&[Direction::Forward, Direction::Backward]);
        let mut pairs = expected(&models[at], &range);
        if direction == Direction::Backward {
            pairs.reverse();
        }
        pairs.truncate(limit);
        let range = ScanRange { limit, direction, ..range };
        let shown = match at {
            0 => scan(&view, &maps.db, &range),
            at => scan(&view, &maps.named[at - 1], &range),
        };
        assert_eq!(shown, pairs, "{range:?} of map {at}");
    }
}

fn check(maps: &Maps, models: &[Model; 3], rng: &mut Rng, has_order: bool) {
    for (at, model) in models.iter().enumerate() {
        let mut shown = Model::new();
        let visits = call!(
            maps,
            at,
            for_each(|key, value| {
                assert!(shown.insert(key.to_vec(), value.to_vec()).is_none(), "{key:?} is shown twice");
                Visit::More
            })
        );
        assert_eq!((visits.expect("a walk"), &shown), (model.len() as u64, model), "map {at}");
        assert_eq!(call!(maps, at, count()).expect("count"), model.len() as u64, "map {at}");
        let keys: Vec<_> = (0..50).map(|_| key(rng)).collect();
        let values = call!(maps, at, multi_get(&keys)).expect("values");
        for (key, value) in keys.iter().zip(values) {
            assert_eq!(value.as_deref(), model.get(key).map(|value| &value[..]), "{key:?} of map {at}");
            assert_eq!(call!(maps, at, contains(key)).expect("contains"), model.contains_key(key));
        }
    }
    if has_order {
        check_walks(maps, models, rng);
        check_views(maps, models, rng);
    }
}

#[test]
fn keyspaces_agree_with_ordered_maps_of_the_users_keys() {
    let seed = std::env::var("LODESTORE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(20_261_126);
    println!("LODESTORE_SEED={seed}");
    each(|setup, path| {
        let mut rng = Rng::new(seed);
        let mut models: [Model; 3] = Default::default();
        let mut maps = open(setup, path);
        for number in 1..=OPS {
            change(&maps, &mut models, &mut rng);
            if number % OPS_PER_CHECK == 0 {
                check(&maps, &models, &mut rng, setup.has_order);
                drop(maps);
                maps = open(setup, path);
            }
        }
        check(&maps, &models, &mut rng, setup.has_order);
    });
}
