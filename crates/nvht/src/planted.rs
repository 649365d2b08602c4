//! Planted faults of the engine's logic. Faults of flushes and fences are in `lab/sim`.

use lodestore_media::PlantedFault;

/// The space of a replaced record is freed at once, before its unlinking is durable.
pub const REUSE_BEFORE_DURABLE: PlantedFault = PlantedFault::new("ReuseBeforeDurable");
/// Slots of moved keys stay in lines of the old table that are still in use.
pub const GROWTH_LEFT_KEPT: PlantedFault = PlantedFault::new("GrowthLeftKept");
/// An open keeps the copies of a growth step that a crash interrupted.
pub const GROWTH_COPIES_KEPT: PlantedFault = PlantedFault::new("GrowthCopiesKept");
/// The counts of a clean stop are trusted although the store was written after it.
pub const STALE_CHECKPOINT_TRUSTED: PlantedFault = PlantedFault::new("StaleCheckpointTrusted");
/// A record's space is not marked in recovery, so it is allocated again.
pub const RECORD_NOT_MARKED: PlantedFault = PlantedFault::new("RecordNotMarked");
/// The check that ties an index entry to its record and its position is not compared.
pub const ENTRY_CHECK_IGNORED: PlantedFault = PlantedFault::new("EntryCheckIgnored");

/// All of them.
pub const ALL: [PlantedFault; 6] = [
    REUSE_BEFORE_DURABLE,
    GROWTH_LEFT_KEPT,
    GROWTH_COPIES_KEPT,
    STALE_CHECKPOINT_TRUSTED,
    RECORD_NOT_MARKED,
    ENTRY_CHECK_IGNORED,
];
