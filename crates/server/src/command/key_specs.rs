//! Key specifications: the positions of a command's keys, and its access to them.
//!
//! Clients and proxies read them from `COMMAND INFO`. The flags are those of Redis 7.0.

use lodestore_wire::ReplyWriter;

use super::arguments::is_word;
use crate::command_specs::spec::{CommandKind, CommandSpec, Keys};

/// Flags of a key, as Redis names them.
pub(crate) type KeyFlags = &'static [&'static str];

const READ_METADATA: KeyFlags = &["RO"];
const READ: KeyFlags = &["RO", "access"];
const OVERWRITE: KeyFlags = &["OW", "update"];
const CREATE: KeyFlags = &["OW", "insert"];
const REMOVE: KeyFlags = &["RM", "delete"];
const INSERT: KeyFlags = &["RW", "insert"];
const UPDATE: KeyFlags = &["RW", "update"];
const REMOVE_PART: KeyFlags = &["RW", "delete"];
const READ_AND_REMOVE: KeyFlags = &["RW", "access", "delete"];
const READ_AND_UPDATE: KeyFlags = &["RW", "access", "update"];
/// `SET` reads the old value if an option requests the value.
const SET: KeyFlags = &["RW", "access", "update", "variable_flags"];
const CHANNEL: KeyFlags = &["not_key"];

/// A key specification: some keys of a command that have the same flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeySpec {
    pub(crate) flags: KeyFlags,
    /// Index of the first key among the arguments.
    first: i64,
    /// The last key, from the first one on; -1: the last argument.
    last: i64,
    step: i64,
}

/// Returns the key specifications of a command.
pub(crate) fn specs_of(spec: &CommandSpec) -> Vec<KeySpec> {
    let one = |flags: KeyFlags, first: i64| KeySpec { flags, first, last: 0, step: 1 };
    let all = |flags: KeyFlags, step: i64| KeySpec { flags, first: 1, last: -1, step };
    match (spec.keys, spec.name) {
        // Redis specifies the names of shard channels, because they have a slot in a cluster.
        (Keys::None, "spublish") => vec![one(CHANNEL, 1)],
        (Keys::None, "ssubscribe" | "sunsubscribe") => vec![all(CHANNEL, 1)],
        (Keys::None | Keys::Everything, _) => Vec::new(),
        (Keys::One, _) => vec![one(flags_of(spec, 0), 1)],
        (Keys::Two, _) => vec![one(flags_of(spec, 0), 1), one(flags_of(spec, 1), 2)],
        (Keys::All, _) => vec![all(flags_of(spec, 0), 1)],
        (Keys::Pairs, _) => vec![all(flags_of(spec, 0), 2)],
    }
}

/// Returns the specification of the key of a subcommand, which is argument 2.
pub(crate) fn spec_of_subcommand() -> KeySpec {
    KeySpec { flags: READ_METADATA, first: 2, last: 0, step: 1 }
}

/// Returns the flags of the first key of a command, or of the others.
fn flags_of(spec: &CommandSpec, index: usize) -> KeyFlags {
    match (spec.name, index) {
        ("exists" | "hexists" | "hlen" | "hstrlen" | "strlen" | "touch" | "type" | "watch", _) => READ_METADATA,
        ("mset" | "psetex" | "setex", _) | ("copy" | "rename", 1) => OVERWRITE,
        ("msetnx" | "setnx", _) | ("renamenx", 1) => CREATE,
        ("del" | "unlink", _) => REMOVE,
        ("append" | "hsetnx", _) => INSERT,
        ("expire" | "expireat" | "pexpire" | "pexpireat" | "persist" | "hmset" | "hset" | "setrange", _) => UPDATE,
        ("hdel", _) => REMOVE_PART,
        ("getdel" | "delifeq" | "rename" | "renamenx", _) => READ_AND_REMOVE,
        ("copy", _) => READ,
        ("set", _) => SET,
        _ => match spec.kind {
            CommandKind::Read | CommandKind::Other => READ,
            CommandKind::Write => READ_AND_UPDATE,
        },
    }
}

/// Returns the flags of key `index` of a call, as `COMMAND GETKEYSANDFLAGS` sends them.
pub(crate) fn flags_of_key(spec: &CommandSpec, arguments: &[&[u8]], index: usize) -> KeyFlags {
    if spec.name == "set" {
        let reads = arguments.iter().skip(3).any(|word| is_word(word, "get") || is_word(word, "ifeq"));
        return if reads { READ_AND_UPDATE } else { OVERWRITE };
    }
    let specs = specs_of(spec);
    specs.get(index).or(specs.first()).map_or(READ_METADATA, |spec| spec.flags)
}

/// Writes key specifications in the form of `COMMAND INFO`.
pub(crate) fn write_specs(reply: &mut ReplyWriter<'_>, specs: &[KeySpec]) {
    reply.write_set(specs.len());
    for spec in specs {
        reply.write_map(3);
        reply.write_bulk(b"flags");
        write_flags(reply, spec.flags);
        write_part(reply, "begin_search", "index", &[("index", spec.first)]);
        let range = [("lastkey", spec.last), ("keystep", spec.step), ("limit", 0)];
        write_part(reply, "find_keys", "range", &range);
    }
}

/// Writes flags as a set.
pub(crate) fn write_flags(reply: &mut ReplyWriter<'_>, flags: &[&str]) {
    reply.write_set(flags.len());
    flags.iter().for_each(|flag| reply.write_simple(flag));
}

fn write_part(reply: &mut ReplyWriter<'_>, name: &str, kind: &str, numbers: &[(&str, i64)]) {
    reply.write_bulk(name.as_bytes());
    reply.write_map(2);
    reply.write_bulk(b"type");
    reply.write_bulk(kind.as_bytes());
    reply.write_bulk(b"spec");
    reply.write_map(numbers.len());
    for (name, number) in numbers {
        reply.write_bulk(name.as_bytes());
        reply.write_integer(*number);
    }
}
