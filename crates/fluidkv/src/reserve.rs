//! Room that puts leave alone, so that a full store can always make room again: by deletes, flushes, compactions, collections.
//!
//! What must be free is known. A flush writes at most what its logs hold, and frees them; a compaction writes at most what its range holds, and
//! frees that. So if one of them works at a time (`migrate.rs`: *alone*), free space for the logs that wait and for the largest range brings
//! all of them to an end, and leaves as much free as there was. Hence
//!
//! > needed = logs that wait for a flush, and an eighth + the largest range, and an eighth + a chunk for each range + two new manifests + the record of a flush or a compaction + a segment of values
//!
//! Deletes, which make room, may use the eighth of the range, what is held for a collection, and what is for a new manifest: the old one goes on without.
//!
//! Invariants
//! 1. No log is begun, whoever writes it, unless the needed is free, that log counted, with no flush or compaction working in it: several threads that delete ahead
//!    of the flush wait for it, and do not take the room that it needs.
//! 2. A put's log or value leaves the *margin* beside that, a memtable's bytes. So deletes, whose logs take from the margin, find room in a store that is full for puts.
//! 3. What is held is taken and given under one lock, and a log is begun under it: nobody else gets the space of a piece between its giving and its use. Tables, which
//!    are what the needed is for, may take what is free without it.
//!
//! While regions can still be added, by the capacity and by what the medium has yet, the reserve is a number. At the end it is held as extents, so that free space that is in tiny pieces is not
//! taken for room: pieces as long as a table, or, where there are none as long, as a log segment, or down to a quarter of one, which count for less: shorter tables take more. Half
//! of it stays in *long* pieces, each of twice the longest value that is kept in a table, or as long as a log segment: for those values.
//! A table that is written alone is no longer than the longest of them (`output.rs`), and the manifest goes on from piece to piece (`manifest/chain.rs`). For a
//! segment of the value log that a collection fills one is held beside if it is larger, and where there is none as long, and the value log has little of the store, a shorter one and pieces.
//! Extents of a reserve are of no account to recovery: an open frees whatever there is of their kind, and takes its own.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use lodestore_contract::{Error, Result};
use lodestore_media::{ExtentKind, NvPtr, Pool};

use crate::inner::{MEMTABLES, Sizes, lock};
use crate::layout::{KIND_LOG, KIND_MANIFEST, KIND_RESERVE, KIND_VALUES};
use crate::segment::{SEGMENT_HEADER, SPARE};

/// Bytes of the shortest piece at least, and its least part of a piece.
const PIECE_MIN: u64 = 4 << 10;
/// Chunks of a piece at least: a table's last one may be nearly empty.
const PIECE_CHUNKS: u64 = 4;
const PIECE_PART: u64 = 4;
/// The part of the capacity that the value log has where what is held for its collections must be one extent.
const VALUES_PART: u64 = 8;
/// The part of what is held that is in long pieces.
const LONG_PART: u64 = 2;
/// The part of a shorter piece that does not count.
const SHORT_PART: u64 = 8;

/// What is held as extents.
#[derive(Default)]
struct Held {
    /// With their bytes. Of those that are long enough the shortest is given, else the one that was taken last: mostly it lies behind the one before,
    /// and what is left of it is joined with that.
    pieces: Vec<(NvPtr, u64)>,
    /// For the value log, with its bytes.
    values: Option<(NvPtr, u64)>,
}

impl Held {
    /// What the pieces count for, where one is of `piece` bytes.
    fn worth(&self, piece: u64) -> u64 {
        self.pieces.iter().map(|(_, bytes)| worth(*bytes, piece)).sum()
    }

    /// Bytes of what is held for the value log.
    fn value_bytes(&self) -> u64 {
        self.values.map_or(0, |(_, bytes)| bytes)
    }

    /// Bytes of the pieces of so many or more.
    fn longer(&self, long: u64) -> u64 {
        self.pieces.iter().map(|(_, bytes)| *bytes).filter(|bytes| *bytes >= long).sum()
    }

    /// Lets go of the piece that is best for an extent of so many bytes.
    fn pop(&mut self, bytes: u64) -> Option<NvPtr> {
        let long = self.pieces.iter().enumerate().filter(|(_, piece)| piece.1 >= bytes);
        let best = long.min_by_key(|(_, piece)| piece.1).map_or(self.pieces.len().checked_sub(1)?, |(index, _)| index);
        Some(self.pieces.remove(best).0)
    }
}

/// What a piece of so many bytes counts for, where one is of `piece` bytes.
fn worth(bytes: u64, piece: u64) -> u64 {
    if bytes < piece { bytes - bytes / SHORT_PART } else { bytes }
}

/// How much is to be held.
struct Wanted {
    /// In pieces.
    bytes: u64,
    values: u64,
    /// Whether what a collection takes must be there.
    collects: bool,
}

/// The reserve of one open store.
pub(crate) struct Reserve {
    piece: u64,
    /// Bytes of the longest piece: a table that is written there is as long as others.
    table_piece: u64,
    /// Bytes of the shortest piece.
    least_piece: u64,
    /// Bytes of the shortest that is long.
    long_piece: u64,
    /// Bytes that puts leave beside what is needed.
    margin: u64,
    /// Bytes of a segment of the value log.
    value_segment: u64,
    held: Mutex<Held>,
    /// Bytes of logs whose memtables wait for a flush, or are written to.
    logs: AtomicU64,
    /// Bytes of the largest range.
    largest: AtomicU64,
    /// Bytes that the shortest tables of a flush into every range take.
    shortest: AtomicU64,
    /// Bytes of the next manifest, and of the next record of this one.
    manifest: AtomicU64,
    record: AtomicU64,
    has_values: AtomicBool,
    /// Bytes of the value log's segments, when space was scarce last.
    value_bytes: AtomicU64,
}

impl Reserve {
    pub(crate) fn new(pool: &Pool, sizes: &Sizes) -> Self {
        let chunks = |bytes: u64| bytes.next_multiple_of(u64::from(pool.options().chunk_bytes));
        let least = PIECE_MIN.max(PIECE_CHUNKS * u64::from(pool.options().chunk_bytes));
        let piece = chunks(sizes.segment.min(sizes.table.table_bytes as u64).max(least));
        let least = chunks(PIECE_MIN.max(piece / PIECE_PART)).min(piece);
        // The longest item that is kept in a table must find room in one.
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

    /// Bytes of a table that is written where space is scarce: of the longest piece that is held.
    pub(crate) fn longest_piece(&self) -> u64 {
        lock(&self.held).pieces.iter().map(|(_, bytes)| *bytes).max().unwrap_or(self.piece)
    }

    /// The extents that are held now.
    pub(crate) fn held(&self) -> Vec<NvPtr> {
        let held = lock(&self.held);
        held.pieces.iter().chain(&held.values).map(|(at, _)| *at).collect()
    }

    /// Bytes that are held now.
    pub(crate) fn held_bytes(&self) -> u64 {
        let held = lock(&self.held);
        held.pieces.iter().chain(&held.values).map(|(_, bytes)| bytes).sum()
    }

    /// Takes note of the ranges: the bytes of the largest, and how many there are.
    pub(crate) fn note_ranges(&self, pool: &Pool, largest: u64, count: usize) {
        self.largest.store(largest, Ordering::Relaxed);
        self.shortest.store(count as u64 * u64::from(pool.options().chunk_bytes), Ordering::Relaxed);
    }

    /// Bytes of the largest range, a table's last chunk counted whole.
    pub(crate) fn largest_range(&self) -> u64 {
        self.largest.load(Ordering::Relaxed)
    }

    /// Takes note of what the manifest takes when it is written anew, and of what its next record may.
    pub(crate) fn note_manifest(&self, bytes: u64, record: u64) {
        self.manifest.store(bytes, Ordering::Relaxed);
        self.record.store(record, Ordering::Relaxed);
    }

    /// Takes note that there are segments of the value log.
    pub(crate) fn note_values(&self) {
        self.has_values.store(true, Ordering::Relaxed);
    }

    /// Takes note of what the segments of the value log take.
    pub(crate) fn note_value_bytes(&self, bytes: u64) {
        self.value_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Takes note of logs that were begun, or found by an open.
    pub(crate) fn note_logs(&self, bytes: u64) {
        self.logs.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Takes note that a memtable with logs of so many bytes was flushed.
    pub(crate) fn note_flushed(&self, bytes: u64) {
        self.logs.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// What must be free for what works behind, beside so many bytes in pieces. `collects`: for a collection, too.
    fn needed(&self, beside: u64, collects: bool) -> Wanted {
        let load = |bytes: &AtomicU64| bytes.load(Ordering::Relaxed);
        let (logs, largest) = (load(&self.logs), load(&self.largest));
        // A compaction writes no more than it reads; puts leave an eighth for what rounding takes, which deletes may use.
        let tables = logs + logs / 8 + largest + if collects { largest / 8 } else { 0 };
        let values = if self.has_values.load(Ordering::Relaxed) { self.value_segment } else { 0 };
        let own_values = if values > self.piece { values } else { 0 };
        let in_pieces = if collects { values - own_values } else { 0 };
        // Shorter tables, of which there are more where room is scarce, make it longer.
        let manifest = load(&self.record) + if collects { 2 * load(&self.manifest) } else { 0 };
        let bytes = tables + load(&self.shortest) + manifest + in_pieces + beside;
        Wanted { bytes, values: own_values, collects }
    }

    /// Bytes that must be free for what works behind.
    pub(crate) fn needed_bytes(&self) -> u64 {
        let wanted = self.needed(0, true);
        wanted.bytes + wanted.values
    }

    /// Whether there would be room for all if there were a range more. Until there is, the range that waits for its split grows, which is counted as it comes.
    pub(crate) fn has_room_for_a_range(&self, pool: &Pool) -> bool {
        let space = pool.space();
        let room = pool.room_on_medium() + space.free + self.held_bytes();
        room >= self.needed_bytes() + self.margin + u64::from(pool.options().chunk_bytes)
    }

    /// Bytes that must be there, so that puts go on while as many memtables wait as may, whose logs have `logs` bytes each: those, and what must be free then; and those that are free now.
    /// `buffers`: what runs will take before compactions are due. A segment of values more: one that looked before somebody took may take behind it.
    pub(crate) fn wants(&self, pool: &Pool, logs: u64, buffers: u64) -> (u64, u64) {
        let free = pool.space().free + self.held_bytes();
        let to_come = (MEMTABLES * logs).saturating_sub(self.logs.load(Ordering::Relaxed));
        let wanted =
            self.needed_bytes() + self.margin + self.piece + self.value_segment + buffers + 2 * to_come + to_come / 8;
        (wanted, free)
    }

    /// Whether what is needed is there beside what the regions have.
    pub(crate) fn can_grow(&self, pool: &Pool) -> bool {
        let wanted = self.needed_bytes() + self.margin + self.piece;
        pool.room_on_medium() >= wanted.max(pool.options().region_bytes)
    }

    /// Takes what is missing; whether nothing is. What there is no extent of values for is wanted in pieces.
    fn hold(&self, pool: &Pool, held: &mut Held, wanted: &mut Wanted) -> bool {
        let take = |bytes: u64| pool.allocator().alloc_extent(pool, bytes, KIND_RESERVE).ok().map(|at| (at, bytes));
        let free = |(at, _): (NvPtr, u64)| pool.allocator().free_extent(pool, at);
        // Deletes go on without it: they make room for it in the end.
        if wanted.collects {
            // The larger one first: pieces fit in between. A shorter one is of use until there is a longer.
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
            if missing > 0 && self.value_bytes.load(Ordering::Relaxed) > pool.options().capacity / VALUES_PART {
                // Pieces are too short for what is moved, and little comes free without.
                return false;
            }
            wanted.bytes += missing;
        }
        let (mut bytes, mut long) = (held.worth(self.piece), held.longer(self.long_piece));
        let mut piece = self.table_piece;
        let of_long = wanted.bytes / LONG_PART;
        while bytes < wanted.bytes || long < of_long {
            // No more than is missing, in whole pieces.
            let missing = wanted.bytes.saturating_sub(bytes).max(of_long.saturating_sub(long));
            piece = piece.min(missing.next_multiple_of(self.piece));
            if let Some(taken) = take(piece) {
                bytes += worth(piece, self.piece);
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

    /// Takes what is missing, and gives back what is too much; whether puts may go on.
    pub(crate) fn refill(&self, pool: &Pool) -> bool {
        if self.can_grow(pool) {
            return true;
        }
        let mut held = lock(&self.held);
        let mut wanted = self.needed(self.margin, true);
        let whole = self.hold(pool, &mut held, &mut wanted);
        let mut bytes = held.worth(self.piece);
        // The shorter ones first.
        while let Some((index, piece)) = held.pieces.iter().enumerate().min_by_key(|(_, piece)| piece.1)
            && bytes - worth(piece.1, self.piece) >= wanted.bytes + self.piece
        {
            bytes -= worth(piece.1, self.piece);
            let (at, _) = held.pieces.swap_remove(index);
            pool.allocator().free_extent(pool, at);
        }
        whole
    }

    /// Gives up something of use for an extent of this kind and length; whether there was any.
    fn give(&self, pool: &Pool, held: &mut Held, (bytes, kind): (u64, ExtentKind)) -> bool {
        let own = if kind == KIND_VALUES { held.values.take() } else { None };
        let Some(at) = own.map(|(at, _)| at).or_else(|| held.pop(bytes)) else { return false };
        pool.allocator().free_extent(pool, at);
        true
    }

    /// An extent, out of the reserve if need be: for what works behind.
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
                Err(Error::Full { .. }) if self.give(pool, &mut held, (bytes, kind)) => {}
                other => return other,
            }
        }
    }

    /// An extent for the manifest, of `most` bytes, or as many of them as there are together, not below `least`; and how many. Out of the reserve if need be.
    ///
    /// # Errors
    /// [`Error::Full`].
    pub(crate) fn alloc_for_manifest(&self, pool: &Pool, (least, most): (u64, u64)) -> Result<(NvPtr, u64)> {
        let free = |bytes| pool.allocator().alloc_extent(pool, bytes, KIND_MANIFEST);
        let whole = |(at, bytes): (NvPtr, u64)| (at, bytes.next_multiple_of(u64::from(pool.options().chunk_bytes)));
        match as_many(pool, (least.max(most.min(self.piece)), most), free) {
            Err(Error::Full { .. }) => {}
            other => return other.map(whole),
        }
        let (least, most) = (least.min(self.least_piece), most.min(self.piece));
        as_many(pool, (least, most), |bytes| self.alloc(pool, bytes, KIND_MANIFEST)).map(whole)
    }

    /// A log for deletes, or for what makes room as they do: of `most` bytes, or as many of them as there are together, not below `least`;
    /// and how many. It leaves what is needed.
    ///
    /// # Errors
    /// [`Error::Full`].
    pub(crate) fn alloc_log_for_delete(&self, pool: &Pool, sizes: (u64, u64)) -> Result<(NvPtr, u64)> {
        as_many(pool, sizes, |bytes| self.log_of(pool, bytes))
    }

    /// A segment of values for a collection, of so many bytes as for [`Self::alloc_log_for_delete`], out of the reserve if need be.
    ///
    /// # Errors
    /// [`Error::Full`].
    pub(crate) fn alloc_for_collection(&self, pool: &Pool, sizes: (u64, u64)) -> Result<(NvPtr, u64)> {
        as_many(pool, sizes, |bytes| self.alloc(pool, bytes, KIND_VALUES))
    }

    fn log_of(&self, pool: &Pool, bytes: u64) -> Result<NvPtr> {
        let log = || self.take(pool, bytes, KIND_LOG);
        if self.can_grow(pool) {
            return log();
        }
        let mut held = lock(&self.held);
        // A collection has taken what is held for it when it writes its pointers.
        let needed = |more: u64| self.needed(bytes + bytes / 8 + more, false);
        if !self.hold(pool, &mut held, &mut needed(0)) {
            return Err(self.full(pool, bytes));
        }
        match log() {
            Err(Error::Full { .. }) if self.hold(pool, &mut held, &mut needed(bytes.next_multiple_of(self.piece))) => {
                self.give(pool, &mut held, (bytes, KIND_LOG));
                log()
            }
            other => other,
        }
    }

    fn full(&self, pool: &Pool, needed: u64) -> Error {
        Error::Full { needed, capacity: pool.options().capacity }
    }

    /// A segment of values for a put, of so many bytes as for [`Self::alloc_log_for_delete`], which leaves the reserve whole.
    ///
    /// # Errors
    /// [`Error::Full`].
    pub(crate) fn alloc_values_for_put(&self, pool: &Pool, sizes: (u64, u64)) -> Result<(NvPtr, u64)> {
        as_many(pool, sizes, |bytes| self.alloc_for_put(pool, bytes, KIND_VALUES))
    }

    /// A log, or a segment of values, for a put, which leaves the reserve whole.
    ///
    /// # Errors
    /// [`Error::Full`].
    pub(crate) fn alloc_for_put(&self, pool: &Pool, bytes: u64, kind: ExtentKind) -> Result<NvPtr> {
        if self.can_grow(pool) {
            return self.take(pool, bytes, kind);
        }
        let mut held = lock(&self.held);
        let logs = if kind == KIND_LOG { bytes } else { 0 };
        let mut wanted = self.needed(self.margin + logs + logs / 8, true);
        if self.hold(pool, &mut held, &mut wanted) { self.take(pool, bytes, kind) } else { Err(self.full(pool, bytes)) }
    }

    /// An extent of what is free beside the reserve; that of a log counts from now on.
    fn take(&self, pool: &Pool, bytes: u64, kind: ExtentKind) -> Result<NvPtr> {
        if kind != KIND_LOG {
            return pool.allocator().alloc_extent(pool, bytes, kind);
        }
        // Logs are found by their kind and their headers (`recover.rs`).
        let at = pool.allocator().alloc_extent_wiped(pool, bytes, kind, (SEGMENT_HEADER as u64, SPARE as u64))?;
        self.note_logs(bytes);
        Ok(at)
    }
}

/// What `alloc` finds of `most` bytes, or of half as many, and so on, not below `least`; and how many.
fn as_many(pool: &Pool, (least, most): (u64, u64), alloc: impl Fn(u64) -> Result<NvPtr>) -> Result<(NvPtr, u64)> {
    assert!(least <= most, "at least {least} bytes of {most}");
    let step = u64::from(pool.options().chunk_bytes);
    let least = least.next_multiple_of(step);
    let mut bytes = most.max(least);
    loop {
        match alloc(bytes) {
            Err(Error::Full { .. }) if bytes > least => bytes = (bytes / 2).max(least).next_multiple_of(step),
            // Not the rest of the last chunk: nobody will write to it.
            other => return other.map(|at| (at, bytes.min(most))),
        }
    }
}
