//! Late separation: values in the LSM that are long enough for the file. A flush leaves them there
//! if it finds no segment. Another mode, or a higher threshold, of an earlier open has the same
//! effect. They go to their groups when space is free, a few at a time, in key order.
//!
//! Persist order, as for a collection: the copies, **sync**; then their pointers replace the values
//! that the keys still have, **durable**.

use std::ops::Bound;

use lodestore_contract::{Error, Result, Visit};
use lodestore_fluidkv::FluidKv;

use crate::append::Item;
use crate::layout::Stored;
use crate::values::{Counts, Values, lock};

/// Approximate bytes of values that are separated together.
const SEPARATED_BYTES_MAX: usize = 1 << 20;
/// Maximum keys examined in one step.
const EXAMINED_KEYS_MAX: usize = 16 << 10;

impl Values {
    /// Records that the LSM has values to be separated.
    pub(crate) fn note_late(&self) {
        lock(&self.late).due = true;
    }

    /// Runs one step. Returns whether all values fitted and there may be more to do. Values that do
    /// not fit into the file or the LSM's log stay in the LSM, as in a collection; this is not an
    /// error.
    ///
    /// # Errors
    /// As [`FluidKv::replace`] and [`Values::append`], except [`Error::Full`] and
    /// [`Error::Closed`].
    pub(crate) fn separate_late(&self) -> Result<bool> {
        let Some(index) = self.index() else { return Ok(false) };
        let from = {
            let mut late = lock(&self.late);
            if late.from.is_none() {
                if !std::mem::take(&mut late.due) {
                    return Ok(false);
                }
                late.has_leftovers = false;
            }
            late.from.clone()
        };
        let (found, last) = self.find_late(&index, from.as_deref()).inspect_err(|_| {
            // A pass that has not begun is still due.
            lock(&self.late).due |= from.is_none();
        })?;
        let separated = match self.separate_found(&index, &found) {
            Err(Error::Full { .. } | Error::Closed) => Ok(false),
            other => other,
        };
        let more = {
            let mut late = lock(&self.late);
            late.has_leftovers |= !matches!(separated, Ok(true));
            late.due |= last.is_none() && late.has_leftovers;
            late.from = last;
            late.due || late.from.is_some()
        };
        Ok(separated? && more)
    }

    /// Returns some values to separate, and the key from which to continue.
    #[expect(clippy::type_complexity, reason = "pairs, and where the next ones begin")]
    fn find_late(&self, index: &FluidKv, from: Option<&[u8]>) -> Result<(Vec<(Vec<u8>, Vec<u8>)>, Option<Vec<u8>>)> {
        let (mut found, mut bytes, mut seen, mut last) = (Vec::new(), 0, 0, None);
        let from = from.map_or(Bound::Unbounded, Bound::Excluded);
        index.each_flushed(from, &mut |key, stored| {
            if self.may_separate(key, stored) && matches!(Stored::read(stored), Ok(Stored::Value(_))) {
                bytes += stored.len();
                found.push((key.to_vec(), stored.to_vec()));
            }
            seen += 1;
            if bytes < SEPARATED_BYTES_MAX && seen < EXAMINED_KEYS_MAX {
                return Visit::More;
            }
            last = Some(key.to_vec());
            Visit::Stop
        })?;
        // Entries in a log are newer, including pointers of the previous step: their flush decides.
        let mut kept = Vec::with_capacity(found.len());
        for pair in found {
            if !index.is_buffered(&pair.0)? {
                kept.push(pair);
            }
        }
        Ok((kept, last))
    }

    /// Separates these values. Returns whether all fitted.
    fn separate_found(&self, index: &FluidKv, found: &[(Vec<u8>, Vec<u8>)]) -> Result<bool> {
        let (mut items, mut old_entries) = (Vec::with_capacity(found.len()), Vec::with_capacity(found.len()));
        for (key, stored) in found {
            let Stored::Value(value) = Stored::read(stored)? else { continue };
            items.push(Item::new(key, value));
            old_entries.push(&stored[..]);
        }
        let appended = self.append(&items, self.gc_reserve_segments())?;
        let all = appended.pointers.iter().all(Option::is_some);
        let replaced = self.replace_pointers(index, &items, &old_entries, appended)?;
        Counts::add(&self.counts.late, replaced.iter().filter(|replaced| **replaced).count() as u64);
        Ok(all)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use lodestore_contract::Store;
    use lodestore_inplace::testing::Scratch;
    use lodestore_media::PoolOptions;

    use super::*;
    use crate::{HashKv, HashKvOptions, Mode};

    /// Creates a store with `count` values of 1,000 bytes in its LSM that are due for separation.
    pub(crate) fn store_with_late_values(scratch: &Scratch, count: usize) -> HashKv {
        let mut options = HashKvOptions { mode: Mode::Nosep, segment_bytes: 16 << 10, ..HashKvOptions::default() };
        options.index.pool = PoolOptions { capacity: 16 << 20, ..PoolOptions::default() };
        options.index.workers = 0;
        let store = HashKv::create(&scratch.store(), &options).expect("create");
        for index in 0..count as u32 {
            store.put(&index.to_le_bytes(), &[index as u8; 1000]).expect("put");
        }
        store.settle().expect("settle");
        store.close().expect("close");
        drop(store);
        HashKv::open(&scratch.store(), &HashKvOptions { mode: Mode::Hash, ..options }).expect("open")
    }

    /// Regression: the pass ended before it began, and nothing was separated until the next open.
    #[test]
    fn a_pass_whose_first_step_fails_is_still_due() {
        let scratch = Scratch::new();
        let store = store_with_late_values(&scratch, 10);
        store.close().expect("close");
        for turn in 0..3 {
            let failed = store.running.values.separate_late();
            assert!(matches!(failed, Err(Error::Closed)), "turn {turn}: {failed:?}");
        }
    }
}
