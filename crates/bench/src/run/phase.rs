//! The figures of one workload in one round, as a cell tells them.

use serde::{Deserialize, Serialize};

use crate::run::pauses::{Machine, Pauses};

/// What came of one workload in one round.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Phase {
    pub(crate) workload: String,
    pub(crate) ops: u64,
    pub(crate) wall_s: f64,
    /// When the last operation of an open loop was due, from the beginning of `wall_s`.
    pub(crate) due_s: f64,
    /// For how long up to then it had something late to do.
    pub(crate) late_for_s: f64,
    pub(crate) settled_s: f64,
    pub(crate) cpu_s: f64,
    pub(crate) serving_cpu_s: f64,
    /// Calls that were timed.
    pub(crate) samples: u64,
    pub(crate) mean_ns: f64,
    /// Of the calls that only read, and of those that change something.
    pub(crate) read_mean_ns: Option<f64>,
    pub(crate) write_mean_ns: Option<f64>,
    pub(crate) p50_ns: u64,
    pub(crate) p90_ns: u64,
    pub(crate) p99_ns: u64,
    pub(crate) p999_ns: u64,
    pub(crate) p9999_ns: u64,
    pub(crate) max_ns: u64,
    /// As [`crate::plot::latency::curve`] tells it.
    pub(crate) latency_curve: Vec<u64>,
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
    /// Keys and values given to the store.
    pub(crate) put_bytes: u64,
    /// Keys and values in it at the end.
    pub(crate) live_bytes: u64,
    /// What the process had written to a device.
    pub(crate) device_bytes: u64,
    /// What the process had given to files in calls that write.
    pub(crate) called_bytes: u64,
    /// Bytes of the blocks that the store's files take at the end.
    pub(crate) block_bytes: u64,
    pub(crate) peak_rss_bytes: u64,
    /// Calls that lasted long, of those that were timed.
    pub(crate) pauses: Pauses,
    /// What the machine did by itself, where it was watched.
    pub(crate) machine: Option<Machine>,
}
