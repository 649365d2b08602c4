//! Planted faults: what the crash explorer must be able to see.
//!
//! Engines and the pool ask [`Pool::mutant`](crate::Pool::mutant) at the places named here. Without
//! the feature `sim` the answer is a constant `false` and the fault is compiled away; with it, one
//! fault at most is active in a pool, chosen by its `SimSpec`. Each name is one of the bug
//! classes that studies of persistent-memory programs report (Agamotto, OSDI 2020; Witcher, SOSP 2021).

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
    /// The entry is flushed but the operation returns before the fence.
    NoFenceAfterEntry = 4,
    /// The entry is published first, the record written after it.
    PublishBeforeRecord = 5,
    /// The space of a replaced record goes back at once, before its unlinking is durable.
    ReuseBeforeDurable = 6,
    /// Recovery takes a half-written 16-byte entry for a live one.
    TornEntryAccepted = 7,
    /// Recovery completes a half-done split in a way that a second run of it does wrong.
    SplitRecoveryTwice = 8,
    /// Recovery ignores a half-done split.
    SplitRecoverySkipped = 9,
    /// A split points the directory at the sibling before the sibling is durable.
    SplitFlipsEarly = 10,
    /// An extent is used before its word in the extent table is durable.
    ExtentWordLate = 11,
    /// The pool header is rewritten in place, in its only valid copy.
    HeaderInPlace = 12,
    /// The checksum of the pool header is not looked at.
    HeaderChecksumIgnored = 13,
    /// The clean flag stays set while the pool is open.
    CleanFlagKept = 14,
    /// A region is used before the header names it.
    RegionNotInHeader = 15,
    /// A delete is acknowledged before the cleared entry is flushed.
    DeleteNotFlushed = 16,
    /// An update swaps the halves of its entry one by one, in place of one 16-byte swap.
    EntryInHalves = 17,
    /// The checkpoint of a clean stop is trusted although the store was written after it.
    StaleCheckpointTrusted = 18,
    /// An expired key's space is swept before the cleared entry is durable.
    SweepBeforeDurable = 19,
    /// A reader answers from an entry that is not durable yet, without persisting it first.
    ReadUnpersisted = 20,
    /// A record's space is not marked in recovery, so that it is handed out again.
    RecordNotMarked = 21,
    /// A split's children forget entries that were to be moved to the sibling.
    SplitDropsEntry = 22,
    /// The root of a new store is published before what it points to is durable.
    RootEarly = 23,
    /// The pool header says that the engine finished its creation before the engine did.
    CreatedEarly = 28,
    /// An open builds on extent words that a killed process stored and did not flush.
    TableNotSettled = 29,
    /// An open builds on, and answers from, entries and directories that a killed process stored and did not flush.
    EntriesNotSettled = 30,
    /// A batch is published before its log record is durable.
    BatchNotLogged = 31,
    /// The log record of a batch stays armed when the batch is over.
    BatchLogNotDisarmed = 32,
    /// An open disarms the log record of a batch and does not do the batch again.
    BatchRedoSkipped = 33,
    /// An open builds on log records that a killed process stored, or disarmed, and did not flush.
    BatchLogNotSettled = 34,
    /// A table that grows is named before its first lines are durable.
    GrowthRootEarly = 35,
    /// A growing table's cursor passes keys before their copies are made.
    GrowthCursorEarly = 36,
    /// A growing table's cursor is stored before the copies that it vouches for are durable.
    GrowthNotFenced = 37,
    /// The lines of a growing table are used without having been freed of what stood there.
    GrowthNotZeroed = 38,
    /// Slots of moved keys stay in lines of the old table that are still in use.
    GrowthLeftKept = 39,
    /// An open keeps the copies of a step of growing that a crash cut off.
    GrowthCopiesKept = 40,
    /// A slot behind its home line is published before the home line's reach is durable.
    ReachNotFlushed = 41,
    /// A record is published although the sync of its bytes has failed.
    PublishedUnchecked = 43,
    /// A step of growth, or a split, is published although the sync of its copies has failed.
    GrowthUnchecked = 44,
    /// An open does not flush again what a killed process may have cleared in growing tables and not flushed.
    GrowthNotSettled = 42,
    /// A manifest becomes the store's before its checkpoint is durable.
    ManifestNotFenced = 65,
    /// A change of the manifest is built on before it is durable.
    EditNotFenced = 66,
    /// An extent of a manifest's chain is linked before its header is durable.
    LinkEarly = 86,
    /// No fault: each open finds no room for a new manifest, and goes on with the old one.
    ManifestKept = 110,
    /// The same, and what a crash cut off at the old one's end is left there.
    ManifestNotWiped = 111,
    /// A table is named before it is durable.
    TableNotFenced = 67,
    /// The space of a compacted table is used again before the manifest has forgotten it.
    TableFreedEarly = 68,
    /// The space of a flushed log is used again before the manifest names its tables.
    LogFreedEarly = 69,
    /// A replay takes the entries as they come, whatever their numbers.
    ReplayIgnoresNumbers = 71,
    /// An open builds on log records that a killed process stored and did not flush.
    LogNotSettled = 72,
    /// An open builds on manifest records that a killed process stored and did not flush.
    ManifestNotSettled = 73,
    /// A write of a group is in the index before the group is durable.
    PublishedBeforeSync = 74,
    /// A write is answered before its group is durable.
    AnsweredBeforeSync = 75,
    /// A log segment is begun before what stands before it in the log is durable.
    SuccessorEarly = 76,
    /// A write that reads first does not wait for those of its key that are stored and not published.
    ReadsBeforePending = 77,
    /// A replay goes on behind a record that is not whole.
    HoleSkipped = 78,
    /// The mark of how far a manifest reaches is stored before the record that it tells of is durable.
    ReachEarly = 79,
    /// A log entry points to a value that is not durable yet.
    ValueNotFenced = 81,
    /// A collected segment is used for something else before the entries of what moved are durable.
    ValueFreedEarly = 82,
    /// The manifest forgets a segment before its live values have moved.
    ValueEndedEarly = 83,
    /// A collection moves values whatever became of their keys meanwhile.
    ValueMovedBlindly = 84,
    /// An open takes what a killed process stored in a value segment, and did not flush, for its end.
    ValuesNotSettled = 85,
    /// A flush names values that are not synced.
    ScatterNotSynced = 100,
    /// A collection names copies that are not synced.
    CopiesNotSynced = 101,
    /// A collected segment is written again before the pointers of what moved are durable.
    CollectedFreedEarly = 102,
    /// A segment is written again while a snapshot may come to what stood there.
    HoldsIgnored = 103,
    /// A collection takes the last version of a key in its group for the newest one, and turns its pointer.
    MovedUnasked = 104,
    /// A stored value is replaced although its key has been written meanwhile.
    ReplacedBlindly = 105,
    /// An open takes a segment for free whose pointers stand in the log only.
    LogPointersNotCounted = 106,
    /// The superblock of a values file is not durable before the store is in use.
    SuperblockEarly = 107,
    /// An open builds on a values file that was written and not synced.
    FileNotSettled = 108,
    /// Values that are separated late are named before they are synced.
    LateNotSynced = 109,
    /// A device of a matrix has an operation in its store before its log has it.
    OpLogBehindStore = 120,
    /// A matrix acknowledges a write when one device fewer has it than it takes.
    OpAckedByFewer = 121,
    /// A device's log says of an operation that the store has it, before it has.
    OpAppliedEarly = 122,
    /// A device's log lets go of operations that it does not durably say are in the store.
    OpEvictedEarly = 123,
    /// An open of a matrix does not do again what a device's log has.
    OpsNotRedone = 124,
    /// A member that caught up counts before the description says so.
    MemberBackUnsaid = 125,
    /// An open of a matrix gives operations numbers in the epoch before, and keeps its members.
    EpochNotBegun = 126,
    /// What a device has and its group has not is cut off its log before it says that it is partial.
    ForkCutUnsaid = 127,
    /// The filter that a clean stop of a matrix left is not taken away when it is opened.
    FilterLeftKept = 128,
    /// A matrix is opened only with all devices that were active.
    OpenAsksForAll = 129,
    /// A key that goes to another group of a matrix is removed from the old one before the new one has it.
    MovedDeletedFirst = 130,
    /// A salvage of a matrix does not mark what it gives up.
    GivenUpUnmarked = 161,
    /// A device of a matrix is replaced before the others have all that it acknowledged.
    ReplacedEarly = 131,
    /// The checksum of a record is not compared.
    RecordChecksumIgnored = 150,
    /// The index is not compared with the seal of a clean stop.
    SealIgnored = 151,
    /// A replay takes the end of a log's whole records for the log's end.
    LogEndIgnored = 152,
    /// An open takes any number of log segments of a generation for all of them.
    LogCountIgnored = 153,
    /// End hints of log segments are not read.
    EndHintIgnored = 154,
    /// A salvage that left something out does not mark the store as damaged.
    SalvageForgotten = 157,
    /// A conditional batch is written although a condition is not met.
    ConditionIgnored = 158,
    /// A batch whose condition is not met is appended to the log, and not published.
    UnmetBatchLogged = 159,
    /// A condition on a range locks the stripes of the batch alone. Other keys may come into the
    /// range between check and write.
    RangeNotLocked = 160,
    /// The check that ties an index entry to its record and its place is not compared.
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
    /// The toy log: recovery appends what it has appended already.
    ToyRecoveryTwice = 27,
}

impl Mutant {
    /// All of them.
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
