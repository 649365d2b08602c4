//! A planted fault, for the crash explorer. Without the feature `sim` there is none, and each check
//! is a constant.

#[cfg(feature = "sim")]
use lodestore_media::Mutant;

/// The faults that a matrix can have; `Mutant` of `media` describes each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    OpLogBehindStore,
    OpAckedByFewer,
    OpAppliedEarly,
    OpEvictedEarly,
    OpsNotRedone,
    MemberBackUnsaid,
    EpochNotBegun,
    ForkCutUnsaid,
    FilterLeftKept,
    OpenAsksForAll,
    MovedDeletedFirst,
    ReplacedEarly,
    GivenUpUnmarked,
}

/// The planted fault of a matrix, if any.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Planted {
    #[cfg(feature = "sim")]
    fault: Option<Fault>,
}

impl Planted {
    /// Returns the fault of this name, or none if a matrix does not have it.
    #[cfg(feature = "sim")]
    pub fn of(mutant: Mutant) -> Self {
        let fault = match mutant {
            Mutant::OpLogBehindStore => Fault::OpLogBehindStore,
            Mutant::OpAckedByFewer => Fault::OpAckedByFewer,
            Mutant::OpAppliedEarly => Fault::OpAppliedEarly,
            Mutant::OpEvictedEarly => Fault::OpEvictedEarly,
            Mutant::OpsNotRedone => Fault::OpsNotRedone,
            Mutant::MemberBackUnsaid => Fault::MemberBackUnsaid,
            Mutant::EpochNotBegun => Fault::EpochNotBegun,
            Mutant::ForkCutUnsaid => Fault::ForkCutUnsaid,
            Mutant::FilterLeftKept => Fault::FilterLeftKept,
            Mutant::OpenAsksForAll => Fault::OpenAsksForAll,
            Mutant::MovedDeletedFirst => Fault::MovedDeletedFirst,
            Mutant::ReplacedEarly => Fault::ReplacedEarly,
            Mutant::GivenUpUnmarked => Fault::GivenUpUnmarked,
            _ => return Self::default(),
        };
        Self { fault: Some(fault) }
    }

    /// Returns whether this fault is planted.
    #[inline]
    #[cfg_attr(not(feature = "sim"), expect(clippy::unused_self, reason = "there is no fault without the feature"))]
    pub(crate) fn is(self, fault: Fault) -> bool {
        #[cfg(feature = "sim")]
        return self.fault == Some(fault);
        #[cfg(not(feature = "sim"))]
        {
            let _ = fault;
            false
        }
    }
}
