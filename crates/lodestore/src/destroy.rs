//! Information about a store without opening it, and its removal.

#[cfg(feature = "mkvs")]
mod devices;
#[cfg(not(feature = "mkvs"))]
#[path = "destroy/no_devices.rs"]
mod devices;

use std::path::Path;

use lodestore_contract::{Error, Result};
use lodestore_media::{HeaderSummary, POOL_FORMAT, Removal, StoreFile, store_files, store_holder};

use crate::{built, header};

/// The information that [`info`] reads.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Info {
    /// The store's header. Of a matrix, the header of its host's store.
    pub header: HeaderSummary,
    /// The version of the pool's format.
    pub pool_format: u32,
    /// The files, with paths relative to the store's directory, sorted by name. Devices of a matrix
    /// outside of its directory are omitted.
    pub files: Vec<StoreFile>,
    /// The process that has the store open, as `pid N (command)`. A process in another container
    /// may be hidden.
    pub holder: Option<String>,
}

/// Reads the information about the store in the directory `path`, without opening it. The store may
/// be in use.
///
/// # Errors
///
/// [`Error::Missing`]; [`Error::Corrupt`] if the header is damaged; [`Error::NewerFormat`];
/// [`Error::OlderFormat`]; [`Error::Io`].
pub fn info(path: impl AsRef<Path>) -> Result<Info> {
    let path = path.as_ref();
    let header = header::inspect(path)?;
    let is_matrix = header.engine == built::MKVS;
    let main = if is_matrix { devices::host_dir(path) } else { path.into() };
    let holder = store_holder(&main)?;
    let files = if is_matrix { devices::matrix_files(path)? } else { store_files(path)? };
    Ok(Info { header, pool_format: POOL_FORMAT, files, holder })
}

/// The removed files of [`destroy`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Destroyed {
    /// The number of files.
    pub files: u64,
    /// Their length in bytes.
    pub bytes: u64,
}

/// Removes the store in the directory `path`, and the directory. All pairs are lost.
///
/// The store may be damaged. Only files of the store are removed, and only if the directory holds
/// nothing else. Of a matrix, its devices in the directory are removed too. A removal that was
/// interrupted can be repeated.
///
/// # Errors
/// Before anything is removed: [`Error::Missing`]; [`Error::Locked`]; [`Error::Foreign`] with a
/// file that is not the store's; [`Error::DeviceElsewhere`] if a matrix has a device in another
/// directory; [`Error::Corrupt`] if nothing says that the files are a store's;
/// [`Error::NewerFormat`]. [`Error::Io`].
pub fn destroy(path: impl AsRef<Path>) -> Result<Destroyed> {
    remove(path.as_ref(), false)
}

/// As [`destroy`]. Of a matrix, its devices in other directories are removed too.
///
/// A copy of a matrix names the devices of the original. This call on the copy removes them.
///
/// # Errors
/// As [`destroy`].
pub fn destroy_with_devices(path: impl AsRef<Path>) -> Result<Destroyed> {
    remove(path.as_ref(), true)
}

fn remove(path: &Path, removes_devices_elsewhere: bool) -> Result<Destroyed> {
    match Removal::begin(path, &[]) {
        Ok(removal) => {
            let destroyed = count_files(std::slice::from_ref(&removal));
            removal.finish()?;
            Ok(destroyed)
        }
        Err(Error::Missing { .. }) => devices::destroy_matrix(path, removes_devices_elsewhere),
        Err(refused) => Err(refused),
    }
}

fn count_files(removals: &[Removal]) -> Destroyed {
    let files = || removals.iter().flat_map(Removal::files);
    Destroyed { files: files().count() as u64, bytes: files().map(|file| file.bytes).sum() }
}
