//! Faults that the in-place engines share.

use lodestore_media::sim::{Site, Source};
use lodestore_media::{PlantedFault, source};

const BASE: Source = source!("../../crates/inplace/src/base.rs");
const BEGIN: Source = source!("../../crates/inplace/src/begin.rs");
const WRITE: Source = source!("../../crates/inplace/src/write.rs");

/// Stores a record and flushes it.
pub(super) const RECORD: Site = BASE.line("self.pool.store_and_flush(at, &[head.as_bytes(), key, value])");
/// The fence before a record is published.
const FENCE_BEFORE_PUBLISH: Site = BASE.line("self.pool.fence_checked()");
/// The removals of entries by a delete and an update.
pub(super) const DELETES: Site = WRITE.lines("engine.unlink(&mut locked, ");
/// The removal of an expired key's entry.
pub(super) const SWEEP: Site = WRITE.line("self.unlink(&mut locked, &found)");

/// A record's bytes are stored but never flushed (missing flush of the payload).
pub const RECORD_NOT_FLUSHED: PlantedFault = PlantedFault::at("RecordNotFlushed", &[RECORD.without_flush()]);
/// No fence between the record and the entry that points to it (missing fence before publish).
pub const NO_FENCE_BEFORE_PUBLISH: PlantedFault =
    PlantedFault::at("NoFenceBeforePublish", &[FENCE_BEFORE_PUBLISH.without_fence()]);
/// A record is published although the sync of its bytes has failed.
pub const PUBLISHED_UNCHECKED: PlantedFault =
    PlantedFault::at("PublishedUnchecked", &[FENCE_BEFORE_PUBLISH.without_check()]);
/// An expired key's space is freed before the cleared entry is durable.
pub const SWEEP_BEFORE_DURABLE: PlantedFault = PlantedFault::at("SweepBeforeDurable", &[SWEEP.without_flush()]);
/// The root of a new store is published before the data it points to is durable.
pub const ROOT_EARLY: PlantedFault =
    PlantedFault::at("RootEarly", &[BEGIN.line_after("make(&shape)?;", "pool.fence_checked()").without_fence()]);
