//! Random sequences of all operations, including reopening, compared with a `BTreeMap`. Failing
//! sequences are shrunk.
//!
//! Expiry has only two times here, long past and far ahead, so nothing depends on the clock.

use std::collections::BTreeMap;
use std::ops::Bound;

use proptest::collection::vec;
use proptest::prelude::{Just, Strategy, any};
use proptest::prop_oneof;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};

use super::check::{assert_order, scanned, show};
use super::expiring::{FAR, PAST};
use super::{Case, Harness, Pairs, Rng, Stop, assert_sees, assert_sound};
use crate::{Change, Direction, Expiry, Lifetime, ScanRange, Store, Swap, Visit};

/// A key by number. The keys are few, so that operations collide; some are short, some long, and
/// some are prefixes of others.
type Name = u8;
const NAMES: Name = 24;

/// A value by seed and length, so that a failing sequence prints short.
#[derive(Debug, Clone, Copy)]
struct Value {
    seed: u8,
    len: u16,
}

/// Whether and when a key expires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum When {
    Never,
    Past,
    Far,
}

/// The lifetime of a write: `None` keeps the expiry.
type Life = Option<When>;

#[derive(Debug, Clone)]
enum Op {
    Put(Name, Value),
    PutExpiring(Name, Value, When),
    Insert(Name, Value, Life),
    Update(Name, Value, Life),
    Delete(Name),
    /// Expects the current value (`true`) or another one; then the new value, if any.
    Swap(Name, bool, Option<Value>, Life),
    /// `None` keeps; an inner `None` deletes.
    UpdateWith(Name, Option<Option<(Value, Life)>>),
    Get(Name),
    MultiGet(Vec<Name>),
    Scan(Bound<Name>, Bound<Name>, bool, u8),
    Prefix(Name, bool),
    ForEach,
    Sync,
    Verify,
    Reopen(bool),
}

fn bytes_of_name(name: Name) -> Vec<u8> {
    match name {
        0 => vec![0],
        1 => vec![0, 0],
        2 => vec![0xff],
        3 => vec![0xff; 9],
        4 => vec![b'l'; 300],
        5 => vec![b'l'; 301],
        6 => vec![b'h'; 70],
        _ => b"abcabcabcabcabcabcabcabcabc"[..usize::from(name) - 5].to_vec(),
    }
}

fn bytes_of_value(value: Value) -> Vec<u8> {
    Rng::new(u64::from(value.seed)).bytes(usize::from(value.len))
}

fn expiry_of(when: When) -> Option<Expiry> {
    match when {
        When::Never => None,
        When::Past => Some(PAST),
        When::Far => Some(FAR[0]),
    }
}

fn lifetime_of(life: Life) -> Lifetime {
    life.map_or(Lifetime::Keep, |when| expiry_of(when).into())
}

fn values() -> impl Strategy<Value = Value> {
    let len = prop_oneof![3 => 0..40_u16, 3 => 200..400_u16, 1 => 1000..5000_u16, 1 => Just(0), 1 => Just(20_000)];
    (any::<u8>(), len).prop_map(|(seed, len)| Value { seed, len })
}

fn bounds() -> impl Strategy<Value = Bound<Name>> {
    prop_oneof![(0..NAMES).prop_map(Bound::Included), (0..NAMES).prop_map(Bound::Excluded), Just(Bound::Unbounded)]
}

fn ops() -> impl Strategy<Value = Op> {
    let names = || 0..NAMES;
    let moments = || prop_oneof![Just(When::Never), Just(When::Past), Just(When::Far)];
    let lives = || proptest::option::of(moments());
    let changes = proptest::option::of(proptest::option::of((values(), lives())));
    prop_oneof![
        6 => (names(), values()).prop_map(|(name, value)| Op::Put(name, value)),
        2 => (names(), values(), moments()).prop_map(|(name, value, when)| Op::PutExpiring(name, value, when)),
        3 => (names(), values(), lives()).prop_map(|(name, value, life)| Op::Insert(name, value, life)),
        3 => (names(), values(), lives()).prop_map(|(name, value, life)| Op::Update(name, value, life)),
        4 => names().prop_map(Op::Delete),
        3 => (names(), any::<bool>(), proptest::option::of(values()), lives())
            .prop_map(|(name, meets, new, life)| Op::Swap(name, meets, new, life)),
        3 => (names(), changes).prop_map(|(name, change)| Op::UpdateWith(name, change)),
        3 => names().prop_map(Op::Get),
        1 => vec(names(), 0..20).prop_map(Op::MultiGet),
        3 => (bounds(), bounds(), any::<bool>(), 0..30_u8).prop_map(|(from, to, back, limit)| Op::Scan(from, to, back, limit)),
        1 => (names(), any::<bool>()).prop_map(|(name, back)| Op::Prefix(name, back)),
        1 => Just(Op::ForEach),
        1 => Just(Op::Sync),
        1 => Just(Op::Verify),
        2 => any::<bool>().prop_map(Op::Reopen),
    ]
}

/// The expected state of a store: each key's value, and whether it expires.
#[derive(Default)]
struct Model {
    live: BTreeMap<Vec<u8>, (Vec<u8>, When)>,
    /// Puts with an expiry long past, which `len` may count in addition.
    expired: u64,
}

impl Model {
    fn get(&self, name: &[u8]) -> Option<&[u8]> {
        self.live.get(name).map(|(value, _)| value.as_slice())
    }

    fn put(&mut self, name: Vec<u8>, value: Vec<u8>, when: When) {
        if when == When::Past {
            self.live.remove(&name);
            self.expired += 1;
        } else {
            self.live.insert(name, (value, when));
        }
    }

    /// Does the same as [`Self::put`]. Without a `life` the key keeps its expiry.
    fn put_for(&mut self, name: Vec<u8>, value: Vec<u8>, life: Life) {
        let present = self.live.get(&name).map_or(When::Never, |(_, when)| *when);
        self.put(name, value, life.unwrap_or(present));
    }

    fn pairs(&self) -> Pairs {
        self.live.iter().map(|(name, (value, _))| (name.clone(), value.clone())).collect()
    }
}

/// Runs one operation on store and model. An assertion fails if they differ.
fn apply<H: Harness>(case: &Case<H>, store: H::S, model: &mut Model, op: &Op) -> H::S {
    match op {
        Op::Reopen(clean) => return case.reopen(store, if *clean { Stop::Clean } else { Stop::Crash }),
        Op::Verify => assert_sound(&store),
        // The medium may refuse this. The check is that nothing changes.
        Op::Sync => drop(store.sync()),
        Op::Get(_) | Op::MultiGet(_) | Op::Scan(..) | Op::Prefix(..) | Op::ForEach => read(&store, model, op),
        _ => write(&store, model, op),
    }
    store
}

fn read<S: Store>(store: &S, model: &Model, op: &Op) {
    match op {
        Op::Get(name) => {
            let name = bytes_of_name(*name);
            assert!(store.get(&name).expect("get").as_deref() == model.get(&name), "get {}", show(&name));
            assert_eq!(
                store.contains(&name).expect("contains"),
                model.get(&name).is_some(),
                "contains {}",
                show(&name)
            );
            let expiry = model.live.get(&name).map(|(_, when)| expiry_of(*when));
            assert_eq!(store.expiry(&name).expect("expiry"), expiry, "expiry {}", show(&name));
        }
        Op::MultiGet(names) => {
            let names: Vec<_> = names.iter().map(|name| bytes_of_name(*name)).collect();
            let keys: Vec<_> = names.iter().map(Vec::as_slice).collect();
            let mut answers = Vec::new();
            store.multi_get(&keys, &mut |at, value| answers.push((at, value.map(<[u8]>::to_vec)))).expect("multi_get");
            let expected: Vec<_> =
                keys.iter().enumerate().map(|(at, name)| (at, model.get(name).map(<[u8]>::to_vec))).collect();
            assert!(answers == expected, "multi_get");
        }
        Op::Scan(from, to, back, limit) if store.capabilities().scan => {
            let (from, to) = (from.map(bytes_of_name), to.map(bytes_of_name));
            let direction = if *back { Direction::Backward } else { Direction::Forward };
            check_scan(store, model, &ScanRange { from, to, direction, limit: usize::from(*limit) });
        }
        Op::Prefix(name, back) if store.capabilities().scan => {
            let range = ScanRange::prefix(&bytes_of_name(*name));
            check_scan(store, model, &if *back { range.reverse() } else { range });
        }
        Op::ForEach => {
            let mut seen = Pairs::new();
            let visit = &mut |name: &[u8], value: &[u8]| {
                assert!(seen.insert(name.to_vec(), value.to_vec()).is_none(), "for_each shows {} twice", show(name));
                Visit::More
            };
            store.for_each(visit).expect("for_each");
            assert!(seen == model.pairs(), "for_each");
        }
        _ => {}
    }
}

fn check_scan<S: Store>(store: &S, model: &Model, range: &ScanRange) {
    let pairs = model.pairs();
    assert_order("scan", &scanned(store, range), super::scans::expected(&pairs, range).into_iter());
}

fn write<S: Store>(store: &S, model: &mut Model, op: &Op) {
    let expiring = store.capabilities().expiry;
    let when_of = |when: When| if expiring { when } else { When::Never };
    let life_of = |life: Life| life.map(when_of);
    match op {
        Op::Put(name, value) => {
            let (name, value) = (bytes_of_name(*name), bytes_of_value(*value));
            store.put(&name, &value).expect("put");
            model.put(name, value, When::Never);
        }
        Op::PutExpiring(name, value, when) => {
            let (name, value, when) = (bytes_of_name(*name), bytes_of_value(*value), when_of(*when));
            store.put_expiring(&name, &value, expiry_of(when)).expect("put_expiring");
            model.put(name, value, when);
        }
        Op::Insert(name, value, life) => {
            let (name, value, life) = (bytes_of_name(*name), bytes_of_value(*value), life_of(*life));
            let absent = model.get(&name).is_none();
            assert_eq!(
                store.insert(&name, &value, lifetime_of(life)).expect("insert"),
                absent,
                "insert {}",
                show(&name)
            );
            if absent {
                model.put_for(name, value, life);
            }
        }
        Op::Update(name, value, life) => {
            let (name, value, life) = (bytes_of_name(*name), bytes_of_value(*value), life_of(*life));
            let there = model.get(&name).is_some();
            assert_eq!(
                store.update(&name, &value, lifetime_of(life)).expect("update"),
                there,
                "update {}",
                show(&name)
            );
            if there {
                model.put_for(name, value, life);
            }
        }
        Op::Delete(name) => {
            let name = bytes_of_name(*name);
            let there = model.live.remove(&name).is_some();
            assert_eq!(store.delete(&name).expect("delete"), there, "delete {}", show(&name));
        }
        Op::Swap(name, meets, new, life) => {
            let new = new.map(|new| (bytes_of_value(new), life_of(*life)));
            swap(store, model, bytes_of_name(*name), *meets, new);
        }
        Op::UpdateWith(name, change) => {
            let change = change.map(|put| put.map(|(value, life)| (bytes_of_value(value), life_of(life))));
            update_with(store, model, bytes_of_name(*name), change);
        }
        _ => unreachable!("{op:?} does not write"),
    }
}

fn swap<S: Store>(store: &S, model: &mut Model, name: Vec<u8>, meets: bool, new: Option<(Vec<u8>, Life)>) {
    let now = model.get(&name).map(<[u8]>::to_vec);
    let other = if now.is_some() { None } else { Some(b"not this".to_vec()) };
    let expected = if meets { &now } else { &other };
    let (value, lifetime) =
        new.as_ref().map_or((None, Lifetime::Forever), |(value, life)| (Some(&value[..]), lifetime_of(*life)));
    let answer = store.compare_and_swap(&name, expected.as_deref(), value, lifetime).expect("compare_and_swap");
    let right = if meets { Swap::Done } else { Swap::Differs(now) };
    assert!(answer == right, "compare_and_swap {}: {answer:?}", show(&name));
    match new {
        _ if !meets => {}
        Some((value, life)) => model.put_for(name, value, life),
        None => drop(model.live.remove(&name)),
    }
}

fn update_with<S: Store>(store: &S, model: &mut Model, name: Vec<u8>, change: Option<Option<(Vec<u8>, Life)>>) {
    let mut runs = 0;
    let present = model.live.get(&name).and_then(|(_, when)| expiry_of(*when));
    let done = store.update_with(&name, &mut |now, expiry| {
        runs += 1;
        assert_eq!(expiry, present, "the expiry that update_with sees of {}", show(&name));
        assert!(now == model.get(&name), "update_with sees {} of {}", now.map_or("nothing".into(), show), show(&name));
        match &change {
            None => Change::Keep,
            Some(None) => Change::Delete,
            Some(Some((value, life))) => Change::Put(value.clone(), lifetime_of(*life)),
        }
    });
    done.expect("update_with");
    assert_eq!(runs, 1, "update_with runs its closure once");
    match change {
        None => {}
        Some(None) => drop(model.live.remove(&name)),
        Some(Some((value, life))) => model.put_for(name, value, life),
    }
}

/// Runs a whole sequence on a new store, then checks everything.
fn run<H: Harness>(case: &Case<H>, sequence: &[Op]) {
    case.harness.clear();
    let mut store = case.create_sized(case.plan.capacity_small);
    let mut model = Model::default();
    for op in sequence {
        store = apply(case, store, &mut model, op);
        let (len, least) = (store.len().expect("len"), model.live.len() as u64);
        assert!((least..=least + model.expired).contains(&len), "len {len}, {least} live, {} expired", model.expired);
    }
    assert_sees(&store, &model.pairs());
    assert_sound(&store);
    case.discard(store);
}

/// Sequences of all operations, including clean and unclean reopening, give the results of a
/// `BTreeMap`.
pub fn sequences_match_the_model<H: Harness>(case: &Case<H>) {
    let config =
        Config { cases: case.plan.model_cases, failure_persistence: None, max_shrink_iters: 2000, ..Config::default() };
    let mut seed = case.rng(17);
    let seed: [u8; 32] = seed.bytes(32).try_into().expect("32 bytes");
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &seed));
    let ran = runner.run(&vec(ops(), 1..=case.plan.model_ops), |sequence| {
        run(case, &sequence);
        Ok::<(), TestCaseError>(())
    });
    if let Err(failure) = ran {
        panic!("seed {:#x}: {failure}", case.seed);
    }
}
