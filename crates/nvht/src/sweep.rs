//! Removal of expired keys in the background. Readers treat them as absent before.

use std::sync::atomic::Ordering;

use lodestore_contract::Result;
use lodestore_inplace::{WALK_POSITION_COUNT, Writes};

use crate::open_store::Inner;
use crate::record::Record;
use crate::slot::Slot;

impl Inner {
    /// Removes the keys of a partition that have expired. Reads only records with an expiry.
    pub(crate) fn sweep_expired(&self, partition: usize) -> Result<u64> {
        let (mut from, mut swept) = (0, 0);
        while from < WALK_POSITION_COUNT {
            let _guard = self.enter_write()?;
            let to = Self::range_end(&self.partitions[partition], from);
            for found in self.copy_range(partition, from, to, Slot::expires) {
                self.expiring.store(true, Ordering::Relaxed);
                if let Ok(record) = Record::read(&self.pool, found.record_at) {
                    swept += self.remove_expired(record.key(), |hit| hit.entry == found.slot)?;
                }
            }
            from = to;
        }
        Ok(swept)
    }
}
