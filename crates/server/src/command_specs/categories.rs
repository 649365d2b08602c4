//! Categories of commands, with the names and members of Redis 7.0.

use super::spec::{CommandKind, CommandSpec, flag};
use super::subcommands::subcommands_of;

/// A bit for each category, in the order in which `ACL CAT` lists them.
pub(crate) mod bit {
    pub(crate) const KEYSPACE: u32 = 1;
    pub(crate) const READ: u32 = 1 << 1;
    pub(crate) const WRITE: u32 = 1 << 2;
    pub(crate) const SET: u32 = 1 << 3;
    pub(crate) const SORTEDSET: u32 = 1 << 4;
    pub(crate) const LIST: u32 = 1 << 5;
    pub(crate) const HASH: u32 = 1 << 6;
    pub(crate) const STRING: u32 = 1 << 7;
    pub(crate) const BITMAP: u32 = 1 << 8;
    pub(crate) const HYPERLOGLOG: u32 = 1 << 9;
    pub(crate) const GEO: u32 = 1 << 10;
    pub(crate) const STREAM: u32 = 1 << 11;
    pub(crate) const PUBSUB: u32 = 1 << 12;
    pub(crate) const ADMIN: u32 = 1 << 13;
    pub(crate) const FAST: u32 = 1 << 14;
    pub(crate) const SLOW: u32 = 1 << 15;
    pub(crate) const BLOCKING: u32 = 1 << 16;
    pub(crate) const DANGEROUS: u32 = 1 << 17;
    pub(crate) const CONNECTION: u32 = 1 << 18;
    pub(crate) const TRANSACTION: u32 = 1 << 19;
    pub(crate) const SCRIPTING: u32 = 1 << 20;
}

/// Names of the categories, in the order of their bits.
pub(crate) const NAMES: [&str; 21] = [
    "keyspace",
    "read",
    "write",
    "set",
    "sortedset",
    "list",
    "hash",
    "string",
    "bitmap",
    "hyperloglog",
    "geo",
    "stream",
    "pubsub",
    "admin",
    "fast",
    "slow",
    "blocking",
    "dangerous",
    "connection",
    "transaction",
    "scripting",
];

/// Returns the bit of a category. Names have no case.
pub(crate) fn find(name: &str) -> Option<u32> {
    NAMES.iter().position(|known| known.eq_ignore_ascii_case(name)).map(|index| 1 << index)
}

/// Iterates over the names of categories, in the order of `ACL CAT`.
pub(crate) fn names_of(categories: u32) -> impl Iterator<Item = &'static str> {
    NAMES.iter().enumerate().filter(move |(index, _)| categories >> index & 1 == 1).map(|(_, name)| *name)
}

/// Returns the categories of a command.
pub(crate) fn of_command(spec: &CommandSpec) -> u32 {
    if !subcommands_of(spec.name).is_empty() {
        // Each subcommand has its own categories.
        return bit::SLOW | if spec.name == "command" { bit::CONNECTION } else { 0 };
    }
    let effect = match spec.kind {
        CommandKind::Read => bit::READ,
        CommandKind::Write => bit::WRITE,
        CommandKind::Other => 0,
    };
    let speed = if spec.has(flag::FAST) { bit::FAST } else { bit::SLOW };
    let admin = if spec.has(flag::ADMIN) { bit::ADMIN | bit::DANGEROUS } else { 0 };
    effect | speed | admin | of_group(spec) | exceptional_categories(spec.name)
}

fn of_group(spec: &CommandSpec) -> u32 {
    match spec.group {
        "generic" if spec.name == "wait" => bit::CONNECTION,
        "generic" if spec.name == "sort" => bit::SET | bit::SORTEDSET | bit::LIST,
        "generic" => bit::KEYSPACE,
        "string" => bit::STRING,
        "hash" => bit::HASH,
        "list" => bit::LIST,
        "set" => bit::SET,
        "sorted-set" | "sorted set" | "zset" => bit::SORTEDSET,
        "bitmap" => bit::BITMAP,
        "hyperloglog" => bit::HYPERLOGLOG,
        "geo" => bit::GEO,
        "stream" => bit::STREAM,
        "pubsub" => bit::PUBSUB,
        "connection" => bit::CONNECTION,
        "transactions" => bit::TRANSACTION,
        "scripting" => bit::SCRIPTING,
        _ => 0,
    }
}

/// Returns categories that neither the flags nor the group of a command imply.
fn exceptional_categories(name: &str) -> u32 {
    match name {
        "flushall" | "flushdb" | "swapdb" => bit::KEYSPACE | bit::DANGEROUS,
        "dbsize" => bit::KEYSPACE,
        "info" | "keys" | "sort" => bit::DANGEROUS,
        "lolwut" => bit::READ,
        "lastsave" | "role" => bit::ADMIN | bit::DANGEROUS,
        "blpop" | "brpop" | "blmove" | "brpoplpush" | "blmpop" | "bzpopmin" | "bzpopmax" | "bzmpop" => bit::BLOCKING,
        _ => 0,
    }
}
