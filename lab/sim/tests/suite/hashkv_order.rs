//! Orders in HashKV that matter only with concurrency: writers or snapshot holders during a
//! collection, and the remains of a process that never synced.

use std::panic::Location;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lodestore_contract::{Error, Result, ScanRange, Store};
use lodestore_fluidkv::planted::REPLACED_BLINDLY;
use lodestore_hashkv::planted::HOLDS_IGNORED;
use lodestore_hashkv::{ENGINE, FORMAT, HashKv, Mode};
use lodestore_media::sim::{LineModel, Rng, SimImage, SimSpec, VALUES, Watch, What};
use lodestore_media::{PlantedFault, Pool};
use lodestore_sim::faults::hashkv::FILE_NOT_SETTLED;
use lodestore_sim::hashkv::options;
use lodestore_sim::shape::Shape;

/// Keys that stay, and keys that are overwritten.
const KEYS: [u8; 2] = [9, 3];
/// The delay of a thread that waits for no other.
const LATER: Duration = Duration::from_millis(100);

struct Simulated {
    pool: Arc<Pool>,
    store: Arc<HashKv>,
}

fn create(spec: &SimSpec) -> Simulated {
    create_with(spec, 0)
}

fn create_with(spec: &SimSpec, workers: usize) -> Simulated {
    let mut options = options(&Shape::default());
    options.index.workers = workers;
    if workers > 0 {
        // The background thread has nothing to collect there before the flushes have.
        options.mode = Mode::Vlog;
    }
    let (pool, report) = Pool::create_sim(spec, ENGINE, FORMAT, options.pool()).expect("a pool");
    let store = HashKv::start(Arc::clone(&pool), &report, &options).expect("a store");
    Simulated { pool, store: Arc::new(store) }
}

fn open(image: &SimImage) -> Result<Simulated> {
    let options = options(&Shape::default());
    let (pool, report) = Pool::open_sim(image, ENGINE, FORMAT, options.pool())?;
    let store = HashKv::start(Arc::clone(&pool), &report, &options)?;
    Ok(Simulated { pool, store: Arc::new(store) })
}

fn key(index: u8) -> Vec<u8> {
    vec![b'k', index]
}

fn large(mark: u8) -> Vec<u8> {
    vec![mark; 300]
}

/// Callers of `Values::append`, in which the recorder sees its sync.
const APPENDERS: [&str; 3] = [
    source_path!("crates/hashkv/src/gc.rs"),
    source_path!("crates/hashkv/src/late_separation.rs"),
    source_path!("crates/hashkv/src/separator.rs"),
];

impl Simulated {
    fn counter(&self, name: &str) -> u64 {
        self.store.stats().engine_counters[name]
    }

    fn put_stable(&self, mark: u8) {
        for index in 0..KEYS[0] {
            self.store.put(&key(index), &large(mark)).expect("put");
        }
    }

    /// Overwrites the other keys, and flushes.
    fn overwrite(&self, mark: u8) {
        for index in KEYS[0]..KEYS[0] + KEYS[1] {
            self.store.put(&key(index), &large(mark)).expect("put");
        }
        self.store.settle().expect("settle");
    }

    /// Repeats [`Self::overwrite`] until `done`.
    fn work_until(&self, done: impl Fn() -> bool) {
        for mark in 0..100 {
            self.overwrite(mark);
            if done() {
                return;
            }
        }
        panic!("it does not come to that: {:?}", self.store.stats().engine_counters);
    }

    /// Lets another thread run `work` once, in the middle of the next sync of a flush's copies.
    /// Returns whether it ran.
    fn while_copies_are_synced(&self, work: impl Fn(Arc<HashKv>) + Send + Sync + 'static) -> Arc<AtomicBool> {
        let is_done = Arc::new(AtomicBool::new(false));
        let counters = |store: &HashKv| {
            let counted = store.stats().engine_counters;
            (counted["values_scanned_bytes"], counted["values_collections"])
        };
        let (store, done) = (Arc::downgrade(&self.store), Arc::clone(&is_done));
        let before = Mutex::new(counters(&self.store));
        let watch = move |site: &'static Location<'static>| {
            let of_collector = std::thread::current().name() == Some("lodestore-hash-collect");
            if done.load(Ordering::Relaxed) || of_collector || !APPENDERS.iter().any(|file| site.file().ends_with(file))
            {
                return;
            }
            let Some(store) = store.upgrade() else { return };
            // Since the last sync a collection has read its victim, which a flush does not, and
            // none has ended.
            let now = counters(&store);
            let then = std::mem::replace(&mut *before.lock().expect("no panic"), now);
            if now.0 > then.0 && now.1 == then.1 && !done.swap(true, Ordering::Relaxed) {
                std::thread::scope(|scope| scope.spawn(|| work(store)).join().expect("it ends"));
            }
        };
        self.pool.recorder().expect("a simulation").watch_fences(Some(Watch(Arc::new(watch))));
        is_done
    }
}

/// A writer makes values small while they are moved. Returns whether they stay small.
fn what_is_written_while_its_value_is_moved_stays(mutant: Option<PlantedFault>) -> bool {
    let simulated = create(&SimSpec { record: false, mutant, ..SimSpec::default() });
    (1..20u8).all(|round| {
        simulated.put_stable(round);
        simulated.store.settle().expect("settle");
        let is_done = simulated.while_copies_are_synced(move |store| {
            (0..KEYS[0]).for_each(|index| store.put(&key(index), &[round; 4]).expect("put"));
        });
        simulated.work_until(|| is_done.load(Ordering::Relaxed));
        (0..KEYS[0]).all(|index| simulated.store.get(&key(index)).expect("get") == Some(vec![round; 4]))
    })
}

#[test]
fn a_collection_does_not_undo_what_is_written_meanwhile() {
    assert!(what_is_written_while_its_value_is_moved_stays(None));
    assert!(!what_is_written_while_its_value_is_moved_stays(Some(REPLACED_BLINDLY)), "the fault is not seen");
}

/// Returns whether a snapshot and a scan from before collections return all contents of that time.
fn what_a_snapshot_showed_stays_readable(mutant: Option<PlantedFault>) -> bool {
    let simulated = create(&SimSpec { record: false, mutant, ..SimSpec::default() });
    (1..20u8).all(|round| {
        simulated.put_stable(round);
        simulated.store.settle().expect("settle");
        let snapshot = simulated.store.snapshot().expect("a snapshot");
        let scan = simulated.store.scan(&ScanRange::all()).expect("a scan");
        simulated.put_stable(100 + round);
        let collected = simulated.counter("values_collections");
        (0..20).for_each(|mark| simulated.overwrite(mark));
        assert!(simulated.counter("values_collections") > collected, "nothing was collected");
        let is_old = |index: u8, value: &[u8]| index >= KEYS[0] || value == large(round);
        let got = (0..KEYS[0]).all(|index| snapshot.get(&key(index)).is_ok_and(|value| value == Some(large(round))));
        let scanned: Option<Vec<_>> = scan.map(Result::ok).collect();
        let scanned = scanned.is_some_and(|pairs| {
            pairs.len() >= usize::from(KEYS[0]) && pairs.iter().all(|pair| is_old(pair.key()[1], pair.value()))
        });
        got && scanned
    })
}

#[test]
fn no_segment_is_written_again_that_a_snapshot_or_a_scan_may_come_to() {
    assert!(what_a_snapshot_showed_stays_readable(None));
    assert!(!what_a_snapshot_showed_stays_readable(Some(HOLDS_IGNORED)), "the fault is not seen");
}

/// Returns whether a snapshot returns its contents after all keys were deleted and segments were
/// freed.
fn what_a_snapshot_showed_keeps_its_space(mutant: Option<PlantedFault>) -> bool {
    let simulated = create(&SimSpec { record: false, mutant, ..SimSpec::default() });
    let put = |index| simulated.store.put(&key(index), &large(index)).expect("put");
    (0..120).for_each(put);
    simulated.store.settle().expect("settle");
    let snapshot = simulated.store.snapshot().expect("a snapshot");
    (0..120).for_each(|index| assert!(simulated.store.delete(&key(index)).expect("delete")));
    let holes = |simulated: &Simulated| {
        (0..3).for_each(|_| simulated.store.settle().expect("settle"));
        simulated.counter("values_segments_holes")
    };
    let before = holes(&simulated);
    let holds = (0..120).all(|index| snapshot.get(&key(index)).is_ok_and(|value| value == Some(large(index))));
    drop(snapshot);
    assert!(holes(&simulated) > if holds { before } else { 0 }, "nothing is given back");
    holds
}

#[test]
fn no_segment_gives_back_its_space_that_a_snapshot_may_come_to() {
    assert!(what_a_snapshot_showed_keeps_its_space(None));
    assert!(!what_a_snapshot_showed_keeps_its_space(Some(HOLDS_IGNORED)), "the fault is not seen");
}

/// A store without syncs, stopped cleanly, is raised to a durability that needs them: the raise
/// syncs the pool's regions, and the open syncs the values file. Returns whether everything is
/// present after a following power failure.
fn what_was_written_without_syncs_is_durable_behind_an_open(mutant: Option<PlantedFault>) -> bool {
    let spec = SimSpec { mutant, ..SimSpec::default() };
    let simulated = create(&SimSpec { stores_persist: true, ..spec.clone() });
    simulated.put_stable(1);
    simulated.store.close().expect("close");
    assert!(simulated.counter("values_separated") >= u64::from(KEYS[0]));
    let events = |simulated: &Simulated| simulated.pool.recorder().expect("a simulation").take().events;
    let written = events(&simulated);
    drop(simulated);
    let mut synced = LineModel::new(SimImage { spec: spec.clone(), ..SimImage::default() });
    written.iter().for_each(|event| synced.apply(event));
    let of_file = |what: What| matches!(what, What::Word { region: VALUES, .. } | What::Size { .. });
    let mut model = LineModel::new(SimImage { values: Vec::new(), spec, ..synced.newest() });
    written.iter().filter(|event| of_file(event.what)).for_each(|event| model.apply(event));
    let opened = open(&model.newest()).expect("open");
    events(&opened).iter().for_each(|event| model.apply(event));
    drop(opened);
    let set = model.crash_set();
    set.select(200, &mut Rng::new(1)).iter().all(|choice| {
        let again = open(&model.with_image(&set, choice, Clone::clone));
        let holds = |store: &HashKv, index| store.get(&key(index)).is_ok_and(|value| value == Some(large(1)));
        again.is_ok_and(|again| (0..KEYS[0]).all(|index| holds(&again.store, index)))
    })
}

#[test]
fn an_open_makes_durable_what_was_written_to_the_file_without_syncs() {
    assert!(what_was_written_without_syncs_is_durable_behind_an_open(None));
    let seen = !what_was_written_without_syncs_is_durable_behind_an_open(Some(FILE_NOT_SETTLED));
    assert!(seen, "the fault is not seen");
}

/// A clean stop syncs at every durability: the pool's header vouches for the values file as well as
/// for the regions.
#[test]
fn a_clean_stop_makes_the_file_of_values_durable_whatever_the_durability() {
    let spec = SimSpec { stores_persist: true, ..SimSpec::default() };
    let simulated = create(&spec);
    simulated.put_stable(1);
    simulated.store.close().expect("close");
    assert!(simulated.counter("values_separated") >= u64::from(KEYS[0]));
    let events = simulated.pool.recorder().expect("a simulation").take().events;
    let last = |is: fn(&What) -> bool| events.iter().rposition(|event| is(&event.what));
    let written = last(|what| matches!(what, What::Word { region: VALUES, .. } | What::Size { .. }));
    let synced = last(|what| matches!(what, What::Sync { .. }));
    assert!(written.is_some() && synced > written, "the file was written at {written:?} and synced at {synced:?}");
    let named = last(|what| matches!(what, What::Word { region: 0, offset: 0..8192, .. }));
    assert!(named > synced, "the header was written at {named:?}, the file synced at {synced:?}");
}

/// Drops a store in the middle of a flush that collects. Returns whether it is closed when the drop
/// returns.
fn is_closed_behind_its_drop() -> bool {
    let simulated = create_with(&SimSpec { record: false, ..SimSpec::default() }, 1);
    let (collects, is_collecting) = channel();
    let (dropped, is_dropped) = channel::<()>();
    let is_dropped = Mutex::new(is_dropped);
    simulated.while_copies_are_synced(move |store| {
        drop(store);
        collects.send(()).expect("somebody waits");
        let _ = is_dropped.lock().expect("no panic").recv_timeout(LATER);
    });
    for turn in 0..10_000 {
        let index = KEYS[0] + (turn % 40) as u8;
        simulated.store.put(&key(index), &large(turn as u8)).expect("put");
        if is_collecting.try_recv().is_ok() {
            let Simulated { pool, store } = simulated;
            // Another thread that synced may still have a reference.
            while Arc::strong_count(&store) > 1 {
                std::thread::yield_now();
            }
            drop(store);
            let _ = dropped.send(());
            return matches!(pool.check(), Err(Error::Closed));
        }
    }
    panic!("nothing is collected");
}

/// Such a flush has a handle of the LSM, which kept the store open and its directory locked after
/// the drop of the store's last handle.
#[test]
fn a_store_that_is_dropped_while_a_flush_collects_is_closed_when_the_drop_returns() {
    // The collector's thread, which every drop waits for, may be first.
    assert!((0..8).all(|_| is_closed_behind_its_drop()));
}
