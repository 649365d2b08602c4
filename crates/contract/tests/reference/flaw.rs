//! The ways to break the contract, each small, each a mistake that an engine could make.

macro_rules! flaws {
    ($($(#[doc = $doc:literal])* $name:ident,)*) => {
        /// One mistake.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Flaw {
            $($(#[doc = $doc])* $name,)*
        }

        impl Flaw {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name),*];
        }
    };
}

flaws! {
    /// Delete says that it did, and does not.
    DeleteKeeps,
    /// Delete always says that the key was there.
    DeleteAlwaysTrue,
    /// Delete of an expired key says that it was there.
    DeleteSeesExpired,
    /// Delete removes every key that begins with its own.
    DeleteTakesPrefix,
    /// Insert writes over what is there.
    InsertOverwrites,
    /// Insert takes an expired key for present.
    InsertSeesExpired,
    /// Update writes where nothing is.
    UpdateInserts,
    /// Update brings an expired key back.
    UpdateSeesExpired,
    /// A value of no bytes is taken for absence.
    EmptyValueIsAbsent,
    /// Keys are compared up to their first zero byte.
    KeysEndAtZero,
    /// Only the first 255 bytes of a key count.
    KeysAreCutAt255,
    /// Keys of 64 KiB are refused.
    LongestKeyRefused,
    /// An empty key is taken.
    EmptyKeyTaken,
    /// A key of 64 KiB + 1 is taken.
    TooLongKeyTaken,
    /// A refused value has already removed the old one.
    RefusedValueDeletes,
    /// Values longer than 1 MiB lose their end.
    LargeValuesCut,
    /// A put of a shorter value leaves the tail of the longer one.
    ShorterPutLeavesTail,
    /// `get_into` adds to what the buffer holds.
    GetIntoAppends,
    /// `get_into` leaves the buffer as it is on a miss.
    GetIntoKeepsOnMiss,
    /// `get_into` gives the caller a new buffer.
    GetIntoAllocates,
    /// `get_with` shows the value twice.
    GetWithTwice,
    /// `get_with` shows an empty value on a miss.
    GetWithShowsMiss,
    /// Contains looks at the first byte of a key only.
    ContainsGuesses,
    /// `multi_get` answers hits only.
    MultiGetSkipsMisses,
    /// `multi_get` answers in the order of keys.
    MultiGetSorts,
    /// `multi_get` answers the same key once.
    MultiGetDropsDuplicates,
    /// `multi_get` looks at 64 keys at most.
    MultiGetStopsAt64,
    /// `multi_get` goes on beyond a refused key.
    MultiGetSkipsRefused,
    /// `multi_get` answers some keys, then refuses one.
    MultiGetRefusesLate,
    /// `for_each` shows the first key twice.
    ForEachTwice,
    /// `for_each` leaves out the last key.
    ForEachMissesLast,
    /// `for_each` does not stop when told.
    ForEachNeverStops,
    /// `for_each` shows expired keys.
    ForEachShowsExpired,
    /// `for_each_pair` shows no expiry.
    ForEachHidesExpiry,
    /// `for_each_pair` reads the values, lets others run, then reads the expiries.
    ForEachReadsExpiryLate,
    /// A scan shows no expiry.
    ScanHidesExpiry,
    /// A scan shows the expiry of the pair before.
    ScanShiftsExpiry,
    /// The get of a snapshot shows no expiry.
    SnapshotGetHidesExpiry,
    /// A snapshot shows the expiries of later.
    SnapshotExpiryFollows,
    /// Get shows expired keys.
    GetShowsExpired,
    /// Contains says yes to expired keys.
    ContainsShowsExpired,
    /// `multi_get` shows expired keys.
    MultiGetShowsExpired,
    /// Scans show expired keys.
    ScanShowsExpired,
    /// Expired keys use up a scan's limit.
    ScanCountsExpired,
    /// `expiry` tells of expired keys.
    ExpiryShowsExpired,
    /// Put keeps the old expiry.
    PutKeepsExpiry,
    /// Update takes `Forever` for `Keep`.
    UpdateKeepsExpiry,
    /// `compare_and_swap` takes `Forever` for `Keep`.
    SwapKeepsExpiry,
    /// `compare_and_swap` sees expired values.
    SwapSeesExpired,
    /// `update_with` sees expired values.
    UpdateWithSeesExpired,
    /// `update_with` drops the expiry it is given.
    UpdateWithDropsExpiry,
    /// Insert drops the expiry it is given.
    InsertDropsExpiry,
    /// Insert with `Keep` takes the expiry of the expired record that it replaces.
    InsertKeepsExpired,
    /// Update takes `Keep` for `Forever`.
    UpdateForgetsKept,
    /// Update drops the expiry it is given.
    UpdateDropsExpiry,
    /// Update reads the expiry that it keeps, lets others run, then writes.
    UpdateKeepNotAtomic,
    /// `compare_and_swap` takes `Keep` for `Forever`.
    SwapForgetsKept,
    /// `compare_and_swap` drops the expiry it is given.
    SwapDropsExpiry,
    /// `update_with` takes `Keep` for `Forever`.
    UpdateWithForgetsKept,
    /// `update_with` shows no expiry to its closure.
    UpdateWithHidesExpiry,
    /// A clean stop forgets when keys expire.
    CloseForgetsExpiry,
    /// An expiry of u64::MAX overflows into the past.
    FarExpiryOverflows,
    /// `compare_and_swap` reads, lets others run, then writes.
    SwapNotAtomic,
    /// `compare_and_swap` compares lengths only.
    SwapComparesLengths,
    /// `compare_and_swap` to absent says `Done` and does nothing.
    SwapNeverDeletes,
    /// `compare_and_swap` answers what was expected, not what is there.
    SwapTellsExpected,
    /// `update_with` reads, lets others run, then writes.
    UpdateWithNotAtomic,
    /// `update_with` runs its closure twice.
    UpdateWithRunsTwice,
    /// `update_with` takes `Keep` for `Delete`.
    UpdateWithKeepDeletes,
    /// Insert looks, lets others run, then writes.
    InsertNotAtomic,
    /// Delete looks, lets others run, then removes.
    DeleteNotAtomic,
    /// A scan leaves out its last entry.
    ScanSkipsLast,
    /// An included lower bound excludes.
    ScanExcludesFrom,
    /// An excluded upper bound includes.
    ScanIncludesTo,
    /// A backward scan takes its limit from the front.
    ScanLimitsBeforeReversing,
    /// A limit of 0 means none.
    ScanLimitZeroIsAll,
    /// Inverted bounds panic.
    ScanPanicsOnInverted,
    /// Keys are ordered as signed bytes.
    ScanOrdersSigned,
    /// `scan_each` does not count the entry that it was stopped at.
    ScanEachCountsShort,
    /// A scan misses the newest key until the next write.
    ScanLagsByOne,
    /// A scan under way follows the map by position, so that writes shift it.
    ScanWalksByPosition,
    /// `len` is one too many after an overwrite.
    LenCountsOverwrites,
    /// `stats` names another durability.
    StatsDurability,
    /// `stats` counts more space than there is.
    StatsSpace,
    /// `stats` never says that recovery is done.
    StatsNeverRecovered,
    /// Every put takes space for ever.
    SpaceLeaks,
    /// A full store drops the oldest key for the newest.
    FullEvicts,
    /// A put refused as full has removed the old value.
    FullDeletesOld,
    /// Deletes are refused in a full store.
    FullRefusesDeletes,
    /// A crash loses the last put.
    CrashLosesLastPut,
    /// A crash brings the last deleted key back.
    CrashBringsBackLastDelete,
    /// A closed store still answers.
    ClosedStillReads,
    /// Closing twice is an error.
    CloseTwiceFails,
    /// A store opens twice.
    OpensTwice,
    /// Opening where no store is makes one.
    OpenMakesAStore,
    /// Creating over a store removes it.
    CreateOverwrites,
    /// Checksums are not looked at.
    ChecksumUnchecked,
    /// A corrupt record is left out without a word.
    CorruptionUnreported,
    /// A corrupt record is a panic.
    CorruptionPanics,
    /// A batch stops at its first bad key, with the first half written.
    BatchHalfWritten,
    /// A batch deletes first and puts afterwards.
    BatchReorders,
    /// Of several operations of a batch on a key the first one counts.
    BatchFirstWins,
    /// A batch lets others run between its operations.
    BatchTorn,
    /// A batch that runs full keeps what fitted.
    BatchFullKeepsWhatFitted,
    /// A batch drops the expiries it is given.
    BatchDropsExpiry,
    /// The operations of a batch are not counted.
    BatchUncounted,
    /// A batch takes its last operation for a mistake where it deletes what is not there.
    BatchMindsAbsentKeys,
    /// An empty batch removes what was put last.
    BatchOfNothingUndoes,
    /// A batch is kept by a clean stop only: a crash takes its last key back.
    BatchEndsAtCrash,
    /// A batch is written whatever its conditions say.
    ConditionIgnored,
    /// A batch whose condition is not met is written.
    UnmetBatchWritten,
    /// A batch whose condition is not met is refused as full.
    UnmetBatchNeedsSpace,
    /// Conditions are checked before the lock is taken under which the batch is written.
    ConditionCheckedEarly,
    /// The last condition that is not met is named, and not the first.
    ConditionNamesLast,
    /// Only the first condition is checked.
    ConditionsAfterFirst,
    /// An expired key counts as present for a condition.
    ConditionSeesExpired,
    /// The expiry in a condition is not compared.
    ConditionIgnoresExpiry,
    /// Only the lengths of values are compared.
    ConditionComparesLength,
    /// Conditions beyond the limits are accepted.
    ConditionUncounted,
    /// A batch of nothing does not check its conditions.
    ConditionOfNothingMet,
    /// A condition on a range is met if its keys are present, whatever else came into the range.
    RangeConditionMissesPhantoms,
    /// A condition on a range is met if no other key is in the range, though its keys are gone.
    RangeConditionMissesDeletes,
    /// A condition on a range compares the number of keys alone.
    RangeConditionCountsOnly,
    /// A condition on a range includes the key at its upper bound.
    RangeConditionEndIncluded,
    /// An expired key counts as present for a condition on a range.
    RangeConditionSeesExpired,
    /// Conditions on ranges are counted from 0, and not after those on keys.
    RangeConditionCountedFromZero,
    /// The keys of ranges do not count for the limit of conditions.
    RangeKeysUncounted,
    /// A snapshot shows what is written later.
    SnapshotFollows,
    /// A copy leaves out the last pair.
    CopyMissesLast,
    /// A copy has no expiries.
    CopyForgetsExpiry,
    /// A copy has expired pairs.
    CopyHasExpired,
    /// A copy reads every second key, lets others run, then reads the other keys.
    CopyTorn,
    /// A copy that saw changes reads the changed keys again, but not that keys were deleted.
    CopyMissesDeletes,
    /// A copy goes on after an error of its sink.
    CopyIgnoresSink,
    /// `verify` tells no progress.
    VerifySilent,
    /// `verify` counts one record too few.
    VerifyCountsShort,
    /// Values are torn: every fourth put writes half, lets others run, then writes the rest.
    TornPut,
}
