//! Removal of expired keys in the background. Readers treat them as absent before.

use std::sync::atomic::Ordering;

use lodestore_contract::Result;
use lodestore_inplace::Writes;

use crate::inner::Inner;
use crate::layout::CURSOR_MAX;
use crate::record::Record;
use crate::slot::Slot;

impl Inner {
    /// Removes every key that has expired. Returns their number. Reads only records with an expiry.
    pub(crate) fn sweep_partitions(&self) -> Result<u64> {
        let mut swept = 0;
        for partition in 0..self.partitions.len() {
            let mut from = 0;
            while from < CURSOR_MAX {
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
        }
        Ok(swept)
    }
}
