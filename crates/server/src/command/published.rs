//! Flags, tips and positions of channels, which clients read from `COMMAND INFO`.
//!
//! The table of commands has the flags that the server itself needs. The flags and tips of this
//! module are those of Redis 7.0, for the use of clients and proxies.

/// Flags as a list of words.
type Words = &'static [&'static str];

const WHILE_LOADING: Words = &["loading", "stale"];
const OF_CONNECTIONS: Words = &["noscript", "loading", "stale"];
const WHILE_BUSY: Words = &["noscript", "loading", "stale", "allow_busy"];
const OF_SAVES: Words = &["noscript", "no_async_loading"];
const OF_REPLICAS: Words = &["noscript", "stale", "no_async_loading"];
const OF_SUBSCRIBERS: Words = &["pubsub", "noscript", "loading", "stale"];
const OF_MESSAGES: Words = &["pubsub", "loading", "stale"];

/// Returns the flags of a command or subcommand that the table of commands does not have. A
/// subcommand is named as in `config|get`.
pub(crate) fn flags_of(name: &str) -> Words {
    match name.split_once('|') {
        Some((_, "help")) => WHILE_LOADING,
        Some(("acl" | "client" | "config" | "latency", _)) => OF_CONNECTIONS,
        Some(("command" | "slowlog", _)) => WHILE_LOADING,
        Some(("pubsub", _)) => OF_MESSAGES,
        Some(("module", _)) => &["noscript"],
        Some(_) => &[],
        None => flags_of_command(name),
    }
}

fn flags_of_command(name: &str) -> Words {
    match name {
        "debug" | "monitor" | "role" => OF_CONNECTIONS,
        "command" | "echo" | "info" | "lastsave" | "select" | "time" => WHILE_LOADING,
        "auth" | "discard" | "hello" | "multi" | "quit" | "replconf" | "reset" | "shutdown" | "unwatch" | "watch" => {
            WHILE_BUSY
        }
        "bgrewriteaof" | "bgsave" | "psync" | "save" | "sync" => OF_SAVES,
        "exec" => &["noscript", "loading", "stale", "skip_slowlog"],
        "failover" => &["noscript", "stale"],
        "lolwut" => &["readonly"],
        "wait" => &["noscript"],
        "psubscribe" | "punsubscribe" | "ssubscribe" | "subscribe" | "sunsubscribe" | "unsubscribe" => OF_SUBSCRIBERS,
        "publish" | "spublish" => OF_MESSAGES,
        "replicaof" | "slaveof" => OF_REPLICAS,
        _ => &[],
    }
}

/// Returns the positions of the channels that Redis reports as those of keys. The first one, the
/// last one (negative: from the end) and the step.
pub(crate) fn channel_positions(name: &str) -> Option<(i64, i64, i64)> {
    match name {
        "spublish" => Some((1, 1, 1)),
        "ssubscribe" | "sunsubscribe" => Some((1, -1, 1)),
        _ => None,
    }
}

const VARIES: &str = "nondeterministic_output";
const ORDER_VARIES: &str = "nondeterministic_output_order";
const ALL_NODES: &str = "request_policy:all_nodes";
const ALL_SHARDS: &str = "request_policy:all_shards";
const MULTI_SHARD: &str = "request_policy:multi_shard";
const ALL_SUCCEEDED: &str = "response_policy:all_succeeded";
const SUM: &str = "response_policy:agg_sum";
const LEAST: &str = "response_policy:agg_min";
const SPECIAL: &str = "response_policy:special";

/// Returns the tips of a command or subcommand.
pub(crate) fn tips_of(name: &str) -> Words {
    match name {
        "client|info" | "client|list" | "hrandfield" | "hscan" | "lastsave" | "object|encoding" | "object|freq"
        | "object|idletime" | "object|refcount" | "pttl" | "time" | "ttl" => &[VARIES],
        "command" | "command|docs" | "command|info" | "command|list" | "hgetall" | "hkeys" | "hvals"
        | "module|list" => &[ORDER_VARIES],
        "config|set" | "latency|reset" | "slowlog|reset" => &[ALL_NODES, ALL_SUCCEEDED],
        "dbsize" => &[ALL_SHARDS, SUM],
        "del" | "exists" | "touch" | "unlink" => &[MULTI_SHARD, SUM],
        "flushall" | "flushdb" | "memory|purge" | "ping" => &[ALL_SHARDS, ALL_SUCCEEDED],
        "info" | "memory|doctor" | "memory|malloc-stats" | "memory|stats" => &[VARIES, ALL_SHARDS, SPECIAL],
        "keys" => &[ALL_SHARDS, ORDER_VARIES],
        "latency|doctor" | "latency|graph" | "latency|histogram" | "latency|history" | "latency|latest" => {
            &[VARIES, ALL_NODES, SPECIAL]
        }
        "mget" => &[MULTI_SHARD],
        "mset" => &[MULTI_SHARD, ALL_SUCCEEDED],
        "msetnx" => &[MULTI_SHARD, LEAST],
        "randomkey" => &[ALL_SHARDS, VARIES],
        "scan" => &[VARIES, "request_policy:special"],
        "slowlog|get" => &[ALL_NODES, VARIES],
        "slowlog|len" => &[ALL_NODES, SUM, VARIES],
        "wait" => &[ALL_SHARDS, LEAST],
        _ => &[],
    }
}
