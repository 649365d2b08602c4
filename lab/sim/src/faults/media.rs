//! Faults of the pool, its allocator and its batch logs.

use lodestore_media::sim::{Site, Source};
use lodestore_media::{PlantedFault, planted as own, source};

const BATCH_LOG: Source = source!("../../crates/media/src/batch_log.rs");
const HEADER_WRITES: Source = source!("../../crates/media/src/header_writes.rs");
const RECOVER: Source = source!("../../crates/media/src/alloc/recover.rs");
const SPACE: Source = source!("../../crates/media/src/alloc/space.rs");

const WORD_FLUSH: &str = "copies.iter().for_each(|copy| medium.flush(*copy, 8))";
const TABLE_FLUSH: &str = "medium.flush(copy, layout.chunks as usize * 8)";
/// The fence between the copies of the header.
const COPY_FENCE: Site = HEADER_WRITES.line_after("pub(crate) fn write_header(", "memory.fence()");

/// An extent is used before its word in the extent table is durable.
pub const EXTENT_WORD_LATE: PlantedFault = PlantedFault::at(
    "ExtentWordLate",
    &[SPACE.line(WORD_FLUSH).without_flush(), SPACE.line_after(WORD_FLUSH, "medium.fence()").without_fence()],
);
/// An open builds on extent words that a killed process stored without flushing.
pub const TABLE_NOT_SETTLED: PlantedFault = PlantedFault::at(
    "TableNotSettled",
    &[RECOVER.line(TABLE_FLUSH).without_flush(), RECOVER.line_after(TABLE_FLUSH, "medium.fence()").without_fence()],
);
/// The pool header is rewritten in place, in its only valid copy.
pub const HEADER_IN_PLACE: PlantedFault = PlantedFault::at("HeaderInPlace", &[COPY_FENCE.without_fence()]);
/// A raise of the generation ends before the region headers that have it are durable.
pub const GENERATION_NOT_FLUSHED: PlantedFault = PlantedFault::at(
    "GenerationNotFlushed",
    &[HEADER_WRITES.line("memory.flush(at, REGION_HEADER_USED_BYTES)").without_flush()],
);
/// A batch is published before its log record is durable.
pub const BATCH_NOT_LOGGED: PlantedFault = PlantedFault::at(
    "BatchNotLogged",
    &[BATCH_LOG.line_after("self.log.store_record(pool, stores)", "pool.fence_checked()").without_fence()],
);
/// The log record of a batch stays armed after the batch.
pub const BATCH_LOG_NOT_DISARMED: PlantedFault =
    PlantedFault::at("BatchLogNotDisarmed", &[BATCH_LOG.line("pool.publish_u64(record, 0)").without_store()]);

/// All faults of the pool.
pub const ALL: &[PlantedFault] = &[
    EXTENT_WORD_LATE,
    TABLE_NOT_SETTLED,
    HEADER_IN_PLACE,
    GENERATION_NOT_FLUSHED,
    BATCH_NOT_LOGGED,
    BATCH_LOG_NOT_DISARMED,
    own::HEADER_CHECKSUM_IGNORED,
    own::CLEAN_FLAG_KEPT,
    own::REGION_NOT_IN_HEADER,
    own::STALE_CHECKPOINT_TRUSTED,
    own::BATCH_REDO_SKIPPED,
    own::BATCH_LOG_NOT_SETTLED,
    own::SALVAGE_FORGOTTEN,
];
