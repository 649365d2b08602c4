//! Shared test utilities of the in-place engines: stores in a temporary directory, places for the
//! contract's suite, and counts of ordering points.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lodestore_contract::conformance::{Harness, Plan};
use lodestore_contract::{Durability, Error, Event, EventSink, Lifetime, OptionSpec, Result, Store, VerifyReport};
use lodestore_media::PoolOptions;

use crate::engine::PIECE_BYTES;
use crate::store::{OpenStore, StoreEngine};

pub use lodestore_contract::testing::{HANG_TIMEOUT, Scratch};

pub use crate::testing_sink::{
    check_sink_may_drop_the_store, check_sink_may_panic_in_recovery, check_sink_may_use_the_store,
    check_sink_may_use_the_store_but_for_sweeps,
};

/// Returns options of a pool for small stores whose flushes and fences are executed.
pub fn small_dax_pool() -> PoolOptions {
    PoolOptions {
        capacity: 64 << 20,
        region_bytes: 16 << 20,
        durability: Durability::Power,
        emulate_dax: true,
        ..PoolOptions::default()
    }
}

/// Returns the options that a text names as `Builder::set("name", ..)` and that are not among
/// `specs`.
pub fn unknown_names<'a>(text: &'a str, specs: &[OptionSpec]) -> Vec<&'a str> {
    let names = text.split("`Builder::set(\"").skip(1).filter_map(|rest| rest.split_once('"')).map(|(name, _)| name);
    names.filter(|name| specs.iter().all(|spec| spec.name != *name)).collect()
}

/// An engine under test. `S` is its store and `O` its options.
pub struct Kind<S, O> {
    /// Its name.
    pub engine: &'static str,
    /// Creates a store.
    pub create: fn(&Path, &O) -> Result<S>,
    /// Opens an existing store.
    pub open: fn(&Path, &O) -> Result<S>,
    /// Returns the pool's options in the engine's options.
    pub pool: fn(&mut O) -> &mut PoolOptions,
}

/// A place for one store, with the options for its creation and opening.
pub struct Place<S: 'static, O: 'static> {
    kind: &'static Kind<S, O>,
    scratch: Scratch,
    name: &'static str,
    plan: Plan,
    /// The options.
    pub options: O,
}

impl<S, O: Clone> Place<S, O> {
    /// Returns a place on tmpfs with small regions, to make a store grow.
    pub fn new(kind: &'static Kind<S, O>, name: &'static str, options: O) -> Self {
        let mut place = Self { kind, scratch: Scratch::new(), name, plan: Plan::default(), options };
        place.pool().region_bytes = 16 << 20;
        place
    }

    /// Returns the pool's options.
    pub fn pool(&mut self) -> &mut PoolOptions {
        (self.kind.pool)(&mut self.options)
    }

    /// Returns the place with every flush and fence executed.
    pub fn dax(mut self) -> Self {
        self.pool().durability = Durability::Power;
        self.pool().emulate_dax = true;
        self
    }

    /// Returns the place on ordinary files below this directory.
    pub fn on_file(self, base: &str) -> Self {
        Self { scratch: Scratch::within(Path::new(base)), ..self }
    }

    /// Returns the place with a shorter run, for modes that differ little.
    pub fn short(self) -> Self {
        let plan = Plan { keys: 600, thread_ops: 600, model_cases: 16, value_max: 4 << 20, ..Plan::default() };
        Self { plan, ..self }
    }

    /// Returns the place at power durability with a small run, for media where each write waits for
    /// a device.
    pub fn power(mut self) -> Self {
        self.pool().durability = Durability::Power;
        Self { plan: Plan::small(), ..self }
    }

    /// Returns the place at durability `interval`, for engines that support it.
    pub fn interval(mut self, window: std::time::Duration) -> Self {
        self.pool().durability = Durability::Interval(window);
        Self { plan: Plan::small(), ..self }
    }

    /// Returns the place with changed options.
    pub fn with(mut self, change: impl FnOnce(&mut O)) -> Self {
        change(&mut self.options);
        self
    }

    fn read_pool(&self) -> PoolOptions {
        (self.kind.pool)(&mut self.options.clone()).clone()
    }
}

impl<S: Store, O: Clone + Send + Sync> Harness for Place<S, O> {
    type S = S;

    fn name(&self) -> String {
        format!("{}, {}", self.kind.engine, self.name)
    }

    fn durability(&self) -> Durability {
        self.read_pool().durability
    }

    fn survives_power(&self) -> bool {
        self.durability() != Durability::Process && !self.read_pool().emulate_dax
    }

    fn plan(&self) -> Plan {
        self.plan
    }

    fn create(&self, capacity: u64) -> Result<S> {
        let mut options = self.options.clone();
        (self.kind.pool)(&mut options).capacity = capacity;
        (self.kind.create)(&self.scratch.store(), &options)
    }

    fn open(&self) -> Result<S> {
        (self.kind.open)(&self.scratch.store(), &self.options)
    }

    fn clear(&self) {
        match std::fs::remove_dir_all(self.scratch.store()) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => panic!("remove the store: {error}"),
            _ => {}
        }
    }

    fn files(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.scratch.store()).expect("list the store");
        let names =
            entries.map(|entry| entry.expect("list the store").file_name().into_string().expect("a plain name"));
        let mut names: Vec<_> = names.filter(|name| name.starts_with("pool.") || name.starts_with("values.")).collect();
        names.sort();
        names
    }

    fn alter(&self, file: &str, change: &mut dyn FnMut(&mut Vec<u8>)) {
        let path = self.scratch.store().join(file);
        let mut bytes = std::fs::read(&path).expect("read a file of the store");
        change(&mut bytes);
        std::fs::write(&path, bytes).expect("write a file of the store");
    }
}

/// Returns the number of fences that `work` executes.
pub fn fences<S: Store>(store: &S, work: impl FnOnce(&S)) -> u64 {
    let before = store.stats().fences;
    work(store);
    store.stats().fences - before
}

/// Puts records of the size class of the ordering-point tests: the tests need no new slab.
///
/// # Panics
/// If a put fails.
pub fn warm(store: &impl Store) {
    for key in 0..4u8 {
        store.put(&[b'w', key], &[key; 100]).expect("put");
    }
}

/// Checks that a put has two ordering points and a delete one.
///
/// # Panics
/// If not.
pub fn check_ordering_points<S: Store>(store: &S) {
    assert_eq!(fences(store, |store| store.put(b"kk", &[1; 100]).expect("put")), 2, "put of a new key");
    assert_eq!(fences(store, |store| store.put(b"kk", &[2; 100]).expect("put")), 2, "put of a present key");
    assert_eq!(
        fences(store, |store| assert!(store.update(b"kk", &[3; 100], Lifetime::Forever).expect("update"))),
        2,
        "update"
    );
    assert_eq!(fences(store, |store| assert!(store.delete(b"kk").expect("delete"))), 1, "delete");
    assert_eq!(
        fences(store, |store| assert!(store.insert(b"kk", &[4; 100], Lifetime::Forever).expect("insert"))),
        2,
        "insert"
    );
}

/// Checks that operations without effect on a warmed store persist nothing.
///
/// # Panics
/// If one does.
pub fn check_nothing_persisted<S: Store>(store: &S) {
    let nothing = fences(store, |store| {
        assert!(store.get(b"absent").expect("get").is_none());
        assert!(!store.delete(b"absent").expect("delete"));
        assert!(!store.update(b"absent", b"v", Lifetime::Forever).expect("update"));
        assert!(!store.insert(b"w\0", b"v", Lifetime::Forever).expect("insert"));
        assert!(store.get(b"w\0").expect("get").is_some());
    });
    assert_eq!(nothing, 0);
}

/// Checks that no flush and no fence is executed at process durability.
///
/// # Panics
/// If one is.
pub fn check_no_flush_at_process(store: &impl Store) {
    let before = store.stats();
    for key in 0..1000u32 {
        store.put(&key.to_le_bytes(), &[7; 100]).expect("put");
    }
    for key in 0..1000u32 {
        assert!(store.delete(&key.to_le_bytes()).expect("delete"));
    }
    let after = store.stats();
    assert_eq!((after.flushes - before.flushes, after.fences - before.fences), (0, 0));
    assert!(after.bytes_written > before.bytes_written);
}

/// Checks that a store with one partition is verified in pieces, each under its own guard: guards
/// must be released when a piece is reported, or `synchronize` would not return. Closes the store.
///
/// # Panics
/// If not.
pub fn check_verification_in_pieces<E: StoreEngine>(store: &OpenStore<E>) {
    const KEYS: u64 = 40_000;
    const VALUE_BYTES: u64 = 200;
    (0..KEYS).for_each(|key| store.put(&key.to_le_bytes(), &[7; VALUE_BYTES as usize]).expect("put"));
    let inner = store.inner();
    let (mut pieces, mut whole) = (0, VerifyReport::default());
    let is_whole = inner.verify_pieces(&mut |report| {
        inner.pool.epochs().synchronize();
        assert!(report.bytes < PIECE_BYTES + PIECE_BYTES / 4, "{} bytes", report.bytes);
        pieces += 1;
        whole.add(report);
        true
    });
    assert!(is_whole && whole.is_clean());
    assert_eq!(whole.records, KEYS);
    assert!(pieces >= KEYS * VALUE_BYTES / PIECE_BYTES, "{pieces} pieces");
    let mut seen = 0;
    let is_whole = inner.verify_pieces(&mut |_| {
        seen += 1;
        seen < 2
    });
    assert!(!is_whole && seen == 2);
    store.close().expect("close");
    assert!(!inner.verify_pieces(&mut |_| true));
}

/// Lets a scrub run until a pass has ended, and returns the number of its findings. `begin` ends
/// the pause before a pass.
///
/// # Panics
/// If no pass ends within [`HANG_TIMEOUT`].
pub fn wait_for_scrub(store: &dyn Store, begin: impl Fn()) -> u64 {
    let count = |name| store.stats().engine_counters[name];
    let (before, deadline) = (count("scrub_passes"), Instant::now() + HANG_TIMEOUT);
    while count("scrub_passes") == before {
        assert!(Instant::now() < deadline, "no pass of the scrub ended");
        begin();
        std::thread::sleep(Duration::from_millis(2));
    }
    count("scrub_findings")
}

/// Returns pair number `index` of the scrub tests.
fn scrub_pair(index: u64) -> (Vec<u8>, Vec<u8>) {
    (format!("{index:08}").into_bytes(), format!("value {index} {}", "v".repeat(90)).into_bytes())
}

/// Checks that a scrub finds and reports damage of a record that is never read. `options` gets the
/// pool's options and a rate of the scrub.
///
/// # Panics
/// If not.
pub fn check_scrub_finds_damage<E: StoreEngine>(
    kind: &Kind<OpenStore<E>, E::Options>,
    options: fn(PoolOptions, u64) -> E::Options,
) {
    let scratch = Scratch::new();
    let told = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&told);
    let events: EventSink = Arc::new(move |event| {
        if matches!(event, Event::Corruption { .. }) {
            count.fetch_add(1, Ordering::SeqCst);
        }
    });
    let pool = PoolOptions { events: Some(events), ..scrub_pool() };
    let store = (kind.create)(&scratch.store(), &options(pool, 1 << 20)).expect("created");
    for (key, value) in (0..2000).map(scrub_pair) {
        store.put(&key, &value).expect("put");
    }
    store.settle().expect("settled");
    assert_eq!(wait_for_scrub(&store, || store.scrub_now()), 0, "nothing is damaged");
    flip_bit_of_each(&scratch.store().join("pool.0000"), b"value 1234 ");
    // A pass may have begun before the damage.
    wait_for_scrub(&store, || store.scrub_now());
    assert!(wait_for_scrub(&store, || store.scrub_now()) > 0 && told.load(Ordering::SeqCst) > 0);
    assert!(matches!(store.get(&scrub_pair(1234).0), Err(Error::Corrupt { .. })));
    let (key, value) = scrub_pair(77);
    assert_eq!(store.get(&key).expect("get"), Some(value));
}

/// Checks that neither a close nor a drop waits for a pass of the scrub. At the lowest rate a pass
/// takes longer than any test. `options` as in [`check_scrub_finds_damage`].
///
/// # Panics
/// If one does.
pub fn check_close_ends_scrub<E: StoreEngine>(
    kind: &Kind<OpenStore<E>, E::Options>,
    options: fn(PoolOptions, u64) -> E::Options,
) {
    let scratch = Scratch::new();
    let store = (kind.create)(&scratch.store(), &options(scrub_pool(), 1)).expect("created");
    let large = vec![7; 1 << 20];
    (0..40).for_each(|index| store.put(&scrub_pair(index).0, &large).expect("put"));
    store.scrub_now();
    store.close().expect("closed");
    drop(store);
    let store = (kind.open)(&scratch.store(), &options(scrub_pool(), 1)).expect("opened");
    store.scrub_now();
    drop(store);
    let store = (kind.open)(&scratch.store(), &options(scrub_pool(), 0)).expect("opened");
    assert_eq!(store.get(&scrub_pair(3).0).expect("get"), Some(large));
    store.close().expect("closed");
}

fn scrub_pool() -> PoolOptions {
    PoolOptions { capacity: 256 << 20, region_bytes: 64 << 20, ..PoolOptions::default() }
}

/// Flips a bit of each copy of `sought` in a file, without the knowledge of the store that has it
/// open.
///
/// # Panics
/// If there is no copy, or the file cannot be changed.
pub fn flip_bit_of_each(path: &Path, sought: &[u8]) {
    let bytes = std::fs::read(path).expect("the file's bytes");
    let file = OpenOptions::new().write(true).open(path).expect("the file");
    let copies = bytes.windows(sought.len()).enumerate().filter(|(_, window)| *window == sought);
    let flipped = copies.map(|(at, _)| file.write_all_at(&[bytes[at] ^ 1], at as u64).expect("written"));
    assert!(flipped.count() > 0, "the bytes are not there");
}
