//! A small store that is damaged at known places, and the rule for its answers.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use lodestore_contract::{Durability, Store, Visit};
use lodestore_media::{PoolOptions, Prefault};
use lodestore_nvht::{HashKind, Nvht, NvhtOptions};

pub const LINE: usize = 64;
pub const PAGE: usize = 4096;
/// Offset of the engine's root area in region 0 (docs/format).
pub const ROOT_AREA: usize = 8192;
/// Offset of the roots of partitions.
pub const ROOTS: usize = ROOT_AREA + 256;

/// The values that keys must have; `None` for a key that was deleted.
pub type Model = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    Clean,
    Kill,
}

pub fn options() -> NvhtOptions {
    NvhtOptions {
        pool: PoolOptions {
            capacity: 512 << 10,
            region_bytes: 256 << 10,
            durability: Durability::Process,
            prefault: Prefault::None,
            ..PoolOptions::default()
        },
        partitions: 1,
        initial_capacity: 14,
        probe_length: 28,
        hash: HashKind::Xxh3,
        hash_seed: Some(5),
        recovery_threads: 0,
        sweep_ms: 0,
        ..NvhtOptions::default()
    }
}

pub fn salvaging() -> NvhtOptions {
    let mut options = options();
    options.pool.salvage = true;
    options
}

pub fn key(index: u32) -> Vec<u8> {
    format!("key{index:05}").into_bytes()
}

pub fn stop(store: Nvht, how: Stop) {
    if how == Stop::Clean {
        store.close().expect("close");
    }
    drop(store);
}

/// The bytes of a store's only region.
pub struct Medium {
    pub file: PathBuf,
    pub bytes: Vec<u8>,
}

impl Medium {
    pub fn of(store: &Path) -> Self {
        let file = store.join("pool.0000");
        let bytes = std::fs::read(&file).expect("readable");
        Self { file, bytes }
    }

    /// Restores the bytes, with a change.
    pub fn write(&self, change: impl FnOnce(&mut [u8])) {
        let mut bytes = self.bytes.clone();
        change(&mut bytes);
        std::fs::write(&self.file, &bytes).expect("writable");
    }

    pub fn word(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.bytes[at..at + 8].try_into().expect("eight bytes"))
    }

    /// Offsets of the words of the table's lines that are not zero.
    pub fn table_words(&self) -> Vec<usize> {
        let root = self.word(ROOTS);
        let (lines_at, doublings) = ((root & !63) as usize + LINE, (root & 63) as u32);
        // Initially two lines, and three lines for probes after the last one.
        let lines = (2 << doublings) + 3;
        (lines_at..lines_at + lines * LINE).step_by(8).filter(|at| self.word(*at) != 0).collect()
    }
}

/// Opens the store and compares everything with the model. Returns whether damage was reported.
pub fn check(path: &Path, model: &Model) -> Result<bool, String> {
    check_any(path, model, &Model::new())
}

/// Compares as [`check`] does, but each key may also have its value in `older`.
pub fn check_any(path: &Path, model: &Model, older: &Model) -> Result<bool, String> {
    let is_older = |key: &[u8], value: &[u8]| older.get(key).is_some_and(|right| right.as_deref() == Some(value));
    let Ok(store) = Nvht::open(path, &options()) else { return Ok(true) };
    let mut reported = store.wait_recovered().is_err();
    for (key, value) in model {
        let name = String::from_utf8_lossy(key);
        match store.get(key) {
            Ok(found) if found == *value => {}
            Ok(Some(found)) if is_older(key, &found) => {}
            Ok(None) => return Err(format!("{name} is absent")),
            Ok(Some(found)) => return Err(format!("{name} is {}", String::from_utf8_lossy(&found))),
            Err(_) => reported = true,
        }
    }
    let mut seen = Model::new();
    let mut wrong = None;
    let walked = store.for_each(&mut |key, value| {
        let name = String::from_utf8_lossy(key).into_owned();
        if seen.insert(key.to_vec(), Some(value.to_vec())).is_some() {
            wrong = Some(format!("for_each shows {name} twice"));
        }
        if model.get(key).is_none_or(|right| right.as_deref() != Some(value)) && !is_older(key, value) {
            wrong = Some(format!("for_each shows a wrong value of {name}"));
        }
        Visit::More
    });
    let live = model.values().flatten().count();
    if wrong.is_none() && walked.is_ok() && seen.len() != live {
        wrong = Some(format!("for_each shows {} of {live} keys without an error", seen.len()));
    }
    reported |= walked.is_err();
    let report = store.verify(&mut |_| ()).map_err(|error| error.to_string())?;
    if wrong.is_none() && reported && report.is_clean() && store.stats().recovery.corrupt == 0 {
        wrong = Some("an error was returned, and verify is clean".into());
    }
    wrong.map_or(Ok(reported || !report.is_clean()), Err)
}

/// Creates a store of 200 keys, of which 67 are put again after a clean stop. Returns the medium of
/// that stop.
pub fn with_keys_put_again(path: &Path, how: Stop) -> (Model, Vec<u8>) {
    let store = Nvht::create(path, &options()).expect("create");
    let mut model = Model::new();
    for index in 0..200 {
        let value = format!("first value {index}").into_bytes();
        store.put(&key(index), &value).expect("put");
        model.insert(key(index), Some(value));
    }
    store.close().expect("close");
    drop(store);
    let older = Medium::of(path).bytes;
    let store = Nvht::open(path, &options()).expect("open");
    for index in (0..200).step_by(3) {
        let value = format!("other value {index}").into_bytes();
        store.put(&key(index), &value).expect("put");
        model.insert(key(index), Some(value));
    }
    stop(store, how);
    (model, older)
}
