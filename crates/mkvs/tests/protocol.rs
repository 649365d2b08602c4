//! A model check of the protocol of one group: every order of events within small bounds, with a crash of the host at every step.
//!
//! # What is modelled
//! As `src` has it: the stripe lock (a write holds its key until it is acknowledged), the sequencer, queues, a processor's steps (taking, the log's entry, the store and
//! the vote), holes and the trailing `applied`, logs as rings with eviction, acknowledgement by one, most or all, late and early refusals, taking back by `Restore`, reads
//! of a store that is able and through queues, a member that is demoted, fails or has no room, the settling of who is active and its epoch, forgetting of forks, replay
//! and copy key by key from a donor that goes on, joining, an open (redo, choice of the leader, levelling, following, taking back) with a crash between its steps, and
//! the loss of one device while the host is stopped, for one open or for good.
//!
//! # What is not
//! The filter, scans, expiry, read repair, damage, salvage, a clean stop, several groups, a log that has no room for an entry, errors of the host's store, reads while fewer
//! are active than a write takes (what they see of a write that nobody acknowledged may go back with the next crash), and the trailing end of a device that is given up
//! while it is at an operation. Steps that the code does under one lock are one step.
//!
//! # What is checked
//! Linearizability of each key's reads and writes, across crashes too: a write that was under way has had its effect by then, or never; so nothing acknowledged is lost,
//! nothing deleted comes back, nothing refused is seen. Members that have applied the same hold the same. Logs are runs. With all devices there an open succeeds.
//!
//! States visited (unique): 1.03 million for [`SOUND`], in a quarter of a minute on two cores; each test prints its own. Each rule that is left out ([`MUTANTS`]) is convicted, and so are the published ones. Two rules are kept in
//! the engine that no mutant of these bounds needs: `looks_again` and `refused_are_behind`.
mod protocol {
    pub mod catchup;
    pub mod device;
    pub mod group;
    pub mod history;
    pub mod model;
    pub mod mutants;
    pub mod open;
    pub mod paper;
    pub mod rules;
}

use protocol::model::{Matrix, SEEN};
use protocol::mutants::{Case, LINEARIZABLE, MUTANTS, NOTHING};
use protocol::paper::Paper;
use protocol::rules::{Acks, Bounds, Rules};
use stateright::{Checker, HasDiscoveries, Model};

/// What must hold. In parentheses: unique states.
const SOUND: &[Case] = &[
    // (23 thousand)
    (
        "a crash and the loss of one",
        3,
        1,
        Acks::Majority,
        16,
        Bounds { writes: 2, deletes: 1, reads: 1, crashes: 1, losses: 1, ..NOTHING },
    ),
    // (41 thousand)
    ("one trails", 3, 2, Acks::Majority, 16, Bounds { writes: 2, demotions: 1, crashes: 1, losses: 1, ..NOTHING }),
    // (53 thousand)
    ("one fails", 3, 2, Acks::Majority, 16, Bounds { writes: 2, failures: 1, crashes: 1, losses: 1, ..NOTHING }),
    // (0.38 million)
    ("no room on two", 3, 2, Acks::Majority, 16, Bounds { writes: 2, fills: 2, empties: 1, crashes: 1, ..NOTHING }),
    // (0.24 million)
    ("logs of two entries", 3, 2, Acks::Majority, 2, Bounds { writes: 3, demotions: 1, crashes: 1, ..NOTHING }),
    ("forks", 3, 1, Acks::Majority, 16, Bounds { writes: 2, crashes: 2, losses: 2, ..NOTHING }),
    ("reads that race", 3, 1, Acks::Majority, 16, Bounds { writes: 2, deletes: 1, reads: 2, hedges: 1, ..NOTHING }),
    // (0.27 million)
    ("acknowledged by one", 2, 2, Acks::One, 16, Bounds { writes: 3, reads: 1, demotions: 1, crashes: 1, ..NOTHING }),
    (
        "acknowledged by all",
        3,
        1,
        Acks::All,
        16,
        Bounds { writes: 2, reads: 1, failures: 1, crashes: 1, losses: 1, ..NOTHING },
    ),
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
    (
        "a copy that is given up",
        3,
        1,
        Acks::Majority,
        1,
        Bounds { writes: 3, reads: 1, demotions: 2, failures: 1, ..NOTHING },
    ),
    ("a copy without room", 3, 1, Acks::Majority, 1, Bounds { writes: 3, fills: 1, demotions: 1, ..NOTHING }),
    ("a copy by one", 2, 2, Acks::One, 1, Bounds { writes: 3, demotions: 1, crashes: 1, ..NOTHING }),
    // (0.61 million)
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
        Bounds { writes: 3, deletes: 1, demotions: 2, crashes: 1, losses: 1, ..NOTHING },
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

/// The shortest way to what goes wrong: what is found first need not be, so the depth is raised one by one.
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
    let path = (1..40).find_map(find).unwrap_or_else(|| panic!("{name}: not convicted"));
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
