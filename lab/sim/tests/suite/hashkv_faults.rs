//! HashKV with failing calls: each call of the values file, and each fence of the pool, in a run of
//! its own. Acknowledged writes remain, refusals have a reason, and a store that cannot know its
//! medium's contents refuses further writes.

use std::sync::Arc;

use lodestore_contract::{Change, Error, Result, ScanRange, Store, Visit};
use lodestore_hashkv::{ENGINE, FORMAT, HashKv};
use lodestore_media::Pool;
use lodestore_media::sim::{FailingCall, FileCall, FileFault, LineModel, Rng, SimImage, SimSpec};
use lodestore_sim::explore::script_of;
use lodestore_sim::hashkv::{HashEngine, NOSEP_MODE_FLAG, options};
use lodestore_sim::op::{Op, Outcome, State};
use lodestore_sim::oracle;
use lodestore_sim::script::Script;
use lodestore_sim::shape::Shape;
use lodestore_sim::subject::{Engine, Subject};

/// Crash images checked at the end of a run.
const IMAGES: usize = 3;

/// The kind of failing call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fails {
    Call(FileCall, FileFault),
    Fence,
}

impl Fails {
    /// Returns a pool whose `nth` call of this kind fails.
    fn spec(self, nth: u64) -> SimSpec {
        let spec = SimSpec { grain: 512, ..SimSpec::default() };
        match self {
            Self::Call(call, fault) => SimSpec { failing_call: Some(FailingCall { call, nth, fault }), ..spec },
            Self::Fence => SimSpec { failing_fence: nth, ..spec },
        }
    }

    /// Whether a store may refuse with this error and continue.
    fn excuses(self, error: &Error) -> bool {
        match error {
            Error::Io { .. } => matches!(self, Self::Call(_, FileFault::Io)),
            Error::Full { .. } => true,
            _ => false,
        }
    }

    /// Whether nothing has failed, because there were fewer calls.
    fn is_untouched(self, store: &dyn Subject) -> bool {
        match self {
            Self::Call(..) => store.recorder().will_fail(),
            Self::Fence => !store.recorder().has_failed(),
        }
    }
}

/// The end of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Ended {
    /// Refused operations after which the store continued.
    refused: usize,
    poisoned: bool,
    /// Nothing has failed, because there were fewer calls.
    untouched: bool,
}

/// Returns the script without its stops, with a read after each step.
fn script(name: &str) -> Script {
    let script = (0..48).map(|index| script_of(&HashEngine, 1, index)).find(|script| script.name == name);
    let mut script = script.expect("the script is there");
    script.ops.retain(|op| !matches!(op, Op::Reopen | Op::Kill | Op::PowerCut));
    let read = |op: &Op| op.key().map(|key| Op::Get { key: key.to_vec() });
    script.ops = script.ops.iter().flat_map(|op| [Some(op.clone()), read(op)]).flatten().collect();
    script
}

struct Run<'a> {
    script: &'a Script,
    /// The contents and image at the start of the script; `None`: no store.
    base: Option<&'a (State, SimImage)>,
    universe: Vec<Vec<u8>>,
    fails: Fails,
    nth: u64,
}

impl Run<'_> {
    fn place(&self, what: &str) -> String {
        format!("{:?}, call {}, {:?}: {what}", self.fails, self.nth, self.script.name)
    }

    fn must<T>(&self, what: &str, outcome: std::result::Result<T, oracle::Wrong>) -> T {
        outcome.unwrap_or_else(|wrong| panic!("{}: {} oracle: {}", self.place(what), wrong.oracle, wrong.what))
    }

    /// Runs the script; `None` if the store could not be created.
    fn all(&self) -> Option<Ended> {
        let spec = self.fails.spec(self.nth);
        let begun = match self.base {
            Some((_, image)) => HashEngine.open(&SimImage { spec, ..image.clone() }, &self.script.shape),
            None => HashEngine.create(&spec, &self.script.shape),
        };
        let store = match begun {
            Ok(store) => store,
            Err(error) => {
                let excused = self.fails.excuses(&error) || matches!(error, Error::Poisoned { .. });
                assert!(excused, "{}", self.place(&format!("its begin: {error}")));
                return None;
            }
        };
        let (mut ended, mut allowed) =
            (Ended::default(), vec![self.base.map_or_else(State::default, |base| base.0.clone())]);
        // A delete reports a store that the last sweep poisoned.
        let ends = [Op::Sweep, Op::Delete { key: b"nobody's".to_vec() }];
        for op in self.script.ops.iter().chain(&ends) {
            self.step(&*store, op, &mut allowed, &mut ended);
        }
        let states: Vec<&State> = allowed.iter().collect();
        ended.untouched = self.fails.is_untouched(&*store);
        if !ended.poisoned {
            store.recorder().fail_call(None);
            store.recorder().fail_fence(0);
            self.must("in this process", oracle::contents(&*store, &states, &self.universe));
            self.must("in this process", oracle::verified(&*store));
        }
        self.reopen(store, &states);
        Some(ended)
    }

    fn step(&self, store: &dyn Subject, op: &Op, allowed: &mut Vec<State>, ended: &mut Ended) {
        let before = allowed[0].clone();
        let mut after = before.clone();
        let expected = after.apply(op);
        match store.apply(op) {
            Ok(Outcome::Full) => ended.refused += 1,
            Ok(outcome) => {
                let right = outcome == expected || allowed.iter().any(|state| state.clone().apply(op) == outcome);
                assert!(right, "{}", self.place(&format!("{op:?} answered {outcome:?}, not {expected:?}")));
                assert!(!ended.poisoned || before == after, "{}", self.place(&format!("{op:?} was taken")));
                if !ended.poisoned {
                    *allowed = vec![after];
                }
            }
            Err(Error::Poisoned { .. }) => {
                if !ended.poisoned && before != after {
                    allowed.push(after);
                }
                ended.poisoned = true;
            }
            Err(error) => {
                assert!(self.fails.excuses(&error), "{}", self.place(&format!("{op:?}: {error}")));
                ended.refused += 1;
            }
        }
    }

    /// Checks that the image of a kill or crash at the end holds the acknowledged writes.
    fn reopen(&self, store: Box<dyn Subject>, states: &[&State]) {
        let base = self.base.map_or_else(SimImage::default, |base| base.1.clone());
        let mut model = LineModel::new(SimImage { spec: self.fails.spec(0), ..base });
        store.recorder().take().events.iter().for_each(|event| model.apply(event));
        drop(store);
        self.look(&model.newest(), states, "after a kill");
        let set = model.crash_set();
        for choice in set.select(IMAGES, &mut Rng::new(self.nth)) {
            model.with_image(&set, &choice, |image| self.look(image, states, "after a crash"));
        }
    }

    fn look(&self, image: &SimImage, states: &[&State], when: &str) {
        let spec = SimSpec { record: false, ..image.spec.clone() };
        let store = HashEngine.open(&SimImage { spec, ..image.clone() }, &self.script.shape);
        let store = store.unwrap_or_else(|error| panic!("{}: {error}", self.place(when)));
        self.must(when, oracle::contents(&*store, states, &self.universe));
        self.must(when, oracle::verified(&*store));
    }
}

/// Runs the script once for each call that may fail. Returns the ends of the runs.
fn each_call(script: &Script, base: Option<&(State, SimImage)>, fails: Fails) -> Vec<Ended> {
    let universe = script.universe();
    let mut runs = Vec::new();
    for nth in 1.. {
        match (Run { script, base, universe: universe.clone(), fails, nth }).all() {
            Some(Ended { untouched: true, .. }) => break,
            ended => runs.extend(ended),
        }
    }
    let count = |of: fn(&Ended) -> bool| runs.iter().filter(|ended| of(ended)).count();
    println!(
        "{fails:?} in {:?}: {} runs, {} poisoned, {} with something refused, {} as if nothing had failed",
        script.name,
        runs.len(),
        count(|ended| ended.poisoned),
        count(|ended| ended.refused > 0),
        count(|ended| *ended == Ended::default()),
    );
    runs
}

const SCRIPTS: [&str; 3] =
    ["values over the threshold and under it", "collections beside what is in the log", "groups split"];
/// The script that frees space and reuses it.
const HOLES: &str = "segments give back their space and take it again";

/// Runs each call of all scripts.
fn each_call_of_all(fails: Fails) -> Vec<Ended> {
    SCRIPTS.into_iter().flat_map(|name| each_call(&script(name), None, fails)).collect()
}

#[test]
fn a_sync_of_the_file_that_fails_poisons_the_store() {
    let runs = each_call_of_all(Fails::Call(FileCall::Sync, FileFault::Io));
    assert!(runs.len() > 50 && runs.iter().all(|ended| ended.poisoned));
}

#[test]
fn a_write_of_the_file_that_fails_loses_nothing() {
    for fault in [FileFault::Io, FileFault::NoSpace] {
        let runs = each_call_of_all(Fails::Call(FileCall::Write, fault));
        assert!(runs.len() > 80 && !runs.iter().any(|ended| ended.poisoned));
    }
}

#[test]
fn a_growth_of_the_file_that_fails_loses_nothing() {
    for fault in [FileFault::Io, FileFault::NoSpace] {
        let mut runs = each_call_of_all(Fails::Call(FileCall::Grow, fault));
        runs.extend(each_call(&script(HOLES), None, Fails::Call(FileCall::Grow, fault)));
        assert!(runs.len() > 5 && !runs.iter().any(|ended| ended.poisoned));
    }
}

#[test]
fn a_segment_that_gets_no_space_again_loses_nothing() {
    for fault in [FileFault::Io, FileFault::NoSpace] {
        let runs = each_call(&script(HOLES), None, Fails::Call(FileCall::Reserve, fault));
        assert!(runs.len() > 5 && !runs.iter().any(|ended| ended.poisoned));
        // A full medium makes a full store; a broken one is reported.
        assert!(runs.iter().all(|ended| (ended.refused > 0) == (fault == FileFault::Io)));
    }
}

#[test]
fn space_that_cannot_be_given_back_changes_nothing() {
    let runs = each_call(&script(HOLES), None, Fails::Call(FileCall::Punch, FileFault::Io));
    assert!(runs.len() >= 2 && runs.iter().all(|ended| *ended == Ended::default()));
}

/// Values that an earlier open left in the tables are separated after an open, among new writes.
#[test]
fn values_that_are_separated_late_are_not_lost_where_a_call_fails() {
    let ordinary = script("groups split");
    let (values, later) = ordinary.ops.split_at(80);
    let unseparated = Shape { mode: NOSEP_MODE_FLAG, ..ordinary.shape };
    let store = HashEngine.create(&SimSpec::default(), &unseparated).expect("create");
    let mut base = (State::default(), SimImage::default());
    for op in values.iter().chain([&Op::Sweep]) {
        oracle::step(&*store, &mut base.0, op, oracle::Oracle::Live).expect("an operation");
    }
    let mut model = LineModel::new(SimImage { spec: SimSpec::default(), ..SimImage::default() });
    store.recorder().take().events.iter().for_each(|event| model.apply(event));
    drop(store);
    base.1 = model.newest();
    let ops = [&[Op::Sweep], later].concat();
    let script = Script { ops, name: "late".into(), ..ordinary };
    let store = HashEngine.open(&base.1, &script.shape).expect("open");
    store.apply(&Op::Sweep).expect("settle");
    assert!(store.counter("values_separated_late") > 20, "{}", store.counter("values_separated_late"));
    drop(store);
    for (fails, least, poisons) in [
        (Fails::Call(FileCall::Sync, FileFault::Io), 5, true),
        (Fails::Call(FileCall::Write, FileFault::Io), 10, false),
        (Fails::Call(FileCall::Write, FileFault::NoSpace), 10, false),
        (Fails::Call(FileCall::Grow, FileFault::Io), 1, false),
        (Fails::Call(FileCall::Grow, FileFault::NoSpace), 1, false),
        (Fails::Call(FileCall::Read, FileFault::Io), 5, false),
        (Fails::Fence, 50, true),
    ] {
        let runs = each_call(&script, Some(&base), fails);
        assert!(runs.len() >= least && runs.iter().all(|ended| ended.poisoned == poisons), "{fails:?}");
        let full = matches!(fails, Fails::Call(_, FileFault::NoSpace));
        assert!(
            !full || runs.iter().all(|ended| ended.refused == 0),
            "{fails:?}: what finds no room stays where it is"
        );
    }
}

#[test]
fn a_read_of_the_file_that_fails_is_told_and_loses_nothing() {
    let runs = each_call_of_all(Fails::Call(FileCall::Read, FileFault::Io));
    assert!(runs.len() > 50 && !runs.iter().any(|ended| ended.poisoned));
}

#[test]
fn a_fence_of_the_pool_that_fails_poisons_the_store() {
    let runs = each_call_of_all(Fails::Fence);
    assert!(runs.len() > 500 && runs.iter().all(|ended| ended.poisoned));
}

/// An open with a failing call is refused, or poisons the store, or succeeds; the next open has
/// everything.
#[test]
fn an_open_in_which_a_call_fails_loses_nothing() {
    let script = script("groups split");
    let spec = SimSpec { grain: 512, ..SimSpec::default() };
    let store = HashEngine.create(&spec, &script.shape).expect("create");
    let (mut state, universe) = (State::default(), script.universe());
    for op in &script.ops {
        oracle::step(&*store, &mut state, op, oracle::Oracle::Live).expect("an operation");
    }
    let mut killed = LineModel::new(SimImage { spec, ..SimImage::default() });
    store.recorder().take().events.iter().for_each(|event| killed.apply(event));
    drop(store);
    for (fails, least) in [
        (Fails::Call(FileCall::Read, FileFault::Io), 4),
        (Fails::Call(FileCall::Sync, FileFault::Io), 1),
        (Fails::Call(FileCall::Write, FileFault::Io), 0),
        (Fails::Call(FileCall::Grow, FileFault::NoSpace), 0),
        (Fails::Fence, 5),
    ] {
        let mut runs = 0;
        for nth in 1.. {
            let run = Run { script: &script, base: None, universe: universe.clone(), fails, nth };
            let mut model = killed.clone();
            match HashEngine.open(&SimImage { spec: fails.spec(nth), ..model.newest() }, &script.shape) {
                Ok(store) => {
                    let recovered = store.wait_recovered();
                    let poisoned = store.recorder().has_failed();
                    if !(run.fails.is_untouched(&*store) || poisoned) {
                        run.must("in an open", oracle::contents(&*store, &[&state], &universe));
                    }
                    recovered.unwrap_or_else(|error| assert!(poisoned, "{}", run.place(&error.to_string())));
                    if run.fails.is_untouched(&*store) {
                        break;
                    }
                    store.recorder().take().events.iter().for_each(|event| model.apply(event));
                }
                Err(error) => {
                    let excused = fails.excuses(&error) || matches!(error, Error::Poisoned { .. });
                    assert!(excused, "{}", run.place(&format!("open: {error}")));
                }
            }
            run.look(&SimImage { spec: fails.spec(0), ..model.newest() }, &[&state], "after a failed open");
            runs += 1;
        }
        println!("{fails:?} in an open: {runs} runs");
        assert!(runs >= least, "{fails:?}: {runs} runs");
    }
}

type Read = fn(&HashKv) -> Result<Vec<Option<Vec<u8>>>>;

/// Every way to read all of [`large_keys`].
const READS: [(&str, Read); 7] = [
    ("get", |store| large_keys().map(|key| store.get(&key)).collect()),
    ("multi_get", |store| {
        let keys: Vec<_> = large_keys().collect();
        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let mut found = vec![None; keys.len()];
        store.multi_get(&keys, &mut |index, value| found[index] = value.map(<[u8]>::to_vec))?;
        Ok(found)
    }),
    ("scan_each", |store| {
        let mut found = Vec::new();
        store.scan_each(&ScanRange::all(), &mut |_, value| {
            found.push(Some(value.to_vec()));
            Visit::More
        })?;
        Ok(found)
    }),
    ("for_each", |store| {
        let mut found = std::collections::BTreeMap::new();
        store.for_each(&mut |key, value| {
            found.insert(key.to_vec(), Some(value.to_vec()));
            Visit::More
        })?;
        Ok(found.into_values().collect())
    }),
    ("scan", |store| store.scan(&ScanRange::all())?.map(|pair| pair.map(|pair| Some(pair.into_pair().1))).collect()),
    ("snapshot", |store| {
        let snapshot = store.snapshot()?;
        large_keys().map(|key| snapshot.get(&key)).collect()
    }),
    ("update_with", |store| {
        let mut found = Vec::new();
        for key in large_keys() {
            store.update_with(&key, &mut |value, _| {
                found.push(value.map(<[u8]>::to_vec));
                Change::Keep
            })?;
        }
        Ok(found)
    }),
];

fn large_keys() -> impl Iterator<Item = Vec<u8>> {
    (0..60u8).map(|index| vec![b'k', index])
}

#[test]
fn whoever_reads_is_told_of_a_read_that_fails() {
    let options = options(&Shape::default());
    let spec = SimSpec { record: false, ..SimSpec::default() };
    let (pool, report) = Pool::create_sim(&spec, ENGINE, FORMAT, options.pool()).expect("a pool");
    let store = HashKv::start(Arc::clone(&pool), &report, &options).expect("a store");
    for key in large_keys() {
        store.put(&key, &[key[1]; 200]).expect("put");
    }
    store.settle().expect("settle");
    let recorder = pool.recorder().expect("a simulation");
    let wanted: Vec<_> = large_keys().map(|key| Some(vec![key[1]; 200])).collect();
    for (name, read) in READS {
        // A walk reads adjacent records in one call, and separately if that fails: then all of them
        // succeed.
        let walks = ["scan_each", "for_each", "scan"].contains(&name);
        let mut failed = 0;
        for nth in 1.. {
            recorder.fail_call(Some(FailingCall { call: FileCall::Read, nth, fault: FileFault::Io }));
            let found = read(&store);
            if recorder.will_fail() {
                assert_eq!(found.expect("nothing has failed"), wanted, "{name}");
                break;
            }
            match found {
                Err(Error::Io { .. }) => {}
                Ok(found) if walks => assert_eq!(found, wanted, "{name}, read {nth}"),
                other => panic!("{name}, read {nth}: {:?}", other.map(|found| found.len())),
            }
            failed += 1;
        }
        recorder.fail_call(None);
        assert_eq!(read(&store).expect("nothing fails"), wanted, "{name}");
        assert!(failed >= if walks { 1 } else { 30 }, "{name} reads {failed} times");
    }
    recorder.fail_call(Some(FailingCall { call: FileCall::Read, nth: 5, fault: FileFault::Io }));
    assert!(!store.verify(&mut |_| ()).expect("verify").is_clean(), "a verify says what it could not read");
}
