//! The stores of a matrix of devices (`mkvs`): directories, each with a store of another engine.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use lodestore_contract::{Error, OptionSpec, OptionTable, Options, Result, Store};
use lodestore_media::{MediumKind, Pool, PoolOptions, probe};
use lodestore_mkvs::{Mkvs, MkvsOptions, New, OpenMode, Part, Place, Places, Relay};

use super::{EngineInfo, by_name};
use crate::built;
use crate::header::inspect;
use crate::made::{self, CreatedStores};

/// The prefix of names of options for the devices' engine.
const DEVICE_OPTION_PREFIX: &str = "device.";
/// The option that names this engine.
const ENGINE_OPTION: &str = "device-engine";
/// The engine of operation logs, and of the host's own store.
const LOG_ENGINE: &str = "nvht";
/// Bytes of a region of an operation log.
const LOG_REGION_BYTES: u64 = 16 << 20;
/// Bytes of a region of the host's store.
const HOST_REGION_BYTES: u64 = 1 << 20;

lodestore_contract::options! {
    /// The options of devices, besides the matrix's own.
    pub struct DeviceOptions {}

    /// Options of devices that were set.
    pub settings DeviceSettings {
        /// Engine of the devices' stores. Its options are set as device.NAME=VALUE.
        fixed engine: String = "hikv", text("hikv, fluidkv, hashkv or nvht"), as "device-engine";
    }
}

/// The options by name, for `Builder::set`.
pub(crate) const SPECS: &[OptionSpec] = DeviceOptions::SPECS;

/// Returns the engine of devices whose options name none: `hikv`, if it is compiled in.
fn default_engine() -> &'static str {
    built::first_built(&["hikv", LOG_ENGINE])
}

/// Whether this is the name of an option for the devices' engine.
pub(crate) fn is_device_option(name: &str) -> bool {
    name.starts_with(DEVICE_OPTION_PREFIX)
}

/// Stores of engines in directories.
pub(crate) struct Stores {
    engine: &'static EngineInfo,
    pool: PoolOptions,
    /// The engine's own options.
    set: Options,
    created: Mutex<CreatedStores>,
}

impl Stores {
    /// Returns the options of the devices, and the rest of `set`, which is for the matrix itself.
    pub(crate) fn of(pool: &PoolOptions, set: &Options) -> Result<(Self, Options)> {
        let mut options = DeviceOptions { engine: default_engine().into() };
        options.read_from(set)?;
        let name = options.engine;
        let engine = by_name(&name)?;
        if engine.name == lodestore_mkvs::ENGINE {
            return Err(Error::InvalidOption {
                name: ENGINE_OPTION.into(),
                value: name,
                why: "a device cannot be a matrix: use another engine".into(),
            });
        }
        let (mut own, mut device) = (Options::new(), Options::new());
        for (name, value) in set.iter().filter(|(name, _)| *name != ENGINE_OPTION) {
            match name.strip_prefix(DEVICE_OPTION_PREFIX) {
                Some(name) => device.set(name, value),
                None => own.set(name, value),
            };
        }
        Ok((Self { engine, pool: pool.clone(), set: device, created: Mutex::default() }, own))
    }

    /// Returns the engine, pool and options of a part.
    fn member_options(&self, part: Part, engine: &str) -> Result<(&'static EngineInfo, PoolOptions, Options)> {
        let mut pool = self.pool.clone();
        match part {
            Part::Device => {
                let engine = if engine.is_empty() { self.engine } else { by_name(engine)? };
                self.set.check_names(engine.name, engine.options())?;
                Ok((engine, pool, self.set.clone()))
            }
            Part::Log | Part::Host => {
                pool.first_bytes = None;
                pool.region_bytes =
                    pool.region_bytes.min(if part == Part::Log { LOG_REGION_BYTES } else { HOST_REGION_BYTES });
                let mut set = Options::new();
                set.set("partitions", "1").set("initial-capacity", "1024");
                Ok((by_name(LOG_ENGINE)?, pool, set))
            }
        }
    }
}

/// Returns an open store, and whether its medium is memory.
fn describe_place(path: &Path, store: Arc<dyn Store>) -> Result<Place> {
    let medium = probe(path)?.medium;
    Ok(Place { store, is_memory: matches!(medium, MediumKind::Dax | MediumKind::Shm) })
}

impl Places for Stores {
    fn engines(&self) -> (String, String) {
        (self.engine.name.into(), LOG_ENGINE.into())
    }

    fn has_files(&self) -> bool {
        true
    }

    fn create(&self, directory: &Path, new: New<'_>) -> Result<Place> {
        let New { part, engine, capacity, durability } = new;
        let path = directory.join(part.directory());
        let (engine, pool, set) = self.member_options(part, engine)?;
        let region_bytes = pool.region_bytes.min(capacity);
        let missing = made::missing_directories(&path);
        let store = engine
            .create_member(&path, PoolOptions { capacity, region_bytes, durability, ..pool }, &set)
            .inspect_err(|refused| made::remove_empty_after(refused, &missing))?;
        self.created.lock().unwrap_or_else(PoisonError::into_inner).add(&path, missing);
        describe_place(&path, store).inspect_err(|_| drop(self.remove(directory, part)))
    }

    fn open(&self, directory: &Path, part: Part, engine: &str, mode: OpenMode) -> Result<Place> {
        let path = directory.join(part.directory());
        let (engine, mut pool, mut set) = self.member_options(part, engine)?;
        pool.salvage = mode == OpenMode::Salvage;
        if part != Part::Device {
            // They shaped the store at its creation.
            set = Options::new();
        }
        describe_place(&path, engine.open_member(&path, pool, &set)?)
    }

    fn opening(&self, directory: &Path, part: Part) -> Option<u64> {
        Pool::inspect(&directory.join(part.directory())).ok().map(|header| header.opening)
    }

    fn remove(&self, directory: &Path, part: Part) -> Result<()> {
        let path = directory.join(part.directory());
        let mut created = self.created.lock().unwrap_or_else(PoisonError::into_inner);
        // A store that this process did not create is a leftover of an interrupted creation.
        let removed =
            if created.contains(&path) { created.remove_store(&path) } else { std::fs::remove_dir_all(&path) };
        removed.map_err(|error| Error::io("removing", path, error))
    }
}

/// Returns the matrix's options, from those of a pool and its own.
fn mkvs_options(pool: &mut PoolOptions, set: &Options) -> Result<MkvsOptions> {
    let relay = pool.events.take().map(Relay::new);
    pool.events = relay.as_ref().map(Relay::sink);
    let options = MkvsOptions {
        capacity: pool.capacity,
        durability: pool.raise.unwrap_or(pool.durability),
        salvage: pool.salvage,
        relay,
        ..MkvsOptions::default()
    };
    options.with(set)
}

/// Returns whether a matrix with these options has a key order: that of its devices' engine.
pub(crate) fn keeps_order(set: &Options) -> bool {
    set.get(ENGINE_OPTION).unwrap_or(default_engine()) != lodestore_nvht::ENGINE
}

/// Refuses invalid options of a matrix, or of its devices.
pub(crate) fn check(mut pool: PoolOptions, set: &Options) -> Result<()> {
    let (stores, own) = Stores::of(&pool, set)?;
    mkvs_options(&mut pool, &own)?;
    let (engine, pool, set) = stores.member_options(Part::Device, "")?;
    engine.check_member(pool, &set)
}

/// Creates a matrix.
pub(crate) fn create(path: &Path, mut pool: PoolOptions, set: &Options) -> Result<Arc<dyn Store>> {
    if !lodestore_mkvs::may_create_in(path)? {
        let obstacle = match inspect(path) {
            Err(Error::Missing { obstacle, .. }) => obstacle,
            _ => None,
        };
        return Err(Error::Exists { path: path.into(), obstacle });
    }
    let (_, own) = Stores::of(&pool, set)?;
    let options = mkvs_options(&mut pool, &own)?;
    let (stores, _) = Stores::of(&pool, set)?;
    Ok(Arc::new(Mkvs::create(path, &options, &stores)?))
}

/// Opens a matrix.
pub(crate) fn open(path: &Path, pool: PoolOptions, set: &Options) -> Result<Arc<dyn Store>> {
    let (matrix, _) = open_with_stores(path, pool, set)?;
    Ok(Arc::new(matrix))
}

/// Opens a matrix. Returns it with the stores of its devices.
pub(crate) fn open_with_stores(path: &Path, mut pool: PoolOptions, set: &Options) -> Result<(Mkvs, Stores)> {
    let (_, own) = Stores::of(&pool, set)?;
    let options = mkvs_options(&mut pool, &own)?;
    let (stores, _) = Stores::of(&pool, set)?;
    Ok((Mkvs::open(path, &options, &stores)?, stores))
}
