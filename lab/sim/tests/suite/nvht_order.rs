//! Orders in NVHT that matter only with concurrency.

use std::collections::HashMap;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lodestore_contract::{Batch, BatchOp, Error, Store};
use lodestore_media::sim::{Event, LineModel, Rng, SimImage, SimSpec, Watch};
use lodestore_media::{Pool, PoolOptions};
use lodestore_nvht::{ENGINE, FORMAT, HashKind, Nvht, NvhtOptions};
use lodestore_sim::shape::simulated_pool;

/// Seed of the hash.
const SEED: u64 = 7;
/// The time limit of another thread's wait for a stripe of the batch.
const PATIENCE: Duration = Duration::from_millis(200);
/// Images of the crash.
const IMAGES: usize = 60;

fn options() -> NvhtOptions {
    let pool = PoolOptions { emulate_dax: true, ..simulated_pool(1 << 20, 512) };
    NvhtOptions {
        pool,
        partitions: 1,
        initial_capacity: 7,
        load_percent: 95,
        probe_length: 14,
        hash: HashKind::Xxh3,
        hash_seed: Some(SEED),
        recovery_threads: 0,
        sweep_ms: 0,
        ..NvhtOptions::default()
    }
}

fn key(kind: &str, index: u64) -> Vec<u8> {
    format!("{kind} {index:02}").into_bytes()
}

/// Puts keys of other stripes from other threads, each until it is acknowledged or waits for the
/// batch. Returns the acknowledged keys.
fn put_beside(store: &Arc<Nvht>) -> Vec<u64> {
    let mut answered = Vec::new();
    for index in 0..6 {
        let (tell, told) = channel();
        let store = Arc::clone(store);
        std::thread::spawn(move || {
            let done = store.put(&key("beside", index), b"a value beside the batch");
            // The receiver is gone if this thread waited too long.
            let _ = tell.send(done.is_ok());
        });
        if told.recv_timeout(PATIENCE) == Ok(true) {
            answered.push(index);
        }
    }
    answered
}

/// Returns the events and acknowledged puts up to the `nth` fence of a batch's log, if it has that
/// many.
fn batch_and_puts_beside(nth: usize) -> Option<(Vec<Event>, Vec<u64>)> {
    let (pool, report) = Pool::create_sim(&SimSpec::default(), ENGINE, FORMAT, options().pool).expect("a pool");
    let store = Arc::new(Nvht::start(Arc::clone(&pool), &report, &options()).expect("a store"));
    for index in 0..5 {
        store.put(&key("old", index), b"to be deleted").expect("put");
    }
    let seen = Arc::new(Mutex::new((0, None)));
    let (watched, recorder_of, own) = (Arc::clone(&seen), Arc::clone(&pool), std::thread::current().id());
    let at_work = Arc::clone(&store);
    let watch = move |site: &'static std::panic::Location<'static>| {
        if !site.file().ends_with(source_path!("crates/media/src/batch_log.rs")) || std::thread::current().id() != own {
            return;
        }
        let mut seen = watched.lock().expect("no panic");
        seen.0 += 1;
        if seen.0 == nth {
            let answered = put_beside(&at_work);
            let events = recorder_of.recorder().expect("a simulation").take().events;
            seen.1 = Some((events, answered));
        }
    };
    pool.recorder().expect("a simulation").watch_fences(Some(Watch(Arc::new(watch))));
    let ops = (0..5).map(|index| BatchOp::Delete { key: key("old", index) }).collect();
    store.write(&Batch { ops }).expect("a batch");
    pool.recorder().expect("a simulation").watch_fences(None);
    seen.lock().expect("no panic").1.take()
}

/// A batch frees slots, and a writer of another stripe uses one and is acknowledged. Then a crash
/// comes before the end of the batch's log, and the next open redoes the batch. The writer lost its
/// key (seen by kill -9 with two threads on a busy machine).
#[test]
fn a_batch_done_again_takes_no_slot_that_another_writer_took_meanwhile() {
    let (mut fences, mut beside) = (0, 0);
    // Two fences for the creation of the log, three for the batch.
    for nth in 1.. {
        let Some((events, answered)) = batch_and_puts_beside(nth) else { break };
        (fences, beside) = (nth, beside + answered.len());
        let mut model = LineModel::new(SimImage::default());
        events.iter().for_each(|event| model.apply(event));
        let set = model.crash_set();
        for choice in set.select(IMAGES, &mut Rng::new(nth as u64)) {
            let image = model.with_image(&set, &choice, Clone::clone);
            let (pool, report) = Pool::open_sim(&image, ENGINE, FORMAT, options().pool).expect("the pool");
            let store = Nvht::start(pool, &report, &options()).expect("the store");
            store.wait_recovered().expect("recovered");
            for index in &answered {
                let there = store.get(&key("beside", *index)).expect("a get");
                assert!(there.is_some(), "fence {nth}: key {index} was answered and is lost");
            }
            let old = (0..5).filter(|index| store.get(&key("old", *index)).expect("a get").is_some()).count();
            assert!(old == 0 || old == 5, "fence {nth}: {old} of the batch's keys are left");
            let report = store.verify(&mut |_| ()).expect("verify");
            assert!(report.is_clean(), "{report:?}");
        }
    }
    assert!(fences == 5 && beside > 0, "{fences} fences, {beside} writers came between");
}

/// Returns two keys with the same tag and different stripes.
fn keys_of_one_tag() -> (Vec<u8>, Vec<u8>) {
    let hash = |key: &[u8]| xxhash_rust::xxh3::xxh3_64_with_seed(key, SEED);
    let mut seen = HashMap::new();
    for key in (0..100_000).map(|index| format!("key number {index:06}").into_bytes()) {
        let stripe = hash(&key) >> 56;
        match seen.insert(hash(&key) & 0x7ff, key.clone()) {
            Some(other) if hash(&other) >> 56 != stripe => return (other, key),
            _ => {}
        }
    }
    panic!("there are 2048 tags")
}

/// Returns a store of two keys after a crash, with an unreadable record of `damaged`.
fn with_a_damaged_record(whole: &[u8], damaged: &[u8]) -> (Arc<Pool>, Arc<Nvht>) {
    let (pool, report) = Pool::create_sim(&SimSpec::default(), ENGINE, FORMAT, options().pool).expect("a pool");
    let store = Nvht::start(Arc::clone(&pool), &report, &options()).expect("a store");
    store.put(damaged, b"to be damaged").expect("put");
    store.put(whole, b"to be replaced").expect("put");
    let mut model = LineModel::new(SimImage::default());
    pool.recorder().expect("a simulation").take().events.iter().for_each(|event| model.apply(event));
    let set = model.crash_set();
    let choice = set.select(1, &mut Rng::new(1)).into_iter().next().expect("an image");
    let mut image = model.with_image(&set, &choice, Clone::clone);
    let at = image.regions[0].windows(damaged.len()).position(|bytes| bytes == damaged).expect("its key");
    // The record's version, before its key.
    image.regions[0][at - 1] ^= 0x80;
    let (pool, report) = Pool::open_sim(&image, ENGINE, FORMAT, options().pool).expect("the pool");
    let store = Nvht::start(Arc::clone(&pool), &report, &options()).expect("the store");
    store.wait_recovered().expect("recovered");
    (pool, Arc::new(store))
}

/// A batch finds a damaged record that has the tag of its key and belongs to another stripe, whose
/// writer replaces it meanwhile.
#[test]
fn a_batch_clears_no_damaged_slot_that_its_own_writer_took_meanwhile() {
    let (ours, theirs) = keys_of_one_tag();
    let (pool, store) = with_a_damaged_record(&ours, &theirs);
    let done = Arc::new(Mutex::new(None));
    let (seen, own, at_work, key) =
        (Arc::clone(&done), std::thread::current().id(), Arc::clone(&store), theirs.clone());
    let watch = move |site: &'static std::panic::Location<'static>| {
        if std::thread::current().id() != own || !site.file().ends_with(source_path!("crates/inplace/src/base.rs")) {
            return;
        }
        let mut seen = seen.lock().expect("no panic");
        if seen.is_none() {
            let (store, key) = (Arc::clone(&at_work), key.clone());
            *seen = Some(std::thread::spawn(move || store.put(&key, b"theirs").is_ok()).join().expect("no panic"));
        }
    };
    pool.recorder().expect("a simulation").watch_fences(Some(Watch(Arc::new(watch))));
    let put = BatchOp::Put { key: ours.clone(), value: b"ours".to_vec(), expiry: None };
    store.write(&Batch { ops: vec![put] }).expect("a batch");
    pool.recorder().expect("a simulation").watch_fences(None);
    assert_eq!(*done.lock().expect("no panic"), Some(true), "the put came in between");
    assert_eq!(store.get(&ours).expect("a get").as_deref(), Some(&b"ours"[..]));
    assert_eq!(store.get(&theirs).expect("a get").as_deref(), Some(&b"theirs"[..]), "answered and lost");
}

#[test]
fn a_count_is_refused_where_a_slot_does_not_name_its_key() {
    let (whole, damaged) = keys_of_one_tag();
    let (_pool, store) = with_a_damaged_record(&whole, &damaged);
    assert!(matches!(store.len(), Err(Error::Corrupt { .. })), "{:?}", store.len());
}
