//! Removal of expired keys in the background. Readers treat them as absent before.

use std::sync::atomic::Ordering;

use lodestore_contract::Result;
use lodestore_inplace::Writes;

use crate::open_store::Inner;
use crate::record::{EXPIRY_TAG_FLAG, Record};
use crate::table::Form;
use crate::walk::walk;

impl Inner {
    /// Removes the keys of a partition that have expired. Reads only records with an expiry.
    pub(crate) fn sweep_expired(&self, partition: usize) -> Result<u64> {
        let (mut expired, mut swept) = (Vec::new(), 0);
        let _guard = self.enter_write()?;
        walk(&self.table, &self.pool, partition, |location, slots| {
            for slot in slots.iter().filter(|slot| slot.entry.position().tag() & EXPIRY_TAG_FLAG != 0) {
                if self.table.form(&self.pool, location, *slot) != Form::Live {
                    continue;
                }
                self.expiring.store(true, Ordering::Relaxed);
                let position = slot.entry.position();
                let record = Record::read(&self.pool, position);
                if let Ok(record) = record
                    && record.is_expired(position).unwrap_or(false)
                {
                    expired.push((position, record.key()));
                }
            }
            Ok(true)
        })?;
        for (position, key) in expired {
            swept += self.remove_expired(key, |hit| hit.record_at == position)?;
        }
        Ok(swept)
    }
}
