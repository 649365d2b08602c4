//! Stores that are nearly full: an operation that fails half way leaves nothing allocated.

use std::sync::Arc;
use std::time::Duration;

use lodestore_contract::{Batch, BatchOp, Error, Event, Expiry, Store};
use lodestore_fluidkv::{ENGINE, FORMAT, FluidKv, FluidOptions};
use lodestore_inplace::testing::Scratch;
use lodestore_media::sim::SimSpec;
use lodestore_media::{ExtentKind, NvPtr, Pool, PoolOptions};

/// The kind of extents that a test takes from the store's space.
const KIND_TAKEN: ExtentKind = ExtentKind(ExtentKind::ENGINE.0 + 40);

fn key(index: u64) -> Vec<u8> {
    format!("{:016x}", index.wrapping_mul(0x9E37_79B9_7F4A_7C15)).into_bytes()
}

fn value(index: u64, version: u64) -> Vec<u8> {
    format!("{index}/{version}/{}", "v".repeat(90)).into_bytes()
}

fn fill(store: &FluidKv, keys: std::ops::Range<u64>, version: u64) {
    keys.for_each(|index| store.put(&key(index), &value(index, version)).expect("put"));
}

#[track_caller]
fn assert_all(store: &FluidKv, keys: std::ops::Range<u64>, version: u64) {
    for index in keys {
        assert_eq!(store.get(&key(index)).expect("get"), Some(value(index, version)), "key {index}");
    }
}

fn counter(store: &FluidKv, name: &str) -> u64 {
    store.stats().engine_counters[name]
}

/// Creates a store and returns it with its pool.
fn created(scratch: &Scratch, options: &FluidOptions) -> (Arc<Pool>, FluidKv) {
    let (pool, report) = Pool::create(&scratch.store(), ENGINE, FORMAT, options.pool.clone()).expect("a pool");
    let store = FluidKv::start(Arc::clone(&pool), &report, options).expect("a store");
    (pool, store)
}

/// Allocates extents of these bytes until none is left, then smaller ones, which are not returned.
fn take_all(pool: &Pool, bytes: u64) -> Vec<NvPtr> {
    let take = |bytes: u64| pool.allocator().alloc_extent(pool, bytes, KIND_TAKEN).ok();
    let taken = std::iter::from_fn(|| take(bytes)).collect();
    let mut less = bytes / 2;
    while less >= u64::from(pool.options().chunk_bytes) {
        std::iter::from_fn(|| take(less)).for_each(drop);
        less /= 2;
    }
    taken
}

fn give(pool: &Pool, extents: impl IntoIterator<Item = NvPtr>) {
    extents.into_iter().for_each(|at| pool.allocator().free_extent(pool, at));
}

fn options(workers: usize) -> FluidOptions {
    FluidOptions {
        pool: PoolOptions { capacity: 32 << 20, region_bytes: 16 << 20, ..PoolOptions::default() },
        memtable_bytes: 512 << 10,
        segment_bytes: 16 << 10,
        table_bytes: 16 << 10,
        range_bytes: 64 << 10,
        workers,
        ..FluidOptions::default()
    }
}

/// Returns a store of several ranges with a memtable that has keys of all of them. `None` if idle
/// workers have flushed the memtable already.
fn half_written(workers: usize) -> Option<HalfWritten> {
    let scratch = Scratch::new();
    let (pool, store) = created(&scratch, &options(workers));
    fill(&store, 0..3000, 1);
    store.settle().expect("settled");
    assert!(counter(&store, "ranges") > 3);
    let flushes = counter(&store, "flushes");
    fill(&store, 0..2500, 2);
    (counter(&store, "flushes") == flushes && counter(&store, "memtables") == 1).then_some((scratch, pool, store))
}

/// Bytes of an extent that a test allocates and frees.
const PIECE: u64 = 32 << 10;

type HalfWritten = (Scratch, Arc<Pool>, FluidKv);

/// Like [`half_written`], with nothing free, and the allocated extents. `None` if a flush still
/// found space.
fn half_written_without_room(workers: usize) -> Option<(HalfWritten, Vec<NvPtr>)> {
    let half = half_written(workers)?;
    let taken = take_all(&half.1, PIECE);
    matches!(half.2.settle(), Err(Error::Full { .. })).then_some((half, taken))
}

#[test]
fn a_flush_that_runs_out_of_space_frees_its_output_and_succeeds_later() {
    for workers in [0, 2] {
        let ((_scratch, pool, store), mut taken) =
            (0..20).find_map(|_| half_written_without_room(workers)).expect("what is in a memtable");
        let (tables, live) = (counter(&store, "tables"), store.stats().space.live);
        let written = store.stats().bytes_written;
        // Space for some tables out of twenty: the first table of a range, or a later one, does not
        // fit. Workers, if any, try as well.
        for room in 1..8 {
            give(&pool, taken.drain(..1));
            let refused = store.settle();
            assert!(matches!(refused, Err(Error::Full { .. })), "{refused:?}, {workers} workers, room for {room}");
            assert_eq!(store.stats().space.live, live - room * PIECE, "{workers} workers, room for {room}");
        }
        assert!(store.stats().bytes_written >= written + (16 << 14), "it came half way");
        assert_eq!(counter(&store, "tables"), tables);
        let mut report = store.verify(&mut |_| ()).expect("verify");
        assert!(report.is_clean(), "{report:?}");
        assert_all(&store, 0..2500, 2);
        give(&pool, taken);
        store.settle().expect("there is room");
        assert_eq!((counter(&store, "memtables"), counter(&store, "log_bytes")), (1, 0));
        report = store.verify(&mut |_| ()).expect("verify");
        assert!(report.is_clean(), "{report:?}");
        assert_all(&store, 0..2500, 2);
        assert_all(&store, 2500..3000, 1);
    }
}

fn short_key(index: u64) -> [u8; 8] {
    index.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes()
}

/// Puts until the store is full. Returns the number of its keys.
fn fill_up(store: &FluidKv, value: &[u8]) -> u64 {
    let full = (0..).find(|index| match store.put(&short_key(*index), value) {
        Ok(()) => false,
        Err(Error::Full { .. }) => true,
        Err(error) => panic!("{error}"),
    });
    full.expect("it fills")
}

fn delete_all(store: &FluidKv, keys: std::ops::Range<u64>, threads: u64) {
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let keys = keys.clone();
            scope.spawn(move || {
                for index in (keys.start + thread..keys.end).step_by(threads as usize) {
                    store.delete(&short_key(index)).unwrap_or_else(|error| panic!("key {index}: {error}"));
                }
            });
        }
    });
}

/// Threads that delete faster than the flush: with all of the reserve in use, no flush would find
/// space, and their logs would never be freed.
#[test]
fn deletes_by_several_threads_free_space_in_a_full_store() {
    // With the last row, logs are so short that their free space is in pieces shorter than a table.
    for (capacity, value, threads, workers) in [(8, 8, 4, 1), (16, 300, 8, 2), (4, 8, 4, 0), (8, 64, 8, 2)] {
        let scratch = Scratch::new();
        let pool = PoolOptions { capacity: capacity << 20, region_bytes: 4 << 20, ..PoolOptions::default() };
        let options = FluidOptions { pool, workers, ..FluidOptions::default() };
        let store = FluidKv::create(&scratch.store(), &options).expect("created");
        let keys = fill_up(&store, &vec![7; value]);
        assert!(keys * (value as u64 + 40) > capacity << 19, "half of it was used: {keys} keys");
        delete_all(&store, 0..keys, threads);
        store.settle().expect("settled");
        assert_eq!(store.len().expect("a count"), 0);
        let report = store.verify(&mut |_| ()).expect("verify");
        assert!(report.is_clean(), "{report:?}");
        let again = fill_up(&store, &vec![7; value]);
        assert!(again > keys / 8 * 7, "{keys} keys at first, {again} behind the deletes");
    }
}

/// A crash while threads delete: the next open finds space for its manifest, and the deletes
/// continue.
#[test]
fn a_full_store_opens_again_wherever_its_deletes_were_cut_short() {
    let scratch = Scratch::new();
    let pool = PoolOptions { capacity: 8 << 20, region_bytes: 4 << 20, ..PoolOptions::default() };
    let options = FluidOptions { pool, workers: 2, ..FluidOptions::default() };
    let mut store = FluidKv::create(&scratch.store(), &options).expect("created");
    let keys = fill_up(&store, &[7; 8]);
    let step = keys / 24;
    for round in 0..24 {
        delete_all(&store, round * step..(round + 1) * step, 4);
        drop(store);
        store = FluidKv::open(&scratch.store(), &options).unwrap_or_else(|error| panic!("round {round}: {error}"));
        assert_eq!(store.len().expect("a count"), keys - (round + 1) * step, "round {round}");
    }
}

/// Opens the store. Returns whether it was left clean, and the store.
fn opened(scratch: &Scratch, options: &FluidOptions) -> (bool, FluidKv) {
    let (send, receive) = std::sync::mpsc::channel();
    let mut options = options.clone();
    options.pool.events = Some(Arc::new(move |event: &Event| {
        if let Event::Opened { clean, .. } = event {
            send.send(*clean).expect("a receiver");
        }
    }));
    let store = FluidKv::open(&scratch.store(), &options).expect("opened");
    (receive.recv().expect("an event"), store)
}

#[test]
fn a_full_store_closes_cleanly_and_loses_nothing() {
    let (scratch, pool, store) = half_written(0).expect("no workers");
    let taken = take_all(&pool, PIECE);
    give(&pool, taken.into_iter().take(2));
    let refused = store.settle();
    assert!(matches!(refused, Err(Error::Full { .. })), "{refused:?}");
    store.close().expect("a full store closes");
    drop((store, pool));
    let (clean, store) = opened(&scratch, &options(0));
    assert!(clean);
    assert_eq!(counter(&store, "memtables"), 2, "one was replayed");
    assert_all(&store, 0..2500, 2);
    assert_all(&store, 2500..3000, 1);
}

/// Logs, tables, manifests and value segments: an open frees all other kinds, such as a reserve.
const KINDS: [u8; 4] = [0, 1, 2, 4];

/// Opens a store with nothing free: the space of its reserve is allocated, too.
fn opened_without_room(scratch: &Scratch, options: &FluidOptions) -> (Arc<Pool>, FluidKv) {
    let (pool, report) = Pool::open(&scratch.store(), ENGINE, FORMAT, options.pool.clone()).expect("a pool");
    let guard = pool.epochs().pin();
    for kind in KINDS.map(|kind| ExtentKind(ExtentKind::ENGINE.0 + kind)) {
        for at in pool.allocator().extents_of(&pool, kind) {
            pool.allocator().mark_extent(&pool, at, kind).expect("an extent of the store");
        }
    }
    drop(guard);
    pool.allocator().finish_recovery(&pool);
    take_all(&pool, PIECE);
    let store = FluidKv::start(Arc::clone(&pool), &report, options).expect("a store without room opens");
    (pool, store)
}

/// Regression: each open wrote a new manifest before it freed the old one. Without space for two it
/// failed, and the store was lost.
#[test]
fn a_store_without_free_space_opens_repeatedly() {
    let ((scratch, pool, store), _) = half_written_without_room(0).expect("no workers");
    store.close().expect("closed");
    drop((store, pool));
    let assert_there = |store: &FluidKv| {
        assert_all(store, 0..2500, 2);
        assert_all(store, 2500..3000, 1);
        assert!(store.verify(&mut |_| ()).expect("verify").is_clean());
    };
    let mut used = Vec::new();
    for round in 0..10 {
        let (_pool, store) = opened_without_room(&scratch, &options(0));
        assert_eq!(counter(&store, "manifest_kept"), 1, "round {round}");
        used.push((store.stats().space.live, counter(&store, "manifest_extents")));
        assert_there(&store);
        let refused = store.put(&key(0), &value(0, 3));
        assert!(matches!(refused, Err(Error::Full { .. })), "{refused:?}");
        store.close().expect("closed");
    }
    assert!(used.iter().all(|other| *other == used[0]), "opens and closes take space: {used:?}");
    // Changes after the old manifest's end, and a stop that is a crash.
    let (pool, store) = opened_without_room(&scratch, &options(0));
    pool.allocator().free_kind(&pool, KIND_TAKEN);
    let flushes = counter(&store, "flushes");
    store.put(&key(3000), &value(3000, 1)).expect("there is room");
    store.settle().expect("settled");
    assert!(counter(&store, "flushes") > flushes);
    assert_there(&store);
    drop((store, pool));
    let store = FluidKv::open(&scratch.store(), &options(0)).expect("opened");
    assert_eq!(counter(&store, "manifest_kept"), 0, "there is room for another");
    assert_there(&store);
    for index in 0..=3000 {
        assert!(store.delete(&key(index)).expect("a delete"), "key {index}");
    }
    store.settle().expect("settled");
    assert_eq!(store.len().expect("a count"), 0);
    fill(&store, 0..3000, 4);
    assert_all(&store, 0..3000, 4);
}

/// Regression: the call reported success.
#[test]
fn a_settle_that_runs_out_of_space_says_so_and_succeeds_later() {
    let (scratch, pool, store) = half_written(0).expect("no workers");
    // Creates runs without a compaction of them.
    store.close().expect("closed");
    drop((store, pool));
    let (pool, report) = Pool::open(&scratch.store(), ENGINE, FORMAT, options(0).pool).expect("a pool");
    let store = FluidKv::start(Arc::clone(&pool), &report, &options(0)).expect("a store");
    let buffered = counter(&store, "buffered_bytes");
    assert!(buffered > 0);
    let taken = take_all(&pool, 4 << 10);
    let live = store.stats().space.live;
    for _ in 0..2 {
        let refused = store.settle();
        assert!(matches!(refused, Err(Error::Full { .. })), "{refused:?}");
        assert_eq!((counter(&store, "buffered_bytes"), store.stats().space.live), (buffered, live));
    }
    give(&pool, taken);
    store.settle().expect("there is room");
    assert_eq!(counter(&store, "buffered_bytes"), 0);
    assert_all(&store, 0..2500, 2);
    assert_all(&store, 2500..3000, 1);
    assert!(store.verify(&mut |_| ()).expect("verify").is_clean());
}

/// Regression: the close reported success, and only the next open's replay showed otherwise.
#[test]
fn a_close_of_a_poisoned_store_says_so_and_loses_nothing() {
    let scratch = Scratch::new();
    let (pool, store) = created(&scratch, &options(0));
    fill(&store, 0..100, 1);
    pool.poison(lodestore_contract::PoisonReason::Write, "a test");
    assert!(matches!(store.settle(), Err(Error::Poisoned { .. })));
    let closed = store.close();
    assert!(matches!(closed, Err(Error::Poisoned { .. })), "{closed:?}");
    store.close().expect("twice is no error");
    drop((store, pool));
    let (clean, store) = opened(&scratch, &options(0));
    assert!(!clean);
    assert_all(&store, 0..100, 1);
}

/// A batch is one log record, which needs one extent.
#[test]
fn a_batch_for_which_no_free_extent_is_large_enough_is_written_in_pieces() {
    const PART: u64 = 128 << 10;
    let pool = PoolOptions { capacity: 32 << 20, region_bytes: 16 << 20, ..PoolOptions::default() };
    let options = FluidOptions {
        pool,
        segment_bytes: 16 << 10,
        table_bytes: 16 << 10,
        range_bytes: 64 << 10,
        value_segment_bytes: 64 << 10,
        workers: 0,
        ..FluidOptions::default()
    };
    let scratch = Scratch::new();
    let (pool, store) = created(&scratch, &options);
    let mut taken = take_all(&pool, PART);
    taken.sort_unstable_by_key(|at| at.raw());
    // Frees one of each pair of neighbours: no two of them form a larger extent.
    let pairs = |at: &NvPtr| (at.raw() / PART).is_multiple_of(2);
    give(&pool, taken.iter().copied().filter(pairs));
    assert!(store.stats().space.free > 8 << 20);
    let ops = (0..1000).map(|number| BatchOp::Put { key: key(number), value: vec![number as u8; 1000], expiry: None });
    let batch = Batch { ops: ops.collect() };
    store.write(&batch).expect("there is room, in pieces");
    let assert_all = |store: &FluidKv| {
        for number in 0..1000 {
            assert_eq!(store.get(&key(number)).expect("get"), Some(vec![number as u8; 1000]), "key {number}");
        }
    };
    assert_all(&store);
    store.settle().expect("settled");
    assert_all(&store);
    drop(store);
    drop(pool);
    let store = FluidKv::open(&scratch.store(), &options).expect("opened");
    assert_all(&store);
    assert!(store.verify(&mut |_| ()).expect("verify").is_clean());
}

/// Puts values that expire together, until the store is full. Returns their number, or `None` if
/// the first have expired meanwhile.
fn full_of_expiring(store: &FluidKv, seconds: u64) -> Option<u64> {
    let expiry = Expiry::after(Duration::from_secs(seconds));
    let most = 40_000;
    let count = (0..most).take_while(|index| match store.put_expiring(&key(*index), &[7; 1000], Some(expiry)) {
        Ok(()) => true,
        Err(Error::Full { .. }) => false,
        Err(error) => panic!("{error}"),
    });
    let count = count.count() as u64;
    if count == most || expiry.is_past() {
        return None;
    }
    while !expiry.is_past() {
        std::thread::sleep(Duration::from_millis(20));
    }
    Some(count)
}

/// Regression: ranges without runs were never compacted, so a store full of expired keys stayed
/// full. With background threads, one range received all puts. This range was split only if one
/// more range fitted, but used that space itself.
#[test]
fn a_store_full_of_expired_pairs_accepts_as_many_again() {
    for workers in [0, 2] {
        // A slow machine needs longer to fill it.
        let full = [3, 12, 48, 200].into_iter().find_map(|seconds| {
            let scratch = Scratch::new();
            let (pool, store) = created(&scratch, &options(workers));
            full_of_expiring(&store, seconds).map(|count| (scratch, pool, store, count))
        });
        let (_scratch, _pool, store, count) = full.expect("it is full before anything has expired");
        for index in 0..count * 3 / 4 {
            let put = store.put(&key(count + index), &[9; 1000]);
            put.unwrap_or_else(|error| panic!("{workers} workers, {index} of {count}: {error}, {:?}", store.stats()));
        }
        for index in 0..count * 3 / 4 {
            assert_eq!(store.get(&key(count + index)).expect("get"), Some(vec![9; 1000]));
        }
        let merges = counter(&store, "expired_merges");
        assert!(merges > 0, "{workers} workers, {count} values, {:?}", store.stats().engine_counters);
        assert!(store.verify(&mut |_| ()).expect("verify").is_clean());
    }
}

/// Regression: deletes were refused forever. The reserve was held in pieces as long as a log
/// segment, and tables were as short as these. The manifest names the keys of more tables, so less
/// space increased the required free space.
#[test]
fn a_full_store_of_long_keys_accepts_deletes() {
    let long = |index: u64| match index % 16 {
        7 => [key(index), vec![b'k'; 12_000]].concat(),
        _ => key(index),
    };
    for workers in [0, 2] {
        let scratch = Scratch::new();
        let pool = PoolOptions { capacity: 64 << 20, region_bytes: 1 << 20, ..PoolOptions::default() };
        let options = FluidOptions { pool, workers, memtable_bytes: 256 << 10, ..FluidOptions::default() };
        let (_pool, store) = created(&scratch, &options);
        let mut full = 0;
        // Overwritten repeatedly, so that there are many flushes.
        for turn in 0..2 {
            for index in 0..16_000 {
                match store.put(&long(index), &vec![turn; 3_000]) {
                    Ok(()) => {}
                    Err(Error::Full { .. }) if full < 2000 => full += 1,
                    Err(Error::Full { .. }) => break,
                    Err(error) => panic!("{error}"),
                }
            }
        }
        assert!(full > 0, "it is full");
        for index in 0..16_000 {
            store.delete(&long(index)).unwrap_or_else(|error| panic!("{index}: {error}, {:?}", store.stats()));
        }
        store.settle().expect("settled");
        assert_eq!(store.len().expect("a count"), 0);
        assert!(store.verify(&mut |_| ()).expect("verify").is_clean());
    }
}

/// A medium of 64 MiB less a page: a second region of 32 MiB does not fit.
#[test]
fn a_small_medium_with_a_large_capacity_is_filled() {
    const MEDIUM_BYTES: u64 = (64 << 20) - 4096;
    let options = FluidOptions::default();
    assert!(options.pool.capacity > 16 * MEDIUM_BYTES);
    let spec = SimSpec { record: false, ..SimSpec::default() };
    let (pool, report) = Pool::create_sim(&spec, ENGINE, FORMAT, options.pool.clone()).expect("a pool");
    pool.recorder().expect("a simulated pool").set_medium_bytes(MEDIUM_BYTES);
    let store = FluidKv::start(pool, &report, &options).expect("a store");
    let value = [7; 1000];
    let mut count = 0;
    let full = loop {
        match store.put(&key(count), &value) {
            Ok(()) => count += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(full, Error::Full { .. }), "{full}");
    assert!(count * 1016 > MEDIUM_BYTES / 10 * 7, "{count} records of 1,016 bytes");
    (0..count / 4).for_each(|index| assert!(store.delete(&key(index)).expect("delete")));
    (0..count / 8).for_each(|index| store.put(&key(index), &value).expect("room after deletes"));
    store.close().expect("close");
}
