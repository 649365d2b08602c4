//! The paper's HiKV_wal, for comparison only (Figure 10): a log record is persisted before each
//! write, and a put needs three persists. Nothing reads the log: ordered writes need none.

use std::sync::Mutex;

use lodestore_contract::Result;
use lodestore_contract::threads::lock;
use lodestore_media::{ExtentKind, MAX_SLOTS, NvPtr, Pool, thread_slot};

use crate::hash::Signature;

/// Extents of the log.
pub(crate) const KIND_LOG: ExtentKind = ExtentKind(19);
/// Bytes of a log record: a cache line.
const RECORD_BYTES: u64 = 64;
/// Lines of the log: one for each possible thread slot, and one for the threads that share a slot.
const LOG_LINES: u64 = MAX_SLOTS as u64 + 1;

/// A log with a line for each thread.
pub(crate) struct Wal {
    at: NvPtr,
    /// Held by the writer of the shared line.
    shared: Mutex<()>,
}

impl Wal {
    /// Bytes of the log.
    pub(crate) const BYTES: u64 = RECORD_BYTES * LOG_LINES;

    pub(crate) fn new(pool: &Pool) -> Result<Self> {
        Ok(Self { at: pool.allocator().alloc_extent(pool, Self::BYTES, KIND_LOG)?, shared: Mutex::new(()) })
    }

    /// Logs a write and makes the log durable.
    pub(crate) fn log(&self, pool: &Pool, sig: Signature, position: NvPtr) {
        let slot = thread_slot();
        let _guard = (slot == MAX_SLOTS).then(|| lock(&self.shared));
        let line = self.at.add(slot as u64 * RECORD_BYTES);
        let mut record = [0; RECORD_BYTES as usize];
        record[..8].copy_from_slice(&sig.0.to_le_bytes());
        record[8..16].copy_from_slice(&position.raw().to_le_bytes());
        pool.store_and_flush(line, &[&record]);
        pool.fence();
    }

    pub(crate) fn free(&self, pool: &Pool) {
        pool.allocator().free_extent(pool, self.at);
    }
}
