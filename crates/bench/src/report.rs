//! What is printed: JSON lines, or a table for a terminal.
//!
//! Each figure is the median over the rounds, taken figure by figure. A ratio to a peer is the median of
//! the ratios of the rounds, since what disturbs a round disturbs both.

use std::collections::BTreeMap;
use std::io::{self, Write};

use comfy_table::{Cell as Field, CellAlignment, ContentArrangement, Table, presets};
use serde::Serialize;

use crate::args::Args;
use crate::cell::Phase;
use crate::measure::machine;
use crate::reopen::Reopened;
use crate::session::Findings;
use crate::workload::Workload;

/// The peer that others are compared with where it is in the run.
const CEILING: &str = "btreemap";

/// One line of the results. Absent where a figure has no meaning.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Row {
    pub(crate) store: String,
    pub(crate) workload: String,
    threads: usize,
    records: u64,
    ops: u64,
    /// Operations acknowledged a second of wall time; keys for `multiget`, scans for `scan`.
    pub(crate) ops_per_s: f64,
    pub(crate) ops_per_s_min: f64,
    pub(crate) ops_per_s_max: f64,
    /// (max - min) / median of `ops_per_s` over the rounds.
    spread: f64,
    rounds: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    ratio_to_btreemap: Option<f64>,
    /// Latency of a call, of every `latency_every`-th call.
    p50_ns: u64,
    p99_ns: u64,
    p999_ns: u64,
    max_ns: u64,
    latency_every: u32,
    /// Until the work behind the acknowledged writes was done as well.
    settled_s: f64,
    settled_ops_per_s: f64,
    /// Processor time of all threads.
    cpu_ns_per_op: f64,
    /// Processor time of the serving threads alone.
    serving_cpu_ns_per_op: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    scanned_per_s: Option<f64>,
    /// The store's own account above its fixed part; of a store without one, anonymous memory. These four are
    /// taken when the workload has settled, and count for each record loaded (after `delete`: what is left behind).
    dram_bytes_per_key: f64,
    dram_fixed_bytes: u64,
    /// Growth of RssAnon from the empty store on.
    rss_anon_bytes_per_key: f64,
    medium_bytes_per_key: f64,
    medium_size_bytes_per_key: f64,
    bytes_written_per_op: f64,
    flushes_per_op: f64,
    fences_per_op: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    reopen: Option<Reopened>,
    medium: String,
    pub(crate) durability: String,
    key_size: usize,
    value_size: usize,
    seed: u64,
    settings: BTreeMap<String, String>,
    machine: String,
    version: &'static str,
    command: String,
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.filter(|value| value.is_finite()).collect();
    values.sort_unstable_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        len if len % 2 == 1 => values[len / 2],
        len => f64::midpoint(values[len / 2 - 1], values[len / 2]),
    }
}

/// To four decimals: more is noise, and makes lines long.
fn short(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}

fn rate(phase: &Phase) -> f64 {
    phase.ops as f64 / phase.wall_s
}

impl Row {
    /// A row with a rate and nothing else.
    #[cfg(test)]
    pub(crate) fn for_plot(store: &str, workload: &str, ops_per_s: f64) -> Self {
        Self { store: store.into(), workload: workload.into(), ops_per_s, ..Self::default() }
    }

    fn base(args: &Args, findings: &Findings, store: &str, workload: &str) -> Self {
        let facts = findings.facts.get(store).cloned().unwrap_or_default();
        Self {
            store: store.into(),
            workload: workload.into(),
            threads: args.threads,
            records: args.records,
            latency_every: args.latency_every,
            medium: facts.medium,
            durability: facts.durability,
            key_size: args.key_size,
            value_size: args.value_size,
            seed: args.seed,
            settings: facts.settings,
            machine: machine(),
            version: env!("CARGO_PKG_VERSION"),
            ..Self::default()
        }
    }

    fn rates(&mut self, rates: &[f64]) {
        self.rounds = rates.len();
        self.ops_per_s = median(rates.iter().copied()).round();
        self.ops_per_s_min = rates.iter().copied().fold(f64::INFINITY, f64::min).round();
        self.ops_per_s_max = rates.iter().copied().fold(0.0, f64::max).round();
        self.spread = short((self.ops_per_s_max - self.ops_per_s_min) / self.ops_per_s.max(1.0));
    }

    /// The row of one store and workload.
    fn of(args: &Args, findings: &Findings, store: &str, workload: Workload) -> Option<Self> {
        let place = |store: &str| (store.to_string(), workload.name().to_string());
        let phases = findings.phases.get(&place(store))?;
        let mut row = Self::base(args, findings, store, workload.name());
        row.rates(&phases.iter().map(rate).collect::<Vec<_>>());
        let ceiling = findings.phases.get(&place(CEILING));
        let ratios =
            ceiling.map(|peer| median(phases.iter().zip(peer).map(|(ours, theirs)| rate(ours) / rate(theirs))));
        row.ratio_to_btreemap = ratios.map(short);
        let mid = |of: &dyn Fn(&Phase) -> f64| median(phases.iter().map(of));
        let ns = |of: &dyn Fn(&Phase) -> u64| mid(&|phase| of(phase) as f64) as u64;
        let per_op = |of: &dyn Fn(&Phase) -> f64| short(mid(&|phase| of(phase) / phase.ops as f64));
        let keys = args.records as f64;
        let per_key = |of: &dyn Fn(&Phase) -> u64| short(mid(&|phase| of(phase) as f64) / keys);
        row.ops = phases.first().map_or(0, |phase| phase.ops);
        row.p50_ns = ns(&|phase| phase.p50_ns);
        row.p99_ns = ns(&|phase| phase.p99_ns);
        row.p999_ns = ns(&|phase| phase.p999_ns);
        row.max_ns = ns(&|phase| phase.max_ns);
        row.settled_s = short(mid(&|phase| phase.settled_s));
        row.settled_ops_per_s = mid(&|phase| phase.ops as f64 / phase.settled_s).round();
        row.serving_cpu_ns_per_op = per_op(&|phase| phase.serving_cpu_s * 1e9);
        row.cpu_ns_per_op = per_op(&|phase| phase.cpu_s * 1e9);
        let scanned = mid(&|phase| phase.scanned as f64 / phase.wall_s).round();
        row.scanned_per_s = (scanned > 0.0).then_some(scanned);
        row.dram_bytes_per_key = per_key(&|phase| phase.dram_bytes.unwrap_or(phase.rss_anon_bytes));
        row.dram_fixed_bytes = ns(&|phase| phase.dram_fixed_bytes);
        row.rss_anon_bytes_per_key = per_key(&|phase| phase.rss_anon_bytes);
        row.medium_bytes_per_key = per_key(&|phase| phase.medium_bytes);
        row.medium_size_bytes_per_key = per_key(&|phase| phase.medium_size_bytes);
        row.bytes_written_per_op = per_op(&|phase| phase.bytes_written as f64);
        row.flushes_per_op = per_op(&|phase| phase.flushes as f64);
        row.fences_per_op = per_op(&|phase| phase.fences as f64);
        row.command = args.command(&[workload]);
        Some(row)
    }

    /// The row of one kind of reopening: its operations are the keys recovered.
    fn of_reopening(args: &Args, findings: &Findings, store: &str, kind: &str, all: &[Reopened]) -> Self {
        let mut row = Self::base(args, findings, store, kind);
        row.rates(&all.iter().map(|one| one.keys as f64 / one.recovered_s).collect::<Vec<_>>());
        let mid = |of: &dyn Fn(&Reopened) -> f64| median(all.iter().map(of));
        let whole = |of: &dyn Fn(&Reopened) -> u64| mid(&|one| of(one) as f64) as u64;
        let found = Reopened {
            open_s: mid(&|one| one.open_s),
            first_get_ns: whole(&|one| one.first_get_ns),
            p50_ns: whole(&|one| one.p50_ns),
            p99_ns: whole(&|one| one.p99_ns),
            p999_ns: whole(&|one| one.p999_ns),
            max_ns: whole(&|one| one.max_ns),
            recovered_s: mid(&|one| one.recovered_s),
            first_scan_s: mid(&|one| one.first_scan_s),
            keys: whole(&|one| one.keys),
            checked: whole(&|one| one.checked),
            dram_bytes: all
                .iter()
                .all(|one| one.dram_bytes.is_some())
                .then(|| whole(&|one| one.dram_bytes.unwrap_or(0))),
            dram_fixed_bytes: whole(&|one| one.dram_fixed_bytes),
            rss_anon_bytes: whole(&|one| one.rss_anon_bytes),
            medium_bytes: whole(&|one| one.medium_bytes),
            medium_size_bytes: whole(&|one| one.medium_size_bytes),
        };
        let per_key = |bytes: u64| short(bytes as f64 / args.records as f64);
        row.ops = found.keys;
        (row.p50_ns, row.p99_ns, row.p999_ns, row.max_ns) = (found.p50_ns, found.p99_ns, found.p999_ns, found.max_ns);
        row.latency_every = 1;
        row.settled_s = short(found.recovered_s);
        row.dram_bytes_per_key = per_key(found.dram_bytes.unwrap_or(found.rss_anon_bytes));
        row.dram_fixed_bytes = found.dram_fixed_bytes;
        row.rss_anon_bytes_per_key = per_key(found.rss_anon_bytes);
        row.medium_bytes_per_key = per_key(found.medium_bytes);
        row.medium_size_bytes_per_key = per_key(found.medium_size_bytes);
        row.command = args.command(&[]);
        row.reopen = Some(found);
        row
    }
}

/// Workloads, each once, in the order given.
pub(crate) fn each_once(workloads: &[Workload]) -> Vec<Workload> {
    let mut each = Vec::new();
    for workload in workloads {
        if !each.contains(workload) {
            each.push(*workload);
        }
    }
    each
}

/// A row for each workload and store that ran, and for each kind of reopening.
pub(crate) fn rows(args: &Args, findings: &Findings) -> Vec<Row> {
    let mut rows = Vec::new();
    for workload in each_once(&args.workloads) {
        rows.extend(args.targets().iter().filter_map(|store| Row::of(args, findings, store, workload)));
    }
    rows.extend(
        findings.reopened.iter().map(|((store, kind), all)| Row::of_reopening(args, findings, store, kind, all)),
    );
    rows
}

/// Prints one JSON object a line.
///
/// # Errors
/// What `out` meets.
pub(crate) fn json(args: &Args, findings: &Findings, mut out: impl Write) -> io::Result<()> {
    for row in rows(args, findings) {
        writeln!(out, "{}", serde_json::to_string(&row)?)?;
    }
    out.flush()
}

fn ns_text(ns: u64) -> String {
    match ns {
        0..10_000 => format!("{ns} ns"),
        10_000..10_000_000 => format!("{:.1} us", ns as f64 / 1e3),
        _ => format!("{:.1} ms", ns as f64 / 1e6),
    }
}

fn rate_text(rate: f64) -> String {
    if rate >= 1e6 { format!("{:.2} M", rate / 1e6) } else { format!("{:.1} k", rate / 1e3) }
}

fn fields(row: &Row) -> Vec<String> {
    vec![
        row.workload.clone(),
        row.store.clone(),
        rate_text(row.ops_per_s),
        row.ratio_to_btreemap.map_or("-".into(), |ratio| format!("{ratio:.2}")),
        format!("{:.0} %", row.spread * 100.0),
        ns_text(row.p50_ns),
        ns_text(row.p99_ns),
        ns_text(row.p999_ns),
        ns_text(row.max_ns),
        format!("{:.2}", row.settled_s),
        format!("{:.0}", row.serving_cpu_ns_per_op),
        format!("{:.0}", row.cpu_ns_per_op),
        format!("{:.1}", row.dram_bytes_per_key),
        format!("{:.1}", row.rss_anon_bytes_per_key),
        format!("{:.1}", row.medium_bytes_per_key),
        format!("{:.2}", row.flushes_per_op),
        format!("{:.2}", row.fences_per_op),
    ]
}

/// Heads of the columns of [`fields`].
const HEADS: [&str; 17] = [
    "workload",
    "store",
    "ops/s",
    "x btreemap",
    "spread",
    "p50",
    "p99",
    "p99.9",
    "max",
    "settled s",
    "serving ns/op",
    "cpu ns/op",
    "DRAM B/key",
    "RSS B/key",
    "medium B/key",
    "flush/op",
    "fence/op",
];

/// Prints a table, what each store says of itself, and how to repeat it.
///
/// # Errors
/// What `out` meets.
pub(crate) fn table(args: &Args, findings: &Findings, mut out: impl Write) -> io::Result<()> {
    let rows = rows(args, findings);
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(HEADS);
    for row in &rows {
        table.add_row(fields(row).into_iter().enumerate().map(|(at, text)| {
            let side = if at < 2 { CellAlignment::Left } else { CellAlignment::Right };
            Field::new(text).set_alignment(side)
        }));
    }
    writeln!(out, "{table}")?;
    for found in rows.iter().filter_map(|row| row.reopen.as_ref().map(|found| (row, found))) {
        let (row, found) = found;
        writeln!(
            out,
            "{} {}: open {:.1} ms, first get {}, first scan after {:.2} s, recovered after {:.2} s ({} keys/s), {} of {} records read back right",
            row.store,
            row.workload,
            found.open_s * 1e3,
            ns_text(found.first_get_ns),
            found.first_scan_s,
            found.recovered_s,
            rate_text(row.ops_per_s),
            found.checked,
            row.records,
        )?;
    }
    writeln!(
        out,
        "{} records of {} + {} B, {} thread(s), median of {} round(s), seed {}; multiget counts keys, its latency is of a call of {};\n\
         latency of every {}. call; settled: until the work behind the writes was done;\n\
         serving and cpu ns/op: processor time of the serving threads, and of all threads; x btreemap: median ratio within a round",
        args.records,
        args.key_size,
        args.value_size,
        args.threads,
        args.rounds,
        args.seed,
        args.multiget,
        args.latency_every,
    )?;
    for (store, facts) in &findings.facts {
        let set: Vec<_> = facts.settings.iter().map(|(name, value)| format!("{name}={value}")).collect();
        writeln!(out, "{store}: medium {}, durability {}; {}", facts.medium, facts.durability, set.join(" "))?;
    }
    writeln!(
        out,
        "{}\nto run it again, or one row of it by naming one workload:\n  {}",
        machine(),
        args.command(&args.workloads)
    )?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle() {
        assert!((median([3.0, 1.0, 2.0].into_iter()) - 2.0).abs() < 1e-9);
        assert!((median([4.0, 1.0, 2.0, 3.0].into_iter()) - 2.5).abs() < 1e-9);
        assert!(median(std::iter::empty()).abs() < 1e-9);
    }

    #[test]
    fn figures_are_written_short() {
        assert_eq!(ns_text(170), "170 ns");
        assert_eq!(ns_text(12_345), "12.3 us");
        assert_eq!(ns_text(12_345_678), "12.3 ms");
        assert_eq!(rate_text(1_234_567.0), "1.23 M");
        assert_eq!(rate_text(12_345.0), "12.3 k");
    }
}
