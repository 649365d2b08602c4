//! The settings of a store before it is opened or created.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lodestore_contract::{Durability, Error, EventSink, Options, Result};

use super::{Choice, Db, Engine};
use crate::engines;
use crate::options::{CreateOptions, DEFAULT_SIZE, OpenOptions};

/// How long another process that is just creating the store is waited for.
const CREATION_WAIT: Duration = Duration::from_secs(2);
/// The pause between two looks at it.
const CREATION_PAUSE: Duration = Duration::from_millis(5);
/// How often a directory is looked at again that is not empty and holds no store: another process
/// may have created the store between the two looks.
const NOT_EMPTY_LOOKS_MAX: u32 = 3;

/// The settings of a store before it is opened or created.
#[derive(Clone)]
#[must_use = "a builder does nothing until it is opened"]
pub struct Builder {
    path: PathBuf,
    engine: Engine,
    capacity: u64,
    durability: Option<Durability>,
    creates: bool,
    salvages: bool,
    set: Options,
    events: Option<EventSink>,
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
            set: Options::new(),
            events: None,
        }
    }

    /// Sets the engine of a new store. A store that another engine made is refused.
    pub fn engine(mut self, engine: Engine) -> Self {
        self.engine = engine;
        self
    }

    /// Sets the most bytes that a new store may take on its medium; 8 GiB by default.
    pub fn capacity(mut self, bytes: u64) -> Self {
        self.capacity = bytes;
        self
    }

    /// Sets what an acknowledged write survives. A store that exists keeps its durability, or is
    /// raised to this one for good. A lower one is refused.
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = Some(durability);
        self
    }

    /// Sets whether a store that does not exist is created; by default it is.
    pub fn create(mut self, creates: bool) -> Self {
        self.creates = creates;
        self
    }

    /// Sets whether a damaged store is opened with what is whole in it; by default it is refused.
    pub fn salvage(mut self, salvages: bool) -> Self {
        self.salvages = salvages;
        self
    }

    /// Sets an option of the engine by its name and text.
    pub fn set(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.set.set(name, value);
        self
    }

    /// Sets what receives the events of the store.
    pub fn events(mut self, sink: EventSink) -> Self {
        self.events = Some(sink);
        self
    }

    /// Opens the store, or creates it if there is none. Of two processes that create the same store
    /// one creates it; the other one finds it in use.
    ///
    /// # Errors
    /// Those of [`open`](crate::open) and [`create`](crate::create);
    /// [`Error::Missing`] if there is no store and none may be created.
    pub fn open(&self) -> Result<Db> {
        let (begun, mut looks) = (Instant::now(), 0);
        loop {
            match self.open_existing() {
                Err(Error::Missing { .. }) if self.creates => {}
                opened => return opened,
            }
            match self.create_new() {
                Err(Error::Exists { .. }) if looks < NOT_EMPTY_LOOKS_MAX => looks += 1,
                // Another process creates it now.
                Err(Error::Locked { .. }) if begun.elapsed() < CREATION_WAIT => {}
                created => return created,
            }
            std::thread::sleep(CREATION_PAUSE);
        }
    }

    fn open_existing(&self) -> Result<Db> {
        let engine = engines::of_store(&self.path, self.engine.name())?;
        let options = OpenOptions {
            engine: Some(engine.name.into()),
            durability: None,
            salvage: self.salvages,
            set: self.set_for_open(engine),
            events: self.events.clone(),
            ..OpenOptions::new()
        };
        let store = crate::open(&self.path, &options)?.into_store();
        let store = match self.durability.filter(|asked| !store.stats().durability.covers(*asked)) {
            None => store,
            Some(asked) => {
                store.close()?;
                drop(store);
                crate::open(&self.path, &options.durability(asked))?.into_store()
            }
        };
        let choice = Choice {
            engine: store.engine(),
            durability: store.stats().durability,
            reason: "the store was created so".into(),
        };
        Ok(Db::of(store, choice))
    }

    /// Leaves out the options that shape a store: one that exists has its shape.
    fn set_for_open(&self, engine: &engines::Engine) -> Options {
        let mut set = Options::new();
        let is_fixed = |name: &str| engine.options().iter().any(|spec| spec.name == name && spec.fixed);
        for (name, value) in self.set.iter().filter(|(name, _)| !is_fixed(name)) {
            set.set(name, value);
        }
        set
    }

    fn create_new(&self) -> Result<Db> {
        let choice = Choice::for_new(&self.path, self.engine, self.durability)?;
        let options = CreateOptions {
            engine: choice.engine.into(),
            size: self.capacity,
            durability: choice.durability,
            set: self.set.clone(),
            events: self.events.clone(),
            ..CreateOptions::new()
        };
        let store = crate::create(&self.path, &options)?.into_store();
        Ok(Db::of(store, choice))
    }
}
