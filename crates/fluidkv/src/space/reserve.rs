//! Space reserve: space that puts leave free, so that deletes, flushes, compactions and garbage
//! collections can always free space in a full store.
//!
//! The required free space is known. A flush writes at most the bytes of its logs, and frees the
//! logs. A compaction writes at most the bytes of its range, and frees the old tables. If only one
//! of them runs at a time (`background/mod.rs`: *alone*), free space for the waiting logs and the
//! largest range suffices for all of them. Afterwards as much is free as before. Hence
//!
//! > needed = logs that wait for a flush, and an eighth + the largest range, and an eighth + a
//! > chunk for each range + two new manifests + the record of a flush or a compaction + a segment
//! > of values
//!
//! Deletes free space, and may use the eighth of the range, the share of a collection, and the
//! share of a new manifest: the old manifest goes on without it.
//!
//! Invariants
//! 1. A log is begun only if `needed` is free, with that log counted and no flush or compaction
//!    working in that space. Threads that delete faster than the flush wait for it and do not use
//!    its space.
//! 2. The log or value of a put also leaves the *margin* free: the bytes of one memtable. Logs of
//!    deletes use the margin, so deletes fit in a store that is full for puts.
//! 3. Reserve extents are acquired and freed under one lock, and a log is begun under it. Between
//!    the release of a piece and its use, no other thread gets the space. Tables, which `needed` is
//!    for, may use space that is free outside the reserve.
//!
//! While regions can still be added, by the capacity and by the space left on the medium, the
//! reserve is a number. After that it is held as extents, so that free space in tiny pieces does
//! not count. A piece is as long as a table, or else a log segment, or down to a quarter of a
//! segment. Shorter pieces count for less, since shorter tables have more overhead. Half of the
//! reserve stays in *long* pieces, for long values: each has twice the longest value kept in a
//! table, or the length of a log segment. A table written *alone* is no longer than the longest
//! piece (`background/table_writer.rs`), and the manifest continues from piece to piece
//! (`version/manifest/chain.rs`). The reserve also holds an extent for the value segment that a
//! collection fills, if that is larger than a piece. If no extent is as long, and the value log has
//! a small share of the store, the reserve holds a shorter extent and pieces. Recovery ignores
//! reserve extents: an open frees all extents of their kind and acquires its own.

mod held;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use lodestore_contract::threads::lock;
use lodestore_contract::{Error, Result};
use lodestore_media::{ExtentKind, NvPtr, Pool};

use self::held::{Held, counted_bytes};
use crate::layout::{KIND_LOG, KIND_MANIFEST, KIND_RESERVE, KIND_VALUES, LOG_HEADER_BYTES, LOG_SPARE_BYTES};
use crate::space::sizes::{MEMTABLES_MAX, Sizes};

/// Minimum bytes of a piece; `PIECE_DIVISOR` is its minimum share of a whole piece.
const PIECE_MIN: u64 = 4 << 10;
/// Minimum number of chunks in a piece: the last chunk of a table may be nearly empty.
const PIECE_CHUNKS: u64 = 4;
const PIECE_DIVISOR: u64 = 4;
/// Above this share of the capacity in the value log, its collections need one whole extent.
const VALUES_DIVISOR: u64 = 8;
/// Share of the reserve that is held in long pieces.
const LONG_PIECES_DIVISOR: u64 = 2;

/// Returns the bytes that a flush of logs needs: their bytes, and an eighth for rounding.
fn flush_bytes(logs: u64) -> u64 {
    logs + logs / 8
}

/// How much the reserve is to hold.
struct Needed {
    /// Bytes in pieces.
    bytes: u64,
    values: u64,
    /// Whether the space for a garbage collection is required.
    collects: bool,
}

/// Bytes that must be free for work to continue, and the free bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SpaceBalance {
    pub(crate) required: u64,
    pub(crate) free: u64,
}

/// The space reserve of one open store.
pub(crate) struct Reserve {
    piece: u64,
    /// Bytes of the longest piece: a table written there is as long as other tables.
    table_piece: u64,
    /// Bytes of the shortest piece.
    least_piece: u64,
    /// Minimum bytes of a long piece.
    long_piece: u64,
    /// Bytes that puts leave free in addition to `needed`.
    margin: u64,
    value_segment: u64,
    held: Mutex<Held>,
    /// Bytes of logs whose memtables are active or wait for a flush.
    logs: AtomicU64,
    /// Bytes of the largest range.
    largest: AtomicU64,
    /// Bytes that the shortest tables of a flush into every range need.
    shortest: AtomicU64,
    /// Bytes of the next full manifest, and of the next record of the current one.
    manifest: AtomicU64,
    record: AtomicU64,
    has_values: AtomicBool,
    /// Bytes of the value log's segments when space was last scarce.
    value_bytes: AtomicU64,
}

impl Reserve {
    pub(crate) fn new(pool: &Pool, sizes: &Sizes) -> Self {
        let chunks = |bytes: u64| bytes.next_multiple_of(u64::from(pool.options().chunk_bytes));
        let least = PIECE_MIN.max(PIECE_CHUNKS * u64::from(pool.options().chunk_bytes));
        let piece = chunks(sizes.segment.min(sizes.table.table_bytes as u64).max(least));
        let least = chunks(PIECE_MIN.max(piece / PIECE_DIVISOR)).min(piece);
        // The longest item that is kept in a table must fit in one piece.
        let long = chunks((sizes.value_threshold as u64).saturating_mul(2).min(piece)).min(piece).max(least);
        Self {
            piece,
            table_piece: chunks(sizes.table.table_bytes as u64).max(piece),
            least_piece: least,
            long_piece: long,
            margin: sizes.memtable,
            value_segment: chunks(sizes.value_segment),
            held: Mutex::default(),
            logs: AtomicU64::new(0),
            largest: AtomicU64::new(0),
            shortest: AtomicU64::new(0),
            manifest: AtomicU64::new(0),
            record: AtomicU64::new(0),
            has_values: AtomicBool::new(false),
            value_bytes: AtomicU64::new(0),
        }
    }

    /// Returns the bytes of a table written while space is scarce: the bytes of the longest piece
    /// held.
    pub(crate) fn longest_piece(&self) -> u64 {
        lock(&self.held).pieces.iter().map(|(_, bytes)| *bytes).max().unwrap_or(self.piece)
    }

    pub(crate) fn held(&self) -> Vec<NvPtr> {
        let held = lock(&self.held);
        held.pieces.iter().chain(&held.values).map(|(at, _)| *at).collect()
    }

    pub(crate) fn held_bytes(&self) -> u64 {
        let held = lock(&self.held);
        held.pieces.iter().chain(&held.values).map(|(_, bytes)| bytes).sum()
    }

    /// Records the bytes of the largest range, and the number of ranges.
    pub(crate) fn note_ranges(&self, pool: &Pool, largest: u64, count: usize) {
        self.largest.store(largest, Ordering::Relaxed);
        self.shortest.store(count as u64 * u64::from(pool.options().chunk_bytes), Ordering::Relaxed);
    }

    /// Returns the bytes of the largest range, with the last chunk of each table counted whole.
    pub(crate) fn largest_range(&self) -> u64 {
        self.largest.load(Ordering::Relaxed)
    }

    /// Records the bytes of a full rewrite of the manifest, and the maximum bytes of its next
    /// record.
    pub(crate) fn note_manifest(&self, bytes: u64, record: u64) {
        self.manifest.store(bytes, Ordering::Relaxed);
        self.record.store(record, Ordering::Relaxed);
    }

    pub(crate) fn note_values(&self) {
        self.has_values.store(true, Ordering::Relaxed);
    }

    /// Records the bytes of the value log's segments.
    pub(crate) fn note_value_bytes(&self, bytes: u64) {
        self.value_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Records logs that were begun, or that an open found.
    pub(crate) fn note_logs(&self, bytes: u64) {
        self.logs.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Records the flush of a memtable with `bytes` of logs.
    pub(crate) fn note_flushed(&self, bytes: u64) {
        self.logs.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Returns the space that must be free for background work, in addition to these bytes in
    /// pieces. `collects` includes the space for a garbage collection.
    fn needed(&self, extra: u64, collects: bool) -> Needed {
        let load = |bytes: &AtomicU64| bytes.load(Ordering::Relaxed);
        let (logs, largest) = (load(&self.logs), load(&self.largest));
        // A compaction writes no more than it reads. Puts leave an eighth for rounding, which
        // deletes may use.
        let tables = flush_bytes(logs) + largest + if collects { largest / 8 } else { 0 };
        let values = if self.has_values.load(Ordering::Relaxed) { self.value_segment } else { 0 };
        let own_values = if values > self.piece { values } else { 0 };
        let in_pieces = if collects { values - own_values } else { 0 };
        // Where space is scarce, tables are shorter and more, which makes the manifest longer.
        let manifest = load(&self.record) + if collects { 2 * load(&self.manifest) } else { 0 };
        let bytes = tables + load(&self.shortest) + manifest + in_pieces + extra;
        Needed { bytes, values: own_values, collects }
    }

    /// Returns the bytes that must be free for background work.
    pub(crate) fn needed_bytes(&self) -> u64 {
        let wanted = self.needed(0, true);
        wanted.bytes + wanted.values
    }

    /// Returns whether one more range would leave enough free space. Otherwise the range that waits
    /// for its split grows, and its bytes are counted as they come.
    pub(crate) fn has_space_for_range(&self, pool: &Pool) -> bool {
        let space = pool.space();
        let room = pool.room_on_medium() + space.free + self.held_bytes();
        room >= self.needed_bytes() + self.margin + u64::from(pool.options().chunk_bytes)
    }

    /// Returns the free bytes, and the bytes that must be free for writes to continue
    /// with the maximum number of waiting memtables, each with `logs` bytes. `buffers`: bytes of
    /// runs before compactions are due. Includes one extra value segment, for a thread that checked
    /// before another thread allocated.
    pub(crate) fn balance(&self, pool: &Pool, logs: u64, buffers: u64) -> SpaceBalance {
        let free = pool.space().free + self.held_bytes();
        let to_come = (MEMTABLES_MAX * logs).saturating_sub(self.logs.load(Ordering::Relaxed));
        let required =
            self.needed_bytes() + self.margin + self.piece + self.value_segment + buffers + 2 * to_come + to_come / 8;
        SpaceBalance { required, free }
    }

    /// Returns whether the medium has the required space, and `more` bytes, in addition to the
    /// current regions.
    pub(crate) fn can_grow(&self, pool: &Pool, more: u64) -> bool {
        let wanted = self.needed_bytes() + self.margin + self.piece + more;
        pool.room_on_medium() >= wanted.max(pool.options().region_bytes)
    }

    /// Acquires missing extents and returns whether the reserve is complete. Bytes missing from the
    /// extent of values are acquired in pieces.
    fn acquire_missing(&self, pool: &Pool, held: &mut Held, wanted: &mut Needed) -> bool {
        let take = |bytes: u64| pool.allocator().alloc_extent(pool, bytes, KIND_RESERVE).ok().map(|at| (at, bytes));
        let free = |(at, _): (NvPtr, u64)| pool.allocator().free_extent(pool, at);
        // Deletes continue without it: in the end they free the space for it.
        if wanted.collects {
            // The larger extent first: pieces fit in between. A shorter extent is useful until a
            // longer one is free.
            let mut values = wanted.values;
            while values > held.value_bytes() {
                if let Some(longer) = take(values) {
                    held.values.replace(longer).map(free);
                } else if values > self.piece {
                    values = (values / 2).next_multiple_of(self.piece);
                } else {
                    break;
                }
            }
            let missing = wanted.values.saturating_sub(held.value_bytes());
            if missing > 0 && self.value_bytes.load(Ordering::Relaxed) > pool.options().capacity / VALUES_DIVISOR {
                // Pieces are too short for the values that a collection moves, and little space is
                // freed without it.
                return false;
            }
            wanted.bytes += missing;
        }
        let (mut bytes, mut long) = (held.counted_bytes(self.piece), held.longer(self.long_piece));
        let mut piece = self.table_piece;
        let of_long = wanted.bytes / LONG_PIECES_DIVISOR;
        while bytes < wanted.bytes || long < of_long {
            // Acquires no more than is missing, in whole pieces.
            let missing = wanted.bytes.saturating_sub(bytes).max(of_long.saturating_sub(long));
            piece = piece.min(missing.next_multiple_of(self.piece));
            if let Some(taken) = take(piece) {
                bytes += counted_bytes(piece, self.piece);
                long += if piece >= self.long_piece { piece } else { 0 };
                held.pieces.push(taken);
            } else if let Some(values) = held.values.take_if(|_| !wanted.collects) {
                free(values);
            } else if piece > self.long_piece || (piece > self.least_piece && long >= of_long) {
                let longer = [self.piece, self.long_piece];
                let least = longer.into_iter().find(|least| piece > *least).unwrap_or(self.least_piece);
                piece = (piece / 2).max(least);
            } else {
                return false;
            }
        }
        true
    }

    /// Acquires missing extents and frees surplus ones. Returns whether puts may continue.
    pub(crate) fn refill(&self, pool: &Pool) -> bool {
        if self.can_grow(pool, 0) {
            return true;
        }
        let mut held = lock(&self.held);
        let mut wanted = self.needed(self.margin, true);
        let whole = self.acquire_missing(pool, &mut held, &mut wanted);
        self.free_surplus(pool, &mut held, wanted.bytes);
        whole
    }

    /// Frees the pieces beyond `wanted` bytes, the shorter ones first.
    fn free_surplus(&self, pool: &Pool, held: &mut Held, wanted: u64) {
        let mut bytes = held.counted_bytes(self.piece);
        while let Some((index, piece)) = held.pieces.iter().enumerate().min_by_key(|(_, piece)| piece.1)
            && bytes - counted_bytes(piece.1, self.piece) >= wanted + self.piece
        {
            bytes -= counted_bytes(piece.1, self.piece);
            let (at, _) = held.pieces.swap_remove(index);
            pool.allocator().free_extent(pool, at);
        }
    }

    /// Frees the pieces that were acquired for a log that did not fit, so that shorter logs fit.
    fn free_after_refusal(&self, pool: &Pool, held: &mut Held) {
        let wanted = if self.can_grow(pool, 0) { 0 } else { self.needed(self.margin, true).bytes };
        self.free_surplus(pool, held, wanted);
    }

    /// Frees an extent that suits one of this kind and length. Returns whether there was any.
    fn free_suitable(&self, pool: &Pool, held: &mut Held, (bytes, kind): (u64, ExtentKind)) -> bool {
        let own = if kind == KIND_VALUES { held.values.take() } else { None };
        let Some(at) = own.map(|(at, _)| at).or_else(|| held.pop(bytes)) else { return false };
        pool.allocator().free_extent(pool, at);
        true
    }

    /// Allocates an extent for background work, from the reserve if necessary.
    ///
    /// # Errors
    /// [`Error::Full`].
    pub(crate) fn alloc(&self, pool: &Pool, bytes: u64, kind: ExtentKind) -> Result<NvPtr> {
        match pool.allocator().alloc_extent(pool, bytes, kind) {
            Err(Error::Full { .. }) => {}
            other => return other,
        }
        let mut held = lock(&self.held);
        loop {
            match pool.allocator().alloc_extent(pool, bytes, kind) {
                Err(Error::Full { .. }) if self.free_suitable(pool, &mut held, (bytes, kind)) => {}
                other => return other,
            }
        }
    }

    /// Allocates an extent for the manifest, from the reserve if necessary. Returns it with its
    /// bytes: the most that one free extent has, between `least` and `most`.
    ///
    /// # Errors
    /// [`Error::Full`].
    pub(crate) fn alloc_for_manifest(&self, pool: &Pool, (least, most): (u64, u64)) -> Result<(NvPtr, u64)> {
        let free = |bytes| pool.allocator().alloc_extent(pool, bytes, KIND_MANIFEST);
        let whole = |(at, bytes): (NvPtr, u64)| (at, bytes.next_multiple_of(u64::from(pool.options().chunk_bytes)));
        match alloc_at_most(pool, (least.max(most.min(self.piece)), most), free) {
            Err(Error::Full { .. }) => {}
            other => return other.map(whole),
        }
        let (least, most) = (least.min(self.least_piece), most.min(self.piece));
        alloc_at_most(pool, (least, most), |bytes| self.alloc(pool, bytes, KIND_MANIFEST)).map(whole)
    }

    /// Allocates a log for deletes and other writes that free space, and leaves `needed` free.
    /// Returns it with its bytes: the most that one free extent has within `sizes` (least, most).
    ///
    /// # Errors
    /// [`Error::Full`].
    pub(crate) fn alloc_log_for_delete(&self, pool: &Pool, sizes: (u64, u64)) -> Result<(NvPtr, u64)> {
        alloc_at_most(pool, sizes, |bytes| self.alloc_log(pool, bytes))
    }

    /// Allocates a value segment for a garbage collection, from the reserve if necessary. `sizes`
    /// is as for [`Self::alloc_log_for_delete`].
    ///
    /// # Errors
    /// [`Error::Full`].
    pub(crate) fn alloc_for_collection(&self, pool: &Pool, sizes: (u64, u64)) -> Result<(NvPtr, u64)> {
        alloc_at_most(pool, sizes, |bytes| self.alloc(pool, bytes, KIND_VALUES))
    }

    fn alloc_log(&self, pool: &Pool, bytes: u64) -> Result<NvPtr> {
        // Held from the check until the log is counted.
        let mut held = lock(&self.held);
        if self.can_grow(pool, bytes + flush_bytes(bytes)) {
            return self.alloc_outside(pool, bytes, KIND_LOG);
        }
        let outcome = self.alloc_log_beyond_reserve(pool, &mut held, bytes);
        if matches!(outcome, Err(Error::Full { .. })) {
            self.free_after_refusal(pool, &mut held);
        }
        outcome
    }

    /// Allocates a log if the reserve is whole without it, from its surplus if necessary.
    fn alloc_log_beyond_reserve(&self, pool: &Pool, held: &mut Held, bytes: u64) -> Result<NvPtr> {
        let log = || self.alloc_outside(pool, bytes, KIND_LOG);
        // A collection already uses the space held for it when it writes its pointers.
        let needed = |more: u64| self.needed(flush_bytes(bytes) + more, false);
        if !self.acquire_missing(pool, held, &mut needed(0)) {
            return Err(self.full(pool, bytes));
        }
        match log() {
            Err(Error::Full { .. })
                if self.acquire_missing(pool, held, &mut needed(bytes.next_multiple_of(self.piece))) =>
            {
                self.free_suitable(pool, held, (bytes, KIND_LOG));
                log()
            }
            other => other,
        }
    }

    fn full(&self, pool: &Pool, needed: u64) -> Error {
        Error::Full { needed, capacity: pool.options().capacity }
    }

    /// Allocates a value segment for a put, and leaves the reserve whole. `sizes` is as for
    /// [`Self::alloc_log_for_delete`].
    ///
    /// # Errors
    /// [`Error::Full`].
    pub(crate) fn alloc_values_for_put(&self, pool: &Pool, sizes: (u64, u64)) -> Result<(NvPtr, u64)> {
        alloc_at_most(pool, sizes, |bytes| self.alloc_for_put(pool, bytes, KIND_VALUES))
    }

    /// Allocates a log or a value segment for a put, and leaves the reserve whole.
    ///
    /// # Errors
    /// [`Error::Full`].
    pub(crate) fn alloc_for_put(&self, pool: &Pool, bytes: u64, kind: ExtentKind) -> Result<NvPtr> {
        let flush = if kind == KIND_LOG { flush_bytes(bytes) } else { 0 };
        // Held from the check until the log is counted.
        let mut held = lock(&self.held);
        // The extent itself may be in the space that the medium still has.
        if self.can_grow(pool, bytes + flush) {
            return self.alloc_outside(pool, bytes, kind);
        }
        let mut wanted = self.needed(self.margin + flush, true);
        let is_whole = self.acquire_missing(pool, &mut held, &mut wanted);
        let outcome = if is_whole { self.alloc_outside(pool, bytes, kind) } else { Err(self.full(pool, bytes)) };
        if matches!(outcome, Err(Error::Full { .. })) {
            self.free_after_refusal(pool, &mut held);
        }
        outcome
    }

    /// Allocates an extent outside the reserve. A log is counted from here.
    fn alloc_outside(&self, pool: &Pool, bytes: u64, kind: ExtentKind) -> Result<NvPtr> {
        if kind != KIND_LOG {
            return pool.allocator().alloc_extent(pool, bytes, kind);
        }
        // Recovery finds logs by their kind and their headers (`db/recover.rs`).
        let at = pool.allocator().alloc_extent_wiped(
            pool,
            bytes,
            kind,
            (LOG_HEADER_BYTES as u64, LOG_SPARE_BYTES as u64),
        )?;
        self.note_logs(bytes);
        Ok(at)
    }
}

/// Calls `alloc` with `most` bytes, then half as many, and so on down to `least`. Returns the
/// extent with its bytes.
fn alloc_at_most(pool: &Pool, (least, most): (u64, u64), alloc: impl Fn(u64) -> Result<NvPtr>) -> Result<(NvPtr, u64)> {
    assert!(least <= most, "at least {least} bytes of {most}");
    let step = u64::from(pool.options().chunk_bytes);
    let least = least.next_multiple_of(step);
    let mut bytes = most.max(least);
    loop {
        match alloc(bytes) {
            Err(Error::Full { .. }) if bytes > least => bytes = (bytes / 2).max(least).next_multiple_of(step),
            // Leaves out the rest of the last chunk, which is never written.
            other => return other.map(|at| (at, bytes.min(most))),
        }
    }
}

#[cfg(test)]
mod tests;
