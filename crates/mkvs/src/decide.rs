//! Writes of which nobody knows whether they stand: some members have them, and too few were left to say so.
//!
//! Nobody reads their keys until a later operation of the group is acknowledged, which all who have that have them before (`commit.rs`). Where nobody writes, the group's keeper does: it
//! writes again what the members have that are active. Each of those has the operation: who had no room for it is behind, and who did not do it has failed.

use std::sync::atomic::Ordering;

use lodestore_contract::Result;

use crate::command::Question;
use crate::group::Group;
use crate::keeper::DAMAGED_MAX;
use crate::lock;
use crate::operation::Mutation;
use crate::route::KeyHash;

impl Group {
    /// A write of this key is undecided.
    pub(crate) fn note_undecided(&self, key: &[u8]) {
        let mut undecided = lock(&self.undecided);
        // Beyond that somebody else's write has to do it.
        if undecided.len() < DAMAGED_MAX {
            undecided.insert(key.to_vec());
        }
    }

    /// Returns how many writes are undecided. Reads of their keys are refused.
    pub(crate) fn undecided_writes(&self) -> usize {
        let acknowledged = self.acknowledged.load(Ordering::Acquire);
        let is_open = |(_, seq): &&(Vec<u8>, u64)| *seq > acknowledged;
        self.stripes.sum_each(|stripe| stripe.undecided.iter().filter(is_open).count())
    }

    /// Decides what can be decided; false where something is left.
    pub(crate) fn decide_all(&self) -> bool {
        let keys = std::mem::take(&mut *lock(&self.undecided));
        let mut is_well = true;
        for key in keys {
            if self.decide(&key).is_err() {
                self.note_undecided(&key);
                is_well = false;
            }
        }
        is_well
    }

    /// Writes again what a key has, if it is not known whether that stands.
    ///
    /// # Errors
    /// Those of a write.
    fn decide(&self, key: &[u8]) -> Result<()> {
        let hash = KeyHash::of(key, self.seed);
        let mut stripe = self.stripes.own(hash);
        if self.check_decided(&stripe, key).is_ok() {
            return Ok(());
        }
        let mut value = Vec::new();
        let found = self.compete(&stripe, key, Question::Pair, &mut value)?;
        let mutation = if found.is_there { Mutation::Put { value, expiry: found.expiry } } else { Mutation::Delete };
        self.change(&mut stripe, key, hash, mutation).map(drop)
    }
}
