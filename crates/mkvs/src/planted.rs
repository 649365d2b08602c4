//! A planted fault, for the crash explorer. Without the feature `sim` there is none, and each question for one is a constant.

#[cfg(feature = "sim")]
use lodestore_media::Mutant;

/// The faults that a matrix knows; `Mutant` of `media` says what each is.
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

/// The fault of one matrix, if it has one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Planted {
    #[cfg(feature = "sim")]
    fault: Option<Fault>,
}

impl Planted {
    /// The fault of this name; none, where it is not one of a matrix.
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

    /// Whether this fault is planted.
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
