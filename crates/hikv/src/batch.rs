//! Atomic batches of many keys by a redo log of the entries (`lodestore_media::BatchLogs`). The
//! paper leaves batches open.
//!
//! ## Persist order
//! 1. The last operation of each key counts. The records of all puts are stored, in no order.
//! 2. All stripes of every partition of the batch and of its conditions are acquired, in ascending
//!    order. The conditions are checked. If one is not met, the records are freed, and nothing else
//!    is done. Each key's entry is looked up. A new key gets a free slot of its own; a segment
//!    without one is split (`split.rs`), which changes no key. **Fence 1**: the records.
//! 3. The log record, with the location and new content of every entry; **fence 2: the batch is
//!    done**. The entries; flush; **fence 3**. The log record disarmed; flush; **fence 4**.
//!    (`crates/media/src/batch_log.rs`.)
//! 4. The tree's changes are queued, and the stripes are freed. The thread that applies these
//!    changes retires the old records.
//!
//! Whole partitions are locked because a writer of any stripe may claim a free slot. A swap over a
//! slot's old content may tear, also over entries left by a split or a torn swap. The redo log
//! repairs the slot before any reader can access it. The paper's `wal` mode logs nothing more: a
//! batch is logged already.
//!
//! ## Readers
//! `Base::batches` is above 0 from before the stripes are acquired until after the last
//! one is freed. A reader loads it after it has read an entry, or found none. If the count is not 0
//! and the key's stripe is held, the reader reads again under the stripe (`read.rs`). A reader
//! therefore returns a new entry of the batch only after all entries are stored, and a later reader
//! sees all. A reader that returns an old entry began before.
//!
//! ## Errors
//! Before fence 2 only splits change anything, and the records are freed on error. A failed sync
//! poisons the store. The next open may find the batch applied or not: then the records stay.

use std::sync::atomic::Ordering;

use lodestore_contract::{Commit, Error, Expiry, Result};
use lodestore_inplace::{BatchInProgress, Batches, BoxedResult, Engine, Held, ItemOf, RequiredOf, Stored, Writes};
use lodestore_media::{BatchTurn, NvPtr, Word};

use crate::careful_lookup::Reuse;
use crate::entry::Entry;
use crate::hash::{Signature, Target};
use crate::layout::{BUCKET_ENTRIES, ENTRY_BYTES};
use crate::open_store::Inner;
use crate::probe::Probe;
use crate::record::Record;
use crate::split::split;
use crate::stripe::next_sequence;
use crate::table::{Hit, Segment, SegmentLocation, Table, Verdict, unbound_entry};
use crate::tree_op::TreeOp;
use crate::write::{is_of_another_key, position_of};

/// Extra log entries to request when damaged entries are cleared: a batch then has more entries
/// than keys.
const EXTRA_LOG_ENTRIES: usize = 64;
/// Number of keys whose buckets are prefetched ahead of the lookup.
const PREFETCH_KEYS: usize = 6;

type Item<'b> = ItemOf<'b, Inner>;
type Required<'c> = RequiredOf<'c, Inner>;

/// How the application of a batch ended.
enum Applied {
    /// The condition with this index is not met.
    Unmet(usize),
    /// The batch was published. After an error it may be done or not.
    Published(Result<()>),
}

/// A change of one entry.
struct Effect {
    item: usize,
    slot: NvPtr,
    /// Null if the entry is removed.
    new: NvPtr,
    /// The record that the entry names now; null if the entry is free; the slot itself if the entry
    /// is damaged.
    old: NvPtr,
    /// Length of the old record; `None` if the record cannot be read.
    old_len: Option<usize>,
}

/// The entries of a key of the batch, whose stripes are held.
struct KeyEntries<'a> {
    hit: Option<Hit<'a>>,
    damaged: Vec<NvPtr>,
}

impl Batches for Inner {
    fn try_batch(&self, items: &mut [Item<'_>], required: &[Required<'_>]) -> BoxedResult<Commit> {
        let _timer = self.time_write();
        let _guard = self.enter_write()?;
        if items.is_empty() {
            let _held = self.lock_partitions(&[], required);
            return Ok(self.check_conditions(required)?);
        }
        let turn = self.logs.begin(&self.pool, items.len())?;
        self.store_records(items)?;
        match self.apply_batch(turn, items, required) {
            Ok(Applied::Published(published)) => {
                Ok(published.and_then(|()| self.pool.check()).map(|()| Commit::Done)?)
            }
            Ok(Applied::Unmet(index)) => {
                self.free_records(items);
                Ok(Commit::Unmet(index))
            }
            Err(refused) => {
                self.free_records(items);
                Err(refused.into())
            }
        }
    }

    fn store_unheld(&self, target: Target<'_>, value: &[u8], expiry: Option<Expiry>) -> Result<Stored> {
        let sequence = next_sequence(&mut self.stripes.lock(target.hash.stripe));
        self.store_record(sequence, target.key, value, expiry)
    }
}

impl Inner {
    /// Acquires the stripes, checks the conditions and writes the entries. After an error, or an
    /// unmet condition, nothing is changed and the caller owns the records.
    fn apply_batch(&self, turn: BatchTurn<'_>, items: &[Item<'_>], required: &[Required<'_>]) -> Result<Applied> {
        let (mut turn, mut log_entries) = (turn, items.len());
        loop {
            // Dropped in reverse order: the count last.
            let _counted = BatchInProgress::new(&self.batches);
            let held = self.lock_partitions(items, required);
            if let Commit::Unmet(index) = self.check_conditions(required)? {
                return Ok(Applied::Unmet(index));
            }
            let effects = self.plan(items)?;
            if effects.len() <= log_entries {
                // After this fence the records stay, regardless of the outcome.
                self.fence_before_publish().map_err(|error| *error)?;
                let done = self.commit_batch(turn, items, &effects);
                drop(held);
                return Ok(Applied::Published(done));
            }
            // Never wait for a log with a stripe held.
            log_entries = effects.len() + EXTRA_LOG_ENTRIES;
            drop(held);
            drop(turn);
            turn = self.logs.begin(&self.pool, log_entries)?;
        }
    }

    /// Acquires all stripes of the partitions of a batch and its conditions, in ascending order of
    /// partitions.
    fn lock_partitions(&self, items: &[Item<'_>], required: &[Required<'_>]) -> Vec<Vec<Held<'_, u64>>> {
        let of_items = items.iter().map(|item| item.target.hash.stripe.partition);
        let mut partitions: Vec<usize> =
            of_items.chain(required.iter().map(|(target, _)| target.hash.stripe.partition)).collect();
        partitions.sort_unstable();
        partitions.dedup();
        if self.changes.is_crowded() {
            self.changes.wait_for_copier();
        }
        let held = partitions.into_iter().map(|partition| self.stripes.lock_partition(partition)).collect();
        if self.changes.is_active() {
            items.iter().for_each(|item| self.changes.record(item.target.key));
        }
        held
    }

    /// Plans the change of each entry, with all stripes held. Splits segments without a free slot.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::IndexFull`], [`Error::DramBudget`], [`Error::Corrupt`]; no key was
    /// changed.
    fn plan(&self, items: &[Item<'_>]) -> Result<Vec<Effect>> {
        let mut effects = Vec::with_capacity(items.len());
        let mut claimed = vec![0u8; self.table.shape.buckets() as usize];
        let mut first = 0;
        while let Some(Item { target, .. }) = items.get(first) {
            let segment = self.segment(target.hash.sig)?;
            let same = |item: &Item<'_>| {
                self.table.placement.same_segment(target.hash.sig, item.target.hash.sig.0, segment.depth)
            };
            let end = first + items[first..].iter().take_while(|item| same(item)).count();
            let (planned, mut unplaced) = (effects.len(), None);
            claimed.fill(0);
            for index in first..end {
                if let Some(next) = items[..end].get(index + PREFETCH_KEYS) {
                    self.table.prefetch(&self.pool, segment, next.target.hash.sig);
                }
                if !self.plan_item(&items[index], index, segment, &mut claimed, &mut effects)? {
                    unplaced = Some(items[index].target.hash.sig);
                    break;
                }
            }
            match unplaced {
                None => first = end,
                Some(sig) => {
                    effects.truncate(planned);
                    split(&self.table, &self.pool, sig, self.is_careful())?;
                }
            }
        }
        if effects.iter().any(|effect| effect.old.is_null()) {
            self.check_budget()?;
        }
        Ok(effects)
    }

    /// Plans one key. Returns false if there is no free slot for it.
    fn plan_item(
        &self,
        item: &Item<'_>,
        index: usize,
        segment: Segment,
        claimed: &mut [u8],
        effects: &mut Vec<Effect>,
    ) -> Result<bool> {
        let Item { target, stored, .. } = item;
        let mut new = stored.as_ref().map_or(NvPtr::NULL, position_of);
        if self.is_unsettled() {
            self.persist_buckets(segment, target.hash.sig);
        }
        let probe = self.table.probe(&self.pool, segment, target.hash.sig);
        let KeyEntries { hit, damaged } = self.find_all(&probe, target);
        if let Some(hit) = hit {
            // Even if the record has expired or is damaged.
            if hit.record_at.untagged() == new.untagged() {
                let place = format!("entry of record {:?}", hit.record_at);
                return Err(Error::corrupt(place, "the entry names a record whose place was free"));
            }
            let old_len = Some(hit.record.len());
            effects.push(Effect { item: index, slot: hit.at, new, old: hit.record_at, old_len });
            new = NvPtr::NULL;
        } else if damaged.is_empty() && new.is_null() {
            // A delete of a key that may be in a damaged slot.
            self.check_absent(segment, target.hash.sig)?;
        }
        for slot in damaged {
            effects.push(Effect { item: index, slot, new, old: slot, old_len: None });
            new = NvPtr::NULL;
        }
        if !new.is_null() {
            let Some(slot) = self.claim_slot(segment, target.hash.sig, claimed) else { return Ok(false) };
            effects.push(Effect { item: index, slot, new, old: NvPtr::NULL, old_len: None });
        }
        Ok(true)
    }

    /// Finds the key's entry, and entries with its signature that name no readable record, or a
    /// record with a damaged key.
    fn find_all(&self, probe: &Probe, target: &Target<'_>) -> KeyEntries<'_> {
        let mut found = KeyEntries { hit: None, damaged: Vec::new() };
        for (slot, entry) in probe.candidates(&self.pool) {
            let position = entry.position();
            match Record::read(&self.pool, position) {
                Ok(record) if record.key() == target.key && entry.is_bound(slot, record.binding()) => {
                    found.hit = Some(Hit { at: slot, entry, record_at: position, record, is_bound: true });
                }
                _ if is_of_another_key(&self.pool, slot, entry) => {}
                read => {
                    let error = read.and_then(|record| record.check(position)).err();
                    self.report_corruption(&error.unwrap_or_else(|| unbound_entry(slot)));
                    found.damaged.push(slot);
                }
            }
        }
        found
    }

    /// Returns a free slot that no other key of the batch has, by the rule of a single put
    /// (`table.rs`).
    fn claim_slot(&self, segment: Segment, sig: Signature, claimed: &mut [u8]) -> Option<NvPtr> {
        let (home, other) = self.table.placement.buckets(sig);
        let careful = self.is_careful();
        let free_slots = |bucket: usize| {
            if careful {
                return self.sound_free_slots(segment, sig, bucket) & !claimed[bucket];
            }
            let words = self.pool.load_words::<16>(Table::bucket(segment, bucket));
            let is_free =
                |entry: &usize| self.table.is_free(sig, (words[entry * 2], words[entry * 2 + 1]), segment.depth);
            let free = (0..BUCKET_ENTRIES).filter(is_free).fold(0u8, |free, entry| free | 1 << entry);
            free & !claimed[bucket]
        };
        let (at_home, at_other) = (free_slots(home), free_slots(other));
        let fill = |free: u8| BUCKET_ENTRIES - free.count_ones() as usize;
        let prefers_home = Table::prefers_home(fill(at_home), fill(at_other));
        let (bucket, free) = match (at_home, at_other) {
            (0, 0) => return None,
            (free, 0) => (home, free),
            (0, free) => (other, free),
            (free, _) if prefers_home => (home, free),
            (_, free) => (other, free),
        };
        let entry = free.trailing_zeros();
        let slot = Table::bucket(segment, bucket).add(u64::from(entry) * ENTRY_BYTES);
        let found = Entry::load(&self.pool, slot);
        if !careful
            && found != Entry::free(&self.pool, slot)
            && self.judge_reuse(segment, sig, (slot, found)) == Reuse::Damaged
        {
            // The damage has turned careful mode on.
            return self.claim_slot(segment, sig, claimed);
        }
        claimed[bucket] |= 1 << entry;
        Some(slot)
    }

    /// Returns a bit set of the slots of a bucket that are free without doubt.
    #[cold]
    fn sound_free_slots(&self, segment: Segment, sig: Signature, bucket: usize) -> u8 {
        let prefix = self.table.placement.index(sig, segment.depth);
        let location = SegmentLocation { segment, partition: self.table.placement.partition(sig), prefix };
        let slots = Table::bucket_slots(&self.pool, segment, bucket).enumerate();
        let is_free = |slot| matches!(self.table.judge(&self.pool, location, slot), Verdict::Free);
        slots.fold(0, |free, (index, slot)| free | u8::from(is_free(slot)) << index)
    }

    /// Writes the entries and queues the tree's changes.
    fn commit_batch(&self, turn: BatchTurn<'_>, items: &[Item<'_>], effects: &[Effect]) -> Result<()> {
        let word = |effect: &Effect| {
            let item = &items[effect.item];
            let entry = match &item.stored {
                Some(stored) if !effect.new.is_null() => {
                    Entry::naming(effect.slot, item.target.hash.sig.0, effect.new, stored.binding)
                }
                _ => Entry::free(&self.pool, effect.slot),
            };
            (effect.slot, Word::U128(entry.sig, entry.word))
        };
        let stores: Vec<_> = effects.iter().map(word).collect();
        for effect in effects {
            if let Some(len) = effect.old_len {
                self.pool.allocator().exclude_from_sweep(effect.old.untagged(), len);
            }
        }
        let done = turn.commit(&self.pool, &stores);
        let is_stored = |(slot, word): &(NvPtr, Word)| {
            let Entry { sig, word: second } = Entry::load(&self.pool, *slot);
            *word == Word::U128(sig, second)
        };
        if done.is_err() && !stores.iter().all(is_stored) {
            return done;
        }
        for effect in effects {
            self.enqueue_tree_changes(&items[effect.item], effect);
        }
        done
    }

    fn enqueue_tree_changes(&self, item: &Item<'_>, effect: &Effect) {
        let (key, hash) = (item.target.key, item.target.hash.sig.0);
        if item.stored.as_ref().is_some_and(|stored| stored.expires) {
            self.expiring.store(true, Ordering::Relaxed);
        }
        let mut old = effect.old;
        if !old.is_null() && effect.old_len.is_none() {
            // The tree finds the key's record by the key of this batch.
            self.records.cleared.insert(old, key);
            self.enqueue_tree_change(hash, TreeOp::new(key, old, NvPtr::NULL));
            old = NvPtr::NULL;
        }
        if !(old.is_null() && effect.new.is_null()) {
            self.enqueue_tree_change(hash, TreeOp::new(key, old, effect.new));
        }
    }
}
