//! The options of stores: typed options of each engine and of the pool, and the options of
//! [`create`](crate::store::create) and [`open`](crate::store::open).
//!
//! Each option of an engine is declared once. The declaration has the typed setter, the name for
//! texts, the default, the bounds and the help. `docs/options.md` lists all of them.

use std::fmt;

use lodestore_contract::{Durability, EventSink, Result};

pub use lodestore_contract::options::{OptionSpec, OptionTable, Options, options_table};
#[cfg(any(feature = "fluidkv", feature = "hashkv"))]
pub use lodestore_fluidkv::{Compression, FluidkvSettings, VerifyReads};
#[cfg(feature = "hashkv")]
pub use lodestore_hashkv::HashkvSettings;
#[cfg(all(feature = "hashkv", feature = "lab"))]
pub use lodestore_hashkv::Mode;
#[cfg(feature = "hikv")]
pub use lodestore_hikv::{Backends, HikvSettings};
pub use lodestore_media::{PoolSettings, Prefault};
#[cfg(feature = "mkvs")]
pub use lodestore_mkvs::{Acks, Filtering, Inline, MkvsSettings, Reads};
#[cfg(feature = "nvht")]
pub use lodestore_nvht::{HashKind, NvhtSettings};

/// The engine name that leaves the choice to the medium.
pub const AUTO_ENGINE: &str = "auto";
/// The engine of a store that names none: `hikv`, or the first of `nvht`, `fluidkv` and `hashkv` if
/// the build lacks it.
pub const DEFAULT_ENGINE: &str = if cfg!(feature = "hikv") {
    "hikv"
} else if cfg!(feature = "nvht") {
    "nvht"
} else if cfg!(feature = "fluidkv") {
    "fluidkv"
} else if cfg!(feature = "hashkv") {
    "hashkv"
} else {
    "hikv"
};
/// The capacity of a store that names none, in bytes: 8 GiB.
pub const DEFAULT_SIZE: u64 = 8 << 30;

/// The options of a creation, with defaults.
#[derive(Clone)]
pub struct CreateOptions {
    pub(crate) engine: String,
    pub(crate) size: u64,
    /// `None`: as chosen with the engine, or `process` if the engine is named.
    pub(crate) durability: Option<Durability>,
    /// The reason for engine and durability, if the caller chose them by the medium.
    pub(crate) reason: Option<String>,
    pub(crate) emulate_dax: bool,
    pub(crate) set: Options,
    pub(crate) events: Option<EventSink>,
}

impl Default for CreateOptions {
    fn default() -> Self {
        Self {
            engine: DEFAULT_ENGINE.into(),
            size: DEFAULT_SIZE,
            durability: None,
            reason: None,
            emulate_dax: false,
            set: Options::new(),
            events: None,
        }
    }
}

impl fmt::Debug for CreateOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("CreateOptions");
        shown.field("engine", &self.engine).field("size", &self.size).field("durability", &self.durability);
        shown.field("reason", &self.reason).field("emulate_dax", &self.emulate_dax).field("set", &self.set);
        shown.field("has_events", &self.events.is_some()).finish()
    }
}

impl CreateOptions {
    /// Returns the defaults: engine `hikv`, 8 GiB, and the durability by the medium: `process` on
    /// tmpfs, `power` elsewhere ([`Self::choice`]).
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the engine, by name; [`engines`](crate::engines::engines) lists them. `auto`
    /// ([`AUTO_ENGINE`]) leaves the choice to the medium, and the durability too if none is set.
    #[must_use]
    pub fn engine(mut self, name: impl Into<String>) -> Self {
        self.engine = name.into();
        self
    }

    /// Sets the maximum bytes of the store on its medium. The store begins smaller and grows.
    #[must_use]
    pub fn size(mut self, bytes: u64) -> Self {
        self.size = bytes;
        self
    }

    /// Sets what an acknowledged write survives.
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = Some(durability);
        self
    }

    /// Treats the mapping as DAX on any medium, so that every flush and fence is executed. For
    /// measurements.
    #[must_use]
    pub fn emulate_dax(mut self, emulate: bool) -> Self {
        self.emulate_dax = emulate;
        self
    }

    /// Sets nanoseconds to wait after each fence that persists something, to simulate slower
    /// memory. For measurements, in builds with the feature `lab`.
    #[cfg(feature = "lab")]
    #[must_use]
    pub fn persist_ns(self, nanos: u64) -> Self {
        self.set("persist-ns", nanos.to_string())
    }

    /// Sets an option of the engine or of its pool;
    /// [`EngineInfo::options`](crate::engines::EngineInfo::options) lists them.
    #[must_use]
    pub fn set(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.set.set(name, value);
        self
    }

    /// Sets options of the pool under the engine.
    #[must_use]
    pub fn pool(mut self, pool: &PoolSettings) -> Self {
        self.set.set_all(pool.options());
        self
    }

    /// Sets an option by one text, `name=value`.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`](crate::Error::InvalidOption) if it has another form.
    pub fn set_text(mut self, text: &str) -> Result<Self> {
        self.set.set_text(text)?;
        Ok(self)
    }

    /// Sets the receiver of the store's events.
    #[must_use]
    pub fn events(mut self, sink: EventSink) -> Self {
        self.events = Some(sink);
        self
    }
}

/// The options of an open. The store keeps its size, durability and emulation from its creation. An
/// open may raise the durability.
#[derive(Clone, Default)]
pub struct OpenOptions {
    pub(crate) engine: Option<String>,
    pub(crate) durability: Option<Durability>,
    pub(crate) salvage: bool,
    pub(crate) set: Options,
    pub(crate) events: Option<EventSink>,
}

impl fmt::Debug for OpenOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("OpenOptions");
        shown.field("engine", &self.engine).field("durability", &self.durability);
        shown.field("salvage", &self.salvage).field("set", &self.set);
        shown.field("has_events", &self.events.is_some()).finish()
    }
}

impl OpenOptions {
    /// Returns the defaults: any engine.
    pub fn new() -> Self {
        Self::default()
    }

    /// Refuses the store unless this engine made it.
    #[must_use]
    pub fn engine(mut self, name: impl Into<String>) -> Self {
        self.engine = Some(name.into());
        self
    }

    /// Raises the durability of the store permanently. The store must have been stopped cleanly.
    /// The present durability changes nothing, and a lower one is refused.
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = Some(durability);
        self
    }

    /// As [`CreateOptions::persist_ns`].
    #[cfg(feature = "lab")]
    #[must_use]
    pub fn persist_ns(self, nanos: u64) -> Self {
        self.set("persist-ns", nanos.to_string())
    }

    /// Accepts a store of durability `process` under which the machine restarted, and keeps its
    /// whole parts. Without this such a store is refused.
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
