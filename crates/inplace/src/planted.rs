//! Planted faults of the logic that in-place engines share. Faults of flushes and fences are in
//! `lab/sim`.

use lodestore_media::PlantedFault;

/// The pool header marks the engine's creation as finished before it is.
pub const CREATED_EARLY: PlantedFault = PlantedFault::new("CreatedEarly");
/// An open builds on, and serves, entries and directories that a killed process stored without
/// flushing.
pub const ENTRIES_NOT_SETTLED: PlantedFault = PlantedFault::new("EntriesNotSettled");
/// A conditional batch is written although a condition is not met.
pub const CONDITION_IGNORED: PlantedFault = PlantedFault::new("ConditionIgnored");
/// The checksum of a record is not compared.
pub const RECORD_CHECKSUM_IGNORED: PlantedFault = PlantedFault::new("RecordChecksumIgnored");
/// The index is not compared with the seal of a clean stop.
pub const SEAL_IGNORED: PlantedFault = PlantedFault::new("SealIgnored");
/// An open changes the index under a seal that is in force.
pub const SEAL_HEAD_KEPT: PlantedFault = PlantedFault::new("SealHeadKept");

/// All of them.
pub const ALL: [PlantedFault; 6] =
    [CREATED_EARLY, ENTRIES_NOT_SETTLED, CONDITION_IGNORED, RECORD_CHECKSUM_IGNORED, SEAL_IGNORED, SEAL_HEAD_KEPT];
