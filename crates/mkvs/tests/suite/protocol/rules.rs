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
    /// From the look at what it has until its record and the description say so, a member that joins has the sequencer held.
    pub held_join: bool,
    /// A member is taken out, durably, when enough of the others have every operation.
    pub whole_before_out: bool,
    /// A write is acknowledged by votes of members that are in use.
    pub live_votes: bool,
    /// Who was not given a write counts for it when it is in use again and has applied it: the description says so then.
    pub joined_is_in: bool,
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
    /// Nobody reads a key of which it is not known how its last write ended.
    pub undecided_unread: bool,
    /// Where the vote of who was taken out is missing, those are waited for that have not voted.
    pub waits_for_pending: bool,
    /// The log of a member says that it is partial before it is cut.
    pub fork_cut_said: bool,
    /// And until the member joins: another donor may lack what it was given in the place of what was cut.
    pub fork_said_until_joined: bool,
    /// A member that is filling is given every operation.
    pub filling_fed: bool,
    /// It has no vote.
    pub filling_mute: bool,
    /// It is given no reads.
    pub filling_unread: bool,
    /// What it has no room for has it fall behind again.
    pub refusal_ends_filling: bool,
    /// Its processor is held while it has by a log what came before its queue.
    pub processor_held: bool,
    /// A copy reads a key when no client writes it, from a member that has the last write.
    pub copy_by_stripe: bool,
    /// What a copy reads goes by the queue.
    pub copy_by_queue: bool,
    /// A copy's walk is over a member that has all that was numbered when the copy began.
    pub copy_of_whole: bool,
    /// The record says that a member is partial until it has all of its copy.
    pub partial_until_whole: bool,
    /// It says that a member which was copied is whole when nothing of the copy is in its queue.
    pub copied_before_whole: bool,
    /// And when it is filling still: who is out again has lost what was in its queue.
    pub whole_if_filling: bool,
    /// Before a member is partial that the description calls active, an epoch counts those that are left.
    pub left_out_first: bool,
    /// An epoch counts those of whom the sequencer knows, though they may have failed since; it is not begun where there are none.
    pub said_by_sequencer: bool,
    /// A member joins when it has looked at everything that has a number.
    pub joins_whole: bool,
    /// A member joins when nothing of a copy is in its queue.
    pub joins_copied: bool,
    /// A member joins that lacks nothing it has looked at.
    pub joins_without_holes: bool,
    /// The description says that it is back before its votes count.
    pub joins_said: bool,
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
    /// Times that the host's store fails when it is to be noted who is active.
    pub unnoted: u8,
    /// Reads that are given to another member as well.
    pub hedges: u8,
}
