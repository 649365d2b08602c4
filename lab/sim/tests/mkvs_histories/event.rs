//! Events of a matrix while threads run.

use lodestore_mkvs::Acks;

use crate::torn::Tear;

/// Maximum groups of a matrix.
const GROUPS_MAX: usize = 16;

/// An event of a matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A device is slow.
    Slow,
    /// A device stalls.
    Still,
    /// This many devices of a group have no space for half of the keys.
    Full(usize),
    /// A device cannot read half of the keys.
    Damage,
    /// The medium of a device fails, and it is replaced.
    FailOne,
    /// The media of this many devices of a group fail, and the matrix is reopened.
    Fail(usize),
    /// A group is added, and keys move to it.
    AddGroup,
    /// The matrix is closed and reopened.
    Reopen,
    /// The matrix is cut off and reopened.
    Cut,
    /// A device's directory is removed while it runs, and it is replaced.
    LoseRunning,
    /// A device's directory is removed while it runs. The matrix is cut off and opened without it,
    /// and it is replaced.
    LoseAndCut,
    /// A device's directory is removed while the matrix is stopped. The matrix is opened without
    /// it, and it is replaced.
    LoseStopped,
    /// The same for a device that is ahead of the others.
    LoseAhead,
    /// The same for a device with an operation that the others failed to write.
    LoseAlone,
    /// Such a device is missing in one open, and returns in a later one.
    Fork,
    /// A device's operation log is damaged while the matrix is stopped.
    Tear(Tear),
}

impl Event {
    /// Whether a device is missing afterwards.
    pub fn is_loss(self) -> bool {
        matches!(self, Self::LoseRunning | Self::LoseAndCut | Self::LoseStopped | Self::LoseAhead | Self::Tear(_))
            || self.is_of_one()
    }

    /// Whether the lost device has an operation that no other device has.
    fn is_of_one(self) -> bool {
        matches!(self, Self::LoseAlone | Self::Fork)
    }

    /// Whether the event can happen to a matrix with this number of groups and devices per group,
    /// without losing acknowledged writes.
    pub fn is_borne(self, acks: Acks, groups: usize, devices: usize) -> bool {
        let is_loss_borne = match acks {
            Acks::One => false,
            Acks::Majority => devices > devices / 2 + 1,
            // The remaining device acknowledges.
            Acks::All => devices > 1 && !self.is_of_one(),
        };
        match self {
            Self::FailOne => devices > 1,
            Self::Full(count) | Self::Fail(count) => count <= devices,
            Self::AddGroup => groups < GROUPS_MAX,
            _ => !self.is_loss() || is_loss_borne,
        }
    }
}

/// All events.
pub const EVENTS: [Event; 21] = [
    Event::Slow,
    Event::Still,
    Event::Full(1),
    Event::Full(2),
    Event::Full(3),
    Event::Damage,
    Event::FailOne,
    Event::Fail(2),
    Event::Fail(3),
    Event::AddGroup,
    Event::Reopen,
    Event::Cut,
    Event::LoseRunning,
    Event::LoseAndCut,
    Event::LoseStopped,
    Event::LoseAhead,
    Event::LoseAlone,
    Event::Fork,
    Event::Tear(Tear::Flipped),
    Event::Tear(Tear::Gone),
    Event::Tear(Tear::Cut),
];
