//! Events are reported after the reporting thread has released its locks, and on no thread for
//! which others wait.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{channel, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use crate::common::{counter, key, tiny};
use lodestore_contract::testing::HANG_TIMEOUT;
use lodestore_contract::{Event, Store};
use lodestore_fluidkv::{FluidKv, FluidOptions};
use lodestore_inplace::testing::{Kind, Scratch, check_sink_may_use_the_store_but_for_sweeps, small_dax_pool};

static KIND: Kind<FluidKv, FluidOptions> =
    Kind { engine: "fluidkv", create: FluidKv::create, open: FluidKv::open, pool: |options| &mut options.pool };

/// Maximum wait of a test for an expected event.
const PATIENCE: Duration = HANG_TIMEOUT;
const KEY: &[u8] = b"damaged";
/// The value of `KEY`, which is then in one table and in no other place that is read.
const DAMAGED: &[u8] = b"a value that will be damaged";

#[test]
fn a_sink_may_use_the_store_whatever_the_event() {
    for workers in [0, 1, 3] {
        let options = FluidOptions { pool: small_dax_pool(), ..tiny(workers) };
        check_sink_may_use_the_store_but_for_sweeps(&KIND, options);
    }
}

/// Changes a bit of each copy of this text in the store's first file.
fn damage(scratch: &Scratch, text: &[u8]) {
    let path = scratch.store().join("pool.0000");
    let bytes = std::fs::read(&path).expect("its bytes");
    let file = OpenOptions::new().write(true).open(&path).expect("the store's file");
    let places: Vec<_> = bytes.windows(text.len()).enumerate().filter(|(_, window)| *window == text).collect();
    assert!(!places.is_empty());
    places.iter().for_each(|(at, _)| file.write_all_at(&[bytes[*at] ^ 1], *at as u64).expect("written"));
}

/// With one worker that finds damage: the writes of its sink fill memtables that only this worker
/// could flush.
#[test]
fn a_sink_on_the_only_worker_may_write_more_than_memtables_hold() {
    let scratch = Scratch::new();
    let known: Arc<OnceLock<Weak<FluidKv>>> = Arc::default();
    let (done, ended) = channel();
    let sink = {
        let known = Arc::clone(&known);
        move |event: &Event| {
            if let (Event::Corruption { .. }, Some(store)) = (event, known.get().and_then(Weak::upgrade)) {
                let well = (0..10_000).all(|index| store.put(&key(index), &[7; 100]).is_ok());
                let _ = done.send((well, std::thread::current().name().map(str::to_owned)));
            }
        }
    };
    let mut options = tiny(1);
    options.pool.events = Some(Arc::new(sink));
    let store = Arc::new(FluidKv::create(&scratch.store(), &options).expect("created"));
    store.put(KEY, DAMAGED).expect("put");
    store.settle().expect("settled");
    damage(&scratch, DAMAGED);
    known.set(Arc::downgrade(&store)).expect("once");
    // A run over the damaged table: its compaction finds the damage.
    store.put(KEY, b"w").expect("put");
    (0..1000).for_each(|index| store.put(&key(20_000 + index), &[1; 100]).expect("put"));
    let (well, thread) = ended.recv_timeout(PATIENCE).expect("the sink came to its end");
    assert!(well && thread.is_some_and(|name| name.starts_with("lodestore-fluid-")));
    assert!(counter(&store, "flushes") > 0);
    for index in 0..10_000 {
        assert_eq!(store.get(&key(index)).expect("get"), Some(vec![7; 100]), "key {index}");
    }
}

/// A panic in the owner's code harms neither background work nor the store.
#[test]
fn a_sink_that_panics_on_a_worker_poisons_nothing() {
    let scratch = Scratch::new();
    let told = Arc::new(AtomicU64::new(0));
    let mut options = tiny(1);
    let count = Arc::clone(&told);
    options.pool.events = Some(Arc::new(move |event| {
        if matches!(event, Event::Corruption { .. }) {
            count.fetch_add(1, Ordering::SeqCst);
            panic!("a sink");
        }
    }));
    let store = FluidKv::create(&scratch.store(), &options).expect("created");
    store.put(KEY, DAMAGED).expect("put");
    store.settle().expect("settled");
    damage(&scratch, DAMAGED);
    store.put(KEY, b"w").expect("put");
    (0..30_000).for_each(|index| store.put(&key(index), &[1; 100]).expect("the work behind goes on"));
    assert!(told.load(Ordering::SeqCst) > 0);
    assert_eq!(store.get(&key(77)).expect("get"), Some(vec![1; 100]));
    store.close().expect("closed");
}

/// Regression: the thread would wait for its own end.
#[test]
fn a_sink_on_a_worker_may_drop_the_last_handle() {
    let scratch = Scratch::new();
    let last: Arc<Mutex<Option<FluidKv>>> = Arc::default();
    let (dropped, ended) = sync_channel(1);
    let mut options = tiny(1);
    let taken = Arc::clone(&last);
    options.pool.events = Some(Arc::new(move |event| {
        if matches!(event, Event::Corruption { .. })
            && let Some(store) = taken.lock().unwrap_or_else(PoisonError::into_inner).take()
        {
            drop(store);
            let _ = dropped.try_send(());
        }
    }));
    let store = FluidKv::create(&scratch.store(), &options).expect("created");
    store.put(KEY, DAMAGED).expect("put");
    store.settle().expect("settled");
    damage(&scratch, DAMAGED);
    let mut held = last.lock().expect("no panic");
    store.put(KEY, b"w").expect("put");
    (0..1000).for_each(|index| store.put(&key(index), &[1; 100]).expect("put"));
    *held = Some(store);
    drop(held);
    ended.recv_timeout(PATIENCE).expect("the last handle is gone");
    let store = FluidKv::open(&scratch.store(), &tiny(1)).expect("opened");
    assert_eq!(store.get(&key(77)).expect("get"), Some(vec![1; 100]));
}
