//! The access of a command to its keys: `%R~` and `%W~` permit reading or writing.
//!
//! The table follows Redis 7.0: a command reads a key if it returns, copies or computes with the
//! value. A command that reports only the existence, type or length needs no right to read, but
//! some pattern must match the key.

use super::check::Call;
use crate::command_specs::spec::{CommandKind, Keys};
use crate::words::is_word;

/// Rights on a key, as bits.
pub(crate) type Access = u8;

pub(crate) const READ: Access = 1;
pub(crate) const WRITE: Access = 2;

/// A key of a command, and the rights that the command needs on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeyUse<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) access: Access,
}

/// Iterates over the keys of a command.
pub(crate) fn keys_of<'a>(call: &Call, arguments: &'a [&'a [u8]]) -> impl Iterator<Item = KeyUse<'a>> {
    let (first, others) = access_of(call, arguments);
    let keys = if call.subcommand.is_some() { Keys::None } else { call.spec.keys };
    let subkey = call.subcommand.filter(|subcommand| subcommand.has_key).and_then(|_| arguments.get(2));
    let keys = keys.of(arguments).chain(subkey.copied()).enumerate();
    keys.map(move |(index, key)| KeyUse { key, access: if index == 0 { first } else { others } })
}

/// Returns the rights that a command needs on its first key and on all others.
fn access_of(call: &Call, arguments: &[&[u8]]) -> (Access, Access) {
    if call.subcommand.is_some() {
        return (0, 0);
    }
    match call.spec.name {
        "exists" | "hexists" | "hlen" | "hstrlen" | "llen" | "scard" | "sismember" | "strlen" | "touch" | "type"
        | "watch" | "zcard" => (0, 0),
        "append" | "del" | "expire" | "expireat" | "hdel" | "hmset" | "hset" | "hsetnx" | "linsert" | "lpush"
        | "lpushx" | "lrem" | "lset" | "ltrim" | "mset" | "msetnx" | "persist" | "pexpire" | "pexpireat" | "psetex"
        | "rpush" | "rpushx" | "sadd" | "setex" | "setnx" | "setrange" | "srem" | "unlink" | "zadd" | "zrem"
        | "zremrangebylex" | "zremrangebyrank" | "zremrangebyscore" => (WRITE, WRITE),
        "set" => {
            // Options follow the value. The value of `IFEQ` is compared, which reads the old value.
            let reads = arguments.iter().skip(3).any(|word| is_word(word, "get") || is_word(word, "ifeq"));
            let access = if reads { READ | WRITE } else { WRITE };
            (access, access)
        }
        "bitop" | "sdiffstore" | "sinterstore" | "sunionstore" | "zdiffstore" | "zinterstore" | "zrangestore"
        | "zunionstore" => (WRITE, READ),
        "blmove" | "brpoplpush" | "lmove" | "rename" | "renamenx" | "rpoplpush" | "smove" => (READ | WRITE, WRITE),
        "copy" => (READ, WRITE),
        _ => match call.spec.kind {
            CommandKind::Read => (READ, READ),
            CommandKind::Write => (READ | WRITE, READ | WRITE),
            CommandKind::Other => (0, 0),
        },
    }
}

/// Returns the key that `DEBUG OBJECT` describes. As in Redis, `COMMAND GETKEYS` does not report
/// the key.
pub(crate) fn described_key<'a>(call: &Call, arguments: &'a [&'a [u8]]) -> Option<KeyUse<'a>> {
    match arguments {
        [_, word, key, ..] if call.spec.name == "debug" && is_word(word, "object") => Some(KeyUse { key, access: 0 }),
        _ => None,
    }
}

/// Whether a command returns keys or values without naming the keys, so that it needs all keys.
pub(crate) fn needs_all_keys(call: &Call) -> bool {
    call.spec.name == "lodestore.range"
}
