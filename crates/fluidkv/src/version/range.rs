//! Ranges of the key space, each with its runs and its stable tables.

use std::ops::Range as Span;
use std::sync::{Arc, OnceLock};

use lodestore_contract::Result;
use lodestore_index::key_head;

use crate::sst::{Reads, Slot, hash};
use crate::version::known::Known;
use crate::version::manifest::Key;
use crate::version::tables::{LookupOptions, Sorted};

/// Maximum number of keys of one lookup; longer calls are divided.
pub(crate) const LOOKUP_KEYS: usize = 1024;

/// Fewest adjacent small tables that are merged.
const SMALL_TABLES_MIN: usize = 8;
/// Their bytes together, as a multiple of the largest of them, at which they are merged.
const MERGE_GROWTH_FACTOR: u64 = 4;

/// A part of the key space.
pub(crate) struct Range {
    pub(crate) id: u64,
    pub(crate) lower: Key,
    /// Buffer runs, newest first.
    pub(crate) runs: Vec<Sorted>,
    pub(crate) stable: Sorted,
    /// Keys at which the range is to be split once no table crosses them.
    pub(crate) cuts: Vec<Key>,
    pub(crate) small_tables: OnceLock<Option<Span<usize>>>,
}

impl Range {
    /// Returns adjacent stable tables that are small enough to be merged. Tables are cut at
    /// `table_bytes`.
    pub(crate) fn small_tables(&self, table_bytes: u64) -> Option<Span<usize>> {
        let find = || {
            let sizes: Vec<_> = self.stable.tables.iter().map(|table| table.descriptor.bytes).collect();
            find_small_tables(&sizes, table_bytes)
        };
        self.small_tables.get_or_init(find).clone()
    }

    pub(crate) fn run_bytes(&self) -> u64 {
        self.runs.iter().map(|run| run.bytes).sum()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.stable.bytes + self.run_bytes()
    }

    /// Returns the maximum bytes of its tables in whole chunks of this size: a table's last chunk
    /// may be nearly empty.
    pub(crate) fn bytes_with_chunks(&self, chunk: u64) -> u64 {
        self.bytes() + self.sorted().map(|sorted| sorted.tables.len() as u64 * chunk).sum::<u64>()
    }

    /// Returns whether the range should be joined with the next one, where ranges of more than
    /// `full` bytes are split. The smaller one must be below a quarter of that, and both together
    /// below half. The two halves of a split are therefore not joined before much of them is
    /// deleted.
    pub(crate) fn may_join(&self, next: &Self, full: u64) -> bool {
        let (own, other) = (self.bytes(), next.bytes());
        let splits = !self.cuts.is_empty() || !next.cuts.is_empty();
        !splits && own.min(other) < full / 4 && own + other < full / 2
    }

    /// Returns all sorted lists of tables, newest first.
    pub(crate) fn sorted(&self) -> impl Iterator<Item = &Sorted> {
        self.runs.iter().chain([&self.stable])
    }

    /// Returns the range's newest version of a key. `how` says how its stable tables are read.
    ///
    /// # Errors
    /// [`lodestore_contract::Error::Corrupt`].
    #[inline]
    pub(crate) fn find<'v>(
        &'v self,
        key: &[u8],
        hash: u64,
        how: LookupOptions,
        slot: &'v Slot,
    ) -> Result<Option<Known<'v>>> {
        for run in &self.runs {
            if let Some(item) = run.get(key, hash, LookupOptions { filtered: true, ..how }, slot)? {
                return Ok(Some(Known::of_item(&item)));
            }
        }
        Ok(self.stable.get(key, hash, how, slot)?.map(|item| Known::of_item(&item)))
    }

    /// Like [`Self::find`] for many keys with their hashes. Calls `each` with a key's index in
    /// `keys` and its newest version, for known keys only. Each list of tables is searched for all
    /// keys before the next list, so that its filters and index stay in the cache.
    ///
    /// `filters` says whether filters are verified. With [`Reads::Trusted`] a damaged filter can
    /// hide a key: for callers that lose no record by it.
    pub(crate) fn find_each(
        &self,
        keys: &[(&[u8], u64)],
        how: LookupOptions,
        filters: Reads,
        each: &mut dyn FnMut(usize, Result<Known<'_>>),
    ) {
        let mut wanted: Vec<usize> = (0..keys.len()).collect();
        let how = LookupOptions { filtered: false, ..how };
        for sorted in self.sorted() {
            let mut tables = sorted.ascending();
            wanted.retain(|place| {
                let ((key, hash), slot) = (keys[*place], Slot::new());
                let Some(table) = tables.may_have(key, hash, filters) else { return true };
                let known = match table.get(key, hash, how, &slot) {
                    Ok(None) => return true,
                    Ok(Some(item)) => Ok(Known::of_item(&item)),
                    Err(error) => Err(error),
                };
                each(*place, known);
                false
            });
        }
    }
}

/// Returns the adjacent small tables to merge, given the sizes of all adjacent tables: the smallest
/// ones first.
fn find_small_tables(sizes: &[u64], table_bytes: u64) -> Option<Span<usize>> {
    let least = sizes.iter().copied().min()?;
    let limits = std::iter::successors(Some(table_bytes / 2), |limit| {
        (*limit / MERGE_GROWTH_FACTOR >= least).then(|| limit / MERGE_GROWTH_FACTOR)
    });
    let limits: Vec<_> = limits.collect();
    limits.into_iter().rev().find_map(|limit| {
        let mut first = 0;
        // Stretches of consecutive tables that are no larger than the limit.
        sizes.split_inclusive(|size| *size > limit).find_map(|stretch| {
            let small = stretch.iter().take_while(|size| **size <= limit);
            let (count, bytes, most) = small
                .fold((0, 0, 0), |(count, bytes, most), size| (count + 1, bytes + size, size.max(&most).to_owned()));
            let span = first..first + count;
            first += stretch.len();
            (count >= SMALL_TABLES_MIN && bytes >= MERGE_GROWTH_FACTOR * most).then_some(span)
        })
    })
}

/// All ranges in key order; the first one begins at the empty key.
pub(crate) struct Ranges {
    pub(crate) list: Vec<Arc<Range>>,
    heads: Vec<u64>,
}

impl Ranges {
    pub(crate) fn new(list: Vec<Arc<Range>>) -> Self {
        assert!(list.first().is_some_and(|first| first.lower.is_empty()), "the ranges cover every key");
        let heads = list.iter().map(|range| key_head(&range.lower)).collect();
        Self { list, heads }
    }

    /// Returns the index of a key's range.
    #[inline]
    pub(crate) fn index_of(&self, key: &[u8]) -> usize {
        let head = key_head(key);
        let mut at = self.heads.partition_point(|other| *other <= head);
        while at > 1 && self.heads[at - 1] == head && *self.list[at - 1].lower > *key {
            at -= 1;
        }
        at.max(1) - 1
    }

    /// Returns where the range ends; `None` if it has no upper bound.
    pub(crate) fn upper_of(&self, index: usize) -> Option<&[u8]> {
        self.list.get(index + 1).map(|next| &*next.lower)
    }

    /// Like [`Range::find`], in the range of the key.
    ///
    /// # Errors
    /// [`lodestore_contract::Error::Corrupt`].
    #[inline]
    pub(crate) fn find<'v>(
        &'v self,
        key: &[u8],
        hash: u64,
        how: LookupOptions,
        slot: &'v Slot,
    ) -> Result<Option<Known<'v>>> {
        self.list[self.index_of(key)].find(key, hash, how, slot)
    }

    /// Like [`Range::find_each`] for ascending keys of any ranges.
    pub(crate) fn find_each(
        &self,
        keys: &[&[u8]],
        how: LookupOptions,
        filters: Reads,
        each: &mut dyn FnMut(usize, Result<Known<'_>>),
    ) {
        let (mut first, mut together) = (0, Vec::new());
        while let Some(key) = keys.get(first) {
            let index = self.index_of(key);
            let upper = self.upper_of(index);
            let of_range = keys[first..].iter().take_while(|key| upper.is_none_or(|upper| **key < upper));
            together.clear();
            together.extend(of_range.take(LOOKUP_KEYS).map(|key| (*key, hash(key))));
            self.list[index].find_each(&together, how, filters, &mut |place, known| each(first + place, known));
            first += together.len();
        }
    }

    pub(crate) fn dram_bytes(&self) -> u64 {
        let own = |range: &Arc<Range>| {
            size_of::<Range>() + range.lower.len() + range.cuts.iter().map(|cut| cut.len() + 16).sum::<usize>()
        };
        let tables = |range: &Arc<Range>| range.sorted().map(Sorted::dram_bytes).sum::<u64>();
        self.list.iter().map(|range| own(range) as u64 + tables(range) + 16).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::find_small_tables;

    const FULL_TABLE_BYTES: u64 = 1 << 18;

    #[test]
    fn small_neighbours_are_merged_and_others_stay() {
        assert_eq!(find_small_tables(&[], FULL_TABLE_BYTES), None);
        assert_eq!(find_small_tables(&[FULL_TABLE_BYTES; 100], FULL_TABLE_BYTES), None, "full ones");
        assert_eq!(find_small_tables(&[1000; 7], FULL_TABLE_BYTES), None, "too few");
        assert_eq!(find_small_tables(&[1000; 8], FULL_TABLE_BYTES), Some(0..8));
        let mut mixed = vec![FULL_TABLE_BYTES; 3];
        mixed.extend([1000; 9]);
        mixed.push(FULL_TABLE_BYTES);
        mixed.extend([40_000; 20]);
        assert_eq!(find_small_tables(&mixed, FULL_TABLE_BYTES), Some(3..12), "the smallest first");
        mixed.drain(3..12);
        assert_eq!(find_small_tables(&mixed, FULL_TABLE_BYTES), Some(4..24));
        let alternate: Vec<u64> =
            (0..100).map(|number| if number % 2 == 0 { FULL_TABLE_BYTES } else { 1000 }).collect();
        assert_eq!(find_small_tables(&alternate, FULL_TABLE_BYTES), None, "what has full neighbours");
    }

    /// Keys in ascending order, one table of `small` bytes per flush: bounds the rewritten bytes
    /// and the number of tables.
    #[test]
    fn each_byte_is_rewritten_a_few_times() {
        for small in [500, 3000, 20_000, FULL_TABLE_BYTES / 2] {
            let (mut sizes, mut rewritten, mut most) = (Vec::<u64>::new(), 0, 0);
            let flushes = 64 * FULL_TABLE_BYTES / small;
            for _ in 0..flushes {
                sizes.push(small);
                while let Some(span) = find_small_tables(&sizes, FULL_TABLE_BYTES) {
                    let bytes: u64 = sizes[span.clone()].iter().sum();
                    rewritten += bytes;
                    let full = std::iter::repeat_n(FULL_TABLE_BYTES, (bytes / FULL_TABLE_BYTES) as usize);
                    sizes.splice(
                        span,
                        full.chain((!bytes.is_multiple_of(FULL_TABLE_BYTES)).then_some(bytes % FULL_TABLE_BYTES)),
                    );
                }
                most = most.max(sizes.iter().filter(|size| **size < FULL_TABLE_BYTES / 2).count());
            }
            let bound = f64::from((FULL_TABLE_BYTES / small) as u32).log(4.0).ceil() as u64;
            assert!(rewritten <= bound * flushes * small, "{} times of {small}", rewritten / (flushes * small));
            assert!(
                most as u64 <= 16 * (bound + 1) && sizes.len() as u64 <= 2 * 64 + 16 * (bound + 1),
                "{most} small ones, {} in all",
                sizes.len()
            );
        }
    }
}
