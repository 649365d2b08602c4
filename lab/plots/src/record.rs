//! The records of `lodestore-bench evaluate`: its file `runs.json` describes each experiment.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::metric::Measure;

/// The file of the records.
pub(crate) const RECORDS: &str = "runs.json";

/// The record of an experiment that ran, in addition to its rows.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Record {
    /// The name of its files, and its key in the file of the records.
    #[serde(skip)]
    pub(crate) name: String,
    /// Its place among all experiments.
    pub(crate) place: usize,
    pub(crate) title: String,
    /// The question that it answers.
    pub(crate) question: String,
    pub(crate) medium: Medium,
    /// The measures that compare stores, the first for the summary.
    pub(crate) measures: Vec<Measure>,
    /// The plot of its results.
    pub(crate) draw: Option<Draw>,
    /// How its size differs from that of its preset, if it runs a preset.
    pub(crate) size: Option<String>,
    pub(crate) scale: String,
    /// Version and commit of the bench.
    pub(crate) program: String,
    pub(crate) date: String,
    pub(crate) site: Site,
    /// Duration in seconds.
    pub(crate) seconds: f64,
    pub(crate) expected_seconds: u64,
    /// The commands that ran.
    pub(crate) commands: Vec<String>,
    /// Stores that were skipped, or that failed, and the reasons.
    pub(crate) left_out: Vec<(String, String)>,
    /// Runs that failed as a whole, and the reasons.
    pub(crate) failed: Vec<String>,
    /// Number of rows.
    pub(crate) rows: usize,
}

/// The plot of an experiment's results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Draw {
    Rates,
    Latency,
    Memory,
    Timeline,
}

/// The medium of an experiment's stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Medium {
    Memory,
    Disk,
}

/// The machine of a run, without any paths.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct Site {
    /// Processor, number of processors and kernel.
    pub(crate) machine: String,
    /// Memory in MiB.
    pub(crate) memory_mib: u64,
    /// The file systems of the directory in memory and of the directory on a disk.
    pub(crate) memory_on: String,
    pub(crate) disk_on: String,
}

/// Parses the file of the records. Returns them in the order of the experiments.
///
/// # Errors
/// The text is not the file of the records.
pub(crate) fn read_records(text: &str) -> Result<Vec<Record>, serde_json::Error> {
    let by_name: BTreeMap<String, Record> = serde_json::from_str(text)?;
    let mut all: Vec<Record> = by_name.into_iter().map(|(name, record)| Record { name, ..record }).collect();
    all.sort_by_key(|record| record.place);
    Ok(all)
}
