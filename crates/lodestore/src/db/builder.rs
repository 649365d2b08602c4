//! The settings of a store before it is opened or created.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lodestore_contract::{Durability, Error, EventSink, Options, Result};

use super::open::choice_of;
use super::{Choice, Db, Engine};
use crate::choice::file::{self, is_same_value};
use crate::engines::{self, EngineInfo};
use crate::options::{CreateOptions, DEFAULT_SIZE, OpenOptions, PoolSettings};

/// The longest wait for another process that is creating the store.
const CREATION_TIMEOUT: Duration = Duration::from_secs(2);
/// The pause between two checks of it.
const CREATION_PAUSE: Duration = Duration::from_millis(5);
/// The number of further checks of a directory that is not empty and holds no store: another
/// process may have created the store between two checks, or may be probing the medium with a file.
const NOT_EMPTY_CHECKS_MAX: u32 = 20;

/// Fixed options that an administrator may change later, by adding a group or replacing a device.
const CHANGEABLE: [&str; 2] = ["groups", "paths"];
/// The option of a sweep of expired keys, which writes.
const SWEEP_OPTION: &str = "sweep-ms";

/// The settings of a store before it is opened or created.
///
/// Options are typed ([`Self::engine`], [`Self::pool`]) or texts ([`Self::set`]). A text replaces
/// the typed option of the same name.
///
/// ```
/// # fn main() -> lodestore::Result<()> {
/// # let dir = lodestore_contract::testing::Scratch::on_disk();
/// # let path = dir.path().join("state");
/// use lodestore::Db;
/// use lodestore::options::{HikvSettings, PoolSettings};
///
/// let db = Db::builder(&path)
///     .engine(HikvSettings::new().partitions(8).scrub_rate(0))
///     .pool(&PoolSettings::new().region_bytes(8 << 20))
///     .capacity(64 << 20)
///     .open()?;
/// println!("{}", db.choice());
/// # Ok(())
/// # }
/// ```
///
/// # Fixed options
/// An option that is fixed when a store is created must have the store's own value at a later open,
/// or be left out. Another value is refused with [`Error::InvalidOption`], which names the store's
/// value. The store's file `CHOICE` has the values; without it they are not compared. `groups` and
/// `paths` of a matrix are not compared either, since groups and devices may change. The capacity
/// is not compared.
#[derive(Clone)]
#[must_use = "a builder does nothing until it is opened"]
pub struct Builder {
    path: PathBuf,
    engine: Engine,
    capacity: u64,
    durability: Option<Durability>,
    creates: bool,
    salvages: bool,
    reads_only: bool,
    /// Typed options, as text.
    typed: Options,
    set: Options,
    events: Option<EventSink>,
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Builder");
        shown.field("path", &self.path).field("engine", &self.engine).field("capacity", &self.capacity);
        shown.field("durability", &self.durability).field("create", &self.creates).field("salvage", &self.salvages);
        shown.field("read_only", &self.reads_only).field("typed", &self.typed).field("set", &self.set);
        shown.field("has_events", &self.events.is_some()).finish()
    }
}

impl Builder {
    pub(super) fn new(path: &Path) -> Self {
        Self {
            path: path.into(),
            engine: Engine::Auto,
            capacity: DEFAULT_SIZE,
            durability: None,
            creates: true,
            salvages: false,
            reads_only: false,
            typed: Options::new(),
            set: Options::new(),
            events: None,
        }
    }

    /// Sets the engine of a new store, and its options: [`Engine::hikv()`], or the engine's typed
    /// options ([`HikvSettings`](crate::options::HikvSettings)). A store that another engine made
    /// is refused.
    pub fn engine(mut self, engine: impl Into<Engine>) -> Self {
        self.engine = engine.into();
        self
    }

    /// Sets the engine of the devices of a matrix ([`Engine::Mkvs`]), and its options. Other
    /// engines than `mkvs` refuse it.
    pub fn device_engine(mut self, engine: impl Into<Engine>) -> Self {
        let engine = engine.into();
        if let (Some(name), Some(options)) = (engine.name(), engine.options()) {
            self.typed.set("device-engine", name);
            for (name, value) in options.iter() {
                self.typed.set(format!("device.{name}"), value);
            }
        }
        self
    }

    /// Sets options of the pool under the engine.
    pub fn pool(mut self, pool: &PoolSettings) -> Self {
        self.typed.set_all(pool.options());
        self
    }

    /// Sets the maximum bytes of a new store on its medium; 8 GiB by default.
    pub fn capacity(mut self, bytes: u64) -> Self {
        self.capacity = bytes;
        self
    }

    /// Sets what an acknowledged write survives. An existing store keeps its durability, or is
    /// raised to this one permanently. A lower one is refused.
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = Some(durability);
        self
    }

    /// Sets whether a store that does not exist is created; by default it is.
    pub fn create(mut self, creates: bool) -> Self {
        self.creates = creates;
        self
    }

    /// Sets whether a damaged store is opened with its whole parts; by default it is refused.
    pub fn salvage(mut self, salvages: bool) -> Self {
        self.salvages = salvages;
        self
    }

    /// Sets whether the handle refuses all writes; by default it does not. With `true`, every
    /// write, [`Db::sync`], [`Db::settle`] and the drop of a keyspace answer [`Error::ReadOnly`].
    /// No store is created, and no keyspace: a missing one is [`Error::KeyspaceMissing`].
    ///
    /// The store's files still change. The open acquires the store's lock, marks the store as in
    /// use, and runs the recovery that is due after a crash. Background work continues, such as the
    /// compaction of `fluidkv`; expired keys are not swept. The close marks the store as clean.
    pub fn read_only(mut self, reads_only: bool) -> Self {
        self.reads_only = reads_only;
        self
    }

    /// Sets an option of the engine or of the pool by its name and text;
    /// [`EngineInfo::options`] lists them.
    pub fn set(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.set.set(name, value);
        self
    }

    /// Sets the receiver of the store's events.
    pub fn events(mut self, sink: EventSink) -> Self {
        self.events = Some(sink);
        self
    }

    /// Opens the store, or creates it if there is none. Of two processes that create the same store
    /// one creates it; the other one finds it in use.
    ///
    /// # Errors
    /// Errors of [`open`](crate::store::open) and [`create`](crate::store::create);
    /// [`Error::Missing`] if there is no store and none may be created; [`Error::InvalidOption`]
    /// if a fixed option differs from the store's; [`Error::ReadOnly`] if a read-only handle would
    /// raise the durability.
    pub fn open(&self) -> Result<Db> {
        let (begun, mut not_empty_checks) = (Instant::now(), 0);
        loop {
            match self.open_existing() {
                Err(Error::Missing { .. }) if self.creates && !self.reads_only => {}
                opened => return opened,
            }
            match self.create_new() {
                Err(Error::Exists { .. }) if not_empty_checks < NOT_EMPTY_CHECKS_MAX => not_empty_checks += 1,
                // Another process is creating it now.
                Err(Error::Locked { .. }) if begun.elapsed() < CREATION_TIMEOUT => {}
                created => return created,
            }
            std::thread::sleep(CREATION_PAUSE);
        }
    }

    /// Returns all set options as text.
    fn options(&self) -> Options {
        let mut all = self.engine.options().cloned().unwrap_or_default();
        all.set_all(&self.typed).set_all(&self.set);
        all
    }

    fn open_existing(&self) -> Result<Db> {
        let engine = engines::of_store(&self.path, self.engine.name())?;
        let record = file::read(&self.path);
        let created_with = record.as_ref().map(|record| &record.set);
        let options = OpenOptions {
            engine: Some(engine.name.into()),
            durability: None,
            salvage: self.salvages,
            set: self.set_for_open(engine, created_with)?,
            events: self.events.clone(),
        };
        let store = crate::store::open(&self.path, &options)?.into_store();
        let store = match self.durability.filter(|asked| !store.stats().durability.covers(*asked)) {
            None => store,
            Some(_) if self.reads_only => {
                store.close()?;
                return Err(Error::ReadOnly);
            }
            Some(asked) => {
                store.close()?;
                drop(store);
                crate::store::open(&self.path, &options.durability(asked))?.into_store()
            }
        };
        let choice = choice_of(&*store, record.map(|record| record.choice.reason));
        Ok(if self.reads_only { Db::of_read_only(store, choice) } else { Db::of(store, choice) })
    }

    /// Removes the options that shape a store, because an existing store has its shape.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`] if such an option differs from the value that the store was created
    /// with, which is its default if the creation did not set it.
    fn set_for_open(&self, engine: &EngineInfo, created_with: Option<&Options>) -> Result<Options> {
        let mut set = Options::new();
        if self.reads_only && engine.takes(SWEEP_OPTION) {
            set.set(SWEEP_OPTION, "0");
        }
        for (name, value) in self.options().iter() {
            let fixed = engine.options().iter().find(|spec| spec.name == name && spec.fixed);
            let Some(spec) = fixed else {
                set.set(name, value);
                continue;
            };
            let Some(created_with) = created_with.filter(|_| !CHANGEABLE.contains(&name)) else { continue };
            let own = created_with.get(name).unwrap_or(spec.default);
            if !is_same_value(own, value) {
                let why = format!(
                    "the store was created with {own}, and the option is fixed at creation: leave it out, or create \
                     a new store with this value"
                );
                return Err(Error::InvalidOption { name: name.into(), value: value.into(), why });
            }
        }
        Ok(set)
    }

    fn create_new(&self) -> Result<Db> {
        let choice = Choice::for_new(&self.path, self.engine.name(), self.durability)?;
        let options = CreateOptions {
            engine: choice.engine.into(),
            size: self.capacity,
            durability: Some(choice.durability),
            reason: Some(choice.reason.clone()),
            set: self.options(),
            events: self.events.clone(),
            ..CreateOptions::new()
        };
        let store = crate::store::create(&self.path, &options)?.into_store();
        Ok(Db::of(store, choice))
    }
}
