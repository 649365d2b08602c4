//! Batches: all of their writes or none.

use lodestore_contract::limits::{check_batch, check_conditions};
use lodestore_contract::{Batch, BatchOp, Commit, Condition, Expiry, Result};

use crate::base::{BoxedResult, Stored};
use crate::full_store::retry_after_reclaim;
use crate::index::{Index, Target, TargetOf};
use crate::planted;
use crate::write::Writes;

/// The last operation of a batch on a key.
pub struct Item<'b, H> {
    /// The key.
    pub target: Target<'b, H>,
    /// The value with its expiry, if the key is put; else it is deleted.
    pub put: Option<(&'b [u8], Option<Expiry>)>,
    /// The stored record of a put.
    pub stored: Option<Stored>,
    /// Index of the operation in the batch.
    index: usize,
}

/// The last operation of a batch on a key of an engine `E`.
pub type ItemOf<'b, E> = Item<'b, <E as Index>::Hash>;
/// A condition, and its key.
pub type RequiredOf<'c, E> = (TargetOf<'c, E>, &'c Condition);

/// An engine's batches. The errors of all methods are the contract's.
pub trait Batches: Writes {
    /// Applies the last operations of a batch, in the order of hashes, if all conditions are met.
    /// Otherwise changes nothing. Without operations, only checks the conditions. No record of
    /// `items` is stored before or afterwards.
    fn try_batch(&self, items: &mut [ItemOf<'_, Self>], required: &[RequiredOf<'_, Self>]) -> BoxedResult<Commit>;

    /// Stores the record of a put; durable after the next fence. The caller holds no stripe.
    fn store_unheld(&self, target: TargetOf<'_, Self>, value: &[u8], expiry: Option<Expiry>) -> Result<Stored>;

    /// Applies all of `batch` if all conditions are met, otherwise nothing.
    fn write_batch(&self, conditions: &[Condition], batch: &Batch) -> Result<Commit> {
        check_batch(batch)?;
        check_conditions(conditions)?;
        let mut items = last_operations(self, batch);
        let required: Vec<RequiredOf<'_, Self>> =
            conditions.iter().map(|condition| (self.target(&condition.key), condition)).collect();
        match self.try_batch(&mut items, &required) {
            Ok(commit) => Ok(commit),
            Err(error) => {
                let outcome = retry_after_reclaim(self, *error, || self.try_batch(&mut items, &required));
                let check = || self.try_batch(&mut [], &required).map_err(|error| *error);
                outcome.or_else(|error| Commit::after_refusal(error, check))
            }
        }
    }

    /// Checks conditions whose stripes are held.
    fn check_conditions(&self, required: &[RequiredOf<'_, Self>]) -> Result<Commit> {
        for (index, (target, condition)) in required.iter().enumerate() {
            let live = self.find_live(*target, self.verifies_reads())?;
            let (value, expiry) = live.map_or((None, None), |record| (Some(record.value()), record.expiry()));
            if !condition.is_met(value, expiry) && !self.pool.has_fault(planted::CONDITION_IGNORED) {
                return Ok(Commit::Unmet(index));
            }
        }
        Ok(Commit::Done)
    }

    /// Stores the records of all puts, or none; durable after the next fence.
    fn store_records(&self, items: &mut [ItemOf<'_, Self>]) -> Result<()> {
        for item in items.iter_mut() {
            let Some((value, expiry)) = item.put else { continue };
            match self.store_unheld(item.target, value, expiry) {
                Ok(stored) => item.stored = Some(stored),
                Err(error) => {
                    self.free_records(items);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Frees the records of a batch that will not be published.
    fn free_records(&self, items: &mut [ItemOf<'_, Self>]) {
        items.iter_mut().for_each(|item| self.free_stored(item.stored.take()));
    }
}

/// Returns the last operation of the batch on each of its keys, in the order of hashes.
fn last_operations<'b, E: Index>(engine: &E, batch: &'b Batch) -> Vec<ItemOf<'b, E>> {
    let item = |(index, op): (usize, &'b BatchOp)| {
        let (key, put) = match op {
            BatchOp::Put { key, value, expiry } => (key, Some((value.as_slice(), *expiry))),
            BatchOp::Delete { key } => (key, None),
        };
        Item { target: engine.target(key), put, stored: None, index }
    };
    let mut items: Vec<_> = batch.ops.iter().enumerate().map(item).collect();
    items.sort_unstable_by(|a, b| a.target.cmp(&b.target).then(b.index.cmp(&a.index)));
    items.dedup_by(|later, kept| later.target.key == kept.target.key);
    items
}
