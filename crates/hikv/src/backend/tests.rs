//! The backend against a model: order, drains, helping, rebuilds, stops, sleep, adaption, failures.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use lodestore_contract::Error;
use lodestore_contract::testing::HANG_TIMEOUT;
use lodestore_media::NvPtr;

use super::*;

const KEYS: u64 = 300;
/// Timeout for the completion of work.
const WAIT_TIMEOUT: Duration = HANG_TIMEOUT;

/// Records that exist only as numbers: a position encodes key and version.
#[derive(Clone, Default)]
struct Records(Arc<Kept>);

#[derive(Default)]
struct Kept {
    retired: Mutex<HashSet<u64>>,
    pins: AtomicUsize,
    slow: AtomicBool,
    broken: AtomicBool,
}

fn position(key: u64, version: u64) -> NvPtr {
    NvPtr::new(0, (key + 1) << 32 | (version + 1) << 4)
}

/// Keys of mixed length, most of them inline.
fn key_of(number: u64) -> Vec<u8> {
    let tail = if number.is_multiple_of(5) { KEY_TAIL } else { "" };
    format!("{number:08}{tail}").into_bytes()
}

const KEY_TAIL: &str = "-with a tail that makes it longer than what an operation holds";

impl KeyResolver for Records {
    fn with_key<T>(&self, payload: u64, f: impl FnOnce(&[u8]) -> T) -> T {
        f(&key_of((NvPtr::from_raw(payload).offset() >> 32) - 1))
    }
    fn prefetch(&self, _: u64) {}
}

impl Retire for Records {
    fn retire(&self, position: NvPtr) {
        assert!(self.0.pins.load(Ordering::SeqCst) > 0, "applied without a pin");
        assert!(!self.0.broken.load(Ordering::SeqCst), "broken on purpose");
        if self.0.slow.load(Ordering::SeqCst) {
            thread::sleep(Duration::from_micros(100));
        }
        assert!(self.0.retired.lock().expect("sound").insert(position.raw()), "retired twice");
    }
    fn pinned<T>(&self, work: impl FnOnce() -> T) -> T {
        self.0.pins.fetch_add(1, Ordering::SeqCst);
        let result = work();
        self.0.pins.fetch_sub(1, Ordering::SeqCst);
        result
    }
}

fn hash(key: u64) -> u64 {
    (key + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31).wrapping_mul(0xd6e8_feb8_6659_fd93)
}

fn hash_bytes(key: &[u8]) -> u64 {
    hash(std::str::from_utf8(&key[..8]).expect("digits").parse().expect("digits"))
}

/// Model of the hash index: authoritative, published under a stripe lock and read without it.
struct Model {
    backend: Backend<Records>,
    records: Records,
    /// Version published, 0 for none, under its stripe.
    stripes: Vec<Mutex<u64>>,
    published: Vec<AtomicU64>,
    replaced: AtomicU64,
}

impl Model {
    fn new(config: Config) -> Self {
        let records = Records::default();
        let backend = Backend::start(config, records.clone(), Arc::new(Sampler::new(true)));
        Self {
            backend,
            records,
            stripes: (0..KEYS).map(|_| Mutex::new(0)).collect(),
            published: (0..KEYS).map(|_| AtomicU64::new(0)).collect(),
            replaced: AtomicU64::new(0),
        }
    }

    /// Performs one write: an insert, a replacement or a delete.
    fn write(&self, random: u64) {
        let number = random % KEYS;
        let mut newest = self.stripes[number as usize].lock().expect("sound");
        let published = &self.published[number as usize];
        let old = published.load(Ordering::Relaxed);
        let delete = old != 0 && (random >> 32).is_multiple_of(4);
        *newest += 1;
        let new = if delete { NvPtr::NULL } else { position(number, *newest) };
        published.store(new.raw(), Ordering::Release);
        let op = TreeOp::new(&key_of(number), NvPtr::from_raw(old), new);
        self.replaced.fetch_add(u64::from(old != 0), Ordering::Relaxed);
        self.backend.enqueue(hash(number), op);
    }

    fn writer(&self, seed: u64, writes: usize) {
        let mut random = seed;
        for _ in 0..writes {
            random = next(random);
            self.write(random >> 8);
        }
    }

    fn tree(&self) -> BTreeMap<Vec<u8>, u64> {
        let mut found = Vec::new();
        assert!(self.backend.read_range(
            &self.records,
            Bound::Unbounded,
            Direction::Forward,
            usize::MAX >> 1,
            &mut found
        ));
        let tree: BTreeMap<_, _> = found.iter().map(|at| (self.records.with_key(*at, <[u8]>::to_vec), *at)).collect();
        assert_eq!(tree.len(), found.len());
        tree
    }

    fn truth(&self) -> BTreeMap<Vec<u8>, u64> {
        let live = |number: &u64| self.published[*number as usize].load(Ordering::Acquire) != 0;
        let keys = (0..KEYS).filter(live);
        keys.map(|number| (key_of(number), self.published[number as usize].load(Ordering::Acquire))).collect()
    }

    /// Checks, after all writers ended, that the tree equals the index and exactly the replaced
    /// positions are retired.
    fn check(&self) {
        self.backend.drain().expect("sound");
        assert_eq!(self.tree(), self.truth());
        let retired = self.records.0.retired.lock().expect("sound");
        assert_eq!(retired.len() as u64, self.replaced.load(Ordering::Relaxed));
        let stats = self.backend.stats();
        assert_eq!((stats.pending, stats.rebuild_waiting), (0, 0));
    }
}

fn next(random: u64) -> u64 {
    let mut mixed = random.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb)
}

/// Returns all setups of a backend, with queues small enough to fill.
fn all_configs() -> Vec<Config> {
    let base = Config { queues: 3, queue_len: 32, window: Duration::from_millis(2), ..Config::default() };
    vec![
        Config { backends: WorkerCount::Fixed(1), ..base.clone() },
        Config { backends: WorkerCount::Fixed(3), ..base.clone() },
        Config { backends: WorkerCount::Auto { threads: 4 }, ..base.clone() },
        Config { backends: WorkerCount::Auto { threads: 1 }, ..base.clone() },
        Config { backends: WorkerCount::Fixed(0), ..base.clone() },
        Config { backends: WorkerCount::Fixed(0), caller_batch: 16, ..base.clone() },
        Config { sync_update: true, ..base.clone() },
        Config { trees: 16, queues: 8, ..base },
    ]
}

fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < WAIT_TIMEOUT, "{what} never came");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn the_tree_equals_the_index_after_concurrent_writes() {
    for config in all_configs() {
        let model = Model::new(config.clone());
        thread::scope(|scope| {
            for seed in 0..3 {
                let model = &model;
                scope.spawn(move || model.writer(seed, 4000));
            }
        });
        model.check();
        assert_eq!(model.backend.stats().surprises, 0, "{config:?}");
        model.backend.stop().expect("sound");
        model.check();
    }
}

#[test]
fn a_drain_applies_every_change_enqueued_before_it() {
    for config in all_configs() {
        let model = Model::new(config.clone());
        let returned: Vec<_> = (0..KEYS).map(|_| AtomicU64::new(0)).collect();
        let writing = AtomicUsize::new(2);
        thread::scope(|scope| {
            for writer in 0..2 {
                let (model, returned, writing) = (&model, &returned, &writing);
                scope.spawn(move || {
                    // Each key has one writer and only rising versions. A version that is found
                    // must be at least the last one that returned.
                    for version in 1..40 {
                        for number in (writer..KEYS).step_by(2) {
                            let old = if version == 1 { NvPtr::NULL } else { position(number, version - 1) };
                            let op = TreeOp::new(&key_of(number), old, position(number, version));
                            model.backend.enqueue(hash(number), op);
                            returned[number as usize].store(version, Ordering::SeqCst);
                        }
                    }
                    writing.fetch_sub(1, Ordering::SeqCst);
                });
            }
            let mut drains = 0;
            while drains < 20 || writing.load(Ordering::SeqCst) > 0 {
                let before: Vec<_> = returned.iter().map(|version| version.load(Ordering::SeqCst)).collect();
                model.backend.drain().expect("sound");
                let tree = model.backend.trees();
                for (number, version) in before.iter().enumerate().filter(|(_, version)| **version > 0) {
                    let key = key_of(number as u64);
                    let at = tree.get(tree.number_of(hash(number as u64))).get(&model.records, &key);
                    let at = at.unwrap_or_else(|| panic!("key {number} is missing: {config:?}"));
                    assert!(at >= position(number as u64, *version).raw(), "key {number} is old: {config:?}");
                }
                drains += 1;
            }
        });
    }
}

#[test]
fn a_writer_with_a_full_queue_applies_operations() {
    let model = Model::new(Config { queues: 1, queue_len: 16, ..Config::default() });
    model.backend.stop().expect("sound");
    model.writer(7, 1000);
    let stats = model.backend.stats();
    assert!(stats.full > 0 && stats.helped > 0, "{stats:?}");
    assert_eq!(stats.depth_max, 16);
    model.check();
}

#[test]
fn a_rebuild_during_writes_equals_the_index() {
    let tight = |config: Config| Config { overflow_max: 40, ..config };
    for config in all_configs().into_iter().flat_map(|config| [tight(config.clone()), config]) {
        let model = Model::new(config.clone());
        model.backend.begin_rebuild();
        for (number, published) in model.published.iter().enumerate().filter(|(number, _)| number % 2 == 0) {
            // The state before the crash.
            published.store(position(number as u64, 0).raw(), Ordering::Relaxed);
        }
        thread::scope(|scope| {
            let model = &model;
            for seed in 10..12 {
                scope.spawn(move || model.writer(seed, 2000));
            }
            let scanner = scope.spawn(|| model.backend.drain());
            let mut seen = Vec::new();
            for (number, published) in model.published.iter().enumerate() {
                if number % 50 == 0 {
                    thread::sleep(Duration::from_millis(1));
                }
                let at = published.load(Ordering::Acquire);
                if at != 0 {
                    seen.push((key_of(number as u64), at));
                }
            }
            assert!(!scanner.is_finished(), "a scan passed the closed gate");
            seen.sort_unstable();
            let sorted: Vec<_> = seen.into_iter().map(|(_, at)| at).collect();
            assert!(model.records.0.retired.lock().expect("sound").is_empty(), "retired before it was applied");
            let load = |trees: &Trees| trees.load(&model.records, &sorted, 1, hash_bytes);
            model.backend.finish_rebuild(load).expect("sound");
            scanner.join().expect("no panic").expect("sound");
        });
        model.check();
    }
}

#[test]
fn an_abandoned_rebuild_blocks_no_thread() {
    for backends in [WorkerCount::Fixed(0), WorkerCount::Fixed(1)] {
        let config = Config { backends, queues: 1, queue_len: 16, overflow_max: 8, ..Config::default() };
        let model = Model::new(config);
        model.backend.begin_rebuild();
        thread::scope(|scope| {
            let scan = scope.spawn(|| model.backend.drain());
            let writer = scope.spawn(|| model.writer(3, 500));
            wait_for("a full overflow", || model.backend.stats().rebuild_waiting >= 8);
            model.backend.abandon_rebuild("the medium is gone");
            let refused = scan.join().expect("no panic");
            assert!(matches!(refused, Err(Error::Poisoned { cause }) if cause.contains("medium")));
            writer.join().expect("writes go on");
        });
        assert!(model.backend.check().is_err());
        assert!(model.backend.stop().is_err());
    }
}

#[test]
fn a_failed_or_panicking_load_poisons() {
    type Load = fn(&Trees) -> lodestore_contract::Result<()>;
    let loads: [Load; 2] = [|_| Err(Error::corrupt("record 7", "wrong")), |_| panic!("in a load")];
    for load in loads {
        let model = Model::new(Config::default());
        model.backend.begin_rebuild();
        model.writer(1, 10);
        assert!(model.backend.finish_rebuild(load).is_err());
        assert!(matches!(model.backend.drain(), Err(Error::Poisoned { .. })));
    }
}

#[test]
fn a_panic_while_applying_poisons_and_blocks_no_thread() {
    for config in all_configs() {
        let model = Model::new(config);
        model.writer(1, 500);
        model.records.0.broken.store(true, Ordering::SeqCst);
        thread::scope(|scope| {
            for seed in 0..2 {
                let model = &model;
                scope.spawn(move || model.writer(seed, 1000));
            }
        });
        wait_for("poison", || model.backend.drain().is_err());
        assert!(model.backend.stop().is_err());
    }
}

#[test]
fn a_stop_under_load_applies_every_change() {
    for config in all_configs() {
        let model = Model::new(config);
        thread::scope(|scope| {
            for seed in 0..2 {
                let model = &model;
                scope.spawn(move || model.writer(seed, 3000));
            }
            model.backend.stop().expect("sound");
            model.backend.stop().expect("twice is once");
        });
        model.check();
    }
}

#[test]
fn a_drop_without_a_stop_ends_the_threads() {
    let records = Records::default();
    let config = Config { backends: WorkerCount::Fixed(2), ..Config::default() };
    let backend = Backend::start(config, records.clone(), Arc::new(Sampler::new(false)));
    backend.enqueue(hash(1), TreeOp::new(&key_of(1), NvPtr::NULL, position(1, 1)));
    drop(backend);
    assert_eq!(Arc::strong_count(&records.0), 1, "a thread still holds the records");
}

#[test]
fn a_sleeping_backend_wakes_for_a_single_push() {
    let model = Model::new(Config { backends: WorkerCount::Fixed(2), ..Config::default() });
    for number in 0..5 {
        wait_for("sleep", || model.backend.core.workers.is_asleep());
        model.write(number);
        // No thread helps here: only the backend's own threads can complete it.
        wait_for("the change", || model.backend.stats().pending == 0);
    }
    assert!(model.backend.stats().wakes >= 5);
    model.check();
}

#[test]
fn slow_changes_add_threads_and_idle_time_removes_them() {
    let config = Config {
        backends: WorkerCount::Auto { threads: 4 },
        queues: 4,
        queue_len: 16,
        window: Duration::from_millis(1),
        ..Config::default()
    };
    let model = Model::new(config);
    assert_eq!((model.backend.stats().backends, model.backend.stats().serving), (1, 3));
    model.records.0.slow.store(true, Ordering::SeqCst);
    let mut seed = 0;
    wait_for("more threads", || {
        seed += 1;
        model.writer(seed, 200);
        model.backend.stats().backends > 1
    });
    let stats = model.backend.stats();
    assert!(stats.windows > 0 && stats.changes > 0, "{stats:?}");
    model.records.0.slow.store(false, Ordering::SeqCst);
    wait_for("one thread", || {
        // Push from time to time, to keep a thread awake that notices the idle state.
        model.write(1);
        model.backend.stats().backends == 1
    });
    model.check();
    assert_eq!(model.backend.stats().backends, 1);
}
