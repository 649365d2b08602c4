//! The values file on a file system.
//!
//! The file is created empty and under its final name: an interrupted creation leaves a whole,
//! empty file. No later open has to recognize or remove a partial file.

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
use crate::blocks::{BLOCK_BYTES, BlockOptions};
use crate::file_names::VALUES_FILE;
use crate::probe::{self, Medium, MediumKind};
use crate::store_dir::{Access, StoreDir};

/// Maximum bytes that an unaligned direct read moves through its own buffer at a time.
const PIECE_BYTES_MAX: usize = 1 << 20;
/// Maximum bytes of a read through the view, except for files in memory. A longer read is one call,
/// and one request to the medium.
const VIEW_READ_BYTES_MAX: usize = 16 << 10;
/// Maximum consecutive "cached" answers that give no trust yet. If half of the data is cached, one
/// call that fetches both pages of a value beats loads that wait for each page.
const UNTRUSTED_HITS_MAX: u32 = 3;
/// Consecutive "cached" answers after which trust stops growing: 63 reads without another query.
const CACHED_HITS_MAX: u32 = UNTRUSTED_HITS_MAX + 6;

/// An open values file.
#[derive(Debug)]
pub(super) struct DiskFile {
    file: File,
    pub(super) path: PathBuf,
    pub(super) direct: bool,
    /// The file is in memory itself (tmpfs, DAX): reads never wait, and no query is needed.
    in_memory: bool,
    /// Serves cached data; `None` if all reads are calls.
    view: Option<View>,
    /// The file system cannot report what the page cache holds: it is not asked again.
    lacks_cache_query: AtomicBool,
    /// Reads before the next query of the page cache. They use the view if there is one.
    trusted_reads: AtomicU32,
    /// Consecutive "cached" answers: after [`UNTRUSTED_HITS_MAX`] of them each one doubles the
    /// trust.
    cached_hits: AtomicU32,
}

impl DiskFile {
    /// Opens the file in `dir`, or creates it; returns it with its length. Maps `view_bytes` bytes
    /// if `options` ask for that. With `name_lasts` the name is durable on return.
    ///
    /// # Errors
    /// [`Error::Foreign`] if it is a link or no regular file; [`Error::InvalidOption`] if the file
    /// system has no direct I/O; [`Error::Io`].
    pub(super) fn open(
        dir: &StoreDir,
        options: &BlockOptions,
        (view_bytes, pool_medium): (u64, &Medium),
        name_lasts: bool,
    ) -> Result<(Self, u64)> {
        let path = dir.path_of(VALUES_FILE);
        let file = open_or_create(dir, &path, options)?;
        let found = file.metadata().map_err(|refused| Error::io("reading the attributes of", &path, refused))?;
        if !found.is_file() {
            return Err(foreign(&path));
        }
        if name_lasts {
            dir.sync()?;
        }
        let view = if options.mapped && !options.direct { View::of(&file, view_bytes) } else { None };
        let medium = probe::medium_of(&file).map_err(|refused| Error::io("probing", &path, refused.into()))?;
        if found.nlink() > 0 {
            // Only syncs make its writes durable, so a page cache suffices for a pool on DAX.
            let is_dax = pool_medium.kind == MediumKind::Dax;
            let needed = if is_dax { &Medium { kind: MediumKind::File, ..pool_medium.clone() } } else { pool_medium };
            probe::check_as_strong(&path, &medium, needed)?;
        }
        // A file without a name replaces a missing one ([`unnamed_file`]): it has no bytes to read.
        let in_memory = found.nlink() > 0 && matches!(medium.kind, MediumKind::Shm | MediumKind::Dax);
        let opened = Self::new(file, path, options.direct, in_memory, view);
        if options.direct {
            opened.try_direct()?;
        }
        Ok((opened, found.len()))
    }

    fn new(file: File, path: PathBuf, direct: bool, in_memory: bool, view: Option<View>) -> Self {
        let (trusted_reads, cached_hits) = (AtomicU32::new(0), AtomicU32::new(0));
        Self {
            file,
            path,
            direct,
            in_memory,
            view,
            lacks_cache_query: AtomicBool::new(false),
            trusted_reads,
            cached_hits,
        }
    }

    /// Tests direct I/O: some file systems grant it at the open and refuse it at the first read.
    fn try_direct(&self) -> Result<()> {
        let mut block = Blocks::zeroed(BLOCK_BYTES as usize);
        match self.file.read_at(&mut block, 0) {
            Err(refused) if refused.raw_os_error() == Some(libc::EINVAL) => Err(no_direct(&self.path)),
            // Any other error recurs at a real read.
            _ => Ok(()),
        }
    }

    /// Reads exactly `into.len()` bytes; fails with [`ErrorKind::UnexpectedEof`] if fewer are
    /// there.
    #[inline]
    pub(super) fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        if !self.direct && (self.in_memory || into.len() <= VIEW_READ_BYTES_MAX) {
            let trusted_reads = self.trusted_reads.load(Ordering::Relaxed);
            if trusted_reads == 0 && !self.in_memory {
                if self.read_cached(at, into) {
                    return Ok(());
                }
            } else {
                if !self.in_memory {
                    // If threads count concurrently, some reads are not counted.
                    self.trusted_reads.store(trusted_reads - 1, Ordering::Relaxed);
                }
                if self.view.as_ref().is_some_and(|view| view.copy(at, into)) {
                    return Ok(());
                }
            }
        }
        self.read_by_call(at, into)
    }

    /// Like [`Self::read`], without the mapping.
    pub(super) fn read_by_call(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        if !self.direct || (at.is_multiple_of(BLOCK_BYTES) && is_aligned(into)) {
            return self.file.read_exact_at(into, at);
        }
        let mut done = 0;
        let mut piece = Blocks::new();
        while done < into.len() {
            let from = at + done as u64;
            let lead = (from % BLOCK_BYTES) as usize;
            let len = (lead + into.len() - done).next_multiple_of(BLOCK_BYTES as usize).min(PIECE_BYTES_MAX);
            piece.resize(len);
            self.file.read_exact_at(&mut piece, from - lead as u64)?;
            let taken = (len - lead).min(into.len() - done);
            into[done..done + taken].copy_from_slice(&piece[lead..lead + taken]);
            done += taken;
        }
        Ok(())
    }

    /// Reads from the page cache without waiting; returns false if any byte is not cached. A load
    /// from the mapping would wait too, but for one page at a time, despite any read-ahead. The
    /// view is therefore used only while queries find the data cached.
    fn read_cached(&self, at: u64, into: &mut [u8]) -> bool {
        if self.lacks_cache_query.load(Ordering::Relaxed) {
            return false;
        }
        let len = into.len();
        let read = rustix::io::preadv2(&self.file, &mut [IoSliceMut::new(into)], at, ReadWriteFlags::NOWAIT);
        if matches!(read, Err(Errno::OPNOTSUPP | Errno::NOSYS)) {
            self.lacks_cache_query.store(true, Ordering::Relaxed);
        }
        let cached = read == Ok(len);
        let cached_hits = if cached { (self.cached_hits.load(Ordering::Relaxed) + 1).min(CACHED_HITS_MAX) } else { 0 };
        self.cached_hits.store(cached_hits, Ordering::Relaxed);
        self.trusted_reads.store((1 << cached_hits.saturating_sub(UNTRUSTED_HITS_MAX)) - 1, Ordering::Relaxed);
        cached
    }

    /// Returns whether the next read finds its bytes in the page cache: recent reads did, or this
    /// byte is cached.
    #[inline]
    pub(super) fn is_warm(&self, at: u64) -> bool {
        !self.direct && (self.is_trusted() || self.read_cached(at, &mut [0]))
    }

    /// Prefetches the first of these bytes into the processor's cache, if the next read uses the
    /// view.
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
        self.in_memory || self.trusted_reads.load(Ordering::Relaxed) > 0
    }

    /// Announces a read of these bytes, so that the system may begin it. Affects the page cache
    /// only.
    pub(super) fn will_read(&self, at: u64, len: u64) {
        if !self.direct && !self.in_memory {
            // Ignored advice is no failure.
            let _ = rustix::fs::fadvise(&self.file, at, std::num::NonZeroU64::new(len), rustix::fs::Advice::WillNeed);
        }
    }

    /// Returns the bytes of the blocks that the file uses, if the system reports them.
    pub(super) fn used_bytes(&self) -> Option<u64> {
        self.file.metadata().ok().map(|metadata| metadata.blocks() * 512)
    }

    /// Writes whole aligned blocks. Continues after a short write.
    pub(super) fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, at)
    }

    /// Reserves space for these bytes and extends the file over them. `old` is the file's intended
    /// length; any excess is cut off. On failure the length is unchanged.
    pub(super) fn reserve(&self, at: u64, len: u64, old: u64) -> io::Result<()> {
        // Some file systems use up all free space before they refuse.
        if at >= old && probe::free_bytes(&self.file)? < len {
            return Err(Errno::NOSPC.into());
        }
        // Part of a block remains if someone has cut the file. New blocks must be zero.
        if at >= old && self.file.metadata()?.len() > old {
            self.file.set_len(old)?;
        }
        let done = retry_interrupted(|| rustix::fs::fallocate(&self.file, FallocateFlags::empty(), at, len));
        if done.is_err() && at + len > old {
            // The failed call may have extended the file; if this fails, the extra end is unused
            // space.
            let _ = self.file.set_len(old);
        }
        done
    }

    pub(super) fn shrink(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    /// Frees the space of these bytes, if the file system can.
    pub(super) fn punch(&self, at: u64, len: u64) -> io::Result<()> {
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        retry_interrupted(|| rustix::fs::fallocate(&self.file, how, at, len))
    }

    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

fn open_or_create(dir: &StoreDir, path: &Path, options: &BlockOptions) -> Result<File> {
    // Refuses a pipe or a device before it is opened for writing.
    if dir.entry(VALUES_FILE)?.is_some_and(|found| !found.is_file()) {
        return Err(foreign(path));
    }
    let direct = if options.direct { OFlags::DIRECT } else { OFlags::empty() };
    let access = if options.read_only { Access::Read } else { Access::ReadWrite };
    let open = || dir.open_file(VALUES_FILE, access, direct);
    let opened = match open() {
        Err(Errno::NOENT) if !options.read_only => {
            // Without the flags: a refusal of direct I/O is reported as such.
            let made = dir.open_file(VALUES_FILE, Access::CreateNew, OFlags::empty());
            made.map_err(|refused| Error::io("creating", path, refused.into()))?;
            open()
        }
        Err(Errno::NOENT) => unnamed_file(),
        other => other,
    };
    opened.map_err(|refused| match refused {
        Errno::LOOP => foreign(path),
        Errno::INVAL if options.direct => no_direct(path),
        _ => Error::io("opening", path, refused.into()),
    })
}

/// Returns an empty file without a name, in place of a missing file that must not be created.
fn unnamed_file() -> rustix::io::Result<File> {
    Ok(rustix::fs::memfd_create(VALUES_FILE, MemfdFlags::CLOEXEC)?.into())
}

fn foreign(path: &Path) -> Error {
    Error::Foreign { path: path.into(), what: "it is a link, or not a regular file".into() }
}

fn no_direct(path: &Path) -> Error {
    let why = format!(
        "the file system of {} does not support direct I/O: set direct=off, or use ext4 or xfs",
        path.display()
    );
    Error::InvalidOption { name: "direct".into(), value: "on".into(), why }
}

/// Repeats a call that a signal interrupted.
fn retry_interrupted(mut call: impl FnMut() -> rustix::io::Result<()>) -> io::Result<()> {
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

    /// Regression: each small read made one useless call.
    #[test]
    fn a_file_system_that_cannot_report_cached_pages_is_queried_once() {
        // The kernel generates this file during the read.
        let path = Path::new("/proc/self/maps");
        let file = DiskFile::new(File::open(path).expect("opens"), path.into(), false, false, None);
        let mut bytes = [0; 16];
        for _ in 0..2 {
            file.read(0, &mut bytes).expect("readable");
            assert!(bytes.contains(&b'-') && file.lacks_cache_query.load(Ordering::Relaxed));
        }
        assert!(!file.is_warm(0));
    }
}
