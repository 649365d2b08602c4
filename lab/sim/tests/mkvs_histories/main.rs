//! Matrices with concurrent threads while devices slow down, stall, are full, cannot read, fail,
//! are lost, replaced or return. Meanwhile a group is added, and the matrix is closed, or cut off
//! in the middle, and reopened. The threads' calls must be a linearizable history, for each rule of
//! reading, of acknowledging, and of sharing the work.
//!
//! A seed determines how the matrix reads and writes, the threads' operations, and the events.
//! `LODESTORE_SEED` sets the first seed, and `LODESTORE_TIMES` their number. `LODESTORE_SHAPE` (as
//! `2x3`) sets the numbers of groups and of devices per group.
//!
//! One further thread scans. A scan is no read of the history (`lodestore_sim::scans`).

mod asked;
#[path = "../../../../crates/mkvs/tests/common/mod.rs"]
mod common;
mod event;
mod torn;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use common::Matrix;
use common::faulty::{Fault, Faulty, Switch, Touch};
use event::{EVENTS, Event};
use lodestore_contract::conformance::Harness;
use lodestore_contract::testing::HANG_TIMEOUT;
use lodestore_contract::{Error, Result, Store};
use lodestore_media::sim::Rng;
use lodestore_mkvs::{Acks, Filtering, Inline, Mkvs, Part, Reads};
use lodestore_sim::concurrent::{FailingCounts, Load, check_scanned};
use lodestore_sim::op::{Op, Outcome};
use lodestore_sim::subject::Pair;
use torn::Tear;

/// Groups, and devices of each.
type Size = (usize, usize);
/// The size tested in all modes, and other sizes.
const SIZE: Size = (2, 3);
const SIZES: [Size; 4] = [(1, 1), (2, 2), (3, 3), (16, 5)];
const CAPACITY: u64 = 32 << 20;
const LOAD: Load = Load { threads: 3, keys: 36, ops: 840, batches: false, ranges: false };
/// Combinations of rules of reading, acknowledging, and sharing the work.
const MODES: u64 = 18;
/// The time limit of an expected event.
const PATIENCE: Duration = HANG_TIMEOUT;

/// The switches of all stores by directory, and one for all of them.
#[derive(Clone)]
struct Switches {
    each: Arc<Mutex<BTreeMap<PathBuf, Switch>>>,
    all: Switch,
}

impl Switches {
    fn new() -> Self {
        Self { each: Arc::default(), all: Switch::new() }
    }

    fn of(&self, directory: &Path, part: Part) -> Switch {
        let mut all = self.each.lock().unwrap_or_else(PoisonError::into_inner);
        all.entry(directory.join(part.directory())).or_insert_with(Switch::new).clone()
    }

    fn clear(&self) {
        self.all.clear();
        self.each.lock().unwrap_or_else(PoisonError::into_inner).values().for_each(Switch::clear);
    }
}

/// A matrix, the events applied to it, and the progress of the threads.
struct Stage {
    matrix: Matrix,
    /// Devices of a group.
    devices: usize,
    switches: Switches,
    /// `None` while it is reopened.
    store: RwLock<Option<Mkvs>>,
    /// Started operations.
    ops: AtomicU64,
    /// Operations that may start, so that threads run during every event.
    allowed: AtomicU64,
    /// The threads have ended.
    is_over: AtomicBool,
    replacements: AtomicU64,
    revivals: AtomicU64,
    scans: AtomicU64,
    /// Numbers of values that were put with an expiry.
    expiring: Mutex<BTreeSet<u64>>,
}

impl Stage {
    fn new((groups, devices): Size, seed: u64) -> Self {
        let switches = Switches::new();
        let known = switches.clone();
        let wrap = move |directory: &Path, part: Part, store: Arc<dyn Store>| -> Arc<dyn Store> {
            let store = Arc::new(Faulty { store, switch: known.of(directory, part) });
            Arc::new(Faulty { store, switch: known.all.clone() })
        };
        let matrix = Matrix::new("histories", groups, devices).on(|places| places.wrap = Some(Arc::new(wrap)));
        let matrix = matrix.with(|options| {
            options.reads = [Reads::Hedged, Reads::RaceAll, Reads::Single][(seed % 3) as usize];
            options.acks = [Acks::One, Acks::Majority, Acks::All][(seed / 3 % 3) as usize];
            options.inline = [Inline::Off, Inline::On][(seed / 9 % 2) as usize];
            options.filter = [Filtering::On, Filtering::Off][(seed / MODES % 2) as usize];
            // A stalled device is soon behind, and logs keep little.
            (options.soft_lag, options.hard_lag) = (Some(4), Some(16));
            (options.log_ops, options.log_bytes) = (64, 8192);
        });
        let store = matrix.create(CAPACITY).expect("create");
        Self {
            matrix,
            devices,
            switches,
            store: RwLock::new(Some(store)),
            ops: AtomicU64::new(0),
            allowed: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
            replacements: AtomicU64::new(0),
            revivals: AtomicU64::new(0),
            scans: AtomicU64::new(0),
            expiring: Mutex::default(),
        }
    }

    fn with<T>(&self, work: impl FnOnce(&Mkvs) -> T) -> T {
        let store = self.store.read().unwrap_or_else(PoisonError::into_inner);
        work(store.as_ref().expect("it is there but while it is opened"))
    }

    /// Applies an operation of a thread.
    fn apply(&self, op: &Op) -> Result<Outcome> {
        let number = self.ops.fetch_add(1, Ordering::AcqRel);
        while self.allowed.load(Ordering::Acquire) <= number && !self.is_over.load(Ordering::Acquire) {
            thread::sleep(Duration::from_micros(200));
        }
        thread::sleep(Duration::from_micros(number % 3 * 20));
        self.expiring.lock().expect("what is put").extend(asked::expiring(op));
        let outcome = self.with(|store| asked::apply(store, op, number));
        match outcome {
            Err(Error::Full { .. }) => Ok(Outcome::Full),
            Err(Error::TooFewDevices { may_stand: false, .. }) => {
                thread::sleep(Duration::from_millis(2));
                Ok(Outcome::Full)
            }
            // Successive failures multiply the possible outcomes that the search must consider.
            Err(Error::TooFewDevices { .. } | Error::Io { .. } | Error::Unfinished { .. } | Error::Corrupt { .. }) => {
                thread::sleep(Duration::from_millis(2));
                outcome
            }
            Err(error) => panic!("{op:?}: {error}"),
            outcome => outcome,
        }
    }

    /// Runs a scan of another thread.
    fn scan(&self) -> Option<Vec<Pair>> {
        let number = self.scans.fetch_add(1, Ordering::AcqRel);
        self.with(|store| asked::scan(store, number))
    }

    /// Waits until threads have done `ops` more operations, for at least `millis` milliseconds.
    fn pass(&self, ops: u64, millis: u64) {
        let (begun, first) = (Instant::now(), self.ops.load(Ordering::Acquire));
        while self.ops.load(Ordering::Acquire) < first + ops && begun.elapsed() < Duration::from_millis(millis) {
            thread::sleep(Duration::from_micros(100));
        }
    }

    /// Returns the directory of a device.
    fn directory(&self, group: usize, device: usize) -> PathBuf {
        let status = self.with(Mkvs::status);
        let found = status.devices.iter().find(|found| (found.group, found.device) == (group, device));
        self.matrix.path().join(&found.expect("there is one").path)
    }

    fn switch(&self, group: usize, device: usize, part: Part) -> Switch {
        self.switches.of(&self.directory(group, device), part)
    }

    fn groups(&self) -> usize {
        self.with(Mkvs::status).groups
    }

    /// Returns the devices of one group, in any order.
    fn some(&self, rng: &mut Rng) -> (usize, Vec<usize>) {
        let group = rng.index(self.groups());
        let mut left: Vec<usize> = (0..self.devices).collect();
        (group, (0..self.devices).map(|_| left.swap_remove(rng.index(left.len()))).collect())
    }

    fn acks(&self) -> Acks {
        self.matrix.options.acks
    }

    /// Stops the matrix and reopens it, with all switches off. If it is not closed, it is cut off
    /// under the threads: from one moment on nothing reaches any store.
    fn open_again(&self, closes: bool, between: impl FnOnce()) {
        if !closes {
            self.switches.all.set(|touch, _| fails_to_write(touch));
            self.pass(6, 5);
        }
        let mut store = self.store.write().unwrap_or_else(PoisonError::into_inner);
        self.switches.clear();
        if let Some(store) = store.take()
            && closes
        {
            store.close().expect("close");
        }
        between();
        *store = Some(self.matrix.open().expect("open"));
    }

    /// Waits until the condition is true.
    fn wait(&self, what: &str, is_so: impl Fn(&Mkvs) -> bool) {
        let begun = Instant::now();
        while !self.with(&is_so) {
            assert!(
                begun.elapsed() < PATIENCE,
                "{what}: {:#?}, {:?}",
                self.with(Mkvs::status),
                self.with(|store| store.stats().engine_counters)
            );
            self.revive();
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Reopens the matrix if all devices of a group are out and some failed, so that too few can
    /// lead. If none failed, the group recovers by itself.
    fn revive(&self) {
        let devices = self.with(Mkvs::status).devices;
        let has = |group, state| devices.iter().any(|device| device.group == group && device.state == state);
        if devices.iter().any(|device| !has(device.group, "active") && has(device.group, "failed")) {
            self.revivals.fetch_add(1, Ordering::AcqRel);
            self.open_again(false, || {});
        }
    }

    fn wait_whole(&self) {
        self.wait("all devices have everything, and keys are where they belong", |store| {
            store.wait_whole(Duration::ZERO).is_ok()
        });
    }

    /// Replaces a device by a new one, in the same directory if it was removed.
    fn replace(&self, group: usize, device: usize) {
        let old = self.directory(group, device);
        let number = self.replacements.fetch_add(1, Ordering::AcqRel);
        let other = self.matrix.path().join(format!("replacement {number}"));
        let new = if old.exists() || number.is_multiple_of(2) { other } else { old };
        self.wait("a device is replaced", |store| {
            match store.replace(group, device, &new, &self.matrix.path(), &self.matrix.places) {
                Ok(_) => true,
                // The others have not caught up yet; or the device that should fail was not written
                // to, and it is needed.
                Err(Error::TooFewDevices { .. }) => {
                    self.allowed.fetch_add(1, Ordering::AcqRel);
                    false
                }
                Err(error) => panic!("replace: {error}"),
            }
        });
    }

    fn happens(&self, event: Event, rng: &mut Rng) {
        let (group, devices) = self.some(rng);
        let part = if self.devices > 1 && rng.one_in(3) { Part::Log } else { Part::Device };
        println!("  {event:?} in group {group}, devices {devices:?}, {part:?}");
        let fail = |count: usize| {
            for device in devices.iter().take(count) {
                self.switch(group, *device, part).set(|touch, _| fails_to_write(touch));
            }
        };
        match event {
            Event::Slow | Event::Still | Event::Full(_) | Event::Damage => {
                self.falters(event, group, &devices, part);
                self.switches.clear();
            }
            Event::FailOne => {
                fail(1);
                self.pass(40, 20);
                self.replace(group, devices[0]);
                self.switches.clear();
            }
            Event::Fail(count) => {
                fail(count);
                self.pass(20, 10);
                self.open_again(false, || {});
            }
            Event::AddGroup => {
                let added = self.with(|store| store.add_group(&[], &self.matrix.path(), &self.matrix.places));
                added.expect("add a group");
            }
            Event::Reopen => self.open_again(true, || {}),
            Event::Cut => self.open_again(false, || {}),
            Event::Tear(tear) => self.tears(tear, group, devices[0], rng),
            _ => self.loses(event, group, &devices, rng.one_in(2)),
        }
    }

    /// Damages a device's log while the matrix is stopped.
    fn tears(&self, tear: Tear, group: usize, device: usize, rng: &mut Rng) {
        let directory = self.directory(group, device);
        let mut is_torn = false;
        let closes = tear == Tear::Gone || rng.one_in(2);
        self.open_again(closes, || is_torn = torn::tear(&self.matrix.places, &directory, tear, rng));
        self.pass(40, 20);
        if is_torn && tear == Tear::Cut {
            self.replace(group, device);
        }
    }

    /// Applies an event after which the devices continue.
    fn falters(&self, event: Event, group: usize, devices: &[usize], part: Part) {
        let first = self.switch(group, devices[0], part);
        match event {
            Event::Slow => first.set(|_, key| {
                let sum: u64 = key.iter().map(|byte| u64::from(*byte)).sum();
                Fault::Slow(Duration::from_micros(sum % 300))
            }),
            Event::Still => {
                let until = Instant::now() + Duration::from_millis(15);
                first.set(move |_, _| Fault::Slow(until.saturating_duration_since(Instant::now())));
            }
            Event::Full(count) => {
                for device in devices.iter().take(count) {
                    self.switch(group, *device, part).set(|touch, key| meets(touch, Touch::Write, key, Fault::Full));
                }
            }
            _ => {
                let store = self.switch(group, devices[0], Part::Device);
                store.set(|touch, key| meets(touch, Touch::Read, key, Fault::Corrupt));
            }
        }
        self.pass(60, 30);
    }

    /// Loses the first of these devices.
    fn loses(&self, event: Event, group: usize, devices: &[usize], closes: bool) {
        let lost = self.directory(group, devices[0]);
        let away = self.matrix.path().join("away");
        let lose = || torn::lose(&lost);
        let others = |fault: fn(Touch) -> Fault| {
            for device in &devices[1..] {
                self.switch(group, *device, Part::Log).set(move |touch, _| fault(touch));
            }
            self.pass(20, 15);
        };
        match event {
            Event::LoseRunning => lose(),
            Event::LoseAndCut => {
                lose();
                self.pass(40, 20);
                self.open_again(false, || {});
            }
            Event::LoseStopped => self.open_again(closes, lose),
            Event::LoseAhead => {
                others(|touch| if touch == Touch::Write { Fault::Slow(Duration::from_millis(1)) } else { Fault::None });
                self.open_again(false, lose);
            }
            Event::LoseAlone => {
                others(fails_to_write);
                self.open_again(false, lose);
            }
            _ => {
                others(fails_to_write);
                self.open_again(false, || std::fs::rename(&lost, &away).expect("the device goes"));
                self.pass(12, 20);
                return self.open_again(closes, || std::fs::rename(&away, &lost).expect("the device comes back"));
            }
        }
        self.pass(40, 20);
        self.replace(group, devices[0]);
    }

    /// Applies each event once while the threads run, in an order of the seed.
    fn all_happens(&self, rng: &mut Rng) {
        let _release = Release(&self.allowed);
        let mut left: Vec<Event> =
            EVENTS.into_iter().filter(|event| event.is_borne(self.acks(), self.groups(), self.devices)).collect();
        let step = LOAD.threads * LOAD.ops / left.len() as u64;
        while !left.is_empty() && !self.is_over.load(Ordering::Acquire) {
            let event = left.swap_remove(rng.index(left.len()));
            if matches!(event, Event::AddGroup | Event::FailOne) || event.is_loss() {
                self.wait_whole();
            }
            self.allowed.fetch_add(step / 2, Ordering::AcqRel);
            self.pass(step / 4, 30);
            self.happens(event, rng);
            self.revive();
            self.allowed.fetch_add(step / 2, Ordering::AcqRel);
            self.pass(step / 4, 30);
        }
    }

    /// Waits until all devices are back, and verifies them.
    fn end(&self) {
        self.open_again(false, || {});
        self.wait_whole();
        let report = self.with(|store| store.verify(&mut |_| {})).expect("verify");
        assert!(report.is_clean(), "{:?}", report.findings);
        let expiring = self.expiring.lock().expect("what was put");
        self.with(|store| asked::check_expiries(store, LOAD.keys, &expiring));
    }
}

/// Lets the threads finish, also after an event that the matrix did not survive.
struct Release<'a>(&'a AtomicU64);

impl Drop for Release<'_> {
    fn drop(&mut self) {
        self.0.store(u64::MAX, Ordering::Release);
    }
}

fn fails_to_write(touch: Touch) -> Fault {
    if touch == Touch::Write { Fault::Io } else { Fault::None }
}

/// A fault for half of the keys.
fn meets(touch: Touch, what: Touch, key: &[u8], fault: Fault) -> Fault {
    let is_met = touch == what && key.last().is_some_and(|byte| byte % 2 == 0);
    if is_met { fault } else { Fault::None }
}

fn history(size: Size, seed: u64) -> FailingCounts {
    let stage = Stage::new(size, seed);
    let options = &stage.matrix.options;
    let (groups, devices) = size;
    println!(
        "LODESTORE_SHAPE={groups}x{devices} LODESTORE_SEED={seed}: {:?}, {:?}, inline {:?}, filter {:?}",
        options.reads, options.acks, options.inline, options.filter
    );
    let (counts, events) = thread::scope(|scope| {
        let events = scope.spawn(|| stage.all_happens(&mut Rng::part(seed, 1000)));
        let counts = check_scanned(LOAD, seed, &|op| stage.apply(op), &|| stage.scan(), || stage.end());
        stage.is_over.store(true, Ordering::Release);
        (counts, events.join())
    });
    events.unwrap_or_else(|_| panic!("seed {seed}: what happened was not borne"));
    let counts = counts.unwrap_or_else(|wrong| panic!("seed {seed}: {}", wrong.what));
    let (replacements, revivals) = (stage.replacements.into_inner(), stage.revivals.into_inner());
    println!("  {counts:?}, {replacements} replacements, {revivals} times opened again");
    counts
}

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text}: give a number")))
}

/// Returns the given seeds, or these.
fn seeds(default: impl Iterator<Item = u64>) -> Vec<u64> {
    let (first, times) = (number("LODESTORE_SEED"), number("LODESTORE_TIMES"));
    if first.is_none() && times.is_none() {
        return default.collect();
    }
    let first = first.unwrap_or(0);
    // By default one seed.
    (first..first + times.unwrap_or(1)).collect()
}

/// Returns the given size.
fn size_told() -> Option<Size> {
    let text = std::env::var("LODESTORE_SHAPE").ok()?;
    let size = text.split_once('x').and_then(|(groups, devices)| Some((groups.parse().ok()?, devices.parse().ok()?)));
    Some(size.unwrap_or_else(|| panic!("LODESTORE_SHAPE={text}: give groups and devices, as in 2x3")))
}

#[test]
fn what_threads_see_of_a_matrix_is_linearizable_whatever_happens_to_its_devices() {
    let mut all = FailingCounts::default();
    let seeds = seeds(0..MODES);
    let is_in_all_modes = seeds.len() as u64 >= MODES;
    for seed in seeds {
        let counts = history(size_told().unwrap_or(SIZE), seed);
        all = FailingCounts {
            answered: all.answered + counts.answered,
            failed: all.failed + counts.failed,
            refused: all.refused + counts.refused,
            scans: all.scans + counts.scans,
        };
    }
    println!("{all:?}");
    let is_met = all.failed > 0 && all.refused > 0 && all.scans > 0;
    assert!(is_met || !is_in_all_modes, "{all:?}");
}

/// Tests each rule of reading with each rule of acknowledging, and the largest size with each rule
/// once.
#[test]
fn what_threads_see_of_matrices_of_other_sizes_is_linearizable_too() {
    if size_told().is_some() {
        return;
    }
    for size in SIZES {
        let times = MODES / 2;
        let step = if size.0 * size.1 > 9 { 4 } else { 1 };
        // The two ways of sharing the work alternate.
        seeds((0..times).step_by(step).map(|mode| mode + mode % 2 * times)).into_iter().for_each(|seed| {
            history(size, seed);
        });
    }
}
