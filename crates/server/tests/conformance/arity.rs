//! The number of arguments of every command of the table, and its `COMMAND INFO`.

use std::collections::BTreeMap;

use lodestore_server::command_table;
use lodestore_wire::{Limits, Reply, decode_reply};

use super::cases::{Case, CaseFile, Normalisation};
use super::run::run_case;
use super::servers::{Running, start_lodestore, start_redis};

/// Fields of `COMMAND INFO` that differ from those of Redis, with the reason.
const DIFFERENT: [(&str, &[&str], &str); 3] = [
    ("dbsize", &["flags", "categories"], "The store counts keys one by one, so the command is not fast."),
    ("debug", &["flags"], "DEBUG is refused within MULTI."),
    ("monitor", &["flags"], "MONITOR is refused within MULTI when it is queued."),
];

/// Commands whose channels have key specifications in Redis. A channel is no key here.
const OF_CHANNELS: [&str; 3] = ["spublish", "ssubscribe", "sunsubscribe"];

/// Names of the fields of `COMMAND INFO`, in their order.
const FIELDS: [&str; 10] =
    ["name", "arity", "flags", "first", "last", "step", "categories", "tips", "keys", "subcommands"];

fn run_one(server: &Running, command: &str) -> String {
    run_in(server, command, 2)
}

fn run_in(server: &Running, command: &str, protocol: u64) -> String {
    let case = Case {
        name: command.into(),
        commands: vec![command.into()],
        replies: Vec::new(),
        normalise: Normalisation::None,
        lodestore: None,
        reason: None,
    };
    let file = CaseFile { topic: "arity".into(), password: None, protocol, cases: Vec::new() };
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

/// Returns a reply of RESP3 as a text, with sets and maps in the order of their elements. The notes
/// of key specifications are for people, and are omitted.
fn show(reply: &Reply) -> String {
    match reply {
        Reply::Set(elements) => {
            let mut elements: Vec<String> = elements.iter().map(show).collect();
            elements.sort();
            format!("~{elements:?}")
        }
        Reply::Map(pairs) => {
            let pairs = pairs.iter().map(|(key, value)| (show(key), show(value)));
            let pairs: BTreeMap<String, String> = pairs.filter(|(key, _)| !key.contains("notes")).collect();
            format!("%{pairs:?}")
        }
        Reply::Array(elements) => format!("{:?}", elements.iter().map(show).collect::<Vec<_>>()),
        Reply::Simple(text) => format!("+{}", String::from_utf8_lossy(text)),
        Reply::Bulk(text) => format!("${}", String::from_utf8_lossy(text)),
        other => format!("{other:?}"),
    }
}

/// Adds the fields of a command and of its subcommands, by their names.
fn add_fields(command: &Reply, found: &mut BTreeMap<String, Vec<String>>) {
    let Reply::Array(fields) = command else { return };
    assert_eq!(fields.len(), FIELDS.len(), "{command:?}");
    let Reply::Bulk(name) = &fields[0] else { panic!("{command:?}") };
    let mut texts: Vec<String> = fields.iter().map(show).collect();
    if let Reply::Array(subcommands) = &fields[9] {
        subcommands.iter().for_each(|subcommand| add_fields(subcommand, found));
        // Redis has subcommands that this server does not have.
        texts[9] = "subcommands".into();
    }
    found.insert(String::from_utf8_lossy(name).into_owned(), texts);
}

/// Returns `COMMAND INFO` of commands.
fn describe(server: &Running, names: &str) -> Vec<Reply> {
    let reply = run_in(server, &format!("COMMAND INFO {names}"), 3) + "\r\n";
    let bytes: Vec<u8> = reply.chars().map(|character| character as u8).collect();
    let (reply, _) = decode_reply(&bytes, &Limits::default()).expect("a valid reply").expect("a whole reply");
    let Reply::Array(commands) = reply else { panic!("{reply:?}") };
    commands
}

/// Returns the fields of all commands of the table that a server has.
fn describe_all(server: &Running) -> BTreeMap<String, Vec<String>> {
    let mut found = BTreeMap::new();
    for command in command_table() {
        let commands = describe(server, command.name);
        commands.iter().for_each(|command| add_fields(command, &mut found));
    }
    found
}

#[test]
fn command_info_of_each_command_is_that_of_redis() {
    let Some(redis) = start_redis(None) else { return };
    let (own, theirs) = (describe_all(&start_lodestore(None)), describe_all(&redis));
    let mut found = Vec::new();
    for (name, theirs) in theirs {
        let Some(ours) = own.get(&name) else { continue };
        for (index, field) in FIELDS.iter().enumerate() {
            let is_different = DIFFERENT.iter().any(|(other, fields, _)| *other == name && fields.contains(field));
            if (ours[index] == theirs[index]) == is_different {
                found.push(format!("{name}: {field}\n    Redis {}\n    own   {}", theirs[index], ours[index]));
            }
        }
    }
    assert!(found.is_empty(), "{} differences:\n{}", found.len(), found.join("\n"));
}

#[test]
fn command_info_describes_a_subcommand_by_its_full_name() {
    let shown = |server: &Running| {
        let names = "client|pause CONFIG|get Object|Encoding config|nosuch get|x | |get config|";
        describe(server, names).iter().map(show).collect::<Vec<_>>()
    };
    let ours = shown(&start_lodestore(None));
    assert!(ours[0].contains("client|pause") && ours[1].contains("config|get"), "{ours:?}");
    assert!(ours[3..].iter().all(|unknown| unknown == "Null"), "{ours:?}");
    let Some(redis) = start_redis(None) else { return };
    assert_eq!(ours, shown(&redis));
}

#[test]
fn the_keys_of_each_command_have_the_flags_of_redis() {
    let Some(redis) = start_redis(None) else { return };
    let own = start_lodestore(None);
    for command in command_table() {
        let arguments = (1..command.arity.unsigned_abs().max(2)).map(|number| format!("x{number}"));
        let words = [command.name.to_string()].into_iter().chain(arguments).collect::<Vec<_>>().join(" ");
        let text = format!("COMMAND GETKEYSANDFLAGS {words}");
        let (ours, theirs) = (run_one(&own, &text), run_one(&redis, &text));
        if theirs.starts_with('-') {
            // The command has no keys, or Redis does not have the command.
            continue;
        }
        assert!(ours == theirs || OF_CHANNELS.contains(&command.name), "{text}\n    Redis {theirs}\n    own   {ours}");
    }
}
