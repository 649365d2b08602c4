//! Batches in the log of the calling thread: one record, one fence, then the index.
//!
//! Writes of single keys are in `db/write.rs`. If all threads share one log, `tree/group_commit.rs`
//! appends.

use lodestore_contract::Result;

use crate::memtable::Memtable;
use crate::sst::hash;
use crate::tree::Tree;
use crate::wal::entry::Op;
use crate::wal::entry::batch::{batch_len, only_deletes};

impl Tree {
    /// Appends a batch under a number to the log of this thread. Durable on return, and not yet
    /// published. Returns the positions of the operations. The caller holds the stripes of the
    /// keys. `frees_space`: the batch frees space and may use the reserve.
    ///
    /// # Errors
    /// [`lodestore_contract::Error::Full`]; [`lodestore_contract::Error::Poisoned`] if a sync
    /// failed.
    pub(crate) fn log_batch(
        &self,
        memtable: &Memtable,
        ops: &[Op<'_>],
        number: u64,
        frees_space: bool,
    ) -> Result<Vec<u64>> {
        let len = batch_len(&self.pool, ops)?;
        let mut log = memtable.log.lock();
        let reserved = log.reserve(len, frees_space || only_deletes(ops), &self.reserve)?;
        let positions = log.store_batch(&reserved, number, ops)?;
        // The batch is durable after this fence.
        self.pool.fence_checked()?;
        log.advance(&reserved);
        log.end_record(&reserved);
        Ok(positions)
    }

    /// Makes the operations of a batch, stored at these positions, the newest versions of their
    /// keys. The caller holds the stripes of the keys.
    pub(crate) fn publish_batch(&self, memtable: &Memtable, ops: &[Op<'_>], positions: &[u64]) {
        let keep = self.order.has_snapshots();
        for (op, at) in ops.iter().zip(positions) {
            let old = memtable.publish(op.key, hash(op.key), *at, keep);
            self.note_replaced(memtable, old);
        }
        memtable.mark_full_over_dram_limit();
    }

    /// Writes a record of moved values, and publishes it unless a group does. The record may use
    /// the reserve. Readers may see a part of it before the rest. Returns the number for
    /// [`Self::wait_committed`] if all threads share a log.
    ///
    /// # Errors
    /// Same as [`Self::log_batch`].
    pub(crate) fn write_moved(&self, memtable: &Memtable, ops: &[Op<'_>]) -> Result<Option<u64>> {
        if let Some(log) = &self.log {
            return self.apply_batch_shared(log, ops, true).map(Some);
        }
        let number = self.order.next();
        let positions = self.log_batch(memtable, ops, number, true)?;
        if self.separator.is_some() {
            memtable.separation.note_moved(&positions);
        }
        self.publish_batch(memtable, ops, &positions);
        Ok(None)
    }
}
