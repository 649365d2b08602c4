//! Planted faults of a matrix. Without the feature `sim` there are none, and each check is a
//! constant.

use lodestore_media::PlantedFault;

/// A device applies an operation to its store before its log has the operation.
pub const OP_LOG_BEHIND_STORE: PlantedFault = PlantedFault::new("OpLogBehindStore");
/// A write is acknowledged when one device fewer than required has it.
pub const OP_ACKED_BY_FEWER: PlantedFault = PlantedFault::new("OpAckedByFewer");
/// A device's log marks an operation as applied before the store has it.
pub const OP_APPLIED_EARLY: PlantedFault = PlantedFault::new("OpAppliedEarly");
/// A device's log evicts operations that it has not durably marked as applied to the store.
pub const OP_EVICTED_EARLY: PlantedFault = PlantedFault::new("OpEvictedEarly");
/// An open does not replay a device's log.
pub const OPS_NOT_REDONE: PlantedFault = PlantedFault::new("OpsNotRedone");
/// A member that caught up counts before the description records it.
pub const MEMBER_BACK_UNSAID: PlantedFault = PlantedFault::new("MemberBackUnsaid");
/// An open numbers operations in the previous epoch, and keeps its members.
pub const EPOCH_NOT_BEGUN: PlantedFault = PlantedFault::new("EpochNotBegun");
/// Operations that a device has and its group lacks are cut off its log before the device is
/// marked as partial.
pub const FORK_CUT_UNSAID: PlantedFault = PlantedFault::new("ForkCutUnsaid");
/// The filter that a clean stop left is not removed at the open.
pub const FILTER_LEFT_KEPT: PlantedFault = PlantedFault::new("FilterLeftKept");
/// A matrix is opened only with all devices that were active.
pub const OPEN_ASKS_FOR_ALL: PlantedFault = PlantedFault::new("OpenAsksForAll");
/// A key that moves to another group is removed from the old group before the new one has it.
pub const MOVED_DELETED_FIRST: PlantedFault = PlantedFault::new("MovedDeletedFirst");
/// A device is replaced before the others have everything that it acknowledged.
pub const REPLACED_EARLY: PlantedFault = PlantedFault::new("ReplacedEarly");
/// A salvage does not mark the data that it gives up.
pub const GIVEN_UP_UNMARKED: PlantedFault = PlantedFault::new("GivenUpUnmarked");
/// The store of a device gets no mark of the operations that it has.
pub const APPLIED_NOT_MARKED: PlantedFault = PlantedFault::new("AppliedNotMarked");
/// An open does not compare the epochs of the description and of the devices' logs.
pub const OLDER_HOST_ACCEPTED: PlantedFault = PlantedFault::new("OlderHostAccepted");

/// All of them.
pub const ALL: [PlantedFault; 15] = [
    OP_LOG_BEHIND_STORE,
    OP_ACKED_BY_FEWER,
    OP_APPLIED_EARLY,
    OP_EVICTED_EARLY,
    OPS_NOT_REDONE,
    MEMBER_BACK_UNSAID,
    EPOCH_NOT_BEGUN,
    FORK_CUT_UNSAID,
    FILTER_LEFT_KEPT,
    OPEN_ASKS_FOR_ALL,
    MOVED_DELETED_FIRST,
    REPLACED_EARLY,
    GIVEN_UP_UNMARKED,
    APPLIED_NOT_MARKED,
    OLDER_HOST_ACCEPTED,
];

/// The planted fault of a matrix, if any.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Planted {
    #[cfg(feature = "sim")]
    fault: Option<PlantedFault>,
}

impl Planted {
    /// Plants a fault.
    #[cfg(feature = "sim")]
    pub fn new(fault: PlantedFault) -> Self {
        Self { fault: Some(fault) }
    }

    /// Returns whether this fault is planted.
    #[inline]
    #[cfg_attr(not(feature = "sim"), expect(clippy::unused_self, reason = "there is no fault without the feature"))]
    pub(crate) fn has_fault(self, fault: PlantedFault) -> bool {
        #[cfg(feature = "sim")]
        return self.fault == Some(fault);
        #[cfg(not(feature = "sim"))]
        {
            let _ = fault;
            false
        }
    }
}
