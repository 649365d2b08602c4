//! A model check of the protocol of one group: all orders of events within small bounds, with a
//! crash of the host at every step.
//!
//! # What is modelled
//! These parts of `src` are modelled:
//! * the stripe lock (a write holds its key until it is acknowledged), the sequencer and the
//!   queues;
//! * a processor's steps (dequeue; log entry; store and vote), holes and the lagging `applied`, and
//!   logs as rings with eviction;
//! * acknowledgement by one, most or all members; late and early refusals; rollback by `Restore`;
//! * reads of an up-to-date store, and reads through queues;
//! * a member that is demoted, fails or has no space; the removal of inactive members and its
//!   epoch; the removal of forks;
//! * an open (redo, choice of the leader, levelling, following, rollback) with a crash between its
//!   steps;
//! * the loss of one device while the host is stopped, for one open or for good.
//!
//! A member that failed for being late and is used again when its processor rests is modelled as a
//! demoted one. A member that comes back is filling: it receives operations and has no vote; it
//! refuses, lags or fails. Earlier operations come from a donor's log while its processor is held.
//! In a copy, they come key by key through its queue while clients write. Before it is emptied, an
//! epoch excludes it. When it has all of the copy, its record says that logs contain the rest. The
//! member joins with the sequencer held: first its record, then possibly a crash, then the
//! description.
//!
//! # What is not
//! These parts are not modelled:
//! * the filter, scans, expiry, read repair, damage, salvage, a clean stop, several groups,
//!   replacement;
//! * a log without space for an entry;
//! * errors of the host's store, except when a write must record a failed member;
//! * reads while fewer members are active than a write needs (the effect of an unacknowledged write
//!   may disappear with the next crash);
//! * the late end of an operation on a device that was given up.
//!
//! A replay's rounds before the last step are left out. The two walks of a copy, over the member's
//! own keys and over another's, are one. Steps that the code does under one lock are one step. Logs
//! of one entry represent logs with few bytes: members lag by more than these hold. If such a log
//! is the newest and its member has no space for its operations, an open may be refused; the bounds
//! below exclude this.
//!
//! # What is checked
//! * Each key's reads and writes are linearizable, also across crashes. A write in progress at a
//!   crash has had its effect by then, or never has. No acknowledged write is lost, no deleted pair
//!   reappears, and no refused write is seen.
//! * Members that have applied the same operations hold the same pairs. Logs are runs.
//! * With all devices available, an open succeeds. With three devices and `majority`, an open also
//!   succeeds without the only device that had failed.
//!
//! Unique states visited: 3.64 million for [`SOUND`], in 15 seconds on two cores; each test prints
//! its own number. Each rule that is left out ([`MUTANTS`]) is convicted, some only together with
//! another rule of the same effect. The published rules are convicted too. Within these bounds no
//! mutant convicts `looks_again` and these rules:
//! * `refused_are_behind`: needs 7.5 million states (a write and a delete of another key, a read,
//!   two full members, an unrecorded failure, a crash and a loss).
//! * `copy_by_queue`: operations are unconditional, and queued ones will be applied. A copy may
//!   therefore bypass the queue if it holds the key's stripe until the pair is in the store. With
//!   the queue a store has a single writer, and the stripe is held for less time.
//! * `fork_said_until_joined`: needs a lost donor after the loss of another device.
//! * `waits_for_pending`: without it, the write is reported as in doubt, which is true.
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

/// Cases that must hold. In parentheses: unique states.
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

/// As [`SOUND`], with larger bounds.
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

/// Explores all states. Returns how often each of [`SEEN`] happened.
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
fn the_protocol_keeps_its_guarantees() {
    let seen = assert_sound(SOUND);
    for (name, count) in SEEN.iter().zip(seen) {
        assert_ne!(count, 0, "{name} happens in the model");
    }
}

#[test]
#[ignore = "takes minutes"]
fn the_protocol_keeps_its_guarantees_within_larger_bounds() {
    assert_sound(LARGE);
}

/// Finds a path to the violation, at most two steps longer than the shortest. The depth grows in
/// steps, because the first path found may be far longer.
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
fn each_omitted_rule_is_detected() {
    for (case, leave_out, wrong) in MUTANTS {
        let mut model = model(case);
        leave_out(&mut model.rules);
        convict(case.0, model, wrong);
    }
}

#[test]
fn the_published_rules_are_detected_as_wrong() {
    let paper = |writes, crashes| Paper { writes, crashes };
    convict("published, a get behind a put", paper(2, 0), LINEARIZABLE);
    convict("published, a get behind a delete", paper(2, 0), "what was deleted stays deleted");
    convict("published, two writes in either order", paper(2, 0), "devices at rest agree");
    convict("published, a crash", paper(1, 1), "devices at rest agree");
}
