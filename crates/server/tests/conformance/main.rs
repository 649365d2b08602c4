//! Compares replies of this server with replies of Redis 7.0, byte by byte.
//!
//! Each JSON file in this directory has cases: commands, and the replies that Redis sends. A case
//! with an intended difference has the replies of this server too, and the reason.
//!
//! * `cases`: reads and writes the files.
//! * `servers`: starts this server and Redis.
//! * `run`: runs a case on a server.
//! * `arity`: the number of arguments of every command.
//! * `document`: `docs/server-commands.md`.
//!
//! Redis is `$LODESTORE_REDIS_SERVER`, which must have version 7.0, or `redis-server`. Without a
//! Redis of version 7.0, the tests compare this server with the recorded replies only.
//! `LODESTORE_UPDATE=1` records the replies. `LODESTORE_SERVER_TEST_TOPIC` names the only file to
//! use.

mod arity;
mod cases;
mod document;
mod run;
mod servers;

use cases::{Case, CaseFile};
use servers::{Running, start_lodestore, start_redis};

/// Cases that the files must have.
const CASES_MIN: usize = 2100;

/// Whether the tests record replies instead of comparing them.
fn is_update() -> bool {
    std::env::var_os("LODESTORE_UPDATE").is_some()
}

/// Returns a text of all cases of a file whose replies differ from the expected ones.
fn differences(file: &CaseFile, server: &Running, expected: impl Fn(&Case) -> &[String]) -> Vec<String> {
    let mut found = Vec::new();
    for case in &file.cases {
        let replies = run::run_case(file, case, server);
        let (replies, expected) = (case.normalise.apply(&replies), case.normalise.apply(expected(case)));
        if replies != expected {
            let (topic, name) = (&file.topic, &case.name);
            found.push(format!(
                "{topic}: {name}: {:?}\n    expected {expected:?}\n    received {replies:?}",
                case.commands
            ));
        }
    }
    found
}

#[test]
fn each_reply_is_that_of_redis_or_its_difference_has_a_reason() {
    if is_update() {
        return;
    }
    let files = cases::read_all();
    let count: usize = files.iter().map(|file| file.cases.len()).sum();
    assert!(count >= CASES_MIN, "{count} cases");
    let mut found = Vec::new();
    for file in &cases::read_selected() {
        let server = start_lodestore(file.password.as_deref());
        found.extend(differences(file, &server, Case::own_replies));
    }
    println!("{count} cases compared with the recorded replies");
    assert!(found.is_empty(), "{} differences:\n{}", found.len(), found.join("\n"));
}

#[test]
fn redis_sends_the_recorded_replies() {
    if is_update() {
        return record();
    }
    let mut found = Vec::new();
    let mut count = 0;
    for file in &cases::read_selected() {
        let Some(server) = start_redis(file.password.as_deref()) else {
            return;
        };
        found.extend(differences(file, &server, |case| &case.replies));
        count += file.cases.len();
    }
    println!("{count} cases compared with Redis");
    assert!(found.is_empty(), "{} differences:\n{}", found.len(), found.join("\n"));
}

#[test]
fn each_intended_difference_is_a_difference() {
    for file in cases::read_all().iter().filter(|_| !is_update()) {
        for case in &file.cases {
            assert_eq!(case.reason.is_some(), case.lodestore.is_some(), "{}: {}", file.topic, case.name);
            if let Some(own) = &case.lodestore {
                let (own, replies) = (case.normalise.apply(own), case.normalise.apply(&case.replies));
                assert_ne!(own, replies, "{}: {}: remove the reason", file.topic, case.name);
            }
        }
    }
}

/// Records the replies of Redis, and those of this server where a case has a reason.
fn record() {
    for mut file in cases::read_selected() {
        let redis = start_redis(file.password.as_deref()).expect("redis-server of version 7.0");
        let own = start_lodestore(file.password.as_deref());
        for index in 0..file.cases.len() {
            let case = &file.cases[index];
            let replies = run::run_case(&file, case, &redis);
            let own = case.reason.is_some().then(|| run::run_case(&file, case, &own));
            let case = &mut file.cases[index];
            case.replies = case.normalise.apply(&replies);
            case.lodestore = own.map(|own| case.normalise.apply(&own));
        }
        cases::write(&file);
    }
}
