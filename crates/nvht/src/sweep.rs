//! Removal of expired keys in the background. Readers treat them as absent before.

use std::sync::atomic::Ordering;

use lodestore_contract::{Error, Result};

use crate::inner::Inner;
use crate::layout::CURSOR_MAX;
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
                    match self.remove_expired(found.slot) {
                        Ok(removed) => swept += u64::from(removed),
                        // A damaged record stays, and `verify` reports it: the damage may be in its
                        // expiry.
                        Err(Error::Corrupt { .. }) => {}
                        Err(error) => return Err(error),
                    }
                }
                from = to;
            }
        }
        Ok(swept)
    }
}
