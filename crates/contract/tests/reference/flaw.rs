//! Small ways to break the contract; each is a mistake that an engine could make.

macro_rules! flaws {
    ($($(#[doc = $doc:literal])* $name:ident,)*) => {
        /// A mistake.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Flaw {
            $($(#[doc = $doc])* $name,)*
        }

        impl Flaw {
            /// All mistakes.
            pub const ALL: &[Self] = &[$(Self::$name),*];
        }
    };
}

flaws! {
    /// Delete reports success, and removes nothing.
    DeleteKeeps,
    /// Delete always reports that the key was present.
    DeleteAlwaysTrue,
    /// Delete of an expired key reports that the key was present.
    DeleteSeesExpired,
    /// Delete removes every key that begins with its own.
    DeleteRemovesPrefix,
    /// Insert overwrites a present key.
    InsertOverwrites,
    /// Insert treats an expired key as present.
    InsertSeesExpired,
    /// Update writes an absent key.
    UpdateInserts,
    /// Update revives an expired key.
    UpdateSeesExpired,
    /// An empty value is treated as absent.
    EmptyValueIsAbsent,
    /// Keys are compared up to their first zero byte.
    KeysEndAtZero,
    /// Only the first 255 bytes of a key count.
    KeysAreCutAt255,
    /// Keys of 64 KiB are refused.
    LongestKeyRefused,
    /// An empty key is accepted.
    EmptyKeyAccepted,
    /// A key of 64 KiB + 1 is accepted.
    TooLongKeyAccepted,
    /// A refused value has already removed the old one.
    RefusedValueDeletes,
    /// Values longer than 1 MiB lose their end.
    LargeValuesCut,
    /// A put of a shorter value leaves the tail of the longer one.
    ShorterPutLeavesTail,
    /// `get_into` appends to the buffer's contents.
    GetIntoAppends,
    /// `get_into` leaves the buffer unchanged on a miss.
    GetIntoKeepsOnMiss,
    /// `get_into` replaces the caller's buffer by a new one.
    GetIntoAllocates,
    /// `get_with` shows the value twice.
    GetWithTwice,
    /// `get_with` shows an empty value on a miss.
    GetWithShowsMiss,
    /// Contains compares only the first byte of a key.
    ContainsGuesses,
    /// `multi_get` answers hits only.
    MultiGetSkipsMisses,
    /// `multi_get` answers in the order of keys.
    MultiGetSorts,
    /// `multi_get` answers the same key once.
    MultiGetDropsDuplicates,
    /// `multi_get` reads at most 64 keys.
    MultiGetStopsAt64,
    /// `multi_get` continues after a refused key.
    MultiGetSkipsRefused,
    /// `multi_get` answers some keys, then refuses one.
    MultiGetRefusesLate,
    /// `for_each` shows the first key twice.
    ForEachTwice,
    /// `for_each` leaves out the last key.
    ForEachMissesLast,
    /// `for_each` ignores `Stop`.
    ForEachNeverStops,
    /// `for_each` shows expired keys.
    ForEachShowsExpired,
    /// `for_each_pair` shows no expiry.
    ForEachHidesExpiry,
    /// `for_each_pair` reads the values, lets other threads run, then reads the expiries.
    ForEachReadsExpiryLate,
    /// A scan shows no expiry.
    ScanHidesExpiry,
    /// A scan shows the expiry of the pair before.
    ScanShiftsExpiry,
    /// The get of a snapshot shows no expiry.
    SnapshotGetHidesExpiry,
    /// A snapshot shows later expiries.
    SnapshotExpiryFollows,
    /// Get shows expired keys.
    GetShowsExpired,
    /// Contains returns `true` for expired keys.
    ContainsShowsExpired,
    /// `multi_get` shows expired keys.
    MultiGetShowsExpired,
    /// Scans show expired keys.
    ScanShowsExpired,
    /// Expired keys use up a scan's limit.
    ScanCountsExpired,
    /// `expiry` returns the expiry of expired keys.
    ExpiryShowsExpired,
    /// Put keeps the old expiry.
    PutKeepsExpiry,
    /// Update treats `Forever` as `Keep`.
    UpdateKeepsExpiry,
    /// `compare_and_swap` treats `Forever` as `Keep`.
    SwapKeepsExpiry,
    /// `compare_and_swap` sees expired values.
    SwapSeesExpired,
    /// `update_with` sees expired values.
    UpdateWithSeesExpired,
    /// `update_with` ignores the given expiry.
    UpdateWithDropsExpiry,
    /// Insert ignores the given expiry.
    InsertDropsExpiry,
    /// Insert with `Keep` uses the expiry of the expired record that it replaces.
    InsertKeepsExpired,
    /// Update treats `Keep` as `Forever`.
    UpdateForgetsKept,
    /// Update ignores the given expiry.
    UpdateDropsExpiry,
    /// Update reads the expiry that it keeps, lets other threads run, then writes.
    UpdateKeepNotAtomic,
    /// `compare_and_swap` treats `Keep` as `Forever`.
    SwapForgetsKept,
    /// `compare_and_swap` ignores the given expiry.
    SwapDropsExpiry,
    /// `update_with` treats `Keep` as `Forever`.
    UpdateWithForgetsKept,
    /// `update_with` shows no expiry to its closure.
    UpdateWithHidesExpiry,
    /// A clean stop forgets when keys expire.
    CloseForgetsExpiry,
    /// An expiry of u64::MAX overflows into the past.
    FarExpiryOverflows,
    /// `compare_and_swap` reads, lets other threads run, then writes.
    SwapNotAtomic,
    /// `compare_and_swap` compares lengths only.
    SwapComparesLengths,
    /// `compare_and_swap` to absent returns `Done` and does nothing.
    SwapNeverDeletes,
    /// `compare_and_swap` returns the expected value, not the current one.
    SwapTellsExpected,
    /// `update_with` reads, lets other threads run, then writes.
    UpdateWithNotAtomic,
    /// `update_with` runs its closure twice.
    UpdateWithRunsTwice,
    /// `update_with` treats `Keep` as `Delete`.
    UpdateWithKeepDeletes,
    /// Insert checks, lets other threads run, then writes.
    InsertNotAtomic,
    /// Delete checks, lets other threads run, then removes.
    DeleteNotAtomic,
    /// A scan leaves out its last entry.
    ScanSkipsLast,
    /// An included lower bound excludes.
    ScanExcludesFrom,
    /// An excluded upper bound includes.
    ScanIncludesTo,
    /// A backward scan applies its limit at the front.
    ScanLimitsBeforeReversing,
    /// A limit of 0 means none.
    ScanLimitZeroIsAll,
    /// Inverted bounds panic.
    ScanPanicsOnInverted,
    /// Keys are ordered as signed bytes.
    ScanOrdersSigned,
    /// `scan_each` does not count the entry at which it stopped.
    ScanEachCountsShort,
    /// A scan misses the newest key until the next write.
    ScanLagsByOne,
    /// A scan in progress follows the map by position, so that writes shift it.
    ScanWalksByPosition,
    /// `len` is one too many after an overwrite.
    LenCountsOverwrites,
    /// `stats` names another durability.
    StatsDurability,
    /// `stats` counts more space than there is.
    StatsSpace,
    /// `stats` never reports that recovery is done.
    StatsNeverRecovered,
    /// Every put uses space permanently.
    SpaceLeaks,
    /// A full store drops the oldest key for the newest.
    FullEvicts,
    /// A put refused as full has removed the old value.
    FullDeletesOld,
    /// Deletes are refused in a full store.
    FullRefusesDeletes,
    /// A crash loses the last put.
    CrashLosesLastPut,
    /// A crash restores the last deleted key.
    CrashBringsBackLastDelete,
    /// A closed store still serves reads.
    ClosedStillReads,
    /// Closing twice is an error.
    CloseTwiceFails,
    /// A store opens twice.
    OpensTwice,
    /// Opening a path without a store creates one.
    OpenMakesAStore,
    /// Creating a store removes an existing one.
    CreateOverwrites,
    /// Checksums are not checked.
    ChecksumUnchecked,
    /// A corrupt record is skipped without a report.
    CorruptionUnreported,
    /// A corrupt record is a panic.
    CorruptionPanics,
    /// A batch stops at its first bad key, with the first half written.
    BatchHalfWritten,
    /// A batch deletes first and puts afterwards.
    BatchReorders,
    /// Of several operations of a batch on a key, the first one counts.
    BatchFirstWins,
    /// A batch lets other threads run between its operations.
    BatchTorn,
    /// A batch that runs full keeps the operations that fitted.
    BatchFullKeepsWhatFitted,
    /// A batch ignores the given expiries.
    BatchDropsExpiry,
    /// The operations of a batch are not counted.
    BatchUncounted,
    /// A batch that deletes an absent key fails.
    BatchMindsAbsentKeys,
    /// An empty batch removes the last put.
    BatchOfNothingUndoes,
    /// Only a clean stop keeps a batch: a crash removes its last key.
    BatchEndsAtCrash,
    /// A batch is written regardless of its conditions.
    ConditionIgnored,
    /// A batch whose condition is not met is written.
    UnmetBatchWritten,
    /// A batch whose condition is not met is refused as full.
    UnmetBatchNeedsSpace,
    /// Conditions are checked before the lock of the batch is acquired.
    ConditionCheckedEarly,
    /// The last unmet condition is named instead of the first.
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
    /// A condition on a range is met if its keys are present, even if other keys were added to the
    /// range.
    RangeConditionMissesPhantoms,
    /// A condition on a range is met if no other key is in the range, even if its keys are missing.
    RangeConditionMissesDeletes,
    /// A condition on a range compares only the number of keys.
    RangeConditionCountsOnly,
    /// A condition on a range includes the key at its upper bound.
    RangeConditionEndIncluded,
    /// An expired key counts as present for a condition on a range.
    RangeConditionSeesExpired,
    /// Conditions on ranges are counted from 0, and not after the conditions on keys.
    RangeConditionCountedFromZero,
    /// The keys of ranges do not count towards the limit of conditions.
    RangeKeysUncounted,
    /// A snapshot lacks its last pair, as if it showed a later state.
    SnapshotFollows,
    /// A copy leaves out the last pair.
    CopyMissesLast,
    /// A copy has no expiries.
    CopyForgetsExpiry,
    /// A copy has expired pairs.
    CopyHasExpired,
    /// A copy reads every second key, lets other threads run, then reads the other keys.
    CopyTorn,
    /// A copy reads changed keys again, but misses deletes.
    CopyMissesDeletes,
    /// A copy continues after an error of its sink.
    CopyIgnoresSink,
    /// `verify` reports no progress.
    VerifySilent,
    /// `verify` counts one record too few.
    VerifyCountsShort,
    /// Values are torn: every fourth put writes half, lets other threads run, then writes the rest.
    TornPut,
}
