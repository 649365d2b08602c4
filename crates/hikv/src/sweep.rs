//! Removal of expired keys in the background. Readers treat them as absent before.

use std::sync::atomic::Ordering;

use lodestore_contract::Result;
use lodestore_inplace::{Engine, Writes};

use crate::inner::Inner;
use crate::record::{EXPIRY_TAG_FLAG, Record};
use crate::table::{Form, walk};

impl Inner {
    /// Removes every key that has expired. Returns their number. Reads only records with an expiry.
    pub(crate) fn sweep_partitions(&self) -> Result<u64> {
        let mut swept = 0;
        for partition in 0..self.partition_count() {
            let mut expired = Vec::new();
            let guard = self.enter_write()?;
            walk(&self.table, &self.pool, partition, |location, slots| {
                for slot in slots.iter().filter(|slot| slot.entry.position().tag() & EXPIRY_TAG_FLAG != 0) {
                    if self.table.form(&self.pool, location, *slot) != Form::Live {
                        continue;
                    }
                    let position = &slot.entry.position();
                    self.expiring.store(true, Ordering::Relaxed);
                    // A damaged record stays, and `verify` reports it: the damage may be in its
                    // expiry.
                    let record = Record::read(&self.pool, *position);
                    if record.and_then(|record| record.is_expired(*position)).unwrap_or(false) {
                        expired.push(*position);
                    }
                }
                Ok(true)
            })?;
            for position in expired {
                if let Ok(record) = Record::read(&self.pool, position) {
                    swept += self.remove_expired(record.key(), |hit| hit.record_at == position)?;
                }
            }
            drop(guard);
        }
        Ok(swept)
    }
}
