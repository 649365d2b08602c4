//! Reads of single keys. No lock is acquired: the view is loaded once, and everything it names
//! exists while it is held.

use std::cell::Cell;
use std::sync::atomic::Ordering;

use lodestore_contract::limits::{KEY_MAX, KEY_MIN};
use lodestore_contract::{Expiry, Result};

use crate::db::open_store::Inner;
use crate::sst::{Block, Reads, Slot, Table, hash};
use crate::tree::ABSENT_SAMPLE_FACTOR;
use crate::tree::counts::Counts;
use crate::version::known::Known;
use crate::version::tables::LookupOptions;
use crate::version::view::View;

/// About one lookup in this many is counted.
const SAMPLE_INTERVAL: u64 = 64;
/// 2^64 divided by the golden ratio, odd.
const GOLDEN_RATIO_MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;
/// Number of keys whose tables and blocks are prefetched together.
const GROUP_KEYS: usize = 16;

/// A stable table and its only block that may have a key.
type Located<'v> = Option<(Table<'v, 'v>, Block)>;

#[inline]
pub(crate) fn check_key(key: &[u8]) -> Result<()> {
    lodestore_contract::limits::check_key(key)
}

const _: () = assert!(KEY_MIN == 1 && KEY_MAX <= 1 << 16);

/// Returns whether the current lookup of this thread is counted. The sample is one in
/// [`SAMPLE_INTERVAL`], whatever the key: a hot key counts as often as it is read. Multiples of an
/// irrational number are evenly spread, and so are every second, third and n-th of them. Lookups
/// that alternate are therefore counted alike.
#[inline]
fn is_sampled() -> bool {
    thread_local!(static SAMPLER: Cell<u64> = const { Cell::new(0) });
    SAMPLER.with(|state| {
        let next = state.get().wrapping_add(GOLDEN_RATIO_MULTIPLIER);
        state.set(next);
        next < u64::MAX / SAMPLE_INTERVAL
    })
}

impl Inner {
    /// Returns the newest known version of a key. Waits if a batch that may hold the key is half in
    /// the index.
    #[inline]
    pub(crate) fn known<'v>(&self, view: &'v View, key: &[u8], hash: u64, slot: &'v Slot) -> Result<Option<Known<'v>>> {
        Ok(self.sampled(self.known_uncounted(view, key, hash, slot)?))
    }

    /// Like [`Self::known`], for internal lookups: only reads of the store's users influence when
    /// compactions are due.
    #[inline]
    fn known_uncounted<'v>(&self, view: &'v View, key: &[u8], hash: u64, slot: &'v Slot) -> Result<Option<Known<'v>>> {
        if self.batches.load(Ordering::SeqCst) > 0 {
            self.wait_for_batch(hash);
        }
        view.find(key, hash, u64::MAX, self.lookup_options(), slot)
    }

    /// Passes on the result of a lookup, and counts a sample of the lookups.
    #[inline]
    fn sampled<'v>(&self, found: Option<Known<'v>>) -> Option<Known<'v>> {
        if is_sampled() {
            self.note_found(found.is_some());
        }
        found
    }

    #[cold]
    fn wait_for_batch(&self, hash: u64) {
        match &self.log {
            // The batch holds the stripes of all its keys until it is whole.
            None => drop(self.order.lock(hash)),
            Some(log) => log.wait_for_batch(),
        }
    }

    /// Adds a lookup to the share of absent keys.
    #[cold]
    fn note_found(&self, found: bool) {
        let before = self.absent.load(Ordering::Relaxed);
        Counts::add(&self.counts.reads, SAMPLE_INTERVAL);
        self.absent.store(before - before / 16 + if found { 0 } else { ABSENT_SAMPLE_FACTOR }, Ordering::Relaxed);
    }

    /// Returns the share of absent keys in recent lookups, in thousandths.
    pub(crate) fn absent_per_mille(&self) -> u64 {
        u64::from(self.absent.load(Ordering::Relaxed)) * 1000 / u64::from(16 * ABSENT_SAMPLE_FACTOR)
    }

    /// Calls `with` for the live value of a key.
    #[inline]
    pub(crate) fn with_value<T>(&self, key: &[u8], with: impl FnOnce(Option<(&[u8], Option<u64>)>) -> T) -> Result<T> {
        self.with_known(key, |known| known.map_or(Ok(None), |known| self.value_of(key, known)).map(with))
    }

    /// Calls `with` for the newest version of a key. Reports damage.
    #[inline]
    fn with_known<T>(&self, key: &[u8], with: impl FnOnce(Option<Known<'_>>) -> Result<T>) -> Result<T> {
        check_key(key)?;
        let read = || {
            let _guard = self.enter()?;
            let (view, slot) = (self.view.load(), Slot::new());
            with(self.known(&view, key, hash(key), &slot)?)
        };
        // After the end of the read.
        read().inspect_err(|error| self.report_corruption(error))
    }

    /// Like [`lodestore_contract::Store::get_into`], but not counted.
    pub(crate) fn peek_into(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        check_key(key)?;
        value.clear();
        let _guard = self.enter()?;
        let (view, slot) = (self.view.load(), Slot::new());
        let known = self.known_uncounted(&view, key, hash(key), &slot)?;
        let live = known.map_or(Ok(None), |known| self.value_of(key, known))?;
        live.iter().for_each(|(found, _)| value.extend_from_slice(found));
        Ok(live.is_some())
    }

    /// Returns whether a memtable has an entry of a key.
    pub(crate) fn is_buffered(&self, key: &[u8]) -> Result<bool> {
        check_key(key)?;
        let _guard = self.enter()?;
        let (view, hash) = (self.view.load(), hash(key));
        for memtable in view.memtables() {
            if memtable.find(key, hash, u64::MAX)?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Like [`Self::peek_into`], for values stored in the tables themselves. A pointer there may
    /// name a freed record if a memtable has a newer version. Leaves out keys that a damaged filter
    /// hides.
    pub(crate) fn peek_tables(&self, keys: &[&[u8]], each: &mut dyn FnMut(usize, &[u8])) -> Result<()> {
        keys.iter().try_for_each(|key| check_key(key))?;
        let _guard = self.enter()?;
        let view = self.view.load();
        let mut damage = Ok(());
        let how = LookupOptions { reads: self.reads, filtered: true };
        view.ranges.find_each(keys, how, Reads::Trusted, &mut |place, known| match known {
            Ok(known) if known.is_live() => {
                if let Known::Value(found, _) = known {
                    each(place, found);
                }
            }
            Ok(_) => {}
            Err(error) => damage = Err(error),
        });
        damage
    }

    /// Returns the value and the expiry of `key`; `None` if it was deleted or has expired. The
    /// caller holds the view from which `known` is.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    #[inline]
    pub(crate) fn value_of<'v>(&'v self, key: &[u8], known: Known<'v>) -> Result<Option<(&'v [u8], Option<u64>)>> {
        if !known.is_live() {
            return Ok(None);
        }
        match known {
            Known::Value(value, expiry) => Ok(Some((value, expiry))),
            Known::Pointer(pointer, expiry) => Ok(Some((self.values.read(key, pointer, self.reads)?, expiry))),
            Known::Deleted => Ok(None),
        }
    }

    /// Calls `with` with the newest version of a key if it is live. Does not read a large value.
    fn with_live<T>(&self, key: &[u8], with: impl FnOnce(Option<Known<'_>>) -> T) -> Result<T> {
        self.with_known(key, |known| Ok(with(known.filter(|known| known.is_live()))))
    }

    pub(crate) fn get_into(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        self.with_value(key, |found| {
            value.clear();
            found.is_some_and(|(bytes, _)| {
                value.extend_from_slice(bytes);
                true
            })
        })
    }

    pub(crate) fn get_with(&self, key: &[u8], with: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.with_value(key, |found| {
            found.is_some_and(|(bytes, _)| {
                with(bytes);
                true
            })
        })
    }

    pub(crate) fn contains(&self, key: &[u8]) -> Result<bool> {
        self.with_live(key, |found| found.is_some())
    }

    pub(crate) fn expiry(&self, key: &[u8]) -> Result<Option<Option<Expiry>>> {
        self.with_live(key, |found| found.map(|known| known.expiry().map(Expiry::at_millis)))
    }

    pub(crate) fn multi_get(&self, keys: &[&[u8]], each: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()> {
        keys.iter().try_for_each(|key| check_key(key))?;
        self.get_each(keys, each).inspect_err(|error| self.report_corruption(error))
    }

    fn get_each(&self, keys: &[&[u8]], each: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()> {
        let _guard = self.enter()?;
        for (number, group) in keys.chunks(GROUP_KEYS).enumerate() {
            // Read before the lookups: a batch that is half published may be missing from their
            // results, and be complete before the key's result is used.
            let whole = self.batches.load(Ordering::SeqCst) == 0;
            let view = self.view.load();
            let mut hashes = [0; GROUP_KEYS];
            group.iter().zip(&mut hashes).for_each(|(key, place)| *place = hash(key));
            let located = self.locate_all(&view, group, &hashes);
            for (at, key) in group.iter().enumerate() {
                let slot = Slot::new();
                let known = match located[at] {
                    Some((table, block)) if whole => {
                        let item = table.get_in(&block, key, hashes[at], self.reads, &slot);
                        item.map(|item| self.sampled(item.map(|item| Known::of_item(&item))))
                    }
                    _ => self.known(&view, key, hashes[at], &slot),
                };
                let live = known.and_then(|known| known.map_or(Ok(None), |known| self.value_of(key, known)))?;
                each(number * GROUP_KEYS + at, live.map(|(value, _)| value));
            }
        }
        Ok(())
    }

    /// Prefetches the bytes that gets of these keys will read: first the indexes, then the items.
    /// Returns the place of each key that only a stable table can have and that is unlikely to be
    /// absent.
    fn locate_all<'v>(&self, view: &'v View, keys: &[&[u8]], hashes: &[u64; GROUP_KEYS]) -> [Located<'v>; GROUP_KEYS] {
        if !view.active.is_empty() {
            view.active.index.prefetch_batch(keys.iter().copied());
        }
        let how = self.lookup_options();
        let mut tables = [None; GROUP_KEYS];
        for ((key, hash), table) in keys.iter().zip(hashes).zip(&mut tables) {
            let range = &view.ranges.list[view.ranges.index_of(key)];
            range.runs.iter().filter_map(|run| run.find(key)).for_each(|table| table.prefetch_filter(*hash));
            *table = range.stable.find(key).map(|table| (table, range.runs.is_empty() && !how.filtered));
            table.iter().for_each(|(table, _)| table.prefetch_index(key));
        }
        let mut located = [None; GROUP_KEYS];
        for (((key, hash), table), place) in keys.iter().zip(hashes).zip(tables).zip(&mut located) {
            if let Some((table, alone)) = table {
                let found = table.locate_ahead(key);
                *place = found.filter(|_| alone && view.memtables().all(|memtable| !memtable.may_have(*hash)));
            }
        }
        located
    }
}

#[cfg(test)]
mod tests {
    use lodestore_contract::Store;
    use lodestore_inplace::testing::Scratch;
    use lodestore_media::PoolOptions;

    use super::*;
    use crate::{FluidKv, FluidOptions};

    /// A batch is being published while a `multi_get` looks ahead, and is complete when it reaches
    /// a key of the batch. Another reader may have seen the batch before this call began.
    #[test]
    fn lookups_ahead_of_a_half_published_batch_are_not_used() {
        let scratch = Scratch::new();
        let pool = PoolOptions { capacity: 16 << 20, region_bytes: 16 << 20, ..PoolOptions::default() };
        let options = FluidOptions { pool, workers: 0, ..FluidOptions::default() };
        let store = FluidKv::create(&scratch.store(), &options).expect("created");
        for key in [b"first", b"later"] {
            store.put(key, b"old").expect("put");
        }
        // Both keys are in a stable table, and nowhere else.
        store.settle().expect("settled");
        let inner = &store.running.inner;
        inner.batches.fetch_add(1, Ordering::SeqCst);
        let mut found = Vec::new();
        let each = &mut |index: usize, value: Option<&[u8]>| {
            if index == 0 {
                store.put(b"later", b"new").expect("the rest of the batch");
                inner.batches.fetch_sub(1, Ordering::SeqCst);
            }
            found.push(value.expect("it is there").to_vec());
        };
        store.multi_get(&[b"first", b"later"], each).expect("multi_get");
        assert_eq!(found, [b"old", b"new"]);
    }
}
