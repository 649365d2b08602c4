//! Group-based collection (HashKV, ATC 2018, section 3.3).
//!
//! A victim's segments are read once, each from its beginning to its end. Which of their records are dead, flushes have told (`space.rs`): the LSM is not asked what is live. The paper asks it
//! nothing either, since the last version of a key in its group is the newest one; that resurrects a key that was deleted, or whose value has become too small to be separated,
//! unless markers of these are written into the group as well. Here no marker is needed: the LSM is the truth, and a copy becomes the key's value only where the LSM still has the pointer that was
//! copied. Of segments that an open has found the LSM is asked, once for each key.
//!
//! Persist order: copies in segments of their own, **sync**; pointers, in records of the LSM's log that each change those keys alone whose newest version is still the one that was
//! copied, **durable**; then the old segments are let go. A crash leaves copies that nothing points to, or old segments to which nothing points: the next open counts neither.

use std::collections::{HashMap, HashSet};

use lodestore_contract::{Error, Result};
use lodestore_fluidkv::{FluidKv, Replace};
use lodestore_media::Mutant;

use crate::append::{Appended, Item};
use crate::layout::{Pointer, Stored, each_record};
use crate::space::{Gain, Outcome, Victim};
use crate::values::{Counts, Values, lock};

/// What flushes have told of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Live {
    No,
    /// Or overwritten since the last flush.
    Yes,
    Unknown,
}

/// The records of a victim, by key.
type Places<'a> = HashMap<&'a [u8], Vec<(Pointer, &'a [u8], Live)>>;

/// A live record of a victim.
struct Survivor<'a> {
    item: Item<'a>,
    old: Pointer,
    /// What the LSM holds of it.
    stored: Box<[u8]>,
}

impl Values {
    /// Collects what is best collected, where it brings as much as that; whether there was any.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Poisoned`], [`Error::Full`] where the LSM has no room for the pointers; nothing is lost by it.
    pub(crate) fn collect(&self, gain: &Gain) -> Result<bool> {
        let Some(index) = self.index() else { return Ok(false) };
        if self.release() >= gain.segments as usize {
            return Ok(true);
        }
        let _turn = lock(&self.collecting);
        let spare = self.spare();
        let victim = {
            let mut space = lock(&self.space);
            if self.sizes.circular { space.choose_oldest(spare) } else { space.choose(gain, spare) }
        };
        let Some(victim) = victim else { return Ok(false) };
        let mut done = Outcome::default();
        let outcome = self.collect_victim(&index, &victim, &mut done);
        lock(&self.space).collected(&victim, &done, self.moment());
        self.release();
        outcome.map(|()| !done.done.is_empty())
    }

    fn collect_victim(&self, index: &FluidKv, victim: &Victim, outcome: &mut Outcome) -> Result<()> {
        {
            let mut space = lock(&self.space);
            if let Some(group) = space.should_split(victim, self.sizes.group_bytes, self.sizes.groups_max) {
                space.split(group);
                Counts::add(&self.counts.splits, 1);
            }
        }
        // Together: one after the other each would wait for the disk by itself.
        for taken in &victim.segments {
            self.file.will_read(self.offset(taken.segment), u64::from(taken.end));
        }
        let mut read = Vec::with_capacity(victim.segments.len());
        for taken in &victim.segments {
            read.push((taken, self.segment_bytes(taken.segment, taken.end)?));
            Counts::add(&self.counts.scanned_bytes, u64::from(taken.end));
        }
        let mut places = Places::new();
        let mut damaged = HashSet::new();
        for (taken, bytes) in &read {
            let whole = each_record(bytes, (taken.segment, taken.generation), |pointer, record| {
                let known = match &taken.dead {
                    Some(dead) if dead.binary_search(&pointer.at).is_ok() => Live::No,
                    Some(_) => Live::Yes,
                    None => Live::Unknown,
                };
                places.entry(record.key).or_default().push((pointer, record.value, known));
            });
            if !whole {
                damaged.insert(taken.segment);
            }
        }
        let survivors = self.survivors(index, &places)?;
        if self.file.mutant(Mutant::CollectedFreedEarly) {
            let done = victim.segments.iter().map(|taken| taken.segment).collect();
            let early = Outcome { done, ..Outcome::default() };
            lock(&self.space).collected(victim, &early, self.moment());
            self.release();
            return self.move_all(index, &survivors);
        }
        self.move_all(index, &survivors)?;
        // What cannot be read there may be live.
        let known = |segment: u32| -> u64 {
            survivors.iter().filter(|one| one.old.segment == segment).map(|one| u64::from(one.old.len)).sum()
        };
        let space = lock(&self.space);
        let is_done = |segment: &u32| !damaged.contains(segment) || known(*segment) >= space.live_of(*segment);
        let segments = victim.segments.iter().map(|taken| taken.segment);
        (outcome.done, outcome.damaged) = segments.partition(is_done);
        Counts::add(&self.counts.collections, 1);
        Ok(())
    }

    /// Those of these records that the LSM points to.
    fn survivors<'a>(&self, index: &FluidKv, places: &Places<'a>) -> Result<Vec<Survivor<'a>>> {
        let (mut survivors, mut stored) = (Vec::new(), Vec::new());
        for (key, versions) in places {
            // One version: nobody has updated it since the group was collected before, or since it came.
            let cold = self.sizes.hotness && versions.len() == 1;
            let mut survives = |old: Pointer, value: &'a [u8], stored: Box<[u8]>| {
                survivors.push(Survivor { item: Item { cold, ..Item::new(key, value) }, old, stored });
            };
            if self.file.mutant(Mutant::MovedUnasked)
                && let Some((old, value, _)) = versions.last()
                && index.peek_into(key, &mut stored)?
            {
                survives(*old, value, stored.as_slice().into());
                continue;
            }
            let mut live = versions.iter().filter(|(.., known)| *known != Live::No).peekable();
            if live.peek().is_none() {
                continue;
            }
            if versions.iter().any(|(.., known)| *known == Live::Unknown) || index.is_buffered(key)? {
                if index.peek_into(key, &mut stored)?
                    && let Stored::Pointer(now) = Stored::read(&stored)?
                    && let Some((old, value, _)) = versions.iter().find(|(pointer, ..)| *pointer == now)
                {
                    survives(*old, value, now.stored());
                }
                continue;
            }
            live.for_each(|(old, value, _)| survives(*old, value, old.stored()));
        }
        // In the order in which they stand, so that a run is the same each time.
        survivors.sort_unstable_by_key(|survivor| (survivor.old.segment, survivor.old.at));
        Ok(survivors)
    }

    /// Writes survivors anew and turns their pointers.
    fn move_all(&self, index: &FluidKv, survivors: &[Survivor<'_>]) -> Result<()> {
        let items: Vec<_> = survivors.iter().map(|survivor| survivor.item).collect();
        let appended = self.append(&items, 0, Mutant::CopiesNotSynced)?;
        if appended.pointers.iter().any(Option::is_none) {
            // What was placed is garbage, of segments that will be collected.
            let garbage: Vec<_> = appended.pointers.iter().flatten().copied().collect();
            drop(appended);
            garbage.into_iter().for_each(|pointer| self.forget(pointer));
            let needed = survivors.iter().map(|survivor| u64::from(survivor.old.len)).sum();
            return Err(Error::Full { needed, capacity: self.pool.options().capacity });
        }
        let olds: Vec<&[u8]> = survivors.iter().map(|survivor| &*survivor.stored).collect();
        let turned = self.turn(index, &items, &olds, appended)?;
        let moved = || survivors.iter().zip(&turned).filter(|(_, turned)| **turned).map(|(survivor, _)| survivor);
        let bytes = |cold: bool| -> u64 {
            moved().filter(|one| one.item.cold || !cold).map(|one| u64::from(one.old.len)).sum()
        };
        Counts::add(&self.counts.moved, moved().count() as u64);
        Counts::add(&self.counts.moved_bytes, bytes(false));
        Counts::add(&self.counts.cooled, bytes(true));
        Ok(())
    }

    /// Puts the pointers to what was appended in the places of `olds`, which the LSM holds for these items, where it still does; which were put. The copies of others are garbage.
    ///
    /// # Errors
    /// As [`FluidKv::replace`]. Some may have been put then: all count as live until they are collected again.
    pub(crate) fn turn(
        &self,
        index: &FluidKv,
        items: &[Item<'_>],
        olds: &[&[u8]],
        appended: Appended<'_>,
    ) -> Result<Vec<bool>> {
        let news: Vec<_> = appended.pointers.iter().map(|pointer| pointer.map(Pointer::stored)).collect();
        let with_place = || news.iter().enumerate().filter_map(|(index, new)| Some((index, new.as_deref()?)));
        let moves: Vec<_> = with_place().map(|(at, new)| Replace { key: items[at].key, old: olds[at], new }).collect();
        let replaced = index.replace(&moves)?;
        let mut turned = vec![false; items.len()];
        let mut garbage = Vec::new();
        for ((at, _), replaced) in with_place().zip(replaced) {
            turned[at] = replaced;
            garbage.extend(appended.pointers[at].filter(|_| !replaced));
        }
        // The LSM names what was moved: it counts, and may be collected.
        drop(appended);
        garbage.into_iter().for_each(|pointer| self.forget(pointer));
        Ok(turned)
    }

    fn forget(&self, pointer: Pointer) {
        lock(&self.space).died(pointer);
    }
}
