//! The peers in their settings.

use std::path::Path;

use lodestore_contract::Result;

#[cfg(feature = "fjall")]
use crate::fjall;
use crate::peer::{Asked, Peer, Survives};
#[cfg(feature = "redb")]
use crate::redb;
#[cfg(feature = "sled")]
use crate::sled;
use crate::{bdb, leveldb, lmdb, memcached, redis, rocksdb, server};

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
