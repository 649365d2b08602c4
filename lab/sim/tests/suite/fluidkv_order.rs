//! Orders in FluidKV that matter only with concurrency: scripts that act in the middle of a sync.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lodestore_contract::testing::HANG_TIMEOUT;
use lodestore_contract::{Direction, Durability, Lifetime, ScanRange, Store, Visit};
use lodestore_fluidkv::{ENGINE, FORMAT, FluidKv, FluidOptions};
use lodestore_media::sim::{Event, LINE, LineModel, Rng, SECTOR, SimImage, SimSpec, Watch, What};
use lodestore_media::{Pool, PoolOptions};
use lodestore_sim::shape::simulated_pool;

/// Longest wait for another thread.
const PATIENCE: Duration = HANG_TIMEOUT;
/// A window that never ends within a test.
const WINDOW: Durability = Durability::Interval(Duration::from_secs(3600));
/// Images per crash point: for few crash points, and for many.
const IMAGES: [usize; 2] = [40, 6];
/// From this number of fences on there are many crash points.
const MANY: usize = 60;
/// Keys whose large values fill two value segments.
const KEYS: u64 = 62;

struct Simulated {
    pool: Arc<Pool>,
    store: Arc<FluidKv>,
}

/// Segments of the value log hold about thirty of [`large`], and a memtable all writes of a test.
fn options(durability: Durability) -> FluidOptions {
    let pool = PoolOptions { durability, ..simulated_pool(1 << 20, 512) };
    FluidOptions {
        pool,
        workers: 0,
        value_threshold: 32,
        value_segment_bytes: 4 << 10,
        value_garbage: 20,
        block_bytes: 512,
        ..FluidOptions::default()
    }
}

fn create(grain: u32, durability: Durability) -> Simulated {
    create_with(grain, &options(durability))
}

fn create_with(grain: u32, options: &FluidOptions) -> Simulated {
    let spec = SimSpec { grain, ..SimSpec::default() };
    let (pool, report) = Pool::create_sim(&spec, ENGINE, FORMAT, options.pool.clone()).expect("a pool");
    let store = FluidKv::start(Arc::clone(&pool), &report, options).expect("a store");
    Simulated { pool, store: Arc::new(store) }
}

impl Simulated {
    /// Runs `work` in the middle of the next sync made by a source file of this path.
    fn in_a_sync_of(&self, file: &'static str, work: impl FnOnce() + Send + 'static) {
        let work = Mutex::new(Some(work));
        let watch = move |site: &'static std::panic::Location<'static>| {
            let mine = site.file().ends_with(file).then(|| work.lock().expect("no panic").take()).flatten();
            if let Some(work) = mine {
                work();
            }
        };
        self.pool.recorder().expect("a simulation").watch_fences(Some(Watch(Arc::new(watch))));
    }

    fn events(&self) -> Vec<Event> {
        self.pool.recorder().expect("a simulation").take().events
    }

    fn counter(&self, name: &str) -> u64 {
        self.store.stats().engine_counters[name]
    }
}

/// Checks the crash images before each fence of `events`, and after all of them; `before` has the
/// earlier events.
fn each_crash(grain: u32, durability: Durability, before: &[Event], events: &[Event], look: impl Fn(&FluidKv)) {
    let spec = SimSpec { grain, ..SimSpec::default() };
    let mut model = LineModel::new(SimImage { spec, ..SimImage::default() });
    let mut rng = Rng::new(1);
    let fences = events.iter().filter(|event| matches!(event.what, What::Fence { .. })).count();
    let images = IMAGES[usize::from(fences > MANY)];
    before.iter().for_each(|event| model.apply(event));
    let mut crash = |model: &mut LineModel| {
        let set = model.crash_set();
        for choice in set.select(images, &mut rng) {
            let image = model.with_image(&set, &choice, Clone::clone);
            let options = options(durability);
            let (pool, report) = Pool::open_sim(&image, ENGINE, FORMAT, options.pool.clone()).expect("the pool");
            let store = FluidKv::start(pool, &report, &options).expect("the store");
            look(&store);
            let report = store.verify(&mut |_| ()).expect("verify");
            assert!(report.is_clean(), "{report:?}");
        }
    };
    for event in events {
        if matches!(event.what, What::Fence { .. }) {
            crash(&mut model);
        }
        model.apply(event);
    }
    crash(&mut model);
}

fn key(index: u64) -> Vec<u8> {
    format!("key {index:03}").into_bytes()
}

/// Returns a value for the value log.
fn large(index: u64) -> Vec<u8> {
    vec![index as u8; 100]
}

/// Returns a value that is stored in its entry.
fn small(index: u64) -> Vec<u8> {
    vec![index as u8; 8]
}

/// Whether a key's large value is overwritten, so that half of each segment is garbage.
fn is_overwritten(index: u64) -> bool {
    index.is_multiple_of(2)
}

/// Returns a store whose value segments are due for GC at its next settle, with the earlier events.
fn with_garbage(grain: u32, durability: Durability) -> (Simulated, Vec<Event>) {
    let simulated = create(grain, durability);
    let store = &simulated.store;
    (0..KEYS).for_each(|index| store.put(&key(index), &large(index)).expect("put"));
    store.settle().expect("settled");
    for index in (0..KEYS).filter(|index| is_overwritten(*index)) {
        store.put(&key(index), &small(index)).expect("put");
    }
    store.sync().expect("synced");
    assert_eq!(simulated.counter("value_collected_segments"), 0);
    let before = simulated.events();
    (simulated, before)
}

/// GC finds its last live values deleted while it copies them, so it moves nothing, and the deletes
/// are not durable yet.
#[test]
fn at_an_interval_no_value_goes_before_the_delete_that_killed_it_is_durable() {
    let (simulated, before) = with_garbage(SECTOR, WINDOW);
    let store = Arc::clone(&simulated.store);
    simulated.in_a_sync_of(source_path!("crates/fluidkv/src/values/writer.rs"), move || {
        let deleter = move || {
            for index in (0..KEYS).filter(|index| !is_overwritten(*index)) {
                assert!(store.delete(&key(index)).expect("delete"));
            }
        };
        std::thread::spawn(deleter).join().expect("deleted");
    });
    simulated.store.settle().expect("settled");
    assert!(simulated.counter("value_collected_segments") > 0, "{:?}", simulated.store.stats().engine_counters);
    assert_eq!(simulated.counter("value_moved_bytes"), 0, "all was dead when its copy was made");
    let events = simulated.events();
    each_crash(SECTOR, WINDOW, &before, &events, |store| {
        for index in 0..KEYS {
            let found = store.get(&key(index)).unwrap_or_else(|error| panic!("key {index}: {error}"));
            let right = match found {
                Some(found) if is_overwritten(index) => found == small(index),
                Some(found) => found == large(index),
                None => !is_overwritten(index),
            };
            assert!(right, "key {index}");
        }
    });
}

#[test]
fn what_a_collection_moves_is_durable_in_its_new_place_before_the_old_one_goes() {
    for (grain, durability) in [(LINE, Durability::Process), (SECTOR, Durability::Process), (SECTOR, WINDOW)] {
        let (simulated, before) = with_garbage(grain, durability);
        simulated.store.settle().expect("settled");
        assert!(simulated.counter("value_moved_bytes") > 0, "{:?}", simulated.store.stats().engine_counters);
        let events = simulated.events();
        each_crash(grain, durability, &before, &events, |store| {
            for index in 0..KEYS {
                let expected = if is_overwritten(index) { small(index) } else { large(index) };
                let found = store.get(&key(index)).unwrap_or_else(|error| panic!("key {index}: {error}"));
                assert!(found == Some(expected), "key {index}, grain {grain}, {durability:?}");
            }
        });
    }
}

/// One settle flushes deletes of a whole key range, compacts its ranges, and joins them.
#[test]
fn a_crash_while_ranges_are_compacted_and_joined_loses_nothing() {
    for grain in [LINE, SECTOR] {
        let small = FluidOptions { range_bytes: 8 << 10, table_bytes: 2 << 10, ..options(Durability::Process) };
        let simulated = create_with(grain, &FluidOptions { value_threshold: 0, ..small });
        let store = &simulated.store;
        (0..300).for_each(|index| store.put(&key(index), &large(index)).expect("put"));
        store.settle().expect("settled");
        assert!(simulated.counter("ranges") > 3, "{:?}", store.stats().engine_counters);
        (6..296).for_each(|index| assert!(store.delete(&key(index)).expect("delete")));
        let before = simulated.events();
        store.settle().expect("settled");
        assert_eq!(simulated.counter("ranges"), 1, "{:?}", store.stats().engine_counters);
        assert!(simulated.counter("range_joins") > 2, "{:?}", store.stats().engine_counters);
        let events = simulated.events();
        each_crash(grain, Durability::Process, &before, &events, |store| {
            for index in (0..300).step_by(3) {
                let expected = (!(6..296).contains(&index)).then(|| large(index));
                assert!(store.get(&key(index)).expect("get") == expected, "key {index}, grain {grain}");
            }
            assert_eq!(store.len().expect("len"), 10);
        });
    }
}

/// Blocks the next sync of the log. The receiver reports that it is blocked, and the sender
/// unblocks it.
fn hold_a_sync(simulated: &Simulated) -> (Receiver<()>, Sender<()>) {
    let ((tell, held), (let_go, wait)) = (channel(), channel());
    simulated.in_a_sync_of(source_path!("crates/fluidkv/src/tree/group_commit.rs"), move || {
        tell.send(()).expect("the test waits for it");
        // A closed channel is fine too: the test has failed.
        let _ = wait.recv();
    });
    (held, let_go)
}

/// A kind of read by its name, with its pairs.
type Read = (&'static str, Vec<(Vec<u8>, Vec<u8>)>);

/// Returns the result of every kind of read over all keys.
fn all_reads(store: &FluidKv) -> Vec<Read> {
    let keys = [b"a".to_vec(), b"b".to_vec()];
    let named: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let one = |key: &Vec<u8>| store.get(key).expect("get").map(|value| (key.clone(), value));
    let mut gets = Vec::new();
    let mut each = |index: usize, value: Option<&[u8]>| {
        gets.extend(value.map(|value| (keys[index].clone(), value.to_vec())));
    };
    store.multi_get(&named, &mut each).expect("gets");
    let mut visited = Vec::new();
    let mut visit = |key: &[u8], value: &[u8]| {
        visited.push((key.to_vec(), value.to_vec()));
        Visit::More
    };
    store.for_each(&mut visit).expect("for_each");
    let snapshot = store.snapshot().expect("snapshot");
    let range = ScanRange { direction: Direction::Forward, ..ScanRange::all() };
    let pairs = |scan: lodestore_contract::Scan| scan.map(|entry| entry.expect("an entry").into_pair()).collect();
    let of_snapshot = |key: &Vec<u8>| snapshot.get(key).expect("get").map(|value| (key.clone(), value));
    vec![
        ("get", keys.iter().filter_map(one).collect()),
        ("multi_get", gets),
        ("for_each", visited),
        ("scan", pairs(store.scan(&range).expect("scan"))),
        ("get of a snapshot", keys.iter().filter_map(of_snapshot).collect()),
        ("scan of a snapshot", pairs(snapshot.scan(&range).expect("scan"))),
    ]
}

/// Runs `work` on its own thread. Returns its result, if it ends within the time limit.
fn patiently<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (tell, told) = channel();
    std::thread::spawn(move || tell.send(work()));
    told.recv_timeout(PATIENCE).ok()
}

#[test]
fn reads_wait_for_no_sync_of_a_group_and_no_writer_is_answered_before_it() {
    let simulated = create(SECTOR, Durability::Process);
    simulated.store.put(b"a", b"old").expect("put");
    let (held, let_go) = hold_a_sync(&simulated);
    let answered: [Arc<AtomicBool>; 2] = Default::default();
    let writer = |number: usize, key: &'static [u8]| {
        let (store, answered) = (Arc::clone(&simulated.store), Arc::clone(&answered[number]));
        std::thread::spawn(move || {
            store.put(key, b"new").expect("put");
            answered.store(true, Ordering::SeqCst);
        })
    };
    let first = writer(0, b"a");
    held.recv_timeout(PATIENCE).expect("the writer of a leads a group");
    let second = writer(1, b"b");
    let store = Arc::clone(&simulated.store);
    let seen = patiently(move || all_reads(&store));
    let early = [0, 1].map(|number| answered[number].load(Ordering::SeqCst));
    // Unblocks the waiting thread in any case.
    let_go.send(()).expect("it waits");
    first.join().expect("written");
    second.join().expect("written");
    let seen = seen.expect("every read returns while the sync goes on");
    for (read, pairs) in seen {
        assert_eq!(pairs, [(b"a".to_vec(), b"old".to_vec())], "{read} shows what is durable");
    }
    assert_eq!(early, [false, false], "answered before the sync");
    let both = [b"a", b"b"].map(|key| (key.to_vec(), b"new".to_vec()));
    all_reads(&simulated.store).into_iter().for_each(|(read, pairs)| assert_eq!(pairs, both, "{read}"));
}

#[test]
fn reads_and_writes_of_an_interval_wait_for_no_sync() {
    let simulated = create(SECTOR, WINDOW);
    simulated.store.put(b"a", b"old").expect("put");
    let (held, let_go) = hold_a_sync(&simulated);
    let store = Arc::clone(&simulated.store);
    let syncing = std::thread::spawn(move || store.sync().expect("synced"));
    held.recv_timeout(PATIENCE).expect("it syncs");
    let store = Arc::clone(&simulated.store);
    let seen = patiently(move || {
        store.put(b"a", b"new").expect("put");
        assert!(store.insert(b"b", b"gone", Lifetime::Forever).expect("insert") && store.delete(b"b").expect("delete"));
        assert!(store.insert(b"b", b"new", Lifetime::Forever).expect("insert"));
        all_reads(&store)
    });
    let_go.send(()).expect("it waits");
    syncing.join().expect("synced");
    let both = [b"a", b"b"].map(|key| (key.to_vec(), b"new".to_vec()));
    let seen = seen.expect("all of it returns while the sync goes on");
    seen.into_iter().for_each(|(read, pairs)| assert_eq!(pairs, both, "{read}"));
}
