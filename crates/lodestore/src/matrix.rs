//! The administration of a matrix of devices (`mkvs`).

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

#[cfg(doc)]
use lodestore_contract::Error;
use lodestore_contract::{Result, Store};
use lodestore_media::Pool;
use lodestore_mkvs::{MatrixStatus, Mkvs, Part, Replaced};

use crate::engines::devices::{self, Stores};
use crate::handle::Lodestore;
use crate::options::OpenOptions;
use crate::{engines, trace};

/// An open matrix of devices (engine `mkvs`), and its administration. The matrix serves through
/// [`store`](Self::store) while devices are replaced and groups are added.
pub struct Matrix {
    mkvs: Arc<Mkvs>,
    path: PathBuf,
    stores: Stores,
}

#[cfg(feature = "tracing")]
impl trace::AsStore for Matrix {
    fn as_store(&self) -> &dyn Store {
        &*self.mkvs
    }
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
            let (mkvs, stores) = devices::open_with_stores(path, pool, &set)?;
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
    /// [`Error::Unsupported`] while keys are moving to another new group, and in a salvage that may
    /// lack acknowledged writes; [`Error::InvalidOption`]; as [`create`](crate::store::create) for
    /// the devices; [`Error::Io`] and [`Error::Unfinished`] if the only device of a group did not
    /// store the number of groups: the next open uses the new group.
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
