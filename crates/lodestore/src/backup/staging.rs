//! A directory that is built next to its target and gets the target's name when it is whole.
//!
//! The staging directory `.NAME.unfinished-PID-N` holds a file `LOCK`, locked while its process
//! works, and the directory `content`. A killed process leaves its staging directory. The next
//! process with a target in the same directory finds the lock free and removes the leftover.
//!
//! Two processes with one target use two staging directories. The first that finishes gets the
//! target, and the other one fails with [`Error::TargetExists`].
//!
//! Invariants
//! 1. A staging directory is removed only while its lock is held: the lock of the file that is
//!    named `LOCK` in it.
//! 2. A process uses a staging directory only after it has locked the file that is named `LOCK` in
//!    it. A directory that another process removed between its creation and its locking is
//!    therefore not used.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use lodestore_contract::{Error, Result};

use crate::made;

/// The locked file in a staging directory.
const LOCK_FILE: &str = "LOCK";
/// The directory that becomes the target.
const CONTENT_DIRECTORY: &str = "content";
/// The separator of the target's name and the numbers in the name of a staging directory.
const NAME_SEPARATOR: &str = ".unfinished-";
/// Maximum staging directories of one process for one target.
const STAGING_DIRECTORIES_MAX: u32 = 10_000;
/// Attempts to make the parent directories of a target, which another process may remove again.
const PARENT_ATTEMPTS: u32 = 100;

/// A directory under construction. Dropping it removes everything that was created.
#[derive(Debug)]
pub struct Staging {
    target: PathBuf,
    directory: PathBuf,
    /// Created parent directories of the target.
    created: Vec<PathBuf>,
    is_done: bool,
    _lock: File,
}

impl Staging {
    /// Starts to build the directory `target`, which must not exist or be empty.
    ///
    /// # Errors
    ///
    /// [`Error::TargetExists`]; [`Error::Io`].
    pub fn begin(target: &Path) -> Result<Self> {
        let target = std::path::absolute(target).map_err(|error| Error::io("reading the path", target, error))?;
        check_target(&target)?;
        let (Some(parent), Some(name)) = (target.parent(), target.file_name()) else {
            return Err(Error::TargetExists { path: target });
        };
        if is_mount(&target, parent) {
            return Err(Error::TargetIsMount { path: target });
        }
        let mut prefix = OsString::from(".");
        prefix.push(name);
        prefix.push(NAME_SEPARATOR);
        let (created, (directory, lock)) =
            create_with_parents(parent, &prefix).map_err(|error| Error::io("making", parent, error))?;
        Ok(Self { target, directory, created, is_done: false, _lock: lock })
    }

    /// Returns the directory that becomes the target. The directory does not exist at first.
    pub fn content(&self) -> PathBuf {
        self.directory.join(CONTENT_DIRECTORY)
    }

    /// Makes the content durable and gives it the target's name.
    ///
    /// # Errors
    ///
    /// [`Error::TargetExists`] if the target was created meanwhile; [`Error::Io`].
    pub fn finish(mut self) -> Result<()> {
        let content = self.content();
        sync_all(&content).map_err(|error| Error::io("syncing", &content, error))?;
        // An empty directory is replaced. Any other target stays unchanged.
        fs::rename(&content, &self.target).map_err(|error| match error.kind() {
            ErrorKind::DirectoryNotEmpty | ErrorKind::AlreadyExists | ErrorKind::NotADirectory => {
                Error::TargetExists { path: self.target.clone() }
            }
            ErrorKind::ResourceBusy => Error::TargetIsMount { path: self.target.clone() },
            _ => Error::io("naming", &self.target, error),
        })?;
        self.is_done = true;
        let parent = self.target.parent().unwrap_or(&self.target);
        sync_parents(parent, &self.created).map_err(|error| Error::io("syncing", parent, error))
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // The next process with this target removes leftovers.
        let _ = fs::remove_dir_all(&self.directory);
        if !self.is_done {
            made::remove_empty(&self.created);
        }
    }
}

/// Refuses a target that exists and is not an empty directory.
fn check_target(target: &Path) -> Result<()> {
    match fs::read_dir(target) {
        Ok(mut entries) => match entries.next() {
            None => Ok(()),
            Some(_) => Err(Error::TargetExists { path: target.into() }),
        },
        Err(error) if error.kind() == ErrorKind::NotFound && target.symlink_metadata().is_err() => Ok(()),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Err(Error::TargetExists { path: target.into() })
        }
        Err(error) => Err(Error::io("reading", target, error)),
    }
}

/// Whether a directory is the root of a file system. The final rename detects the root of a part of
/// the same file system.
fn is_mount(directory: &Path, parent: &Path) -> bool {
    let device = |path: &Path| path.metadata().map(|found| found.dev()).ok();
    matches!((device(directory), device(parent)), (Some(own), Some(above)) if own != above)
}

/// Makes a staging directory and its missing parent directories. Returns the created parents.
/// Another process that created the same ones, and failed, may remove them meanwhile.
fn create_with_parents(parent: &Path, prefix: &OsString) -> io::Result<(Vec<PathBuf>, (PathBuf, File))> {
    let mut attempts = 0;
    loop {
        attempts += 1;
        let created = made::missing_directories(parent);
        let staged = fs::create_dir_all(parent).and_then(|()| {
            remove_abandoned(parent);
            create_staging(parent, prefix)
        });
        match staged {
            Ok(staged) => return Ok((created, staged)),
            Err(error) => {
                made::remove_empty(&created);
                if error.kind() != ErrorKind::NotFound || attempts == PARENT_ATTEMPTS {
                    return Err(error);
                }
            }
        }
    }
}

/// Makes a staging directory of its own, with its locked file.
fn create_staging(parent: &Path, prefix: &OsString) -> io::Result<(PathBuf, File)> {
    for number in 0..STAGING_DIRECTORIES_MAX {
        let mut name = prefix.clone();
        name.push(format!("{}-{number}", std::process::id()));
        let directory = parent.join(name);
        match fs::create_dir(&directory) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => continue,
            created => created?,
        }
        match create_lock(&directory, &|| {}) {
            Ok(Some(lock)) => return Ok((directory, lock)),
            Ok(None) => {}
            Err(error) => {
                let _ = fs::remove_dir_all(&directory);
                return Err(error);
            }
        }
    }
    Err(ErrorKind::AlreadyExists.into())
}

/// Makes the locked file of a staging directory. `before_lock` runs between the making of the file
/// and its lock. Returns `None` if another process took the directory for an abandoned one.
fn create_lock(directory: &Path, before_lock: &dyn Fn()) -> io::Result<Option<File>> {
    let path = directory.join(LOCK_FILE);
    let lock = match File::create_new(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        created => created?,
    };
    before_lock();
    // Waits while another process removes the directory.
    lock.lock()?;
    Ok(is_named(&lock, &path)?.then_some(lock))
}

/// Returns whether `path` is the name of this open file.
fn is_named(file: &File, path: &Path) -> io::Result<bool> {
    let open = file.metadata()?;
    match fs::metadata(path) {
        Ok(named) => Ok((named.dev(), named.ino()) == (open.dev(), open.ino())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether a name is that of a staging directory: `.NAME.unfinished-PID-N`.
fn is_staging_name(name: &OsStr) -> bool {
    let Some((target, numbers)) = name.to_str().and_then(|name| name.rsplit_once(NAME_SEPARATOR)) else { return false };
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    target.len() > 1
        && target.starts_with('.')
        && numbers.split_once('-').is_some_and(|(process, number)| is_number(process) && is_number(number))
}

/// Removes staging directories of dead processes, for all targets in `parent`. Backups often have
/// dated names, so no later backup may have the target of a killed one.
fn remove_abandoned(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten().filter(|entry| is_staging_name(&entry.file_name())) {
        // Another process is creating a directory without the file.
        let path = entry.path().join(LOCK_FILE);
        let Ok(lock) = File::open(&path) else { continue };
        // Otherwise the directory was removed meanwhile, and its name may be used again.
        if lock.try_lock().is_ok() && is_named(&lock, &path).unwrap_or(false) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// The locks of a store, and of its member stores. No process can open the store while this value
/// lives. Several processes may hold it at the same time.
#[derive(Debug)]
pub(super) struct StoreLocks {
    _files: Vec<File>,
}

impl StoreLocks {
    /// Acquires the locks of the store in `directory`.
    ///
    /// # Errors
    /// [`Error::Locked`] if a process has the store open; [`Error::Io`].
    pub(super) fn acquire(directory: &Path) -> Result<Self> {
        let mut files = Vec::new();
        let mut directories = vec![directory.to_path_buf()];
        while let Some(below) = directories.pop() {
            let io = |error| Error::io("reading", &below, error);
            for entry in fs::read_dir(&below).map_err(io)? {
                let entry = entry.map_err(io)?;
                let file_type = entry.file_type().map_err(io)?;
                if file_type.is_dir() {
                    directories.push(entry.path());
                } else if entry.file_name() == LOCK_FILE {
                    let file = File::open(entry.path()).map_err(io)?;
                    match file.try_lock_shared() {
                        Ok(()) => files.push(file),
                        Err(TryLockError::WouldBlock) => {
                            return Err(Error::Locked { path: directory.into(), holder: "as a store".into() });
                        }
                        Err(TryLockError::Error(error)) => return Err(io(error)),
                    }
                }
            }
        }
        Ok(Self { _files: files })
    }
}

/// Makes all files of a directory and their names durable.
fn sync_all(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() { sync_all(&entry.path())? } else { File::open(entry.path())?.sync_all()? }
    }
    File::open(directory)?.sync_all()
}

/// Makes the names in a directory durable, and those in its created parents.
fn sync_parents(parent: &Path, created: &[PathBuf]) -> io::Result<()> {
    File::open(parent)?.sync_all()?;
    let above = created.iter().filter_map(|created| created.parent());
    above.filter(|above| !above.as_os_str().is_empty()).try_for_each(|above| File::open(above)?.sync_all())
}

#[cfg(test)]
mod tests {
    use lodestore_contract::testing::Scratch;

    use super::*;

    fn prefix() -> OsString {
        ".copy.unfinished-".into()
    }

    #[test]
    fn a_directory_that_another_process_removes_before_it_is_locked_is_not_used() {
        let scratch = Scratch::on_disk();
        let directory = scratch.path().join(".copy.unfinished-1-0");
        fs::create_dir(&directory).expect("a directory");
        let lock = create_lock(&directory, &|| remove_abandoned(scratch.path())).expect("no error");
        assert!(lock.is_none(), "the directory is gone");
        assert!(!directory.exists());
        let (directory, lock) = create_staging(scratch.path(), &prefix()).expect("another one");
        remove_abandoned(scratch.path());
        assert!(directory.join(LOCK_FILE).exists(), "a locked one stays");
        drop(lock);
    }

    #[test]
    fn only_names_of_staging_directories_are_taken_for_abandoned() {
        for name in [".copy.unfinished-1-0", ".a.unfinished-1-2.unfinished-33-44"] {
            assert!(is_staging_name(OsStr::new(name)), "{name}");
        }
        for name in ["copy.unfinished-1-0", ".unfinished-1-0", ".copy.unfinished-1", ".copy.unfinished-1-x", ".copy"] {
            assert!(!is_staging_name(OsStr::new(name)), "{name}");
        }
    }

    #[test]
    fn the_first_of_two_staging_directories_with_one_target_gets_its_name() {
        let scratch = Scratch::on_disk();
        let target = scratch.path().join("new/copy");
        let begin = |content: &str| {
            let staging = Staging::begin(&target).expect("a free target");
            fs::create_dir(staging.content()).expect("a directory");
            fs::write(staging.content().join("file"), content).expect("a file");
            staging
        };
        let (first, second) = (begin("first"), begin("second"));
        second.finish().expect("the target is free");
        let refused = first.finish();
        assert!(matches!(refused, Err(Error::TargetExists { .. })), "{refused:?}");
        assert_eq!(fs::read(target.join("file")).expect("a file"), b"second");
        assert_eq!(fs::read_dir(scratch.path().join("new")).expect("a directory").count(), 1, "nothing else is left");
    }

    #[test]
    fn locks_of_a_store_are_shared_by_their_readers_and_refused_while_it_is_open() {
        let scratch = Scratch::on_disk();
        let inner = scratch.path().join("device/store");
        fs::create_dir_all(&inner).expect("a directory");
        fs::write(inner.join(LOCK_FILE), "").expect("a file");
        let (first, second) = (StoreLocks::acquire(scratch.path()), StoreLocks::acquire(scratch.path()));
        first.as_ref().and(second.as_ref()).expect("both");
        let file = File::open(inner.join(LOCK_FILE)).expect("a file");
        assert!(matches!(file.try_lock(), Err(TryLockError::WouldBlock)), "no process can open the store");
        drop((first, second));
        file.lock().expect("free");
        let refused = StoreLocks::acquire(scratch.path()).map(drop);
        assert!(matches!(refused, Err(Error::Locked { .. })), "{refused:?}");
    }
}
