//! The values file on a file system.
//!
//! The file is empty when it is made, so it takes its name at once: whatever an interrupted making leaves is a whole, empty file, and
//! there is nothing to tell apart or to remove.

use std::fs::File;
use std::io::{self, IoSliceMut};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use lodestore_contract::{Error, Result};
use rustix::fs::{FallocateFlags, MemfdFlags, OFlags};
use rustix::io::{Errno, ReadWriteFlags};

use crate::blocks::buffer::{Blocks, is_aligned};
use crate::blocks::view::View;
use crate::blocks::{BLOCK, BlockOptions};
use crate::probe::{self, Medium, MediumKind};
use crate::store_dir::{Access, StoreDir};

/// The file's name in a store's directory.
pub(crate) const VALUES_FILE: &str = "values.0000";
/// Most bytes that a direct read moves through a buffer of its own at once.
const PIECE: usize = 1 << 20;
/// Most bytes of a read through the view, but where the file is in memory: a longer one is one call, and one request of the medium.
const VIEWED: usize = 16 << 10;
/// So many answers that the page cache has what is read are no trust: where it has half of all, a call that brings both pages of a value is better than a load that waits for each.
const YES_FEW: u32 = 3;
/// And behind so many, 63 reads go by without another.
const YES_MAX: u32 = YES_FEW + 6;

/// An open values file.
#[derive(Debug)]
pub(super) struct DiskFile {
    file: File,
    pub(super) path: PathBuf,
    pub(super) direct: bool,
    /// It is memory itself (tmpfs, DAX): nothing of it is to be waited for, and nobody needs to ask.
    in_memory: bool,
    /// For what the page cache holds; none where all reads are to be calls.
    view: Option<View>,
    /// The file system cannot say what the page cache has: it is not asked again.
    mute: AtomicBool,
    /// Reads to go before the next one asks whether the page cache still has what is read. They go through the view where there is one.
    trust: AtomicU32,
    /// How many such answers in turn were yes: behind [`YES_FEW`] of them each doubles the trust.
    yes: AtomicU32,
}

impl DiskFile {
    /// Opens the file in `dir`, or makes it; the file and its length. `most` bytes of it are mapped, where `options` ask for that. With `name_lasts` its name is durable when this returns.
    ///
    /// # Errors
    /// [`Error::Foreign`] where it is a link or no ordinary file, [`Error::InvalidOption`] where the file system has no direct I/O, [`Error::Io`].
    pub(super) fn open(
        dir: &StoreDir,
        options: &BlockOptions,
        (most, pool_medium): (u64, &Medium),
        name_lasts: bool,
    ) -> Result<(Self, u64)> {
        let path = dir.path_of(VALUES_FILE);
        let file = open_or_make(dir, &path, options)?;
        let found = file.metadata().map_err(|refused| Error::io("looking at", &path, refused))?;
        if !found.is_file() {
            return Err(foreign(&path));
        }
        if name_lasts {
            dir.sync()?;
        }
        let view = if options.mapped && !options.direct { View::of(&file, most) } else { None };
        let medium = probe::medium_of(&file).map_err(|refused| Error::io("probing", &path, refused.into()))?;
        if found.nlink() > 0 {
            // Its writes are made durable by syncs alone, so a page cache is enough under a pool on
            // DAX.
            let is_dax = pool_medium.kind == MediumKind::Dax;
            let needed = if is_dax { &Medium { kind: MediumKind::File, ..pool_medium.clone() } } else { pool_medium };
            probe::check_as_strong(&path, &medium, needed)?;
        }
        // One without a name stands for none ([`nobodys`]): there is nothing to be read.
        let in_memory = found.nlink() > 0 && matches!(medium.kind, MediumKind::Shm | MediumKind::Dax);
        let opened = Self::new(file, path, options.direct, in_memory, view);
        if options.direct {
            opened.try_direct()?;
        }
        Ok((opened, found.len()))
    }

    fn new(file: File, path: PathBuf, direct: bool, in_memory: bool, view: Option<View>) -> Self {
        let (trust, yes) = (AtomicU32::new(0), AtomicU32::new(0));
        Self { file, path, direct, in_memory, view, mute: AtomicBool::new(false), trust, yes }
    }

    /// Some file systems grant direct I/O at the open, and refuse it at the first read.
    fn try_direct(&self) -> Result<()> {
        let mut block = Blocks::zeroed(BLOCK as usize);
        match self.file.read_at(&mut block, 0) {
            Err(refused) if refused.raw_os_error() == Some(libc::EINVAL) => Err(no_direct(&self.path)),
            // Whatever else goes wrong goes wrong again where it matters.
            _ => Ok(()),
        }
    }

    /// Reads exactly as many bytes as fit; with fewer there, [`ErrorKind::UnexpectedEof`].
    #[inline]
    pub(super) fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        if !self.direct && (self.in_memory || into.len() <= VIEWED) {
            let trust = self.trust.load(Ordering::Relaxed);
            if trust == 0 && !self.in_memory {
                if self.read_cached(at, into) {
                    return Ok(());
                }
            } else {
                if !self.in_memory {
                    // Where threads count at once, some reads are not counted.
                    self.trust.store(trust - 1, Ordering::Relaxed);
                }
                if self.view.as_ref().is_some_and(|view| view.copy(at, into)) {
                    return Ok(());
                }
            }
        }
        self.read_by_call(at, into)
    }

    /// As [`Self::read`], through no mapping.
    pub(super) fn read_by_call(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        if !self.direct || (at.is_multiple_of(BLOCK) && is_aligned(into)) {
            return self.file.read_exact_at(into, at);
        }
        let mut done = 0;
        let mut piece = Blocks::new();
        while done < into.len() {
            let from = at + done as u64;
            let lead = (from % BLOCK) as usize;
            let len = (lead + into.len() - done).next_multiple_of(BLOCK as usize).min(PIECE);
            piece.resize(len);
            self.file.read_exact_at(&mut piece, from - lead as u64)?;
            let taken = (len - lead).min(into.len() - done);
            into[done..done + taken].copy_from_slice(&piece[lead..lead + taken]);
            done += taken;
        }
        Ok(())
    }

    /// Reads what the page cache has; false where it has not all of it. A load from the mapping would wait there as well, but one at a time, whatever was asked for ahead: so the view is used as
    /// long as answers are yes.
    fn read_cached(&self, at: u64, into: &mut [u8]) -> bool {
        if self.mute.load(Ordering::Relaxed) {
            return false;
        }
        let len = into.len();
        let read = rustix::io::preadv2(&self.file, &mut [IoSliceMut::new(into)], at, ReadWriteFlags::NOWAIT);
        if matches!(read, Err(Errno::OPNOTSUPP | Errno::NOSYS)) {
            self.mute.store(true, Ordering::Relaxed);
        }
        let cached = read == Ok(len);
        let yes = if cached { (self.yes.load(Ordering::Relaxed) + 1).min(YES_MAX) } else { 0 };
        self.yes.store(yes, Ordering::Relaxed);
        self.trust.store((1 << yes.saturating_sub(YES_FEW)) - 1, Ordering::Relaxed);
        cached
    }

    /// Whether the next read finds its bytes in the page cache, by what was seen before, or since this byte is there.
    #[inline]
    pub(super) fn is_warm(&self, at: u64) -> bool {
        !self.direct && (self.is_trusted() || self.read_cached(at, &mut [0]))
    }

    /// Asks the processor for the first of these bytes, where the next read goes through the view.
    #[inline]
    pub(super) fn prefetch(&self, at: u64, len: usize) {
        if let Some(view) = &self.view
            && self.is_trusted()
        {
            view.prefetch(at, len);
        }
    }

    #[inline]
    fn is_trusted(&self) -> bool {
        self.in_memory || self.trust.load(Ordering::Relaxed) > 0
    }

    /// Asks for these bytes, which somebody is going to read: the system may begin with it. Through the page cache only.
    pub(super) fn will_read(&self, at: u64, len: u64) {
        if !self.direct && !self.in_memory {
            // Advice that is not taken is no failure.
            let _ = rustix::fs::fadvise(&self.file, at, std::num::NonZeroU64::new(len), rustix::fs::Advice::WillNeed);
        }
    }

    /// Bytes of the blocks that it has, if the system says.
    pub(super) fn taken(&self) -> Option<u64> {
        self.file.metadata().ok().map(|metadata| metadata.blocks() * 512)
    }

    /// Writes whole aligned blocks. A write that was cut short goes on where it was.
    pub(super) fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, at)
    }

    /// Reserves space for these bytes, and makes the file long enough for them, its length being `old`, or more by what is to go. On failure it is as long as it was.
    pub(super) fn reserve(&self, at: u64, len: u64, old: u64) -> io::Result<()> {
        // Some file systems fill up what there is before they refuse.
        if at >= old && probe::free_bytes(&self.file)? < len {
            return Err(Errno::NOSPC.into());
        }
        // A part of a block, where somebody has cut the file: new blocks are zero.
        if at >= old && self.file.metadata()?.len() > old {
            self.file.set_len(old)?;
        }
        let done = again(|| rustix::fs::fallocate(&self.file, FallocateFlags::empty(), at, len));
        if done.is_err() && at + len > old {
            // The file may have become longer on the way; if it stays so, its end is unused space.
            let _ = self.file.set_len(old);
        }
        done
    }

    pub(super) fn shrink(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    /// Gives back the space of these bytes, where the file system can.
    pub(super) fn punch(&self, at: u64, len: u64) -> io::Result<()> {
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        again(|| rustix::fs::fallocate(&self.file, how, at, len))
    }

    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

fn open_or_make(dir: &StoreDir, path: &Path, options: &BlockOptions) -> Result<File> {
    // A pipe, or a device, is refused before it is opened for writing.
    if dir.entry(VALUES_FILE)?.is_some_and(|found| !found.is_file()) {
        return Err(foreign(path));
    }
    let direct = if options.direct { OFlags::DIRECT } else { OFlags::empty() };
    let access = if options.read_only { Access::Read } else { Access::ReadWrite };
    let open = || dir.open_file(VALUES_FILE, access, direct);
    let opened = match open() {
        Err(Errno::NOENT) if !options.read_only => {
            // Without the flags: where direct I/O is refused, that is told as such.
            let made = dir.open_file(VALUES_FILE, Access::CreateNew, OFlags::empty());
            made.map_err(|refused| Error::io("creating", path, refused.into()))?;
            open()
        }
        Err(Errno::NOENT) => nobodys(),
        other => other,
    };
    opened.map_err(|refused| match refused {
        Errno::LOOP => foreign(path),
        Errno::INVAL if options.direct => no_direct(path),
        _ => Error::io("opening", path, refused.into()),
    })
}

/// An empty file without a name, for one that is missing and not to be made.
fn nobodys() -> rustix::io::Result<File> {
    Ok(rustix::fs::memfd_create(VALUES_FILE, MemfdFlags::CLOEXEC)?.into())
}

fn foreign(path: &Path) -> Error {
    Error::Foreign { path: path.into(), what: "it is a link, or no ordinary file".into() }
}

fn no_direct(path: &Path) -> Error {
    let why = format!("the file system of {} has no direct I/O: leave it off, or use ext4 or xfs", path.display());
    Error::InvalidOption { name: "direct".into(), value: "on".into(), why }
}

/// Repeats a call that a signal has interrupted.
fn again(mut call: impl FnMut() -> rustix::io::Result<()>) -> io::Result<()> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            other => return other.map_err(Into::into),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each small read made a call in vain.
    #[test]
    fn a_file_system_that_cannot_say_what_is_cached_is_asked_once() {
        // The kernel makes it while it is read.
        let path = Path::new("/proc/self/maps");
        let file = DiskFile::new(File::open(path).expect("opens"), path.into(), false, false, None);
        let mut bytes = [0; 16];
        for _ in 0..2 {
            file.read(0, &mut bytes).expect("readable");
            assert!(bytes.contains(&b'-') && file.mute.load(Ordering::Relaxed));
        }
        assert!(!file.is_warm(0));
    }
}
