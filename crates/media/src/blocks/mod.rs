//! A file of values beside a pool's regions, for engines that keep what is large on an SSD, in blocks, and not in a mapping
//! (HashKV, ATC 2018: segments of values in storage, the index elsewhere).
//!
//! The file is `values.0000` in the store's directory. It has no header: every byte is the engine's, which checks what it reads. It is read at any
//! place and written by whole blocks, through the page cache or past it (`direct`). It is mapped for reading only (`mapped`), and read through the mapping while the page cache has what is
//! read; bytes are copied out, and a medium that fails there is told as of a call (`view.rs`).
//!
//! ## Persist order
//! * open: the name is durable, then what the file holds (a process that was killed may have left it written and not synced), then anybody reads it.
//! * write, grow, shrink, punch: nothing is durable before the next sync; each block and the length on their own.
//! * sync: durable is what was written, and the length that was set, before the call. What points into the file is stored in the pool behind it.
//! * before [`Pool::close`] with `clean` the engine calls [`BlockFile::sync_now`]: the clean flag vouches for the file as well.
//!
//! ## Invariants
//! * `len` is a whole number of blocks, changes under `resize` only, and is never more than the file's. It is raised after the file has grown and
//!   lowered before the file is cut. What the file has behind it is cut off before the file grows, so that new blocks are zero.
//! * One sync at a time, and the pool is poisoned before the next begins: the system tells a failed write-back once, so two at a time might
//!   let the second one believe that all is well.
//! * No two threads write one block at a time, and nobody reads a block that is being written, cut off or given back: that is the
//!   engine's affair (a race gives wrong bytes, never wrong memory).
//! * Writes go no further once the pool is poisoned or closed; reads go on.

mod buffer;
mod file;
#[cfg(feature = "sim")]
mod sim;
mod view;

use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use lodestore_contract::{Error, PoisonReason, Result};

use crate::mutant::Mutant;
use crate::mutex::lock;
use crate::pool::Pool;

pub use buffer::Blocks;
pub(crate) use file::VALUES_FILE;

const BLOCK: u64 = BlockFile::BLOCK;

/// How a values file is opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockOptions {
    /// Reads and writes go past the page cache (`O_DIRECT`). A file system without that refuses it, tmpfs before Linux 6.6 among them.
    pub direct: bool,
    /// The file is only read: it is neither made nor written, and writes are refused. One that is missing is read as one of no bytes.
    pub read_only: bool,
    /// Most bytes that it may grow to; nothing is reserved by it.
    pub capacity: u64,
    /// What the page cache holds is read through a mapping. A medium that fails there raises SIGBUS, so the first such file of a process sets a handler, which passes on what is not its own. It has no
    /// effect with `direct`.
    pub mapped: bool,
}

impl Default for BlockOptions {
    fn default() -> Self {
        Self { direct: false, read_only: false, capacity: 16 << 40, mapped: true }
    }
}

/// What was done to a values file since it was opened. None of it is in the pool's own counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BlockCounts {
    /// Bytes read, as asked for.
    pub bytes_read: u64,
    /// Reads.
    pub reads: u64,
    /// Bytes written: whole blocks.
    pub bytes_written: u64,
    /// Writes.
    pub writes: u64,
    /// Syncs that the system was asked for.
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

/// What holds the bytes.
#[derive(Debug)]
enum Backing {
    Disk(file::DiskFile),
    #[cfg(feature = "sim")]
    Sim(sim::SimFile),
}

/// The values file of a pool; see the module. Any thread may call anything. Open it once a pool: a second one would not see the first one's growth.
#[derive(Debug)]
pub struct BlockFile {
    pool: Arc<Pool>,
    backing: Backing,
    options: BlockOptions,
    len: AtomicU64,
    resize: Mutex<()>,
    /// Held while a sync goes on.
    syncing: Mutex<()>,
    /// Syncs begun.
    begun: AtomicU64,
    counts: Counts,
}

impl BlockFile {
    /// Bytes of a block: the unit of writes and lengths.
    pub const BLOCK: u64 = 4096;

    /// Opens the values file of this pool, or makes an empty one of mode 0600. Where the pool's durability needs syncs, its name and all that it
    /// holds are durable when this returns. One whose length is no whole number of blocks is taken as cut to whole ones; what is behind them goes when it grows.
    ///
    /// # Errors
    /// [`Error::Foreign`] where a link, or no ordinary file, has its name; [`Error::InvalidOption`] where the file system has no
    /// direct I/O (the file may have been made, empty); [`Error::Poisoned`], [`Error::Closed`]; [`Error::Io`].
    #[cfg_attr(feature = "sim", track_caller)]
    pub fn open(pool: &Arc<Pool>, options: &BlockOptions) -> Result<Self> {
        let writes = !options.read_only;
        if writes {
            pool.check()?;
        }
        let settles = writes && pool.persists();
        let (backing, found) = Backing::open(pool, options, settles)?;
        let opened = Self {
            pool: Arc::clone(pool),
            backing,
            options: options.clone(),
            len: AtomicU64::new(found / BLOCK * BLOCK),
            resize: Mutex::new(()),
            syncing: Mutex::new(()),
            begun: AtomicU64::new(0),
            counts: Counts::default(),
        };
        if settles && found > 0 && !pool.mutant(Mutant::FileNotSettled) {
            opened.sync_now()?;
        }
        Ok(opened)
    }

    /// Bytes of the file: a whole number of blocks.
    #[expect(
        clippy::len_without_is_empty,
        reason = "a length in bytes of a file, of which nobody asks whether it is none"
    )]
    pub fn len(&self) -> u64 {
        self.len.load(Ordering::Acquire)
    }

    /// Bytes that the file takes on its medium: what was given back ([`Self::punch`]) takes none. Of a simulated pool, and where the medium does not say, its length.
    pub fn taken(&self) -> u64 {
        match &self.backing {
            Backing::Disk(file) => file.taken().map_or(self.len(), |taken| taken.min(self.len())),
            #[cfg(feature = "sim")]
            Backing::Sim(_) => self.len(),
        }
    }

    /// Whether reads and writes go past the page cache. Never so in a simulated pool.
    pub fn is_direct(&self) -> bool {
        match &self.backing {
            Backing::Disk(file) => file.direct,
            #[cfg(feature = "sim")]
            Backing::Sim(_) => false,
        }
    }

    /// What was done since the open.
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

    /// As [`Pool::mutant`], of its pool.
    #[inline]
    pub fn mutant(&self, mutant: Mutant) -> bool {
        self.pool.mutant(mutant)
    }

    fn path(&self) -> &Path {
        match &self.backing {
            Backing::Disk(file) => &file.path,
            #[cfg(feature = "sim")]
            Backing::Sim(_) => Path::new(VALUES_FILE),
        }
    }

    // ---- bytes ----

    /// Reads `into.len()` bytes at `at`: any place and any length inside the file.
    ///
    /// # Errors
    /// [`Error::Corrupt`] where the file is shorter than that: what points there was written for a longer one. [`Error::Io`].
    #[inline]
    pub fn read(&self, at: u64, into: &mut [u8]) -> Result<()> {
        self.read_with(at, into, file::DiskFile::read)
    }

    /// As [`Self::read`], of bytes that were asked for ([`Self::will_read`]): that they are in the page cache says nothing of others.
    ///
    /// # Errors
    /// As [`Self::read`].
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
            #[cfg(feature = "sim")]
            Backing::Sim(file) => file.read(&self.pool, at, into),
        };
        done.map_err(|refused| match refused.kind() {
            ErrorKind::UnexpectedEof => self.shorter("read", at, into.len() as u64),
            _ => Error::io("reading", self.path(), refused),
        })?;
        count(&self.counts.reads, 1);
        count(&self.counts.bytes_read, into.len() as u64);
        Ok(())
    }

    /// Whether the page cache has the byte at `at`, or has had what was read of late: to ask for bytes ahead ([`Self::will_read`]) and to sort reads is a waste then. It may be wrong.
    #[inline]
    pub fn is_warm(&self, at: u64) -> bool {
        match &self.backing {
            Backing::Disk(file) => file.is_warm(at),
            #[cfg(feature = "sim")]
            Backing::Sim(_) => false,
        }
    }

    /// Asks the processor for the first KiB of these bytes, which somebody is about to read, while the next read goes through the mapping; else, and where they are not in the file, it does nothing.
    #[inline]
    pub fn prefetch(&self, at: u64, len: usize) {
        match &self.backing {
            Backing::Disk(file) => file.prefetch(at, len),
            #[cfg(feature = "sim")]
            Backing::Sim(_) => {}
        }
    }

    /// Says that these bytes are going to be read, so that the system may bring several such pieces at a time; nothing waits for it. Where the file is opened `direct` it does nothing.
    pub fn will_read(&self, at: u64, len: u64) {
        match &self.backing {
            Backing::Disk(file) => file.will_read(at, len),
            #[cfg(feature = "sim")]
            Backing::Sim(_) => {}
        }
    }

    /// Writes the blocks at `at`, the last one filled up with zeros. They are durable after the next sync. After an error nobody knows
    /// which of them are written.
    ///
    /// # Errors
    /// [`Error::Corrupt`] where they do not lie inside the file, [`Error::Full`] where the medium has no room for what was given back or
    /// never reserved, [`Error::Poisoned`], [`Error::Closed`], [`Error::Unsupported`] of one that is only read, [`Error::Io`].
    ///
    /// # Panics
    /// If `at` is no multiple of a block.
    #[cfg_attr(feature = "sim", track_caller)]
    pub fn write(&self, at: u64, blocks: &Blocks) -> Result<()> {
        assert!(at.is_multiple_of(BLOCK), "a write at {at:#x}, inside a block");
        self.check_writes()?;
        let bytes = blocks.whole();
        let len = bytes.len() as u64;
        self.check_range("written", at, len)?;
        let done = match &self.backing {
            Backing::Disk(file) => file.write(at, bytes),
            #[cfg(feature = "sim")]
            Backing::Sim(file) => file.write(&self.pool, at, bytes),
        };
        done.map_err(|refused| self.refused("writing", len, refused))?;
        count(&self.counts.writes, 1);
        count(&self.counts.bytes_written, len);
        Ok(())
    }

    // ---- length and space ----

    /// Makes the file at least `len` bytes long, rounded up to a block; the new ones are zero, and their space is reserved. The length is durable
    /// after the next sync.
    ///
    /// # Errors
    /// [`Error::Full`] where its capacity or the medium has no room, and then it is as long as before; [`Error::Poisoned`], [`Error::Closed`],
    /// [`Error::Unsupported`] of one that is only read, [`Error::Io`].
    #[cfg_attr(feature = "sim", track_caller)]
    pub fn grow(&self, len: u64) -> Result<()> {
        let _held = lock(&self.resize);
        self.check_writes()?;
        let old = self.len();
        if len <= old {
            return Ok(());
        }
        let rounded = len.checked_next_multiple_of(BLOCK).filter(|rounded| *rounded <= self.options.capacity);
        let Some(len) = rounded else {
            return Err(Error::Full { needed: len - old, capacity: self.options.capacity });
        };
        let done = match &self.backing {
            Backing::Disk(file) => file.reserve(old, len - old, old),
            #[cfg(feature = "sim")]
            Backing::Sim(file) => file.grow(&self.pool, len),
        };
        done.map_err(|refused| self.refused("growing", len - old, refused))?;
        self.len.store(len, Ordering::Release);
        Ok(())
    }

    /// Makes the file at most `len` bytes long, rounded up to a block: what is behind goes back to the file system. The length is durable
    /// after the next sync; until then a crash may leave it as it was.
    ///
    /// # Errors
    /// [`Error::Poisoned`], [`Error::Closed`], [`Error::Unsupported`] of one that is only read, [`Error::Io`].
    #[cfg_attr(feature = "sim", track_caller)]
    pub fn shrink(&self, len: u64) -> Result<()> {
        let _held = lock(&self.resize);
        self.check_writes()?;
        let old = self.len();
        let Some(len) = len.checked_next_multiple_of(BLOCK).filter(|len| *len < old) else { return Ok(()) };
        self.len.store(len, Ordering::Release);
        let done = match &self.backing {
            Backing::Disk(file) => file.shrink(len),
            #[cfg(feature = "sim")]
            Backing::Sim(file) => file.shrink(&self.pool, len),
        };
        done.map_err(|refused| {
            self.len.store(old, Ordering::Release);
            Error::io("shortening", self.path(), refused)
        })
    }

    /// Gives the space of these bytes back to the file system where it can; the file stays as long. They are zero then, or, where the file system
    /// cannot, what they were; until the next sync a crash may leave either. To write there again takes space that may be gone:
    /// [`Self::reserve`].
    ///
    /// # Errors
    /// As [`Self::write`], but that no refusal of the file system is one.
    ///
    /// # Panics
    /// If they are no whole blocks.
    #[cfg_attr(feature = "sim", track_caller)]
    pub fn punch(&self, at: u64, len: u64) -> Result<()> {
        assert!(at.is_multiple_of(BLOCK) && len.is_multiple_of(BLOCK), "{len} bytes at {at:#x} are no whole blocks");
        self.check_writes()?;
        self.check_range("given back", at, len)?;
        if len == 0 {
            return Ok(());
        }
        match &self.backing {
            // Space that stays taken is found again by the next write there.
            Backing::Disk(file) => drop(file.punch(at, len)),
            #[cfg(feature = "sim")]
            Backing::Sim(file) => file.punch(&self.pool, at, len),
        }
        Ok(())
    }

    /// Takes space again for bytes whose space was given back; what they hold stays.
    ///
    /// # Errors
    /// [`Error::Full`] where the medium has no room; else as [`Self::write`].
    pub fn reserve(&self, at: u64, len: u64) -> Result<()> {
        let _held = lock(&self.resize);
        self.check_writes()?;
        self.check_range("reserved", at, len)?;
        if len == 0 {
            return Ok(());
        }
        let done = match &self.backing {
            Backing::Disk(file) => file.reserve(at, len, self.len()),
            #[cfg(feature = "sim")]
            Backing::Sim(file) => file.reserve(&self.pool),
        };
        done.map_err(|refused| self.refused("reserving space of", len, refused))
    }

    // ---- durability ----

    /// Makes durable what was written before, where the pool's durability asks for it: nothing at `process`, else as [`Self::sync_now`].
    ///
    /// # Errors
    /// As [`Self::sync_now`].
    #[cfg_attr(feature = "sim", track_caller)]
    pub fn sync(&self) -> Result<()> {
        if self.pool.persists() { self.sync_now() } else { self.pool.check() }
    }

    /// Makes durable what was written before, and the length, whatever the pool's durability (`fdatasync`). Threads that come while one syncs
    /// share the next sync.
    ///
    /// # Errors
    /// [`Error::Poisoned`], [`Error::Closed`]; [`Error::Io`], and the pool is poisoned then: what was to be written is lost, and another sync
    /// would not bring it back.
    #[cfg_attr(feature = "sim", track_caller)]
    pub fn sync_now(&self) -> Result<()> {
        let before = self.begun.load(Ordering::Acquire);
        let _held = lock(&self.syncing);
        self.pool.check()?;
        // One that began after this call has covered all before it, and is over.
        if self.options.read_only || self.begun.load(Ordering::Acquire) > before {
            return Ok(());
        }
        self.begun.fetch_add(1, Ordering::AcqRel);
        count(&self.counts.syncs, 1);
        let done = match &self.backing {
            Backing::Disk(file) => file.sync(),
            #[cfg(feature = "sim")]
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
                what: "write to a values file that was opened for reading only".into(),
                instead: "open the store for writing",
            });
        }
        self.pool.check()
    }

    fn check_range(&self, doing: &str, at: u64, len: u64) -> Result<()> {
        match at.checked_add(len) {
            Some(end) if end <= self.len() => Ok(()),
            _ => Err(self.shorter(doing, at, len)),
        }
    }

    #[cold]
    fn shorter(&self, doing: &str, at: u64, len: u64) -> Error {
        let what = format!("{len} bytes were to be {doing} there, and the file is {} long", self.len());
        Error::corrupt(format!("{VALUES_FILE} at {at:#x}"), what)
    }

    #[cold]
    fn refused(&self, doing: &'static str, needed: u64, refused: io::Error) -> Error {
        match refused.raw_os_error() {
            Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG) => Error::Full { needed, capacity: self.options.capacity },
            _ => Error::io(doing, self.path(), refused),
        }
    }
}

impl Backing {
    /// The file of this pool, and its length.
    fn open(pool: &Pool, options: &BlockOptions, name_lasts: bool) -> Result<(Self, u64)> {
        #[cfg(feature = "sim")]
        if let Some(recorder) = pool.recorder() {
            let (file, len) = sim::SimFile::open(recorder);
            return Ok((Self::Sim(file), len));
        }
        let Some(dir) = &pool.dir else { unreachable!("a pool that is not simulated has a directory") };
        let most = pool.options().capacity.min(options.capacity);
        let (file, len) = file::DiskFile::open(dir, options, (most, &pool.medium), name_lasts)?;
        Ok((Self::Disk(file), len))
    }
}
