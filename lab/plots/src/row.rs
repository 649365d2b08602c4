//! The rows of the bench's results, as far as pages and plots use them.
//!
//! `lodestore-bench` writes one JSON object per line, for one store and one workload. An absent
//! number has its default.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;

/// The workload's name in rows of parts of the load.
const STEP: &str = "load-step";

/// A row of the results. Each number is the median over the rounds.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Row {
    /// The engine or the peer, with the settings in its name.
    pub(crate) store: String,
    pub(crate) workload: String,
    pub(crate) sweep: Option<Swept>,
    pub(crate) threads: usize,
    pub(crate) records: u64,
    /// Acknowledged operations per second; keys for `multiget`, scans for `scan`.
    pub(crate) ops_per_s: f64,
    pub(crate) ops_per_s_min: f64,
    pub(crate) ops_per_s_max: f64,
    /// (max - min) / median of `ops_per_s` over the rounds.
    pub(crate) spread: f64,
    pub(crate) rounds: usize,
    /// The rate as a multiple of each other store's rate.
    pub(crate) ratio_to: BTreeMap<String, f64>,
    pub(crate) open_loop: Option<OpenLoop>,
    pub(crate) mean_ns: f64,
    /// Number of timed calls.
    pub(crate) samples: u64,
    pub(crate) p50_ns: u64,
    pub(crate) p90_ns: u64,
    pub(crate) p99_ns: u64,
    pub(crate) p999_ns: u64,
    pub(crate) p9999_ns: u64,
    /// Maximum of all rounds.
    pub(crate) longest_ns: u64,
    pub(crate) cpu_ns_per_op: f64,
    /// The store's own count of DRAM; without such a count, anonymous memory.
    pub(crate) dram_bytes_per_key: f64,
    /// Growth of RssAnon since the store was empty.
    pub(crate) rss_anon_bytes_per_key: f64,
    pub(crate) medium_bytes_per_key: f64,
    pub(crate) medium_blocks_bytes_per_key: f64,
    /// Bytes written for each byte of keys and values put: by the store's own count, by the
    /// kernel's count of device writes (`write_bytes`), and by the kernel's count of write calls
    /// (`wchar`).
    pub(crate) write_amplification: Option<f64>,
    pub(crate) write_amplification_of_device: Option<f64>,
    pub(crate) write_amplification_of_calls: Option<f64>,
    pub(crate) space_amplification: Option<f64>,
    pub(crate) flushes_per_op: f64,
    pub(crate) fences_per_op: f64,
    pub(crate) pauses: Option<Pauses>,
    pub(crate) machine_pauses: Option<Machine>,
    pub(crate) reopen: Option<Reopened>,
    /// Why the store failed. A row with a reason has no results.
    pub(crate) failed: Option<String>,
    pub(crate) medium: String,
    /// Durability of an acknowledged write.
    pub(crate) durability: String,
    /// Durability of the load, if the store was reopened after it.
    pub(crate) load_durability: Option<String>,
    pub(crate) key_size: Size,
    pub(crate) value_size: Size,
    pub(crate) settings: BTreeMap<String, String>,
    /// The command that repeats only this row.
    pub(crate) repeat: String,
}

/// The swept parameter, and its value in a row.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct Swept {
    pub(crate) name: String,
    pub(crate) value: String,
}

impl fmt::Display for Swept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.name, self.value)
    }
}

/// The size of keys or of values.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub(crate) enum Size {
    Bytes(u64),
    /// A range, as 64..1024, or the name of a distribution.
    Law(String),
}

impl Default for Size {
    fn default() -> Self {
        Self::Bytes(0)
    }
}

impl From<u64> for Size {
    fn from(bytes: u64) -> Self {
        Self::Bytes(bytes)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => write!(f, "{bytes}"),
            Self::Law(name) => f.write_str(name),
        }
    }
}

impl Size {
    /// Returns the mean, except of a distribution.
    fn mean(&self) -> Option<f64> {
        match self {
            Self::Bytes(bytes) => Some(*bytes as f64),
            Self::Law(name) => {
                let (least, most) = name.split_once("..")?;
                Some(f64::midpoint(least.parse().ok()?, most.parse().ok()?))
            }
        }
    }
}

/// An open loop: operations are due at a fixed rate.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct OpenLoop {
    pub(crate) asked_per_s: u64,
    /// Whether the store reached the rate.
    pub(crate) kept_up: bool,
}

/// Pauses by their length.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct Pauses {
    /// Number of pauses longer than 1, 10 and 50 ms.
    pub(crate) longer: [u64; 3],
    pub(crate) longest_ns: u64,
}

/// Pauses of the machine itself: before the run, and concurrent with it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
pub(crate) struct Machine {
    pub(crate) before: Pauses,
    pub(crate) beside: Pauses,
    /// CPU time that the host gave to other machines meanwhile, in seconds.
    pub(crate) stolen_s: f64,
}

/// The times of an open after a stop.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct Reopened {
    pub(crate) open_s: f64,
    pub(crate) first_get_ns: u64,
    pub(crate) recovered_s: f64,
}

impl Row {
    /// Returns whether the row is of a part of the load.
    pub(crate) fn is_step(&self) -> bool {
        self.workload == STEP
    }

    /// Returns the mean bytes of the key and the value of a record, if they are known.
    pub(crate) fn record_bytes(&self) -> Option<f64> {
        Some(self.key_size.mean()? + self.value_size.mean()?)
    }

    /// Returns the store, with its value in a sweep.
    pub(crate) fn swept_store(&self) -> String {
        match &self.sweep {
            Some(swept) => format!("{} {swept}", self.store),
            None => self.store.clone(),
        }
    }

    /// Returns a row with only a rate.
    #[cfg(test)]
    pub(crate) fn of_rate(store: &str, workload: &str, ops_per_s: f64) -> Self {
        Self { store: store.into(), workload: workload.into(), ops_per_s, ..Self::default() }
    }
}

/// Returns the rows of JSON lines. Skips other lines, such as lines of another version.
pub(crate) fn read_rows(lines: &str) -> Vec<Row> {
    lines.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// Returns the rank of a durability: a stronger durability has a higher rank.
pub(crate) fn strength(level: &str) -> u8 {
    match level {
        "none" => 0,
        "process" => 1,
        "power" => 3,
        _ => 2,
    }
}

/// Returns each item once, in the order of first occurrence.
pub(crate) fn distinct<T: PartialEq>(all: impl Iterator<Item = T>) -> Vec<T> {
    all.fold(Vec::new(), |mut seen, one| {
        if !seen.contains(&one) {
            seen.push(one);
        }
        seen
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_numbers_ranges_and_distributions() {
        let text = "{\"key_size\":16,\"value_size\":\"64..1024\"}\n{\"key_size\":16,\"value_size\":\"facebook\"}";
        let rows = read_rows(text);
        let means: Vec<_> = rows.iter().map(Row::record_bytes).collect();
        assert_eq!(means, [Some(560.0), None]);
        assert_eq!(rows[1].value_size.to_string(), "facebook");
    }

    #[test]
    fn absent_numbers_have_their_defaults_and_other_lines_are_skipped() {
        let rows = read_rows("{\"store\":\"a\",\"new\":1}\nnot JSON\n{\"store\":\"b\",\"rounds\":2}\n");
        let names: Vec<_> = rows.iter().map(|row| (row.store.as_str(), row.rounds)).collect();
        assert_eq!(names, [("a", 0), ("b", 2)]);
    }
}
