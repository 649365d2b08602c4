//! The stores of the tests, and the raw records in them.

use std::path::Path;

use lodestore::Db;
use lodestore::db::{Builder, Engine};
use lodestore::options::OpenOptions;
use lodestore::store::{Lodestore, Visit};
use lodestore_contract::testing::Scratch;

/// An engine with its options.
pub struct Setup {
    pub engine: Engine,
    pub options: &'static [(&'static str, &'static str)],
    pub has_order: bool,
    pub has_batches: bool,
}

pub const ALL: &[Setup] = &[
    #[cfg(feature = "hikv")]
    Setup { engine: Engine::hikv(), options: &[], has_order: true, has_batches: true },
    #[cfg(feature = "nvht")]
    Setup { engine: Engine::nvht(), options: &[], has_order: false, has_batches: true },
    #[cfg(feature = "fluidkv")]
    Setup { engine: Engine::fluidkv(), options: &[], has_order: true, has_batches: true },
    #[cfg(feature = "hashkv")]
    Setup { engine: Engine::hashkv(), options: &[], has_order: true, has_batches: true },
    #[cfg(all(feature = "mkvs", feature = "hikv"))]
    Setup { engine: Engine::mkvs(), options: &[("devices", "2")], has_order: true, has_batches: false },
    #[cfg(feature = "mkvs")]
    Setup {
        engine: Engine::mkvs(),
        options: &[("devices", "2"), ("device-engine", "nvht")],
        has_order: false,
        has_batches: false,
    },
];

impl Setup {
    pub fn name(&self) -> String {
        format!("{:?} {:?}", self.engine, self.options)
    }

    pub fn builder(&self, path: &Path) -> Builder {
        let size = if self.engine.name() == Some("mkvs") { 256 << 20 } else { 64 << 20 };
        let builder = Db::builder(path).engine(self.engine.clone()).capacity(size);
        self.options.iter().fold(builder, |builder, (name, value)| builder.set(*name, *value))
    }

    pub fn open(&self, path: &Path) -> Db {
        self.builder(path).open().unwrap_or_else(|error| panic!("{}: {error}", self.name()))
    }
}

/// Calls `test` with every engine and a path without a store, in memory and on disk.
pub fn each(test: impl Fn(&Setup, &Path)) {
    for setup in ALL {
        for dir in [Scratch::new(), Scratch::on_disk()] {
            test(setup, &dir.store());
        }
    }
}

/// Returns the engine's records of a closed store.
pub fn raw(path: &Path) -> Vec<(Vec<u8>, Vec<u8>)> {
    with_raw(path, |store| {
        let mut records = Vec::new();
        store
            .for_each(&mut |key, value| {
                records.push((key.to_vec(), value.to_vec()));
                Visit::More
            })
            .expect("a walk");
        records.sort();
        records
    })
}

/// Calls `work` with a closed store, without keyspaces.
pub fn with_raw<T>(path: &Path, work: impl FnOnce(&Lodestore) -> T) -> T {
    let store = lodestore::store::open(path, &OpenOptions::new()).expect("opens");
    store.wait_recovered().expect("recovers");
    let outcome = work(&store);
    store.close().expect("a clean stop");
    outcome
}

/// Returns the ids of all records of named keyspaces. All ids of a test fit into one byte.
pub fn raw_ids(path: &Path) -> Vec<u8> {
    let mut ids: Vec<u8> = raw(path)
        .iter()
        .filter_map(|(key, _)| key.strip_prefix(b"\xff\xff").map(|rest| rest[0]))
        .filter(|id| *id >= 2)
        .collect();
    ids.dedup();
    ids
}

/// The stored key of the header of the catalogue.
pub const HEADER: &[u8] = b"\xff\xff\0\0";

/// The stored key of a slot of the catalogue.
pub fn slot(number: u8) -> Vec<u8> {
    [b"\xff\xff\0\x01", &[number, 0, 0, 0][..]].concat()
}
