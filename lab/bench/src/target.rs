//! The bench's interface to stores: one trait for stores of this workspace and for peers.

use std::collections::BTreeMap;
use std::time::Duration;

use lodestore_contract::{Lifetime, Result, ScanRange, Visit};
use serde::{Deserialize, Serialize};

/// An open target's description.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Facts {
    /// Its medium: `shm`, `dram`...
    pub(crate) medium: String,
    /// Durability of an acknowledged write: `process`, `power`, `none`...
    pub(crate) durability: String,
    /// Durability of the load, if it differed from that of the later workloads.
    pub(crate) load_durability: Option<String>,
    /// Every effective setting that affects speed.
    pub(crate) settings: BTreeMap<String, String>,
}

/// Engine gauges, by their names in `stats`: the values that a store adapts to its workload, and
/// their inputs.
pub(crate) const GAUGES: [&str; 11] = [
    "workers_allowed",
    "compaction_trigger_percent",
    "memtables",
    "log_bytes",
    "runs_most",
    "buffered_bytes",
    "log_bytes_per_s",
    "flush_bytes_per_s",
    "compaction_bytes_per_s",
    "compacted_per_log_percent",
    "writes_per_mille",
];

/// The values of [`GAUGES`] that a store has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Gauges(pub(crate) [Option<u64>; GAUGES.len()]);

/// A target's statistics at one moment. Values that it does not count are 0 or `None`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Account {
    /// DRAM of its structures above their fixed part, in bytes.
    pub(crate) dram_bytes: Option<u64>,
    /// DRAM of its fixed part, in bytes.
    pub(crate) dram_fixed_bytes: u64,
    /// Bytes on the medium in live records and structures, with rounding.
    pub(crate) medium_bytes: u64,
    /// The same plus bytes that hold nothing live and cannot be reused yet.
    pub(crate) medium_used_bytes: u64,
    /// Bytes that exist on the medium, in use or not.
    pub(crate) medium_size_bytes: u64,
    /// Bytes written to the medium since open.
    pub(crate) bytes_written: u64,
    /// Lines or pages flushed since open.
    pub(crate) flushes: u64,
    /// Fences or syncs since open.
    pub(crate) fences: u64,
    /// Flushes of buffers to tables since open.
    pub(crate) table_flushes: Option<u64>,
    /// Compactions since open.
    pub(crate) compactions: Option<u64>,
    /// Adaptive values.
    pub(crate) gauges: Gauges,
}

/// A store under test. Several threads call it at once.
pub(crate) trait Target: Send + Sync {
    /// Returns its description.
    fn facts(&self) -> Facts;
    /// Returns whether it keeps keys in order, and so supports scans.
    fn ordered(&self) -> bool {
        true
    }
    /// Returns its current statistics.
    fn account(&self) -> Account;
    /// Returns the duration of its own open, if the caller did more than that to open it.
    fn opening(&self) -> Option<Duration> {
        None
    }
    /// Waits until background recovery after its open is done. Returns whether there is any.
    fn wait_recovered(&self) -> Result<bool> {
        Ok(false)
    }
    /// Returns the number of live keys; `None` if it does not count them.
    fn keys(&self) -> Result<Option<u64>> {
        Ok(None)
    }
    /// Returns the process id of its server, if it has one.
    fn server(&self) -> Option<u32> {
        None
    }
    /// Replaces `value` by the value of `key`, and returns whether there is one.
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool>;
    /// Calls `each` once for each of `keys`.
    fn multi_get(&self, keys: &[&[u8]], each: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()>;
    /// Stores `value` under `key`.
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()>;
    /// Stores `value` under `key` if the key is present, and returns whether it was.
    fn update(&self, key: &[u8], value: &[u8]) -> Result<bool>;
    /// Removes `key`, and returns whether it was present.
    fn delete(&self, key: &[u8]) -> Result<bool>;
    /// Calls `each` for at most `limit` pairs in order, starting at `from`. Returns the number of
    /// pairs.
    fn scan(&self, from: &[u8], limit: usize, each: &mut dyn FnMut(&[u8], &[u8])) -> Result<usize>;
    /// Waits until all background work of the acknowledged writes is done for which later
    /// operations would wait.
    fn catch_up(&self) -> Result<()>;
    /// Waits until all data is in its final place: buffers flushed, and due compactions done.
    fn settle(&self) -> Result<()>;
    /// Closes the store.
    fn close(&self) -> Result<()>;
}

/// A store of this workspace, as a target.
pub(crate) struct StoreTarget {
    store: lodestore::store::Handle,
    settings: BTreeMap<String, String>,
}

impl StoreTarget {
    pub(crate) fn new(store: lodestore::store::Handle, settings: BTreeMap<String, String>) -> Self {
        Self { store, settings }
    }
}

impl Target for StoreTarget {
    fn facts(&self) -> Facts {
        let stats = self.store.stats();
        Facts {
            medium: stats.medium,
            durability: stats.durability.to_string(),
            settings: self.settings.clone(),
            ..Facts::default()
        }
    }

    fn account(&self) -> Account {
        let stats = self.store.stats();
        let counter = |name: &str| stats.engine_counters.get(name).copied();
        Account {
            dram_bytes: Some(stats.dram_bytes.saturating_sub(stats.dram_fixed_bytes)),
            dram_fixed_bytes: stats.dram_fixed_bytes,
            medium_bytes: stats.space.live,
            medium_used_bytes: stats.space.live + stats.space.dead,
            medium_size_bytes: stats.space.size,
            bytes_written: stats.bytes_written,
            flushes: stats.flushes,
            fences: stats.fences,
            table_flushes: counter("flushes"),
            compactions: counter("compactions"),
            gauges: Gauges(GAUGES.map(counter)),
        }
    }

    fn wait_recovered(&self) -> Result<bool> {
        self.store.wait_recovered().map(|()| true)
    }

    fn keys(&self) -> Result<Option<u64>> {
        self.store.len().map(Some)
    }

    fn ordered(&self) -> bool {
        self.store.capabilities().scan
    }

    #[inline]
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        self.store.get_into(key, value)
    }

    #[inline]
    fn multi_get(&self, keys: &[&[u8]], each: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()> {
        self.store.multi_get(keys, each)
    }

    #[inline]
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.store.put(key, value)
    }

    #[inline]
    fn update(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        self.store.update(key, value, Lifetime::Forever)
    }

    #[inline]
    fn delete(&self, key: &[u8]) -> Result<bool> {
        self.store.delete(key)
    }

    fn scan(&self, from: &[u8], limit: usize, each: &mut dyn FnMut(&[u8], &[u8])) -> Result<usize> {
        self.store.scan_each(&ScanRange::from(from).limit(limit), &mut |key, value| {
            each(key, value);
            Visit::More
        })
    }

    /// Starts a scan. A scan sees every write that returned before it, so once it has begun every
    /// index is up to date.
    fn catch_up(&self) -> Result<()> {
        if self.store.capabilities().scan {
            self.store.scan_each(&ScanRange::all().limit(1), &mut |_, _| Visit::Stop)?;
        }
        Ok(())
    }

    fn settle(&self) -> Result<()> {
        self.store.settle()?;
        self.catch_up()
    }

    fn close(&self) -> Result<()> {
        self.store.close()
    }
}
