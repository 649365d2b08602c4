//! What happens to a matrix while threads are at work.

use lodestore_mkvs::Acks;

use crate::torn::Tear;

/// Groups of a matrix, at most.
const GROUPS_MAX: usize = 16;

/// What happens to a matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A device takes its time.
    Slow,
    /// A device stands still.
    Still,
    /// So many devices of a group have no room for half of the keys.
    Full(usize),
    /// A device cannot read half of the keys.
    Damage,
    /// The medium of a device fails, and it is replaced.
    FailOne,
    /// The media of so many devices of a group fail, and the matrix is opened again.
    Fail(usize),
    /// A group is added, and keys move to it.
    AddGroup,
    /// The matrix is closed, and opened again.
    Reopen,
    /// It is cut off, and opened again.
    Cut,
    /// A device's directory is lost under it, and it is replaced.
    LoseRunning,
    /// A device's directory is lost under it; the matrix is cut off and opened without it, and it is replaced.
    LoseAndCut,
    /// A device's directory is lost while the matrix is stopped; it is opened without it, and it is replaced.
    LoseStopped,
    /// The same of a device that is ahead of the others.
    LoseAhead,
    /// The same of a device that has what the others failed to write.
    LoseAlone,
    /// Such a device is away for an open, and comes back at another one.
    Fork,
    /// A device's operation log is damaged while the matrix is stopped.
    Tear(Tear),
}

impl Event {
    /// Whether a device is away behind it.
    pub fn is_loss(self) -> bool {
        matches!(self, Self::LoseRunning | Self::LoseAndCut | Self::LoseStopped | Self::LoseAhead | Self::Tear(_))
            || self.is_of_one()
    }

    /// Whether the device that is lost has what no other one has.
    fn is_of_one(self) -> bool {
        matches!(self, Self::LoseAlone | Self::Fork)
    }

    /// Whether it can happen to a matrix of so many groups of so many devices, and what is acknowledged must survive it.
    pub fn is_borne(self, acks: Acks, groups: usize, devices: usize) -> bool {
        let is_loss_borne = match acks {
            Acks::One => false,
            Acks::Majority => devices > devices / 2 + 1,
            // The one that is left acknowledges.
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

/// All of it.
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
