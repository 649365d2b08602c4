//! A model check of the protocol of one group: every order of events within small bounds, with a crash of the host at every step.
//!
//! # What is modelled
//! As `src` has it: the stripe lock (a write holds its key until it is acknowledged), the sequencer, queues, a processor's steps (taking, the log's entry, the store and
//! the vote), holes and the trailing `applied`, logs as rings with eviction, acknowledgement by one, most or all, late and early refusals, taking back by `Restore`, reads
//! of a store that is able and through queues, a member that is demoted, fails or has no room, the settling of who is active and its epoch, forgetting of forks, an open
//! (redo, choice of the leader, levelling, following, taking back) with a crash between its steps, and the loss of one device while the host is stopped, for one open or for
//! good.
//!
//! One that failed for being late and is used again when its processor rests is as one that was demoted. A member that comes back is filling: it is given operations and has no vote; it refuses, trails or fails. What came before it has by a donor's log, its processor held, or by a
//! copy, key by key through its queue while clients write; before it is emptied, an epoch leaves it out, and when it has all of the copy its record says that logs tell the rest. It joins with the sequencer held: its record, a crash or not, then the
//! description.
//!
//! # What is not
//! The filter, scans, expiry, read repair, damage, salvage, a clean stop, several groups, replacement, a log that has no room for an entry, errors of the host's store but where a write has it noted who failed, reads
//! while fewer are active than a write takes (what they see of a write that nobody acknowledged may go back with the next crash), and the trailing end of a device that is
//! given up while it is at an operation. A replay's rounds before the last step are left out, and the two walks of a copy, over the member's own keys and over another's, are one.
//! Steps that the code does under one lock are one step. Logs of one entry stand for those whose bytes are few: members trail by more than they hold. Where such a log is the
//! newest and its member has no room for what it says, an open may be refused; those bounds are not among these.
//!
//! # What is checked
//! Linearizability of each key's reads and writes, across crashes too: a write that was under way has had its effect by then, or never; so nothing acknowledged is lost,
//! nothing deleted comes back, nothing refused is seen. Members that have applied the same hold the same. Logs are runs. With all devices there an open succeeds, and of three
//! with most needed, without the only one that had failed.
//!
//! States visited (unique): 3.64 million for [`SOUND`], in a quarter of a minute on two cores; each test prints its own. Each rule that is left out ([`MUTANTS`]) is convicted,
//! some only together with another that does the same, and so are the published ones. No mutant of these bounds needs `looks_again`, and these:
//! * `refused_are_behind`: it takes 7.5 million states (a write and a delete of another key, a read, two without room, a failure that is not noted, a crash and a loss).
//! * `copy_by_queue`: operations say what a key has behind them, and those that are queued come to be done. So a copy may pass them by, as long as its key's stripe is held until it is
//!   in the store; by the queue a store has one writer, and the stripe is not held for so long.
//! * `fork_said_until_joined`: it takes a donor that is lost, after another device was.
//! * `waits_for_pending`: who gives up says that nobody knows how the write ends, which is true.
mod catchup;
mod device;
mod group;
mod history;
mod model;
mod mutants;
mod open;
mod paper;
mod rules;
mod unnoted;

use self::model::{Matrix, SEEN};
use self::mutants::{Case, LINEARIZABLE, MUTANTS, NOTHING};
use self::paper::Paper;
use self::rules::{Acks, Bounds, Rules};
use stateright::{Checker, HasDiscoveries, Model};

/// What must hold. In parentheses: unique states.
const SOUND: &[Case] = &[
    // (28 thousand)
    (
        "a crash and the loss of one",
        3,
        1,
        Acks::Majority,
        16,
        Bounds { writes: 2, deletes: 1, reads: 1, crashes: 1, losses: 1, ..NOTHING },
    ),
    // (63 thousand)
    ("one trails", 3, 2, Acks::Majority, 16, Bounds { writes: 2, demotions: 1, crashes: 1, losses: 1, ..NOTHING }),
    // (78 thousand)
    ("one fails", 3, 2, Acks::Majority, 16, Bounds { writes: 2, failures: 1, crashes: 1, losses: 1, ..NOTHING }),
    // (0.65 million)
    ("no room on two", 3, 2, Acks::Majority, 16, Bounds { writes: 2, fills: 2, empties: 1, crashes: 1, ..NOTHING }),
    // (0.29 million)
    ("logs of two entries", 3, 2, Acks::Majority, 2, Bounds { writes: 3, demotions: 1, crashes: 1, ..NOTHING }),
    ("forks", 3, 1, Acks::Majority, 16, Bounds { writes: 2, crashes: 2, losses: 2, ..NOTHING }),
    ("reads that race", 3, 1, Acks::Majority, 16, Bounds { writes: 2, deletes: 1, reads: 2, hedges: 1, ..NOTHING }),
    // (0.32 million)
    ("acknowledged by one", 2, 2, Acks::One, 16, Bounds { writes: 3, reads: 1, demotions: 1, crashes: 1, ..NOTHING }),
    (
        "acknowledged by all",
        3,
        1,
        Acks::All,
        16,
        Bounds { writes: 2, reads: 1, failures: 1, crashes: 1, losses: 1, ..NOTHING },
    ),
    // (93 thousand)
    ("all of two", 2, 1, Acks::All, 1, Bounds { writes: 3, reads: 1, failures: 1, crashes: 2, losses: 1, ..NOTHING }),
    // (0.18 million)
    (
        "a copy of what is being written",
        3,
        1,
        Acks::Majority,
        1,
        Bounds { writes: 4, demotions: 1, crashes: 1, losses: 1, ..NOTHING },
    ),
    // (0.45 million)
    ("a copy of two keys", 3, 2, Acks::Majority, 1, Bounds { writes: 3, demotions: 1, crashes: 1, ..NOTHING }),
    // (0.38 million)
    (
        "a copy that is given up",
        3,
        1,
        Acks::Majority,
        1,
        Bounds { writes: 3, reads: 1, demotions: 2, failures: 1, ..NOTHING },
    ),
    // (73 thousand)
    ("a copy without room", 3, 1, Acks::Majority, 1, Bounds { writes: 3, fills: 1, demotions: 1, ..NOTHING }),
    // (98 thousand)
    ("a copy by one", 2, 2, Acks::One, 1, Bounds { writes: 3, demotions: 1, crashes: 1, ..NOTHING }),
    // (0.29 million)
    (
        "who failed is not noted",
        3,
        1,
        Acks::Majority,
        16,
        Bounds { writes: 2, reads: 1, failures: 1, fills: 1, crashes: 1, losses: 1, unnoted: 1, ..NOTHING },
    ),
    // (0.59 million)
    (
        "a copy of who counts",
        3,
        2,
        Acks::Majority,
        1,
        Bounds { writes: 2, demotions: 1, failures: 1, crashes: 1, losses: 1, ..NOTHING },
    ),
];

/// As [`SOUND`], for longer.
const LARGE: &[Case] = &[
    (
        "one has no room, one fails, one is lost",
        3,
        2,
        Acks::Majority,
        16,
        Bounds { writes: 2, fills: 1, empties: 1, failures: 1, crashes: 1, losses: 1, ..NOTHING },
    ),
    ("no room, twice", 3, 2, Acks::Majority, 16, Bounds { writes: 2, fills: 3, crashes: 2, losses: 1, ..NOTHING }),
    (
        "all, without room",
        2,
        2,
        Acks::All,
        16,
        Bounds { writes: 2, reads: 1, fills: 2, empties: 1, failures: 1, crashes: 1, ..NOTHING },
    ),
    (
        "a copy of two keys, given up or not",
        3,
        2,
        Acks::Majority,
        1,
        Bounds { writes: 3, demotions: 2, crashes: 1, ..NOTHING },
    ),
    (
        "who is left may fail",
        3,
        2,
        Acks::Majority,
        1,
        Bounds { writes: 2, demotions: 1, failures: 2, crashes: 1, losses: 1, ..NOTHING },
    ),
    ("three writes of three keys", 3, 3, Acks::Majority, 16, Bounds { writes: 3, crashes: 1, losses: 1, ..NOTHING }),
];

fn model(case: &Case) -> Matrix {
    let (_, devices, keys, acks, slots, bounds) = *case;
    let mut rules = Rules::new(acks);
    rules.slots = slots;
    Matrix::new(devices, keys, rules, bounds)
}

/// Goes through all states; how often each of [`SEEN`] happened.
fn assert_sound(cases: &[Case]) -> Vec<usize> {
    let mut seen = vec![0; SEEN.len()];
    for case in cases {
        let model = model(case);
        let checker = model.clone().checker().threads(2).finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
        println!("{}: {} states, depth {}", case.0, checker.unique_state_count(), checker.max_depth());
        if let Some((name, path)) = checker.discoveries().into_iter().next() {
            panic!("{}: {name} does not hold behind {:#?}", case.0, path.into_actions());
        }
        SEEN.iter().zip(&mut seen).for_each(|(name, sum)| *sum += model.count(name));
    }
    seen
}

#[test]
fn the_protocol_keeps_what_it_promises() {
    let seen = assert_sound(SOUND);
    for (name, count) in SEEN.iter().zip(seen) {
        assert_ne!(count, 0, "{name} happens in the model");
    }
}

#[test]
#[ignore = "takes minutes"]
fn the_protocol_keeps_what_it_promises_within_larger_bounds() {
    assert_sound(LARGE);
}

/// A way to what goes wrong, at most two steps longer than the shortest: what is found first may be far longer, so the depth is raised little by little.
fn convict<M>(name: &str, model: M, wrong: &'static str)
where
    M: Model + Clone + Send + Sync + 'static,
    M::State: Clone + std::fmt::Debug + std::hash::Hash + PartialEq + Send + Sync,
    M::Action: std::fmt::Debug + Clone + PartialEq + Send + Sync,
{
    let find = |depth: usize| {
        let wanted = HasDiscoveries::AnyOf([wrong].into());
        let checker = model.clone().checker().finish_when(wanted).target_max_depth(depth).spawn_bfs().join();
        checker.discovery(wrong)
    };
    let path = (3..42).step_by(3).find_map(find).unwrap_or_else(|| panic!("{name}: not convicted"));
    println!("{name}: it does not hold that {wrong}, behind");
    path.into_actions().iter().for_each(|event| println!("    {event:?}"));
}

#[test]
fn each_rule_that_is_left_out_is_convicted() {
    for (case, leave_out, wrong) in MUTANTS {
        let mut model = model(case);
        leave_out(&mut model.rules);
        convict(case.0, model, wrong);
    }
}

#[test]
fn the_published_rules_are_convicted() {
    let paper = |writes, crashes| Paper { writes, crashes };
    convict("published, a get behind a put", paper(2, 0), LINEARIZABLE);
    convict("published, a get behind a delete", paper(2, 0), "what was deleted stays deleted");
    convict("published, two writes in either order", paper(2, 0), "devices at rest agree");
    convict("published, a crash", paper(1, 1), "devices at rest agree");
}
