//! The contract of every engine, below [`Db`](crate::Db): the trait [`Store`] and its types, and
//! the functions that create, open, inspect and remove a store.

use std::path::Path;

#[cfg(doc)]
use lodestore_contract::Error;
use lodestore_contract::Result;
pub use lodestore_contract::{
    Batch, BatchOp, Capabilities, Change, ChangeFn, Commit, Condition, Direction, Entry, EntryChunk, Expected,
    HiddenKeys, Pair, RangeCondition, Scan, ScanRange, Snapshot, Store, Swap, Visit, limits,
};
pub use lodestore_media::StoreFile;

pub use crate::destroy::{Destroyed, Info, destroy, destroy_with_devices, info};
pub use crate::handle::{Handle, Lodestore};
use crate::options::{CreateOptions, OpenOptions};
use crate::{choice, engines, made, trace};

impl Lodestore {
    /// Creates a store in a new (or empty) directory; see [`create`].
    ///
    /// # Errors
    ///
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
}

/// Creates a store in the directory `path`, which must be empty or absent. Creates its parents too.
/// A creation that fails leaves no new file and no new directory.
///
/// # Errors
///
/// [`Error::EngineNotBuilt`]; [`Error::Exists`]; [`Error::InvalidOption`];
/// [`Error::DurabilityRefused`] if the medium under `path` cannot give the requested durability;
/// [`Error::Full`] if it lacks the space; [`Error::Io`].
pub fn create(path: impl AsRef<Path>, options: &CreateOptions) -> Result<Handle> {
    let (path, choice) = (path.as_ref(), options.choice(path.as_ref())?);
    let engine = engines::by_name(choice.engine)?;
    let missing = made::missing_directories(path);
    let chosen = CreateOptions { engine: choice.engine.into(), durability: Some(choice.durability), ..options.clone() };
    trace::create(path, &chosen, |chosen| {
        let store = engine.create(path, chosen).inspect_err(|refused| made::remove_empty_after(refused, &missing))?;
        choice::file::write(path, &choice, &chosen.set);
        Ok(Lodestore::of(store))
    })
}

/// Opens the store in the directory `path`, with the engine that made it.
///
/// A store belongs to the process that opened it. In a process forked from it, every operation
/// returns [`Error::ForeignProcess`], and dropping the handle changes nothing. A daemon, or a
/// server that forks workers, forks first and then opens, in the one process that uses the store.
///
/// A store continues in its directory when that is renamed while it is open.
///
/// # Errors
///
/// [`Error::WeakerMedium`] if a file of the store is on a weaker medium than its first region;
/// [`Error::Missing`]; [`Error::WrongEngine`] if `options` name another engine than the one that
/// made it; [`Error::EngineNotBuilt`]; [`Error::ModeNotBuilt`]; [`Error::NewerFormat`];
/// [`Error::Locked`]; [`Error::MachineRestarted`]; [`Error::Corrupt`]; [`Error::InvalidOption`];
/// [`Error::Io`].
pub fn open(path: impl AsRef<Path>, options: &OpenOptions) -> Result<Handle> {
    let path = path.as_ref();
    let engine = engines::of_store(path, options.engine.as_deref())?;
    trace::open(path, options, |options| Ok(Lodestore::of(engine.open(path, options)?)))
}
