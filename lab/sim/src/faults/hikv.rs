//! Faults of HiKV.

use lodestore_hikv::planted as own;
use lodestore_inplace::planted as shared;
use lodestore_media::sim::{Site, Source};
use lodestore_media::{PlantedFault, planted as pool, source};

use super::{inplace, media};

const READ: Source = source!("../../crates/hikv/src/read.rs");
const SPLIT: Source = source!("../../crates/hikv/src/split.rs");
const WRITE: Source = source!("../../crates/hikv/src/write.rs");

/// Makes the entry of a new record durable.
const ENTRY: Site = WRITE.line_after("self.swap_entry(locked, probe, old.as_ref(), &new)", "self.persist(slot, ");
/// Makes an entry durable that was cleared because of damage.
const CLEARED: Site = WRITE.line_after("fn clear_damage(", "self.persist(slot, ");
/// Makes the buckets of a key that a read did not find durable.
const READ_BUCKETS: Site = READ.line("None => self.persist_buckets(segment, sig)");
/// The call before a split stores the sibling.
const BEFORE_SIBLING: &str = "replace_entries(pool, &leftovers);";

/// The entry is stored but not flushed (acknowledged before it is durable).
pub const ENTRY_NOT_FLUSHED: PlantedFault = PlantedFault::at("EntryNotFlushed", &[ENTRY.without_flush()]);
/// A delete is acknowledged before the cleared entry is flushed.
pub const DELETE_NOT_FLUSHED: PlantedFault =
    PlantedFault::at("DeleteNotFlushed", &[inplace::DELETES.without_flush(), CLEARED.without_flush()]);
/// The entry is flushed, but the operation returns before the fence.
pub const NO_FENCE_AFTER_ENTRY: PlantedFault = PlantedFault::at(
    "NoFenceAfterEntry",
    &[ENTRY.without_fence(), CLEARED.without_fence(), inplace::DELETES.without_fence(), inplace::SWEEP.without_fence()],
);
/// The entry is durable first, the record after it.
pub const PUBLISH_BEFORE_RECORD: PlantedFault =
    PlantedFault::at("PublishBeforeRecord", &[inplace::RECORD.with_delayed_flush(), ENTRY.ends_delay()]);
/// An update swaps the halves of its entry one by one, instead of by one 16-byte swap.
pub const ENTRY_IN_HALVES: PlantedFault = PlantedFault::at(
    "EntryInHalves",
    &[WRITE.line("self.pool.cas_u128(hit.at, hit.entry.pair(), new)").with_zero_first()],
);
/// A reader serves an entry that is not durable yet, without persisting it first.
pub const READ_UNPERSISTED: PlantedFault = PlantedFault::at(
    "ReadUnpersisted",
    &[
        READ.line("self.pool.flush(slot, 16)").without_flush(),
        READ.line_after("self.pool.flush(slot, 16)", "self.pool.fence()").without_fence(),
        READ_BUCKETS.without_flush(),
        READ_BUCKETS.without_fence(),
    ],
);
/// A split points the directory at the sibling before the sibling is durable.
pub const SPLIT_FLIPS_EARLY: PlantedFault = PlantedFault::at(
    "SplitFlipsEarly",
    &[
        SPLIT.line_after(BEFORE_SIBLING, "pool.store_and_flush(at, &[&image])").without_flush(),
        SPLIT.line_after(BEFORE_SIBLING, "pool.fence_checked()").without_fence(),
    ],
);
/// Recovery completes a half-done split in a way that fails if it runs twice.
pub const SPLIT_RECOVERY_TWICE: PlantedFault = PlantedFault::at(
    "SplitRecoveryTwice",
    &[SPLIT.line("pool.publish_u64(word.at, named.pack(pool, word))").with_zero_first()],
);
/// A split is published although the sync of its copies has failed.
pub const GROWTH_UNCHECKED: PlantedFault =
    PlantedFault::at("GrowthUnchecked", &[SPLIT.lines("pool.fence_checked()?;").without_check()]);

/// Faults that an exploration of crashes sees. Without `HeaderChecksumIgnored`: the pool changes
/// one field at a time, in one copy after the other, so each mixture of the old and the new header
/// equals one of them. Its checksum protects against bit rot, which is no crash.
pub const OF_CRASHES: &[PlantedFault] = &[
    inplace::RECORD_NOT_FLUSHED,
    inplace::NO_FENCE_BEFORE_PUBLISH,
    ENTRY_NOT_FLUSHED,
    NO_FENCE_AFTER_ENTRY,
    PUBLISH_BEFORE_RECORD,
    own::REUSE_BEFORE_DURABLE,
    own::TORN_ENTRY_ACCEPTED,
    SPLIT_RECOVERY_TWICE,
    own::SPLIT_RECOVERY_SKIPPED,
    SPLIT_FLIPS_EARLY,
    media::EXTENT_WORD_LATE,
    media::HEADER_IN_PLACE,
    pool::CLEAN_FLAG_KEPT,
    pool::REGION_NOT_IN_HEADER,
    DELETE_NOT_FLUSHED,
    ENTRY_IN_HALVES,
    own::STALE_CHECKPOINT_TRUSTED,
    shared::SEAL_HEAD_KEPT,
    inplace::SWEEP_BEFORE_DURABLE,
    own::RECORD_NOT_MARKED,
    own::SPLIT_DROPS_ENTRY,
    inplace::ROOT_EARLY,
    shared::CREATED_EARLY,
    READ_UNPERSISTED,
    media::TABLE_NOT_SETTLED,
    shared::ENTRIES_NOT_SETTLED,
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
