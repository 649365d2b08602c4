//! A sink that uses the store, for every kind of event that an operation raises.

use std::collections::BTreeSet;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, Weak};

use lodestore_contract::conformance::Harness;
use lodestore_contract::testing::HANG_TIMEOUT;
use lodestore_contract::threads::lock;
use lodestore_contract::{Change, Error, Event, EventSink, Expiry, Lifetime, Result, Store};

use crate::testing::{Kind, Place};

/// State of a sink.
struct SinkState<S> {
    store: Mutex<Weak<S>>,
    /// The key of the running operation.
    key: Mutex<&'static [u8]>,
    seen: Mutex<BTreeSet<&'static str>>,
}

impl<S: Store> SinkState<S> {
    fn receive(&self, event: &Event) {
        let kind = match event {
            Event::Grown { .. } => "grown",
            Event::Corruption { .. } => "corruption",
            Event::Full { .. } => "full",
            Event::Swept { .. } => "swept",
            Event::Recovered { .. } => "recovered",
            _ => "another",
        };
        lock(&self.seen).insert(kind);
        let (store, key) = (lock(&self.store).upgrade(), *lock(&self.key));
        let Some(store) = store else { return };
        expect_ok_full_or_corrupt(store.get(key));
        expect_ok_full_or_corrupt(store.insert(key, b"by the sink", Lifetime::Forever));
        expect_ok_full_or_corrupt(store.put(b"of the sink", &[7; 100]));
    }

    /// Sets the key of the next operation.
    fn set_key(&self, key: &'static [u8]) -> &'static [u8] {
        *lock(&self.key) = key;
        key
    }
}

fn expect_ok_full_or_corrupt<T>(done: Result<T>) {
    match done {
        Ok(_) | Err(Error::Full { .. } | Error::Corrupt { .. }) => {}
        Err(error) => panic!("a sink's call: {error}"),
    }
}

/// Checks that a store's sink may read and write the store, for any event on any thread.
///
/// # Panics
/// If an operation does not end, or an event is not reported.
pub fn check_sink_may_use_the_store<S, O>(kind: &'static Kind<S, O>, options: O, sweep: fn(&S) -> Result<u64>)
where
    S: Store + 'static,
    O: Clone + Send + Sync + 'static,
{
    check_sink(kind, options, Some(sweep));
}

/// As [`check_sink_may_use_the_store`], for an engine that does not report the removal of expired
/// keys.
///
/// # Panics
/// As there.
pub fn check_sink_may_use_the_store_but_for_sweeps<S, O>(kind: &'static Kind<S, O>, options: O)
where
    S: Store + 'static,
    O: Clone + Send + Sync + 'static,
{
    check_sink(kind, options, None);
}

fn check_sink<S, O>(kind: &'static Kind<S, O>, options: O, sweep: Option<fn(&S) -> Result<u64>>)
where
    S: Store + 'static,
    O: Clone + Send + Sync + 'static,
{
    let (done, ended) = channel();
    let worker = std::thread::spawn(move || {
        use_all(kind, options, sweep);
        let _ = done.send(());
    });
    let outcome = ended.recv_timeout(HANG_TIMEOUT);
    assert!(outcome.is_ok() || worker.is_finished(), "an operation hangs whose event's sink uses the store");
    worker.join().unwrap_or_else(|payload| std::panic::resume_unwind(payload));
}

fn use_all<S, O>(kind: &'static Kind<S, O>, options: O, sweep: Option<fn(&S) -> Result<u64>>)
where
    S: Store + 'static,
    O: Clone + Send + Sync + 'static,
{
    const VALUE: &[u8] = b"a value that will be damaged on the medium";
    const KEY: &[u8] = b"a key that will be damaged on the medium";
    let state =
        Arc::new(SinkState { store: Mutex::new(Weak::<S>::new()), key: Mutex::new(b"key"), seen: Mutex::default() });
    let sink: EventSink = {
        let state = Arc::clone(&state);
        Arc::new(move |event| state.receive(event))
    };
    let mut place = Place::new(kind, "a sink that uses the store", options);
    place.pool().region_bytes = 4 << 20;
    place.pool().events = Some(sink);

    let store = Arc::new(place.create(16 << 20).expect("create"));
    *lock(&state.store) = Arc::downgrade(&store);
    store.put(state.set_key(b"value damaged"), VALUE).expect("put");
    store.put(state.set_key(KEY), b"v").expect("put");
    store.put_expiring(state.set_key(b"gone"), b"v", Some(Expiry::at_millis(1))).expect("put");
    if let Some(sweep) = sweep {
        assert_eq!(sweep(&store).expect("sweep"), 1);
    }
    state.set_key(b"filler");
    let full = (0..1000u32).find_map(|number| store.put(&number.to_le_bytes(), &[1; 60_000]).err());
    assert!(matches!(full, Some(Error::Full { .. })), "{full:?}");
    (0..100u32).for_each(|number| {
        store.delete(&number.to_le_bytes()).expect("delete");
    });
    for kind in ["grown", "full"].into_iter().chain(sweep.map(|_| "swept")) {
        assert!(lock(&state.seen).contains(kind), "{kind}: {:?}", lock(&state.seen));
    }

    store.close().expect("close");
    drop(store);
    for file in place.files() {
        place.alter(&file, &mut |bytes| {
            for (bytes_sought, at) in [(VALUE, 0), (KEY, 30)] {
                // The space of a freed log may hold a copy too.
                let windows =
                    bytes.windows(bytes_sought.len()).enumerate().filter(|(_, window)| *window == bytes_sought);
                let found: Vec<_> = windows.map(|(found, _)| found).collect();
                found.iter().for_each(|found| bytes[found + at] ^= 1);
            }
        });
    }
    lock(&state.seen).clear();
    let store = Arc::new(place.open().expect("open"));
    *lock(&state.store) = Arc::downgrade(&store);
    store.wait_recovered().expect("recovery");
    type Operation<S> = fn(&S, &[u8]);
    let operations: [(&str, Operation<S>); 5] = [
        ("get", |store, key| expect_ok_full_or_corrupt(store.get(key))),
        ("insert", |store, key| expect_ok_full_or_corrupt(store.insert(key, b"v", Lifetime::Forever))),
        ("update_with", |store, key| expect_ok_full_or_corrupt(store.update_with(key, &mut |_, _| Change::Keep))),
        ("update", |store, key| expect_ok_full_or_corrupt(store.update(key, b"v", Lifetime::Forever))),
        ("put", |store, key| store.put(key, b"v").expect("put")),
    ];
    for key in [b"value damaged", KEY] {
        state.set_key(key);
        for (name, operation) in operations {
            lock(&state.seen).clear();
            operation(&store, key);
            let is_reported = lock(&state.seen).contains("corruption");
            assert!(is_reported || !["get", "update_with"].contains(&name), "{name} of {}", key.escape_ascii());
        }
    }
    store.close().expect("close");
}

/// Checks that a panic of a sink harms neither the store nor the recovery that calls it. `options`
/// must have threads for the recovery.
///
/// # Panics
/// If the store is not whole afterwards.
pub fn check_sink_may_panic_in_recovery<S, O>(kind: &'static Kind<S, O>, options: O)
where
    S: Store + 'static,
    O: Clone + Send + Sync + 'static,
{
    const VALUE: &[u8] = b"a value that will be damaged on the medium";
    let mut place = Place::new(kind, "a sink that panics", options);
    place.pool().region_bytes = 4 << 20;
    let store = place.create(16 << 20).expect("create");
    store.put(b"damaged", VALUE).expect("put");
    store.put(b"whole", b"v").expect("put");
    drop(store);
    for file in place.files() {
        place.alter(&file, &mut |bytes| {
            let found = bytes.windows(VALUE.len()).position(|window| window == VALUE);
            found.into_iter().for_each(|found| bytes[found] ^= 1);
        });
    }
    place.pool().events = Some(Arc::new(|event| {
        if !matches!(event, Event::Opened { .. }) {
            panic!("a sink that panics: {event:?}");
        }
    }));
    let store = place.open().expect("open");
    store.wait_recovered().expect("recovery");
    store.put(b"more", b"v").expect("put");
    assert_eq!(store.get(b"whole").expect("get"), Some(b"v".to_vec()));
    store.close().expect("close");
}

/// Checks that a sink on the store's own thread may drop the last handle. `options` must sweep
/// every millisecond.
///
/// # Panics
/// If the store is not closed by it.
pub fn check_sink_may_drop_the_store<S, O>(kind: &'static Kind<S, O>, options: O)
where
    S: Store + 'static,
    O: Clone + Send + Sync + 'static,
{
    let mut place = Place::new(kind, "a sink that drops the store", options);
    let last: Arc<Mutex<Option<Arc<S>>>> = Arc::default();
    let (dropped, ended) = channel();
    let taken = Arc::clone(&last);
    place.pool().events = Some(Arc::new(move |event| {
        if matches!(event, Event::Swept { .. })
            && let Some(store) = lock(&taken).take()
        {
            drop(store);
            let _ = dropped.send(());
        }
    }));
    let store = Arc::new(place.create(16 << 20).expect("create"));
    store.put(b"key", b"v").expect("put");
    let mut held = lock(&last);
    store.put_expiring(b"gone", b"v", Some(Expiry::at_millis(1))).expect("put");
    *held = Some(store);
    drop(held);
    ended.recv_timeout(HANG_TIMEOUT).expect("the last handle is gone");
    let store = place.open().expect("open");
    assert_eq!(store.get(b"key").expect("get"), Some(b"v".to_vec()));
}
