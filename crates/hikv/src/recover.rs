//! Recovery of a store while gets and puts are served (HiKV, ATC 2017, section 3.5).
//!
//! The hash index is authoritative. The tree is volatile and is rebuilt, and after a crash the
//! allocator's occupancy too. Each step is idempotent: a crash in any of them changes nothing for
//! the next open.
//! 1. Before `open` returns: incomplete splits are completed (`split.rs`), and the generation is
//!    raised (sequences and tree operations of this open are newer than all before).
//! 2. In the background, every segment is walked. Each entry's record is checked (checksum,
//!    signature) and marked in the allocator. Its first key bytes and position are collected
//!    (`recovery_walk.rs`). Damage is reported, and stays in place.
//! 3. The collected positions are sorted and loaded into the tree in bulk. Changes made meanwhile
//!    wait in the backend and are applied afterwards.
//! 4. The allocator frees unmarked space.
//!
//! After a clean stop the whole index is compared with its seal before step 1. Then the sorted run
//! replaces steps 2 and 3 if the allocator has read its occupancy.

use std::sync::atomic::Ordering;

use lodestore_contract::threads::lock;
use lodestore_contract::{Error, Result};
use lodestore_inplace::SealedExtent;
use lodestore_media::NvPtr;

use crate::layout::{KIND_DIRECTORY, KIND_RUN, KIND_SEGMENT, PARTITIONED_MODE_FLAG, SEAL, SegmentHeader, run_word};
use crate::open_store::Inner;
use crate::planted;
use crate::record::EXPIRY_TAG_FLAG;
use crate::recovery_walk::walk_all;
use crate::run;
use crate::split::directory_bytes;
use crate::table::{Form, SegmentLocation, Slot};
use crate::walk::walk;

/// Rebuilds tree and occupancy.
///
/// # Errors
/// The error that stopped the rebuild.
pub(crate) fn rebuild(inner: &Inner, clean: bool) -> Result<()> {
    let pool = &inner.pool;
    let trusted = clean || pool.has_fault(planted::STALE_CHECKPOINT_TRUSTED);
    let run = if trusted { load_run(inner) } else { None };
    let (sorted, extents, from_walk) = match run {
        Some((positions, extents))
            if !pool.allocator().is_recovering() || pool.has_fault(planted::STALE_CHECKPOINT_TRUSTED) =>
        {
            (positions, extents, false)
        }
        // The occupancy needs the walk, and the run saves nothing; its extents are not marked.
        _ => (walk_all(inner)?, Vec::new(), true),
    };
    inner.recovery.set_keys(sorted.len() as u64);
    if sorted.iter().any(|position| NvPtr::from_raw(*position).tag() & EXPIRY_TAG_FLAG != 0) {
        inner.expiring.store(true, Ordering::Relaxed);
    }
    let records = &inner.records;
    let threads = inner.options.recovery_threads.max(1);
    let hash = |key: &[u8]| inner.table.placement.sign(key).0;
    inner.backend.finish_rebuild(|trees| {
        // A run out of order names a record that was changed on the medium since: fall back to the
        // walk.
        let loaded = trees.load(records, &sorted, threads, hash);
        if loaded.is_ok() || from_walk {
            return loaded;
        }
        trees.load(records, &walk_all(inner)?, threads, hash)
    })?;
    drop(sorted);
    inner.recovery.set_ordered();
    inner.free_unmarked();
    if extents.is_empty() && pool.load_u64(run_word(pool)) != 0 {
        run::clear_root(pool);
        if !pool.allocator().is_recovering() {
            // The run could not be read after a clean stop: its extents are known by their kind
            // only.
            pool.allocator().free_kind(pool, KIND_RUN);
        }
    }
    *lock(&inner.run) = extents;
    Ok(())
}

impl Inner {
    /// Stores the sorted run for the next open, unless the run of the last stop is still valid. All
    /// threads have stopped.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Corrupt`].
    pub(crate) fn save_run(&self) -> Result<()> {
        let kept = std::mem::take(&mut *lock(&self.run));
        if !kept.is_empty() && !self.written.load(Ordering::Acquire) {
            return Ok(());
        }
        run::clear_root(&self.pool);
        run::free(&self.pool, &kept);
        if self.recovery.left_out() > 0 {
            // A run would hide the missing keys from the next open.
            return Ok(());
        }
        if self.table.shape.has_mode(PARTITIONED_MODE_FLAG) {
            // Partitioned trees are loaded one by one; a run alone cannot show that they are
            // complete.
            return Ok(());
        }
        let positions = self.positions()?;
        match run::store(&self.pool, &positions) {
            // Lack of space for the run is no error: the next open walks the index.
            Ok(()) | Err(Error::Full { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Seals the whole index. All threads have stopped.
    ///
    /// # Errors
    /// [`Error::Poisoned`], [`Error::Io`], [`Error::Corrupt`]: the store is left as after a crash.
    pub(crate) fn save_seal(&self) -> Result<()> {
        let mut sealed = Vec::new();
        for partition in 0..self.table.shape.partitions as usize {
            self.table.check_directory(&self.pool, partition)?;
            let directory = self.table.roots.load(partition);
            let bytes = directory_bytes(directory.depth);
            sealed.push(SealedExtent { at: directory.at, bytes, kind: KIND_DIRECTORY });
            walk(&self.table, &self.pool, partition, |location, slots| {
                self.check_before_seal(location, &slots)?;
                let bytes = u64::from(self.table.shape.segment_bytes);
                sealed.push(SealedExtent { at: location.segment.at, bytes, kind: KIND_SEGMENT });
                Ok(true)
            })?;
        }
        SEAL.save(&self.pool, &sealed)
    }

    /// Checks the slots of a segment without reading their records. A seal would hide a slot that
    /// was damaged since the open.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    fn check_before_seal(&self, location: SegmentLocation, slots: &[Slot]) -> Result<()> {
        let SegmentLocation { segment, partition, prefix } = location;
        SegmentHeader::check(&self.pool, segment.at, partition, segment.depth, prefix)?;
        let damaged = slots.iter().find(|slot| self.table.form(&self.pool, location, **slot) == Form::Damaged);
        match damaged {
            Some(Slot { at, .. }) => {
                let what = "the slot is neither free nor has an entry of this bucket";
                Err(Error::corrupt(format!("index entry {at:?}"), what))
            }
            None => Ok(()),
        }
    }
}

/// Returns the run of the last clean stop; `None` if it is damaged or missing.
fn load_run(inner: &Inner) -> Option<(Vec<u64>, Vec<NvPtr>)> {
    run::load(&inner.pool, inner.options.recovery_threads.max(1)).unwrap_or_else(|error| {
        inner.report_corruption(&error);
        None
    })
}
