//! One process per store: an advisory lock on the file `LOCK`, which names its holder, and one on
//! region 0, which is the store itself. Removing `LOCK` therefore does not let another process in.
//!
//! Both locks belong to an open file, not to a process, so a second open in one process is refused
//! too. The kernel drops the locks with the process, however it ends, so a leftover file is no
//! obstacle.

use std::fs::{File, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, PoisonError};

use lodestore_contract::{Error, Result};
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::file_names::{LOCK_FILE, region_name};
use crate::store_dir::{Access, FileId, StoreDir};

/// Attempts to open the lock file again because it was removed meanwhile.
const REOPEN_ATTEMPTS: u32 = 1000;
/// The start of a holder's text.
const HOLDER_BEGINS: &str = "pid ";
/// The line that a lock file has while a whole store is in its directory.
const STORE_LINE: &str = "of a store\n";
/// Maximum bytes of the text of a lock file.
const TEXT_BYTES_MAX: u64 = 256;

/// The lock files that this process holds.
static HELD: Mutex<Vec<Held>> = Mutex::new(Vec::new());

/// A lock file that a process holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Held {
    /// The process: a fork copies the list.
    pid: u32,
    file: FileId,
}

impl Held {
    /// Returns the entry for a lock file of this process.
    fn by_this_process(file: FileId) -> Self {
        Self { pid: std::process::id(), file }
    }

    fn add(self) {
        HELD.lock().unwrap_or_else(PoisonError::into_inner).push(self);
    }

    fn remove(self) {
        HELD.lock().unwrap_or_else(PoisonError::into_inner).retain(|held| *held != self);
    }

    fn is_known(self) -> bool {
        HELD.lock().unwrap_or_else(PoisonError::into_inner).contains(&self)
    }
}

/// The lock of a store; released on drop.
#[derive(Debug)]
pub(crate) struct StoreLock {
    file: File,
    /// The entry of this lock in [`HELD`].
    held: Option<Held>,
    /// Region 0, once it is locked.
    region0: Option<File>,
    /// Whether the lock file says that a whole store is in its directory.
    is_of_store: bool,
    /// Whether another process holds the lock.
    is_inherited: bool,
}

impl StoreLock {
    /// Acquires the lock of the store at `dir`.
    ///
    /// # Errors
    /// [`Error::Locked`] with the holder's PID and command; [`Error::Foreign`] if something else
    /// has the lock's name; [`Error::Io`].
    pub(crate) fn acquire(dir: &StoreDir) -> Result<Self> {
        for _ in 0..REOPEN_ATTEMPTS {
            let mut lock = Self::open_and_lock(dir)?;
            // A failing creation removes the file while it holds the lock: a lock on a file opened
            // before is then useless.
            let named = dir.entry(LOCK_FILE)?.map(|entry| entry.id);
            let io = |refused: Errno| Error::io("reading the attributes of", dir.path_of(LOCK_FILE), refused.into());
            let locked = FileId::of_file(&lock.file).map_err(io)?;
            if named == Some(locked) {
                let held = Held::by_this_process(locked);
                held.add();
                lock.held = Some(held);
                lock.write_holder();
                return Ok(lock);
            }
        }
        let what = "another process replaced the file before each of many attempts to lock it".into();
        Err(Error::Foreign { path: dir.path_of(LOCK_FILE), what })
    }

    fn open_and_lock(dir: &StoreDir) -> Result<Self> {
        let path = dir.path_of(LOCK_FILE);
        let io = |doing| move |refused| Error::io(doing, dir.path_of(LOCK_FILE), refused);
        // Refuses a link to a foreign file, and a pipe that never opens.
        let mut file =
            dir.open_file(LOCK_FILE, Access::CreateIfMissing, OFlags::empty()).map_err(|refused| match refused {
                Errno::LOOP => Error::Foreign { path: path.clone(), what: "it is a link".into() },
                _ => io("opening")(refused.into()),
            })?;
        if !is_lock_file(&mut file).map_err(io("reading"))? {
            return Err(Error::Foreign { path, what: "it is not a lock file of a store".into() });
        }
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let is_own = FileId::of_file(&file).is_ok_and(|file| Held::by_this_process(file).is_known());
                let mut holder = String::new();
                // The text may be missing in the moment between locking and writing.
                let _ = file.take(TEXT_BYTES_MAX).read_to_string(&mut holder);
                let holder = holder.lines().next().filter(|line| line.starts_with(HOLDER_BEGINS));
                let holder = holder.unwrap_or("holder unknown").trim();
                let own = if is_own { format!("{}, ", Error::OWN_PROCESS) } else { String::new() };
                return Err(Error::Locked { path: dir.path().into(), holder: format!("{own}{holder}") });
            }
            Err(TryLockError::Error(refused)) => return Err(io("locking")(refused)),
        }
        // The mark of an earlier holder; each new holder keeps it.
        let is_of_store = has_store_mark(&file);
        Ok(Self { file, held: None, region0: None, is_of_store, is_inherited: false })
    }

    /// Writes the holder's name, if the file system has space for it; the lock itself is the
    /// kernel's.
    fn write_holder(&self) {
        self.write(&holder_text());
    }

    /// Writes this text, and whether a whole store is here.
    fn write(&self, text: &str) {
        let text = format!("{text}{}", if self.is_of_store { STORE_LINE } else { "" });
        let mut file = &self.file;
        let written = file.seek(SeekFrom::Start(0)).and_then(|_| file.write_all(text.as_bytes()));
        let _ = written.and_then(|()| file.set_len(text.len() as u64));
    }

    /// Records in the lock file that a whole store is in its directory. If all its other files are
    /// lost, an open can then tell this from a directory without a store.
    pub(crate) fn mark_store(&mut self) {
        if !self.is_of_store {
            self.is_of_store = true;
            self.write_holder();
        }
    }

    /// Clears that record, before the files of the store are removed.
    pub(crate) fn clear_store_mark(&mut self) {
        self.is_of_store = false;
        self.write_holder();
    }

    /// Locks region 0 as well; its file of this name is open as `region0`. Call it before anything
    /// that may change is read from the region.
    ///
    /// The lock is on a separate open file, not on the file under the mapping. A forked process
    /// that closes the lock's files keeps no lock, whatever it keeps mapped.
    ///
    /// # Errors
    /// [`Error::Locked`]; [`Error::Foreign`] if the name now means another file; [`Error::Io`].
    pub(crate) fn lock_region0(&mut self, dir: &StoreDir, name: &str, region0: &File) -> Result<()> {
        let io = |refused| Error::io("locking region 0 of", dir.path(), refused);
        let own = dir.open_file(name, Access::ReadWrite, OFlags::empty()).map_err(|refused| io(refused.into()))?;
        let is_same = |file: &File| FileId::of_file(file).map_err(|refused| io(refused.into()));
        if is_same(&own)? != is_same(region0)? {
            let what = format!("the file was replaced while {} was opened", region_name(0));
            return Err(Error::Foreign { path: dir.path_of(name), what });
        }
        match own.try_lock() {
            Ok(()) => self.region0 = Some(own),
            Err(TryLockError::WouldBlock) => {
                let holder = "holder unknown, because the file LOCK was removed".into();
                return Err(Error::Locked { path: dir.path().into(), holder });
            }
            Err(TryLockError::Error(refused)) => return Err(io(refused)),
        }
        Ok(())
    }

    /// Closes the files without unlocking them: the lock belongs to the process that opened the
    /// store.
    pub(crate) fn close_inherited(mut self) {
        self.is_inherited = true;
    }
}

impl Drop for StoreLock {
    fn drop(&mut self) {
        if self.is_inherited {
            return;
        }
        // No holder is named while the lock is free.
        self.write("");
        // Before the unlock: the next holder may be another thread of this process.
        if let Some(held) = self.held {
            held.remove();
        }
        // A forked process may keep both files open, so closing them is not enough.
        if let Some(region0) = &self.region0 {
            let _ = region0.unlock();
        }
        let _ = self.file.unlock();
    }
}

/// Returns whether the lock file in `dir` says that a whole store is there.
pub(crate) fn is_of_store(dir: &StoreDir) -> bool {
    dir.open_file(LOCK_FILE, Access::Read, OFlags::empty()).is_ok_and(|file| has_store_mark(&file))
}

/// Returns the holder that the lock file in `dir` names, if the kernel shows a lock on that file.
/// Does not touch the lock.
pub(crate) fn holder(dir: &StoreDir) -> Option<String> {
    let file = dir.open_file(LOCK_FILE, Access::Read, OFlags::empty()).ok()?;
    let inode = rustix::fs::fstat(&file).ok()?.st_ino;
    if !is_locked(&std::fs::read_to_string("/proc/locks").ok()?, inode) {
        return None;
    }
    let mut text = String::new();
    let _ = file.take(TEXT_BYTES_MAX).read_to_string(&mut text);
    let holder = text.lines().next().filter(|line| line.starts_with(HOLDER_BEGINS));
    Some(holder.unwrap_or("holder unknown").trim().to_owned())
}

/// Returns whether `locks`, the text of `/proc/locks`, has a lock by `flock` on a file with this
/// inode. The device is not compared: layered file systems show another one.
fn is_locked(locks: &str, inode: u64) -> bool {
    let inode_of = |line: &str| -> Option<u64> {
        let mut fields = line.split_whitespace().skip_while(|field| *field != "FLOCK");
        fields.nth(4)?.rsplit(':').next()?.parse().ok()
    };
    // A waiting process has `->` before the kind.
    locks.lines().filter(|line| !line.contains("->")).any(|line| inode_of(line) == Some(inode))
}

fn has_store_mark(file: &File) -> bool {
    let mut bytes = [0; TEXT_BYTES_MAX as usize];
    let read = file.read_at(&mut bytes, 0).unwrap_or(0);
    bytes[..read].ends_with(STORE_LINE.as_bytes())
}

/// Returns whether this is a lock file of this module: a short regular file that is empty or has
/// its text. A power failure can leave zeros instead.
fn is_lock_file(file: &mut File) -> std::io::Result<bool> {
    let about = file.metadata()?;
    if !about.is_file() || about.len() > TEXT_BYTES_MAX {
        return Ok(false);
    }
    let mut text = String::new();
    let read = Read::by_ref(file).take(TEXT_BYTES_MAX).read_to_string(&mut text).is_ok();
    file.rewind()?;
    let is_text = text.starts_with(HOLDER_BEGINS) || text == STORE_LINE;
    Ok(read && (is_text || text.bytes().all(|byte| byte == 0)))
}

fn holder_text() -> String {
    let command = std::fs::read_to_string("/proc/self/comm").unwrap_or_default();
    format!("{HOLDER_BEGINS}{} ({})\n", std::process::id(), command.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_by_flock_is_found_by_its_inode() {
        let locks = "1: POSIX  ADVISORY  WRITE 7 00:1b:41 0 EOF\n2: FLOCK  ADVISORY  WRITE 9 08:02:42 0 EOF\n\
                     2: -> FLOCK  ADVISORY  WRITE 9 08:02:43 0 EOF\n";
        let found: Vec<u64> = (41..=44).filter(|inode| is_locked(locks, *inode)).collect();
        assert_eq!(found, [42]);
    }
}
