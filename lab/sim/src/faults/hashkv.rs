//! Faults of HashKV.

use lodestore_fluidkv::planted as index;
use lodestore_hashkv::planted as own;
use lodestore_media::sim::Source;
use lodestore_media::{PlantedFault, planted as pool, source};

const GC: Source = source!("../../crates/hashkv/src/gc.rs");
const LATE: Source = source!("../../crates/hashkv/src/late_separation.rs");
const RECOVER: Source = source!("../../crates/hashkv/src/recover.rs");
const SEPARATOR: Source = source!("../../crates/hashkv/src/separator.rs");

/// A flush names values that are not synced.
pub const SCATTER_NOT_SYNCED: PlantedFault =
    PlantedFault::at("ScatterNotSynced", &[SEPARATOR.line("self.append(&items, ").without_fence()]);
/// A garbage collection names copies that are not synced.
pub const COPIES_NOT_SYNCED: PlantedFault =
    PlantedFault::at("CopiesNotSynced", &[GC.line("self.append(&items, ").without_fence()]);
/// Values that are separated late are named before they are synced.
pub const LATE_NOT_SYNCED: PlantedFault =
    PlantedFault::at("LateNotSynced", &[LATE.line("self.append(&items, ").without_fence()]);
/// The superblock of a values file is not durable before the store is in use.
pub const SUPERBLOCK_EARLY: PlantedFault = PlantedFault::at(
    "SuperblockEarly",
    &[RECOVER.line_after("write_superblock(file, superblock)?;", "file.sync_now()").without_fence()],
);
/// An open builds on a values file that was written but not synced.
pub const FILE_NOT_SETTLED: PlantedFault =
    PlantedFault::at("FileNotSettled", &[RECOVER.line("let writing = || BlockFile::open(").without_fence()]);

/// Faults that an exploration of crashes sees.
pub const OF_CRASHES: &[PlantedFault] = &[
    SCATTER_NOT_SYNCED,
    COPIES_NOT_SYNCED,
    own::COLLECTED_FREED_EARLY,
    own::MOVED_UNASKED,
    index::LOG_POINTERS_NOT_COUNTED,
    SUPERBLOCK_EARLY,
    LATE_NOT_SYNCED,
];

/// Faults that damage shows.
pub const OF_DAMAGE: &[PlantedFault] =
    &[index::LOG_END_IGNORED, index::LOG_COUNT_IGNORED, index::END_HINT_IGNORED, pool::SALVAGE_FORGOTTEN];

/// Faults that show in tests of their own.
pub const OF_OTHER_TESTS: &[PlantedFault] =
    &[own::HOLDS_IGNORED, index::REPLACED_BLINDLY, index::CONDITION_IGNORED, index::RANGE_NOT_LOCKED, FILE_NOT_SETTLED];
