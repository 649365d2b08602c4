//! Appends to the value log. The persist order is in `values/mod.rs`.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use lodestore_contract::Result;
use lodestore_contract::threads::lock;
use lodestore_media::thread_slot;

use super::record::{Pointer, SEGMENT_HEADER_BYTES, encode_record, record_len};
use super::segment::ValueSegment;
use super::{Dead, OWN_SEGMENT_DIVISOR, ValueLog, WRITER_TAIL_COUNT};
use crate::wal::entry::POINTER_BYTES;

/// The kind of writer that appends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Appender {
    /// A write, which leaves the reserve alone.
    Writer,
    /// The collector, which frees space and may use the reserve.
    Collector,
}

/// Begins a segment with bytes between a least and a most number.
pub(crate) type BeginSegment<'b> = dyn Fn((u64, u64)) -> Result<Arc<ValueSegment>> + 'b;

impl ValueLog {
    /// Appends values and returns their pointers. Durable on return. The caller is an active
    /// writer. `begin` begins a segment with bytes between the least and the most.
    ///
    /// # Errors
    /// [`lodestore_contract::Error::Full`], [`lodestore_contract::Error::Poisoned`].
    pub(crate) fn append(
        &self,
        values: &[(&[u8], &[u8])],
        appender: Appender,
        segment_bytes: u64,
        begin: &BeginSegment<'_>,
    ) -> Result<Vec<[u8; POINTER_BYTES]>> {
        let number =
            if appender == Appender::Collector { WRITER_TAIL_COUNT } else { thread_slot() % WRITER_TAIL_COUNT };
        let mut tail = lock(&self.tails[number].0);
        let mut pointers = Vec::with_capacity(values.len());
        for (key, value) in values {
            match self.append_one(&mut tail, key, value, (segment_bytes, begin)) {
                Ok(pointer) => pointers.push(pointer.encode()),
                Err(error) => {
                    // The next owner of the tail fences only its own stores.
                    self.pool.fence();
                    values.iter().zip(&pointers).for_each(|((key, _), pointer)| self.forget(key, pointer));
                    return Err(error);
                }
            }
        }
        self.pool.fence_checked()?;
        Ok(pointers)
    }

    /// Stores one value, which is durable after the next fence.
    fn append_one(
        &self,
        tail: &mut Option<Arc<ValueSegment>>,
        key: &[u8],
        value: &[u8],
        (segment_bytes, begin): (u64, &BeginSegment<'_>),
    ) -> Result<Pointer> {
        let len = record_len(key.len(), value.len());
        if len > segment_bytes / OWN_SEGMENT_DIVISOR {
            let own = begin((SEGMENT_HEADER_BYTES + len, SEGMENT_HEADER_BYTES + len))?;
            let pointer = self.store(&own, key, value);
            own.sealed.store(true, Ordering::Release);
            return Ok(pointer);
        }
        let has_room = |segment: &&mut Arc<ValueSegment>| segment.written() + len <= segment.bytes;
        if let Some(segment) = tail.as_mut().filter(has_room) {
            return Ok(self.store(segment, key, value));
        }
        let fresh = begin((SEGMENT_HEADER_BYTES + len, segment_bytes))?;
        let pointer = self.store(&fresh, key, value);
        if let Some(full) = tail.replace(fresh) {
            full.sealed.store(true, Ordering::Release);
        }
        Ok(pointer)
    }

    /// Stores a record that fits, under the lock of its tail.
    fn store(&self, segment: &ValueSegment, key: &[u8], value: &[u8]) -> Pointer {
        let at = segment.written();
        let (head, pointer) = encode_record(segment.id, at, key, value);
        self.pool.store_and_flush(segment.at.add(at), &[&head, key, value]);
        segment.written.store(at + record_len(key.len(), value.len()), Ordering::Release);
        pointer
    }

    /// Counts a value that no entry will name.
    #[cold]
    pub(crate) fn forget(&self, key: &[u8], pointer: &[u8; POINTER_BYTES]) {
        let mut dead = Dead::default();
        dead.add(key, pointer);
        self.note_dead(&dead);
    }
}
