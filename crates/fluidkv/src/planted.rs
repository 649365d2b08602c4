//! Planted faults of the engine's logic. Faults of flushes and fences are in `lab/sim`.

use lodestore_media::PlantedFault;

/// The space of a table is not marked in recovery, so it is allocated again.
pub const RECORD_NOT_MARKED: PlantedFault = PlantedFault::new("RecordNotMarked");
/// A new manifest is published before its checkpoint is stored.
pub const ROOT_EARLY: PlantedFault = PlantedFault::new("RootEarly");
/// A conditional batch is written although a condition is not met.
pub const CONDITION_IGNORED: PlantedFault = PlantedFault::new("ConditionIgnored");
/// A batch with an unmet condition is appended to the log, but not published.
pub const UNMET_BATCH_LOGGED: PlantedFault = PlantedFault::new("UnmetBatchLogged");
/// A condition on a range locks only the stripes of the batch. Other keys may enter the range
/// between check and write.
pub const RANGE_NOT_LOCKED: PlantedFault = PlantedFault::new("RangeNotLocked");
/// A batch of a group is published before its log record is durable.
pub const BATCH_NOT_LOGGED: PlantedFault = PlantedFault::new("BatchNotLogged");
/// No fault: a new manifest never fits at an open, which continues with the old one.
pub const MANIFEST_KEPT: PlantedFault = PlantedFault::new("ManifestKept");
/// Like `ManifestKept`, and the part that a crash cut off at the old manifest's end stays.
pub const MANIFEST_NOT_WIPED: PlantedFault = PlantedFault::new("ManifestNotWiped");
/// The mark of a manifest's length is stored before the record that it covers is durable.
pub const REACH_EARLY: PlantedFault = PlantedFault::new("ReachEarly");
/// The space of a compacted table is reused before the manifest has dropped the table.
pub const TABLE_FREED_EARLY: PlantedFault = PlantedFault::new("TableFreedEarly");
/// The space of a flushed log is reused before the manifest names its tables.
pub const LOG_FREED_EARLY: PlantedFault = PlantedFault::new("LogFreedEarly");
/// A replay applies entries in the order of the log, ignoring their sequence numbers.
pub const REPLAY_IGNORES_NUMBERS: PlantedFault = PlantedFault::new("ReplayIgnoresNumbers");
/// A write of a group is in the index before the group is durable.
pub const PUBLISHED_BEFORE_SYNC: PlantedFault = PlantedFault::new("PublishedBeforeSync");
/// A write is acknowledged before its group is durable.
pub const ANSWERED_BEFORE_SYNC: PlantedFault = PlantedFault::new("AnsweredBeforeSync");
/// A log segment is begun before the log's earlier entries are durable.
pub const SUCCESSOR_EARLY: PlantedFault = PlantedFault::new("SuccessorEarly");
/// A write that reads first does not wait for stored but unpublished writes of its key.
pub const READS_BEFORE_PENDING: PlantedFault = PlantedFault::new("ReadsBeforePending");
/// A replay continues after a record that is not whole.
pub const HOLE_SKIPPED: PlantedFault = PlantedFault::new("HoleSkipped");
/// A collected segment is reused before the entries of the moved values are durable.
pub const VALUE_FREED_EARLY: PlantedFault = PlantedFault::new("ValueFreedEarly");
/// The manifest drops a segment before its live values have moved.
pub const VALUE_ENDED_EARLY: PlantedFault = PlantedFault::new("ValueEndedEarly");
/// A garbage collection moves values without checking whether their keys changed meanwhile.
pub const VALUE_MOVED_BLINDLY: PlantedFault = PlantedFault::new("ValueMovedBlindly");
/// A stored value is replaced although its key has been written meanwhile.
pub const REPLACED_BLINDLY: PlantedFault = PlantedFault::new("ReplacedBlindly");
/// An open treats a segment as free whose pointers are in the log only.
pub const LOG_POINTERS_NOT_COUNTED: PlantedFault = PlantedFault::new("LogPointersNotCounted");
/// A replay accepts the end of a log's whole records as the log's end.
pub const LOG_END_IGNORED: PlantedFault = PlantedFault::new("LogEndIgnored");
/// An open accepts any number of log segments of a generation as complete.
pub const LOG_COUNT_IGNORED: PlantedFault = PlantedFault::new("LogCountIgnored");
/// End hints of log segments are not read.
pub const END_HINT_IGNORED: PlantedFault = PlantedFault::new("EndHintIgnored");

/// All of them.
pub const ALL: [PlantedFault; 25] = [
    RECORD_NOT_MARKED,
    ROOT_EARLY,
    CONDITION_IGNORED,
    UNMET_BATCH_LOGGED,
    RANGE_NOT_LOCKED,
    BATCH_NOT_LOGGED,
    MANIFEST_KEPT,
    MANIFEST_NOT_WIPED,
    REACH_EARLY,
    TABLE_FREED_EARLY,
    LOG_FREED_EARLY,
    REPLAY_IGNORES_NUMBERS,
    PUBLISHED_BEFORE_SYNC,
    ANSWERED_BEFORE_SYNC,
    SUCCESSOR_EARLY,
    READS_BEFORE_PENDING,
    HOLE_SKIPPED,
    VALUE_FREED_EARLY,
    VALUE_ENDED_EARLY,
    VALUE_MOVED_BLINDLY,
    REPLACED_BLINDLY,
    LOG_POINTERS_NOT_COUNTED,
    LOG_END_IGNORED,
    LOG_COUNT_IGNORED,
    END_HINT_IGNORED,
];
