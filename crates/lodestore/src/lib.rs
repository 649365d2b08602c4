//! Lodestore: a persistent key-value store for memory that lasts: persistent memory,
//! tmpfs that outlives its process, and ordinary files.
//!
//! A store is a directory. What a write survives is asked by name ([`Durability`]) and
//! refused where the medium cannot give it. A store comes back after `kill -9` with
//! every write that returned.
//!
//! ```
//! # fn main() -> lodestore::Result<()> {
//! # if ["", "nvht"].contains(&lodestore::engines().first().map_or("", |engine| engine.name)) {
//! #     return Ok(());
//! # }
//! # let dir = lodestore_contract::testing::Scratch::on_disk();
//! # let path = dir.path().join("store");
//! use lodestore::{CreateOptions, OpenOptions, ScanRange};
//!
//! let store = lodestore::create(&path, &CreateOptions::new().size(64 << 20))?;
//! store.put(b"greek/alpha", b"U+03B1")?;
//! store.put(b"greek/beta", b"U+03B2")?;
//! store.close()?;
//!
//! let store = lodestore::open(&path, &OpenOptions::new())?;
//! assert_eq!(store.get(b"greek/alpha")?.as_deref(), Some(&b"U+03B1"[..]));
//! let pairs = store.scan(&ScanRange::prefix(b"greek/").reverse())?;
//! let keys = pairs.map(|entry| entry.map(|entry| entry.into_pair().0));
//! assert_eq!(keys.collect::<lodestore::Result<Vec<_>>>()?, [&b"greek/beta"[..], b"greek/alpha"]);
//! # store.close()
//! # }
//! ```
//!
//! [`Db`] is the handle for programs: it opens or creates, has all operations as its own methods,
//! and has [keyspaces](Db::keyspace), [batches](Db::batch) and [transactions](Db::transaction). The
//! last handle closes the store.
//!
//! ```
//! # fn main() -> lodestore::Result<()> {
//! # let dir = lodestore_contract::testing::Scratch::on_disk();
//! # let path = dir.path().join("state");
//! let db = lodestore::Db::open(&path)?;
//! let users = db.keyspace("users")?;
//! db.transaction(|tx| {
//!     let visits = tx.get(&users, "ada")?.map_or(0, |value| value[0]);
//!     tx.put(&users, "ada", [visits + 1])
//! })?;
//! # Ok(())
//! # }
//! ```
//!
//! # Features
//! Each engine has a feature of its own name: `hikv`, `nvht`, `fluidkv`, `hashkv` and `mkvs`. All
//! are on by default. A store of an engine that is not compiled in is refused with
//! [`Error::EngineNotBuilt`], and [`db::Engine::Auto`] chooses among the compiled engines. The
//! feature `mkvs` enables `nvht`.
//!
//! The feature `tracing` emits each [`Event`] of a store as an event of the crate `tracing`. Each
//! open and creation is a span, and so is each close, sync, verify and settle of a [`Db`]. The
//! target is `lodestore`. The feature is off by default, and costs nothing then.
//!
//! # Floor
//! Floor 3: it chooses an engine and hands out the contract's [`Store`]. Pairs are written by the
//! engines alone. Its own files are `CHOICE` and `BACKUP`, and no open needs them.
#![forbid(unsafe_code)]

mod backup;
mod built;
mod choice_file;
pub mod db;
mod destroy;
mod doctor;
pub mod engines;
mod made;
#[cfg(feature = "mkvs")]
mod matrix;
#[cfg(not(feature = "mkvs"))]
#[path = "no_matrix.rs"]
mod matrix;
pub mod options;
mod pool;
pub mod statistics;
#[cfg(feature = "tracing")]
mod trace;
#[cfg(not(feature = "tracing"))]
#[path = "no_trace.rs"]
mod trace;

use std::fmt;
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

pub use backup::{BackupInfo, BackupPhase, BackupProgress, backup, restore};
pub use db::{Choice, Cursor, Db, Engine, Keys, Keyspace, Map, Page, Pairs, Transaction, Value, View, WriteBatch};
pub use destroy::{Destroyed, Info, destroy, destroy_with_devices, info};
#[doc(inline)]
pub use doctor::doctor;
pub use engines::engines;
pub use lodestore_contract::{Change, Durability, Error, Expiry, Lifetime, Result, Swap, Visit};
// The modules below have these names. They stay here for programs that used them before.
#[doc(hidden)]
pub use doctor::Diagnosis;
#[doc(hidden)]
pub use lodestore_contract::*;
#[doc(hidden)]
pub use lodestore_media::{FlushInstruction, HeaderSummary, MediumKind, MediumReport, StoreFile};
#[cfg(feature = "mkvs")]
#[doc(hidden)]
pub use lodestore_mkvs::{Acks, DeviceStatus, MatrixStatus, Replaced};
#[cfg(feature = "mkvs")]
#[doc(hidden)]
pub use matrix::Matrix;
#[doc(hidden)]
pub use options::{CreateOptions, DEFAULT_ENGINE, DEFAULT_SIZE, OpenOptions};

/// The contract of every engine, below [`Db`]: the trait [`Store`] and its types.
pub mod store {
    pub use lodestore_contract::{
        Batch, BatchOp, Capabilities, Change, ChangeFn, Commit, Condition, Direction, Entry, EntryChunk, Expected,
        RangeCondition, Scan, ScanRange, Snapshot, Store, Swap, Visit, limits,
    };

    pub use crate::{Handle, Lodestore, create, open};
}

/// The account of a store, and the report of its verification.
pub mod stats {
    pub use lodestore_contract::{
        Finding, MediumUse, Progress, RecoveryState, SegmentWear, Stats, VerifyReport, Wear, format_size, parse_size,
    };
}

/// What a store reports to its owner.
pub mod events {
    pub use lodestore_contract::{Event, EventSink};
}

/// The medium under a path, and the store on it.
pub mod medium {
    pub use lodestore_contract::io_advice;
    pub use lodestore_media::{FlushInstruction, HeaderSummary, MediumKind, MediumReport};

    pub use crate::doctor::{Diagnosis, doctor};
}

/// The administration of a matrix of devices (engine `mkvs`).
#[cfg(feature = "mkvs")]
pub mod devices {
    pub use lodestore_mkvs::{Acks, DeviceStatus, MatrixStatus, Replaced};

    pub use crate::matrix::Matrix;
}

/// An open store, of whichever engine. Clones share it; its operations are those of [`Store`].
///
/// Call [`Store::close`] when it is done with, so that the next open is quick. A store that is dropped without it
/// is as after a crash: nothing acknowledged is lost, and the next open recovers.
#[derive(Clone)]
pub struct Lodestore {
    store: Arc<dyn Store>,
}

/// The name that signatures use for an open store.
pub type Handle = Lodestore;

impl Lodestore {
    /// Makes a store in a new (or empty) directory; see [`create`].
    ///
    /// # Errors
    /// As [`create`].
    pub fn create(path: impl AsRef<Path>, options: &CreateOptions) -> Result<Self> {
        create(path, options)
    }

    /// Opens a store; see [`open`].
    ///
    /// # Errors
    /// As [`open`].
    pub fn open(path: impl AsRef<Path>, options: &OpenOptions) -> Result<Self> {
        open(path, options)
    }

    /// An owned walk over `range`, as [`Store::scan`]; it keeps the store open for as long as it lives.
    ///
    /// # Errors
    /// As [`Store::scan`].
    pub fn scan(&self, range: &ScanRange) -> Result<Scan> {
        let walk = self.store.scan(range)?;
        let store = self.clone();
        Ok(Box::new(walk.inspect(move |_| {
            let _open = &store;
        })))
    }

    /// A handle of this store.
    pub(crate) fn of(store: Arc<dyn Store>) -> Self {
        Self { store }
    }

    /// The store behind the handle, to be kept without it.
    pub fn into_store(self) -> Arc<dyn Store> {
        self.store
    }
}

impl Deref for Lodestore {
    type Target = dyn Store;

    fn deref(&self) -> &Self::Target {
        &*self.store
    }
}

impl fmt::Debug for Lodestore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lodestore").field("engine", &self.store.engine()).finish_non_exhaustive()
    }
}

/// Makes a store in the directory `path`, which must not exist or be empty; directories that lead there are made. A creation that fails leaves nothing behind that was not there.
///
/// # Errors
/// [`Error::EngineNotBuilt`]; [`Error::Exists`]; [`Error::InvalidOption`];
/// [`Error::DurabilityRefused`] where the medium under
/// `path` cannot give what is asked; [`Error::Full`] where it lacks the room; [`Error::Io`].
pub fn create(path: impl AsRef<Path>, options: &CreateOptions) -> Result<Handle> {
    let (path, choice) = (path.as_ref(), options.choice(path.as_ref())?);
    let engine = engines::by_name(choice.engine)?;
    let missing = made::missing(path);
    let chosen = CreateOptions { engine: choice.engine.into(), durability: Some(choice.durability), ..options.clone() };
    trace::create(path, &chosen, |chosen| {
        let store = engine.create(path, chosen).inspect_err(|refused| made::remove_after(refused, &missing))?;
        choice_file::write(path, &choice, &chosen.set);
        Ok(Lodestore { store })
    })
}

/// Opens the store in the directory `path`, with the engine that made it.
///
/// A store belongs to the process that opened it. In a process forked from it, every operation
/// returns [`Error::ForeignProcess`], and dropping the handle changes nothing. A daemon, or a
/// server that forks workers, forks first and opens then, in the one process that uses the store.
///
/// A store goes on in its directory when that is renamed while it is open.
///
/// # Errors
/// [`Error::WeakerMedium`] where a file of the store is on a medium that keeps less than that of
/// its first region; [`Error::Missing`]; [`Error::WrongEngine`] where `options` ask for another
/// engine than the one that made it; [`Error::EngineNotBuilt`]; [`Error::NewerFormat`];
/// [`Error::Locked`];
/// [`Error::MachineRestarted`]; [`Error::Corrupt`]; [`Error::InvalidOption`]; [`Error::Io`].
pub fn open(path: impl AsRef<Path>, options: &OpenOptions) -> Result<Handle> {
    let path = path.as_ref();
    let engine = engines::of_store(path, options.engine.as_deref())?;
    trace::open(path, options, |options| Ok(Lodestore { store: engine.open(path, options)? }))
}

/// The code of the guide is compiled and run as tests of the documentation.
#[cfg(doctest)]
mod guide {
    #[doc = include_str!("../../../docs/guide/src/getting-started.md")]
    mod getting_started {}
    #[doc = include_str!("../../../docs/guide/src/keys-and-values.md")]
    mod keys_and_values {}
    #[doc = include_str!("../../../docs/guide/src/keyspaces.md")]
    mod keyspaces {}
    #[doc = include_str!("../../../docs/guide/src/transactions.md")]
    mod transactions {}
    #[doc = include_str!("../../../docs/guide/src/choosing.md")]
    mod choosing {}
    #[doc = include_str!("../../../docs/guide/src/operations.md")]
    mod operations {}
    #[doc = include_str!("../../../docs/guide/src/async.md")]
    mod async_services {}
}

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
