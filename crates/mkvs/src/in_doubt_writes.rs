//! In-doubt writes: some members have them, but too few were left to acknowledge them.
//!
//! The key of such a write is unreadable until the group acknowledges a later operation. Each
//! member with the later operation has the in-doubt write before it (`group_write.rs`). Without
//! other writes, the keeper of the group writes the key again, with the pair of the active members.
//! Each active member has the in-doubt write: a member without space for it is behind, and a
//! member that did not apply it has failed.

use std::sync::atomic::Ordering;

use lodestore_contract::Result;

use crate::command::Query;
use crate::group::Group;
use crate::keeper::DAMAGED_MAX;
use crate::lock;
use crate::operation::Mutation;
use crate::route::KeyHash;

impl Group {
    /// Records an in-doubt write of this key.
    pub(crate) fn note_in_doubt(&self, key: &[u8]) {
        let mut in_doubt = lock(&self.in_doubt);
        // Keys beyond this limit are decided by the next write of any caller.
        if in_doubt.len() < DAMAGED_MAX {
            in_doubt.insert(key.to_vec());
        }
    }

    /// Returns the number of in-doubt writes. Reads of their keys are refused.
    pub(crate) fn count_in_doubt_writes(&self) -> usize {
        let acknowledged = self.acknowledged.load(Ordering::Acquire);
        let is_open = |(_, seq): &&(Vec<u8>, u64)| *seq > acknowledged;
        self.stripes.sum_each(|stripe| stripe.in_doubt.iter().filter(is_open).count())
    }

    /// Decides in-doubt writes. Returns false if some are left.
    pub(crate) fn resolve_in_doubt_writes(&self) -> bool {
        let keys = std::mem::take(&mut *lock(&self.in_doubt));
        let mut is_well = true;
        for key in keys {
            if self.resolve_write(&key).is_err() {
                self.note_in_doubt(&key);
                is_well = false;
            }
        }
        is_well
    }

    /// Writes a key's pair again if its last write is in doubt.
    ///
    /// # Errors
    /// As for a write.
    fn resolve_write(&self, key: &[u8]) -> Result<()> {
        let hash = KeyHash::of(key, self.seed);
        let mut stripe = self.stripes.lock_exclusive(hash);
        if self.check_not_in_doubt(&stripe, key).is_ok() {
            return Ok(());
        }
        let mut value = Vec::new();
        let found = self.compete(&stripe, key, Query::Pair, &mut value)?;
        let mutation = if found.is_present { Mutation::Put { value, expiry: found.expiry } } else { Mutation::Delete };
        self.change(&mut stripe, key, hash, mutation).map(drop)
    }
}
