//! What a caller may ask when a store is made or opened.

use lodestore_contract::{Durability, EventSink, Options, Result};

/// The engine of a store that names none.
pub const DEFAULT_ENGINE: &str = "hikv";
/// The capacity of a store that names none, in bytes: 8 GiB.
pub const DEFAULT_SIZE: u64 = 8 << 30;

/// How a store is made. What is not set takes its default.
#[derive(Clone)]
pub struct CreateOptions {
    pub(crate) engine: String,
    pub(crate) size: u64,
    pub(crate) durability: Durability,
    pub(crate) emulate_dax: bool,
    pub(crate) persist_ns: u64,
    pub(crate) set: Options,
    pub(crate) events: Option<EventSink>,
}

impl Default for CreateOptions {
    fn default() -> Self {
        Self {
            engine: DEFAULT_ENGINE.into(),
            size: DEFAULT_SIZE,
            durability: Durability::Process,
            emulate_dax: false,
            persist_ns: 0,
            set: Options::new(),
            events: None,
        }
    }
}

impl CreateOptions {
    /// The defaults: engine `hikv`, 8 GiB, durability `process`.
    pub fn new() -> Self {
        Self::default()
    }

    /// The engine, by name; [`engines`](crate::engines) lists them.
    #[must_use]
    pub fn engine(mut self, name: impl Into<String>) -> Self {
        self.engine = name.into();
        self
    }

    /// Most bytes that the store may take on its medium. It begins smaller and grows.
    #[must_use]
    pub fn size(mut self, bytes: u64) -> Self {
        self.size = bytes;
        self
    }

    /// What an acknowledged write survives.
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Treat the mapping as DAX whatever it is, so that every flush and fence is executed. For measurements.
    #[must_use]
    pub fn emulate_dax(mut self, emulate: bool) -> Self {
        self.emulate_dax = emulate;
        self
    }

    /// Nanoseconds to wait after each fence that persists something, as slower memory would. For measurements.
    #[must_use]
    pub fn persist_ns(mut self, nanos: u64) -> Self {
        self.persist_ns = nanos;
        self
    }

    /// Sets an option of the engine or of its pool; [`Engine::options`](crate::Engine::options) lists them.
    #[must_use]
    pub fn set(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.set.set(name, value);
        self
    }

    /// The same from one text, `name=value`.
    ///
    /// # Errors
    /// [`Error::InvalidOption`](crate::Error::InvalidOption) where it has no such form.
    pub fn set_text(mut self, text: &str) -> Result<Self> {
        self.set.set_text(text)?;
        Ok(self)
    }

    /// Receives what happens inside the store.
    #[must_use]
    pub fn events(mut self, sink: EventSink) -> Self {
        self.events = Some(sink);
        self
    }
}

/// How a store is opened. What was fixed when it was made (size, durability, emulation) comes from the store; its durability may be raised.
#[derive(Clone, Default)]
pub struct OpenOptions {
    pub(crate) engine: Option<String>,
    pub(crate) durability: Option<Durability>,
    pub(crate) persist_ns: u64,
    pub(crate) salvage: bool,
    pub(crate) set: Options,
    pub(crate) events: Option<EventSink>,
}

impl OpenOptions {
    /// The defaults: whichever engine made the store.
    pub fn new() -> Self {
        Self::default()
    }

    /// Refuses the store unless this engine made it.
    #[must_use]
    pub fn engine(mut self, name: impl Into<String>) -> Self {
        self.engine = Some(name.into());
        self
    }

    /// Raises the store's durability to this, for good; the store must have been stopped cleanly. Its own changes nothing; a lower one is refused.
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = Some(durability);
        self
    }

    /// As [`CreateOptions::persist_ns`].
    #[must_use]
    pub fn persist_ns(mut self, nanos: u64) -> Self {
        self.persist_ns = nanos;
        self
    }

    /// Accepts a store of durability `process` under which the machine restarted, and keeps
    /// of it what is whole. Without it such a store is refused.
    #[must_use]
    pub fn salvage(mut self, salvage: bool) -> Self {
        self.salvage = salvage;
        self
    }

    /// As [`CreateOptions::set`].
    #[must_use]
    pub fn set(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.set.set(name, value);
        self
    }

    /// As [`CreateOptions::set_text`].
    ///
    /// # Errors
    /// As [`CreateOptions::set_text`].
    pub fn set_text(mut self, text: &str) -> Result<Self> {
        self.set.set_text(text)?;
        Ok(self)
    }

    /// As [`CreateOptions::events`].
    #[must_use]
    pub fn events(mut self, sink: EventSink) -> Self {
        self.events = Some(sink);
        self
    }
}
