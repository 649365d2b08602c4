//! Removing expired keys behind their readers, to whom they are absent already.

use std::sync::atomic::Ordering;

use lodestore_contract::{Error, Event, Expiry, Result};

use crate::inner::Inner;
use crate::record::{Record, TAG_EXPIRY};
use crate::table::walk;

impl Inner {
    /// Removes every key that has expired; how many. Reads no record without an expiry.
    pub(crate) fn sweep(&self) -> Result<u64> {
        if !self.expiring.swap(false, Ordering::AcqRel) {
            return Ok(0);
        }
        let mut swept = 0;
        for partition in 0..self.table.shape.partitions as usize {
            let mut expired = Vec::new();
            let guard = self.enter_write()?;
            walk(&self.table, &self.pool, partition, |_, _, entries| {
                for (_, position) in &entries {
                    if position.tag() & TAG_EXPIRY == 0 {
                        continue;
                    }
                    self.expiring.store(true, Ordering::Relaxed);
                    // A record that is wrong is for verify to tell, and stays: the damage may be in its expiry.
                    let is_whole = |record: &Record<'_>| record.check(*position).is_ok();
                    let record = Record::read(&self.pool, *position).ok();
                    let past = record.filter(|record| record.expiry().is_some_and(Expiry::is_past));
                    if past.filter(is_whole).is_some() {
                        expired.push(*position);
                    }
                }
                Ok(true)
            })?;
            for position in expired {
                match self.remove_expired(position) {
                    Ok(removed) => swept += u64::from(removed),
                    Err(Error::Corrupt { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
            drop(guard);
        }
        if swept > 0 {
            self.tell(&Event::Swept { keys: swept });
        }
        Ok(swept)
    }
}
