//! Stores of every engine while the system refuses to start threads. A store continues with its
//! existing threads, or refuses the call with `ThreadRefused`. Nothing hangs, panics, or loses a
//! record.

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use lodestore::Error;
use lodestore::options::{CreateOptions, OpenOptions};
use lodestore::store::Lodestore;
use lodestore_contract::testing::Scratch;
use lodestore_contract::threads::limit_thread_starts;

/// Enough keys for several log segments and several index segments.
const KEYS: u32 = 4000;
/// Numbers of thread starts that are allowed, from none to more than a store of any engine needs.
const STARTS: [usize; 7] = [0, 1, 2, 3, 5, 9, 40];

/// An engine with its options.
struct Setup {
    engine: &'static str,
    options: &'static [(&'static str, &'static str)],
}

const SETUPS: &[Setup] = &[
    #[cfg(feature = "hikv")]
    Setup { engine: "hikv", options: &[] },
    #[cfg(feature = "hikv")]
    Setup { engine: "hikv", options: &[("sweep-ms", "0")] },
    #[cfg(feature = "nvht")]
    Setup { engine: "nvht", options: &[] },
    #[cfg(feature = "nvht")]
    Setup { engine: "nvht", options: &[("sweep-ms", "0")] },
    #[cfg(feature = "fluidkv")]
    Setup { engine: "fluidkv", options: &[("workers", "3")] },
    #[cfg(feature = "hashkv")]
    Setup { engine: "hashkv", options: &[] },
    #[cfg(all(feature = "mkvs", feature = "hikv"))]
    Setup { engine: "mkvs", options: &[("devices", "2")] },
    #[cfg(all(feature = "mkvs", feature = "fluidkv"))]
    Setup { engine: "mkvs", options: &[("devices", "2"), ("device-engine", "fluidkv")] },
];

impl Setup {
    fn create(&self) -> CreateOptions {
        let options = CreateOptions::new().engine(self.engine).size(256 << 20);
        self.options.iter().fold(options, |options, (name, value)| options.set(*name, *value))
    }

    fn name(&self, starts: usize) -> String {
        format!("{} {:?} with {starts} thread starts", self.engine, self.options)
    }
}

fn key(number: u32) -> Vec<u8> {
    format!("key {number:05}").into_bytes()
}

fn fill(store: &Lodestore, version: &[u8]) {
    (0..KEYS).try_for_each(|number| store.put(&key(number), version)).expect("puts");
}

#[track_caller]
fn assert_filled(path: &Path, version: &[u8], name: &str) {
    let store = lodestore::store::open(path, &OpenOptions::new()).expect("opens");
    store.wait_recovered().expect("recovers");
    for number in 0..KEYS {
        assert_eq!(store.get(&key(number)).expect("get").as_deref(), Some(version), "{name}: key {number}");
    }
    store.close().expect("a clean stop");
}

/// Returns whether the call was refused for a thread; it must not fail for another reason.
#[track_caller]
fn is_refused<T>(outcome: &Result<T, Error>, name: &str) -> bool {
    match outcome {
        Ok(_) => false,
        Err(Error::ThreadRefused { .. }) => true,
        Err(error) => panic!("{name}: {error}"),
    }
}

/// Lets one test run at a time: a limit counts the thread starts of the whole process.
fn alone() -> MutexGuard<'static, ()> {
    static RUNNING: Mutex<()> = Mutex::new(());
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn a_creation_without_threads_succeeds_or_is_refused_without_leftovers() {
    let _alone = alone();
    for setup in SETUPS {
        for starts in STARTS {
            let (dir, name) = (Scratch::new(), setup.name(starts));
            let path = dir.store();
            let limit = limit_thread_starts(starts);
            let created = lodestore::store::create(&path, &setup.create());
            if is_refused(&created, &name) {
                assert!(starts < 40, "{name}");
                drop(limit);
                assert!(!path.exists(), "{name}: the refused creation left its directory");
                continue;
            }
            let store = created.expect("a store");
            fill(&store, b"one");
            // As after a kill.
            drop(store);
            drop(limit);
            assert_filled(&path, b"one", &name);
        }
    }
}

#[test]
fn an_open_after_a_kill_without_threads_succeeds_or_is_refused_and_loses_nothing() {
    let _alone = alone();
    for setup in SETUPS {
        let dir = Scratch::new();
        let path = dir.store();
        let store = lodestore::store::create(&path, &setup.create()).expect("a store");
        fill(&store, b"one");
        store.close().expect("a clean stop");
        for starts in STARTS {
            let name = setup.name(starts);
            let store = lodestore::store::open(&path, &OpenOptions::new()).expect("opens");
            fill(&store, name.as_bytes());
            // As after a kill.
            drop(store);
            let limit = limit_thread_starts(starts);
            let opened = lodestore::store::open(&path, &OpenOptions::new());
            if is_refused(&opened, &name) {
                assert!(starts < 40, "{name}");
            } else {
                let store = opened.expect("opens");
                store.wait_recovered().expect("recovers");
                assert_eq!(store.get(&key(7)).expect("get").as_deref(), Some(name.as_bytes()), "{name}");
                store.close().expect("a clean stop");
            }
            drop(limit);
            assert_filled(&path, name.as_bytes(), &name);
        }
    }
}
