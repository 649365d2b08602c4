//! The bench's interface to a peer, and the list of peers.

use std::collections::BTreeMap;
use std::path::Path;

use lodestore_contract::{Error, Result};

#[cfg(feature = "fjall")]
use crate::fjall;
#[cfg(feature = "redb")]
use crate::redb;
#[cfg(feature = "sled")]
use crate::sled;
use crate::{bdb, leveldb, lmdb, memcached, redis, rocksdb, server};

/// The failures that an acknowledged write survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Survives {
    /// None, not even a clean stop: the write is in the memory of a server that keeps no files.
    Nothing,
    /// Only a clean stop: the write is in the process's own memory before it.
    Stop,
    /// Death of the process: the operating system has the write.
    Process,
    /// The same failures as the medium: the write was synced.
    Medium,
}

impl Survives {
    /// Returns the text for the settings of a peer that is a server.
    pub(crate) fn text_of_server(self) -> &'static str {
        match self {
            Self::Nothing | Self::Stop => "the client's end, not the server's",
            Self::Process => "the server's end, not the machine's",
            Self::Medium => "what the medium survives",
        }
    }
}

/// A peer's description.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct About {
    /// The failures that an acknowledged write survives.
    pub survives: Survives,
    /// Its version and every setting that affects speed.
    pub settings: BTreeMap<String, String>,
}

/// Requests to a peer in addition to its setting.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Asked {
    /// Bytes of DRAM for its buffers and caches together. `None`: 1 GiB, the default of every peer.
    pub budget: Option<u64>,
    /// Bytes of each of its two write buffers, if their size can be set ([`Kind::write_buffer`]).
    /// Its cache uses the rest of the budget.
    pub write_buffer: Option<u64>,
    /// Whether the store already exists, made by a kind of its family and closed.
    pub there: bool,
    /// Number of threads that will call it at once. A peer that is a server prepares as many
    /// connections; other peers ignore the number.
    pub threads: usize,
}

impl Asked {
    /// Returns the bytes of DRAM for its buffers and caches together.
    pub(crate) fn budget(&self) -> u64 {
        self.budget.unwrap_or(BUDGET)
    }

    /// Returns the bytes of a cache in addition to [`BUFFERS`] write buffers, if their size is
    /// requested.
    pub(crate) fn cache_beside_buffers(&self) -> Option<usize> {
        let beside = self.budget().saturating_sub(self.write_buffer?.saturating_mul(BUFFERS)).max(CACHE_LEAST);
        Some(usize::try_from(beside).unwrap_or(usize::MAX))
    }
}

/// Default DRAM budget of every peer, in bytes: enough for all records of a bench in memory, and
/// equal for all peers.
pub(crate) const BUDGET: u64 = 1 << 30;
/// Maximum bytes of a write buffer without a requested size: the default of RocksDB and fjall. The
/// rest of a large budget is more useful in a cache.
pub(crate) const BUFFER_MOST: u64 = 64 << 20;
/// The setting `settles` of a peer whose writes are in their final place when they return.
pub(crate) const NOTHING_WAITS: &str = "nothing waits";
/// Write buffers of a peer with a requested buffer size: one is being filled, one is being written
/// out.
pub(crate) const BUFFERS: u64 = 2;
/// Minimum bytes of a cache.
const CACHE_LEAST: u64 = 64 << 10;

/// A peer's own counters at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Account {
    /// DRAM of its buffers, caches and table indexes, in bytes. `None` if it is not counted.
    pub dram_bytes: Option<u64>,
    /// Compactions since the open. `None` if they are not counted.
    pub compactions: Option<u64>,
}

/// An open peer. Several threads may call it at once. Dropping it frees all its resources.
pub trait Peer: Send + Sync {
    /// Returns its description.
    fn about(&self) -> About;
    /// Replaces `value` by the value of `key`, and returns whether there is one.
    ///
    /// # Errors
    /// The store's error, as text.
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool>;
    /// Calls `each` once for each of `keys`, with its index and its value.
    ///
    /// # Errors
    /// Those of [`Peer::get`].
    fn multi_get(&self, keys: &[&[u8]], each: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()> {
        let mut value = Vec::new();
        for (at, key) in keys.iter().enumerate() {
            let found = self.get(key, &mut value)?;
            each(at, found.then_some(&value));
        }
        Ok(())
    }
    /// Stores `value` under `key`.
    ///
    /// # Errors
    /// Those of [`Peer::get`].
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()>;
    /// Replaces the value of `key`, which is present. If the store has no such operation, this is
    /// its put, which does not check for the key, and returns `true`: the cheapest operation that
    /// does the job.
    ///
    /// # Errors
    /// Those of [`Peer::get`].
    fn update(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        self.put(key, value)?;
        Ok(true)
    }
    /// Removes `key`, and returns whether it was present. Returns `true` if the store's delete does
    /// not check.
    ///
    /// # Errors
    /// Those of [`Peer::get`].
    fn delete(&self, key: &[u8]) -> Result<bool>;
    /// Calls `each` for at most `limit` pairs in order, starting at `from`. Returns the number of
    /// pairs.
    ///
    /// # Errors
    /// Those of [`Peer::get`]; [`lodestore_contract::Error::Unsupported`] of a store without an
    /// order.
    fn scan(&self, from: &[u8], limit: usize, each: &mut dyn FnMut(&[u8], &[u8])) -> Result<usize>;
    /// Writes out all buffered data, before a clean stop.
    ///
    /// # Errors
    /// Those of [`Peer::get`].
    fn flush(&self) -> Result<()>;
    /// Waits until all writes are flushed from its buffers to its files, and no automatic
    /// compaction is due. Returns at once if the peer has neither. The setting `settles` describes
    /// the method.
    ///
    /// # Errors
    /// Those of [`Peer::get`].
    fn settle(&self) -> Result<()> {
        Ok(())
    }
    /// Returns its current counters.
    fn account(&self) -> Account {
        Account::default()
    }
    /// Returns the process id of its server, if it has one.
    fn server(&self) -> Option<u32> {
        None
    }
}

/// Returns the error of a scan by a peer without an order.
pub(crate) fn unordered(peer: &'static str) -> Error {
    Error::Unsupported { engine: peer, what: "scan".into(), instead: "use a peer that keeps an order" }
}

/// A peer in one setting.
pub struct Kind {
    /// Its name on the command line.
    pub name: &'static str,
    /// The name of its usual setting. Kinds of one family are one store in several settings.
    pub family: &'static str,
    /// Description in one line.
    pub about: &'static str,
    /// Whether the peer keeps keys in order, and so supports scans.
    pub ordered: bool,
    /// The failures that an acknowledged write survives.
    pub survives: Survives,
    /// Whether the peer accepts a DRAM budget.
    pub budget: bool,
    /// Whether the size of its write buffers can be set.
    pub write_buffer: bool,
    ready: fn() -> Result<()>,
    open: fn(&Path, &Asked) -> Result<Box<dyn Peer>>,
}

impl Kind {
    /// Checks that the peer can run on this machine.
    ///
    /// # Errors
    /// [`lodestore_contract::Error::InvalidOption`], which names the missing package.
    pub fn ready(&self) -> Result<()> {
        (self.ready)()
    }

    /// Checks that the peer can be in `dir`, which need not exist yet.
    ///
    /// # Errors
    /// [`lodestore_contract::Error::InvalidOption`] for a server whose socket path would be too
    /// long.
    pub fn fits_in(&self, dir: &Path) -> Result<()> {
        match self.family {
            "redis" | "memcached" => server::check_path(self.name, dir),
            _ => Ok(()),
        }
    }

    /// Creates an empty store in the existing directory `dir`, or opens the store in it if `asked`
    /// says that there is one.
    ///
    /// # Errors
    /// Those of [`Kind::ready`]; the store's error, as text.
    pub fn open(&self, dir: &Path, asked: &Asked) -> Result<Box<dyn Peer>> {
        (self.open)(dir, asked)
    }
}

/// Returns every peer of this crate. The first kind of a family with a durability is its usual
/// setting for it.
pub fn kinds() -> &'static [Kind] {
    KINDS
}

const KINDS: &[Kind] = &[
    Kind {
        name: "leveldb",
        family: "leveldb",
        about: "LevelDB, no sync, no compression, Bloom filter, buffers and block cache within 1 GiB",
        ordered: true,
        survives: Survives::Process,
        budget: true,
        write_buffer: true,
        ready: leveldb::ready,
        open: |dir, asked| leveldb::open(dir, &leveldb::SANE.within(asked), asked.there),
    },
    Kind {
        name: "leveldb-sync",
        family: "leveldb",
        about: "LevelDB as `leveldb`, with a sync of every put",
        ordered: true,
        survives: Survives::Medium,
        budget: true,
        write_buffer: true,
        ready: leveldb::ready,
        open: |dir, asked| leveldb::open(dir, &leveldb::SYNC.within(asked), asked.there),
    },
    Kind {
        name: "leveldb-paper",
        family: "leveldb",
        about: "LevelDB as NVHT's authors ran it: sync of every put, 4 MiB buffer",
        ordered: true,
        survives: Survives::Medium,
        budget: false,
        write_buffer: false,
        ready: leveldb::ready,
        open: |dir, asked| leveldb::open(dir, &leveldb::PAPER, asked.there),
    },
    Kind {
        name: "bdb-hash",
        family: "bdb-hash",
        about: "Berkeley DB hash, 1 GiB cache, no sync",
        ordered: false,
        survives: Survives::Stop,
        budget: true,
        write_buffer: false,
        ready: bdb::ready,
        open: |dir, asked| bdb::open(dir, bdb::Method::Hash, &bdb::SANE.within(asked), asked.there),
    },
    Kind {
        name: "bdb-hash-paper",
        family: "bdb-hash",
        about: "Berkeley DB hash as NVHT's authors ran it: 256 KiB cache, sync after every put",
        ordered: false,
        survives: Survives::Medium,
        budget: false,
        write_buffer: false,
        ready: bdb::ready,
        open: |dir, asked| bdb::open(dir, bdb::Method::Hash, &bdb::PAPER, asked.there),
    },
    Kind {
        name: "bdb-btree",
        family: "bdb-btree",
        about: "Berkeley DB B-tree, 1 GiB cache, no sync",
        ordered: true,
        survives: Survives::Stop,
        budget: true,
        write_buffer: false,
        ready: bdb::ready,
        open: |dir, asked| bdb::open(dir, bdb::Method::BTree, &bdb::SANE.within(asked), asked.there),
    },
    Kind {
        name: "bdb-btree-paper",
        family: "bdb-btree",
        about: "Berkeley DB B-tree with the authors' setting: 256 KiB cache, sync after every put",
        ordered: true,
        survives: Survives::Medium,
        budget: false,
        write_buffer: false,
        ready: bdb::ready,
        open: |dir, asked| bdb::open(dir, bdb::Method::BTree, &bdb::PAPER, asked.there),
    },
    #[cfg(feature = "redb")]
    Kind {
        name: "redb",
        family: "redb",
        about: "redb, a transaction for each call, durability None, 1 GiB cache",
        ordered: true,
        survives: Survives::Stop,
        budget: true,
        write_buffer: false,
        ready: || Ok(()),
        open: |dir, asked| redb::open(dir, ::redb::Durability::None, asked),
    },
    #[cfg(feature = "redb")]
    Kind {
        name: "redb-sync",
        family: "redb",
        about: "redb, a transaction for each call, durability Immediate, 1 GiB cache",
        ordered: true,
        survives: Survives::Medium,
        budget: true,
        write_buffer: false,
        ready: || Ok(()),
        open: |dir, asked| redb::open(dir, ::redb::Durability::Immediate, asked),
    },
    Kind {
        name: "rocksdb",
        family: "rocksdb",
        about: "RocksDB, log written and not synced, no compression, Bloom filter, buffers and block cache within 1 GiB",
        ordered: true,
        survives: Survives::Process,
        budget: true,
        write_buffer: true,
        ready: rocksdb::ready,
        open: |dir, asked| rocksdb::open(dir, rocksdb::Shape { sync: false, blobs: false }, asked),
    },
    Kind {
        name: "rocksdb-sync",
        family: "rocksdb",
        about: "RocksDB as `rocksdb`, with a sync of every put, shared by those that wait (its group commit)",
        ordered: true,
        survives: Survives::Medium,
        budget: true,
        write_buffer: true,
        ready: rocksdb::ready,
        open: |dir, asked| rocksdb::open(dir, rocksdb::Shape { sync: true, blobs: false }, asked),
    },
    Kind {
        name: "blobdb",
        family: "blobdb",
        about: "RocksDB as `rocksdb`, with values from 256 bytes in files of their own, collected by compactions (its integrated BlobDB)",
        ordered: true,
        survives: Survives::Process,
        budget: true,
        write_buffer: true,
        ready: rocksdb::ready,
        open: |dir, asked| rocksdb::open(dir, rocksdb::Shape { sync: false, blobs: true }, asked),
    },
    Kind {
        name: "blobdb-sync",
        family: "blobdb",
        about: "RocksDB with values apart as `blobdb`, with a sync of every put, shared by those that wait",
        ordered: true,
        survives: Survives::Medium,
        budget: true,
        write_buffer: true,
        ready: rocksdb::ready,
        open: |dir, asked| rocksdb::open(dir, rocksdb::Shape { sync: true, blobs: true }, asked),
    },
    #[cfg(feature = "fjall")]
    Kind {
        name: "fjall",
        family: "fjall",
        about: "fjall, journal written and not synced, no compression, memtables and cache within 1 GiB",
        ordered: true,
        survives: Survives::Process,
        budget: true,
        write_buffer: false,
        ready: || Ok(()),
        open: |dir, asked| fjall::open(dir, false, asked),
    },
    #[cfg(feature = "fjall")]
    Kind {
        name: "fjall-sync",
        family: "fjall",
        about: "fjall as `fjall`, with a sync of the journal after each write",
        ordered: true,
        survives: Survives::Medium,
        budget: true,
        write_buffer: false,
        ready: || Ok(()),
        open: |dir, asked| fjall::open(dir, true, asked),
    },
    #[cfg(feature = "sled")]
    Kind {
        name: "sled",
        family: "sled",
        about: "sled, flushed by its own thread every 500 ms, no compression, 1 GiB cache",
        ordered: true,
        survives: Survives::Stop,
        budget: true,
        write_buffer: false,
        ready: || Ok(()),
        open: |dir, asked| sled::open(dir, false, asked),
    },
    #[cfg(feature = "sled")]
    Kind {
        name: "sled-sync",
        family: "sled",
        about: "sled as `sled`, with a flush and a sync of its log after each write",
        ordered: true,
        survives: Survives::Medium,
        budget: true,
        write_buffer: false,
        ready: || Ok(()),
        open: |dir, asked| sled::open(dir, true, asked),
    },
    Kind {
        name: "lmdb",
        family: "lmdb",
        about: "LMDB, a transaction for each call, commits in its mapping and not synced",
        ordered: true,
        survives: Survives::Process,
        budget: false,
        write_buffer: false,
        ready: lmdb::ready,
        open: |dir, _| lmdb::open(dir, false),
    },
    Kind {
        name: "lmdb-sync",
        family: "lmdb",
        about: "LMDB as it comes: a transaction for each call, each synced",
        ordered: true,
        survives: Survives::Medium,
        budget: false,
        write_buffer: false,
        ready: lmdb::ready,
        open: |dir, _| lmdb::open(dir, true),
    },
    Kind {
        name: "redis",
        family: "redis",
        about: "a Redis server without persistence, by hiredis on a unix socket",
        ordered: false,
        survives: Survives::Nothing,
        budget: false,
        write_buffer: false,
        ready: redis::ready,
        open: |dir, asked| redis::open(dir, Survives::Nothing, asked),
    },
    Kind {
        name: "redis-aof",
        family: "redis",
        about: "a Redis server whose append-only file is written before it answers, and not synced",
        ordered: false,
        survives: Survives::Process,
        budget: false,
        write_buffer: false,
        ready: redis::ready,
        open: |dir, asked| redis::open(dir, Survives::Process, asked),
    },
    Kind {
        name: "redis-sync",
        family: "redis",
        about: "a Redis server whose append-only file is synced before it answers",
        ordered: false,
        survives: Survives::Medium,
        budget: false,
        write_buffer: false,
        ready: redis::ready,
        open: |dir, asked| redis::open(dir, Survives::Medium, asked),
    },
    Kind {
        name: "memcached",
        family: "memcached",
        about: "a Memcached server, by libmemcached on a unix socket",
        ordered: false,
        survives: Survives::Nothing,
        budget: false,
        write_buffer: false,
        ready: memcached::ready,
        open: memcached::open,
    },
];
