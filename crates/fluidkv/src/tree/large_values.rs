//! Large values of a tree: which operations have them, and the segments of the value log.

use std::sync::Arc;

use lodestore_contract::threads::lock;
use lodestore_contract::{Error, Result};
use lodestore_media::NvPtr;

use crate::memtable::{Memtable, Records};
use crate::tree::Tree;
use crate::values::placement::{Placement, logged_len};
use crate::values::record::{SEGMENT_HEADER_BYTES, encode_segment};
use crate::values::segment::ValueSegment;
use crate::values::writer::Appender;
use crate::values::{Dead, ValueExtent, ValueUse};
use crate::version::manifest::Edit;
use crate::wal::entry::{Op, POINTER_BYTES, Payload};

impl Tree {
    /// Returns whether a value of this operation goes to the value log.
    #[inline]
    pub(crate) fn is_large(&self, op: &Op<'_>) -> bool {
        Placement::of(op, self.sizes.value_threshold) == Placement::Log
    }

    /// Returns the bytes that an operation adds to a log of entries.
    #[inline]
    pub(crate) fn logged_len(&self, op: &Op<'_>) -> usize {
        logged_len(op, self.sizes.value_threshold)
    }

    /// Calls `with` for the operations in their form for a log: values of at least `from` bytes are
    /// first moved to the value log. The caller holds the stripes.
    pub(crate) fn with_small<T>(
        &self,
        ops: &[Op<'_>],
        from: usize,
        with: impl FnOnce(&[Op<'_>]) -> Result<T>,
    ) -> Result<T> {
        let is_large = |op: &Op<'_>| Placement::of(op, from) == Placement::Log;
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
            large.iter().zip(&pointers).for_each(|((key, _), pointer)| self.values.forget(key, pointer));
        })
    }

    /// Appends values to the value log and returns their pointers. Durable on return. The caller is
    /// an active writer.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::Poisoned`].
    pub(crate) fn append_values(
        &self,
        values: &[(&[u8], &[u8])],
        appender: Appender,
    ) -> Result<Vec<[u8; POINTER_BYTES]>> {
        let segment_bytes = self.sizes.value_segment;
        self.values.append(values, appender, segment_bytes, &|sizes| self.begin_segment(sizes, appender))
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
        self.pool.store_and_flush(at, &[&encode_segment(id, bytes)]);
        self.pool.fence();
        self.pool.check()?;
        let edit = Edit::Values { begun: vec![ValueExtent { id: next, at, bytes }], ended: Vec::new() };
        publisher.apply(&self.pool, &edit, Vec::new())?;
        let used = ValueUse { at, bytes, written: SEGMENT_HEADER_BYTES, dead: 0, sealed: false };
        let segment = Arc::new(ValueSegment::new(id, &used));
        self.values.add(&segment);
        Ok(segment)
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
