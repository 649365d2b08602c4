//! Known damage to the index, and the check of misses.
//!
//! *Careful mode*: a miss checks every slot of the key's two buckets. If one is damaged, the result
//! is [`Error::Corrupt`], since the key may have been in it. Careful mode is on after a crash until
//! the walk has checked every slot. If the walk or the seal found damage, it stays on for this
//! open.
//!
//! Rules with a damaged slot in a key's buckets:
//! * A key that is found is returned, replaced and deleted as usual: its entry verifies its record.
//! * A get, insert, update, delete or compare-and-swap of a key that is not found is `Corrupt`.
//! * A put of a key that is not found stores a new entry in a sound free slot. After a delete, the
//!   key is `Corrupt` again: the damaged slot stays, and nothing repairs it. Thus no older value
//!   can return.
//! * A write reuses a slot that is not free by its own mark only if it holds no key. Damage found
//!   there turns careful mode on, and the write restarts.
//! * Entries with the key's own signature that name no readable record are cleared by a put or
//!   delete of the key.
//! * Damage stays on the medium, and a store with damage is never stopped cleanly: the next open
//!   finds it again.

use lodestore_contract::{Error, HiddenKeys, Result, VerifyReport};
use lodestore_inplace::{FirstDamage, Index};

use crate::hash::Signature;
use crate::layout::BUCKET_BYTES;
use crate::open_store::Inner;
use crate::planted;
use crate::probe::Probe;
use crate::table::{FreeSlot, Segment, SegmentLocation, Slot, Verdict};

/// Whether a write can reuse a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reuse {
    /// The slot holds no key.
    Free,
    /// A writer of another stripe claimed it meanwhile.
    Taken,
    /// The slot may have held a key.
    Damaged,
}

impl Inner {
    /// Adds the first damage of this open to a report, if there is any.
    pub(crate) fn report_first_damage(&self, report: &mut VerifyReport) {
        if let Some(FirstDamage { place, what }) = self.careful_mode.first_damage() {
            report.find(place, what);
        }
    }

    /// As [`Index::check_complete`], for answers from the tree, which lacks the keys of damaged
    /// records.
    ///
    /// # Errors
    /// As [`Index::check_complete`].
    pub(crate) fn check_tree_complete(&self) -> Result<()> {
        self.check_complete()?;
        if self.backend.has_misplaced() {
            let what = "a record whose key is damaged is not in its place: keys may be missing from this answer";
            return Err(Error::hiding("the ordered index", what, HiddenKeys::Unknown));
        }
        match self.recovery.left_out() {
            0 => Ok(()),
            count => {
                let what = format!("{count} records are damaged: their keys are missing from this answer");
                Err(Error::hiding("the ordered index", what, HiddenKeys::LeftOut))
            }
        }
    }

    /// Checks that a key that was not found is absent. The caller holds a guard.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the key may have been in a damaged slot.
    #[inline]
    pub(crate) fn check_absent(&self, segment: Segment, sig: Signature) -> Result<()> {
        if !self.is_careful() || self.pool.has_fault(planted::ENTRY_CHECK_IGNORED) {
            return Ok(());
        }
        self.table.check_buckets(&self.pool, segment, sig).inspect_err(|error| self.report_corruption(error))
    }

    /// Reads the buckets of a key for a writer that holds the key's stripe. In careful mode the
    /// free slot is one that is free without doubt.
    #[inline]
    pub(crate) fn probe_buckets(&self, segment: Segment, sig: Signature) -> Probe {
        let mut probe = self.table.probe(&self.pool, segment, sig);
        if self.is_careful() {
            probe.free = self.table.find_sound_free(&self.pool, segment, sig);
        }
        probe
    }

    /// Judges a slot that a write is about to reuse, and that is not free by its own mark. Reports
    /// and notes damage. The caller holds a guard and the key's stripe.
    #[cold]
    pub(crate) fn judge_reuse(&self, segment: Segment, sig: Signature, (at, entry): FreeSlot) -> Reuse {
        let prefix = self.table.placement.index(sig, segment.depth);
        let location = SegmentLocation { segment, partition: self.table.placement.partition(sig), prefix };
        let bucket = ((at.raw() - segment.at.raw()) / BUCKET_BYTES - 1) as usize;
        match self.table.judge(&self.pool, location, Slot { at, bucket, entry }) {
            Verdict::Free => Reuse::Free,
            Verdict::Whole(_) | Verdict::BadRecord(..) => Reuse::Taken,
            Verdict::Damaged(error) => {
                self.report_corruption(&error);
                self.careful_mode.note_damage(&error);
                Reuse::Damaged
            }
        }
    }
}
