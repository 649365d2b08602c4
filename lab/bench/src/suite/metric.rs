//! The measures by which the pages compare the stores of an experiment.

use serde::{Deserialize, Serialize};

/// A measure of an experiment, by its name in `runs.json`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Measure {
    /// Operations per second.
    Rate,
    /// The mean latency of a call in a closed loop.
    Mean,
    /// The 99th and the 99.9th percentile of the latency in an open loop.
    P99,
    P999,
    /// Growth of RssAnon per key.
    Dram,
    /// Bytes of the blocks of the files per record.
    Medium,
    /// Bytes written for each byte put, in memory.
    Written,
    /// The same on a disk, by the device's count for all.
    OnDevice,
    /// Time until a store is open, of the first get after that, and until its recovery is done.
    Open,
    FirstGet,
    Recovered,
}
