//! Removes a store, and lists its files.
//!
//! Removal order:
//! 1. the lock file no longer names a store;
//! 2. all files but region 0 and the lock file;
//! 3. region 0;
//! 4. the lock file;
//! 5. the directory, if it is empty.
//!
//! An interrupted removal leaves a directory with region 0, which a second removal accepts, or a
//! directory without a store.

use std::path::Path;

use lodestore_contract::{Error, Result};

use crate::file_names::{self, LOCK_FILE};
use crate::files::{self, DirContent};
use crate::header::is_unfinished;
use crate::lock::{self, StoreLock};
use crate::open::read_header;
use crate::region_header::RegionHeader;
use crate::store_dir::{self, Access, StoreDir};

/// A file of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreFile {
    /// The name in the store's directory.
    pub name: String,
    /// The length in bytes.
    pub bytes: u64,
}

/// Returns the files of the store in `dir`, sorted by name. Files of other programs are left out.
/// Does not acquire the lock of the store.
///
/// # Errors
/// [`Error::Missing`]; [`Error::Io`].
pub fn store_files(dir: &Path) -> Result<Vec<StoreFile>> {
    let dir = match files::classify(dir)? {
        (DirContent::Store | DirContent::Headless, Some(dir)) => dir,
        (found, _) => return Err(found.refusal(dir)),
    };
    list(&dir)
}

/// Returns the process that has the store in `dir` open, as `pid N (command)`. `None` if the kernel
/// shows no lock of a process on it. Does not acquire the lock of the store.
///
/// A process in another container may be hidden.
///
/// # Errors
/// [`Error::Io`].
pub fn store_holder(dir: &Path) -> Result<Option<String>> {
    match StoreDir::open(dir) {
        Ok(dir) => Ok(lock::holder(&dir)),
        Err(refused) if refused.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(refused) => Err(Error::io("reading", dir, refused)),
    }
}

fn list(dir: &StoreDir) -> Result<Vec<StoreFile>> {
    let mut found = Vec::new();
    for name in dir.names()?.into_iter().filter(|name| file_names::is_file_of_store(name)) {
        // Skips a file that an open store has just renamed or removed.
        if let Some(entry) = dir.entry(&name)?.filter(|entry| entry.is_file()) {
            found.push(StoreFile { name, bytes: entry.bytes });
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

/// A store that is locked, checked and ready to be removed. Dropping a removal changes nothing.
#[derive(Debug)]
pub struct Removal {
    dir: StoreDir,
    lock: StoreLock,
    files: Vec<StoreFile>,
}

impl Removal {
    /// Locks the store in `dir`, and checks that each file in the directory belongs to the store or
    /// has a name in `others`. Files in `others` stay.
    ///
    /// # Errors
    /// [`Error::Missing`]; [`Error::Locked`]; [`Error::Foreign`] with the first file that is not
    /// the store's; [`Error::Corrupt`] if neither the first region nor the lock file says that a
    /// store is there; [`Error::NewerFormat`]; [`Error::Io`].
    pub fn begin(dir: &Path, others: &[&str]) -> Result<Self> {
        let dir = match files::classify(dir)? {
            (DirContent::Store | DirContent::Headless, Some(dir)) => dir,
            (found, _) => return Err(found.refusal(dir)),
        };
        let is_named_store = lock::is_of_store(&dir);
        let has_lock_file = dir.entry(LOCK_FILE)?.is_some();
        let mut lock = StoreLock::acquire(&dir)?;
        let checked = Self::check(&dir, &mut lock, others, is_named_store);
        if checked.is_err() && !has_lock_file {
            // Restores the directory to its original state.
            let _ = dir.remove_file(LOCK_FILE);
        }
        Ok(Self { files: checked?, dir, lock })
    }

    /// Checks the directory; returns the files of the store.
    fn check(dir: &StoreDir, lock: &mut StoreLock, others: &[&str], is_named_store: bool) -> Result<Vec<StoreFile>> {
        let region0 = file_names::region_name(0);
        let header = match files::classify_dir(dir)? {
            DirContent::Store => {
                let (file, _) = files::open_region(dir, 0, Access::ReadWrite)?;
                lock.lock_region0(dir, &region0, &file)?;
                match read_header(&file, &dir.path_of(&region0)) {
                    Ok(header) => Some(header),
                    // The lock file of a damaged store still names it.
                    Err(Error::Corrupt { .. }) if is_named_store => None,
                    Err(refused) => return Err(refused),
                }
            }
            DirContent::Headless if is_named_store => None,
            found => return Err(found.refusal(dir.path())),
        };
        for name in dir.names()?.into_iter().filter(|name| !others.contains(&name.as_str())) {
            let foreign = |what: &str| Err(Error::Foreign { path: dir.path_of(&name), what: what.into() });
            if !file_names::is_file_of_store(&name) {
                return foreign("it is not a file of the store");
            }
            if !dir.entry(&name)?.is_some_and(|entry| entry.is_file()) {
                return foreign("it is not a regular file");
            }
            if let Some(index) = file_names::unfinished_index(&name)
                && !is_unfinished(&files::examine_file(dir, &name)?.0, index)
            {
                return foreign("an interrupted creation of a region cannot have written its content");
            }
            if let (Some(index), Some(header)) = (file_names::region_index(&name), &header)
                && u32::from(index) >= header.regions
            {
                let (bytes, _) = files::examine_file(dir, &name)?;
                let is_blank = bytes.iter().all(|byte| *byte == 0);
                if !is_blank && RegionHeader::generation_in_pool(&bytes, header.pool_id).is_none() {
                    return foreign("it is not a region of this store");
                }
            }
        }
        list(dir)
    }

    /// Returns the files that [`Removal::finish`] removes, sorted by name.
    pub fn files(&self) -> &[StoreFile] {
        &self.files
    }

    /// Removes the files of the store, durably, and its directory if that is empty afterwards.
    ///
    /// # Errors
    /// [`Error::Io`]. Some of the files may be removed then: run the removal again.
    pub fn finish(self) -> Result<()> {
        let Self { dir, mut lock, files: found } = self;
        let remove =
            |name: &str| dir.remove_file(name).map_err(|refused| Error::io("removing", dir.path_of(name), refused));
        let is_region0 = |name: &str| name == file_names::region_name(0);
        let is_last = |name: &str| is_region0(name) || name == LOCK_FILE;
        found.iter().rev().filter(|file| !is_last(&file.name)).try_for_each(|file| remove(&file.name))?;
        // A power failure must not bring back later regions without region 0.
        dir.sync()?;
        // Before this, the lock file says that a store is there, so that the removal can be
        // repeated.
        lock.clear_store_mark();
        found.iter().filter(|file| is_region0(&file.name)).try_for_each(|file| remove(&file.name))?;
        remove(LOCK_FILE)?;
        dir.sync()?;
        drop(lock);
        match std::fs::remove_dir(dir.path()) {
            Ok(()) => store_dir::sync_parents(dir.path(), &store_dir::known_ancestor(dir.path())),
            // Another program has put something there meanwhile, or the path is `.` or a link.
            Err(_) => Ok(()),
        }
    }
}
