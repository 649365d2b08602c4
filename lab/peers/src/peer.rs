//! The bench's interface to a peer.

use std::collections::BTreeMap;

use lodestore_contract::{Error, Result};

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
    /// Bytes of each of its two write buffers, if their size can be set
    /// ([`Kind::write_buffer`](crate::Kind::write_buffer)). Its cache uses the rest of the budget.
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
        self.budget.unwrap_or(BUDGET_BYTES)
    }

    /// Returns the bytes of a cache in addition to [`BUFFER_COUNT`] write buffers, if their size is
    /// requested.
    pub(crate) fn cache_beside_buffers(&self) -> Option<usize> {
        let beside = self.budget().saturating_sub(self.write_buffer?.saturating_mul(BUFFER_COUNT)).max(CACHE_BYTES_MIN);
        Some(usize::try_from(beside).unwrap_or(usize::MAX))
    }
}

/// Default DRAM budget of every peer, in bytes: enough for all records of a bench in memory, and
/// equal for all peers.
pub(crate) const BUDGET_BYTES: u64 = 1 << 30;
/// Maximum bytes of a write buffer without a requested size: the default of RocksDB and fjall. The
/// rest of a large budget is more useful in a cache.
pub(crate) const BUFFER_BYTES_MAX: u64 = 64 << 20;
/// The setting `settles` of a peer whose writes are in their final place when they return.
pub(crate) const NOTHING_WAITS: &str = "nothing waits";
/// Write buffers of a peer with a requested buffer size: one is being filled, one is being written
/// out.
pub(crate) const BUFFER_COUNT: u64 = 2;
/// Minimum bytes of a cache.
const CACHE_BYTES_MIN: u64 = 64 << 10;

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
