//! Tests of concurrent tasks: each step by hand, in an order that two workers may take.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use lodestore_contract::threads::lock;
use lodestore_contract::{Error, Event, Store};
use lodestore_inplace::testing::Scratch;
use lodestore_media::{ExtentKind, PoolOptions};

use super::policy::Task;
use super::reclaim::FLUSH_AND_COMPACT_TIMEOUT;
use super::*;
use crate::background::scheduler::{Background, Due, Scheduler};
use crate::layout::KIND_LOG;
use crate::space::sizes::MEMTABLES_MAX;
use crate::version::publish::publish;
use crate::version::range::Range;
use crate::version::tables::Sorted;
use crate::wal::segment::{SEGMENT_HEADER_BYTES, SPARE_BYTES};
use crate::{FluidKv, FluidOptions};

mod room;

type Told = Arc<Mutex<Vec<String>>>;

/// Creates a store without workers. Returns the damage that it reports.
fn created(scratch: &Scratch) -> (FluidKv, Told) {
    let told = Told::default();
    let sink = Arc::clone(&told);
    (created_with(scratch, move |damage| lock(&sink).push(damage)), told)
}

/// Creates a store without workers that reports damage to `sink`.
fn created_with(scratch: &Scratch, sink: impl Fn(String) + Send + Sync + 'static) -> FluidKv {
    let events = move |event: &Event| {
        if let Event::Corruption { place, what, .. } = event {
            sink(format!("{place}: {what}"));
        }
    };
    let options = FluidOptions {
        pool: PoolOptions {
            capacity: 64 << 20,
            region_bytes: 16 << 20,
            events: Some(Arc::new(events)),
            ..PoolOptions::default()
        },
        memtable_bytes: 256 << 10,
        segment_bytes: 16 << 10,
        table_bytes: 16 << 10,
        range_bytes: 256 << 10,
        workers: 0,
        ..FluidOptions::default()
    };
    FluidKv::create(&scratch.store(), &options).expect("a store")
}

fn key(index: u64) -> Vec<u8> {
    format!("{index:08}").into_bytes()
}

fn fill(store: &FluidKv, keys: std::ops::Range<u64>, version: u64) {
    keys.for_each(|index| store.put(&key(index), format!("{index}/{version}/{:076}", 0).as_bytes()).expect("put"));
}

#[track_caller]
fn assert_all(store: &FluidKv, keys: std::ops::Range<u64>, version: u64) {
    for index in keys {
        let found = store.get(&key(index)).expect("get");
        assert_eq!(found, Some(format!("{index}/{version}/{:076}", 0).into_bytes()), "key {index}");
    }
}

/// Flushes the written data into a run.
fn flush(inner: &Background) {
    assert_eq!(inner.rotate(), Rotation::Done);
    assert!(inner.flush_oldest().expect("flushed"));
}

/// Creates a range of several stable tables with a run in its first half, which is to be split
/// between them. A range is in this state if the medium was full when it should have been split.
/// Returns its compaction, begun.
fn late_split(store: &FluidKv) -> Task {
    let inner = &store.running.inner;
    fill(store, 0..800, 1);
    store.settle().expect("settled");
    fill(store, 0..10, 2);
    flush(inner);
    let range = Arc::clone(&inner.view.load().ranges.list[0]);
    assert!(range.stable.tables.len() > 3 && range.runs.len() == 1 && range.cuts.is_empty());
    let task = inner.next_task(Due::All).expect("a task");
    assert!(matches!(&task, Task::Compact(compacted) if compacted.id == range.id));
    let cut = range.stable.tables[2].descriptor.min.clone();
    lock(&inner.publisher).set_cuts(range.id, vec![cut]);
    task
}

/// Like [`late_split`], with the range released.
fn waiting_split(store: &FluidKv) {
    let Task::Compact(range) = late_split(store) else { panic!("a compaction") };
    store.running.inner.scheduler.release_ranges(&[range.id]);
}

#[track_caller]
fn assert_settles(store: &FluidKv, told: &Told) {
    store.settle().expect("settled");
    let stats = store.stats().engine_counters;
    assert_eq!((stats["memtables"], stats["runs_most"], stats["log_bytes"]), (1, 0, 0));
    let report = store.verify(&mut |_| ()).expect("verify");
    assert!(report.is_clean(), "{report:?}");
    assert_eq!(*lock(told), [""; 0]);
}

/// Regression: the compaction named tables that belonged to another range by then, and the store
/// reported damage.
#[test]
fn a_range_being_compacted_is_split_by_no_other_thread() {
    let scratch = Scratch::new();
    let (store, told) = created(&scratch);
    let task = late_split(&store);
    let inner = &store.running.inner;
    fill(&store, 10..20, 2);
    flush(inner);
    inner.run(task);
    assert_eq!(*lock(&told), [""; 0]);
    assert_eq!(store.stats().engine_counters["range_splits"], 1, "by who compacted it");
    assert!(lock(&inner.scheduler.busy).ranges.is_empty());
    assert_settles(&store, &told);
    assert_all(&store, 0..20, 2);
    assert_all(&store, 20..800, 1);
}

#[test]
fn a_range_that_waits_for_its_split_is_split_by_the_next_flush() {
    let scratch = Scratch::new();
    let (store, told) = created(&scratch);
    waiting_split(&store);
    let inner = &store.running.inner;
    fill(&store, 10..20, 2);
    flush(inner);
    assert_eq!(inner.view.load().ranges.list.len(), 2);
    assert!(lock(&inner.scheduler.busy).ranges.is_empty(), "nobody holds them");
    assert_settles(&store, &told);
}

/// Old bytes there must not be mistaken for a log's own header (`db/recover.rs`).
#[test]
fn a_new_log_has_the_positions_of_its_headers_wiped() {
    const KIND: ExtentKind = ExtentKind(ExtentKind::ENGINE.0 + 40);
    const BYTES: u64 = 16 << 10;
    let scratch = Scratch::new();
    let (store, _told) = created(&scratch);
    let inner = &store.running.inner;
    let (pool, allocator) = (&inner.pool, inner.pool.allocator());
    let old: Vec<_> = (0..16).map(|_| allocator.alloc_extent(pool, BYTES, KIND).expect("room")).collect();
    for at in &old {
        pool.store(*at, &[0xAB; BYTES as usize]);
        allocator.free_extent(pool, *at);
    }
    for deletes in [false, true] {
        let at = loop {
            let log = if deletes {
                inner.reserve.alloc_log_for_delete(pool, (BYTES, BYTES)).map(|(at, _)| at)
            } else {
                inner.reserve.alloc_for_put(pool, BYTES, KIND_LOG)
            };
            let log = log.expect("an old place comes again");
            if old.contains(&log) {
                break log;
            }
        };
        let bytes = pool.bytes(at, BYTES as usize).expect("in the pool");
        let (head, tail) = (SEGMENT_HEADER_BYTES, BYTES as usize - SPARE_BYTES);
        assert!(bytes[..head].iter().chain(&bytes[tail..]).all(|byte| *byte == 0), "deletes: {deletes}");
        assert!(bytes[head..tail].iter().all(|byte| *byte == 0xAB), "what is not a header's stays");
    }
}

/// Regression: a range had a thousand tables before its first compaction, and twice the handles
/// during it.
#[test]
fn dram_is_left_for_the_compaction_of_an_outgrown_range() {
    let scratch = Scratch::new();
    let pool = PoolOptions { capacity: 64 << 20, region_bytes: 16 << 20, ..PoolOptions::default() };
    let options =
        FluidOptions { pool, dram_budget: 1 << 20, table_bytes: 16 << 10, workers: 0, ..FluidOptions::default() };
    let store = FluidKv::create(&scratch.store(), &options).expect("create");
    let inner = &store.running.inner;
    for (tables, is_refused) in [(0, false), (100, false), (2500, true), (0, false)] {
        inner.reserve.note_ranges(&inner.pool, tables * inner.sizes.table.table_bytes as u64, 1);
        inner.note_dram();
        assert_eq!(inner.check_dram().is_err(), is_refused, "{tables} tables");
    }
}

/// Checks the first memtable of a store and the next ones.
#[test]
fn memtables_of_a_small_store_use_less_log_than_the_option_allows() {
    let scratch = Scratch::new();
    let pool = PoolOptions { capacity: 4 << 30, region_bytes: 64 << 20, ..PoolOptions::default() };
    let options = FluidOptions { pool, workers: 0, ..FluidOptions::default() };
    let store = FluidKv::create(&scratch.store(), &options).expect("create");
    let inner = &store.running.inner;
    for keys in [0..10, 10..20, 20..30] {
        assert_eq!((inner.view.load().active.limits().log_bytes, inner.sizes.memtable), (16 << 20, 64 << 20));
        fill(&store, keys, 1);
        flush(inner);
    }
}

#[test]
fn a_compaction_of_moved_tables_frees_its_output_and_runs_again() {
    let scratch = Scratch::new();
    let (store, told) = created(&scratch);
    let task = late_split(&store);
    let inner = &store.running.inner;
    {
        let mut publisher = lock(&inner.publisher);
        let (made, outcome) = publisher.split_ranges(&inner.pool, vec![0]);
        outcome.expect("split");
        assert_eq!(made, 1);
        let view = inner.view.load_full();
        publish(&inner.view, &mut publisher, Arc::clone(&view.active), view.frozen.clone());
    }
    let live = store.stats().space.live;
    let Task::Compact(range) = &task else { panic!("a compaction") };
    inner.compact(range).expect("it is no error");
    assert_eq!(store.stats().space.live, live, "what it merged is given back");
    assert_eq!(store.stats().engine_counters["compactions"], 1, "of the first settle");
    inner.run(task);
    assert_settles(&store, &told);
    assert_all(&store, 0..10, 2);
    assert_all(&store, 10..800, 1);
}

/// Regression: the memtable stayed although the manifest had its flush, and each later flush was
/// refused.
#[test]
fn a_flush_is_complete_if_the_split_after_it_is_refused() {
    let scratch = Scratch::new();
    let (store, told) = created(&scratch);
    let inner = &store.running.inner;
    fill(&store, 0..10, 1);
    // A range cannot be split at this key.
    lock(&inner.publisher).set_cuts(0, vec![Box::default()]);
    assert_eq!(inner.rotate(), Rotation::Done);
    assert!(inner.flush_oldest().expect("flushed"));
    assert!(inner.view.load().frozen.is_empty() && inner.view.load().ranges.list[0].cuts.is_empty());
    fill(&store, 10..20, 1);
    assert_settles(&store, &told);
    assert_all(&store, 0..20, 1);
}

fn memtables(inner: &Background) -> u64 {
    inner.view.load().memtables().count() as u64
}

/// Regression: callers checked first whether one more memtable may wait, and then froze one. Two
/// concurrent callers froze two.
#[test]
fn there_are_never_more_memtables_than_the_maximum() {
    let scratch = Scratch::new();
    let (store, told) = created(&scratch);
    let inner = &store.running.inner;
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let store = &store;
            scope.spawn(move || {
                for index in thread * 100..(thread + 1) * 100 {
                    fill(store, index..index + 1, 1);
                    inner.rotate();
                    assert!(memtables(inner) <= MEMTABLES_MAX, "{}", memtables(inner));
                }
            });
        }
    });
    assert_eq!(inner.rotate(), Rotation::AtLimit);
    assert!(!inner.scheduler.throttle.is_stalled(), "nobody has to write");
    // The last writer of a frozen memtable arrives late: the active one has space.
    let active = inner.view.load().active.generation;
    inner.freeze(active - 1);
    assert!(!inner.scheduler.throttle.is_stalled());
    inner.freeze(active);
    assert!(inner.scheduler.throttle.is_stalled() && memtables(inner) == MEMTABLES_MAX);
    assert_settles(&store, &told);
    assert!(!inner.scheduler.throttle.is_stalled());
    assert_all(&store, 0..400, 1);
}

#[test]
fn a_close_flushes_all_memtables_if_the_maximum_waits() {
    let scratch = Scratch::new();
    let (store, _) = created(&scratch);
    for index in 0..MEMTABLES_MAX {
        fill(&store, index..index + 1, 1);
        store.running.inner.rotate();
    }
    assert_eq!(memtables(&store.running.inner), MEMTABLES_MAX);
    store.close().expect("closed");
    drop(store);
    let options = FluidOptions { workers: 0, ..FluidOptions::default() };
    let store = FluidKv::open(&scratch.store(), &options).expect("opened");
    assert_eq!((memtables(&store.running.inner), store.stats().recovery.keys), (1, 0), "nothing was replayed");
    assert_all(&store, 0..MEMTABLES_MAX, 1);
}

/// Flips a bit in each copy of this text in the store's first file.
fn damage(scratch: &Scratch, text: &[u8]) {
    let path = scratch.store().join("pool.0000");
    let file = OpenOptions::new().read(true).write(true).open(&path).expect("the store's file");
    let bytes = std::fs::read(&path).expect("its bytes");
    let places: Vec<_> = (0..bytes.len() - text.len()).filter(|at| bytes[*at..].starts_with(text)).collect();
    assert!(!places.is_empty());
    for at in places {
        file.write_all_at(&[bytes[at] ^ 1], at as u64).expect("written");
    }
}

/// Regression: a settle returned success, and each flush caused another merge of the damaged range,
/// up to the damage.
#[test]
fn a_settle_reports_a_damaged_range_and_flushes_do_not_merge_it_again() {
    let scratch = Scratch::new();
    let (store, told) = created(&scratch);
    let inner = &store.running.inner;
    fill(&store, 0..400, 1);
    store.settle().expect("settled");
    damage(&scratch, b"300/1/000");
    for round in 2..6 {
        fill(&store, 0..10, round);
        inner.rotate();
        inner.run_due_tasks(Due::All);
        assert_eq!(lock(&told).len(), 1, "the first met it: {told:?}");
    }
    for asked in 1..3 {
        let settled = store.settle();
        assert!(matches!(settled, Err(Error::Corrupt { .. })), "{settled:?}");
        assert_eq!(lock(&told).len(), 1 + asked, "who asks is told anew: {told:?}");
    }
    assert_all(&store, 0..10, 5);
    assert_all(&store, 10..250, 1);
    store.close().expect("no log is damaged");
}

/// The end of a snapshot frees space without a notification.
#[test]
fn a_range_that_lacked_space_is_compacted_once_space_is_free() {
    const KIND: ExtentKind = ExtentKind(ExtentKind::ENGINE.0 + 40);
    let scratch = Scratch::new();
    let (store, told) = created(&scratch);
    let inner = &store.running.inner;
    fill(&store, 0..2000, 1);
    store.settle().expect("settled");
    fill(&store, 0..2000, 2);
    flush(inner);
    let allocator = inner.pool.allocator();
    let take = |bytes| allocator.alloc_extent(&inner.pool, bytes, KIND).ok();
    let mut taken: Vec<_> = std::iter::from_fn(|| take(256 << 10)).collect();
    let chunk = u64::from(inner.pool.options().chunk_bytes);
    std::iter::from_fn(|| take(chunk)).for_each(drop);
    let before = store.stats().engine_counters["compactions"];
    inner.run_due_tasks(Due::All);
    assert!(lock(&inner.scheduler.busy).failures.most_severe().is_some(), "there was no room");
    assert!(inner.next_task(Due::All).is_none(), "it is not tried again for nothing");
    let compactions = || store.stats().engine_counters["compactions"] - before;
    let done = compactions();
    taken.drain(..8).for_each(|at| allocator.free_extent(&inner.pool, at));
    inner.run_due_tasks(Due::All);
    assert!(compactions() > done);
    assert_eq!(store.stats().engine_counters["runs_most"], 0);
    assert_eq!(*lock(&told), [""; 0]);
    assert_all(&store, 0..2000, 2);
}

#[test]
fn a_settle_during_a_close_returns_closed() {
    let scratch = Scratch::new();
    let (store, _) = created(&scratch);
    fill(&store, 0..10, 1);
    let inner = &store.running.inner;
    inner.open.close();
    assert!(matches!(inner.flush_and_compact(), Err(Error::Closed)));
    inner.open.reopen();
    store.close().expect("closed");
}

/// Regression: the settle returned success when its time was over.
#[test]
fn an_unfinished_settle_says_so_and_gives_advice() {
    let scratch = Scratch::new();
    let (store, told) = created(&scratch);
    fill(&store, 0..800, 1);
    let settled = store.running.inner.flush_and_compact_within(Duration::ZERO);
    assert!(matches!(settled, Err(Error::Unfinished { .. })), "{settled:?}");
    let text = settled.expect_err("unfinished").to_string();
    assert!(text.contains("pause the writers") && text.contains("repeat the call"), "{text}");
    assert!(store.stats().engine_counters["log_bytes"] > 0, "it is not done");
    assert_settles(&store, &told);
    assert_all(&store, 0..800, 1);
}

/// Regression: the store reported that it was poisoned, which it was not, and no flush was retried.
#[test]
fn a_flush_refused_by_the_system_is_reported_and_retried_by_the_next_write() {
    let scratch = Scratch::new();
    let (store, told) = created(&scratch);
    let inner = &store.running.inner;
    for index in 0..MEMTABLES_MAX {
        fill(&store, index..index + 1, 1);
        inner.rotate();
    }
    inner.freeze(inner.view.load().active.generation);
    assert!(inner.scheduler.throttle.is_stalled());
    let refused = Error::io("opening", "a region", std::io::Error::from_raw_os_error(24));
    lock(&inner.scheduler.busy).failures.note_flush(Err(refused), 0);
    let put = store.put(b"key", b"value");
    assert!(matches!(put, Err(Error::Io { .. })), "{put:?}");
    store.put(b"key", b"value").expect("the flush is tried again");
    assert!(!inner.scheduler.throttle.is_stalled());
    assert_settles(&store, &told);
    assert_all(&store, 0..MEMTABLES_MAX, 1);
}

/// Regression: a worker slept through a change between its search for work and its sleep.
#[test]
fn a_worker_misses_no_change_during_its_search_for_work() {
    let scheduler = Scheduler::new(1);
    let seen = scheduler.changes();
    scheduler.set_frozen(1);
    // No test would outlast this limit.
    scheduler.wait_for_change(seen, FLUSH_AND_COMPACT_TIMEOUT);
    assert_eq!(scheduler.changes(), seen + 1);
}

/// Regression: the task held its range for good, and settles and writers waited forever.
#[test]
fn a_panic_of_background_work_poisons_the_store_and_wakes_waiting_threads() {
    let scratch = Scratch::new();
    let (store, _) = created(&scratch);
    fill(&store, 0..800, 1);
    store.settle().expect("settled");
    let inner = &store.running.inner;
    let range = Arc::clone(&inner.view.load().ranges.list[0]);
    // No range is like this: it claims adjacent small tables that it does not have.
    let impossible = Range { small_tables: OnceLock::from(Some(0..1000)), ..with_runs(&range, Vec::new()) };
    lock(&inner.scheduler.busy).ranges.insert(range.id);
    let work = || inner.run(Task::Compact(Arc::new(impossible)));
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).is_err(), "tables that are not there");
    assert!(matches!(store.settle(), Err(Error::Poisoned { .. })));
    assert!(matches!(store.put(b"another", b""), Err(Error::Poisoned { .. })));
    assert!(matches!(store.close(), Err(Error::Poisoned { .. })));
}

/// Regression: the merge panicked. If a new table began at such a key, the keys were written out of
/// order.
#[test]
fn a_merge_of_tables_with_unordered_keys_is_refused_and_the_store_continues() {
    let scratch = Scratch::new();
    let (store, _) = created(&scratch);
    fill(&store, 0..800, 1);
    store.settle().expect("settled");
    let inner = &store.running.inner;
    let range = Arc::clone(&inner.view.load().ranges.list[0]);
    let mut tables = range.stable.tables.clone();
    assert!(tables.len() > 1, "tables to be in a wrong order");
    tables.reverse();
    let cuts: Vec<_> = range.stable.tables.iter().map(|table| table.descriptor.min.clone()).collect();
    for cuts in [Vec::new(), cuts] {
        let forged = Range { cuts, ..with_runs(&range, vec![Sorted::new(tables.clone())]) };
        let refused = inner.compact(&forged);
        assert!(matches!(&refused, Err(Error::Corrupt { what, .. }) if what.contains("not in order")), "{refused:?}");
    }
    store.put(b"another", b"key").expect("the store goes on");
    store.settle().expect("it settles");
    assert_eq!(store.get(b"another").expect("get"), Some(b"key".to_vec()));
}

/// Returns the range with other runs.
fn with_runs(range: &Range, runs: Vec<Sorted>) -> Range {
    Range {
        id: range.id,
        lower: range.lower.clone(),
        runs,
        stable: Sorted::new(range.stable.tables.clone()),
        cuts: Vec::new(),
        small_tables: OnceLock::new(),
    }
}

/// Regression: the sink was called in the middle of a task, and its panic poisoned the store.
#[test]
fn a_panicking_sink_harms_no_background_work() {
    let scratch = Scratch::new();
    let store = created_with(&scratch, |_| panic!("a sink"));
    store.put(b"damaged-key", b"the right value").expect("put");
    damage(&scratch, b"damaged-key");
    let settled = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| store.settle()));
    assert!(settled.is_err(), "the sink panicked");
    let inner = &store.running.inner;
    assert_eq!(lock(&inner.scheduler.busy).running_tasks(), 0, "what it told of had ended");
    store.put(b"another", b"key").expect("the store goes on");
    assert_eq!(store.get(b"another").expect("get"), Some(b"key".to_vec()));
}

/// Flushed and merged data keeps its space while a reader holds an earlier view. Regression: a
/// reader that is off its processor holds the view for longer than a flush, and deletes on a full
/// store failed for good.
#[test]
fn deletes_on_a_full_store_wait_for_readers_to_release_replaced_data() {
    let scratch = Scratch::new();
    let options = FluidOptions {
        pool: PoolOptions { capacity: 8 << 20, region_bytes: 4 << 20, ..PoolOptions::default() },
        workers: 0,
        ..FluidOptions::default()
    };
    let store = FluidKv::create(&scratch.store(), &options).expect("a store");
    let inner = &store.running.inner;
    let value = [7; 64];
    let keys = (0..).find(|index| store.put(&key(*index), &value).is_err()).expect("it fills");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = || {
            while !done.load(Ordering::Relaxed) {
                let view = inner.view.load_full();
                std::thread::sleep(Duration::from_millis(200));
                drop(view);
            }
        };
        // Two readers, so that one always holds a view.
        scope.spawn(reader);
        scope.spawn(reader);
        let outcome = (0..keys).try_for_each(|index| store.delete(&key(index)).map(|_| ()));
        done.store(true, Ordering::Relaxed);
        outcome.expect("deletes make room");
    });
    store.settle().expect("settled");
    assert_eq!(store.len().expect("a count"), 0);
}
