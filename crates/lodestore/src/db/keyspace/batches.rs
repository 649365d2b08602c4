//! Batches and conditions of one keyspace, with the stored keys instead of the user's keys.

use std::borrow::Cow;
use std::ops::Bound;

use lodestore_contract::{Batch, BatchOp, Commit, Condition, RangeCondition, Result};

use super::Keyspace;
use super::key::StoredRange;

impl Keyspace {
    /// Writes all of `batch` to this keyspace, or nothing.
    pub(in crate::db) fn write_all(&self, batch: &Batch) -> Result<()> {
        let batch = self.encode_batch(batch)?;
        let _writing = self.begin_write()?;
        self.store().write(&batch)
    }

    /// Writes all of `batch` to this keyspace if every condition is met, else nothing.
    pub(in crate::db) fn write_all_if(
        &self,
        conditions: &[Condition],
        ranges: &[RangeCondition],
        batch: &Batch,
    ) -> Result<Commit> {
        let stored = |condition: &Condition| -> Result<Condition> {
            Ok(Condition { key: self.map.encode_key(&condition.key)?.to_vec(), ..condition.clone() })
        };
        let conditions = conditions.iter().map(stored).collect::<Result<Vec<_>>>()?;
        let batch = self.encode_batch(batch)?;
        let _writing = self.begin_write()?;
        if ranges.is_empty() {
            return self.store().write_if(&conditions, &batch);
        }
        let (ranges, owners) = self.encode_ranges(ranges)?;
        let count = conditions.len();
        Ok(match self.store().write_if_ranges(&conditions, &ranges, &batch)? {
            // One condition may have several ranges of stored keys.
            Commit::Unmet(index) if index >= count => Commit::Unmet(count + owners[index - count]),
            commit => commit,
        })
    }

    /// Returns conditions on ranges of stored keys, each with the index of its condition in
    /// `ranges`: a range of the default keyspace may be two ranges of the store.
    fn encode_ranges(&self, ranges: &[RangeCondition]) -> Result<(Vec<RangeCondition>, Vec<usize>)> {
        let (mut encoded, mut owners) = (Vec::new(), Vec::new());
        for (index, condition) in ranges.iter().enumerate() {
            let range = condition.scan_range();
            let is_possible = condition.keys.is_sorted_by(|first, second| first < second)
                && condition.keys.iter().all(|key| range.contains(key));
            if !is_possible {
                // No key is inside these bounds, so the condition is never met.
                let (from, to) = (Bound::Included(vec![0]), Bound::Excluded(vec![0]));
                encoded.push(RangeCondition { from, to, keys: vec![vec![0]] });
                owners.push(index);
                continue;
            }
            let stored = |key: &Vec<u8>| self.map.encode_key(key).map(|key| key.to_vec());
            let keys = condition.keys.iter().map(stored).collect::<Result<Vec<_>>>()?;
            for StoredRange { range, .. } in self.map.split_range(&range) {
                let keys = keys.iter().filter(|key| range.contains(key)).cloned().collect();
                encoded.push(RangeCondition { from: range.from, to: range.to, keys });
                owners.push(index);
            }
        }
        Ok((encoded, owners))
    }

    /// Returns a batch with the stored keys of its keys.
    fn encode_batch<'a>(&self, batch: &'a Batch) -> Result<Cow<'a, Batch>> {
        let is_plain = |op: &BatchOp| match op {
            BatchOp::Put { key, .. } | BatchOp::Delete { key } => self.map.is_plain(key),
        };
        if batch.ops.iter().all(is_plain) {
            return Ok(Cow::Borrowed(batch));
        }
        let mut batch = batch.clone();
        for op in &mut batch.ops {
            let (BatchOp::Put { key, .. } | BatchOp::Delete { key }) = op;
            if !self.map.is_plain(key) {
                *key = self.map.encode_key(key)?.to_vec();
            }
        }
        Ok(Cow::Owned(batch))
    }
}
