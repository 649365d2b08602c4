//! A values file next to a pool's regions, for engines that keep large values in blocks on an SSD
//! instead of in a mapping. Source: HashKV, ATC 2018 (value segments in storage, the index
//! elsewhere).
//!
//! The file is `values.0000` in the store's directory, without a header: the engine owns every byte
//! and checks the bytes that it reads. Reads may start at any byte offset. Writes are whole blocks.
//! Both use the page cache or bypass it (`direct`). The file is mapped for reading only (`mapped`);
//! reads use the mapping while the page cache has the data. Bytes are copied out of the mapping,
//! and a medium error there is reported like the error of a read call (`view.rs`).
//!
//! ## Persist order
//! * open: the name is durable, then the file's content is durable, and only then can anyone read
//!   it. (A killed process may have left content written but not synced.)
//! * write, grow, shrink, punch: nothing is durable before the next sync. Before that sync each
//!   block, and the length, may or may not be durable, independently of each other.
//! * sync: writes and length changes made before the call are durable. Pointers into the file are
//!   stored in the pool afterwards.
//! * before [`Pool::close`] with `clean` the engine calls [`BlockFile::sync_now`]: the clean flag
//!   vouches for the file as well.
//!
//! ## Invariants
//! * `len` is a whole number of blocks, changes under `resize` only, and never exceeds the file's
//!   length. `len` is raised after the file has grown and lowered before the file is cut. File
//!   content after `len` is cut off before the file grows, therefore new blocks are zero.
//! * One sync at a time, and a failed sync poisons the pool before the next one begins. The system
//!   reports a failed write-back once; a concurrent second sync might report success.
//! * No two threads write one block at a time. No thread reads a block that is being written, cut
//!   off or punched. The engine ensures both (a race gives wrong bytes, never wrong memory).
//! * Writes are refused once the pool is poisoned or closed; reads continue.

mod buffer;
mod file;
#[cfg_attr(not(feature = "sim"), path = "not_sim.rs")]
mod sim;
mod view;

use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use lodestore_contract::{Error, PoisonReason, Result};

use crate::fault::PlantedFault;
use crate::file_names::VALUES_FILE;
use crate::mutex::lock;
use crate::pool::Pool;

pub use buffer::Blocks;

const BLOCK_BYTES: u64 = BlockFile::BLOCK;

/// Options for opening a values file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockOptions {
    /// Reads and writes bypass the page cache (`O_DIRECT`). File systems without direct I/O refuse
    /// the open, for example tmpfs before Linux 6.6.
    pub direct: bool,
    /// The file is only read: it is not created, and writes are refused. A missing file reads as an
    /// empty one.
    pub read_only: bool,
    /// Maximum size of the file in bytes; nothing is reserved.
    pub capacity: u64,
    /// Cached data is read through a mapping. A medium error in a mapping raises SIGBUS, so the
    /// first such file of a process installs a handler, which passes foreign signals on. Ignored
    /// with `direct`.
    pub mapped: bool,
}

impl Default for BlockOptions {
    fn default() -> Self {
        Self { direct: false, read_only: false, capacity: 16 << 40, mapped: true }
    }
}

/// Counts of the operations on a values file since it was opened. The pool's own counts exclude
/// them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BlockCounts {
    /// Bytes requested by reads.
    pub bytes_read: u64,
    /// Number of reads.
    pub reads: u64,
    /// Bytes written, in whole blocks.
    pub bytes_written: u64,
    /// Number of writes.
    pub writes: u64,
    /// Syncs requested from the system.
    pub syncs: u64,
}

#[derive(Debug, Default)]
struct Counts {
    bytes_read: AtomicU64,
    reads: AtomicU64,
    bytes_written: AtomicU64,
    writes: AtomicU64,
    syncs: AtomicU64,
}

fn count(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}

/// Storage of the file's bytes.
#[derive(Debug)]
enum Backing {
    Disk(file::DiskFile),
    Sim(sim::SimFile),
}

/// The values file of a pool; see the module. All methods may be called from any thread. Open it
/// once per pool: a second handle would not see the growth done by the first.
#[derive(Debug)]
pub struct BlockFile {
    pool: Arc<Pool>,
    backing: Backing,
    options: BlockOptions,
    len: AtomicU64,
    resize: Mutex<()>,
    /// Held during a sync.
    syncing: Mutex<()>,
    /// Number of syncs begun.
    begun: AtomicU64,
    counts: Counts,
}

impl BlockFile {
    /// Bytes of a block: the unit of writes and lengths.
    pub const BLOCK: u64 = 4096;

    /// Opens the pool's values file, or creates an empty one with mode 0600. If the pool's
    /// durability needs syncs, the name and the content are durable on return. A length that is not
    /// a whole number of blocks is rounded down; the rest is cut off when the file grows.
    ///
    /// # Errors
    /// [`Error::Foreign`] if the name belongs to a link or a non-regular file;
    /// [`Error::InvalidOption`] if the file system has no direct I/O (an empty file may have been
    /// created); [`Error::Poisoned`], [`Error::Closed`]; [`Error::Io`].
    #[track_caller]
    pub fn open(pool: &Arc<Pool>, options: &BlockOptions) -> Result<Self> {
        let writes = !options.read_only;
        if writes {
            pool.check()?;
        }
        let makes_durable = writes && pool.persists();
        let (backing, found) = Backing::open(pool, options, makes_durable)?;
        let opened = Self {
            pool: Arc::clone(pool),
            backing,
            options: options.clone(),
            len: AtomicU64::new(found / BLOCK_BYTES * BLOCK_BYTES),
            resize: Mutex::new(()),
            syncing: Mutex::new(()),
            begun: AtomicU64::new(0),
            counts: Counts::default(),
        };
        if makes_durable && found > 0 {
            opened.sync_now()?;
        }
        Ok(opened)
    }

    /// Returns the length of the file in bytes, a whole number of blocks.
    #[expect(
        clippy::len_without_is_empty,
        reason = "a length in bytes of a file, of which nobody asks whether it is none"
    )]
    pub fn len(&self) -> u64 {
        self.len.load(Ordering::Acquire)
    }

    /// Returns the bytes that the file uses on its medium; punched ranges ([`Self::punch`]) use
    /// none. Returns the length for a simulated pool, and if the medium does not report its usage.
    pub fn taken(&self) -> u64 {
        match &self.backing {
            Backing::Disk(file) => file.used_bytes().map_or(self.len(), |taken| taken.min(self.len())),
            Backing::Sim(_) => self.len(),
        }
    }

    /// Returns whether reads and writes bypass the page cache. Always false in a simulated pool.
    pub fn is_direct(&self) -> bool {
        match &self.backing {
            Backing::Disk(file) => file.direct,
            Backing::Sim(_) => false,
        }
    }

    /// Returns the counts since the open.
    pub fn counts(&self) -> BlockCounts {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counts = &self.counts;
        BlockCounts {
            bytes_read: of(&counts.bytes_read),
            reads: of(&counts.reads),
            bytes_written: of(&counts.bytes_written),
            writes: of(&counts.writes),
            syncs: of(&counts.syncs),
        }
    }

    /// Like [`Pool::has_fault`], for the file's pool.
    #[inline]
    pub fn has_fault(&self, fault: PlantedFault) -> bool {
        self.pool.has_fault(fault)
    }

    fn path(&self) -> &Path {
        match &self.backing {
            Backing::Disk(file) => &file.path,
            Backing::Sim(_) => Path::new(VALUES_FILE),
        }
    }

    // ---- bytes ----

    /// Reads `into.len()` bytes at `at`: any offset and any length inside the file.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the range exceeds the file: the pointer was written for a longer file.
    /// [`Error::Io`].
    #[inline]
    pub fn read(&self, at: u64, into: &mut [u8]) -> Result<()> {
        self.read_with(at, into, file::DiskFile::read)
    }

    /// Like [`Self::read`], for bytes announced with [`Self::will_read`]. Their presence in the
    /// page cache says nothing about other bytes, so the read does not update the cache statistics.
    ///
    /// # Errors
    /// Like [`Self::read`].
    pub fn read_asked(&self, at: u64, into: &mut [u8]) -> Result<()> {
        self.read_with(at, into, file::DiskFile::read_by_call)
    }

    fn read_with(
        &self,
        at: u64,
        into: &mut [u8],
        read: impl FnOnce(&file::DiskFile, u64, &mut [u8]) -> io::Result<()>,
    ) -> Result<()> {
        self.check_range("read", at, into.len() as u64)?;
        let done = match &self.backing {
            Backing::Disk(file) => read(file, at, into),
            Backing::Sim(file) => file.read(&self.pool, at, into),
        };
        done.map_err(|refused| match refused.kind() {
            ErrorKind::UnexpectedEof => self.beyond_end_error("read", at, into.len() as u64),
            _ => Error::io("reading", self.path(), refused),
        })?;
        count(&self.counts.reads, 1);
        count(&self.counts.bytes_read, into.len() as u64);
        Ok(())
    }

    /// Returns whether the page cache has the byte at `at`, or had the bytes of recent reads.
    /// Reading ahead ([`Self::will_read`]) and sorting reads is useless then. The answer may be
    /// wrong.
    #[inline]
    pub fn is_warm(&self, at: u64) -> bool {
        match &self.backing {
            Backing::Disk(file) => file.is_warm(at),
            Backing::Sim(_) => false,
        }
    }

    /// Prefetches the first KiB of these bytes into the processor's cache before a read, if the
    /// next read uses the mapping. Otherwise, and for bytes outside the file, does nothing.
    #[inline]
    pub fn prefetch(&self, at: u64, len: usize) {
        match &self.backing {
            Backing::Disk(file) => file.prefetch(at, len),
            Backing::Sim(_) => {}
        }
    }

    /// Announces a read of these bytes, so that the system may fetch several pieces concurrently.
    /// Does not wait. Does nothing if the file is opened `direct`.
    pub fn will_read(&self, at: u64, len: u64) {
        match &self.backing {
            Backing::Disk(file) => file.will_read(at, len),
            Backing::Sim(_) => {}
        }
    }

    /// Writes the blocks at `at`, and pads the last one with zeros. They are durable after the next
    /// sync. After an error any subset of them may be written.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if they are not inside the file; [`Error::Full`] if the medium has no
    /// space for a range that was punched or never reserved; [`Error::Poisoned`],
    /// [`Error::Closed`]; [`Error::Unsupported`] if the file is read-only; [`Error::Io`].
    ///
    /// # Panics
    /// If `at` is not a multiple of a block.
    #[track_caller]
    pub fn write(&self, at: u64, blocks: &Blocks) -> Result<()> {
        assert!(at.is_multiple_of(BLOCK_BYTES), "a write at {at:#x}, inside a block");
        self.check_writes()?;
        let bytes = blocks.whole();
        let len = bytes.len() as u64;
        self.check_range("written", at, len)?;
        let done = match &self.backing {
            Backing::Disk(file) => file.write(at, bytes),
            Backing::Sim(file) => file.write(&self.pool, at, bytes),
        };
        done.map_err(|refused| self.write_error("writing", len, refused))?;
        count(&self.counts.writes, 1);
        count(&self.counts.bytes_written, len);
        Ok(())
    }

    // ---- length and space ----

    /// Makes the file at least `len` bytes long, rounded up to a block. New blocks are zero, and
    /// their space is reserved. The length is durable after the next sync.
    ///
    /// # Errors
    /// [`Error::Full`] if `capacity` or the medium has no space, and the length is unchanged;
    /// [`Error::Poisoned`], [`Error::Closed`]; [`Error::Unsupported`] if the file is read-only;
    /// [`Error::Io`].
    #[track_caller]
    pub fn grow(&self, len: u64) -> Result<()> {
        let _held = lock(&self.resize);
        self.check_writes()?;
        let old = self.len();
        if len <= old {
            return Ok(());
        }
        let rounded = len.checked_next_multiple_of(BLOCK_BYTES).filter(|rounded| *rounded <= self.options.capacity);
        let Some(len) = rounded else {
            return Err(Error::Full { needed: len - old, capacity: self.options.capacity });
        };
        let done = match &self.backing {
            Backing::Disk(file) => file.reserve(old, len - old, old),
            Backing::Sim(file) => file.grow(&self.pool, len),
        };
        done.map_err(|refused| self.write_error("growing", len - old, refused))?;
        self.len.store(len, Ordering::Release);
        Ok(())
    }

    /// Makes the file at most `len` bytes long, rounded up to a block; the file system frees the
    /// rest. The length is durable after the next sync; before that a crash may leave the old
    /// length.
    ///
    /// # Errors
    /// [`Error::Poisoned`], [`Error::Closed`]; [`Error::Unsupported`] if the file is read-only;
    /// [`Error::Io`].
    #[track_caller]
    pub fn shrink(&self, len: u64) -> Result<()> {
        let _held = lock(&self.resize);
        self.check_writes()?;
        let old = self.len();
        let Some(len) = len.checked_next_multiple_of(BLOCK_BYTES).filter(|len| *len < old) else { return Ok(()) };
        self.len.store(len, Ordering::Release);
        let done = match &self.backing {
            Backing::Disk(file) => file.shrink(len),
            Backing::Sim(file) => file.shrink(&self.pool, len),
        };
        done.map_err(|refused| {
            self.len.store(old, Ordering::Release);
            Error::io("shortening", self.path(), refused)
        })
    }

    /// Frees the space of these bytes in the file system, if supported; the length stays. The bytes
    /// are zero then, or unchanged if the file system cannot punch. Before the next sync a crash
    /// may leave either. Writing there again needs space that may be gone: see [`Self::reserve`].
    ///
    /// # Errors
    /// Like [`Self::write`], except that a refusal of the file system is not an error.
    ///
    /// # Panics
    /// If the range is not whole blocks.
    #[track_caller]
    pub fn punch(&self, at: u64, len: u64) -> Result<()> {
        assert!(
            at.is_multiple_of(BLOCK_BYTES) && len.is_multiple_of(BLOCK_BYTES),
            "{len} bytes at {at:#x} are no whole blocks"
        );
        self.check_writes()?;
        self.check_range("freed", at, len)?;
        if len == 0 {
            return Ok(());
        }
        match &self.backing {
            // If punching fails, the space stays allocated, and the next write there uses it.
            Backing::Disk(file) => drop(file.punch(at, len)),
            Backing::Sim(file) => file.punch(&self.pool, at, len),
        }
        Ok(())
    }

    /// Allocates space again for a punched range; its content stays.
    ///
    /// # Errors
    /// [`Error::Full`] if the medium has no space; otherwise like [`Self::write`].
    pub fn reserve(&self, at: u64, len: u64) -> Result<()> {
        let _held = lock(&self.resize);
        self.check_writes()?;
        self.check_range("reserved", at, len)?;
        if len == 0 {
            return Ok(());
        }
        let done = match &self.backing {
            Backing::Disk(file) => file.reserve(at, len, self.len()),
            Backing::Sim(file) => file.reserve(&self.pool),
        };
        done.map_err(|refused| self.write_error("reserving space of", len, refused))
    }

    // ---- durability ----

    /// Makes earlier writes durable if the pool's durability needs it. Does nothing at `process`;
    /// otherwise like [`Self::sync_now`].
    ///
    /// # Errors
    /// Like [`Self::sync_now`].
    #[track_caller]
    pub fn sync(&self) -> Result<()> {
        if self.pool.persists() { self.sync_now() } else { self.pool.check() }
    }

    /// Makes earlier writes and the length durable, at every durability (`fdatasync`). Threads that
    /// arrive during a sync share the next one.
    ///
    /// # Errors
    /// [`Error::Poisoned`], [`Error::Closed`]; [`Error::Io`], which also poisons the pool: the
    /// unwritten data is lost, and another sync would not write it.
    #[track_caller]
    pub fn sync_now(&self) -> Result<()> {
        let before = self.begun.load(Ordering::Acquire);
        let _held = lock(&self.syncing);
        self.pool.check()?;
        // A sync that began after this call covered all earlier writes, and it has ended.
        if self.options.read_only || self.begun.load(Ordering::Acquire) > before {
            return Ok(());
        }
        self.begun.fetch_add(1, Ordering::AcqRel);
        count(&self.counts.syncs, 1);
        let done = match &self.backing {
            Backing::Disk(file) => file.sync(),
            Backing::Sim(file) => file.sync(&self.pool),
        };
        done.map_err(|refused| {
            self.pool.poison(PoisonReason::Sync, &format!("fdatasync of {VALUES_FILE}: {refused}"));
            Error::io("syncing", self.path(), refused)
        })?;
        self.pool.check()
    }

    // ---- refusals ----

    fn check_writes(&self) -> Result<()> {
        if self.options.read_only {
            return Err(Error::Unsupported {
                engine: "media",
                what: "writing to a values file that was opened read-only".into(),
                instead: "open the store for writing",
            });
        }
        self.pool.check()
    }

    fn check_range(&self, doing: &str, at: u64, len: u64) -> Result<()> {
        match at.checked_add(len) {
            Some(end) if end <= self.len() => Ok(()),
            _ => Err(self.beyond_end_error(doing, at, len)),
        }
    }

    #[cold]
    fn beyond_end_error(&self, doing: &str, at: u64, len: u64) -> Error {
        let what = format!("{len} bytes were to be {doing} at this offset, and the file has {} bytes", self.len());
        Error::corrupt(format!("{VALUES_FILE} at {at:#x}"), what)
    }

    #[cold]
    fn write_error(&self, doing: &'static str, needed: u64, refused: io::Error) -> Error {
        match refused.raw_os_error() {
            Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG) => Error::Full { needed, capacity: self.options.capacity },
            _ => Error::io(doing, self.path(), refused),
        }
    }
}

impl Backing {
    /// Opens the pool's file; returns it with its length.
    fn open(pool: &Pool, options: &BlockOptions, name_lasts: bool) -> Result<(Self, u64)> {
        if let Some((file, len)) = sim::SimFile::open(pool) {
            return Ok((Self::Sim(file), len));
        }
        let Some(dir) = &pool.dir else { unreachable!("a pool that is not simulated has a directory") };
        let len_max = pool.options().capacity.min(options.capacity);
        let (file, len) = file::DiskFile::open(dir, options, (len_max, &pool.medium), name_lasts)?;
        Ok((Self::Disk(file), len))
    }
}
