//! Matrices of HiKV devices with NVHT logs, for the tests.
#![allow(dead_code, reason = "each test file uses a part of it")]

pub mod faulty;
pub mod switched;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use lodestore_contract::conformance::{Harness, Plan, seed};
pub use lodestore_contract::testing::Scratch;
use lodestore_contract::{Durability, Error, Result, Store};
use lodestore_hikv::{Backends, HiKv, HiKvOptions};
use lodestore_media::{Pool, PoolOptions};
use lodestore_mkvs::{Filtering, Mkvs, MkvsOptions, New, OpenMode, Part, Place, Places};
use lodestore_nvht::{Nvht, NvhtOptions};

/// Wraps a device's store, to make it fail.
pub type Wrap = Arc<dyn Fn(&Path, Part, Arc<dyn Store>) -> Arc<dyn Store> + Send + Sync>;

/// Returns the error of the opening of a store, if it is refused.
pub type Refuse = Arc<dyn Fn(&Path, Part) -> Option<Error> + Send + Sync>;

/// HiKV devices and host, NVHT logs.
#[derive(Clone)]
pub struct Hikvs {
    pub pool: PoolOptions,
    /// Devices answer as fast as memory.
    pub is_memory: bool,
    /// Devices are NVHT stores, which have no key order.
    pub is_unordered: bool,
    pub wrap: Option<Wrap>,
    pub refuse: Option<Refuse>,
    /// As `refuse`, for strict opens only.
    pub refuse_strict: Option<Refuse>,
}

impl Default for Hikvs {
    fn default() -> Self {
        let pool = PoolOptions { region_bytes: 4 << 20, ..PoolOptions::default() };
        Self { pool, is_memory: true, is_unordered: false, wrap: None, refuse: None, refuse_strict: None }
    }
}

impl Hikvs {
    fn hikv(&self) -> HiKvOptions {
        HiKvOptions {
            pool: self.pool.clone(),
            partitions: 4,
            hash_seed: Some(seed()),
            backends: Backends::Fixed(1),
            queues: 4,
            ..HiKvOptions::default()
        }
    }

    fn nvht(&self) -> NvhtOptions {
        NvhtOptions {
            pool: self.pool.clone(),
            partitions: 1,
            initial_capacity: 1024,
            hash_seed: Some(seed()),
            ..NvhtOptions::default()
        }
    }

    fn place(&self, directory: &Path, part: Part, store: Arc<dyn Store>) -> Place {
        let store = match &self.wrap {
            Some(wrap) => wrap(directory, part, store),
            None => store,
        };
        Place { store, is_memory: self.is_memory }
    }
}

impl Places for Hikvs {
    fn engines(&self) -> (String, String) {
        (if self.is_unordered { "nvht" } else { "hikv" }.into(), "nvht".into())
    }

    fn has_files(&self) -> bool {
        true
    }

    fn create(&self, directory: &Path, new: New<'_>) -> Result<Place> {
        let New { part, capacity, .. } = new;
        std::fs::create_dir_all(directory).expect("a device's directory");
        let path = directory.join(part.directory());
        let store: Arc<dyn Store> = if part == Part::Device && !self.is_unordered {
            let mut options = self.hikv();
            options.pool.capacity = capacity;
            Arc::new(HiKv::create(&path, &options)?)
        } else {
            let mut options = self.nvht();
            options.pool.capacity = capacity;
            Arc::new(Nvht::create(&path, &options)?)
        };
        Ok(self.place(directory, part, store))
    }

    fn open(&self, directory: &Path, part: Part, engine: &str, mode: OpenMode) -> Result<Place> {
        let refuse_strict = self.refuse_strict.as_ref().filter(|_| mode == OpenMode::Strict);
        let mut refusals = [self.refuse.as_ref(), refuse_strict].into_iter().flatten();
        if let Some(error) = refusals.find_map(|refuse| refuse(directory, part)) {
            return Err(error);
        }
        let path = directory.join(part.directory());
        let store: Arc<dyn Store> = if part == Part::Device && !self.is_unordered {
            assert_eq!(engine, "hikv");
            let mut options = self.hikv();
            options.pool.salvage = mode == OpenMode::Salvage;
            Arc::new(HiKv::open(&path, &options)?)
        } else {
            let mut options = self.nvht();
            options.pool.salvage = mode == OpenMode::Salvage;
            Arc::new(Nvht::open(&path, &options)?)
        };
        Ok(self.place(directory, part, store))
    }

    fn opening(&self, directory: &Path, part: Part) -> Option<u64> {
        Pool::inspect(&directory.join(part.directory())).ok().map(|header| header.opening)
    }

    fn remove(&self, directory: &Path, part: Part) -> Result<()> {
        let path = directory.join(part.directory());
        std::fs::remove_dir_all(&path).map_err(|error| Error::io("removing", path, error))
    }
}

/// The directory of one matrix, with the options to create and open it.
pub struct Matrix {
    pub scratch: Scratch,
    pub options: MkvsOptions,
    pub places: Hikvs,
    name: &'static str,
    plan: Plan,
}

impl Matrix {
    pub fn new(name: &'static str, groups: usize, devices: usize) -> Self {
        let plan = Plan { keys: 600, thread_ops: 600, model_cases: 16, value_max: 4 << 20, ..Plan::default() };
        // The logs wrap around several times, and the filter is rebuilt.
        let options = MkvsOptions {
            groups,
            devices,
            log_ops: 1024,
            soft_lag: Some(64),
            hard_lag: Some(512),
            log_bytes: 1 << 20,
            filter: Filtering::On,
            filter_keys: 1024,
            hash_seed: Some(seed()),
            ..MkvsOptions::default()
        };
        Self { scratch: Scratch::new(), options, places: Hikvs::default(), name, plan }
    }

    pub fn with(mut self, change: impl FnOnce(&mut MkvsOptions)) -> Self {
        change(&mut self.options);
        self
    }

    pub fn on(mut self, change: impl FnOnce(&mut Hikvs)) -> Self {
        change(&mut self.places);
        self
    }

    pub fn path(&self) -> PathBuf {
        self.scratch.store()
    }

    /// Returns the directory of a device.
    pub fn device(&self, group: usize, device: usize) -> PathBuf {
        self.path().join(format!("group{group}.device{device}"))
    }
}

impl Harness for Matrix {
    type S = Mkvs;

    fn name(&self) -> String {
        format!("mkvs, {}", self.name)
    }

    fn durability(&self) -> Durability {
        self.places.pool.durability
    }

    fn survives_power(&self) -> bool {
        false
    }

    fn plan(&self) -> Plan {
        self.plan
    }

    fn create(&self, capacity: u64) -> Result<Mkvs> {
        // The suite asks for stores of one group's capacity; the groups share it otherwise.
        let options = MkvsOptions { capacity, ..self.options.clone() };
        Mkvs::create(&self.path(), &options, &self.places)
    }

    fn open(&self) -> Result<Mkvs> {
        Mkvs::open(&self.path(), &self.options, &self.places)
    }

    fn clear(&self) {
        match std::fs::remove_dir_all(self.path()) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => panic!("remove the store: {error}"),
            _ => {}
        }
    }

    fn files(&self) -> Vec<String> {
        let mut names = Vec::new();
        let mut directories = vec![self.path()];
        while let Some(directory) = directories.pop() {
            for entry in std::fs::read_dir(&directory).expect("list the store") {
                let entry = entry.expect("list the store");
                if entry.file_type().expect("its type").is_dir() {
                    directories.push(entry.path());
                } else if entry.file_name().to_string_lossy().starts_with("pool.") {
                    let path = entry.path();
                    let name = path.strip_prefix(self.path()).expect("below it");
                    names.push(name.to_str().expect("a plain name").into());
                }
            }
        }
        names.sort();
        names
    }

    fn alter(&self, file: &str, change: &mut dyn FnMut(&mut Vec<u8>)) {
        let path = self.path().join(file);
        let mut bytes = std::fs::read(&path).expect("read a file of the store");
        change(&mut bytes);
        std::fs::write(&path, bytes).expect("write a file of the store");
    }
}
