//! One process a store: an advisory lock on the file `LOCK`, which names its holder.
//!
//! The kernel drops the lock with the process, however it ends, so a file that was left behind is no obstacle.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use lodestore_contract::{Error, Result};

/// The lock file's name in a store's directory.
pub(crate) const LOCK_FILE: &str = "LOCK";

/// The lock; dropping it gives the store free.
#[derive(Debug)]
pub(crate) struct StoreLock {
    file: File,
}

impl StoreLock {
    /// Takes the lock of the store at `dir`, or says who has it.
    ///
    /// # Errors
    /// [`Error::Locked`] with the holder's pid and command; [`Error::Io`].
    pub(crate) fn take(dir: &Path) -> Result<Self> {
        let path = dir.join(LOCK_FILE);
        let io = |doing| move |refused| Error::io(doing, dir.join(LOCK_FILE), refused);
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(io("opening"))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                // The text may be missing in the moment between its lock and its writing.
                let _ = file.take(256).read_to_string(&mut holder);
                let holder = if holder.trim().is_empty() { "holder unknown" } else { holder.trim() };
                return Err(Error::Locked { path: dir.into(), holder: holder.into() });
            }
            Err(TryLockError::Error(refused)) => return Err(io("locking")(refused)),
        }
        file.set_len(0).map_err(io("truncating"))?;
        file.seek(SeekFrom::Start(0)).map_err(io("rewinding"))?;
        file.write_all(holder_text().as_bytes()).map_err(io("writing"))?;
        Ok(Self { file })
    }
}

impl Drop for StoreLock {
    fn drop(&mut self) {
        // Empty while nobody holds it. Closing the file releases the lock in any case.
        let _ = self.file.set_len(0);
        let _ = self.file.unlock();
    }
}

/// `pid N (command)`.
fn holder_text() -> String {
    let command = std::fs::read_to_string("/proc/self/comm").unwrap_or_default();
    format!("pid {} ({})\n", std::process::id(), command.trim())
}
