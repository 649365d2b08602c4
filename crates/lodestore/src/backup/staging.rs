//! A directory that is built next to its target and gets the target's name when it is whole.
//!
//! The staging directory `.NAME.unfinished-PID-N` holds a file `LOCK`, locked while its process
//! works, and the directory `content`. A process that is killed leaves it behind; the next one with
//! the same target finds the lock free and removes it. Staging directories are never used again, so
//! two processes may remove one at the same time.

use std::ffi::OsString;
use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use lodestore_contract::{Error, Result};

use crate::made;

/// The locked file in a staging directory.
const LOCK: &str = "LOCK";
/// The directory that becomes the target.
const CONTENT: &str = "content";
/// Staging directories that one process may have for one target.
const NUMBERS_MAX: u32 = 10_000;

/// A directory under construction. Dropping it removes everything that was made.
pub(super) struct Staging {
    target: PathBuf,
    directory: PathBuf,
    /// Directories on the way to the target that did not exist.
    made: Vec<PathBuf>,
    is_done: bool,
    _lock: File,
}

impl Staging {
    /// Begins to build what becomes the directory `target`, which must not exist or be empty.
    ///
    /// # Errors
    /// [`Error::Exists`]; [`Error::Io`].
    pub(super) fn begin(target: &Path) -> Result<Self> {
        let target = std::path::absolute(target).map_err(|error| Error::io("reading the path", target, error))?;
        check_free(&target)?;
        let (Some(parent), Some(name)) = (target.parent(), target.file_name()) else {
            return Err(Error::Exists { path: target });
        };
        let made = made::missing(parent);
        fs::create_dir_all(parent).map_err(|error| Error::io("making", parent, error))?;
        let mut prefix = OsString::from(".");
        prefix.push(name);
        prefix.push(".unfinished-");
        remove_abandoned(parent, &prefix);
        let io = |error| Error::io("making", parent, error);
        let (directory, lock) = make(parent, &prefix).inspect_err(|_| made::remove_empty(&made)).map_err(io)?;
        Ok(Self { target, directory, made, is_done: false, _lock: lock })
    }

    /// Returns the directory that becomes the target. It does not exist at first.
    pub(super) fn content(&self) -> PathBuf {
        self.directory.join(CONTENT)
    }

    /// Makes the content durable and gives it the target's name.
    ///
    /// # Errors
    /// [`Error::Exists`] if the target came into being meanwhile; [`Error::Io`].
    pub(super) fn finish(mut self) -> Result<()> {
        let content = self.content();
        sync_all(&content).map_err(|error| Error::io("syncing", &content, error))?;
        // An empty directory is replaced. Any other target is left as it is.
        fs::rename(&content, &self.target).map_err(|error| match error.kind() {
            ErrorKind::DirectoryNotEmpty | ErrorKind::AlreadyExists | ErrorKind::NotADirectory => {
                Error::Exists { path: self.target.clone() }
            }
            _ => Error::io("naming", &self.target, error),
        })?;
        self.is_done = true;
        let parent = self.target.parent().unwrap_or(&self.target);
        sync_parents(parent, &self.made).map_err(|error| Error::io("syncing", parent, error))
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // What stays behind is removed by the next process with this target.
        let _ = fs::remove_dir_all(&self.directory);
        if !self.is_done {
            made::remove_empty(&self.made);
        }
    }
}

/// Refuses a target that exists and is not an empty directory.
fn check_free(target: &Path) -> Result<()> {
    match fs::read_dir(target) {
        Ok(mut entries) => match entries.next() {
            None => Ok(()),
            Some(_) => Err(Error::Exists { path: target.into() }),
        },
        Err(error) if error.kind() == ErrorKind::NotFound && target.symlink_metadata().is_err() => Ok(()),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Err(Error::Exists { path: target.into() })
        }
        Err(error) => Err(Error::io("reading", target, error)),
    }
}

/// Makes a staging directory of its own, with its locked file.
fn make(parent: &Path, prefix: &OsString) -> io::Result<(PathBuf, File)> {
    for number in 0..NUMBERS_MAX {
        let mut name = prefix.clone();
        name.push(format!("{}-{number}", std::process::id()));
        let directory = parent.join(name);
        match fs::create_dir(&directory) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => continue,
            made => made?,
        }
        let lock = File::create_new(directory.join(LOCK)).and_then(|lock| {
            lock.lock()?;
            Ok(lock)
        });
        return match lock {
            Ok(lock) => Ok((directory, lock)),
            Err(error) => {
                let _ = fs::remove_dir_all(&directory);
                Err(error)
            }
        };
    }
    Err(ErrorKind::AlreadyExists.into())
}

/// Removes staging directories whose processes are gone.
fn remove_abandoned(parent: &Path, prefix: &OsString) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    let begins = |name: &OsString| name.as_encoded_bytes().starts_with(prefix.as_encoded_bytes());
    for entry in entries.flatten().filter(|entry| begins(&entry.file_name())) {
        // A directory without the file is one that another process is just making.
        let Ok(lock) = File::open(entry.path().join(LOCK)) else { continue };
        if let Ok(()) = lock.try_lock() {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Returns whether no process holds the lock of the store in `directory`.
pub(super) fn is_unlocked(directory: &Path) -> bool {
    match File::open(directory.join(LOCK)) {
        Ok(lock) => !matches!(lock.try_lock(), Err(TryLockError::WouldBlock)),
        Err(_) => true,
    }
}

/// Makes all files of a directory durable, and their names.
fn sync_all(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() { sync_all(&entry.path())? } else { File::open(entry.path())?.sync_all()? }
    }
    File::open(directory)?.sync_all()
}

/// Makes the names in a directory durable, and in those that lead to it and were made.
fn sync_parents(parent: &Path, made: &[PathBuf]) -> io::Result<()> {
    File::open(parent)?.sync_all()?;
    let above = made.iter().filter_map(|made| made.parent());
    above.filter(|above| !above.as_os_str().is_empty()).try_for_each(|above| File::open(above)?.sync_all())
}
