//! Faults of the allocator's explorer, and of the pool.

use lodestore_media::sim::Source;
use lodestore_media::{PlantedFault, planted as pool, source};

use super::media;

const SOURCE: Source = source!("src/allocator.rs");
const RECORD: &str = "pool.store_and_flush(at, &[&bytes])";
const ROOT_FLUSH: &str = "pool.flush(pool.root(), ";

/// A thing's bytes are never flushed.
pub const RECORD_NOT_FLUSHED: PlantedFault =
    PlantedFault::at("RecordNotFlushed", &[SOURCE.line_after("let word = at.raw()", RECORD).without_flush()]);
/// No fence between a thing and the word that names it.
pub const NO_FENCE_BEFORE_PUBLISH: PlantedFault = PlantedFault::at(
    "NoFenceBeforePublish",
    &[SOURCE.line_after("let word = at.raw()", "pool.fence_checked()").without_fence()],
);
/// The word of a thing is not flushed.
pub const ENTRY_NOT_FLUSHED: PlantedFault =
    PlantedFault::at("EntryNotFlushed", &[SOURCE.line("let published = self.publish(").without_flush()]);
/// The word of a thing is published before the thing is stored.
pub const PUBLISH_BEFORE_RECORD: PlantedFault = PlantedFault::new("PublishBeforeRecord");
/// The space of a replaced thing is freed at once, before its word is durable.
pub const REUSE_BEFORE_DURABLE: PlantedFault = PlantedFault::new("ReuseBeforeDurable");
/// A cleared word is not flushed.
pub const DELETE_NOT_FLUSHED: PlantedFault = PlantedFault::at(
    "DeleteNotFlushed",
    &[SOURCE.line_after("fn delete(", "self.publish(thing.slot, 0)?").without_flush()],
);
/// An open builds on words that a killed process stored without flushing.
pub const ENTRIES_NOT_SETTLED: PlantedFault =
    PlantedFault::at("EntriesNotSettled", &[SOURCE.line_after("if !report.settled {", ROOT_FLUSH).without_flush()]);
/// One of several things is not marked in recovery, so its space is allocated again.
pub const RECORD_NOT_MARKED: PlantedFault = PlantedFault::new("RecordNotMarked");

/// Faults that an exploration of crashes sees.
pub const OF_CRASHES: &[PlantedFault] = &[
    RECORD_NOT_FLUSHED,
    NO_FENCE_BEFORE_PUBLISH,
    ENTRY_NOT_FLUSHED,
    PUBLISH_BEFORE_RECORD,
    REUSE_BEFORE_DURABLE,
    DELETE_NOT_FLUSHED,
    media::EXTENT_WORD_LATE,
    media::TABLE_NOT_SETTLED,
    ENTRIES_NOT_SETTLED,
    RECORD_NOT_MARKED,
    pool::STALE_CHECKPOINT_TRUSTED,
    media::HEADER_IN_PLACE,
    pool::CLEAN_FLAG_KEPT,
    pool::REGION_NOT_IN_HEADER,
    media::GENERATION_NOT_FLUSHED,
];
