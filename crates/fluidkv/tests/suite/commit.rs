//! The log that all threads share on ordinary files: group commit, and intervals.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use lodestore_contract::testing::HANG_TIMEOUT;
use lodestore_contract::{
    Batch, BatchOp, Change, Direction, Durability, Error, Lifetime, Result, ScanRange, Snapshot, Store, Swap, Visit,
};
use lodestore_fluidkv::{FluidKv, FluidOptions};
use lodestore_inplace::testing::Scratch;
use lodestore_media::PoolOptions;

/// Maximum wait for a background thread.
const PATIENCE: Duration = HANG_TIMEOUT;

fn file() -> Scratch {
    Scratch::within(env!("CARGO_TARGET_TMPDIR").as_ref())
}

/// Tiny memtables, so that they change under the writers.
fn options(durability: Durability) -> FluidOptions {
    let pool = PoolOptions { capacity: 64 << 20, region_bytes: 16 << 20, durability, ..PoolOptions::default() };
    FluidOptions { pool, memtable_bytes: 64 << 10, segment_bytes: 16 << 10, workers: 2, ..FluidOptions::default() }
}

fn interval(millis: u64) -> Durability {
    Durability::Interval(Duration::from_millis(millis))
}

fn create(scratch: &Scratch, durability: Durability) -> FluidKv {
    FluidKv::create(&scratch.store(), &options(durability)).expect("created")
}

fn reopen(scratch: &Scratch, store: FluidKv) -> FluidKv {
    drop(store);
    FluidKv::open(&scratch.store(), &options(Durability::Process)).expect("opened")
}

fn counter(store: &FluidKv, name: &str) -> u64 {
    store.stats().engine_counters[name]
}

fn number(value: Option<&[u8]>) -> u64 {
    value.and_then(|value| value.try_into().ok()).map_or(0, u64::from_le_bytes)
}

#[test]
fn writers_to_a_file_share_their_syncs() {
    const THREADS: u64 = 8;
    let scratch = file();
    let store = create(&scratch, Durability::Power);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let store = &store;
            scope.spawn(move || {
                for index in 0..40 {
                    let key = format!("{thread}/{index}");
                    store.put(key.as_bytes(), &[thread as u8; 30]).expect("put");
                    assert_eq!(store.get(key.as_bytes()).expect("get"), Some(vec![thread as u8; 30]), "{key}");
                }
            });
        }
    });
    let commits = counter(&store, "group_commits");
    assert!((1..THREADS * 40).contains(&commits), "{commits} syncs of the log for {} puts", THREADS * 40);
    let store = reopen(&scratch, store);
    assert_eq!(store.len().expect("len"), THREADS * 40);
}

#[test]
fn writes_that_read_first_see_writes_that_wait_for_a_sync() {
    let scratch = file();
    let store = create(&scratch, Durability::Power);
    std::thread::scope(|scope| {
        let store = &store;
        for thread in 0..4u64 {
            scope.spawn(move || {
                for index in 0..30u64 {
                    // Half of the threads use `update_with`, the others swaps; and writes without
                    // reads to the same key with another meaning.
                    if thread % 2 == 0 {
                        store
                            .update_with(b"count", &mut |value, _| {
                                Change::Put((number(value) + 1).to_le_bytes().to_vec(), Lifetime::Forever)
                            })
                            .expect("updated");
                    } else {
                        let mut seen = store.get(b"count").expect("get");
                        while let Swap::Differs(now) = store
                            .compare_and_swap(
                                b"count",
                                seen.as_deref(),
                                Some(&(number(seen.as_deref()) + 1).to_le_bytes()),
                                Lifetime::Forever,
                            )
                            .expect("swap")
                        {
                            seen = now;
                        }
                    }
                    store.put(b"blind", &index.to_le_bytes()).expect("put");
                    let inserted =
                        store.insert(format!("{thread}/{index}").as_bytes(), b"x", Lifetime::Forever).expect("insert");
                    assert!(
                        inserted && !store.insert(b"blind", b"x", Lifetime::Forever).expect("insert"),
                        "{thread}/{index}"
                    );
                }
            });
        }
    });
    assert_eq!(number(store.get(b"count").expect("get").as_deref()), 120);
    let store = reopen(&scratch, store);
    assert_eq!(number(store.get(b"count").expect("get").as_deref()), 120);
    assert_eq!(store.get(b"blind").expect("get"), Some(29u64.to_le_bytes().to_vec()));
}

fn pairs(snapshot: &dyn Snapshot, direction: Direction) -> Vec<(Vec<u8>, Vec<u8>)> {
    let range = ScanRange { direction, ..ScanRange::all() };
    let pairs = snapshot.scan(&range).expect("scan").map(|entry| entry.map(lodestore_contract::Entry::into_pair));
    pairs.collect::<Result<_>>().expect("read")
}

/// Batches set all keys to one value: a snapshot shows them equal, twice the same, and no older
/// than earlier reads.
#[test]
fn a_snapshot_shows_durable_writes_and_does_not_change() {
    for durability in [Durability::Power, interval(5)] {
        let scratch = file();
        let store = create(&scratch, durability);
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (store, done) = (&store, &done);
            let writers: Vec<_> = (0..3u64)
                .map(|thread| {
                    scope.spawn(move || {
                        for index in 0..40u64 {
                            let value = (index * 3 + thread).to_le_bytes().to_vec();
                            let put = |key: u8| BatchOp::Put { key: vec![key], value: value.clone(), expiry: None };
                            store.write(&Batch { ops: (0..6).map(put).collect() }).expect("written");
                        }
                    })
                })
                .collect();
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    let before = store.get(&[0]).expect("get");
                    let snapshot = store.snapshot().expect("snapshot");
                    let seen = pairs(&*snapshot, Direction::Forward);
                    assert!(seen.windows(2).all(|two| two[0].1 == two[1].1), "a batch by half: {seen:?}");
                    assert!(before.is_none() || seen.len() == 6, "{before:?} was read, and the snapshot has {seen:?}");
                    std::thread::yield_now();
                    let mut again = pairs(&*snapshot, Direction::Backward);
                    again.reverse();
                    assert_eq!(again, seen, "it changed");
                }
            });
            let ended: Vec<_> = writers.into_iter().map(|writer| writer.join().is_ok()).collect();
            done.store(true, Ordering::Relaxed);
            assert!(ended.into_iter().all(|well| well), "a writer failed");
        });
        assert!(store.verify(&mut |_| ()).expect("verify").is_clean());
    }
}

#[test]
fn an_interval_is_synced_on_time_and_a_sync_call_at_once() {
    let scratch = file();
    let store = create(&scratch, interval(20));
    store.put(b"a", b"1").expect("put");
    let began = Instant::now();
    while counter(&store, "group_commits") == 0 {
        assert!(began.elapsed() < PATIENCE, "nobody syncs");
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(store);

    let scratch = file();
    let store = create(&scratch, interval(3_600_000));
    for index in 0..100u64 {
        store.put(&index.to_le_bytes(), b"value").expect("put");
    }
    assert_eq!(counter(&store, "group_commits"), 0, "no write waits for a sync");
    store.sync().expect("synced");
    assert_eq!(counter(&store, "group_commits"), 1);
    store.sync().expect("nothing to sync");
    assert_eq!(counter(&store, "group_commits"), 1);
    store.put(b"last", b"one").expect("put");
    store.close().expect("closed at once, however long the window");
    let store = reopen(&scratch, store);
    assert_eq!(store.stats().durability, interval(3_600_000), "the store keeps its level");
    let mut keys = 0;
    store
        .for_each(&mut |_, _| {
            keys += 1;
            Visit::More
        })
        .expect("walked");
    assert_eq!(keys, 101);
}

#[test]
fn an_interval_is_refused_like_power_and_acts_as_power_if_lines_are_flushed() {
    let scratch = Scratch::new();
    if lodestore_media::probe(std::path::Path::new("/dev/shm")).is_ok_and(|found| found.file_system == "tmpfs") {
        let refused = FluidKv::create(&scratch.store(), &options(interval(10))).err();
        assert!(matches!(refused, Some(Error::DurabilityRefused { .. })), "{refused:?}");
    }
    let mut dax = options(interval(3_600_000));
    dax.pool.emulate_dax = true;
    let store = FluidKv::create(&scratch.store(), &dax).expect("created");
    let before = store.stats().fences;
    for index in 0..50u64 {
        store.put(&index.to_le_bytes(), b"value").expect("put");
    }
    assert!(store.stats().fences >= before + 50, "each is durable when it returns");
    assert_eq!(counter(&store, "group_commits"), 0);
}
