//! Garbage collection of the value log: moves the live values of a segment to the collector's own
//! segment, and retires the victim.
//!
//! The rule (`background/mod.rs` applies it): a segment without live values is due at once. Another
//! segment is due while garbage exceeds `value-garbage` of the sealed segments; the victim is the
//! segment with the largest share of garbage.
//!
//! Persist order: the moved values, **fence**; one log record with the new pointers, written like a
//! batch of ordinary writes, **fence**; and so on to the segment's last record. If all threads
//! share a log, a sync of that log follows, for concurrent deletes. Then the manifest record that
//! removes the segment, **fence**; then a view whose readers do not know the segment. Its space is
//! free when the last reader of an older view is done. A crash before the manifest record leaves
//! the segment, with fewer live values.
//!
//! Invariants
//! 1. Only a sealed segment is collected, after `quiesce_writes`: every reference that it will ever
//!    have is in the index.
//! 2. A value moves only while its key's stripe is held and the newest version of the key is
//!    exactly this pointer. A newer version wins.
//! 3. A segment is retired only if every record of it was examined: the walk reached `written`. A
//!    segment with a record that cannot be found, or a damaged live value, stays, and is not tried
//!    again.
//! 4. Counts only select victims: no value is removed because a count says it is dead.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use lodestore_contract::threads::lock;
use lodestore_contract::{Error, Expiry, Result};
use lodestore_media::crc32c;

use crate::background::scheduler::Background;
use crate::planted;
use crate::sst::{Slot, hash};
use crate::tree::counts::Counts;
use crate::values::Dead;
use crate::values::record::{Record, SEGMENT_HEADER_BYTES, name_of};
use crate::values::segment::ValueSegment;
use crate::values::writer::Appender;
use crate::version::known::Known;
use crate::version::manifest::Edit;
use crate::version::publish::publish;
use crate::version::view::View;
use crate::wal::entry::{Op, POINTER_BYTES, Payload};

/// Values that move together, and their approximate bytes.
const MOVED_GROUP: (usize, u64) = (64, 1 << 20);
/// Minimum share of garbage for a collection when a write did not fit.
const SCARCE_GARBAGE_DIVISOR: u64 = 16;

/// The reference to a record by the newest version of its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Reference {
    expiry: Option<u64>,
    expired: bool,
}

impl Background {
    /// Returns the best victim for a collection, if one is due, with its urgency; `scarce` accepts
    /// victims with little garbage.
    pub(crate) fn garbage_segment(&self, scarce: bool) -> Option<(f64, Arc<ValueSegment>)> {
        if !self.values.is_used() {
            return None;
        }
        let all = self.values.all();
        let (mut bytes, mut garbage) = (0, 0);
        let mut best: Option<(f64, &Arc<ValueSegment>)> = None;
        for segment in all.iter().filter(|segment| segment.is_closed()) {
            let usable = segment.bytes.saturating_sub(SEGMENT_HEADER_BYTES).max(1);
            bytes += usable;
            garbage += segment.garbage();
            let share = if segment.is_dead() { 1.0 } else { segment.garbage() as f64 / usable as f64 };
            if best.is_none_or(|(most, _)| share > most) {
                best = Some((share, segment));
            }
        }
        let (share, segment) = best?;
        // A dead segment comes first: each of its keys is looked up, but nothing is moved.
        if segment.is_dead() {
            return Some((f64::MAX, Arc::clone(segment)));
        }
        let over = garbage as f64 * 100.0 / bytes.max(1) as f64 / f64::from(self.options.value_garbage.max(1));
        let worth = over > 1.0 || scarce && share >= 1.0 / SCARCE_GARBAGE_DIVISOR as f64;
        worth.then(|| (over.max(1.0), Arc::clone(segment)))
    }

    /// Returns how the newest version of `key` names the record of this pointer, if it does.
    fn find_reference(&self, view: &View, key: &[u8], pointer: &[u8; POINTER_BYTES]) -> Result<Option<Reference>> {
        let slot = Slot::new();
        let known = view.find(key, hash(key), u64::MAX, self.lookup_options(), &slot)?;
        Ok(match known {
            Some(known @ Known::Pointer(found, expiry)) if found == pointer => {
                Some(Reference { expiry, expired: !known.is_live() })
            }
            // A newer large value is excluded: the two would replace each other forever.
            Some(Known::Value(..) | Known::Deleted) if self.pool.has_fault(planted::VALUE_MOVED_BLINDLY) => {
                Some(Reference { expiry: None, expired: false })
            }
            _ => None,
        })
    }

    /// Collects a sealed segment; one at a time. The caller is no active writer and holds nothing.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::Poisoned`], [`Error::Corrupt`]: the segment stays, and moved
    /// values remain moved.
    pub(crate) fn collect(&self, segment: &Arc<ValueSegment>) -> Result<()> {
        self.quiesce_writes()?;
        // A planted fault that ends the segment in the manifest only: its space is still read here.
        let early = self.pool.has_fault(planted::VALUE_ENDED_EARLY).then(|| self.view.load_full());
        if early.is_some() {
            self.retire(segment)?;
        }
        let mut records = segment.records(&self.pool);
        let (mut group, mut bytes) = (Vec::new(), 0);
        for record in records.by_ref() {
            let pointer = record.pointer.encode();
            let known = self.find_reference(&self.view.load(), record.key, &pointer)?;
            let Some(reference) = known else { continue };
            if !reference.expired && crc32c(&[record.value]) != record.pointer.crc {
                segment.damaged.store(true, Ordering::Release);
                let place = format!("{}, byte {}", name_of(segment.id), record.pointer.offset());
                return Err(Error::corrupt(place, "the checksum of a live value differs; the segment is kept"));
            }
            group.push(record);
            bytes += record.len();
            if group.len() >= MOVED_GROUP.0 || bytes >= MOVED_GROUP.1 {
                self.move_values(segment, &group)?;
                group.clear();
                bytes = 0;
            }
        }
        if records.at != segment.written() {
            segment.damaged.store(true, Ordering::Release);
            let place = format!("{}, byte {}", name_of(segment.id), records.at);
            return Err(Error::corrupt(place, "a record is incomplete or damaged; the segment is kept"));
        }
        if !group.is_empty() {
            self.move_values(segment, &group)?;
        }
        if early.is_none() {
            // The writes that made values garbage are in the index. They become durable before the
            // values are freed.
            self.log.as_ref().map_or(Ok(()), |log| self.commit_all_pending(log))?;
            self.retire(segment)?;
        }
        Counts::add(&self.values.collected, 1);
        Ok(())
    }

    /// Moves those records that the newest versions of their keys still name. An expired record
    /// becomes a delete.
    fn move_values(&self, segment: &ValueSegment, group: &[Record<'_>]) -> Result<()> {
        let values: Vec<_> = group.iter().map(|record| (record.key, record.value)).collect();
        let writing = self.order.writing();
        let moved = self.append_values(&values, Appender::Collector)?;
        if self.pool.has_fault(planted::VALUE_FREED_EARLY) {
            for record in group {
                let from = segment.at.add(record.pointer.value_offset(record.key.len()));
                self.pool.zero(from, record.value.len());
                self.pool.flush(from, record.value.len());
            }
            self.pool.fence();
        }
        let hashes = || group.iter().map(|record| hash(record.key));
        let stripes = self.order.lock_all(hashes());
        let published = self.log.as_ref().map_or(Ok(()), |log| self.wait_published(log, hashes()));
        let view = self.view.load();
        let outcome = published.and_then(|()| self.redirect_pointers(&view, group, &moved));
        let full = view.full_generation();
        drop((stripes, view, writing));
        if let Some(generation) = full {
            self.rotate_or(generation, || ());
        }
        let all = || group.iter().zip(&moved).for_each(|(record, moved)| self.values.forget(record.key, moved));
        outcome.inspect_err(|_| all())
    }

    /// Writes the entries that point to the copies of these records. The caller holds all stripes.
    fn redirect_pointers(&self, view: &View, group: &[Record<'_>], moved: &[[u8; POINTER_BYTES]]) -> Result<()> {
        let (mut ops, mut left, mut bytes) = (Vec::with_capacity(group.len()), Dead::default(), 0);
        for (record, copy) in group.iter().zip(moved) {
            let reference = self.find_reference(view, record.key, &record.pointer.encode())?;
            if reference.is_none_or(|reference| reference.expired) {
                left.add(record.key, copy);
            }
            let Some(Reference { expiry, expired }) = reference else { continue };
            ops.push(if expired {
                Op { key: record.key, payload: Payload::Tombstone, expiry: None }
            } else {
                Op { key: record.key, payload: Payload::Pointer(copy), expiry: expiry.map(Expiry::at_millis) }
            });
            bytes += record.len();
        }
        if !ops.is_empty() {
            let number = self.write_moved(&view.active, &ops)?;
            if let (Some(log), Some(number)) = (&self.log, number) {
                self.wait_committed(log, number)?;
            }
        }
        self.values.note_dead(&left);
        Counts::add(&self.values.moved_bytes, bytes);
        Ok(())
    }

    /// Removes a segment from the manifest, then from the view of new readers.
    fn retire(&self, segment: &ValueSegment) -> Result<()> {
        let mut publisher = lock(&self.publisher);
        let edit = Edit::Values { begun: Vec::new(), ended: vec![segment.id.into()] };
        self.view.load().active.log.flush_ends();
        publisher.apply(&self.pool, &edit, Vec::new())?;
        segment.ended.store(true, Ordering::Release);
        publisher.hold = publisher.hold.followed_without(vec![segment.id]);
        let view = self.view.load_full();
        publish(&self.view, &mut publisher, Arc::clone(&view.active), view.frozen.clone());
        Ok(())
    }

    /// Returns the bytes of a segment's records that the newest version of their key names. For
    /// `verify`.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    pub(crate) fn live_bytes(&self, view: &View, segment: &ValueSegment) -> Result<u64> {
        segment.records(&self.pool).try_fold(0, |sum, record| {
            let live = self.find_reference(view, record.key, &record.pointer.encode())?.is_some();
            Ok(sum + if live { record.len() } else { 0 })
        })
    }
}
