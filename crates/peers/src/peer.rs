//! What a peer is to the bench, and which there are.

use std::collections::BTreeMap;
use std::path::Path;

use lodestore_contract::Result;

#[cfg(feature = "redb")]
use crate::redb;
use crate::{bdb, leveldb};

/// What an acknowledged write survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Survives {
    /// Nothing but a clean stop: it is in the process's own memory until then.
    Stop,
    /// The death of the process: the operating system has it.
    Process,
    /// What the medium survives: it was synced.
    Medium,
}

/// What a peer says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct About {
    /// What an acknowledged write survives.
    pub survives: Survives,
    /// Its version and every setting that bears on speed.
    pub settings: BTreeMap<String, String>,
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
}

/// A peer in one setting.
pub struct Kind {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is, one line.
    pub about: &'static str,
    /// Whether it keeps keys in order, and so scans.
    pub ordered: bool,
    ready: fn() -> Result<()>,
    open: fn(&Path) -> Result<Box<dyn Peer>>,
}

impl Kind {
    /// Whether it can run here.
    ///
    /// # Errors
    /// [`lodestore_contract::Error::InvalidOption`] naming the package that is missing.
    pub fn ready(&self) -> Result<()> {
        (self.ready)()
    }

    /// Makes an empty one in `dir`, which is there.
    ///
    /// # Errors
    /// As [`Kind::ready`]; what the store answered, as text.
    pub fn create(&self, dir: &Path) -> Result<Box<dyn Peer>> {
        (self.open)(dir)
    }
}

/// Every peer of this crate.
pub fn kinds() -> &'static [Kind] {
    KINDS
}

const KINDS: &[Kind] = &[
    Kind {
        name: "leveldb",
        about: "LevelDB, no sync, no compression, 64 MiB buffer, Bloom filter, 512 MiB cache",
        ordered: true,
        ready: leveldb::ready,
        open: |dir| leveldb::create(dir, &leveldb::SANE),
    },
    Kind {
        name: "leveldb-paper",
        about: "LevelDB as NVHT's authors ran it: sync of every put, 4 MiB buffer",
        ordered: true,
        ready: leveldb::ready,
        open: |dir| leveldb::create(dir, &leveldb::PAPER),
    },
    Kind {
        name: "bdb-hash",
        about: "Berkeley DB hash, 1 GiB cache, no sync",
        ordered: false,
        ready: bdb::ready,
        open: |dir| bdb::create(dir, bdb::Method::Hash, &bdb::SANE),
    },
    Kind {
        name: "bdb-hash-paper",
        about: "Berkeley DB hash as NVHT's authors ran it: 256 KiB cache, sync after every put",
        ordered: false,
        ready: bdb::ready,
        open: |dir| bdb::create(dir, bdb::Method::Hash, &bdb::PAPER),
    },
    Kind {
        name: "bdb-btree",
        about: "Berkeley DB B-tree, 1 GiB cache, no sync",
        ordered: true,
        ready: bdb::ready,
        open: |dir| bdb::create(dir, bdb::Method::BTree, &bdb::SANE),
    },
    Kind {
        name: "bdb-btree-paper",
        about: "Berkeley DB B-tree with the authors' setting: 256 KiB cache, sync after every put",
        ordered: true,
        ready: bdb::ready,
        open: |dir| bdb::create(dir, bdb::Method::BTree, &bdb::PAPER),
    },
    #[cfg(feature = "redb")]
    Kind {
        name: "redb",
        about: "redb, a transaction for each call, durability None, 1 GiB cache",
        ordered: true,
        ready: || Ok(()),
        open: |dir| redb::create(dir, ::redb::Durability::None),
    },
    #[cfg(feature = "redb")]
    Kind {
        name: "redb-sync",
        about: "redb, a transaction for each call, durability Immediate, 1 GiB cache",
        ordered: true,
        ready: || Ok(()),
        open: |dir| redb::create(dir, ::redb::Durability::Immediate),
    },
];
