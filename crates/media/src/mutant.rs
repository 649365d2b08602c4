//! Planted faults that the crash explorer must detect.
//!
//! Engines and the pool call [`Pool::mutant`](crate::Pool::mutant) at the code described here.
//! Without the feature `sim` the result is a constant `false` and the fault is compiled away. With
//! it, at most one fault is active in a pool, chosen by its `SimSpec`. Each name is a bug class
//! that studies of persistent-memory programs report (Agamotto, OSDI 2020; Witcher, SOSP 2021).

/// One planted fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Mutant {
    /// A record's bytes are stored but never flushed (missing flush of the payload).
    RecordNotFlushed = 1,
    /// No fence between the record and the entry that points to it (missing fence before publish).
    NoFenceBeforePublish = 2,
    /// The entry is stored but not flushed (acknowledged before it is durable).
    EntryNotFlushed = 3,
    /// The entry is flushed, but the operation returns before the fence.
    NoFenceAfterEntry = 4,
    /// The entry is published first, the record written after it.
    PublishBeforeRecord = 5,
    /// The space of a replaced record is freed at once, before its unlinking is durable.
    ReuseBeforeDurable = 6,
    /// Recovery accepts a half-written 16-byte entry as live.
    TornEntryAccepted = 7,
    /// Recovery completes a half-done split in a way that fails if it runs twice.
    SplitRecoveryTwice = 8,
    /// Recovery ignores a half-done split.
    SplitRecoverySkipped = 9,
    /// A split points the directory at the sibling before the sibling is durable.
    SplitFlipsEarly = 10,
    /// An extent is used before its word in the extent table is durable.
    ExtentWordLate = 11,
    /// The pool header is rewritten in place, in its only valid copy.
    HeaderInPlace = 12,
    /// The checksum of the pool header is not checked.
    HeaderChecksumIgnored = 13,
    /// The clean flag stays set while the pool is open.
    CleanFlagKept = 14,
    /// A region is used before the header names it.
    RegionNotInHeader = 15,
    /// A delete is acknowledged before the cleared entry is flushed.
    DeleteNotFlushed = 16,
    /// An update swaps the halves of its entry one by one, instead of by one 16-byte swap.
    EntryInHalves = 17,
    /// The checkpoint of a clean stop is trusted although the store was written after it.
    StaleCheckpointTrusted = 18,
    /// An expired key's space is freed before the cleared entry is durable.
    SweepBeforeDurable = 19,
    /// A reader serves an entry that is not durable yet, without persisting it first.
    ReadUnpersisted = 20,
    /// A record's space is not marked in recovery, so it is allocated again.
    RecordNotMarked = 21,
    /// A split's children lose entries that were to be moved to the sibling.
    SplitDropsEntry = 22,
    /// The root of a new store is published before the data it points to is durable.
    RootEarly = 23,
    /// The pool header marks the engine's creation as finished before it is.
    CreatedEarly = 28,
    /// An open builds on extent words that a killed process stored without flushing.
    TableNotSettled = 29,
    /// An open builds on, and serves, entries and directories that a killed process stored without
    /// flushing.
    EntriesNotSettled = 30,
    /// A batch is published before its log record is durable.
    BatchNotLogged = 31,
    /// The log record of a batch stays armed after the batch.
    BatchLogNotDisarmed = 32,
    /// An open disarms the log record of a batch without replaying the batch.
    BatchRedoSkipped = 33,
    /// An open builds on log records that a killed process stored or disarmed without flushing.
    BatchLogNotSettled = 34,
    /// A growing table is named before its first lines are durable.
    GrowthRootEarly = 35,
    /// The cursor of a growing table passes keys before their copies are made.
    GrowthCursorEarly = 36,
    /// The cursor of a growing table is stored before the copies that it vouches for are durable.
    GrowthNotFenced = 37,
    /// The lines of a growing table are used without clearing their old content.
    GrowthNotZeroed = 38,
    /// Slots of moved keys stay in lines of the old table that are still in use.
    GrowthLeftKept = 39,
    /// An open keeps the copies of a growth step that a crash interrupted.
    GrowthCopiesKept = 40,
    /// A slot after its home line is published before the home line's probe limit is durable.
    ReachNotFlushed = 41,
    /// A record is published although the sync of its bytes has failed.
    PublishedUnchecked = 43,
    /// A growth step, or a split, is published although the sync of its copies has failed.
    GrowthUnchecked = 44,
    /// An open does not flush again words in growing tables that a killed process may have cleared
    /// without flushing.
    GrowthNotSettled = 42,
    /// A manifest becomes the store's current one before its checkpoint is durable.
    ManifestNotFenced = 65,
    /// A change of the manifest is used before it is durable.
    EditNotFenced = 66,
    /// An extent of a manifest's chain is linked before its header is durable.
    LinkEarly = 86,
    /// No fault: a new manifest never fits at an open, which continues with the old one.
    ManifestKept = 110,
    /// Like `ManifestKept`, and the part that a crash cut off at the old manifest's end stays.
    ManifestNotWiped = 111,
    /// A table is named before it is durable.
    TableNotFenced = 67,
    /// The space of a compacted table is reused before the manifest has dropped the table.
    TableFreedEarly = 68,
    /// The space of a flushed log is reused before the manifest names its tables.
    LogFreedEarly = 69,
    /// A replay applies entries in the order of the log, ignoring their sequence numbers.
    ReplayIgnoresNumbers = 71,
    /// An open builds on log records that a killed process stored without flushing.
    LogNotSettled = 72,
    /// An open builds on manifest records that a killed process stored without flushing.
    ManifestNotSettled = 73,
    /// A write of a group is in the index before the group is durable.
    PublishedBeforeSync = 74,
    /// A write is acknowledged before its group is durable.
    AnsweredBeforeSync = 75,
    /// A log segment is begun before the log's earlier entries are durable.
    SuccessorEarly = 76,
    /// A write that reads first does not wait for stored but unpublished writes of its key.
    ReadsBeforePending = 77,
    /// A replay continues after a record that is not whole.
    HoleSkipped = 78,
    /// The mark of a manifest's length is stored before the record that it covers is durable.
    ReachEarly = 79,
    /// A log entry points to a value that is not durable yet.
    ValueNotFenced = 81,
    /// A collected segment is reused before the entries of the moved values are durable.
    ValueFreedEarly = 82,
    /// The manifest drops a segment before its live values have moved.
    ValueEndedEarly = 83,
    /// A garbage collection moves values without checking whether their keys changed meanwhile.
    ValueMovedBlindly = 84,
    /// An open accepts unflushed content of a killed process as the end of a value segment.
    ValuesNotSettled = 85,
    /// A flush names values that are not synced.
    ScatterNotSynced = 100,
    /// A garbage collection names copies that are not synced.
    CopiesNotSynced = 101,
    /// A collected segment is written again before the pointers to the moved values are durable.
    CollectedFreedEarly = 102,
    /// A segment is written again while a snapshot may still read its old content.
    HoldsIgnored = 103,
    /// A garbage collection assumes that the last version of a key in its group is the newest, and
    /// changes its pointer.
    MovedUnasked = 104,
    /// A stored value is replaced although its key has been written meanwhile.
    ReplacedBlindly = 105,
    /// An open treats a segment as free whose pointers are in the log only.
    LogPointersNotCounted = 106,
    /// The superblock of a values file is not durable before the store is in use.
    SuperblockEarly = 107,
    /// An open builds on a values file that was written but not synced.
    FileNotSettled = 108,
    /// Values that are separated late are named before they are synced.
    LateNotSynced = 109,
    /// A device of a matrix applies an operation to its store before its log has the operation.
    OpLogBehindStore = 120,
    /// A matrix acknowledges a write when one device fewer than required has it.
    OpAckedByFewer = 121,
    /// A device's log marks an operation as applied before the store has it.
    OpAppliedEarly = 122,
    /// A device's log evicts operations that it has not durably marked as applied to the store.
    OpEvictedEarly = 123,
    /// An open of a matrix does not replay a device's log.
    OpsNotRedone = 124,
    /// A member that caught up counts before the description records it.
    MemberBackUnsaid = 125,
    /// An open of a matrix numbers operations in the previous epoch, and keeps its members.
    EpochNotBegun = 126,
    /// Operations that a device has and its group lacks are cut off its log before the device is
    /// marked as partial.
    ForkCutUnsaid = 127,
    /// The filter that a clean stop of a matrix left is not removed at the open.
    FilterLeftKept = 128,
    /// A matrix is opened only with all devices that were active.
    OpenAsksForAll = 129,
    /// A key that moves to another group of a matrix is removed from the old group before the new
    /// one has it.
    MovedDeletedFirst = 130,
    /// A salvage of a matrix does not mark the data that it gives up.
    GivenUpUnmarked = 161,
    /// A device of a matrix is replaced before the others have everything that it acknowledged.
    ReplacedEarly = 131,
    /// The checksum of a record is not compared.
    RecordChecksumIgnored = 150,
    /// The index is not compared with the seal of a clean stop.
    SealIgnored = 151,
    /// A replay accepts the end of a log's whole records as the log's end.
    LogEndIgnored = 152,
    /// An open accepts any number of log segments of a generation as complete.
    LogCountIgnored = 153,
    /// End hints of log segments are not read.
    EndHintIgnored = 154,
    /// A salvage that left data out does not mark the store as damaged.
    SalvageForgotten = 157,
    /// A conditional batch is written although a condition is not met.
    ConditionIgnored = 158,
    /// A batch with an unmet condition is appended to the log, but not published.
    UnmetBatchLogged = 159,
    /// A condition on a range locks only the stripes of the batch. Other keys may enter the range
    /// between check and write.
    RangeNotLocked = 160,
    /// The check that ties an index entry to its record and its position is not compared.
    EntryCheckIgnored = 155,
    /// An open changes the index under a seal that is in force.
    SealHeadKept = 156,
    /// A raise of the generation ends before the region headers that have it are durable.
    GenerationNotFlushed = 140,
    /// The toy log of the simulator's own tests: length before data.
    ToyLengthFirst = 24,
    /// The toy log: data not flushed.
    ToyDataNotFlushed = 25,
    /// The toy log: length not fenced.
    ToyLengthNotFenced = 26,
    /// The toy log: recovery appends data that it has already appended.
    ToyRecoveryTwice = 27,
}

impl Mutant {
    /// All planted faults.
    pub const ALL: [Self; 101] = [
        Self::RecordNotFlushed,
        Self::NoFenceBeforePublish,
        Self::EntryNotFlushed,
        Self::NoFenceAfterEntry,
        Self::PublishBeforeRecord,
        Self::ReuseBeforeDurable,
        Self::TornEntryAccepted,
        Self::SplitRecoveryTwice,
        Self::SplitRecoverySkipped,
        Self::SplitFlipsEarly,
        Self::ExtentWordLate,
        Self::HeaderInPlace,
        Self::HeaderChecksumIgnored,
        Self::CleanFlagKept,
        Self::RegionNotInHeader,
        Self::DeleteNotFlushed,
        Self::EntryInHalves,
        Self::StaleCheckpointTrusted,
        Self::SweepBeforeDurable,
        Self::ReadUnpersisted,
        Self::RecordNotMarked,
        Self::SplitDropsEntry,
        Self::RootEarly,
        Self::CreatedEarly,
        Self::TableNotSettled,
        Self::EntriesNotSettled,
        Self::GrowthRootEarly,
        Self::GrowthCursorEarly,
        Self::GrowthNotFenced,
        Self::GrowthNotZeroed,
        Self::GrowthLeftKept,
        Self::GrowthCopiesKept,
        Self::ReachNotFlushed,
        Self::PublishedUnchecked,
        Self::GrowthUnchecked,
        Self::GrowthNotSettled,
        Self::BatchNotLogged,
        Self::BatchLogNotDisarmed,
        Self::BatchRedoSkipped,
        Self::BatchLogNotSettled,
        Self::ManifestNotFenced,
        Self::EditNotFenced,
        Self::LinkEarly,
        Self::ManifestKept,
        Self::ManifestNotWiped,
        Self::TableNotFenced,
        Self::TableFreedEarly,
        Self::LogFreedEarly,
        Self::ReplayIgnoresNumbers,
        Self::LogNotSettled,
        Self::ManifestNotSettled,
        Self::PublishedBeforeSync,
        Self::AnsweredBeforeSync,
        Self::SuccessorEarly,
        Self::ReadsBeforePending,
        Self::HoleSkipped,
        Self::ReachEarly,
        Self::ValueNotFenced,
        Self::ValueFreedEarly,
        Self::ValueEndedEarly,
        Self::ValueMovedBlindly,
        Self::ValuesNotSettled,
        Self::ScatterNotSynced,
        Self::CopiesNotSynced,
        Self::CollectedFreedEarly,
        Self::HoldsIgnored,
        Self::MovedUnasked,
        Self::ReplacedBlindly,
        Self::LogPointersNotCounted,
        Self::SuperblockEarly,
        Self::FileNotSettled,
        Self::LateNotSynced,
        Self::OpLogBehindStore,
        Self::OpAckedByFewer,
        Self::OpAppliedEarly,
        Self::OpEvictedEarly,
        Self::OpsNotRedone,
        Self::MemberBackUnsaid,
        Self::EpochNotBegun,
        Self::ForkCutUnsaid,
        Self::FilterLeftKept,
        Self::OpenAsksForAll,
        Self::MovedDeletedFirst,
        Self::ReplacedEarly,
        Self::GivenUpUnmarked,
        Self::RecordChecksumIgnored,
        Self::SealIgnored,
        Self::LogEndIgnored,
        Self::LogCountIgnored,
        Self::EndHintIgnored,
        Self::SalvageForgotten,
        Self::ConditionIgnored,
        Self::UnmetBatchLogged,
        Self::RangeNotLocked,
        Self::EntryCheckIgnored,
        Self::SealHeadKept,
        Self::GenerationNotFlushed,
        Self::ToyLengthFirst,
        Self::ToyDataNotFlushed,
        Self::ToyLengthNotFenced,
        Self::ToyRecoveryTwice,
    ];
}
