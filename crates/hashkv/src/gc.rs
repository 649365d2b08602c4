//! Group-based garbage collection (HashKV, ATC 2018, section 3.3).
//!
//! Each segment of a victim is read once, from start to end. Flushes have reported which of its
//! records are dead (`space.rs`). The LSM is asked only about keys with an entry that waits for its
//! flush, and about all keys of segments that an open found or that are damaged.
//!
//! The paper does not query its LSM: the last version of a key in its group is the newest. That
//! rule resurrects a deleted key, or a key whose value became too small to separate, unless markers
//! are written into the group. No marker is needed here, because a copy becomes the key's value
//! only if the LSM still has the copied pointer.
//!
//! Persist order:
//! 1. Copies, in segments of their own; **sync**.
//! 2. Pointers, in records of the LSM's log; **durable**. A record changes a key only if its newest
//!    version is still the copied one.
//! 3. The old segments are retired.
//!
//! A crash leaves copies or old segments that no pointer names. The next open counts neither.
//!
//! Damage affects only the records that it hits. A segment that cannot be read, or has a record
//! whose key's entry cannot be read, stays as it is. The victim's other segments are collected. A
//! segment with some invalid records is retired after all of its live bytes by the count were
//! moved. If an open could not count live bytes, a collection counts them for the segments that it
//! reads.

mod verdict;

use std::collections::{HashMap, HashSet};

use lodestore_contract::{Error, Result};
use lodestore_fluidkv::FluidKv;
use lodestore_fluidkv::embedding::Replace;

use self::verdict::{Findings, needs_count};
use crate::append::{Appended, Item};
use crate::layout::{Location, Pointer, RECORD_ALIGN_BYTES, Record, Stored, each_record};
use crate::planted;
use crate::space::{Gain, Outcome, Taken, Victim};
use crate::values::{Counts, Values, lock};

/// Liveness of a record, as flushes have reported it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Live {
    No,
    /// Live, or overwritten since the last flush.
    Yes,
    Unknown,
}

/// The records of a victim, by key.
type VictimRecords<'a> = HashMap<&'a [u8], Vec<(Pointer, &'a [u8], Live)>>;

/// Result of replacing a pointer by another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Replacement {
    Done,
    /// The key has another value now.
    Overtaken,
    /// The key's entry cannot be read.
    Unknown,
}

/// A live record of a victim.
struct Survivor<'a> {
    item: Item<'a>,
    old: Pointer,
    /// The record's entry in the LSM.
    stored: Box<[u8]>,
}

/// Returns whether an error concerns one location on the medium, not the store.
fn is_damage(error: &Error) -> bool {
    matches!(error, Error::Io { .. } | Error::Corrupt { .. })
}

/// Calls `each` for all intact records of this use of a segment, at any offset: also for records
/// after a damaged one.
fn for_each_whole_record<'a>(bytes: &'a [u8], first: Location, mut each: impl FnMut(Pointer, Record<'a>)) {
    let mut at = first.at as usize;
    while at < bytes.len() {
        let location = Location { at: at as u32, ..first };
        let record = Record::read(&bytes[at..], location);
        let len = record.map_or(0, |record| record.len());
        if let Some(record) = record {
            each(Pointer::to(location, len as u32), record);
        }
        at += len.max(RECORD_ALIGN_BYTES);
    }
}

impl Values {
    /// Collects the best victim if it meets `gain`. Returns whether segments were freed or retired.
    ///
    /// # Errors
    /// [`Error::Poisoned`]. [`Error::Io`] if copies cannot be written. [`Error::Full`] if survivors
    /// do not fit into the file, or their pointers into the LSM. No value is lost on error.
    pub(crate) fn collect_best_victim(&self, gain: &Gain) -> Result<bool> {
        let Some(index) = self.index() else { return Ok(false) };
        if self.free_retired() >= gain.segments as usize {
            return Ok(true);
        }
        let _lock = lock(&self.collecting);
        // While readers hold retired segments, fewer segments may be free than flushes leave.
        let room = self.gc_reserve_segments().min(self.available());
        let Some(victim) = self.next_victim(gain, room) else { return Ok(false) };
        let mut done = Outcome::default();
        let outcome = self.collect_victim(&index, &victim, &mut done);
        lock(&self.space).end_collection(&victim, &done, self.moment());
        self.free_retired();
        outcome.map(|()| !done.done.is_empty())
    }

    /// Collects a victim, in steps: read its segments; find their records; ask which are live;
    /// count the live bytes of segments without a count; move the live records of the others; judge
    /// each segment (`gc/verdict.rs`).
    fn collect_victim(&self, index: &FluidKv, victim: &Victim, outcome: &mut Outcome) -> Result<()> {
        self.split_if_grown(victim);
        let segments = self.read_victim(victim, outcome);
        let (records, torn) = self.find_all_records(&segments);
        let mut unclear = HashSet::new();
        let mut survivors = self.survivors(index, &records, &mut unclear)?;
        if self.file.has_fault(planted::COLLECTED_FREED_EARLY) {
            let done = victim.segments.iter().map(|taken| taken.segment).collect();
            let early = Outcome { done, ..Outcome::default() };
            lock(&self.space).end_collection(victim, &early, self.moment());
            self.free_retired();
            return self.move_all(index, &survivors, &mut unclear);
        }
        let live = live_by_segment(&survivors);
        let is_counted = |taken: &Taken| !unclear.contains(&taken.segment) && needs_count(taken, &torn);
        let counted = segments.iter().filter(|(taken, _)| is_counted(taken));
        let counted: HashSet<u32> = counted.map(|(taken, _)| taken.segment).collect();
        survivors.retain(|survivor| !counted.contains(&survivor.old.segment));
        // If survivors do not fit, segments without survivors are freed all the same, and give
        // space to the next collection.
        let moved = self.move_all(index, &survivors, &mut unclear);
        let space = lock(&self.space);
        for (taken, _) in &segments {
            let segment = taken.segment;
            let findings = Findings {
                live: live.get(&segment).copied().unwrap_or(0),
                accounted: space.live_of(segment),
                live_count: taken.live_count,
                is_torn: torn.contains(&segment),
                is_unclear: unclear.contains(&segment),
                is_counted: counted.contains(&segment),
                is_moved: moved.is_ok(),
            };
            outcome.add(taken, &findings);
        }
        drop(space);
        Counts::add(if moved.is_ok() { &self.counts.collections } else { &self.counts.failed }, 1);
        moved
    }

    /// Splits the group of a victim if it has grown.
    fn split_if_grown(&self, victim: &Victim) {
        let mut space = lock(&self.space);
        if let Some(group) = space.should_split(victim, self.sizes.group_bytes, self.sizes.groups_max) {
            space.split(group);
            Counts::add(&self.counts.splits, 1);
        }
    }

    /// Returns the records of these segments, and the segments with bytes that are no intact
    /// record.
    fn find_all_records<'a>(&self, segments: &'a [(&Taken, Vec<u8>)]) -> (VictimRecords<'a>, HashSet<u32>) {
        let (mut records, mut torn) = (VictimRecords::new(), HashSet::new());
        for (taken, bytes) in segments {
            if !find_records(bytes, taken.first_location(self.seed()), taken, &mut records) {
                torn.insert(taken.segment);
            }
        }
        (records, torn)
    }

    /// Reads a victim's segments. Segments that cannot be read are recorded as damaged.
    fn read_victim<'v>(&self, victim: &'v Victim, outcome: &mut Outcome) -> Vec<(&'v Taken, Vec<u8>)> {
        // Announce all reads at once: one after another, each read would wait for the disk.
        for taken in &victim.segments {
            self.file.will_read(self.offset(taken.segment), u64::from(taken.end));
        }
        let mut read = Vec::with_capacity(victim.segments.len());
        for taken in &victim.segments {
            match self.read_segment(taken.segment, taken.end) {
                Ok(bytes) => {
                    read.push((taken, bytes));
                    Counts::add(&self.counts.scanned_bytes, u64::from(taken.end));
                }
                Err(_) => outcome.damaged.push(taken.segment),
            }
        }
        read
    }

    /// Returns the records that the LSM points to. If the LSM cannot tell, the records' segments
    /// become `unclear`.
    ///
    /// # Errors
    /// [`Error::Closed`].
    fn survivors<'a>(
        &self,
        index: &FluidKv,
        records: &VictimRecords<'a>,
        unclear: &mut HashSet<u32>,
    ) -> Result<Vec<Survivor<'a>>> {
        let (mut survivors, mut stored) = (Vec::new(), Vec::new());
        for (key, versions) in records {
            // Only one version among the victim's segments, which are a few of the group's: the
            // value was rarely updated since its flush.
            let cold = self.sizes.hotness && versions.len() == 1;
            let mut survives = |old: Pointer, value: &'a [u8], stored: Box<[u8]>| {
                survivors.push(Survivor { item: Item { cold, ..Item::new(key, value) }, old, stored });
            };
            if self.file.has_fault(planted::MOVED_UNASKED)
                && let Some((old, value, _)) = versions.last()
                && index.peek_into(key, &mut stored)?
            {
                survives(*old, value, stored.as_slice().into());
                continue;
            }
            let live = || versions.iter().filter(|(.., known)| *known != Live::No);
            if live().next().is_none() {
                continue;
            }
            let asks = versions.iter().any(|(.., known)| *known == Live::Unknown);
            match current_entry(index, key, asks, &mut stored) {
                Ok(None) => live().for_each(|(old, value, _)| survives(*old, value, old.stored())),
                Ok(Some(now)) => {
                    if let Some((old, value, _)) = versions.iter().find(|(old, ..)| Stored::Pointer(*old) == now) {
                        survives(*old, value, old.stored());
                    } else if now == Stored::Value(&[]) {
                        // Absent, or expired with a pointer that remains.
                        self.note_expired();
                    }
                }
                Err(error) if is_damage(&error) => unclear.extend(live().map(|(old, ..)| old.segment)),
                Err(error) => return Err(error),
            }
        }
        // Sorted by position, to make runs deterministic.
        survivors.sort_unstable_by_key(|survivor| (survivor.old.segment, survivor.old.at));
        Ok(survivors)
    }

    /// Writes survivors to new segments and replaces their pointers. If the LSM cannot tell whether
    /// it has a pointer, the segment becomes `unclear`.
    fn move_all(&self, index: &FluidKv, survivors: &[Survivor<'_>], unclear: &mut HashSet<u32>) -> Result<()> {
        let items: Vec<_> = survivors.iter().map(|survivor| survivor.item).collect();
        let appended = self.append(&items, 0)?;
        if appended.pointers.iter().any(Option::is_none) {
            // Copies that were placed are garbage in segments that will be collected.
            let garbage: Vec<_> = appended.pointers.iter().flatten().copied().collect();
            drop(appended);
            garbage.into_iter().for_each(|pointer| self.note_garbage(pointer));
            let needed = survivors.iter().map(|survivor| u64::from(survivor.old.len)).sum();
            return Err(Error::Full { needed, capacity: self.pool.options().capacity });
        }
        let old_entries: Vec<&[u8]> = survivors.iter().map(|survivor| &*survivor.stored).collect();
        let replacements = self.replace_each(index, &items, &old_entries, appended)?;
        if replacements.contains(&Replacement::Overtaken) {
            // The record may have expired, with an entry that still names the old location.
            self.note_expired();
        }
        let of = |replacement: Replacement| {
            let replaced = survivors.iter().zip(&replacements);
            replaced.filter(move |(_, is)| **is == replacement).map(|(survivor, _)| survivor)
        };
        unclear.extend(of(Replacement::Unknown).map(|survivor| survivor.old.segment));
        let bytes = |cold: bool| -> u64 {
            of(Replacement::Done).filter(|one| one.item.cold || !cold).map(|one| u64::from(one.old.len)).sum()
        };
        Counts::add(&self.counts.moved, of(Replacement::Done).count() as u64);
        Counts::add(&self.counts.moved_bytes, bytes(false));
        Counts::add(&self.counts.cold_bytes, bytes(true));
        Ok(())
    }

    /// Replaces the LSM's `old_entries` of these items by pointers to the appended copies, for keys
    /// that still have them. Returns which were replaced. The other copies are garbage.
    ///
    /// # Errors
    /// As [`FluidKv::replace`], except for keys with damaged entries, which are left unchanged. On
    /// error earlier replacements remain, and the other copies are garbage.
    pub(crate) fn replace_pointers(
        &self,
        index: &FluidKv,
        items: &[Item<'_>],
        old_entries: &[&[u8]],
        appended: Appended<'_>,
    ) -> Result<Vec<bool>> {
        let replacements = self.replace_each(index, items, old_entries, appended)?;
        Ok(replacements.into_iter().map(|replacement| replacement == Replacement::Done).collect())
    }

    /// As [`Self::replace_pointers`], with the result for each item.
    fn replace_each(
        &self,
        index: &FluidKv,
        items: &[Item<'_>],
        old_entries: &[&[u8]],
        appended: Appended<'_>,
    ) -> Result<Vec<Replacement>> {
        let news: Vec<_> = appended.pointers.iter().map(|pointer| pointer.map(Pointer::stored)).collect();
        let new = |at: usize| news[at].as_deref().unwrap_or_default();
        let placed: Vec<usize> = (0..items.len()).filter(|at| news[*at].is_some()).collect();
        let mut replacements = vec![Replacement::Overtaken; items.len()];
        let mut left = placed.clone();
        let outcome = loop {
            let moves: Vec<_> =
                left.iter().map(|at| Replace { key: items[*at].key, old: old_entries[*at], new: new(*at) }).collect();
            let error = match index.replace(&moves) {
                Ok(replaced) => {
                    for (at, replaced) in left.iter().zip(replaced) {
                        replacements[*at] = if replaced { Replacement::Done } else { Replacement::Overtaken };
                    }
                    break Ok(());
                }
                Err(error) => error,
            };
            // Some items may have been replaced. Leave out items whose entries cannot be read.
            let count = left.len();
            left.retain(|at| {
                replacements[*at] = replacement_of(index, items[*at].key, new(*at));
                replacements[*at] == Replacement::Overtaken
            });
            if !is_damage(&error) || left.len() == count {
                break Err(error);
            }
        };
        // A damaged table holds an older entry than the new pointer, which would be in a log or in
        // a newer table.
        let is_named = |at: usize| match replacements[at] {
            Replacement::Done => true,
            Replacement::Overtaken => false,
            Replacement::Unknown => !matches!(index.is_buffered(items[at].key), Ok(false)),
        };
        let garbage = placed.iter().filter(|at| !is_named(**at));
        let garbage: Vec<_> = garbage.filter_map(|at| appended.pointers[*at]).collect();
        // The LSM names the moved records: they are counted, and may be collected.
        drop(appended);
        garbage.into_iter().for_each(|pointer| self.note_garbage(pointer));
        outcome.map(|()| replacements)
    }

    fn note_garbage(&self, pointer: Pointer) {
        lock(&self.space).mark_dead(pointer);
    }
}

/// Returns the bytes of these records, by segment.
fn live_by_segment(survivors: &[Survivor<'_>]) -> HashMap<u32, u64> {
    let mut live = HashMap::new();
    for survivor in survivors {
        *live.entry(survivor.old.segment).or_default() += u64::from(survivor.old.len);
    }
    live
}

/// Adds the records of a segment to `records`. Returns whether the rest is only padding.
fn find_records<'a>(bytes: &'a [u8], first: Location, taken: &Taken, records: &mut VictimRecords<'a>) -> bool {
    let known = |pointer: Pointer| match &taken.dead {
        Some(dead) if dead.binary_search(&pointer.at).is_ok() => Live::No,
        Some(_) => Live::Yes,
        None => Live::Unknown,
    };
    let whole = each_record(bytes, first, |pointer, record| {
        records.entry(record.key).or_default().push((pointer, record.value, known(pointer)));
    });
    if !whole {
        // Records after damage in the same block can be read, too.
        for_each_whole_record(bytes, first, |pointer, record| {
            let versions = records.entry(record.key).or_default();
            if versions.iter().all(|(there, ..)| *there != pointer) {
                versions.push((pointer, record.value, known(pointer)));
            }
        });
    }
    whole
}

/// Returns the LSM's entry of a key if `asked`, or if an entry of the key waits for its flush.
/// `None` if flushes have reported everything. Values that are not pointers cannot be moved.
///
/// # Errors
/// As [`FluidKv::peek_into`].
fn current_entry<'s>(index: &FluidKv, key: &[u8], asked: bool, stored: &'s mut Vec<u8>) -> Result<Option<Stored<'s>>> {
    if !asked && !index.is_buffered(key)? {
        return Ok(None);
    }
    if !index.peek_into(key, stored)? {
        return Ok(Some(Stored::Value(&[])));
    }
    Stored::read(stored).map(Some)
}

/// Returns whether the LSM has `new` for a key.
fn replacement_of(index: &FluidKv, key: &[u8], new: &[u8]) -> Replacement {
    let mut stored = Vec::new();
    match index.peek_into(key, &mut stored) {
        Ok(true) if stored == new => Replacement::Done,
        Ok(_) => Replacement::Overtaken,
        Err(_) => Replacement::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use lodestore_contract::Store;
    use lodestore_inplace::testing::Scratch;
    use lodestore_media::{Blocks, PoolOptions};

    use super::*;
    use crate::layout::{Home, Prefix, SegmentUse, encode_segment};
    use crate::space::LiveCount;
    use crate::{HashKv, HashKvOptions};

    /// Records that a pointer may name are found, and are moved before their segment is retired.
    #[test]
    fn records_after_damage_in_their_block_are_found_and_those_of_an_earlier_use_are_not() {
        let mut bytes = Blocks::new();
        bytes.extend_from_slice(&encode_segment(SegmentUse { segment: 7, generation: 3 }, Home::Group(Prefix::ALL)));
        let mut wanted = Vec::new();
        for index in 0..10u8 {
            let generation = if index < 6 { 3 } else { 2 };
            let at = bytes.len() as u32;
            let mut pointer = Pointer { segment: 7, generation, at, len: 0 };
            Record::append(&mut bytes, pointer.location(5), &[index], &[index; 100]);
            pointer.len = bytes.len() as u32 - at;
            wanted.extend((generation == 3).then_some(pointer));
        }
        // Flip a bit of the second record's value.
        bytes[wanted.remove(1).at as usize + 40] ^= 1;
        let taken = Taken { segment: 7, generation: 3, end: 0, dead: None, live_count: LiveCount::Guessed, live: 0 };
        let mut records = VictimRecords::new();
        assert!(!find_records(&bytes, taken.first_location(5), &taken, &mut records));
        let mut found: Vec<Pointer> = records.values().flatten().map(|(pointer, ..)| *pointer).collect();
        found.sort_unstable_by_key(|pointer| pointer.at);
        assert_eq!(found, wanted);
    }

    /// Regression: a segment whose survivors did not fit blocked its whole victim, and the same
    /// victim was read again and again.
    #[test]
    fn a_collection_without_space_frees_segments_without_survivors() {
        let scratch = Scratch::new();
        let mut options = HashKvOptions { segment_bytes: 16 << 10, ..HashKvOptions::default() };
        options.index.pool = PoolOptions { capacity: 16 << 20, ..PoolOptions::default() };
        options.index.workers = 0;
        let store = HashKv::create(&scratch.store(), &options).expect("create");
        let keys = 300u32;
        let get = |store: &HashKv, index: u32| store.get(&index.to_le_bytes()).expect("get");
        (0..keys).for_each(|index| store.put(&index.to_le_bytes(), &[index as u8; 1000]).expect("put"));
        store.settle().expect("settle");
        store.close().expect("close");
        drop(store);
        // Records that an open found are not reported dead one by one.
        let store = HashKv::open(&scratch.store(), &options).expect("open");
        let values = &store.running.values;
        let mut stored = Vec::new();
        assert!(store.running.index.peek_into(&0u32.to_le_bytes(), &mut stored).expect("peek"));
        let Ok(Stored::Pointer(kept)) = Stored::read(&stored) else { panic!("a pointer") };
        let in_kept = |index: u32| {
            let mut stored = Vec::new();
            let there = store.running.index.peek_into(&index.to_le_bytes(), &mut stored).expect("peek");
            there && matches!(Stored::read(&stored), Ok(Stored::Pointer(pointer)) if pointer.segment == kept.segment)
        };
        let staying: Vec<u32> = (0..keys).filter(|index| in_kept(*index)).collect();
        (0..keys).filter(|index| !staying.contains(index)).for_each(|index| {
            store.delete(&index.to_le_bytes()).expect("delete");
        });
        store.running.index.settle().expect("settle");
        // As if more deaths were reported than bytes counted there. No segment is free, and no
        // space for one.
        (0..50).for_each(|_| lock(&values.space).mark_dead(kept));
        let aside = lock(&values.space).take_for_release(0);
        let room = values.pool.room();
        assert!(values.pool.take_beside(room, 0));
        let counted = || lock(&values.space).live_of(kept.segment);
        assert_eq!((counted(), values.available()), (0, 0));
        let outcome = values.collect_best_victim(&Gain::ONE_SEGMENT);
        assert!(matches!(outcome, Err(Error::Full { .. })), "{outcome:?}");
        assert!(values.available() > 10, "{}", values.available());
        assert!(counted() > 10_000, "{} bytes: it is taken for nothing again", counted());
        lock(&values.space).mark_holes(aside);
        values.pool.give_beside(room);
        for index in 0..keys {
            let wanted = staying.contains(&index).then(|| vec![index as u8; 1000]);
            assert_eq!(get(&store, index), wanted, "key {index}");
        }
        store.settle().expect("settle");
        assert!(store.verify(&mut |_| ()).expect("verify").is_clean());
    }
}
