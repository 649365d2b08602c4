//! Faults of FluidKV.

use lodestore_fluidkv::planted as own;
use lodestore_media::sim::{Site, Source};
use lodestore_media::{PlantedFault, planted as pool, source};

use super::media;

const APPEND: Source = source!("../../crates/fluidkv/src/tree/batch_append.rs");
const CHAIN: Source = source!("../../crates/fluidkv/src/version/manifest/chain.rs");
const COMMIT: Source = source!("../../crates/fluidkv/src/tree/group_commit.rs");
const LOG_WRITER: Source = source!("../../crates/fluidkv/src/wal/writer.rs");
const PUBLISH: Source = source!("../../crates/fluidkv/src/version/publish.rs");
const RECOVER: Source = source!("../../crates/fluidkv/src/db/recover.rs");
const RECOVER_VALUES: Source = source!("../../crates/fluidkv/src/db/recover/values.rs");
const TABLE_WRITER: Source = source!("../../crates/fluidkv/src/background/table_writer.rs");
const VALUE_WRITER: Source = source!("../../crates/fluidkv/src/values/writer.rs");
const WRITE: Source = source!("../../crates/fluidkv/src/db/write.rs");

const GROUP_FLUSH: &str = "pool.flush(*at, *len)";
/// The check after the fence of a group.
const GROUP_CHECK: Site = COMMIT.line_after(GROUP_FLUSH, "pool.check().is_err()");
const ROOT_FLUSH: &str = "pool.flush(pool.root(), Pool::ROOT_BYTES as usize)";
const LOG_FLUSH: &str = "self.pool.flush(segment.at, outcome.end as usize)";
const VALUES_FLUSH: &str = "pool.flush(used.at.add(from), ";

/// A record's bytes are stored but never flushed (missing flush of the payload).
pub const RECORD_NOT_FLUSHED: PlantedFault = PlantedFault::at(
    "RecordNotFlushed",
    &[
        LOG_WRITER.line("pool.store_and_flush(reserved.at, &[header.as_bytes(), op.key, ").without_flush(),
        COMMIT.line(GROUP_FLUSH).without_flush(),
    ],
);
/// No fence between the record and the entry that points to it (missing fence before publish).
pub const NO_FENCE_BEFORE_PUBLISH: PlantedFault = PlantedFault::at(
    "NoFenceBeforePublish",
    &[
        WRITE.line_after("memtable.seek(op.key, &pin)", "self.pool.fence_checked()").without_fence(),
        COMMIT.line_after(GROUP_FLUSH, "pool.fence()").without_fence(),
    ],
);
/// A group is published although the sync of its records has failed.
pub const PUBLISHED_UNCHECKED: PlantedFault = PlantedFault::at("PublishedUnchecked", &[GROUP_CHECK.without_check()]);
/// A batch is published before its log record is durable; see the engine's fault of this name.
pub const BATCH_NOT_LOGGED: PlantedFault =
    PlantedFault::at(own::BATCH_NOT_LOGGED.name(), &[APPEND.line("self.pool.fence_checked()").without_fence()]);
/// A manifest becomes the store's current one before its checkpoint is durable.
pub const MANIFEST_NOT_FENCED: PlantedFault =
    PlantedFault::at("ManifestNotFenced", &[PUBLISH.line("chain.append(pool, &bytes)").without_fence()]);
/// A change of the manifest is used before it is durable.
pub const EDIT_NOT_FENCED: PlantedFault =
    PlantedFault::at("EditNotFenced", &[PUBLISH.line("self.chain.append(pool, &record)").without_fence()]);
/// An extent of a manifest's chain is linked before its header is durable.
pub const LINK_EARLY: PlantedFault = PlantedFault::at(
    "LinkEarly",
    &[CHAIN.line_after("pool.store_and_flush(link.at, &[&head.encode()])", "pool.fence_checked()").without_fence()],
);
/// A table is named before it is durable.
pub const TABLE_NOT_FENCED: PlantedFault = PlantedFault::at(
    "TableNotFenced",
    &[TABLE_WRITER.line_after("pub(crate) fn finish(", "self.inner.pool.fence_checked()").without_fence()],
);
/// An open builds on log records that a killed process stored without flushing.
pub const LOG_NOT_SETTLED: PlantedFault = PlantedFault::at(
    "LogNotSettled",
    &[
        RECOVER.line(LOG_FLUSH).without_flush(),
        RECOVER.line("self.pool.flush(segment.at.add(spare_at(segment.header.capacity)), ").without_flush(),
        RECOVER.line_after(LOG_FLUSH, "self.pool.fence()").without_fence(),
    ],
);
/// An open builds on manifest records that a killed process stored without flushing.
pub const MANIFEST_NOT_SETTLED: PlantedFault = PlantedFault::at(
    "ManifestNotSettled",
    &[
        RECOVER.line(ROOT_FLUSH).without_flush(),
        CHAIN.line("pool.flush(link.at, (HEADER_BYTES + here) as usize)").without_flush(),
        RECOVER.line_after(ROOT_FLUSH, "pool.fence()").without_fence(),
    ],
);
/// A log entry points to a value that is not durable yet.
pub const VALUE_NOT_FENCED: PlantedFault =
    PlantedFault::at("ValueNotFenced", &[VALUE_WRITER.line("self.pool.fence_checked()").without_fence()]);
/// An open accepts unflushed content of a killed process as the end of a value segment.
pub const VALUES_NOT_SETTLED: PlantedFault = PlantedFault::at(
    "ValuesNotSettled",
    &[
        RECOVER_VALUES.line(VALUES_FLUSH).without_flush(),
        RECOVER_VALUES.line_after(VALUES_FLUSH, "pool.fence()").without_fence(),
    ],
);

/// Faults that an exploration of crashes sees. Without `RegionNotInHeader`: these small stores
/// rarely grow, and the other engines' exploration of the pool covers it.
pub const OF_CRASHES: &[PlantedFault] = &[
    RECORD_NOT_FLUSHED,
    NO_FENCE_BEFORE_PUBLISH,
    media::EXTENT_WORD_LATE,
    media::HEADER_IN_PLACE,
    own::RECORD_NOT_MARKED,
    own::ROOT_EARLY,
    BATCH_NOT_LOGGED,
    own::CONDITION_IGNORED,
    MANIFEST_NOT_FENCED,
    EDIT_NOT_FENCED,
    LINK_EARLY,
    own::REACH_EARLY,
    TABLE_NOT_FENCED,
    own::TABLE_FREED_EARLY,
    own::LOG_FREED_EARLY,
    LOG_NOT_SETTLED,
    MANIFEST_NOT_SETTLED,
    VALUE_NOT_FENCED,
    own::VALUE_FREED_EARLY,
    own::VALUE_ENDED_EARLY,
    own::VALUE_MOVED_BLINDLY,
    VALUES_NOT_SETTLED,
];

/// Faults that show in histories of threads.
pub const OF_THREADS: &[PlantedFault] =
    &[own::REPLAY_IGNORES_NUMBERS, own::PUBLISHED_BEFORE_SYNC, own::READS_BEFORE_PENDING];

/// Faults that damage shows.
pub const OF_DAMAGE: &[PlantedFault] =
    &[own::LOG_END_IGNORED, own::LOG_COUNT_IGNORED, own::END_HINT_IGNORED, pool::SALVAGE_FORGOTTEN];

/// Faults that show at another durability or in tests of their own.
pub const OF_OTHER_TESTS: &[PlantedFault] = &[
    PUBLISHED_UNCHECKED,
    own::ANSWERED_BEFORE_SYNC,
    own::SUCCESSOR_EARLY,
    own::HOLE_SKIPPED,
    own::UNMET_BATCH_LOGGED,
    own::RANGE_NOT_LOCKED,
    own::MANIFEST_KEPT,
    own::MANIFEST_NOT_WIPED,
];
