//! The subcommands of the commands that have some, as Redis 7.0 has them.
//!
//! A permission may name a subcommand, and each one has its own categories.

use super::categories::bit::{ADMIN, CONNECTION, DANGEROUS, KEYSPACE, PUBSUB, READ, SLOW};

/// The specification of a subcommand.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SubcommandSpec {
    /// Name of the command and of the subcommand, as in `config|get`.
    pub(crate) full_name: &'static str,
    /// Number of arguments with both names. A negative number is a minimum.
    pub(crate) arity: i32,
    /// Categories of the subcommand.
    pub(crate) categories: u32,
    /// Whether argument 2 is a key.
    pub(crate) has_key: bool,
}

impl SubcommandSpec {
    /// Returns the name without the name of the command.
    pub(crate) fn name(&self) -> &'static str {
        self.full_name.split_once('|').map_or(self.full_name, |(_, name)| name)
    }

    /// Whether the subcommand accepts this number of arguments, both names included.
    pub(crate) fn accepts(&self, arguments: usize) -> bool {
        super::spec::is_arity_met(self.arity, arguments)
    }
}

const fn sub(full_name: &'static str, arity: i32, categories: u32, has_key: bool) -> SubcommandSpec {
    SubcommandSpec { full_name, arity, categories, has_key }
}

/// Returns the subcommands of a command. Most commands have none.
pub(crate) fn subcommands_of(command: &str) -> &'static [SubcommandSpec] {
    match command {
        "acl" => &ACL_SUBCOMMANDS,
        "client" => &CLIENT_SUBCOMMANDS,
        "cluster" => &CLUSTER_SUBCOMMANDS,
        "command" => &COMMAND_SUBCOMMANDS,
        "config" => &CONFIG_SUBCOMMANDS,
        "latency" => &LATENCY_SUBCOMMANDS,
        "memory" => &MEMORY_SUBCOMMANDS,
        "module" => &MODULE_SUBCOMMANDS,
        "object" => &OBJECT_SUBCOMMANDS,
        "pubsub" => &PUBSUB_SUBCOMMANDS,
        "slowlog" => &SLOWLOG_SUBCOMMANDS,
        _ => &[],
    }
}

const ACL_SUBCOMMANDS: [SubcommandSpec; 13] = [
    sub("acl|cat", -2, SLOW, false),
    sub("acl|deluser", -3, ADMIN | DANGEROUS | SLOW, false),
    sub("acl|dryrun", -4, ADMIN | DANGEROUS | SLOW, false),
    sub("acl|genpass", -2, SLOW, false),
    sub("acl|getuser", 3, ADMIN | DANGEROUS | SLOW, false),
    sub("acl|help", 2, SLOW, false),
    sub("acl|list", 2, ADMIN | DANGEROUS | SLOW, false),
    sub("acl|load", 2, ADMIN | DANGEROUS | SLOW, false),
    sub("acl|log", -2, ADMIN | DANGEROUS | SLOW, false),
    sub("acl|save", 2, ADMIN | DANGEROUS | SLOW, false),
    sub("acl|setuser", -3, ADMIN | DANGEROUS | SLOW, false),
    sub("acl|users", 2, ADMIN | DANGEROUS | SLOW, false),
    sub("acl|whoami", 2, SLOW, false),
];

const CLIENT_SUBCOMMANDS: [SubcommandSpec; 18] = [
    sub("client|caching", 3, CONNECTION | SLOW, false),
    sub("client|getname", 2, CONNECTION | SLOW, false),
    sub("client|getredir", 2, CONNECTION | SLOW, false),
    sub("client|help", 2, CONNECTION | SLOW, false),
    sub("client|id", 2, CONNECTION | SLOW, false),
    sub("client|info", 2, CONNECTION | SLOW, false),
    sub("client|kill", -3, ADMIN | CONNECTION | DANGEROUS | SLOW, false),
    sub("client|list", -2, ADMIN | CONNECTION | DANGEROUS | SLOW, false),
    sub("client|no-evict", 3, ADMIN | CONNECTION | DANGEROUS | SLOW, false),
    sub("client|no-touch", 3, CONNECTION | SLOW, false),
    sub("client|pause", -3, ADMIN | CONNECTION | DANGEROUS | SLOW, false),
    sub("client|reply", 3, CONNECTION | SLOW, false),
    sub("client|setinfo", 4, CONNECTION | SLOW, false),
    sub("client|setname", 3, CONNECTION | SLOW, false),
    sub("client|tracking", -3, CONNECTION | SLOW, false),
    sub("client|trackinginfo", 2, CONNECTION | SLOW, false),
    sub("client|unblock", -3, ADMIN | CONNECTION | DANGEROUS | SLOW, false),
    sub("client|unpause", 2, ADMIN | CONNECTION | DANGEROUS | SLOW, false),
];

const CLUSTER_SUBCOMMANDS: [SubcommandSpec; 27] = [
    sub("cluster|addslots", -3, ADMIN | DANGEROUS | SLOW, false),
    sub("cluster|addslotsrange", -4, ADMIN | DANGEROUS | SLOW, false),
    sub("cluster|bumpepoch", 2, ADMIN | DANGEROUS | SLOW, false),
    sub("cluster|count-failure-reports", 3, ADMIN | DANGEROUS | SLOW, false),
    sub("cluster|countkeysinslot", 3, SLOW, false),
    sub("cluster|delslots", -3, ADMIN | DANGEROUS | SLOW, false),
    sub("cluster|delslotsrange", -4, ADMIN | DANGEROUS | SLOW, false),
    sub("cluster|failover", -2, ADMIN | DANGEROUS | SLOW, false),
    sub("cluster|flushslots", 2, ADMIN | DANGEROUS | SLOW, false),
    sub("cluster|forget", 3, ADMIN | DANGEROUS | SLOW, false),
    sub("cluster|getkeysinslot", 4, SLOW, false),
    sub("cluster|help", 2, SLOW, false),
    sub("cluster|info", 2, SLOW, false),
    sub("cluster|keyslot", 3, SLOW, false),
    sub("cluster|links", 2, SLOW, false),
    sub("cluster|meet", -4, ADMIN | DANGEROUS | SLOW, false),
    sub("cluster|myid", 2, SLOW, false),
    sub("cluster|nodes", 2, SLOW, false),
    sub("cluster|replicas", 3, ADMIN | DANGEROUS | SLOW, false),
    sub("cluster|replicate", 3, ADMIN | DANGEROUS | SLOW, false),
    sub("cluster|reset", -2, ADMIN | DANGEROUS | SLOW, false),
    sub("cluster|saveconfig", 2, ADMIN | DANGEROUS | SLOW, false),
    sub("cluster|set-config-epoch", 3, ADMIN | DANGEROUS | SLOW, false),
    sub("cluster|setslot", -4, ADMIN | DANGEROUS | SLOW, false),
    sub("cluster|shards", 2, SLOW, false),
    sub("cluster|slaves", 3, ADMIN | DANGEROUS | SLOW, false),
    sub("cluster|slots", 2, SLOW, false),
];

const COMMAND_SUBCOMMANDS: [SubcommandSpec; 7] = [
    sub("command|count", 2, CONNECTION | SLOW, false),
    sub("command|docs", -2, CONNECTION | SLOW, false),
    sub("command|getkeys", -4, CONNECTION | SLOW, false),
    sub("command|getkeysandflags", -4, CONNECTION | SLOW, false),
    sub("command|help", 2, CONNECTION | SLOW, false),
    sub("command|info", -2, CONNECTION | SLOW, false),
    sub("command|list", -2, CONNECTION | SLOW, false),
];

const CONFIG_SUBCOMMANDS: [SubcommandSpec; 5] = [
    sub("config|get", -3, ADMIN | DANGEROUS | SLOW, false),
    sub("config|help", 2, SLOW, false),
    sub("config|resetstat", 2, ADMIN | DANGEROUS | SLOW, false),
    sub("config|rewrite", 2, ADMIN | DANGEROUS | SLOW, false),
    sub("config|set", -4, ADMIN | DANGEROUS | SLOW, false),
];

const LATENCY_SUBCOMMANDS: [SubcommandSpec; 7] = [
    sub("latency|doctor", 2, ADMIN | DANGEROUS | SLOW, false),
    sub("latency|graph", 3, ADMIN | DANGEROUS | SLOW, false),
    sub("latency|help", 2, SLOW, false),
    sub("latency|histogram", -2, ADMIN | DANGEROUS | SLOW, false),
    sub("latency|history", 3, ADMIN | DANGEROUS | SLOW, false),
    sub("latency|latest", 2, ADMIN | DANGEROUS | SLOW, false),
    sub("latency|reset", -2, ADMIN | DANGEROUS | SLOW, false),
];

const MEMORY_SUBCOMMANDS: [SubcommandSpec; 6] = [
    sub("memory|doctor", 2, SLOW, false),
    sub("memory|help", 2, SLOW, false),
    sub("memory|malloc-stats", 2, SLOW, false),
    sub("memory|purge", 2, SLOW, false),
    sub("memory|stats", 2, SLOW, false),
    sub("memory|usage", -3, READ | SLOW, true),
];

const MODULE_SUBCOMMANDS: [SubcommandSpec; 2] =
    [sub("module|help", 2, SLOW, false), sub("module|list", 2, ADMIN | DANGEROUS | SLOW, false)];

const OBJECT_SUBCOMMANDS: [SubcommandSpec; 5] = [
    sub("object|encoding", 3, KEYSPACE | READ | SLOW, true),
    sub("object|freq", 3, KEYSPACE | READ | SLOW, true),
    sub("object|help", 2, KEYSPACE | SLOW, false),
    sub("object|idletime", 3, KEYSPACE | READ | SLOW, true),
    sub("object|refcount", 3, KEYSPACE | READ | SLOW, true),
];

const PUBSUB_SUBCOMMANDS: [SubcommandSpec; 6] = [
    sub("pubsub|channels", -2, PUBSUB | SLOW, false),
    sub("pubsub|help", 2, SLOW, false),
    sub("pubsub|numpat", 2, PUBSUB | SLOW, false),
    sub("pubsub|numsub", -2, PUBSUB | SLOW, false),
    sub("pubsub|shardchannels", -2, PUBSUB | SLOW, false),
    sub("pubsub|shardnumsub", -2, PUBSUB | SLOW, false),
];

const SLOWLOG_SUBCOMMANDS: [SubcommandSpec; 4] = [
    sub("slowlog|get", -2, ADMIN | DANGEROUS | SLOW, false),
    sub("slowlog|help", 2, SLOW, false),
    sub("slowlog|len", 2, ADMIN | DANGEROUS | SLOW, false),
    sub("slowlog|reset", 2, ADMIN | DANGEROUS | SLOW, false),
];
