//! The values file with its space account, and reads. A segment is reused only if no durable
//! pointer names it and no reader of an older state is left. Appends are in `append.rs`, space
//! management in `space_management.rs`, collections in `gc.rs`, the interface for flushes in
//! `separator.rs`.
//!
//! Readers acquire no lock. A record that a get reads is valid if its checksum matches, which
//! covers its location. Otherwise the value has moved, and the LSM is asked again. Snapshots and
//! scans keep pointers for longer: they hold the moment at which they began ([`Hold`]).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

pub(crate) use lodestore_contract::threads::lock;
use lodestore_contract::{Result, now_millis};
use lodestore_fluidkv::FluidKv;
use lodestore_media::{BlockFile, Pool};

use crate::layout::Superblock;
use crate::space::{SegmentPart, Space};
use crate::superblock::write_superblock;

/// Counts since the open.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) separated: AtomicU64,
    pub(crate) separated_bytes: AtomicU64,
    /// Values that stayed in the LSM because no segment was available.
    pub(crate) kept: AtomicU64,
    /// Values that were separated after their flush.
    pub(crate) late: AtomicU64,
    pub(crate) collections: AtomicU64,
    /// Collections whose survivors did not fit, or that met an error of the medium.
    pub(crate) failed: AtomicU64,
    pub(crate) moved: AtomicU64,
    pub(crate) moved_bytes: AtomicU64,
    /// The part of `moved_bytes` that went to the cold storage.
    pub(crate) cold_bytes: AtomicU64,
    pub(crate) scanned_bytes: AtomicU64,
    pub(crate) freed: AtomicU64,
    pub(crate) splits: AtomicU64,
    /// Number of times that the background thread looked for work.
    pub(crate) work_checks: AtomicU64,
}

impl Counts {
    pub(crate) fn add(count: &AtomicU64, by: u64) {
        count.fetch_add(by, Ordering::Relaxed);
    }

    /// Returns the bytes that collections have read and written.
    pub(crate) fn collected_bytes(&self) -> u64 {
        self.scanned_bytes.load(Ordering::Relaxed) + self.moved_bytes.load(Ordering::Relaxed)
    }
}

/// Moments at which readers may still use old pointers.
#[derive(Default)]
pub(crate) struct Holds {
    clock: u64,
    pub(crate) held: BTreeMap<u64, usize>,
}

/// Holds a moment: segments retired since then stay readable.
pub(crate) struct Hold {
    values: Arc<Values>,
    moment: u64,
}

impl Hold {
    pub(crate) fn now(values: &Arc<Values>) -> Self {
        let mut holds = lock(&values.holds);
        let moment = holds.clock;
        *holds.held.entry(moment).or_default() += 1;
        Self { values: Arc::clone(values), moment }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        // A thread that does not exist in a forked process may have held the lock at the fork.
        if self.values.pool.is_foreign() {
            return;
        }
        let mut holds = lock(&self.values.holds);
        let count = holds.held.get_mut(&self.moment).expect("a moment that is held");
        *count -= 1;
        if *count == 0 {
            holds.held.remove(&self.moment);
        }
        drop(holds);
        self.values.signal_work();
    }
}

/// Sizes and modes of a store.
pub(crate) struct Sizes {
    pub(crate) segment_bytes: u32,
    /// Values of at least this many bytes are separated; 0: none.
    pub(crate) threshold: usize,
    /// Values of at least this many bytes go to the LSM's value log at their put, and stay there.
    pub(crate) longest: usize,
    pub(crate) group_bytes: u64,
    pub(crate) groups_max: usize,
    /// Values not updated between two collections go to the cold storage.
    pub(crate) hotness: bool,
    /// The oldest segments are collected, regardless of their content (`mode=vlog`, feature `lab`).
    pub(crate) circular: bool,
    /// Approximate maximum bytes of a flush.
    pub(crate) flush_bytes: u64,
    /// The file is missing, and the store is only read (salvage).
    pub(crate) is_lost: bool,
}

/// State of late separation.
#[derive(Debug, Default)]
pub(crate) struct Late {
    /// A pass over all keys is due.
    pub(crate) due: bool,
    /// The last key that this pass has examined; `None` between passes.
    pub(crate) from: Option<Vec<u8>>,
    /// The pass left out values, for lack of space or because a call failed.
    pub(crate) has_leftovers: bool,
}

/// The values file with its account.
pub(crate) struct Values {
    pub(crate) pool: Arc<Pool>,
    pub(crate) file: BlockFile,
    pub(crate) sizes: Sizes,
    pub(crate) space: Mutex<Space>,
    /// Locked alone, or with the lock of `space` held.
    pub(crate) holds: Mutex<Holds>,
    /// Parts that a flush has written and that the LSM does not name yet. They are not collected.
    pub(crate) unpublished: Mutex<Vec<(SegmentPart, u64)>>,
    /// Values to be separated after their flush.
    pub(crate) late: Mutex<Late>,
    /// Something has changed since the background thread last looked for work.
    has_work: AtomicBool,
    /// Free space in the pool at that time.
    last_free_bytes: AtomicU64,
    /// Long values are refused (`admission.rs`).
    pub(crate) full: AtomicBool,
    /// Something was written since the last check with all data flushed.
    pub(crate) has_changed: AtomicBool,
    /// Held while a caller checks for space for a value.
    pub(crate) admission_lock: Mutex<()>,
    /// Clock when a record was last left out of the account although the LSM may name it: its key
    /// had expired. 0: none. Set before the record's segment is free.
    expired_at: AtomicU64,
    /// As [`Superblock::freed_expiry_max`](crate::layout::Superblock::freed_expiry_max). Written
    /// under `superblock_lock`.
    pub(crate) freed_expiry_max: AtomicU64,
    /// As [`Superblock::opening`](crate::layout::Superblock::opening).
    opening: u32,
    /// Held while the superblock is written.
    superblock_lock: Mutex<()>,
    /// Held during a collection: only one collection at a time uses the spare segments.
    pub(crate) collecting: Mutex<()>,
    /// The LSM, set when it is open.
    index: Mutex<Weak<FluidKv>>,
    pub(crate) counts: Counts,
}

impl Values {
    pub(crate) fn new(
        pool: Arc<Pool>,
        file: BlockFile,
        sizes: Sizes,
        (space, superblock): (Space, &Superblock),
    ) -> Self {
        Self {
            pool,
            file,
            sizes,
            space: Mutex::new(space),
            holds: Mutex::default(),
            unpublished: Mutex::default(),
            late: Mutex::default(),
            has_work: AtomicBool::new(true),
            last_free_bytes: AtomicU64::new(0),
            full: AtomicBool::new(false),
            has_changed: AtomicBool::new(false),
            admission_lock: Mutex::default(),
            expired_at: AtomicU64::new(0),
            freed_expiry_max: AtomicU64::new(superblock.freed_expiry_max),
            opening: superblock.opening,
            superblock_lock: Mutex::default(),
            collecting: Mutex::default(),
            index: Mutex::default(),
            counts: Counts::default(),
        }
    }

    /// Returns the seed of the checksums of this store's records.
    #[inline]
    pub(crate) fn seed(&self) -> u32 {
        self.pool.identity() as u32
    }

    pub(crate) fn set_index(&self, index: &Arc<FluidKv>) {
        *lock(&self.index) = Arc::downgrade(index);
    }

    pub(crate) fn index(&self) -> Option<Arc<FluidKv>> {
        lock(&self.index).upgrade()
    }

    /// Signals that the background thread may have work.
    pub(crate) fn signal_work(&self) {
        self.has_work.store(true, Ordering::Release);
    }

    /// Returns whether there may be work since the last call.
    pub(crate) fn take_has_work(&self) -> bool {
        let room = self.pool.room();
        let is_space_changed = self.last_free_bytes.swap(room, Ordering::Relaxed) != room;
        self.has_work.swap(false, Ordering::AcqRel) || is_space_changed
    }

    /// Records that the LSM may name a record of an expired key that the account does not count.
    pub(crate) fn note_expired(&self) {
        // A clock that is set back does not move the mark back.
        self.expired_at.fetch_max(now_millis().max(1), Ordering::AcqRel);
    }

    /// Stores the clock in the superblock, durably, if space that is about to be freed may hold
    /// records of expired keys.
    ///
    /// # Errors
    /// As [`BlockFile::write`] and [`BlockFile::sync`].
    pub(crate) fn mark_freed_expiry(&self) -> Result<()> {
        let _held = lock(&self.superblock_lock);
        // Cleared before the superblock is written: a record that is noted later is marked again.
        let expired_at = self.expired_at.swap(0, Ordering::AcqRel);
        if expired_at == 0 {
            return Ok(());
        }
        let freed_expiry_max = expired_at.max(now_millis()).max(self.freed_expiry_max.load(Ordering::Acquire));
        let (segment_bytes, opening) = (self.sizes.segment_bytes, self.opening);
        let superblock = Superblock { segment_bytes, freed_expiry_max, opening };
        let done = write_superblock(&self.file, superblock).and_then(|()| self.file.sync());
        match done {
            Ok(()) => self.freed_expiry_max.store(freed_expiry_max, Ordering::Release),
            Err(_) => drop(self.expired_at.fetch_max(expired_at, Ordering::AcqRel)),
        }
        done
    }

    /// Returns the offset of a segment in the file.
    pub(crate) fn offset(&self, segment: u32) -> u64 {
        BlockFile::BLOCK + u64::from(segment) * u64::from(self.sizes.segment_bytes)
    }

    /// Reads a segment up to `end`.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn read_segment(&self, segment: u32, end: u32) -> Result<Vec<u8>> {
        let mut bytes = vec![0; end as usize];
        self.file.read(self.offset(segment), &mut bytes)?;
        Ok(bytes)
    }

    /// Returns a moment after all held ones.
    pub(crate) fn moment(&self) -> u64 {
        let mut holds = lock(&self.holds);
        holds.clock += 1;
        holds.clock
    }
}
