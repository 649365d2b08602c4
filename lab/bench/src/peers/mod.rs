//! Stores of other projects, driven like Lodestore's: std's maps, and with the feature `peers` the
//! peers of crate `lodestore-peers`.

mod btreemap;
#[cfg(feature = "peers")]
mod foreign;
mod hashmap;

use std::path::Path;
use std::sync::LazyLock;

use lodestore_contract::{Durability, Error, Result};

use crate::store_name;
use crate::target::Target;

/// Requests to a peer in addition to its setting.
#[derive(Debug, Clone, Copy, Default)]
#[cfg_attr(not(feature = "peers"), expect(dead_code, reason = "a map in DRAM takes none of it"))]
pub(crate) struct Asked {
    /// Bytes of DRAM for its buffers and caches together.
    pub(crate) budget: Option<u64>,
    /// Bytes of a write buffer.
    pub(crate) write_buffer: Option<u64>,
    /// Whether the store, or a store of its family, already exists.
    pub(crate) there: bool,
    /// Number of threads that will call it at once.
    pub(crate) threads: usize,
}

/// Opens a peer in this directory: an existing store, or an empty one in a directory that it
/// creates.
type Open = Box<dyn Fn(&Path, &Asked) -> Result<Box<dyn Target>> + Send + Sync>;

/// Refuses a directory in which a peer cannot be.
type FitsIn = Box<dyn Fn(&Path) -> Result<()> + Send + Sync>;

/// The failures that an acknowledged write of a peer survives, on a medium that survives all of
/// them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Gives {
    /// None: nothing can be opened again.
    Nothing,
    /// Only a clean stop.
    #[cfg_attr(not(feature = "peers"), expect(dead_code, reason = "a map in DRAM does not survive one"))]
    Stop,
    Process,
    Power,
}

/// A peer.
struct Peer {
    name: &'static str,
    /// The name of its usual setting.
    family: &'static str,
    gives: Gives,
    /// Whether the peer keeps nothing on a medium, and so needs no directory.
    volatile: bool,
    /// Whether the peer keeps keys in order, and so supports scans.
    ordered: bool,
    /// Whether the peer accepts a DRAM budget.
    budget: bool,
    /// Whether the size of its write buffers can be set.
    write_buffer: bool,
    /// Checks that the peer can run on this machine.
    ready: Box<dyn Fn() -> Result<()> + Send + Sync>,
    /// Checks that the peer can be in a directory of this path, which need not exist yet.
    fits_in: FitsIn,
    open: Open,
}

/// Every peer of this build.
static PEERS: LazyLock<Vec<Peer>> = LazyLock::new(|| {
    let btree: Open = Box::new(|_, _| Ok(Box::new(btreemap::BTree::default())));
    let hash: Open = Box::new(|_, _| Ok(Box::new(hashmap::Sharded::default())));
    let ceilings = [("btreemap", btree), ("hashmap", hash)].map(|(name, open)| Peer {
        name,
        family: name,
        gives: Gives::Nothing,
        volatile: true,
        ordered: name == "btreemap",
        budget: false,
        write_buffer: false,
        ready: Box::new(|| Ok(())),
        fits_in: Box::new(|_| Ok(())),
        open,
    });
    #[cfg(feature = "peers")]
    let foreign = foreign::all();
    #[cfg(not(feature = "peers"))]
    let foreign = std::iter::empty();
    ceilings.into_iter().chain(foreign).collect()
});

fn find(name: &str) -> Option<&'static Peer> {
    PEERS.iter().find(|peer| peer.name == name)
}

/// Returns whether there is a peer of this name.
pub(crate) fn is_peer(name: &str) -> bool {
    find(name).is_some()
}

/// Returns whether the peer keeps nothing on a medium, and so needs no directory.
pub(crate) fn is_volatile(name: &str) -> bool {
    find(name).is_some_and(|peer| peer.volatile)
}

/// Returns whether the peer keeps keys in order, and so supports scans.
pub(crate) fn is_ordered(name: &str) -> bool {
    find(name).is_some_and(|peer| peer.ordered)
}

/// Checks that the store `name` can be in a directory of this path, which need not exist yet. Names
/// that are not peers always pass.
///
/// # Errors
/// [`Error::InvalidOption`] for a server's socket whose path would be too long.
pub(crate) fn fits_in(name: &str, dir: &Path) -> Result<()> {
    find(name).map_or(Ok(()), |peer| (peer.fits_in)(dir))
}

/// Returns whether a store has its records after a clean stop; `true` for names that are not peers.
pub(crate) fn survives_stop(name: &str) -> bool {
    find(name).is_none_or(|peer| peer.gives > Gives::Nothing)
}

/// Returns whether a store has every acknowledged record after a kill of its process; `true` for
/// names that are not peers.
pub(crate) fn survives_kill(name: &str) -> bool {
    find(name).is_none_or(|peer| peer.gives >= Gives::Process)
}

/// Returns whether the peer accepts a DRAM budget.
pub(crate) fn takes_budget(name: &str) -> bool {
    find(name).is_some_and(|peer| peer.budget)
}

/// Returns whether the size of the peer's write buffers can be set.
pub(crate) fn takes_write_buffer(name: &str) -> bool {
    find(name).is_some_and(|peer| peer.write_buffer)
}

/// Returns the peer to use for `name` if acknowledged writes must survive as `durability` says: the
/// peer itself if its writes do, else the first of its family whose writes do (usually the setting
/// with each write synced). The settings of a paper's authors are excluded. Returns `name` if it is
/// not a peer, or keeps nothing on a medium.
///
/// # Errors
/// [`Error::InvalidOption`] if there is none.
pub(crate) fn with_durability(name: &str, durability: Durability) -> Result<String> {
    let needed = if durability == Durability::Process { Gives::Process } else { Gives::Power };
    match find(name) {
        Some(peer) if !peer.volatile && peer.gives < needed => {
            let fits =
                |other: &&Peer| other.family == peer.family && other.gives >= needed && !other.name.ends_with("-paper");
            let other = PEERS.iter().find(fits);
            other.map(|other| other.name.to_string()).ok_or_else(|| refuse_durability(peer, durability, needed))
        }
        _ => Ok(name.into()),
    }
}

/// Returns the peer to use for the load, if its writes must survive as `durability` says, and
/// `name` is the peer of the other workloads. For a peer with each write synced this is its usual
/// setting, mapped by [`with_durability`].
///
/// # Errors
/// Those of [`with_durability`]; also for a peer that would lose the load when it is opened again.
pub(crate) fn for_load(name: &str, durability: Durability) -> Result<String> {
    if let Some(peer) = find(name).filter(|peer| !peer.volatile && peer.gives == Gives::Nothing) {
        return Err(refuse_durability(peer, durability, Gives::Process));
    }
    let usual = name.strip_suffix("-sync").filter(|usual| is_peer(usual)).unwrap_or(name);
    with_durability(usual, durability)
}

fn refuse_durability(peer: &Peer, durability: Durability, needed: Gives) -> Error {
    let others: Vec<_> =
        PEERS.iter().filter(|other| other.family == peer.family && other.gives >= needed).map(|it| it.name).collect();
    let others = if others.is_empty() { String::new() } else { format!(", or name {}", others.join(" or ")) };
    let why = format!(
        "its acknowledged writes do not survive as durability {durability} asks: leave --durability away to measure it as it is{others}"
    );
    Error::InvalidOption { name: "peers".into(), value: peer.name.into(), why }
}

/// Checks that the store `name` can run on this machine. Names that are not peers always pass.
///
/// # Errors
/// [`Error::InvalidOption`], which names the missing package.
pub(crate) fn ready(name: &str) -> Result<()> {
    find(name).map_or(Ok(()), |peer| (peer.ready)())
}

/// Returns why a store of a preset's list cannot run on this machine, or does not support
/// `durability`. Returns `None` if it can and does.
pub(crate) fn missing(name: &str, durability: Option<Durability>) -> Option<String> {
    if store_name::is_engine(name) || name == "none" {
        return None;
    }
    if !is_peer(name) {
        return Some("not in this build, but in one with --features peers".into());
    }
    let level = durability.map_or(Ok(()), |level| with_durability(name, level).map(drop));
    level.and_then(|()| ready(name)).err().map(|error| match error {
        Error::InvalidOption { why, .. } => why,
        other => other.to_string(),
    })
}

/// Returns the names of all peers.
pub(crate) fn names() -> Vec<&'static str> {
    PEERS.iter().map(|peer| peer.name).collect()
}

/// Creates the peer `name` in `dir`, or opens a store of its family there, with those requests that
/// it supports.
///
/// # Errors
/// [`Error::InvalidOption`] if there is no peer of this name; errors of the peer.
pub(crate) fn open(name: &str, dir: &Path, asked: &Asked) -> Result<Box<dyn Target>> {
    find(name).map_or_else(
        || {
            Err(Error::InvalidOption {
                name: "peers".into(),
                value: name.into(),
                why: format!("give some of {}, or none", names().join(", ")),
            })
        },
        |peer| (peer.open)(dir, asked),
    )
}

#[cfg(all(test, feature = "peers"))]
mod tests {
    use super::*;

    #[test]
    fn a_durability_chooses_the_setting_that_gives_it_or_is_refused() {
        let chosen = |name: &str, durability| with_durability(name, durability).expect("there is one");
        for (name, process, power) in [
            ("rocksdb", "rocksdb", "rocksdb-sync"),
            ("blobdb", "blobdb", "blobdb-sync"),
            ("fjall", "fjall", "fjall-sync"),
            ("leveldb", "leveldb", "leveldb-sync"),
            ("leveldb-paper", "leveldb-paper", "leveldb-paper"),
            ("redb", "redb-sync", "redb-sync"),
            ("sled", "sled-sync", "sled-sync"),
            ("redis", "redis-aof", "redis-sync"),
            ("lmdb", "lmdb", "lmdb-sync"),
            ("rocksdb-sync", "rocksdb-sync", "rocksdb-sync"),
            ("btreemap", "btreemap", "btreemap"),
            ("hikv", "hikv", "hikv"),
        ] {
            assert_eq!(chosen(name, Durability::Process), process);
            assert_eq!(chosen(name, Durability::Power), power);
        }
        for (name, process) in [
            ("rocksdb-sync", "rocksdb"),
            ("fjall", "fjall"),
            ("redis-sync", "redis-aof"),
            ("leveldb-paper", "leveldb-paper"),
            ("redb-sync", "redb-sync"),
            ("btreemap", "btreemap"),
            ("hikv", "hikv"),
        ] {
            assert_eq!(for_load(name, Durability::Process).expect("there is one"), process);
        }
        let text = with_durability("bdb-hash", Durability::Process).expect_err("it has none").to_string();
        assert!(text.contains("bdb-hash-paper") && !text.contains("bdb-btree"), "{text}");
        with_durability("memcached", Durability::Process).expect_err("it keeps nothing");
        let text = for_load("redis", Durability::Process).expect_err("it would be empty behind the load").to_string();
        assert!(text.contains("redis-aof"), "{text}");
    }
}
