//! Writes of large values: appends to the value log (`value_log`), then an entry with the pointer.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use lodestore_contract::{Error, Result};
use lodestore_media::{Mutant, NvPtr, thread_slot};

use crate::locks::lock;
use crate::memtable::{Memtable, Records};
use crate::tree::Tree;
use crate::values::record::{Pointer, SEGMENT_HEADER_BYTES, encode_record, encode_segment, record_len};
use crate::values::segment::ValueSegment;
use crate::values::{Dead, OWN_SEGMENT_DIVISOR, ValueExtent, ValueUse, WRITER_TAIL_COUNT};
use crate::version::manifest::Edit;
use crate::wal::entry::{Op, POINTER_BYTES, Payload};

/// The kind of writer that appends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Appender {
    /// A write, which leaves the reserve alone.
    Writer,
    /// The collector, which frees space and may use the reserve.
    Collector,
}

impl Tree {
    /// Returns whether a value of this operation goes to the value log.
    #[inline]
    pub(crate) fn is_large(&self, op: &Op<'_>) -> bool {
        op.payload.bytes().len() >= self.sizes.value_threshold
    }

    /// Returns the bytes that an operation adds to a log of entries.
    #[inline]
    pub(crate) fn logged_len(&self, op: &Op<'_>) -> usize {
        if self.is_large(op) { op.entry_len() - op.payload.bytes().len() + POINTER_BYTES } else { op.entry_len() }
    }

    /// Calls `with` for the operations in their form for a log: values of at least `from` bytes are
    /// first moved to the value log. The caller holds the stripes.
    pub(crate) fn with_small<T>(
        &self,
        ops: &[Op<'_>],
        from: usize,
        with: impl FnOnce(&[Op<'_>]) -> Result<T>,
    ) -> Result<T> {
        let is_large = |op: &Op<'_>| op.payload.bytes().len() >= from;
        if !ops.iter().any(is_large) {
            return with(ops);
        }
        let large: Vec<_> = ops.iter().filter(|op| is_large(op)).map(|op| (op.key, op.payload.bytes())).collect();
        let pointers = self.append_values(&large, Appender::Writer)?;
        let mut next = pointers.iter();
        let mut small = Vec::with_capacity(ops.len());
        for op in ops {
            let pointer = if is_large(op) { next.next() } else { None };
            small.push(pointer.map_or(*op, |pointer| Op {
                key: op.key,
                payload: Payload::Pointer(pointer),
                expiry: op.expiry,
            }));
        }
        with(&small).inspect_err(|_| {
            large.iter().zip(&pointers).for_each(|((key, _), pointer)| self.forget_value(key, pointer));
        })
    }

    /// Appends values and returns their pointers. Durable on return. The caller is an active
    /// writer.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::Poisoned`].
    pub(crate) fn append_values(
        &self,
        values: &[(&[u8], &[u8])],
        appender: Appender,
    ) -> Result<Vec<[u8; POINTER_BYTES]>> {
        let number =
            if appender == Appender::Collector { WRITER_TAIL_COUNT } else { thread_slot() % WRITER_TAIL_COUNT };
        let mut tail = lock(&self.values.tails[number].0);
        let mut pointers = Vec::with_capacity(values.len());
        for (key, value) in values {
            match self.append_value(&mut tail, key, value, appender) {
                Ok(pointer) => pointers.push(pointer.encode()),
                Err(error) => {
                    // The next owner of the tail fences only its own stores.
                    self.pool.fence();
                    values.iter().zip(&pointers).for_each(|((key, _), pointer)| self.forget_value(key, pointer));
                    return Err(error);
                }
            }
        }
        if !self.pool.mutant(Mutant::ValueNotFenced) {
            self.pool.fence();
        }
        self.pool.check()?;
        Ok(pointers)
    }

    /// Stores one value, which is durable after the next fence.
    fn append_value(
        &self,
        tail: &mut Option<Arc<ValueSegment>>,
        key: &[u8],
        value: &[u8],
        appender: Appender,
    ) -> Result<Pointer> {
        let len = record_len(key.len(), value.len());
        if len > self.sizes.value_segment / OWN_SEGMENT_DIVISOR {
            let own = self.begin_segment((SEGMENT_HEADER_BYTES + len, SEGMENT_HEADER_BYTES + len), appender)?;
            let pointer = self.store_value(&own, key, value);
            own.sealed.store(true, Ordering::Release);
            return Ok(pointer);
        }
        let has_room = |segment: &&mut Arc<ValueSegment>| segment.written() + len <= segment.bytes;
        if let Some(segment) = tail.as_mut().filter(has_room) {
            return Ok(self.store_value(segment, key, value));
        }
        let fresh = self.begin_segment((SEGMENT_HEADER_BYTES + len, self.sizes.value_segment), appender)?;
        let pointer = self.store_value(&fresh, key, value);
        if let Some(full) = tail.replace(fresh) {
            full.sealed.store(true, Ordering::Release);
        }
        Ok(pointer)
    }

    /// Stores a record that fits, under the lock of its tail.
    fn store_value(&self, segment: &ValueSegment, key: &[u8], value: &[u8]) -> Pointer {
        let at = segment.written();
        let (head, pointer) = encode_record(segment.id, at, key, value);
        self.pool.store_durable(segment.at.add(at), &[&head, key, value]);
        segment.written.store(at + record_len(key.len(), value.len()), Ordering::Release);
        pointer
    }

    /// Allocates a segment and adds it to the manifest. Its size is the most that one free extent
    /// has, between `least` and `most`.
    #[cold]
    fn begin_segment(&self, (least, most): (u64, u64), appender: Appender) -> Result<Arc<ValueSegment>> {
        self.reserve.note_values();
        // A log that ends before this segment was begun is damaged: its hint proves that.
        self.view.load().active.log.flush_ends();
        let (at, bytes) = match appender {
            Appender::Writer => self.reserve.alloc_values_for_put(&self.pool, (least, most))?,
            Appender::Collector => self.reserve.alloc_for_collection(&self.pool, (least, most))?,
        };
        self.record_segment(at, bytes).inspect_err(|error| {
            if !matches!(error, Error::Poisoned { .. }) {
                self.pool.allocator().free_extent(&self.pool, at);
            }
        })
    }

    fn record_segment(&self, at: NvPtr, bytes: u64) -> Result<Arc<ValueSegment>> {
        let mut publisher = lock(&self.publisher);
        let next = publisher.state.next_value();
        let Ok(id) = u32::try_from(next) else {
            return Err(Error::Full { needed: bytes, capacity: self.pool.options().capacity });
        };
        self.pool.store_durable(at, &[&encode_segment(id, bytes)]);
        self.pool.fence();
        self.pool.check()?;
        let edit = Edit::Values { begun: vec![ValueExtent { id: next, at, bytes }], ended: Vec::new() };
        publisher.apply(&self.pool, &edit, Vec::new())?;
        let used = ValueUse { at, bytes, written: SEGMENT_HEADER_BYTES, dead: 0, sealed: false };
        let segment = Arc::new(ValueSegment::new(id, &used));
        self.values.add(&segment);
        Ok(segment)
    }

    /// Counts a value that no entry will name.
    #[cold]
    pub(crate) fn forget_value(&self, key: &[u8], pointer: &[u8; POINTER_BYTES]) {
        let mut dead = Dead::default();
        dead.add(key, pointer);
        self.values.note_dead(&dead);
    }

    /// Counts the entry that another one replaced in a memtable.
    #[inline]
    pub(crate) fn note_replaced(&self, memtable: &Memtable, old: Option<u64>) {
        if self.values.is_used()
            && let Some(old) = old
        {
            self.count_replaced(memtable, old);
        }
    }

    fn count_replaced(&self, memtable: &Memtable, old: u64) {
        let mut dead = Dead::default();
        if let Ok(entry) = Records(&self.pool).entry(old) {
            dead.add_entry(&entry);
            memtable.note_dead(&dead);
            self.values.note_dead(&dead);
        }
    }
}
