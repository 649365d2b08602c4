//! One process a store: an advisory lock on the file `LOCK`, which names its holder, and one on region 0, which is the
//! store itself: whoever removes `LOCK` lets nobody else in.
//!
//! Both belong to an open file, not to a process, so a second open in one process is refused too. The kernel drops the lock with the process, however it ends, so a file that was left behind is no obstacle.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use lodestore_contract::{Error, Result};

/// The lock file's name in a store's directory.
pub(crate) const LOCK_FILE: &str = "LOCK";

/// How the text of a holder begins.
const HOLDER_BEGINS: &str = "pid ";
/// Most bytes of such a text.
const HOLDER_MOST: u64 = 256;

/// The lock; dropping it gives the store free.
#[derive(Debug)]
pub(crate) struct StoreLock {
    file: File,
    /// The open file under the mapping of region 0, once it is locked.
    region0: Option<File>,
}

impl StoreLock {
    /// Takes the lock of the store at `dir`, or says who has it.
    ///
    /// # Errors
    /// [`Error::Locked`] with the holder's pid and command; [`Error::Foreign`] where something else has the lock's name; [`Error::Io`].
    pub(crate) fn take(dir: &Path) -> Result<Self> {
        let path = dir.join(LOCK_FILE);
        let io = |doing| move |refused| Error::io(doing, dir.join(LOCK_FILE), refused);
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            // Neither another's file behind a link nor a pipe that never opens.
            .custom_flags((rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK).bits().cast_signed())
            .open(&path)
            .map_err(|refused| match rustix::io::Errno::from_io_error(&refused) {
                Some(rustix::io::Errno::LOOP) => Error::Foreign { path: path.clone(), what: "it is a link".into() },
                _ => io("opening")(refused),
            })?;
        if !is_ours(&mut file).map_err(io("reading"))? {
            return Err(Error::Foreign { path, what: "it is no lock file".into() });
        }
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                // The text may be missing in the moment between its lock and its writing.
                let _ = file.take(HOLDER_MOST).read_to_string(&mut holder);
                let holder = if holder.trim().is_empty() { "holder unknown" } else { holder.trim() };
                return Err(Error::Locked { path: dir.into(), holder: holder.into() });
            }
            Err(TryLockError::Error(refused)) => return Err(io("locking")(refused)),
        }
        // Who holds it is told where there is room for the text; the lock is the kernel's.
        let _ = file.set_len(0);
        let _ = file.seek(SeekFrom::Start(0)).and_then(|_| file.write_all(holder_text().as_bytes()));
        Ok(Self { file, region0: None })
    }

    /// Locks the store's region 0, open as `region0`, as well; to be called before anything is read of it that may change. As the lock
    /// belongs to the open file, it lasts until this lock is dropped, whatever becomes of the handle given.
    ///
    /// # Errors
    /// [`Error::Locked`], [`Error::Io`].
    pub(crate) fn hold(&mut self, dir: &Path, region0: &File) -> Result<()> {
        let io = |refused| Error::io("locking region 0 of", dir, refused);
        let own = region0.try_clone().map_err(io)?;
        match own.try_lock() {
            Ok(()) => self.region0 = Some(own),
            Err(TryLockError::WouldBlock) => {
                let holder = "holder unknown, as its file LOCK was removed".into();
                return Err(Error::Locked { path: dir.into(), holder });
            }
            Err(TryLockError::Error(refused)) => return Err(io(refused)),
        }
        Ok(())
    }
}

impl Drop for StoreLock {
    fn drop(&mut self) {
        // Empty while nobody holds it. Closing the file releases the lock in any case.
        let _ = self.file.set_len(0);
        // The mapping keeps region 0 open, so its lock must be given back.
        if let Some(region0) = &self.region0 {
            let _ = region0.unlock();
        }
        let _ = self.file.unlock();
    }
}

/// Whether this is a lock file as this module leaves one: a regular file, empty or with a holder's text.
fn is_ours(file: &mut File) -> std::io::Result<bool> {
    let about = file.metadata()?;
    if !about.is_file() || about.len() > HOLDER_MOST {
        return Ok(false);
    }
    let mut text = String::new();
    let read = Read::by_ref(file).take(HOLDER_MOST).read_to_string(&mut text).is_ok();
    file.rewind()?;
    Ok(read && (text.is_empty() || text.starts_with(HOLDER_BEGINS)))
}

/// `pid N (command)`.
fn holder_text() -> String {
    let command = std::fs::read_to_string("/proc/self/comm").unwrap_or_default();
    format!("{HOLDER_BEGINS}{} ({})\n", std::process::id(), command.trim())
}
