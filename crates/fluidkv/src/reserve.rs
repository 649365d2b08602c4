//! Room that only deletes, flushes and compactions may take: in a full store they are what makes room again. It does not hold against several threads that
//! delete ahead of the flush (ARCHITECTURE.md): their logs may take all of it.
//!
//! While regions can still be added the reserve is a number. At the end it is extents, each large enough for a table, so that free space
//! that is in small pieces cannot stop a flush. Puts take nothing while it is not whole. Extents of a reserve are
//! of no account to recovery: an open frees whatever there is of their kind, and takes its own.

use std::sync::Mutex;

use lodestore_contract::{Error, Result};
use lodestore_media::{ExtentKind, NvPtr, Pool};

use crate::inner::lock;
use crate::layout::KIND_RESERVE;

/// The reserve of one open store.
pub(crate) struct Reserve {
    /// Bytes of an extent of it.
    piece: u64,
    pieces: usize,
    held: Mutex<Vec<NvPtr>>,
}

impl Reserve {
    /// One of about `bytes`, in pieces for which anything up to `largest` bytes has room.
    pub(crate) fn new(bytes: u64, largest: u64) -> Self {
        let piece = largest.next_power_of_two();
        Self { piece, pieces: (bytes / piece).max(2) as usize, held: Mutex::new(Vec::new()) }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.piece * self.pieces as u64
    }

    /// The pieces that are held now.
    pub(crate) fn held(&self) -> Vec<NvPtr> {
        lock(&self.held).clone()
    }

    /// Bytes that are held now.
    pub(crate) fn held_bytes(&self) -> u64 {
        lock(&self.held).len() as u64 * self.piece
    }

    fn can_grow(&self, pool: &Pool) -> bool {
        let space = pool.space();
        space.capacity.saturating_sub(space.size) >= self.bytes().max(pool.options().region_bytes)
    }

    /// Takes what is missing; whether it is whole.
    pub(crate) fn refill(&self, pool: &Pool) -> bool {
        if self.can_grow(pool) {
            return true;
        }
        let mut held = lock(&self.held);
        while held.len() < self.pieces {
            match pool.allocator().alloc_extent(pool, self.piece, KIND_RESERVE) {
                Ok(at) => held.push(at),
                Err(_) => return false,
            }
        }
        true
    }

    /// Frees a piece; whether there was one.
    pub(crate) fn give(&self, pool: &Pool) -> bool {
        let Some(at) = lock(&self.held).pop() else { return false };
        pool.allocator().free_extent(pool, at);
        true
    }

    /// An extent, out of the reserve if need be: for what works behind, and for deletes.
    ///
    /// # Errors
    /// [`Error::Full`].
    pub(crate) fn alloc(&self, pool: &Pool, bytes: u64, kind: ExtentKind) -> Result<NvPtr> {
        loop {
            match pool.allocator().alloc_extent(pool, bytes, kind) {
                Err(Error::Full { .. }) if self.give(pool) => {}
                other => return other,
            }
        }
    }

    /// As [`Self::alloc`], of `most` bytes, or as many of them as there are together, not below `least`; and how many. What is free is looked through
    /// before a piece is given.
    ///
    /// # Errors
    /// [`Error::Full`].
    pub(crate) fn alloc_some(&self, pool: &Pool, (least, most): (u64, u64), kind: ExtentKind) -> Result<(NvPtr, u64)> {
        let step = u64::from(pool.options().chunk_bytes);
        let mut bytes = most;
        loop {
            match pool.allocator().alloc_extent(pool, bytes, kind) {
                Ok(at) => return Ok((at, bytes)),
                Err(Error::Full { .. }) if bytes > least => bytes = (bytes / 2).max(least).next_multiple_of(step),
                Err(Error::Full { .. }) if self.give(pool) => bytes = most,
                Err(error) => return Err(error),
            }
        }
    }

    /// An extent for a put, which leaves the reserve whole.
    ///
    /// # Errors
    /// [`Error::Full`].
    pub(crate) fn alloc_for_put(&self, pool: &Pool, bytes: u64, kind: ExtentKind) -> Result<NvPtr> {
        if self.refill(pool) {
            pool.allocator().alloc_extent(pool, bytes, kind)
        } else {
            Err(Error::Full { needed: bytes, capacity: pool.options().capacity })
        }
    }
}
