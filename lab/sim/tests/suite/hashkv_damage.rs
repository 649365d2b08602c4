//! HashKV with one damaged bit in the values file or the pool. Each answer is right or reports
//! damage, and readable values stay readable through later writes and GC.

use lodestore_contract::{Direction, Error, Result};
use lodestore_media::sim::{LineModel, Rng, SimImage, SimSpec};
use lodestore_sim::hashkv::HashEngine;
use lodestore_sim::op::{Op, Outcome, State};
use lodestore_sim::shape::Shape;
use lodestore_sim::subject::{Engine, Subject};

/// Keys that stay, and keys that are overwritten.
const KEYS: [u8; 2] = [40, 6];
/// Meaningful bytes of the superblock.
const SUPERBLOCK: usize = 28;
/// Bytes of a block.
const BLOCK: usize = 4096;

fn key(index: u8) -> Vec<u8> {
    format!("key {index:03}").into_bytes()
}

fn put(index: u8, mark: u8, len: usize) -> Op {
    Op::Put { key: key(index), value: vec![mark; len], expiry: None }
}

struct Base {
    image: SimImage,
    state: State,
}

/// Returns a cleanly stopped store with values of all kinds, some of which were moved.
fn base() -> Base {
    let spec = SimSpec::default();
    let store = HashEngine.create(&spec, &Shape::default()).expect("create");
    let mut state = State::default();
    let apply = |op: &Op, state: &mut State| {
        store.apply(op).expect("an operation");
        state.apply(op);
    };
    for index in 0..KEYS[0] {
        apply(&put(index, index, [500, 40, 9, 120][usize::from(index) % 4]), &mut state);
    }
    for round in 0..14 {
        for index in 0..KEYS[1] {
            apply(&put(KEYS[0] + index, round, 300), &mut state);
            apply(&put(round, round + 100, 200), &mut state);
        }
        apply(&Op::Sweep, &mut state);
    }
    assert!(store.counter("values_moved") > 0 && store.counter("values_collections") > 3);
    store.close().expect("close");
    let mut model = LineModel::new(SimImage { spec, ..SimImage::default() });
    store.recorder().take().events.iter().for_each(|event| model.apply(event));
    let spec = SimSpec { record: false, ..SimSpec::default() };
    Base { image: SimImage { spec, ..model.newest() }, state }
}

/// Returns the keys that have their values. All others report damage, and no key has a wrong value.
fn readable(store: &dyn Subject, state: &State, place: &str) -> Vec<Vec<u8>> {
    let mut right = Vec::new();
    for index in 0..KEYS[0] + KEYS[1] {
        let key = key(index);
        let wanted = state.get(&key).map(|held| held.value.clone());
        match store.get(&key) {
            Ok(found) => {
                assert!(found.map(|(value, _)| value) == wanted, "{place}: a wrong value of {key:?}");
                right.push(key);
            }
            Err(Error::Corrupt { .. }) => {}
            Err(error) => panic!("{place}: get of {key:?}: {error}"),
        }
    }
    for pairs in [store.pairs(), store.scan(Direction::Forward).map(Option::unwrap_or_default)] {
        match pairs {
            Ok(pairs) => {
                assert_eq!(right.len(), pairs.len(), "{place}: a walk says nothing");
                let is_right =
                    |(key, value): &(Vec<u8>, Vec<u8>)| state.get(key).is_some_and(|held| held.value == *value);
                assert!(pairs.iter().all(is_right), "{place}: a walk shows a wrong value");
            }
            Err(error) => assert!(matches!(error, Error::Corrupt { .. }), "{place}: a walk: {error}"),
        }
    }
    right
}

/// Overwrites some keys, so that segments are collected.
fn work(store: &dyn Subject, state: &mut State) -> Result<()> {
    for round in 0..6 {
        for index in 0..KEYS[1] {
            let op = put(KEYS[0] + index, 200 + round, 300);
            if store.apply(&op)? != Outcome::Full {
                state.apply(&op);
            }
        }
        // A sweep reports damage found by a flush or a compaction.
        match store.apply(&Op::Sweep) {
            Ok(_) | Err(Error::Corrupt { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The result of a damaged image.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    Refused,
    Told,
    /// No read depends on the bit.
    Unused,
}

fn look(base: &Base, image: &SimImage, works: bool, place: &str) -> Seen {
    let store = match HashEngine.open(image, &Shape::default()) {
        Ok(store) => store,
        Err(Error::Corrupt { .. } | Error::NewerFormat { .. } | Error::OlderFormat { .. }) => return Seen::Refused,
        Err(error) => panic!("{place}: open: {error}"),
    };
    let mut state = base.state.clone();
    let before = readable(&*store, &state, place);
    let told = before.len() < usize::from(KEYS[0] + KEYS[1]);
    let found = store.verify().unwrap_or_else(|error| panic!("{place}: verify: {error}"));
    assert!(!told || !found.is_empty(), "{place}: verify finds nothing");
    if works {
        let worked = work(&*store, &mut state);
        if let Err(error) = &worked {
            assert!(
                !found.is_empty() && matches!(error, Error::Corrupt { .. } | Error::Poisoned { .. }),
                "{place}: {error}"
            );
            // The refused write may have happened.
            return Seen::Told;
        }
        let after = readable(&*store, &state, place);
        let lost: Vec<_> = before.iter().filter(|key| !after.contains(key)).collect();
        assert!(lost.is_empty(), "{place}: {lost:?} could be read, and cannot any more");
    }
    if told || !found.is_empty() { Seen::Told } else { Seen::Unused }
}

#[test]
fn any_byte_of_the_file_that_is_damaged_is_told_where_a_value_depends_on_it() {
    let base = base();
    assert_eq!(look(&base, &base.image, true, "undamaged"), Seen::Unused);
    let (mut rng, mut counts) = (Rng::new(1), [0usize; 3]);
    for at in (0..base.image.values.len()).filter(|at| *at < SUPERBLOCK || at % 3 == 0) {
        let mut image = base.image.clone();
        image.values[at] ^= 1 << rng.below(8);
        let seen = look(&base, &image, at % 8 == 0, &format!("byte {at} of the file"));
        if at < SUPERBLOCK {
            // The headers of segments have the same information.
            assert_eq!(seen, Seen::Unused, "byte {at} of the superblock");
        } else {
            assert!(seen != Seen::Refused && (at >= BLOCK || seen == Seen::Unused), "byte {at}: {seen:?}");
        }
        counts[seen as usize] += 1;
    }
    println!("{} bytes: {counts:?} refused, told, unused", base.image.values.len());
    // Most keys have values of 200 bytes and more.
    let live = usize::from(KEYS[0] + KEYS[1]) * 150;
    assert!(counts[Seen::Told as usize] * 3 > live, "{counts:?}");
}

#[test]
fn what_a_damaged_index_still_names_stays_readable_through_collections() {
    let base = base();
    let (mut rng, mut counts) = (Rng::new(2), [0usize; 3]);
    for at in (0..base.image.regions[0].len()).step_by(5) {
        let mut image = base.image.clone();
        image.regions[0][at] ^= 1 << rng.below(8);
        counts[look(&base, &image, true, &format!("byte {at} of the pool")) as usize] += 1;
    }
    println!("{} bytes: {counts:?} refused, told, unused", base.image.regions[0].len());
}
