//! Commands of Redis that the server does not have yet.
//!
//! They are answered as unknown commands, so that clients use their code for older servers. The
//! reason follows Redis' text.

/// A group of commands that are absent, and the reason.
type Group = (&'static str, &'static [&'static str]);

/// Names in lower case.
const GROUPS: &[Group] = &[
    (
        "(this server has no lists yet)",
        &[
            "blmove",
            "blmpop",
            "blpop",
            "brpop",
            "brpoplpush",
            "lindex",
            "linsert",
            "llen",
            "lmove",
            "lmpop",
            "lpop",
            "lpos",
            "lpush",
            "lpushx",
            "lrange",
            "lrem",
            "lset",
            "ltrim",
            "rpop",
            "rpoplpush",
            "rpush",
            "rpushx",
        ],
    ),
    (
        "(this server has no sets yet)",
        &[
            "sadd",
            "scard",
            "sdiff",
            "sdiffstore",
            "sinter",
            "sintercard",
            "sinterstore",
            "sismember",
            "smembers",
            "smismember",
            "smove",
            "spop",
            "srandmember",
            "srem",
            "sscan",
            "sunion",
            "sunionstore",
        ],
    ),
    (
        "(this server has no sorted sets yet)",
        &[
            "bzmpop",
            "bzpopmax",
            "bzpopmin",
            "zadd",
            "zcard",
            "zcount",
            "zdiff",
            "zdiffstore",
            "zincrby",
            "zinter",
            "zintercard",
            "zinterstore",
            "zlexcount",
            "zmpop",
            "zmscore",
            "zpopmax",
            "zpopmin",
            "zrandmember",
            "zrange",
            "zrangebylex",
            "zrangebyscore",
            "zrangestore",
            "zrank",
            "zrem",
            "zremrangebylex",
            "zremrangebyrank",
            "zremrangebyscore",
            "zrevrange",
            "zrevrangebylex",
            "zrevrangebyscore",
            "zrevrank",
            "zscan",
            "zscore",
            "zunion",
            "zunionstore",
        ],
    ),
    (
        "(this server has no geographic indexes)",
        &[
            "geoadd",
            "geodist",
            "geohash",
            "geopos",
            "georadius",
            "georadius_ro",
            "georadiusbymember",
            "georadiusbymember_ro",
            "geosearch",
            "geosearchstore",
        ],
    ),
    (
        "(this server has no streams)",
        &[
            "xack",
            "xadd",
            "xautoclaim",
            "xclaim",
            "xdel",
            "xgroup",
            "xinfo",
            "xlen",
            "xpending",
            "xrange",
            "xread",
            "xreadgroup",
            "xrevrange",
            "xsetid",
            "xtrim",
        ],
    ),
    ("(this server has no HyperLogLogs)", &["pfadd", "pfcount", "pfdebug", "pfmerge", "pfselftest"]),
    (
        "(this server has no commands on bits)",
        &["bitcount", "bitfield", "bitfield_ro", "bitop", "bitpos", "getbit", "setbit"],
    ),
    (
        "(this server runs no scripts: use MULTI, SET with IFEQ, or DELIFEQ)",
        &["eval", "eval_ro", "evalsha", "evalsha_ro", "fcall", "fcall_ro", "function", "script"],
    ),
    (
        "(this server does not dump or migrate keys: use a backup or an export)",
        &["dump", "migrate", "restore", "restore-asking"],
    ),
    ("(this server does not have the command yet)", &["lcs", "sort", "sort_ro", "waitaof"]),
];

/// Commands of the cluster. Redis without a cluster answers all of them with one error.
const CLUSTER: &[&str] = &["asking", "cluster", "readonly", "readwrite"];

fn is_named(name: &[u8], names: &[&str]) -> bool {
    names.iter().any(|known| name.eq_ignore_ascii_case(known.as_bytes()))
}

/// Returns why the server does not have a command of Redis.
pub(super) fn reason(name: &[u8]) -> Option<&'static str> {
    GROUPS.iter().find(|(_, names)| is_named(name, names)).map(|(reason, _)| *reason)
}

/// Whether a command needs a cluster.
pub(super) fn needs_cluster(name: &[u8]) -> bool {
    is_named(name, CLUSTER)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::dispatch::find;

    #[test]
    fn no_command_of_the_server_is_called_absent() {
        for name in GROUPS.iter().flat_map(|(_, names)| *names).chain(CLUSTER) {
            assert!(find(name.as_bytes()).is_none(), "{name} has a handler: remove it from the absent commands");
        }
    }

    #[test]
    fn names_have_no_case() {
        assert_eq!(reason(b"LPush"), Some("(this server has no lists yet)"));
        assert_eq!(reason(b"lpushy"), None);
        assert!(needs_cluster(b"CLUSTER"));
    }
}
