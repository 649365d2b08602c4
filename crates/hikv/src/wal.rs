//! The paper's HiKV_wal, for comparison only (Figure 10): a log record is persisted before each write, so that a put
//! takes three persists. Nothing reads the log: ordered writes need none.

use lodestore_contract::Result;
use lodestore_media::{ExtentKind, NvPtr, Pool, thread_slot};

use crate::hash::Signature;

/// Extents of the log.
pub(crate) const KIND_LOG: ExtentKind = ExtentKind(19);
/// Bytes of a log record: a cache line.
const RECORD: u64 = 64;
/// Lines: one for each thread slot there can be.
const LINES: u64 = lodestore_media::MAX_SLOTS as u64;

/// One line for each thread.
pub(crate) struct Wal {
    at: NvPtr,
}

impl Wal {
    pub(crate) fn new(pool: &Pool) -> Result<Self> {
        Ok(Self { at: pool.allocator().alloc_extent(pool, RECORD * LINES, KIND_LOG)? })
    }

    /// Logs a write and makes the log durable.
    pub(crate) fn log(&self, pool: &Pool, sig: Signature, position: NvPtr) {
        let line = self.at.add(thread_slot() as u64 % LINES * RECORD);
        let mut record = [0; RECORD as usize];
        record[..8].copy_from_slice(&sig.0.to_le_bytes());
        record[8..16].copy_from_slice(&position.raw().to_le_bytes());
        pool.store_durable(line, &[&record]);
        pool.fence();
    }

    pub(crate) fn free(&self, pool: &Pool) {
        pool.allocator().free_extent(pool, self.at);
    }
}
