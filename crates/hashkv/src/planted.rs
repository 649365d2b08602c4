//! Planted faults of the engine's logic. Faults of syncs are in `lab/sim`.

use lodestore_media::PlantedFault;

/// A collected segment is written again before the pointers to the moved values are durable.
pub const COLLECTED_FREED_EARLY: PlantedFault = PlantedFault::new("CollectedFreedEarly");
/// A segment is written again while a snapshot may still read its old content.
pub const HOLDS_IGNORED: PlantedFault = PlantedFault::new("HoldsIgnored");
/// A garbage collection assumes that the last version of a key in its group is the newest, and
/// changes its pointer.
pub const MOVED_UNASKED: PlantedFault = PlantedFault::new("MovedUnasked");

/// All of them.
pub const ALL: [PlantedFault; 3] = [COLLECTED_FREED_EARLY, HOLDS_IGNORED, MOVED_UNASKED];
