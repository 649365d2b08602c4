//! Faults of NVHT.

use lodestore_inplace::planted as shared;
use lodestore_media::sim::{Site, Source};
use lodestore_media::{PlantedFault, planted as pool, source};
use lodestore_nvht::planted as own;

use super::{inplace, media};

const READ: Source = source!("../../crates/nvht/src/read.rs");
const RECOVER: Source = source!("../../crates/nvht/src/recover.rs");
const REPAIR: Source = source!("../../crates/nvht/src/growth_repair.rs");
const RESIZE: Source = source!("../../crates/nvht/src/growth.rs");
const WRITE: Source = source!("../../crates/nvht/src/write.rs");

/// Makes the slot of a replaced record durable.
const REPLACED_SLOT: Site = WRITE.lines("self.persist(hit.at, ");
/// Makes the slot of a new key durable.
const NEW_SLOT: Site = WRITE.line("self.persist(free.at, ");
const COPIES_FLUSH: &str = "pool.flush(next.line(first), ";
const CURSOR_FENCE: Site = RESIZE.line_after("fn publish_cursor(", "self.pool.fence()");

/// The slot is stored but not flushed (acknowledged before it is durable).
pub const ENTRY_NOT_FLUSHED: PlantedFault =
    PlantedFault::at("EntryNotFlushed", &[REPLACED_SLOT.without_flush(), NEW_SLOT.without_flush()]);
/// A delete is acknowledged before the cleared slot is flushed.
pub const DELETE_NOT_FLUSHED: PlantedFault = PlantedFault::at("DeleteNotFlushed", &[inplace::DELETES.without_flush()]);
/// The slot is flushed, but the operation returns before the fence.
pub const NO_FENCE_AFTER_ENTRY: PlantedFault = PlantedFault::at(
    "NoFenceAfterEntry",
    &[
        REPLACED_SLOT.without_fence(),
        NEW_SLOT.without_fence(),
        inplace::DELETES.without_fence(),
        inplace::SWEEP.without_fence(),
    ],
);
/// The slot is durable first, the record after it.
pub const PUBLISH_BEFORE_RECORD: PlantedFault = PlantedFault::at(
    "PublishBeforeRecord",
    &[inplace::RECORD.with_delayed_flush(), REPLACED_SLOT.ends_delay(), NEW_SLOT.ends_delay()],
);
/// A reader serves a slot that is not durable yet, without persisting it first.
pub const READ_UNPERSISTED: PlantedFault = PlantedFault::at(
    "ReadUnpersisted",
    &[
        READ.line_after("fn persist_read(", "self.pool.flush(slot, 8)").without_flush(),
        READ.line_after("fn persist_read(", "self.pool.fence()").without_fence(),
    ],
);
/// A growing table is named before its first lines are durable.
pub const GROWTH_ROOT_EARLY: PlantedFault = PlantedFault::at(
    "GrowthRootEarly",
    &[RESIZE.line_after("let at = create_table(", "pool.fence_checked()").without_fence()],
);
/// The cursor of a growing table passes keys before their copies are made.
pub const GROWTH_CURSOR_EARLY: PlantedFault =
    PlantedFault::at("GrowthCursorEarly", &[RESIZE.line(COPIES_FLUSH).with_delayed_flush(), CURSOR_FENCE.ends_delay()]);
/// The cursor of a growing table is stored before the copies that it vouches for are durable.
pub const GROWTH_NOT_FENCED: PlantedFault =
    PlantedFault::at("GrowthNotFenced", &[RESIZE.line_after(COPIES_FLUSH, "pool.fence_checked()").without_fence()]);
/// The lines of a growing table are used without clearing their old content.
pub const GROWTH_NOT_ZEROED: PlantedFault = PlantedFault::at(
    "GrowthNotZeroed",
    &[RESIZE.line("store_empty_lines(pool, next, zero_from, zero_to)").without_store()],
);
/// A growth step is published although the sync of its copies has failed.
pub const GROWTH_UNCHECKED: PlantedFault = PlantedFault::at(
    "GrowthUnchecked",
    &[
        RESIZE.lines("pool.fence_checked()?;").without_check(),
        RESIZE.line_after("fn run_step(", "self.pool.check()?;").without_check(),
        RESIZE.line_after("self.publish_cursor(partition, to);", "self.pool.check()?;").without_check(),
        RESIZE.line_after("publish_grown_table(pool, partition, next);", "self.pool.check()?;").without_check(),
    ],
);
/// A slot after its home line is published before the home line's probe limit is durable.
pub const REACH_NOT_FLUSHED: PlantedFault = PlantedFault::at(
    "ReachNotFlushed",
    &[WRITE.line_after("fn raise_reach_of(", "self.pool.flush(at, 8)").without_flush()],
);
/// An open does not flush again words in growing tables that a killed process may have cleared
/// without flushing.
pub const GROWTH_NOT_SETTLED: PlantedFault = PlantedFault::at(
    "GrowthNotSettled",
    &[
        REPAIR.line("pool.flush(table.line(line), LINE_BYTES as usize)").without_flush(),
        RECOVER.line("inner.pool.flush(sealed.at.add(from), ").without_flush(),
    ],
);

/// Faults that an exploration of crashes sees. Without `HeaderChecksumIgnored`, for hikv's reason,
/// and without faults of 16-byte entries and splits, which do not exist here.
pub const OF_CRASHES: &[PlantedFault] = &[
    inplace::RECORD_NOT_FLUSHED,
    inplace::NO_FENCE_BEFORE_PUBLISH,
    ENTRY_NOT_FLUSHED,
    NO_FENCE_AFTER_ENTRY,
    PUBLISH_BEFORE_RECORD,
    own::REUSE_BEFORE_DURABLE,
    media::EXTENT_WORD_LATE,
    media::HEADER_IN_PLACE,
    pool::CLEAN_FLAG_KEPT,
    pool::REGION_NOT_IN_HEADER,
    DELETE_NOT_FLUSHED,
    own::STALE_CHECKPOINT_TRUSTED,
    shared::SEAL_HEAD_KEPT,
    inplace::SWEEP_BEFORE_DURABLE,
    own::RECORD_NOT_MARKED,
    inplace::ROOT_EARLY,
    shared::CREATED_EARLY,
    READ_UNPERSISTED,
    media::TABLE_NOT_SETTLED,
    shared::ENTRIES_NOT_SETTLED,
    GROWTH_ROOT_EARLY,
    GROWTH_CURSOR_EARLY,
    GROWTH_NOT_FENCED,
    GROWTH_NOT_ZEROED,
    own::GROWTH_COPIES_KEPT,
    REACH_NOT_FLUSHED,
    inplace::PUBLISHED_UNCHECKED,
    GROWTH_UNCHECKED,
    media::BATCH_NOT_LOGGED,
    media::BATCH_LOG_NOT_DISARMED,
    pool::BATCH_REDO_SKIPPED,
    pool::BATCH_LOG_NOT_SETTLED,
    shared::CONDITION_IGNORED,
];

/// Faults that show in histories of threads.
pub const OF_THREADS: &[PlantedFault] = &[READ_UNPERSISTED];

/// Faults that damage shows.
pub const OF_DAMAGE: &[PlantedFault] =
    &[shared::RECORD_CHECKSUM_IGNORED, shared::SEAL_IGNORED, own::ENTRY_CHECK_IGNORED];

/// Faults that are harmful only if freed space is reused within a growth. Epochs hold it longer
/// than these short growths last. `tests/suite/growth_nvht.rs` sees them.
pub const OF_GROWTHS: &[PlantedFault] = &[own::GROWTH_LEFT_KEPT, GROWTH_NOT_SETTLED];
