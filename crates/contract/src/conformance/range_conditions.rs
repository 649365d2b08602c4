//! Batches with conditions on ranges, if the engine has them; else their refusal.

use std::ops::Bound;
use std::sync::Barrier;
use std::thread;

use super::expiring::{FAR, PAST};
use super::{Case, Harness, Pairs, Stop, assert_holds, assert_sound};
use crate::limits::BATCH_OPS_MAX;
use crate::{Batch, BatchOp, Commit, Condition, Error, RangeCondition, ScanRange, Store, Visit};

/// Maximum number of seats that the threads of one test may take.
const SEATS_MAX: usize = 5;
/// Maximum number of tries of a thread. A try fails only if another thread took a seat meanwhile.
const TRIES_MAX: usize = 1000;

fn put(key: &[u8], value: &[u8]) -> Batch {
    Batch { ops: vec![BatchOp::Put { key: key.to_vec(), value: value.to_vec(), expiry: None }] }
}

fn keys(names: &[&[u8]]) -> Vec<Vec<u8>> {
    names.iter().map(|name| name.to_vec()).collect()
}

/// Returns a condition on the range from `from` to `to` (excluded).
fn between(from: &[u8], to: &[u8], names: &[&[u8]]) -> RangeCondition {
    RangeCondition { from: Bound::Included(from.to_vec()), to: Bound::Excluded(to.to_vec()), keys: keys(names) }
}

/// Creates a store for these behaviours; `None`, after a check of the refusal, if the engine has no
/// conditions on ranges.
fn create<H: Harness>(case: &Case<H>) -> Option<H::S> {
    let store = case.create_sized(case.plan.capacity);
    if store.capabilities().range_conditions {
        return Some(store);
    }
    let refused = store.write_if_ranges(&[], &[between(b"a", b"b", &[])], &put(b"b", b"1"));
    assert!(matches!(refused, Err(Error::Unsupported { .. })), "no such capability, but {refused:?}");
    assert_holds(&store, &Pairs::new());
    if store.capabilities().batch {
        let written = store.write_if_ranges(&[Condition::absent(b"b")], &[], &put(b"b", b"1"));
        assert_eq!(written.expect("no range"), Commit::Done);
    }
    None
}

/// A condition on a range is met by exactly the keys that it names: in memory, after `settle` and
/// after a restart.
pub fn a_range_condition_is_met_by_its_keys_alone<H: Harness>(case: &Case<H>) {
    let Some(mut store) = create(case) else { return };
    for name in [&b"b"[..], b"d", b"d\0", b"f", b"gone"] {
        store.put(name, b"1").expect("put");
    }
    store.put_expiring(b"e", b"1", Some(FAR[0])).expect("put");
    store.put_expiring(b"past", b"1", Some(PAST)).expect("put");
    store.delete(b"gone").expect("delete");
    let bound = |kind: fn(Vec<u8>) -> Bound<Vec<u8>>, key: &[u8]| kind(key.to_vec());
    let all = keys(&[b"b", b"d", b"d\0", b"e", b"f"]);
    let cases = [
        (between(b"a", b"c", &[b"b"]), true),
        (between(b"a", b"d", &[b"b"]), true),
        (between(b"b", b"f", &[b"b", b"d", b"d\0", b"e"]), true),
        (between(b"b", b"f", &[b"b", b"d", b"e"]), false),
        (between(b"b", b"f", &[b"b", b"c", b"d\0", b"e"]), false),
        (between(b"b", b"f", &[b"b", b"d", b"d\0", b"e", b"f"]), false),
        (between(b"b", b"f", &[b"d", b"b", b"d\0", b"e"]), false),
        (between(b"g", b"z", &[]), true),
        (between(b"g", b"z", &[b"gone"]), false),
        (between(b"g", b"z", &[b"past"]), false),
        (between(b"f", b"b", &[]), true),
        (between(b"f", b"b", &[b"d"]), false),
        (RangeCondition { from: Bound::Unbounded, to: Bound::Unbounded, keys: all.clone() }, true),
        (RangeCondition { from: Bound::Unbounded, to: Bound::Unbounded, keys: all[1..].to_vec() }, false),
        (
            RangeCondition {
                from: bound(Bound::Excluded, b"d"),
                to: bound(Bound::Included, b"f"),
                keys: all[2..].to_vec(),
            },
            true,
        ),
    ];
    for round in 0..3 {
        for (condition, is_met) in &cases {
            let commit = store.write_if_ranges(&[], std::slice::from_ref(condition), &Batch::default());
            let expected = if *is_met { Commit::Done } else { Commit::Unmet(0) };
            assert_eq!(commit.expect("check"), expected, "{condition:?} in round {round}");
        }
        store = match round {
            0 => {
                store.settle().expect("settle");
                store
            }
            1 => case.reopen(store, Stop::Crash),
            _ => store,
        };
    }
    let unmet = store.write_if_ranges(&[], &[between(b"a", b"c", &[])], &put(b"a", b"1"));
    assert_eq!(unmet.expect("write"), Commit::Unmet(0));
    assert_eq!(store.get(b"a").expect("get"), None);
    let met = store.write_if_ranges(&[], &[between(b"a", b"c", &[b"b"])], &put(b"a", b"1"));
    assert_eq!(met.expect("write"), Commit::Done);
    let again = store.write_if_ranges(&[], &[between(b"a", b"c", &[b"b"])], &put(b"a", b"2"));
    assert_eq!(again.expect("write"), Commit::Unmet(0), "the key of the batch before");
    assert_eq!(store.get(b"a").expect("get").as_deref(), Some(&b"1"[..]));
    assert_sound(&store);
}

/// The index of an unmet range condition follows the indexes of the key conditions, and nothing is
/// written.
pub fn an_unmet_range_condition_is_counted_after_those_on_keys<H: Harness>(case: &Case<H>) {
    let Some(store) = create(case) else { return };
    store.put(b"b", b"1").expect("put");
    let on_keys = [Condition::present(b"b"), Condition::absent(b"c")];
    let ranges = [between(b"a", b"c", &[b"b"]), between(b"c", b"d", &[b"c"])];
    let commit = store.write_if_ranges(&on_keys, &ranges, &put(b"x", b"1"));
    assert_eq!(commit.expect("write"), Commit::Unmet(3));
    let commit = store.write_if_ranges(&on_keys, &ranges[..1], &put(b"x", b"1"));
    assert_eq!(commit.expect("write"), Commit::Done);
    let commit = store.write_if_ranges(&[Condition::absent(b"b")], &ranges, &put(b"y", b"1"));
    assert_eq!(commit.expect("write"), Commit::Unmet(0));
    assert_holds(&store, &Pairs::from([(b"b".to_vec(), b"1".to_vec()), (b"x".to_vec(), b"1".to_vec())]));
}

/// The number of keys in ranges is limited like the number of conditions.
pub fn range_conditions_beyond_the_limit_are_refused<H: Harness>(case: &Case<H>) {
    let Some(store) = create(case) else { return };
    let names: Vec<Vec<u8>> = (0..BATCH_OPS_MAX as u32).map(|number| format!("{number:08}").into_bytes()).collect();
    let with = |keys: &[Vec<u8>]| RangeCondition { from: Bound::Unbounded, to: Bound::Unbounded, keys: keys.to_vec() };
    let refused = store.write_if_ranges(&[], &[with(&names)], &Batch::default());
    assert!(matches!(refused, Err(Error::BatchLength { .. })), "{refused:?}");
    let checked = store.write_if_ranges(&[], &[with(&names[1..])], &Batch::default());
    assert_eq!(checked.expect("as many as the limit"), Commit::Unmet(0));
    assert_holds(&store, &Pairs::new());
}

/// Returns the keys of the seats that are taken.
fn taken_seats(store: &impl Store) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    let visited = store.scan_each(&ScanRange::prefix(b"seat/"), &mut |key, _| {
        found.push(key.to_vec());
        Visit::More
    });
    visited.expect("scan");
    found
}

/// Threads add keys to a range on the condition that it holds the keys they read, fewer than the
/// limit. They never exceed the limit.
pub fn no_key_comes_into_a_range_between_check_and_write<H: Harness>(case: &Case<H>) {
    let Some(store) = create(case) else { return };
    let rounds = (case.plan.thread_ops / 40).max(3);
    let begin = Barrier::new(case.plan.threads);
    for round in 0..rounds {
        let taken: usize = thread::scope(|scope| {
            let take = |thread: usize| {
                let (store, begin) = (&store, &begin);
                scope.spawn(move || {
                    begin.wait();
                    take_seats(store, thread)
                })
            };
            let threads: Vec<_> = (0..case.plan.threads).map(take).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
        });
        let seats = taken_seats(&store);
        assert_eq!((seats.len(), taken), (SEATS_MAX, SEATS_MAX), "in round {round}: {seats:?}");
        // Blind writes of other keys, and deletes in the range, for the next round.
        seats.iter().for_each(|seat| assert!(store.delete(seat).expect("delete")));
    }
    assert_sound(&store);
}

/// Takes seats until all are taken. Returns how many this thread took.
fn take_seats(store: &impl Store, thread: usize) -> usize {
    let mut taken = 0;
    for _ in 0..TRIES_MAX {
        let seats = taken_seats(store);
        if seats.len() >= SEATS_MAX {
            return taken;
        }
        let condition = RangeCondition {
            from: Bound::Included(b"seat/".to_vec()),
            to: Bound::Excluded(b"seat0".to_vec()),
            keys: seats.clone(),
        };
        let key = format!("seat/{thread}/{}", seats.len());
        let commit = store.write_if_ranges(&[], &[condition], &put(key.as_bytes(), b"1")).expect("write");
        taken += usize::from(commit.is_done());
    }
    panic!("a condition on what was just read is never met");
}
