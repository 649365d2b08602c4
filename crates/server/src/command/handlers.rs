//! The handlers of the commands of `command_specs`.

use std::sync::LazyLock;

use super::context::Context;
use super::{
    acl, admin, client, config, connection, describe, expiry, hash_random, hash_read, hash_scan, hash_write, keys,
    numbers, object, observe, persistence, pubsub, scan, strings, transaction,
};
use crate::command_specs::table::COMMANDS;
use crate::error::{CommandError, CommandResult};

/// Runs a command. Argument 0 is the command's name.
pub(crate) type Handler = fn(&mut Context<'_, '_>, &[&[u8]]) -> CommandResult;

/// The handlers by the index of the command in the table.
static HANDLERS: LazyLock<Vec<Handler>> =
    LazyLock::new(|| COMMANDS.iter().map(|spec| find(spec.name).unwrap_or(refuse)).collect());

/// Returns the handler of the command with an index.
#[inline]
pub(super) fn handler_of(command: usize) -> Handler {
    HANDLERS[command]
}

fn find(name: &str) -> Option<Handler> {
    let index = BY_NAME.binary_search_by_key(&name, |(known, _)| known).ok()?;
    Some(BY_NAME[index].1)
}

/// The handler of a command that has no other one. A test shows that there is no such command.
fn refuse(_: &mut Context<'_, '_>, _: &[&[u8]]) -> CommandResult {
    Err(CommandError::new("ERR the command has no handler"))
}

/// The handlers of all commands, in the order of their names.
static BY_NAME: [(&str, Handler); 112] = [
    ("acl", acl::acl),
    ("append", strings::append),
    ("auth", connection::auth),
    ("bgrewriteaof", persistence::bgrewriteaof),
    ("bgsave", persistence::bgsave),
    ("client", client::client),
    ("command", describe::command),
    ("config", config::config),
    ("copy", keys::copy),
    ("dbsize", keys::dbsize),
    ("debug", admin::debug),
    ("decr", numbers::decr),
    ("decrby", numbers::decrby),
    ("del", keys::del),
    ("delifeq", keys::delifeq),
    ("discard", transaction::discard),
    ("echo", connection::echo),
    ("exec", transaction::exec),
    ("exists", keys::exists),
    ("expire", expiry::expire),
    ("expireat", expiry::expireat),
    ("expiretime", expiry::expiretime),
    ("failover", persistence::failover),
    ("flushall", keys::flushall),
    ("flushdb", keys::flushdb),
    ("get", strings::get),
    ("getdel", strings::getdel),
    ("getex", strings::getex),
    ("getrange", strings::getrange),
    ("getset", strings::getset),
    ("hdel", hash_write::hdel),
    ("hello", connection::hello),
    ("hexists", hash_read::hexists),
    ("hget", hash_read::hget),
    ("hgetall", hash_read::hgetall),
    ("hincrby", hash_write::hincrby),
    ("hincrbyfloat", hash_write::hincrbyfloat),
    ("hkeys", hash_read::hkeys),
    ("hlen", hash_read::hlen),
    ("hmget", hash_read::hmget),
    ("hmset", hash_write::hmset),
    ("hrandfield", hash_random::hrandfield),
    ("hscan", hash_scan::hscan),
    ("hset", hash_write::hset),
    ("hsetnx", hash_write::hsetnx),
    ("hstrlen", hash_read::hstrlen),
    ("hvals", hash_read::hvals),
    ("incr", numbers::incr),
    ("incrby", numbers::incrby),
    ("incrbyfloat", numbers::incrbyfloat),
    ("info", admin::info),
    ("keys", scan::keys),
    ("lastsave", persistence::lastsave),
    ("latency", observe::latency),
    ("lodestore.range", scan::range),
    ("lolwut", persistence::lolwut),
    ("memory", object::memory),
    ("mget", strings::mget),
    ("module", admin::module),
    ("monitor", observe::monitor),
    ("move", keys::move_key),
    ("mset", strings::mset),
    ("msetnx", strings::msetnx),
    ("multi", transaction::multi),
    ("object", object::object),
    ("persist", expiry::persist),
    ("pexpire", expiry::pexpire),
    ("pexpireat", expiry::pexpireat),
    ("pexpiretime", expiry::pexpiretime),
    ("ping", connection::ping),
    ("psetex", strings::psetex),
    ("psubscribe", pubsub::psubscribe),
    ("psync", persistence::refuse_replica),
    ("pttl", expiry::pttl),
    ("publish", pubsub::publish),
    ("pubsub", pubsub::pubsub),
    ("punsubscribe", pubsub::punsubscribe),
    ("quit", connection::quit),
    ("randomkey", scan::randomkey),
    ("rename", keys::rename),
    ("renamenx", keys::renamenx),
    ("replconf", persistence::refuse_replica),
    ("replicaof", persistence::replicaof),
    ("reset", connection::reset),
    ("role", persistence::role),
    ("save", persistence::save),
    ("scan", scan::scan),
    ("select", connection::select),
    ("set", strings::set),
    ("setex", strings::setex),
    ("setnx", strings::setnx),
    ("setrange", strings::setrange),
    ("shutdown", admin::shutdown),
    ("slaveof", persistence::replicaof),
    ("slowlog", observe::slowlog),
    ("spublish", pubsub::spublish),
    ("ssubscribe", pubsub::ssubscribe),
    ("strlen", strings::strlen),
    ("subscribe", pubsub::subscribe),
    ("substr", strings::getrange),
    ("sunsubscribe", pubsub::sunsubscribe),
    ("swapdb", keys::swapdb),
    ("sync", persistence::refuse_replica),
    ("time", admin::time),
    ("touch", keys::exists),
    ("ttl", expiry::ttl),
    ("type", keys::type_of),
    ("unlink", keys::del),
    ("unsubscribe", pubsub::unsubscribe),
    ("unwatch", transaction::unwatch),
    ("wait", admin::wait),
    ("watch", transaction::watch),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_has_one_handler() {
        let names: Vec<&str> = COMMANDS.iter().map(|spec| spec.name).collect();
        assert_eq!(BY_NAME.map(|(name, _)| name).as_slice(), names);
    }
}
