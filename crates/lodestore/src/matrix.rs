//! The stores of a matrix of devices (`mkvs`): directories, each with a store of another engine.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lodestore_contract::{Error, OptionSpec, OptionTable, Options, Result, Store};
use lodestore_media::{HeaderSummary, MediumKind, Pool, PoolOptions, probe};
use lodestore_mkvs::{
    MatrixStatus, Mkvs, MkvsOptions, New, OpenMode, Part, Place, Places, Relay, Replaced, explain_host,
};

use crate::built;
use crate::engines::{self, EngineInfo};
use crate::handle::Lodestore;
use crate::made::{self, CreatedStores};
use crate::options::OpenOptions;
use crate::trace;

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

/// Returns the header of the store at `path`; of a matrix, that of its host's store.
///
/// # Errors
///
/// As [`Pool::inspect`].
pub(crate) fn inspect(path: &Path) -> Result<HeaderSummary> {
    match Pool::inspect(path) {
        Err(missing @ Error::Missing { .. }) => match Pool::inspect(&path.join(Part::Host.directory())) {
            Ok(host) => Ok(HeaderSummary { engine: lodestore_mkvs::ENGINE.into(), ..host }),
            // Leftovers of an interrupted creation do not block the next one.
            Err(Error::Missing { .. }) if lodestore_mkvs::may_create_in(path).unwrap_or(false) => {
                Err(lost_host_error(path).unwrap_or_else(|| Error::missing(path)))
            }
            Err(Error::Missing { .. }) => Err(lost_host_error(path).unwrap_or(missing)),
            Err(error) => Err(explain_host(path, error)),
        },
        found => found,
    }
}

/// Returns the error of a matrix whose host is missing while the store of its first device is here.
/// `None` if there is no such store, or a creation was interrupted.
fn lost_host_error(path: &Path) -> Option<Error> {
    let device = lodestore_mkvs::first_device(path).join(Part::Device.directory());
    Pool::inspect(&device).ok()?;
    // The leftover of an interrupted creation is no matrix yet.
    if lodestore_mkvs::may_create_in(path).unwrap_or(false) {
        return None;
    }
    let host = path.join(Part::Host.directory());
    Some(explain_host(
        path,
        Error::corrupt(host.display().to_string(), "the matrix's own store is missing: put it back"),
    ))
}

/// Stores of engines in directories.
struct Stores {
    engine: &'static EngineInfo,
    pool: PoolOptions,
    /// The engine's own options.
    set: Options,
    created: Mutex<CreatedStores>,
}

impl Stores {
    /// Returns the options of the devices, and the rest of `set`, which is for the matrix itself.
    fn of(pool: &PoolOptions, set: &Options) -> Result<(Self, Options)> {
        let mut options = DeviceOptions { engine: default_engine().into() };
        options.read_from(set)?;
        let name = options.engine;
        let engine = engines::by_name(&name)?;
        if engine.name == lodestore_mkvs::ENGINE {
            return Err(Error::InvalidOption {
                name: ENGINE_OPTION.into(),
                value: name,
                why: "a device is no matrix: give another engine".into(),
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
                let engine = if engine.is_empty() { self.engine } else { engines::by_name(engine)? };
                self.set.check_names(engine.name, engine.options())?;
                Ok((engine, pool, self.set.clone()))
            }
            Part::Log | Part::Host => {
                pool.first_bytes = None;
                pool.region_bytes =
                    pool.region_bytes.min(if part == Part::Log { LOG_REGION_BYTES } else { HOST_REGION_BYTES });
                let mut set = Options::new();
                set.set("partitions", "1").set("initial-capacity", "1024");
                Ok((engines::by_name(LOG_ENGINE)?, pool, set))
            }
        }
    }
}

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

fn open_with_stores(path: &Path, mut pool: PoolOptions, set: &Options) -> Result<(Mkvs, Stores)> {
    let (_, own) = Stores::of(&pool, set)?;
    let options = mkvs_options(&mut pool, &own)?;
    let (stores, _) = Stores::of(&pool, set)?;
    Ok((Mkvs::open(path, &options, &stores)?, stores))
}

/// An open matrix of devices (engine `mkvs`), and its administration. The matrix serves through
/// [`store`](Self::store) while devices are replaced and groups are added.
pub struct Matrix {
    mkvs: Arc<Mkvs>,
    path: PathBuf,
    stores: Stores,
}

impl fmt::Debug for Matrix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Matrix").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Matrix {
    /// Opens the matrix in the directory `path`.
    ///
    /// # Errors
    ///
    /// As [`open`](crate::store::open); [`Error::WrongEngine`] if the store there is no matrix.
    pub fn open(path: impl AsRef<Path>, options: &OpenOptions) -> Result<Self> {
        let path = path.as_ref();
        let engine = engines::of_store(path, Some(lodestore_mkvs::ENGINE))?;
        trace::open(path, options, |options| {
            let (pool, set) = engine.open_options(options)?;
            let (mkvs, stores) = open_with_stores(path, pool, &set)?;
            Ok(Self { mkvs: Arc::new(mkvs), path: path.into(), stores })
        })
    }

    /// Returns the description of the matrix in the directory `path`, with its missing devices. No
    /// store is opened, so this works also for a matrix whose open is refused. Numbers that only an
    /// open matrix has are 0.
    ///
    /// # Errors
    ///
    /// Errors of the open of the matrix's own store: [`Error::Locked`] if a program has the matrix
    /// open.
    pub fn describe(path: impl AsRef<Path>, options: &OpenOptions) -> Result<MatrixStatus> {
        let path = path.as_ref();
        let engine = engines::of_store(path, Some(lodestore_mkvs::ENGINE))?;
        let (pool, set) = engine.open_options(options)?;
        let (stores, _) = Stores::of(&pool, &set)?;
        let inspect_part = |directory: &Path, part: Part| Pool::inspect(&directory.join(part.directory())).map(drop);
        lodestore_mkvs::describe(path, &stores, &inspect_part)
    }

    /// Returns the matrix as a store.
    pub fn store(&self) -> Lodestore {
        Lodestore::of(Arc::clone(&self.mkvs) as Arc<dyn Store>)
    }

    /// Returns the matrix as a borrowed store.
    #[cfg(feature = "tracing")]
    pub(crate) fn borrow_store(&self) -> &dyn Store {
        &*self.mkvs
    }

    /// Returns the state of its groups and devices.
    pub fn status(&self) -> MatrixStatus {
        self.mkvs.status()
    }

    /// Replaces device `device` of group `group` (both from 0) by a new device in `directory`. A
    /// background thread copies the new device from the others. The directory of the old device
    /// stays unchanged.
    ///
    /// In a salvage this accepts, for the group, the loss of unreadable data. The result names the
    /// loss, and the mark of an earlier salvage is removed from the group.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`] if there is no such device; [`Error::Unsupported`] if its group has
    /// no other device; [`Error::TooFewDevices`] if the others are too few for writes; as
    /// [`create`](crate::store::create) for the new device.
    pub fn replace(&self, group: usize, device: usize, directory: impl AsRef<Path>) -> Result<Replaced> {
        self.mkvs.replace(group, device, directory.as_ref(), &self.path, &self.stores)
    }

    /// Adds a group of new devices in these directories, or below the matrix's own without any.
    /// With N groups then, a background thread moves one key in N to the new one.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] while keys are moving to another new group; [`Error::InvalidOption`];
    /// as [`create`](crate::store::create) for the devices.
    pub fn add_group(&self, directories: &[PathBuf]) -> Result<()> {
        self.mkvs.add_group(directories, &self.path, &self.stores)
    }

    /// Waits at most `patience` until every device has all pairs of its group, and every key is in
    /// its group.
    ///
    /// # Errors
    /// [`Error::Unfinished`].
    pub fn wait_whole(&self, patience: Duration) -> Result<()> {
        self.mkvs.wait_whole(patience)
    }

    /// Waits at most `patience` until device `device` of group `group` (both from 0) is active. The
    /// state of other devices does not matter.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] if there is no such device; [`Error::Unfinished`], also if the
    /// device failed; [`Error::TooFewDevices`] if its group has no device to copy it from.
    pub fn wait_device(&self, group: usize, device: usize, patience: Duration) -> Result<()> {
        self.mkvs.wait_device(group, device, patience)
    }

    /// Waits at most `patience` until the newest group has all of its keys. Devices that the move
    /// does not need may fail meanwhile.
    ///
    /// # Errors
    ///
    /// [`Error::Unfinished`]; [`Error::TooFewDevices`] if a group has fewer devices than a write
    /// needs; [`Error::Corrupt`] if all pairs are moved except those that no device can read.
    pub fn wait_moved(&self, patience: Duration) -> Result<()> {
        self.mkvs.wait_moved(patience)
    }
}
