//! The library from the user's point of view: creation, open, refusals.

#![cfg_attr(not(feature = "hikv"), expect(unused_imports, reason = "tests of hikv use them"))]

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use lodestore::events::Event;
use lodestore::options::{CreateOptions, OpenOptions};
use lodestore::store::{Lodestore, ScanRange, Store};
use lodestore::{Durability, Error};
use lodestore_contract::testing::Scratch;

/// Returns a temporary directory and a path in it at which no store exists yet.
fn scratch_path() -> (Scratch, PathBuf) {
    let dir = Scratch::new();
    let path = dir.store();
    (dir, path)
}

fn small() -> CreateOptions {
    CreateOptions::new().size(32 << 20)
}

#[cfg(feature = "hikv")]
#[test]
fn puts_are_present_after_a_clean_stop_and_after_a_kill() {
    let (_dir, path) = scratch_path();
    let store = lodestore::store::create(&path, &small()).expect("a new store");
    store.put(b"k", b"v").expect("put");
    store.close().expect("a clean stop");
    let store = Lodestore::open(&path, &OpenOptions::new().engine("hikv")).expect("opens");
    assert_eq!(store.get(b"k").expect("get").as_deref(), Some(&b"v"[..]));
    store.put(b"l", b"w").expect("put");
    drop(store);
    let store = lodestore::store::open(&path, &OpenOptions::new()).expect("opens after a stop that was not clean");
    assert_eq!(store.len().expect("len"), 2);
    assert_eq!(store.get(b"l").expect("get").as_deref(), Some(&b"w"[..]));
}

#[test]
fn a_store_filled_at_process_is_raised_to_power_and_keeps_every_record() {
    // An ordinary file system: shared memory gives no power.
    let dir = Scratch::within(env!("CARGO_TARGET_TMPDIR").as_ref());
    let key = |number: u32| format!("key {number:05}").into_bytes();
    for engine in lodestore::engines() {
        let path = dir.path().join(engine.name);
        let filled = small().engine(engine.name).durability(Durability::Process);
        let store = lodestore::store::create(&path, &filled).expect("a new store");
        (0..2000).try_for_each(|number| store.put(&key(number), b"filled")).expect("puts");
        store.close().expect("a clean stop");
        let raised = OpenOptions::new().durability(Durability::Power);
        let store = lodestore::store::open(&path, &raised).expect("opens");
        assert_eq!(store.stats().durability, Durability::Power, "{}", engine.name);
        (0..50).try_for_each(|number| store.put(&key(number), b"raised")).expect("puts");
        // Not closed, as after a kill.
        drop(store);
        let store = lodestore::store::open(&path, &OpenOptions::new()).expect("opens");
        assert_eq!(store.stats().durability, Durability::Power, "{}", engine.name);
        for number in 0..2000 {
            let should: &[u8] = if number < 50 { b"raised" } else { b"filled" };
            assert_eq!(store.get(&key(number)).expect("get").as_deref(), Some(should), "{} {number}", engine.name);
        }
        store.close().expect("a clean stop");
        let lowered = lodestore::store::open(&path, &OpenOptions::new().durability(Durability::Process));
        assert!(matches!(lowered, Err(Error::InvalidOption { .. })), "{}", engine.name);
    }
}

#[test]
fn a_durability_that_the_engine_lacks_is_refused_at_an_open_too() {
    let dir = Scratch::within(env!("CARGO_TARGET_TMPDIR").as_ref());
    let window = Durability::Interval(std::time::Duration::from_millis(5));
    for engine in lodestore::engines() {
        let path = dir.path().join(engine.name);
        let new = small().engine(engine.name).durability(Durability::Process);
        let store = lodestore::store::create(&path, &new).expect("a new store");
        let able = store.capabilities().interval;
        store.close().expect("a clean stop");
        let raised = lodestore::store::open(&path, &OpenOptions::new().durability(window));
        assert_eq!(raised.is_ok(), able, "{}", engine.name);
        drop(raised);
        let kept = lodestore::store::open(&path, &OpenOptions::new()).expect("opens").stats().durability;
        assert_eq!(kept, if able { window } else { Durability::Process }, "{}", engine.name);
    }
}

#[cfg(feature = "hikv")]
#[test]
fn a_handle_is_shared_by_its_clones_and_gives_its_store() {
    let (_dir, path) = scratch_path();
    let store = Lodestore::create(&path, &small()).expect("a new store");
    let threads: Vec<_> = (0..4u8)
        .map(|thread| {
            let store = store.clone();
            std::thread::spawn(move || (0..100u8).try_for_each(|n| store.put(&[thread, n], &[n])))
        })
        .collect();
    for thread in threads {
        thread.join().expect("no panic").expect("puts");
    }
    let store: Arc<dyn Store> = store.into_store();
    assert_eq!(store.scan(&ScanRange::prefix(&[2])).expect("scan").count(), 100);
    assert_eq!(store.len().expect("len"), 400);
}

#[cfg(feature = "hikv")]
#[test]
fn a_walk_outlives_the_handle() {
    let (_dir, path) = scratch_path();
    let store = Lodestore::create(&path, &small()).expect("a new store");
    (0..1000u32).try_for_each(|n| store.put(format!("{n:04}").as_bytes(), b"v")).expect("puts");
    let mut walk = store.scan(&ScanRange::all()).expect("scan");
    assert!(walk.next().is_some_and(|first| first.is_ok()));
    drop(store);
    let rest = std::thread::spawn(move || walk.filter_map(|entry| entry.ok()).count());
    assert_eq!(rest.join().expect("no panic"), 999);
}

#[cfg(all(feature = "hikv", feature = "nvht"))]
#[test]
fn a_path_without_an_openable_store_is_refused_by_kind() {
    let (dir, path) = scratch_path();
    let open = |options: &OpenOptions| lodestore::store::open(&path, options).map(drop);
    assert!(matches!(open(&OpenOptions::new()), Err(Error::Missing { .. })));
    assert!(matches!(lodestore::store::open(dir.path(), &OpenOptions::new()), Err(Error::Missing { .. })));
    let store = lodestore::store::create(&path, &small()).expect("a new store");
    assert!(matches!(open(&OpenOptions::new()), Err(Error::Locked { .. })));
    assert!(matches!(lodestore::store::create(&path, &small()), Err(Error::Exists { .. })));
    store.close().expect("a clean stop");
    drop(store);
    match open(&OpenOptions::new().engine("nvht")) {
        Err(Error::WrongEngine { found, asked }) => assert_eq!((found.as_str(), asked.as_str()), ("hikv", "nvht")),
        other => panic!("{other:?}"),
    }
    assert!(matches!(open(&OpenOptions::new().set("frob", "1")), Err(Error::InvalidOption { .. })));
    open(&OpenOptions::new()).expect("nothing was changed");
}

#[cfg(feature = "hikv")]
#[test]
fn unknown_options_are_refused_and_create_nothing() {
    let (_dir, path) = scratch_path();
    for options in [
        small().engine("frob"),
        small().set("frob", "1"),
        small().set("prefault", "sometimes"),
        small().set("region", "lots"),
        small().set("huge-pages", "2"),
        small().set("persist-per", "year"),
        small().set("read-ns", "-1"),
        small().set("backends", "many"),
    ] {
        assert!(matches!(lodestore::store::create(&path, &options), Err(Error::InvalidOption { .. })));
        assert!(!path.exists());
    }
    assert!(small().set_text("no equals sign").is_err());
    let interval = small().durability(Durability::Interval(std::time::Duration::from_millis(10)));
    assert!(matches!(lodestore::store::create(&path, &interval), Err(Error::Unsupported { .. })));
}

#[test]
fn every_option_accepts_its_own_default() {
    for engine in lodestore::engines() {
        let (_dir, path) = scratch_path();
        let mut options = small().engine(engine.name);
        // These defaults are words for values of the machine or of chance.
        for spec in engine.options().iter().filter(|spec| !matches!(spec.default, "random" | "cores")) {
            options = options.set(spec.name, spec.default);
            assert!(!spec.help.is_empty() && !spec.help.contains('\n'), "{}", spec.name);
        }
        let store = lodestore::store::create(&path, &options).expect("the defaults are taken");
        assert_eq!(store.engine(), engine.name);
    }
}

#[test]
fn events_reach_their_sink() {
    if lodestore::engines().is_empty() {
        return;
    }
    let (_dir, path) = scratch_path();
    let store = lodestore::store::create(&path, &small()).expect("a new store");
    store.wait_recovered().and_then(|()| store.close()).expect("a clean stop");
    drop(store);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&seen);
    let options = OpenOptions::new().events(Arc::new(move |event| sink.lock().expect("no panic").push(event.clone())));
    let store = lodestore::store::open(&path, &options).expect("opens");
    store.wait_recovered().expect("recovers");
    assert!(seen.lock().expect("no panic").iter().any(|event| matches!(event, Event::Opened { clean: true, .. })));
}

#[cfg(feature = "hikv")]
#[test]
fn doctor_reads_the_header_of_a_store_without_opening_it() {
    let (_dir, path) = scratch_path();
    let before = lodestore::medium::doctor(&path).expect("a diagnosis");
    assert!(before.store.is_none() && before.medium.free_bytes > 0);
    let store = lodestore::store::create(&path, &small()).expect("a new store");
    let found = lodestore::medium::doctor(&path).expect("a diagnosis").store.expect("a store").expect("a header");
    assert_eq!((found.engine.as_str(), found.capacity, found.clean), ("hikv", 32 << 20, false));
    store.wait_recovered().and_then(|()| store.close()).expect("a clean stop");
    drop(store);
    assert!(lodestore::medium::doctor(&path).expect("a diagnosis").store.expect("a store").expect("a header").clean);
}
