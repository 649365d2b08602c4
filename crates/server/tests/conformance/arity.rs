//! The number of arguments, key positions and categories of every command of the table.

use lodestore_server::command_table;
use lodestore_wire::{Limits, Reply, decode_reply};

use super::cases::{Case, CaseFile, Normalisation};
use super::run::run_case;
use super::servers::{Running, start_lodestore, start_redis};

/// Commands of Redis whose positions or categories differ here, with the reason.
const DIFFERENT: [(&str, &str); 4] = [
    ("dbsize", "The store counts keys one by one, so the command is not fast."),
    ("spublish", "A channel is no key here."),
    ("ssubscribe", "A channel is no key here."),
    ("sunsubscribe", "A channel is no key here."),
];

fn run_one(server: &Running, command: &str) -> String {
    let case = Case {
        name: command.into(),
        commands: vec![command.into()],
        replies: Vec::new(),
        normalise: Normalisation::None,
        lodestore: None,
        reason: None,
    };
    let file = CaseFile { topic: "arity".into(), password: None, protocol: 2, cases: Vec::new() };
    run_case(&file, &case, server).remove(0)
}

#[test]
fn each_command_refuses_a_wrong_number_of_arguments_as_redis_does() {
    let own = start_lodestore(None);
    let redis = start_redis(None);
    for command in command_table() {
        let least = command.arity.unsigned_abs() as usize;
        let mut counts: Vec<usize> = (1..least).collect();
        if command.arity > 0 {
            counts.push(least + 1);
        }
        for count in counts {
            let text = [command.name].into_iter().chain((1..count).map(|_| "x")).collect::<Vec<_>>().join(" ");
            let reply = run_one(&own, &text);
            let code = if command.name == "exec" { "-EXECABORT Transaction discarded because of:" } else { "-ERR" };
            assert_eq!(reply, format!("{code} wrong number of arguments for '{}' command", command.name), "{text}");
            if let Some(redis) = &redis {
                let theirs = run_one(redis, &text);
                assert!(theirs == reply || theirs.starts_with("-ERR unknown command"), "{text}: Redis: {theirs}");
            }
        }
    }
}

/// Returns arity, key positions and sorted categories of a command, if the server has it.
fn describe(server: &Running, name: &str) -> Option<(Vec<Reply>, Vec<String>)> {
    let reply = run_one(server, &format!("COMMAND INFO {name}")) + "\r\n";
    let bytes: Vec<u8> = reply.chars().map(|character| character as u8).collect();
    let (reply, _) = decode_reply(&bytes, &Limits::default()).ok()??;
    let Reply::Array(mut commands) = reply else { return None };
    let Reply::Array(fields) = commands.remove(0) else { return None };
    let Reply::Array(categories) = &fields[6] else { return None };
    let mut categories: Vec<String> = categories.iter().map(|category| format!("{category:?}")).collect();
    categories.sort();
    Some((vec![fields[1].clone(), fields[3].clone(), fields[4].clone(), fields[5].clone()], categories))
}

#[test]
fn command_info_has_the_positions_and_categories_of_redis() {
    let Some(redis) = start_redis(None) else { return };
    let own = start_lodestore(None);
    let mut found = Vec::new();
    for command in command_table().filter(|command| DIFFERENT.iter().all(|(name, _)| *name != command.name)) {
        let Some(theirs) = describe(&redis, command.name) else { continue };
        let ours = describe(&own, command.name).expect("a command of the table");
        if ours != theirs {
            found.push(format!("{}\n    Redis {theirs:?}\n    own   {ours:?}", command.name));
        }
    }
    assert!(found.is_empty(), "{} differences:\n{}", found.len(), found.join("\n"));
}
