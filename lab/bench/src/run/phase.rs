//! The results of one workload in one round, as a cell reports them.

use serde::{Deserialize, Serialize};

use crate::run::pauses::{Machine, Pauses};

/// The results of one workload in one round.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Phase {
    pub(crate) workload: String,
    pub(crate) ops: u64,
    pub(crate) wall_s: f64,
    /// Due time of the last operation of an open loop, since the beginning of `wall_s`.
    pub(crate) due_s: f64,
    /// How long, up to that time, the loop was continuously late.
    pub(crate) late_for_s: f64,
    pub(crate) settled_s: f64,
    pub(crate) cpu_s: f64,
    pub(crate) serving_cpu_s: f64,
    /// Number of timed calls.
    pub(crate) samples: u64,
    pub(crate) mean_ns: f64,
    /// Means of the calls that only read, and of the calls that change something.
    pub(crate) read_mean_ns: Option<f64>,
    pub(crate) write_mean_ns: Option<f64>,
    pub(crate) p50_ns: u64,
    pub(crate) p90_ns: u64,
    pub(crate) p99_ns: u64,
    pub(crate) p999_ns: u64,
    pub(crate) p9999_ns: u64,
    pub(crate) max_ns: u64,
    pub(crate) scanned: u64,
    pub(crate) flushes: u64,
    pub(crate) fences: u64,
    pub(crate) bytes_written: u64,
    pub(crate) dram_bytes: Option<u64>,
    pub(crate) dram_fixed_bytes: u64,
    pub(crate) rss_anon_bytes: u64,
    pub(crate) medium_bytes: u64,
    pub(crate) medium_used_bytes: u64,
    pub(crate) medium_size_bytes: u64,
    /// Bytes of keys and values put.
    pub(crate) put_bytes: u64,
    /// Bytes of keys and values in the store at the end.
    pub(crate) live_bytes: u64,
    /// Bytes that the process had written to a device.
    pub(crate) device_bytes: u64,
    /// Bytes that the process had passed to write calls on files.
    pub(crate) called_bytes: u64,
    /// Bytes of the blocks of the store's files at the end.
    pub(crate) block_bytes: u64,
    pub(crate) peak_rss_bytes: u64,
    /// Long calls, among the timed calls.
    pub(crate) pauses: Pauses,
    /// Pauses of the machine, if it was watched.
    pub(crate) machine: Option<Machine>,
}
