//! A full medium: a typed error, no lost data, and working reads and deletes.

use std::thread;
use std::time::Duration;

use super::check::show;
use super::data::{key, versioned};
use super::{Case, Harness, Pairs, Stop, assert_holds, assert_sees, assert_sound};
use crate::{Error, Lifetime, Store};

/// Puts large, then smaller, then small values until each is refused as `Full`. Returns the
/// accepted pairs.
fn fill<H: Harness>(case: &Case<H>, store: &H::S) -> Pairs {
    let capacity = case.plan.capacity_small as usize;
    let (mut pairs, mut taken) = (Pairs::new(), 0);
    let mut rng = case.rng(13);
    for (round, size) in [60_000, 3000, 200, 8].into_iter().enumerate() {
        for i in 0.. {
            assert!(taken <= 2 * capacity, "a store of {capacity} bytes took {taken} and is not full");
            let name = key(&format!("full{round}"), i);
            let value = versioned(&name, 1, size / 2 + rng.below(size / 2));
            match store.put(&name, &value) {
                Ok(()) => {
                    taken += value.len() + name.len();
                    pairs.insert(name, value);
                }
                Err(Error::Full { needed, capacity }) => {
                    assert!(needed > 0 && capacity > 0, "needed {needed}, capacity {capacity}");
                    assert_eq!(store.get(&name).expect("get"), None, "a refused put leaves nothing");
                    break;
                }
                Err(error) => panic!("put number {i} of about {size} bytes: {error}"),
            }
        }
    }
    assert!(taken >= capacity / 4, "full after {taken} bytes of {capacity}");
    pairs
}

/// A full store has every acknowledged pair. A refused write of any kind changes nothing.
pub fn a_full_store_loses_nothing<H: Harness>(case: &Case<H>) {
    let mut store = case.create_sized(case.plan.capacity_small);
    let mut pairs = fill(case, &store);
    assert_holds(&store, &pairs);
    let names: Vec<_> = pairs.keys().cloned().collect();
    let mut refused = 0;
    for (i, name) in names.iter().enumerate().step_by(names.len() / 50 + 1) {
        let value = versioned(name, 2, 100_000);
        let old = pairs[name].clone();
        let answer = match i % 3 {
            0 => store.put(name, &value),
            1 => store.update(name, &value, Lifetime::Forever).map(|done| assert!(done, "present")),
            _ => store
                .compare_and_swap(name, Some(&old), Some(&value), Lifetime::Forever)
                .map(|swap| assert_eq!(swap, crate::Swap::Done)),
        };
        match answer {
            Ok(()) => drop(pairs.insert(name.clone(), value)),
            Err(Error::Full { .. }) => refused += 1,
            Err(error) => panic!("overwrite of {} in a full store: {error}", show(name)),
        }
    }
    assert!(refused > 0, "a store that took everything was not full");
    assert_holds(&store, &pairs);
    assert_sound(&store);
    for how in [Stop::Crash, Stop::Clean] {
        store = case.reopen(store, how);
        assert_sees(&store, &pairs);
    }
    assert_sound(&store);
}

/// In a full store, gets and deletes succeed, down to the last key.
pub fn a_full_store_reads_and_deletes<H: Harness>(case: &Case<H>) {
    let store = case.create_sized(case.plan.capacity_small);
    let pairs = fill(case, &store);
    for (name, value) in &pairs {
        assert_eq!(store.get(name).expect("get").as_ref(), Some(value), "{}", show(name));
        assert!(store.delete(name).unwrap_or_else(|error| panic!("delete in a full store: {error}")), "{}", show(name));
    }
    assert_holds(&store, &Pairs::new());
    assert_sound(&store);
    let store = case.reopen(store, Stop::Crash);
    assert_holds(&store, &Pairs::new());
}

/// Puts a value, and waits briefly while background work reclaims the space of deleted keys.
fn put_patiently<S: Store>(store: &S, name: &[u8], value: &[u8]) -> bool {
    for _ in 0..200 {
        match store.put(name, value) {
            Ok(()) => return true,
            Err(Error::Full { .. }) => thread::sleep(Duration::from_millis(1)),
            Err(error) => panic!("put after deletes: {error}"),
        }
    }
    false
}

/// After every other key of a full store is deleted, most of that space accepts values of the same
/// sizes again, now and after reopening.
pub fn deleting_makes_room_again<H: Harness>(case: &Case<H>) {
    let mut store = case.create_sized(case.plan.capacity_small);
    let mut pairs = fill(case, &store);
    for (round, how) in [Stop::Clean, Stop::Crash].into_iter().enumerate() {
        let gone: Vec<_> = pairs.keys().step_by(2).cloned().collect();
        let mut sizes = Vec::new();
        for name in &gone {
            assert!(store.delete(name).expect("delete"), "{}", show(name));
            sizes.push(pairs.remove(name).expect("a key of the model").len() - 8);
        }
        if round == 1 {
            store = case.reopen(store, how);
            store.wait_recovered().expect("wait_recovered");
        }
        let (mut again, freed) = (0, sizes.iter().sum::<usize>());
        for (i, size) in sizes.into_iter().enumerate() {
            let name = key(&format!("room{round}"), i);
            let value = versioned(&name, 3, size);
            if !put_patiently(&store, &name, &value) {
                break;
            }
            again += size;
            pairs.insert(name, value);
        }
        let counters = || store.stats().engine_counters;
        assert!(
            again >= freed / 2,
            "of {freed} bytes deleted only {again} could be put again (round {round}): {:?}",
            counters()
        );
        assert_holds(&store, &pairs);
        assert_sound(&store);
        store = case.reopen(store, how);
        assert_holds(&store, &pairs);
    }
}
