//! Rules that are left out, each of which must be convicted.

use crate::protocol::rules::{Acks, Bounds, Rules};

pub const NOTHING: Bounds = Bounds {
    writes: 0,
    deletes: 0,
    reads: 0,
    crashes: 0,
    failures: 0,
    demotions: 0,
    fills: 0,
    empties: 0,
    losses: 0,
    unnoted: 0,
    hedges: 0,
};

/// Name, devices, keys, acks, slots of the logs, bounds.
pub type Case = (&'static str, usize, usize, Acks, usize, Bounds);

pub const LINEARIZABLE: &str = "reads are linearizable";
pub const KEPT: &str = "what was acknowledged is there after a crash";
pub const AGREED: &str = "members that have applied the same hold the same";
pub const RUNS: &str = "logs are runs without holes";
pub const OPENED: &str = "with all devices there it can be opened";

/// A case, the rule that is left out, and the property that fails.
pub type Mutant = (Case, fn(&mut Rules), &'static str);

pub const MUTANTS: &[Mutant] = &[
    (
        (
            "a member answers that has not applied the last write",
            3,
            1,
            Acks::Majority,
            16,
            Bounds { writes: 1, reads: 1, ..NOTHING },
        ),
        |rules| rules.able_reads = false,
        LINEARIZABLE,
    ),
    (
        ("any member leads", 3, 1, Acks::Majority, 16, Bounds { writes: 1, crashes: 1, ..NOTHING }),
        |rules| rules.newest_leads = false,
        KEPT,
    ),
    (
        ("a fork is not forgotten", 3, 1, Acks::Majority, 16, Bounds { writes: 2, crashes: 2, losses: 1, ..NOTHING }),
        |rules| rules.forks_forgotten = false,
        AGREED,
    ),
    (
        ("an open begins no epoch", 3, 1, Acks::Majority, 16, Bounds { writes: 2, crashes: 2, losses: 1, ..NOTHING }),
        |rules| rules.epoch_at_open = false,
        AGREED,
    ),
    (
        (
            "a member joins without the sequencer",
            3,
            1,
            Acks::Majority,
            16,
            Bounds { writes: 2, reads: 1, fills: 1, demotions: 1, ..NOTHING },
        ),
        |rules| rules.held_join = false,
        LINEARIZABLE,
    ),
    (
        (
            "a member is taken out at once",
            3,
            2,
            Acks::Majority,
            16,
            Bounds { writes: 2, demotions: 1, crashes: 1, losses: 1, ..NOTHING },
        ),
        |rules| rules.whole_before_out = false,
        KEPT,
    ),
    (
        (
            "what is behind the leader's last is no fork",
            3,
            2,
            Acks::Majority,
            16,
            Bounds { writes: 1, demotions: 1, crashes: 1, losses: 1, ..NOTHING },
        ),
        |rules| (rules.whole_before_out, rules.forks_by_last) = (false, false),
        AGREED,
    ),
    (
        (
            "votes of those that are out count",
            3,
            2,
            Acks::Majority,
            16,
            Bounds { writes: 2, fills: 1, failures: 1, crashes: 1, losses: 1, ..NOTHING },
        ),
        |rules| rules.live_votes = false,
        KEPT,
    ),
    (
        (
            "who is about to come back counts",
            3,
            1,
            Acks::Majority,
            16,
            Bounds { writes: 2, failures: 1, demotions: 1, crashes: 1, losses: 1, fills: 1, ..NOTHING },
        ),
        |rules| rules.joined_is_in = false,
        KEPT,
    ),
    (
        ("catching up beside the processor", 3, 2, Acks::Majority, 16, Bounds { writes: 2, demotions: 1, ..NOTHING }),
        |rules| (rules.processor_ends, rules.slow_takes) = (false, true),
        RUNS,
    ),
    (
        (
            "catching up before it is settled",
            3,
            2,
            Acks::Majority,
            16,
            Bounds { writes: 2, fills: 1, empties: 1, ..NOTHING },
        ),
        |rules| rules.settled_first = false,
        RUNS,
    ),
    (
        (
            "called off where nobody knows what was there",
            2,
            1,
            Acks::All,
            16,
            Bounds { writes: 1, reads: 1, fills: 1, failures: 1, ..NOTHING },
        ),
        |rules| rules.keeper_needed = false,
        LINEARIZABLE,
    ),
    (
        (
            "called off where one that comes back does it",
            3,
            1,
            Acks::Majority,
            16,
            Bounds { writes: 1, fills: 2, crashes: 2, losses: 1, ..NOTHING },
        ),
        |rules| rules.restores_always = false,
        AGREED,
    ),
    (
        (
            "not taken back by who refused it and did it since",
            3,
            2,
            Acks::Majority,
            16,
            Bounds { writes: 2, fills: 2, empties: 1, ..NOTHING },
        ),
        |rules| rules.holes_decide = false,
        AGREED,
    ),
    (
        (
            "the newest log leads, room or not",
            3,
            2,
            Acks::Majority,
            16,
            Bounds { writes: 1, fills: 1, crashes: 1, ..NOTHING },
        ),
        |rules| rules.levelled_open = false,
        AGREED,
    ),
    (
        (
            "a copy reads a key that is being written",
            3,
            1,
            Acks::Majority,
            1,
            Bounds { writes: 3, demotions: 1, ..NOTHING },
        ),
        |rules| rules.copy_by_stripe = false,
        AGREED,
    ),
    (
        (
            "a copy walks over a member that lacks what came before",
            3,
            2,
            Acks::Majority,
            1,
            Bounds { writes: 3, demotions: 1, ..NOTHING },
        ),
        |rules| rules.copy_of_whole = false,
        AGREED,
    ),
    (
        (
            "a member that is filling is given nothing, and joins at once",
            3,
            1,
            Acks::Majority,
            16,
            Bounds { writes: 3, demotions: 1, ..NOTHING },
        ),
        |rules| (rules.filling_fed, rules.joins_whole) = (false, false),
        RUNS,
    ),
    (
        (
            "votes of a member that is filling count",
            3,
            1,
            Acks::Majority,
            1,
            Bounds { writes: 3, demotions: 1, crashes: 1, losses: 1, ..NOTHING },
        ),
        |rules| (rules.filling_mute, rules.live_votes) = (false, false),
        KEPT,
    ),
    (
        (
            "a member that is filling is read",
            3,
            1,
            Acks::Majority,
            1,
            Bounds { writes: 2, reads: 1, demotions: 1, ..NOTHING },
        ),
        |rules| rules.filling_unread = false,
        LINEARIZABLE,
    ),
    (
        (
            "a processor goes on while its member has another's log",
            3,
            1,
            Acks::Majority,
            16,
            Bounds { writes: 2, demotions: 1, ..NOTHING },
        ),
        |rules| rules.processor_held = false,
        RUNS,
    ),
    (
        (
            "a member joins with operations in its queue",
            3,
            1,
            Acks::Majority,
            16,
            Bounds { writes: 2, demotions: 1, crashes: 1, ..NOTHING },
        ),
        |rules| rules.joins_whole = false,
        AGREED,
    ),
    (
        (
            "a member joins with a copy in its queue",
            3,
            1,
            Acks::Majority,
            1,
            Bounds { writes: 2, demotions: 1, crashes: 1, ..NOTHING },
        ),
        |rules| (rules.copied_before_whole, rules.joins_copied) = (false, false),
        KEPT,
    ),
    (
        (
            "a member joins with a hole",
            3,
            1,
            Acks::Majority,
            16,
            Bounds { writes: 2, demotions: 1, fills: 1, crashes: 1, ..NOTHING },
        ),
        |rules| (rules.refusal_ends_filling, rules.joins_without_holes) = (false, false),
        AGREED,
    ),
    (
        (
            "a record says too early that its member is whole",
            3,
            1,
            Acks::Majority,
            1,
            Bounds { writes: 2, demotions: 1, crashes: 1, ..NOTHING },
        ),
        |rules| rules.partial_until_whole = false,
        AGREED,
    ),
    (
        (
            "a member is whole with a copy in its queue",
            3,
            1,
            Acks::Majority,
            1,
            Bounds { writes: 2, demotions: 1, crashes: 1, ..NOTHING },
        ),
        |rules| rules.copied_before_whole = false,
        AGREED,
    ),
    (
        (
            "a member is whole though its copy was dropped",
            3,
            1,
            Acks::Majority,
            1,
            Bounds { writes: 2, demotions: 2, ..NOTHING },
        ),
        |rules| rules.whole_if_filling = false,
        AGREED,
    ),
    (
        (
            "a log is cut and its record does not say so",
            3,
            1,
            Acks::Majority,
            16,
            Bounds { writes: 1, crashes: 3, losses: 1, ..NOTHING },
        ),
        |rules| rules.fork_cut_said = false,
        AGREED,
    ),
    (
        (
            "a member that counts is partial",
            3,
            2,
            Acks::Majority,
            1,
            Bounds { writes: 2, demotions: 1, failures: 1, crashes: 1, losses: 1, ..NOTHING },
        ),
        |rules| rules.left_out_first = false,
        OPENED,
    ),
    (
        (
            "those that are left fail, and nobody counts",
            3,
            2,
            Acks::Majority,
            1,
            Bounds { writes: 2, demotions: 1, failures: 2, crashes: 1, ..NOTHING },
        ),
        |rules| rules.said_by_sequencer = false,
        OPENED,
    ),
    (
        (
            "the description does not say that a member joined",
            3,
            1,
            Acks::Majority,
            16,
            Bounds { writes: 2, demotions: 1, crashes: 1, losses: 1, ..NOTHING },
        ),
        |rules| rules.joins_said = false,
        KEPT,
    ),
    (
        (
            "what is not known to stand is read",
            3,
            1,
            Acks::Majority,
            16,
            Bounds { writes: 1, reads: 1, failures: 1, fills: 2, crashes: 1, losses: 1, unnoted: 1, ..NOTHING },
        ),
        |rules| rules.undecided_unread = false,
        KEPT,
    ),
];
