//! Recovery, from the state after a stop to an open store: the manifest's state, its tables, and
//! the logs that were not flushed.
//!
//! Logs are found by the kind of their extents, not by a list. The extent table names an extent
//! before its header is written, and when the header's bytes are zero. Logs of flushed generations
//! are freed later. The others are replayed by several threads into one memtable, each entry by its
//! sequence number, in any order. The memtable is frozen, and flushed after the open. The maximum
//! number of memtables bounds the amount of log.
//!
//! The manifest names the segments of the value log. Segments that it does not know to be sealed
//! are read on from the last known end, by the headers of their records. Nothing more is written to
//! any of them.
//!
//! If the open is not settled, a killed process may have stored bytes that it never flushed.
//! Everything that the open builds on is flushed again first, the manifest before all else.
//!
//! Recovery has two modes. Strict mode rejects the store if a durable record is missing. Salvage
//! keeps whole records and counts the rest. If the manifest is damaged, or the extent table has
//! lost extents that the store needs, a salvaged store can be read and exported
//! (`db/salvage.rs`). Nothing is written to it, since a write could overwrite other data.
//!
//! The end of each log segment with a successor is known, since the successor has it. The end of
//! the last segment is found by a search, which may have to skip bytes (`wal/segment.rs`). An
//! unverified log end is reported and counted but does not fail the open: it is almost always the
//! true end.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use lodestore_contract::threads::{lock, start_helpers};
use lodestore_contract::{Error, RecoveryState, Result};
use lodestore_media::{ExtentKind, NvPtr, Pool};

use crate::db::salvage;
use crate::layout::{self, KIND_LOG, KIND_MANIFEST, KIND_RESERVE, KIND_TABLE, KIND_VALUES, manifest};
use crate::memtable::{Memtable, MemtableLimits, MemtableOptions, Records};
use crate::planted;
use crate::space::gauge::Gauge;
use crate::space::sizes::Sizes;
use crate::sst::hash;
use crate::tree::sequence::Order;
use crate::values::record::Pointer;
use crate::values::segment::ValueSegment;
use crate::values::{Dead, PointerEnds};
use crate::version::manifest::chain::{Chain, Ends, Read};
use crate::version::manifest::record::replay;
use crate::version::manifest::state::ManifestState;
use crate::version::tables::TableHandle;
use crate::wal::entry::batch::Record;
use crate::wal::entry::{Entry, Payload};
use crate::wal::reader::{Mode, SegmentReader};
use crate::wal::segment::{
    SEGMENT_HEADER_BYTES, SPARE_BYTES, SegmentHeader, end_hint, end_hint_at, end_mark, spare_at,
};
use crate::wal::writer::Written;

mod reach;
#[cfg(test)]
mod tests;
mod values;

/// The progress and result of the recovery.
#[derive(Default)]
pub(crate) struct Recovery {
    pub(crate) keys: AtomicU64,
    pub(crate) corrupt: AtomicU64,
    pub(crate) left_out: AtomicU64,
    pub(crate) took: Mutex<Duration>,
    /// Log ends that may be damage.
    pub(crate) unverified_ends: Mutex<Vec<Error>>,
    /// Whether a salvage dropped log records. Any other open would have failed.
    pub(crate) is_lossy: AtomicBool,
}

impl Recovery {
    pub(crate) fn state(&self) -> RecoveryState {
        let took = *lock(&self.took);
        RecoveryState {
            done: true,
            share: 1.0,
            keys: self.keys.load(Ordering::Relaxed),
            corrupt: self.corrupt.load(Ordering::Relaxed),
            left_out: self.left_out.load(Ordering::Relaxed),
            ready_after: took,
            took,
        }
    }

    pub(crate) fn end(&self, opened: Instant) -> Duration {
        let took = opened.elapsed();
        *lock(&self.took) = took;
        took
    }
}

/// The result of reading a store at an open.
pub(crate) struct Found {
    pub(crate) state: ManifestState,
    pub(crate) handles: Vec<Arc<TableHandle>>,
    /// The replayed memtable; `None` if nothing was replayed.
    pub(crate) replayed: Option<Arc<Memtable>>,
    pub(crate) values: Vec<Arc<ValueSegment>>,
    pub(crate) generation: u64,
    pub(crate) order: Order,
    /// Errors of tables, to be reported.
    pub(crate) damage: Vec<Error>,
    /// Why the store is read-only, if it is.
    pub(crate) read_only: Option<String>,
    /// The manifest from which the state was read.
    pub(crate) manifest: Read,
}

pub(crate) struct RecoveryOptions {
    pub(crate) clean: bool,
    pub(crate) settled: bool,
    pub(crate) salvage: bool,
    pub(crate) threads: usize,
    pub(crate) sizes: Sizes,
    pub(crate) seed: u64,
    /// Counts the DRAM of tables.
    pub(crate) gauge: Arc<Gauge>,
    /// Approximate DRAM limit of the replayed memtable.
    pub(crate) memtable_dram: u64,
}

/// Reads an existing store.
///
/// # Errors
/// [`Error::Corrupt`], [`Error::NewerFormat`], [`Error::Poisoned`].
pub(crate) fn read(pool: &Arc<Pool>, how: &RecoveryOptions, recovery: &Recovery) -> Result<Found> {
    let mut damage = Vec::new();
    let (manifest, mut state, mut read_only) = match read_manifest(pool, how, &mut damage) {
        Ok((manifest, state)) => (manifest, state, None),
        Err(error @ Error::Corrupt { .. }) if how.salvage => {
            let kept = salvage::salvage_state(pool, &error)?;
            recovery.corrupt.fetch_add(kept.corrupt, Ordering::Relaxed);
            recovery.left_out.fetch_add(kept.items, Ordering::Relaxed);
            damage.push(kept.damage);
            (Read::default(), kept.state, Some(format!("the manifest is damaged: {EXPORT}")))
        }
        Err(error) => return Err(with_advice(error)),
    };
    let descriptors: Vec<_> = state.ranges().iter().flat_map(|range| range.tables().cloned()).collect();
    let handles = descriptors.iter().map(|descriptor| {
        let (handle, error) = TableHandle::open((pool, &how.gauge), descriptor);
        damage.extend(error);
        Arc::new(handle)
    });
    let handles: Vec<_> = handles.collect();
    // A damaged manifest does not say which logs were flushed.
    let is_counted = read_only.is_none() && !pool.has_fault(planted::LOG_COUNT_IGNORED);
    let log_counts = if is_counted { layout::log_counts(pool) } else { BTreeMap::new() };
    let segments = find_segments(pool, (state.flushed_generation(), &log_counts), how, (recovery, &mut damage))?;
    if read_only.is_none() {
        read_only = reconcile_extents(pool, &manifest.chain, &state, &segments, how, &mut damage)?;
    }
    let generation = segments.iter().map(|segment| segment.header.generation).max();
    let generation = generation.unwrap_or(0).max(state.flushed_generation());
    let order = Order::new(state.last_sequence());
    let value_segments = values::open(pool, &mut state, how.settled)?;
    let pointer_ends = Mutex::new(BTreeMap::new());
    let replayed = replay_segments(pool, &segments, generation, how, &order, recovery, &pointer_ends)?;
    if is_counted && !how.salvage {
        reach::restore_log_counts(pool, &log_counts, &segments);
    }
    let pointer_ends = pointer_ends.into_inner().unwrap_or_else(PoisonError::into_inner);
    damage.extend(values::check(pool, &value_segments, &pointer_ends));
    damage.append(&mut lock(&recovery.unverified_ends));
    recovery.corrupt.fetch_add(damage.len() as u64 + pool.damage_at_open(), Ordering::Relaxed);
    if how.salvage && recovery.is_lossy.load(Ordering::Relaxed) {
        pool.mark_damaged()?;
    }
    Ok(Found { state, handles, replayed, values: value_segments, generation, order, damage, read_only, manifest })
}

/// Advice for a store that can only be read.
pub(crate) const EXPORT: &str = "the store is open for reading only; export the store, and import the export into a \
                                 new store";

/// Adds advice to an error that rejects the store.
fn with_advice(error: Error) -> Error {
    match error {
        Error::Corrupt { place, what, .. } => Error::corrupt(place, format!("{what}: {ADVICE}")),
        other => other,
    }
}

/// Advice if a part of the store's shape is lost.
const ADVICE: &str = "restore the store from a backup, or open it with salvage and export the readable pairs \
                      (`Builder::salvage(true)`, `Db::for_each`)";

fn read_manifest(pool: &Pool, how: &RecoveryOptions, damage: &mut Vec<Error>) -> Result<(Read, ManifestState)> {
    let (chain, records) = Chain::read(pool, manifest(pool)?)?;
    let replayed = replay(&records, chain.nonce())?;
    let (end, next_number) = (replayed.end as u64, replayed.next_number);
    let read = layout::Reach { at: chain.first(), nonce: chain.nonce(), end, next_number };
    damage.extend(reach::check(pool, how.clean, &read)?);
    if !how.settled {
        pool.flush(pool.root(), Pool::ROOT_BYTES as usize);
        chain.flush(pool, end);
        pool.fence();
        pool.check()?;
    }
    let ends = Ends { checkpoint: replayed.checkpoint as u64, end, next_number };
    Ok((Read { chain, ends: Some(ends) }, replayed.state))
}

/// A segment whose writes were not flushed.
struct Segment {
    at: NvPtr,
    header: SegmentHeader,
    /// End of the segment according to the next segment's header.
    known_end: u64,
    /// All bytes up to here were durable, according to its own header.
    least_end: u64,
    has_record: bool,
    has_spare: bool,
}

/// Finds the segments of generations after the flushed one.
fn find_segments(
    pool: &Pool,
    (flushed, log_counts): (u64, &BTreeMap<u64, u64>),
    how: &RecoveryOptions,
    (recovery, damage): (&Recovery, &mut Vec<Error>),
) -> Result<Vec<Segment>> {
    let mut segments = Vec::new();
    for (at, extent) in pool.allocator().extents_with_bytes(pool, KIND_LOG) {
        let bytes = usize::try_from(extent).ok().and_then(|len| pool.bytes(at, len)).unwrap_or_default();
        match SegmentHeader::decode(bytes) {
            Ok(Some(found)) => {
                if found.header.generation > flushed {
                    recovery.corrupt.fetch_add(found.only_spare.into(), Ordering::Relaxed);
                    let ignores_hint = pool.has_fault(planted::END_HINT_IGNORED);
                    let least_end = if ignores_hint { 0 } else { found.least_end() };
                    let has_record = found.has_record(bytes);
                    let has_spare = found.has_spare;
                    segments.push(Segment { at, header: found.header, known_end: 0, least_end, has_record, has_spare });
                }
            }
            Ok(None) => {}
            Err(error @ (Error::NewerFormat { .. } | Error::OlderFormat { .. })) => return Err(error),
            Err(error) if !how.salvage => return Err(error),
            Err(_) => {
                recovery.corrupt.fetch_add(1, Ordering::Relaxed);
                recovery.is_lossy.store(true, Ordering::Relaxed);
            }
        }
    }
    segments.sort_unstable_by_key(|segment| (segment.header.generation, segment.header.slot, segment.header.number));
    let found = reach::count_segments(&segments);
    for answer in [reach::check_generations(flushed, &segments), reach::check_log_counts(log_counts, flushed, &found)] {
        match answer {
            Err(error) if !how.salvage => return Err(with_advice(error)),
            Err(error) => {
                damage.push(error);
                recovery.is_lossy.store(true, Ordering::Relaxed);
            }
            Ok(()) => {}
        }
    }
    for index in 0..segments.len() {
        let header = segments[index].header;
        let before = index.checked_sub(1).map(|before| segments[before].header);
        let same_log = before.filter(|other| (other.generation, other.slot) == (header.generation, header.slot));
        let expected = same_log.map_or(0, |other| other.number + 1);
        if header.number != expected {
            recovery.corrupt.fetch_add(1, Ordering::Relaxed);
            recovery.is_lossy.store(true, Ordering::Relaxed);
            if !how.salvage {
                let place = format!("log of slot {}, generation {}", header.slot, header.generation);
                return Err(Error::corrupt(
                    place,
                    format!(
                        "segment {expected} is missing: open the store with salvage (`Builder::salvage(true)`) to \
                         read the rest"
                    ),
                ));
            }
        } else if same_log.is_some() {
            segments[index - 1].known_end = header.previous_end;
        }
    }
    Ok(segments)
}

/// Marks the used extents in the allocator, or frees extents that an earlier process freed too
/// late. If the extent table lacks used extents, their space would be used twice. Then nothing is
/// freed, the store is read-only, and `damage` has the missing extents. Returns the reason.
///
/// # Errors
/// [`Error::Corrupt`] for missing extents, except in salvage.
fn reconcile_extents(
    pool: &Pool,
    manifest: &Chain,
    state: &ManifestState,
    segments: &[Segment],
    how: &RecoveryOptions,
    damage: &mut Vec<Error>,
) -> Result<Option<String>> {
    let tables = state.ranges().iter().flat_map(|range| range.tables());
    let tables = tables.map(|table| (table.at, KIND_TABLE, Some(table.bytes)));
    let logs = segments.iter().map(|segment| (segment.at, KIND_LOG, None));
    let values = state.values().values().map(|used| (used.at, KIND_VALUES, Some(used.bytes)));
    let manifest = manifest.extents().map(|at| (at, KIND_MANIFEST, None));
    let used: Vec<_> = tables.chain(logs).chain(values).chain(manifest).collect();
    let allocator = pool.allocator();
    let missing = |at: NvPtr, kind: ExtentKind, bytes: Option<u64>| {
        let held = bytes.is_none_or(|bytes| allocator.holds_extent(pool, at, bytes, kind));
        let what = || format!("the entry of {} at {at:?} is missing, so its space would be used twice", name_of(kind));
        (!held).then(|| Error::corrupt("the extent table", what()))
    };
    let mut lost: Vec<_> = used.iter().filter_map(|(at, kind, bytes)| missing(*at, *kind, *bytes)).collect();
    let used: Vec<_> = used.into_iter().skip(usize::from(pool.has_fault(planted::RECORD_NOT_MARKED))).collect();
    if allocator.is_recovering() && lost.is_empty() {
        let _guard = pool.epochs().pin();
        let marked = used.iter().map(|(at, kind, _)| allocator.mark_extent(pool, *at, *kind));
        lost.extend(marked.filter_map(Result::err));
    }
    if !lost.is_empty() {
        if !how.salvage {
            return Err(with_advice(lost.swap_remove(0)));
        }
        damage.append(&mut lost);
        return Ok(Some(format!("the extent table is damaged: {EXPORT}")));
    }
    if allocator.is_recovering() {
        allocator.finish_recovery(pool);
        return Ok(None);
    }
    let mut used: Vec<u64> = used.into_iter().map(|(at, ..)| at.raw()).collect();
    used.sort_unstable();
    for kind in [KIND_TABLE, KIND_LOG, KIND_MANIFEST, KIND_RESERVE, KIND_VALUES] {
        for at in allocator.extents_of(pool, kind) {
            if used.binary_search(&at.raw()).is_err() {
                allocator.free_extent(pool, at);
            }
        }
    }
    Ok(None)
}

fn name_of(kind: ExtentKind) -> &'static str {
    match kind {
        KIND_TABLE => "the table",
        KIND_VALUES => "the value segment",
        KIND_MANIFEST => "the manifest",
        _ => "the log",
    }
}

fn replay_segments(
    pool: &Arc<Pool>,
    segments: &[Segment],
    generation: u64,
    how: &RecoveryOptions,
    order: &Order,
    recovery: &Recovery,
    pointer_ends: &Mutex<PointerEnds>,
) -> Result<Option<Arc<Memtable>>> {
    if segments.is_empty() {
        return Ok(None);
    }
    let mut written: Vec<Written> = segments
        .iter()
        .map(|segment| Written { at: segment.at, capacity: segment.header.capacity, frame: segment.header.frame })
        .collect();
    written.sort_unstable_by_key(|segment| segment.at.raw());
    let limits = MemtableLimits { log_bytes: how.sizes.memtable, dram_bytes: how.memtable_dram };
    let options = MemtableOptions::new(&how.sizes, generation, order.last(), how.seed, limits);
    let memtable = Memtable::replayed(pool, &options, written.clone());
    let job = Replay {
        pool,
        memtable: &memtable,
        written: &written,
        how,
        order,
        recovery,
        pointer_ends,
        next: AtomicUsize::new(0),
    };
    let threads = how.threads.clamp(1, segments.len());
    let outcome = std::thread::scope(|scope| {
        let others = start_helpers(scope, "lodestore-fluid-replay", threads - 1, || job.work(segments));
        let own = job.work(segments);
        others.into_iter().fold(own, |outcome, other| {
            outcome.and(other.join().unwrap_or_else(|_| Err(Error::Poisoned { cause: "a replay panicked".into() })))
        })
    });
    outcome?;
    Ok(Some(Arc::new(memtable)))
}

/// A replay, shared by its threads.
struct Replay<'a> {
    pool: &'a Pool,
    memtable: &'a Memtable,
    written: &'a [Written],
    how: &'a RecoveryOptions,
    order: &'a Order,
    recovery: &'a Recovery,
    pointer_ends: &'a Mutex<PointerEnds>,
    next: AtomicUsize,
}

impl Replay<'_> {
    fn work(&self, segments: &[Segment]) -> Result<()> {
        while let Some(segment) = segments.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            self.segment(segment)?;
        }
        Ok(())
    }

    /// Reads the records of a segment into the memtable.
    fn segment(&self, segment: &Segment) -> Result<()> {
        let bytes = self.pool.bytes(segment.at, segment.header.capacity as usize).unwrap_or_default();
        let mode = if self.how.salvage { Mode::Salvage } else { Mode::Strict };
        let known_end = segment.known_end.max(segment.least_end);
        let reader = SegmentReader::new(bytes, &segment.header, mode, known_end);
        let reader = reader.with_spare(segment.has_spare);
        let reader = reader.ignoring_end(self.pool.has_fault(planted::LOG_END_IGNORED));
        let mut reader = reader.skipping_holes(self.pool.has_fault(planted::HOLE_SKIPPED));
        let base = segment.header.frame.base;
        for record in reader.by_ref() {
            let (at, record) = record.map_err(|damage| {
                let place = format!("log segment at {:?}, byte {}", segment.at, damage.at);
                Error::corrupt(
                    place,
                    format!("{}: open the store with salvage (`Builder::salvage(true)`) to read the rest", damage.what),
                )
            })?;
            match record {
                Record::One(entry) => self.replay_entry(segment, at, &entry, entry.sequence(base))?,
                Record::Batch(batch) => {
                    for (at, entry) in batch.members() {
                        self.replay_entry(segment, at, &entry, entry.sequence(base))?;
                    }
                }
            }
        }
        if let Some(outcome) = reader.outcome() {
            if !outcome.searched && segment.known_end == 0 {
                self.note_unverified_end(segment, outcome.end);
            }
            self.recovery.corrupt.fetch_add(outcome.lost_ranges, Ordering::Relaxed);
            self.recovery.left_out.fetch_add(outcome.lost_ranges, Ordering::Relaxed);
            self.recovery.is_lossy.fetch_or(outcome.lost_ranges > 0, Ordering::Relaxed);
            if !self.how.settled {
                self.pool.flush(segment.at, outcome.end as usize);
                self.pool.flush(segment.at.add(spare_at(segment.header.capacity)), SPARE_BYTES);
                self.pool.fence();
                self.pool.check()?;
            }
            // An unverified end stays unverified.
            if !self.how.salvage && outcome.searched {
                self.mark_recovered_end(segment, outcome.end);
            }
        }
        Ok(())
    }

    /// Stores the end mark and the end hint of a segment whose records are durable: a power failure
    /// may have lost them. Later damage of the last record is then reported.
    fn mark_recovered_end(&self, segment: &Segment, end: u64) {
        if end <= SEGMENT_HEADER_BYTES as u64 {
            return;
        }
        let mark = end_mark(segment.header.frame, end);
        let hint_at = end_hint_at(end, spare_at(segment.header.capacity));
        for (offset, word) in [(end, mark), (hint_at, end_hint(mark, end))] {
            self.pool.publish_u64(segment.at.add(offset), word);
            self.pool.flush(segment.at.add(offset), size_of::<u64>());
        }
        if !self.how.settled {
            self.pool.fence();
        }
    }

    /// Records that the last segment of a log may end early because of damage.
    fn note_unverified_end(&self, segment: &Segment, end: u64) {
        let place = format!("log segment at {:?}, byte {end}", segment.at);
        let what = "the log may end here or be damaged, because too many of the following bytes look like long \
                    records: compare the newest writes with their source";
        lock(&self.recovery.unverified_ends).push(Error::corrupt(place, what));
    }

    /// Adds an entry, unless a newer one of its key is present.
    fn replay_entry(&self, segment: &Segment, at: u64, entry: &Entry<'_>, number: u64) -> Result<()> {
        let key = entry.key();
        if let Payload::Pointer(pointer) = entry.payload() {
            let pointer = Pointer::decode(pointer);
            let end = pointer.offset() + pointer.record_len(key.len());
            let mut pointer_ends = lock(self.pointer_ends);
            let most = pointer_ends.entry(pointer.id).or_default();
            *most = end.max(*most);
        }
        let _stripe = self.order.lock(hash(key));
        self.order.raise_last(number);
        if let Some(there) = self.memtable.index.get(&Records(self.pool), key)
            && self.number_of(there)? > number
            && !self.pool.has_fault(planted::REPLAY_IGNORES_NUMBERS)
        {
            self.note_dead(entry);
            return Ok(());
        }
        self.recovery.keys.fetch_add(1, Ordering::Relaxed);
        let own = segment.at.add(at).raw();
        if let Some(old) = self.memtable.publish(key, hash(key), own, false)
            && old != own
        {
            self.note_dead(&Records(self.pool).entry(old)?);
        }
        Ok(())
    }

    /// Counts a large value that another one replaces.
    fn note_dead(&self, entry: &Entry<'_>) {
        let mut dead = Dead::default();
        dead.add_entry(entry);
        self.memtable.note_dead(&dead);
    }

    /// Returns the sequence number of an entry that was added.
    fn number_of(&self, at: u64) -> Result<u64> {
        let above = self.written.partition_point(|segment| segment.at.raw() <= at);
        let segment = above.checked_sub(1).map(|index| self.written[index]);
        let segment = segment.ok_or_else(|| Error::corrupt("log", "an entry is outside all log segments"))?;
        Ok(Records(self.pool).entry(at)?.sequence(segment.frame.base))
    }
}
