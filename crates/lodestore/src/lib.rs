//! Lodestore: a persistent key-value store for memory that lasts: persistent memory,
//! tmpfs that outlives its process, and ordinary files.
//!
//! A store is a directory. A program names what a write must survive ([`Durability`]), and is
//! refused if the medium cannot give it. After `kill -9` a store has every write that returned.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = lodestore_contract::testing::Scratch::on_disk();
//! # let path = dir.path().join("state");
//! use std::error::Error;
//!
//! use lodestore::Db;
//!
//! let db = Db::open(&path)?; // opens the store, or creates it
//! db.put("greek/alpha", "U+03B1")?;
//! assert_eq!(db.get("greek/alpha")?.unwrap(), "U+03B1");
//!
//! let users = db.keyspace("users")?;
//! db.try_transaction(|tx| -> Result<(), Box<dyn Error>> {
//!     let visits = match tx.get(&users, "ada")? {
//!         Some(text) => text.as_str()?.parse::<u64>()? + 1,
//!         None => 1,
//!     };
//!     tx.put(&users, "ada", visits.to_string())?;
//!     Ok(())
//! })?;
//! # Ok(())
//! # }
//! ```
//!
//! [`Db`] is the handle for programs: it opens or creates, has all operations as its own methods,
//! and has [keyspaces](Db::keyspace), [batches](Db::batch) and [transactions](Db::transaction). The
//! last handle closes the store.
//!
//! Below [`Db`] is the contract of every engine, the trait [`Store`](store::Store):
//!
//! ```
//! # fn main() -> lodestore::Result<()> {
//! # if ["", "nvht"].contains(&lodestore::engines().first().map_or("", |engine| engine.name)) {
//! #     return Ok(());
//! # }
//! # let dir = lodestore_contract::testing::Scratch::on_disk();
//! # let path = dir.path().join("store");
//! use lodestore::options::{CreateOptions, OpenOptions};
//! use lodestore::store::{self, ScanRange};
//!
//! let store = store::create(&path, &CreateOptions::new().size(64 << 20))?;
//! store.put(b"greek/alpha", b"U+03B1")?;
//! store.put(b"greek/beta", b"U+03B2")?;
//! store.close()?;
//!
//! let store = store::open(&path, &OpenOptions::new())?;
//! assert_eq!(store.get(b"greek/alpha")?.as_deref(), Some(&b"U+03B1"[..]));
//! let pairs = store.scan(&ScanRange::prefix(b"greek/").reverse())?;
//! let keys = pairs.map(|entry| entry.map(|entry| entry.into_pair().0));
//! assert_eq!(keys.collect::<lodestore::Result<Vec<_>>>()?, [&b"greek/beta"[..], b"greek/alpha"]);
//! # store.close()
//! # }
//! ```
//!
//! # Guarantees
//! * An acknowledged write survives the failures that the store's [`Durability`] names. A store is
//!   refused if its medium cannot provide the durability.
//! * [`Db`] and its clones may be used from any thread. Operations on one key are linearizable.
//! * A batch is applied completely or not at all, also across a crash. Transactions are strictly
//!   serializable.
//! * At most one open at a time holds a store; another one is refused with [`Error::Locked`].
//! * A refused write changes nothing. After [`Error::Poisoned`] or [`Error::Io`], the next open may
//!   find a write applied or not. [`Error::TooFewDevices`] states whether its write is in doubt.
//! * A backup contains the store as it was at one moment, and appears under its name only when
//!   complete.
//!
//! # Modules
//! * `handle`: shared handle of an open store of any engine.
//! * `made`: new directories, removed again after a failed creation.
//! * [`stats`]: statistics of a store and its engine, and OpenMetrics.
//! * [`options`], `pool`: options of a store, its engine and its pool.
//! * `built`, [`engines`](mod@engines): all engines; the engines of this build.
//! * `header`: reads the header of the store at a path.
//! * `choice`: the choice of engine and durability, and its record in the store.
//! * `matrix` (engine `mkvs`): matrices of devices.
//! * `destroy`, `doctor`: inspection without an open, removal; media and their durabilities.
//! * `trace`, `no_trace`: `tracing` events and spans, or nothing.
//! * [`store`]: the contract below [`Db`]; creation, open and removal by path.
//! * [`backup`](mod@backup): backups of a store in use, and restores.
//! * [`db`]: [`Db`], its builder, the choice of engine, keyspaces, transactions.
//! * [`events`], [`medium`]: events of a store; the medium of a path.
//! * `devices` (engine `mkvs`): administration of a matrix of devices.
//! * `guide` (doc tests): the examples of the guide.
//!
//! # Features
//! Each engine has a feature of its own name: `hikv`, `nvht`, `fluidkv`, `hashkv` and `mkvs`. All
//! are on by default. A store of an engine that is not compiled in is refused with
//! [`Error::EngineNotBuilt`], and [`db::Engine::Auto`] chooses among the compiled engines. The
//! feature `mkvs` enables `nvht`.
//!
//! The feature `tracing` emits each [`Event`](events::Event) of a store as an event of the crate
//! `tracing`. Each open and creation is a span, and so is each close, sync, verify and settle of a
//! [`Db`]. The target is `lodestore`. The feature is off by default, and costs nothing then.
//!
//! The feature `lab` has modes of `hikv` and `hashkv` for comparison with their papers, and added
//! latency. The feature is off by default. A store with a mode that is not compiled in is refused
//! with [`Error::ModeNotBuilt`].
//!
//! # Files
//! The engines write all pairs. This crate's own files are `CHOICE` in a store (the choice of
//! engine and durability) and `BACKUP` in a backup. No open needs them.
#![forbid(unsafe_code)]
#![warn(missing_debug_implementations)]

pub mod backup;
mod built;
mod choice;
pub mod db;
mod destroy;
mod doctor;
pub mod engines;
mod handle;
mod header;
mod made;
#[cfg(feature = "mkvs")]
mod matrix;
pub mod options;
mod pool;
pub mod stats;
pub mod store;
#[cfg(feature = "tracing")]
mod trace;
#[cfg(not(feature = "tracing"))]
#[path = "no_trace.rs"]
mod trace;

pub use db::{Cursor, Db, Keyspace, Map, Page, Transaction, Value, View, WriteBatch};
#[doc(inline)]
pub use engines::engines;
#[doc(inline)]
pub use lodestore_contract::{Durability, Error, Expiry, Lifetime, Result};

/// The events that a store reports to its owner.
pub mod events {
    pub use lodestore_contract::{Event, EventSink, FoundBy, PoisonReason};
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

/// The code of the guide is compiled and run as tests of the documentation.
#[cfg(doctest)]
mod guide {
    #[doc = include_str!("../guide/getting-started.md")]
    mod getting_started {}
    #[doc = include_str!("../guide/keys-and-values.md")]
    mod keys_and_values {}
    #[doc = include_str!("../guide/keyspaces.md")]
    mod keyspaces {}
    #[doc = include_str!("../guide/transactions.md")]
    mod transactions {}
    #[doc = include_str!("../guide/choosing.md")]
    mod choosing {}
    #[doc = include_str!("../guide/operations.md")]
    mod operations {}
    #[doc = include_str!("../guide/async.md")]
    mod async_services {}
}

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
