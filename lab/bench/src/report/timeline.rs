//! The progress of each store every 100 ms, as CSV. `lodestore-plots timeline` draws it.
//!
//! Each workload begins with a sample of no operations, and `ops` counts the operations since the
//! previous line. The last columns are gauges of the store, by their names in `stats`.

use std::fmt::Write as _;
use std::path::Path;

use lodestore_contract::{Error, Result};

use crate::run::session::Findings;
use crate::run::watch::{Part, Sample};
use crate::target::GAUGES;

/// Writes the timeline of a run to `file`.
///
/// # Errors
/// [`Error::Io`] if the file cannot be written.
pub(crate) fn write(findings: &Findings, file: &Path) -> Result<()> {
    let written = std::fs::write(file, csv(&findings.timeline));
    written.map_err(|source| Error::io("writing the timeline", file, source))
}

/// The columns of the CSV, before the columns of the gauges.
const HEAD: &str = "store,round,workload,seconds,ops,ops_per_s,rss_anon_bytes,dram_bytes,medium_bytes,bytes_written,table_flushes,compactions";

fn csv(parts: &[Part]) -> String {
    let mut text = format!("{HEAD},{}\n", GAUGES.join(","));
    for part in parts {
        let mut before: Option<&Sample> = None;
        for sample in &part.samples {
            let (ops, rate) = since(before, sample);
            let optional = |value: Option<u64>| value.map_or(String::new(), |value| value.to_string());
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "{},{},{},{:.3},{ops},{rate:.0},{},{},{},{},{},{},{}",
                part.store,
                part.round,
                part.workload,
                sample.at_s,
                sample.rss_anon_bytes,
                optional(sample.dram_bytes),
                sample.medium_bytes,
                sample.bytes_written,
                optional(sample.table_flushes),
                optional(sample.compactions),
                sample.gauges.0.map(optional).join(","),
            );
            before = Some(sample);
        }
    }
    text
}

/// Returns the operations since the previous sample, and their rate.
fn since(before: Option<&Sample>, sample: &Sample) -> (u64, f64) {
    let Some(before) = before else { return (sample.ops, 0.0) };
    let (ops, seconds) = (sample.ops.saturating_sub(before.ops), sample.at_s - before.at_s);
    (ops, if seconds > 0.0 { ops as f64 / seconds } else { 0.0 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Gauges;

    /// Two workers, the usual trigger of compactions, and as many memtables as there were
    /// operations before.
    fn gauges(ops: u64) -> Gauges {
        Gauges(GAUGES.map(|name| match name {
            "workers_allowed" => Some(2),
            "compaction_trigger_percent" => Some(100),
            "memtables" => Some(ops),
            _ => None,
        }))
    }

    fn part(store: &str, round: usize, ops: &[(f64, u64)]) -> Part {
        let sample = |(at_s, ops): &(f64, u64)| Sample {
            at_s: *at_s,
            ops: *ops,
            rss_anon_bytes: 3 << 20,
            dram_bytes: (store == "ours").then_some(2 << 20),
            medium_bytes: 70,
            bytes_written: 80,
            table_flushes: (store == "ours").then_some(4),
            compactions: None,
            gauges: if store == "ours" { gauges(*ops) } else { Gauges::default() },
        };
        Part { store: store.into(), round, workload: "load".into(), samples: ops.iter().map(sample).collect() }
    }

    #[test]
    fn a_line_of_csv_has_what_was_done_since_the_line_before() {
        let parts = [part("ours", 1, &[(1.0, 0), (1.1, 500), (1.3, 1500)]), part("theirs", 2, &[(0.5, 0)])];
        let text = csv(&parts);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(
            lines,
            [
                &format!("{HEAD},{}", GAUGES.join(",")),
                "ours,1,load,1.000,0,0,3145728,2097152,70,80,4,,2,100,0,,,,,,,,",
                "ours,1,load,1.100,500,5000,3145728,2097152,70,80,4,,2,100,500,,,,,,,,",
                "ours,1,load,1.300,1000,5000,3145728,2097152,70,80,4,,2,100,1500,,,,,,,,",
                "theirs,2,load,0.500,0,0,3145728,,70,80,,,,,,,,,,,,,",
            ]
        );
        let columns = HEAD.split(',').count() + GAUGES.len();
        assert!(lines.iter().all(|line| line.split(',').count() == columns));
    }
}
