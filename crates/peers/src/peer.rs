//! What a peer is to the bench, and which there are.

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

/// What an acknowledged write survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Survives {
    /// Nothing, not even a clean stop: it is in the memory of a server that keeps no files.
    Nothing,
    /// Nothing but a clean stop: it is in the process's own memory until then.
    Stop,
    /// The death of the process: the operating system has it.
    Process,
    /// What the medium survives: it was synced.
    Medium,
}

impl Survives {
    /// The same of a peer that is a server, for its settings.
    pub(crate) fn text_of_server(self) -> &'static str {
        match self {
            Self::Nothing | Self::Stop => "the client's end, not the server's",
            Self::Process => "the server's end, not the machine's",
            Self::Medium => "what the medium survives",
        }
    }
}

/// What a peer says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct About {
    /// What an acknowledged write survives.
    pub survives: Survives,
    /// Its version and every setting that bears on speed.
    pub settings: BTreeMap<String, String>,
}

/// What is asked of a peer beyond its setting.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Asked {
    /// Bytes of DRAM for its buffers and caches together; 1 GiB, as every peer has it, where none is given.
    pub budget: Option<u64>,
    /// Bytes of each of its two write buffers, if it takes their size ([`Kind::write_buffer`]). The rest of the budget is its cache then.
    pub write_buffer: Option<u64>,
    /// Whether it is there already, made by a kind of its family and closed.
    pub there: bool,
    /// Threads that are to call it at once: so many connections a peer that is a server has ready. Others take no notice.
    pub threads: usize,
}

impl Asked {
    /// Bytes of DRAM for its buffers and caches together.
    pub(crate) fn budget(&self) -> u64 {
        self.budget.unwrap_or(BUDGET)
    }

    /// Bytes of a cache beside [`BUFFERS`] write buffers, where their size is asked for.
    pub(crate) fn cache_beside_buffers(&self) -> Option<usize> {
        let beside = self.budget().saturating_sub(self.write_buffer?.saturating_mul(BUFFERS)).max(CACHE_LEAST);
        Some(usize::try_from(beside).unwrap_or(usize::MAX))
    }
}

/// Bytes of DRAM of every peer that takes a budget, where none is asked for: room for all records of a bench in memory. So that none has more than another.
pub(crate) const BUDGET: u64 = 1 << 30;
/// Most bytes of a write buffer whose size is not asked for: RocksDB's and fjall's own. What is left of a large budget is better in a cache.
pub(crate) const BUFFER_MOST: u64 = 64 << 20;
/// How a peer settles whose writes are where they stay when they return.
pub(crate) const NOTHING_WAITS: &str = "nothing waits";
/// Write buffers of a peer that is asked for their size: one is written to, one is written out.
pub(crate) const BUFFERS: u64 = 2;
/// Least bytes of a cache.
const CACHE_LEAST: u64 = 64 << 10;

/// A peer's own account at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Account {
    /// DRAM of its buffers, caches and tables' indexes, in bytes; none where it does not count it.
    pub dram_bytes: Option<u64>,
    /// Compactions that were done since it was opened; none where it does not count them.
    pub compactions: Option<u64>,
}

/// A store of others, open. Called from several threads at once. Dropping it gives back all that it holds.
pub trait Peer: Send + Sync {
    /// What it says of itself.
    fn about(&self) -> About;
    /// Replaces `value` by the value of `key`; whether there is one.
    ///
    /// # Errors
    /// What the store answered, as text.
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool>;
    /// Calls `each` once for each of `keys`, with its place and its value.
    ///
    /// # Errors
    /// As [`Peer::get`].
    fn multi_get(&self, keys: &[&[u8]], each: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()> {
        let mut value = Vec::new();
        for (at, key) in keys.iter().enumerate() {
            let found = self.get(key, &mut value)?;
            each(at, found.then_some(&value));
        }
        Ok(())
    }
    /// Gives `key` this value.
    ///
    /// # Errors
    /// As [`Peer::get`].
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()>;
    /// Gives `key`, which is there, another value. Where the store has no such operation, this is its put,
    /// which does not look, and the answer is yes: what is cheapest for it.
    ///
    /// # Errors
    /// As [`Peer::get`].
    fn update(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        self.put(key, value)?;
        Ok(true)
    }
    /// Removes `key`; whether it was there. Where the store's delete does not look, the answer is yes.
    ///
    /// # Errors
    /// As [`Peer::get`].
    fn delete(&self, key: &[u8]) -> Result<bool>;
    /// Calls `each` for at most `limit` pairs in order from `from` on; how many.
    ///
    /// # Errors
    /// As [`Peer::get`]; [`lodestore_contract::Error::Unsupported`] of a store without an order.
    fn scan(&self, from: &[u8], limit: usize, each: &mut dyn FnMut(&[u8], &[u8])) -> Result<usize>;
    /// Writes out all that it holds back, before a clean stop.
    ///
    /// # Errors
    /// As [`Peer::get`].
    fn flush(&self) -> Result<()>;
    /// Waits until all that was written is flushed from its buffers to its files, and no compaction is left to do that is due by itself; at once
    /// where it has neither. Its setting `settles` says how.
    ///
    /// # Errors
    /// As [`Peer::get`].
    fn settle(&self) -> Result<()> {
        Ok(())
    }
    /// Its account now.
    fn account(&self) -> Account {
        Account::default()
    }
    /// The number of its server's process, where it works in one.
    fn server(&self) -> Option<u32> {
        None
    }
}

/// The error of a scan of a peer that keeps no order.
pub(crate) fn unordered(peer: &'static str) -> Error {
    Error::Unsupported { engine: peer, what: "scan".into(), instead: "use a peer that keeps an order" }
}

/// A peer in one setting.
pub struct Kind {
    /// Its name on the command line.
    pub name: &'static str,
    /// The name of its usual setting: kinds of one family are one store in several settings.
    pub family: &'static str,
    /// What it is, one line.
    pub about: &'static str,
    /// Whether it keeps keys in order, and so scans.
    pub ordered: bool,
    /// What an acknowledged write survives.
    pub survives: Survives,
    /// Whether it takes a DRAM budget.
    pub budget: bool,
    /// Whether it takes the size of its write buffers.
    pub write_buffer: bool,
    ready: fn() -> Result<()>,
    open: fn(&Path, &Asked) -> Result<Box<dyn Peer>>,
}

impl Kind {
    /// Whether it can run here.
    ///
    /// # Errors
    /// [`lodestore_contract::Error::InvalidOption`] naming the package that is missing.
    pub fn ready(&self) -> Result<()> {
        (self.ready)()
    }

    /// Whether it can be in `dir`, which may not be there yet.
    ///
    /// # Errors
    /// [`lodestore_contract::Error::InvalidOption`] for a server whose socket would have too long a path there.
    pub fn fits_in(&self, dir: &Path) -> Result<()> {
        match self.family {
            "redis" | "memcached" => server::check_path(self.name, dir),
            _ => Ok(()),
        }
    }

    /// Makes an empty one in `dir`, which is there; or opens the one in it, where it is asked for one that is there.
    ///
    /// # Errors
    /// As [`Kind::ready`]; what the store answered, as text.
    pub fn open(&self, dir: &Path, asked: &Asked) -> Result<Box<dyn Peer>> {
        (self.open)(dir, asked)
    }
}

/// Every peer of this crate; the first of a family that gives a durability is its usual setting with it.
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
