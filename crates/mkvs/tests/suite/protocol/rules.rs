//! The rules of the protocol, each of which can be left out, and the bounds of events.

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

/// The rules: `true` means that the rule is kept.
#[derive(Debug, Clone)]
pub struct Rules {
    pub acks: Acks,
    /// Operations that a device's log keeps.
    pub slots: usize,
    /// A processor may pause between the dequeue of a write and its log entry.
    pub slow_takes: bool,
    /// A member that is not read through its queue answers only if it has the stripe's last
    /// operation.
    pub able_reads: bool,
    /// The member with the last operation leads an open.
    pub newest_leads: bool,
    /// Operations that only this member has are removed before it comes back.
    pub forks_forgotten: bool,
    /// An open begins an epoch.
    pub epoch_at_open: bool,
    /// A joining member holds the sequencer from the check of its operations until its record and
    /// the description are written.
    pub held_join: bool,
    /// A member is removed, durably, only when enough of the others have every operation.
    pub whole_before_out: bool,
    /// A write is acknowledged by votes of active members.
    pub live_votes: bool,
    /// A member that did not receive a write counts for it once it is active again and has applied
    /// it: the description names it then.
    pub joined_is_in: bool,
    /// Catch-up begins when the member's processor has ended its command.
    pub processor_ends: bool,
    /// Catch-up begins when the member's removal is durable. If that is impossible, the member's
    /// data is kept until the donor has everything.
    pub settled_first: bool,
    /// A reader of a store checks afterwards whether its device is still in use.
    pub looks_again: bool,
    /// Only members that still lack a write skip its rollback, and the rollback's value comes from
    /// one of them.
    pub holes_decide: bool,
    /// A rollback contains the previous value even if no member has applied the write: a member
    /// that comes back with more space may apply it.
    pub restores_always: bool,
    /// A write whose previous state no member has is not rolled back.
    pub keeper_needed: bool,
    /// A member's operations after the leader's last one are forked.
    pub forks_by_last: bool,
    /// If the newest log's member lacks space for some operations, all possible leaders receive
    /// that log. Operations that were certainly not acknowledged are rolled back.
    pub levelled_open: bool,
    /// If a write cannot be rolled back, members that refused it are behind.
    pub refused_are_behind: bool,
    /// A key is not readable while its last write is in doubt.
    pub undecided_unread: bool,
    /// If the vote of a removed member is missing, the write waits for pending votes.
    pub waits_for_pending: bool,
    /// A member's log is marked partial before it is cut.
    pub fork_cut_said: bool,
    /// The mark stays until the member joins: another donor may lack the pairs that replaced the
    /// cut operations.
    pub fork_said_until_joined: bool,
    /// A filling member receives every operation.
    pub filling_fed: bool,
    /// A filling member has no vote.
    pub filling_mute: bool,
    /// A filling member receives no reads.
    pub filling_unread: bool,
    /// A filling member that refuses an operation falls behind again.
    pub refusal_ends_filling: bool,
    /// A member's processor is held while it replays the operations before its queue from a log.
    pub processor_held: bool,
    /// A copy reads a key while no client writes it, from a member that has the last write.
    pub copy_by_stripe: bool,
    /// Copied pairs go through the queue.
    pub copy_by_queue: bool,
    /// A copy walks over a member that has all operations numbered when the copy began.
    pub copy_of_whole: bool,
    /// The record says that a member is partial until it has all of its copy.
    pub partial_until_whole: bool,
    /// The record says that a copied member is whole only when no copied pair is in its queue.
    pub copied_before_whole: bool,
    /// The record says so only if the member is still filling: a removed member has lost its queue.
    pub whole_if_filling: bool,
    /// Before an active member of the description becomes partial, an epoch counts only the
    /// remaining ones.
    pub left_out_first: bool,
    /// An epoch counts the sequencer's members, even if one failed since; an epoch without members
    /// is not written.
    pub said_by_sequencer: bool,
    /// A member joins when it has executed every numbered operation.
    pub joins_whole: bool,
    /// A member joins when no copied pair is in its queue.
    pub joins_copied: bool,
    /// A member joins when it has no holes.
    pub joins_without_holes: bool,
    /// The description says that a member is back before its votes count.
    pub joins_said: bool,
}

impl Rules {
    /// Returns the rules of the design.
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
            joined_is_in: true,
            processor_ends: true,
            settled_first: true,
            looks_again: true,
            holes_decide: true,
            restores_always: true,
            keeper_needed: true,
            forks_by_last: true,
            levelled_open: true,
            refused_are_behind: true,
            undecided_unread: true,
            waits_for_pending: true,
            fork_cut_said: true,
            fork_said_until_joined: true,
            filling_fed: true,
            filling_mute: true,
            filling_unread: true,
            refusal_ends_filling: true,
            processor_held: true,
            copy_by_stripe: true,
            copy_by_queue: true,
            copy_of_whole: true,
            partial_until_whole: true,
            copied_before_whole: true,
            whole_if_filling: true,
            left_out_first: true,
            said_by_sequencer: true,
            joins_whole: true,
            joins_copied: true,
            joins_without_holes: true,
            joins_said: true,
        }
    }
}

/// Numbers of events that may still happen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Bounds {
    pub writes: u8,
    pub deletes: u8,
    pub reads: u8,
    pub crashes: u8,
    /// Devices that stop answering while the host runs.
    pub failures: u8,
    /// Members removed because they lag.
    pub demotions: u8,
    /// Devices that run out of space (`fills`), and that have space again (`empties`).
    pub fills: u8,
    pub empties: u8,
    /// Opens without the unlucky device.
    pub losses: u8,
    /// Failures of the host's store when active members must be recorded.
    pub unnoted: u8,
    /// Reads that are also given to another member.
    pub hedges: u8,
}
