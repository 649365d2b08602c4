//! Planted faults of the engine's logic. Faults of flushes and fences are in `lab/sim`.

use lodestore_media::PlantedFault;

/// The space of a replaced record is freed at once, before its unlinking is durable.
pub const REUSE_BEFORE_DURABLE: PlantedFault = PlantedFault::new("ReuseBeforeDurable");
/// Recovery accepts a half-written 16-byte entry as live.
pub const TORN_ENTRY_ACCEPTED: PlantedFault = PlantedFault::new("TornEntryAccepted");
/// Recovery ignores a half-done split.
pub const SPLIT_RECOVERY_SKIPPED: PlantedFault = PlantedFault::new("SplitRecoverySkipped");
/// A split's children lose entries that were to be moved to the sibling.
pub const SPLIT_DROPS_ENTRY: PlantedFault = PlantedFault::new("SplitDropsEntry");
/// The sorted run of a clean stop is trusted although the store was written after it.
pub const STALE_CHECKPOINT_TRUSTED: PlantedFault = PlantedFault::new("StaleCheckpointTrusted");
/// A record's space is not marked in recovery, so it is allocated again.
pub const RECORD_NOT_MARKED: PlantedFault = PlantedFault::new("RecordNotMarked");
/// The check that ties an index entry to its record and its position is not compared.
pub const ENTRY_CHECK_IGNORED: PlantedFault = PlantedFault::new("EntryCheckIgnored");

/// All of them.
pub const ALL: [PlantedFault; 7] = [
    REUSE_BEFORE_DURABLE,
    TORN_ENTRY_ACCEPTED,
    SPLIT_RECOVERY_SKIPPED,
    SPLIT_DROPS_ENTRY,
    STALE_CHECKPOINT_TRUSTED,
    RECORD_NOT_MARKED,
    ENTRY_CHECK_IGNORED,
];
