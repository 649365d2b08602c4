//! The rules of the protocol, each of which can be left out; and how much of everything happens.

/// When a write is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Acks {
    One,
    Majority,
    All,
}

impl Acks {
    pub fn needed(self, members: usize, active: usize) -> usize {
        match self {
            Self::One => 1,
            Self::Majority => members / 2 + 1,
            Self::All => active.max(1),
        }
    }
}

/// The rules: what is true is kept.
#[derive(Debug, Clone)]
pub struct Rules {
    pub acks: Acks,
    /// Operations that a device's log keeps.
    pub slots: usize,
    /// A processor may stop between taking a write and logging it.
    pub slow_takes: bool,
    /// A member that is not asked through its queue answers only when it has the stripe's last operation.
    pub able_reads: bool,
    /// The member with the last operation leads an open.
    pub newest_leads: bool,
    /// What a member has that the group has not is taken out of it before it comes back.
    pub forks_forgotten: bool,
    /// An open begins an epoch.
    pub epoch_at_open: bool,
    /// A member comes back with the sequencer held.
    pub held_join: bool,
    /// A member is taken out, durably, when enough of the others have every operation.
    pub whole_before_out: bool,
    /// A write is acknowledged by votes of members that are in use.
    pub live_votes: bool,
    /// Catching up begins when the member's processor has ended what it was at.
    pub processor_ends: bool,
    /// Catching up begins when it is settled that the member is out; and where that cannot be made durable, what it has is left until the donor has everything.
    pub settled_first: bool,
    /// Who has looked into a store looks again whether its device is in use still.
    pub looks_again: bool,
    /// What takes a write back is skipped only by members that lack that write still, and its value comes from one of those.
    pub holes_decide: bool,
    /// What takes a write back says what was there before, even where no member has done it: one that comes back with more room may do it.
    pub restores_always: bool,
    /// What no member remembers the state before is not taken back.
    pub keeper_needed: bool,
    /// What a member has behind the leader's last operation is forked.
    pub forks_by_last: bool,
    /// Where the newest log's member lacks room for some of it, all that can lead are given that log, and what was not acknowledged for sure is taken back.
    pub levelled_open: bool,
    /// Where a write cannot be taken back, members that refused it are behind.
    pub refused_are_behind: bool,
}

impl Rules {
    /// The design.
    pub fn new(acks: Acks) -> Self {
        Self {
            acks,
            slots: 16,
            slow_takes: false,
            able_reads: true,
            newest_leads: true,
            forks_forgotten: true,
            epoch_at_open: true,
            held_join: true,
            whole_before_out: true,
            live_votes: true,
            processor_ends: true,
            settled_first: true,
            looks_again: true,
            holes_decide: true,
            restores_always: true,
            keeper_needed: true,
            forks_by_last: true,
            levelled_open: true,
            refused_are_behind: true,
        }
    }
}

/// What may still happen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Bounds {
    pub writes: u8,
    pub deletes: u8,
    pub reads: u8,
    pub crashes: u8,
    /// Devices that stop to answer while the host runs.
    pub failures: u8,
    /// Members taken out because they trail.
    pub demotions: u8,
    /// Devices that come to have no room, and those that have room again.
    pub fills: u8,
    pub empties: u8,
    /// Opens without the unlucky device.
    pub losses: u8,
    /// Reads that are given to another member as well.
    pub hedges: u8,
}
