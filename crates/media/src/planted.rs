//! Planted faults of the pool's own logic. Faults of its flushes and fences are in `lab/sim`.

use crate::fault::PlantedFault;

/// The checksum of the pool header is not checked.
pub const HEADER_CHECKSUM_IGNORED: PlantedFault = PlantedFault::new("HeaderChecksumIgnored");
/// The clean flag stays set while the pool is open.
pub const CLEAN_FLAG_KEPT: PlantedFault = PlantedFault::new("CleanFlagKept");
/// A region is used before the header names it.
pub const REGION_NOT_IN_HEADER: PlantedFault = PlantedFault::new("RegionNotInHeader");
/// The occupancy of a clean stop is trusted although the store was written after it.
pub const STALE_CHECKPOINT_TRUSTED: PlantedFault = PlantedFault::new("StaleCheckpointTrusted");
/// An open disarms the log record of a batch without replaying the batch.
pub const BATCH_REDO_SKIPPED: PlantedFault = PlantedFault::new("BatchRedoSkipped");
/// An open builds on log records that a killed process stored or disarmed without flushing.
pub const BATCH_LOG_NOT_SETTLED: PlantedFault = PlantedFault::new("BatchLogNotSettled");
/// A salvage that left data out does not mark the store as damaged.
pub const SALVAGE_FORGOTTEN: PlantedFault = PlantedFault::new("SalvageForgotten");

/// All of them.
pub const ALL: [PlantedFault; 7] = [
    HEADER_CHECKSUM_IGNORED,
    CLEAN_FLAG_KEPT,
    REGION_NOT_IN_HEADER,
    STALE_CHECKPOINT_TRUSTED,
    BATCH_REDO_SKIPPED,
    BATCH_LOG_NOT_SETTLED,
    SALVAGE_FORGOTTEN,
];
