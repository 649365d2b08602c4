//! The rows of the results: the numbers of one store and one workload.
//!
//! Each number is the median over the rounds, taken separately. A ratio to another store is the
//! median of the ratios of the rounds, because a disturbance of a round affects both.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::args::Args;
use crate::args::sweep::Variant;
use crate::procfs::machine;
use crate::report::open_loop::OpenLoop;
use crate::run::pauses::{Machine, Pauses};
use crate::run::phase::Phase;
use crate::run::reopen::{EARLY_GET_COUNT, REOPENING, Reopened};
use crate::run::session::Findings;
use crate::store_name;
use crate::workload::sizes::Size;
use crate::workload::{Turn, Workload};

/// The workload's name in rows of parts of the load.
const STEP: &str = "load-step";
/// The workload's name in rows of stores that failed.
const FAILED: &str = "failed";

/// The swept parameter, and its value in this row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Swept {
    pub(crate) name: String,
    pub(crate) value: String,
}

/// A line of the results. A number without a meaning is absent. Parsing uses the defaults for
/// absent fields.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Row {
    pub(crate) store: String,
    pub(crate) workload: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) sweep: Option<Swept>,
    pub(crate) threads: usize,
    pub(crate) records: u64,
    pub(crate) ops: u64,
    /// Acknowledged operations per second of wall time; keys for `multiget`, scans for `scan`.
    pub(crate) ops_per_s: f64,
    pub(crate) ops_per_s_min: f64,
    pub(crate) ops_per_s_max: f64,
    /// (max - min) / median of `ops_per_s` over the rounds.
    pub(crate) spread: f64,
    pub(crate) rounds: usize,
    /// The rate as a multiple of each other store's rate.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) ratio_to: BTreeMap<String, f64>,
    /// The requested and the reached rate of an open loop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) open_loop: Option<OpenLoop>,
    /// Latency of a call, counted from its due time in an open loop, of every `latency_every`-th
    /// call.
    pub(crate) mean_ns: f64,
    /// Number of timed calls. Tables omit a percentile of fewer calls than its denominator.
    pub(crate) samples: u64,
    /// Mean latency of calls that only read, and of calls that change something.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) read_mean_ns: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) write_mean_ns: Option<f64>,
    pub(crate) p50_ns: u64,
    pub(crate) p90_ns: u64,
    pub(crate) p99_ns: u64,
    pub(crate) p999_ns: u64,
    pub(crate) p9999_ns: u64,
    pub(crate) max_ns: u64,
    /// Maximum of all rounds.
    pub(crate) longest_ns: u64,
    pub(crate) latency_every: u32,
    /// Time until the background work of the acknowledged writes was done too.
    pub(crate) settled_s: f64,
    pub(crate) settled_ops_per_s: f64,
    /// CPU time of all threads.
    pub(crate) cpu_ns_per_op: f64,
    /// CPU time of the serving threads only.
    pub(crate) serving_cpu_ns_per_op: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) scanned_per_s: Option<f64>,
    /// The store's own count of DRAM above its fixed part; without such a count, anonymous memory.
    /// These four are measured after the workload has settled, per loaded record (after `delete`:
    /// the remains).
    pub(crate) dram_bytes_per_key: f64,
    pub(crate) dram_fixed_bytes: u64,
    /// Growth of RssAnon since the store was empty.
    pub(crate) rss_anon_bytes_per_key: f64,
    pub(crate) medium_bytes_per_key: f64,
    pub(crate) medium_size_bytes_per_key: f64,
    /// Blocks of the store's files, regardless of its own count.
    pub(crate) medium_blocks_bytes_per_key: f64,
    pub(crate) bytes_written_per_op: f64,
    /// Bytes written to a device per operation, by the kernel's count: whole pages, and none on
    /// tmpfs.
    pub(crate) device_bytes_per_op: f64,
    /// Bytes that the store wrote to its medium for each byte of keys and values put.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) write_amplification: Option<f64>,
    /// The same for bytes written to a device, by the kernel's count (`write_bytes`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) write_amplification_of_device: Option<f64>,
    /// The same for bytes passed to write calls on files (`wchar`), which excludes stores through
    /// mappings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) write_amplification_of_calls: Option<f64>,
    /// Bytes on the medium that are in use, or cannot be reused yet, for each byte of live keys and
    /// values.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) space_amplification: Option<f64>,
    /// The same for all bytes that exist on the medium.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) space_amplification_of_size: Option<f64>,
    /// The same for the blocks of the store's files, regardless of its own count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) space_amplification_of_blocks: Option<f64>,
    /// Maximum growth of RssAnon above that of the empty store, in any round.
    pub(crate) peak_rss_anon_bytes: u64,
    /// Timed calls of all rounds that lasted longer than 1, 10 and 50 ms. Not counted after a
    /// reopening.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pauses: Option<Pauses>,
    /// Pauses of the machine in all rounds, during an overload or an open loop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) machine_pauses: Option<Machine>,
    pub(crate) flushes_per_op: f64,
    pub(crate) fences_per_op: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reopen: Option<Reopened>,
    /// Why the store failed, in its row of workload `failed`, if the run continued with the others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) failed: Option<String>,
    pub(crate) medium: String,
    pub(crate) durability: String,
    /// Durability of the load, if the store was reopened after it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) load_durability: Option<String>,
    pub(crate) key_size: Size,
    pub(crate) value_size: Size,
    pub(crate) seed: u64,
    pub(crate) settings: BTreeMap<String, String>,
    pub(crate) machine: String,
    pub(crate) version: String,
    /// Repeats the row together with the other stores, if there is no sweep.
    pub(crate) command: String,
    /// Repeats only this row: this store, this value of the sweep, and the workloads that it needs
    /// before it.
    pub(crate) repeat: String,
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

/// Rounds to four decimals, because more is noise and makes lines long.
fn short(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}

fn rate(phase: &Phase) -> f64 {
    phase.ops as f64 / phase.wall_s
}

impl Row {
    /// Returns a row with only a rate.
    #[cfg(test)]
    pub(crate) fn of_rate(store: &str, workload: &str, ops_per_s: f64) -> Self {
        Self { store: store.into(), workload: workload.into(), ops_per_s, ..Self::default() }
    }

    fn base(variant: &Variant, findings: &Findings, workload: &str) -> Self {
        let facts = findings.facts.get(&variant.label()).cloned().unwrap_or_default();
        let args = &variant.args;
        let swept = variant.swept.clone().zip(args.sweep.as_ref());
        let loads = workload == STEP || workload == Workload::Load.name();
        let of_load = facts.load_durability.clone().filter(|_| loads);
        let settings = findings.load_facts.get(&variant.label()).filter(|_| loads).map(|facts| facts.settings.clone());
        Self {
            store: variant.target.clone(),
            workload: workload.into(),
            sweep: swept.map(|(value, sweep)| Swept { name: sweep.name.clone(), value }),
            threads: args.threads,
            records: args.records,
            latency_every: args.latency_every,
            medium: facts.medium,
            durability: of_load.unwrap_or(facts.durability),
            load_durability: facts.load_durability,
            key_size: args.key_size,
            value_size: args.value_size,
            seed: args.seed,
            settings: settings.unwrap_or(facts.settings),
            machine: machine(),
            version: env!("CARGO_PKG_VERSION").into(),
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

    /// Returns the row of one store and workload.
    fn of(variant: &Variant, others: &[Variant], findings: &Findings, turn: Turn) -> Option<Self> {
        let place = |variant: &Variant| (variant.label(), turn.name());
        let phases = findings.phases.get(&place(variant))?;
        let mut row = Self::base(variant, findings, &turn.name());
        row.take(phases, variant.args.records);
        let pace = variant.args.pace(turn.workload);
        if let Some(pace) = pace {
            row.rates(&phases.iter().map(|phase| OpenLoop::rate(pace, phase)).collect::<Vec<_>>());
        }
        row.open_loop = pace.map(|pace| OpenLoop::of(pace, phases, row.ops_per_s));
        if turn.workload == Workload::Overload || pace.is_some() {
            row.latency_every = 1;
        }
        let ratio = |other: &Variant| {
            let theirs = findings.phases.get(&place(other))?;
            Some(short(median(phases.iter().zip(theirs).map(|(ours, theirs)| rate(ours) / rate(theirs)))))
        };
        // Stores are compared with one another; values of a sweep and open loops are not.
        if turn.workload != Workload::Idle && pace.is_none() {
            for other in others.iter().filter(|other| other.swept == variant.swept) {
                match ratio(other) {
                    Some(ratio) if other.target != variant.target => {
                        row.ratio_to.insert(other.target.clone(), ratio);
                    }
                    _ => {}
                }
            }
        }
        // A later turn runs on a store that the earlier workloads changed.
        let own = [turn.workload];
        let all = &variant.args.workloads;
        row.command = variant.alone().command(if turn.before == 0 { &own } else { all });
        row.repeat = variant.by_itself().command(&variant.args.needed(turn));
        Some(row)
    }

    /// Returns the row of a part of the load, which ended at this number of records.
    fn of_step(variant: &Variant, findings: &Findings, records: u64, phases: &[Phase]) -> Self {
        let mut row = Self::base(variant, findings, STEP);
        row.take(phases, records);
        row.records = records;
        row.command = variant.alone().command(&[Workload::Load]);
        row.repeat = variant.by_itself().command(&variant.args.needed(Turn::load()));
        row
    }

    /// Returns the row of a store that failed. Only the earlier phases were measured, and have
    /// their own rows.
    fn of_failure(variant: &Variant, findings: &Findings, why: &str) -> Self {
        // No single workload repeats a reopening.
        let workloads = if why.starts_with(REOPENING) { &[][..] } else { &variant.args.workloads };
        let command = variant.alone().command(workloads);
        let repeat = variant.by_itself().command(workloads);
        let mut row = Self { failed: Some(why.into()), command, repeat, ..Self::base(variant, findings, FAILED) };
        if row.durability.is_empty() {
            // The store never reported its durability. Use the requested one.
            row.durability = variant.args.durability.map(|level| level.to_string()).unwrap_or_default();
        }
        row
    }

    /// Adds the phases of all rounds, at the end of which there are `records`.
    fn take(&mut self, phases: &[Phase], records: u64) {
        self.rates(&phases.iter().map(rate).collect::<Vec<_>>());
        let mid = |of: &dyn Fn(&Phase) -> f64| median(phases.iter().map(of));
        let ns = |of: &dyn Fn(&Phase) -> u64| mid(&|phase| of(phase) as f64) as u64;
        let per_op = |of: &dyn Fn(&Phase) -> f64| short(mid(&|phase| of(phase) / phase.ops as f64));
        let per_key = |of: &dyn Fn(&Phase) -> u64| short(mid(&|phase| of(phase) as f64) / records as f64);
        self.ops = mid(&|phase| phase.ops as f64) as u64;
        self.mean_ns = mid(&|phase| phase.mean_ns).round();
        self.samples = ns(&|phase| phase.samples);
        let mean = |of: &dyn Fn(&Phase) -> Option<f64>| {
            let told: Vec<f64> = phases.iter().filter_map(of).collect();
            (!told.is_empty()).then(|| median(told.into_iter()).round())
        };
        self.read_mean_ns = mean(&|phase| phase.read_mean_ns);
        self.write_mean_ns = mean(&|phase| phase.write_mean_ns);
        self.p50_ns = ns(&|phase| phase.p50_ns);
        self.p90_ns = ns(&|phase| phase.p90_ns);
        self.p99_ns = ns(&|phase| phase.p99_ns);
        self.p999_ns = ns(&|phase| phase.p999_ns);
        self.p9999_ns = ns(&|phase| phase.p9999_ns);
        self.max_ns = ns(&|phase| phase.max_ns);
        self.longest_ns = phases.iter().map(|phase| phase.max_ns).max().unwrap_or(0);
        self.settled_s = short(mid(&|phase| phase.settled_s));
        self.settled_ops_per_s = mid(&|phase| phase.ops as f64 / phase.settled_s).round();
        self.serving_cpu_ns_per_op = per_op(&|phase| phase.serving_cpu_s * 1e9);
        self.cpu_ns_per_op = per_op(&|phase| phase.cpu_s * 1e9);
        let scanned = mid(&|phase| phase.scanned as f64 / phase.wall_s).round();
        self.scanned_per_s = (scanned > 0.0).then_some(scanned);
        self.dram_bytes_per_key = per_key(&|phase| phase.dram_bytes.unwrap_or(phase.rss_anon_bytes));
        self.dram_fixed_bytes = ns(&|phase| phase.dram_fixed_bytes);
        self.rss_anon_bytes_per_key = per_key(&|phase| phase.rss_anon_bytes);
        self.medium_bytes_per_key = per_key(&|phase| phase.medium_bytes);
        self.medium_size_bytes_per_key = per_key(&|phase| phase.medium_size_bytes);
        self.medium_blocks_bytes_per_key = per_key(&|phase| phase.block_bytes);
        self.bytes_written_per_op = per_op(&|phase| phase.bytes_written as f64);
        self.flushes_per_op = per_op(&|phase| phase.flushes as f64);
        self.fences_per_op = per_op(&|phase| phase.fences as f64);
        self.device_bytes_per_op = per_op(&|phase| phase.device_bytes as f64);
        self.amplification(phases);
        self.peak_rss_anon_bytes = phases.iter().map(|phase| phase.peak_rss_bytes).max().unwrap_or(0);
        self.pauses = phases.iter().map(|phase| phase.pauses).reduce(|all, one| all.and(&one));
        self.machine_pauses = phases.iter().filter_map(|phase| phase.machine).reduce(|all, one| all.and(&one));
    }

    fn amplification(&mut self, phases: &[Phase]) {
        let ratio = |of: &dyn Fn(&Phase) -> (u64, u64)| {
            let told = phases.iter().map(of).filter(|(much, of)| *much > 0 && *of > 0);
            let ratios: Vec<f64> = told.map(|(much, of)| much as f64 / of as f64).collect();
            (!ratios.is_empty()).then(|| short(median(ratios.into_iter())))
        };
        self.write_amplification = ratio(&|phase| (phase.bytes_written, phase.put_bytes));
        self.write_amplification_of_device = ratio(&|phase| (phase.device_bytes, phase.put_bytes));
        self.write_amplification_of_calls = ratio(&|phase| (phase.called_bytes, phase.put_bytes));
        self.space_amplification = ratio(&|phase| (phase.medium_used_bytes, phase.live_bytes));
        self.space_amplification_of_size = ratio(&|phase| (phase.medium_size_bytes, phase.live_bytes));
        self.space_amplification_of_blocks = ratio(&|phase| (phase.block_bytes, phase.live_bytes));
    }

    /// Returns the row of one kind of reopening. Its operations are the recovered keys. A peer has
    /// no such rate, because its open does not report what it reads.
    fn of_reopening(variant: &Variant, findings: &Findings, kind: &str, all: &[Reopened]) -> Self {
        let args = &variant.args;
        let mut row = Self::base(variant, findings, kind);
        if store_name::is_engine(&variant.target) {
            row.rates(&all.iter().map(|one| one.keys as f64 / one.recovered_s).collect::<Vec<_>>());
        }
        row.rounds = all.len();
        row.samples = EARLY_GET_COUNT;
        let mid = |of: &dyn Fn(&Reopened) -> f64| median(all.iter().map(of));
        let whole = |of: &dyn Fn(&Reopened) -> u64| mid(&|one| of(one) as f64) as u64;
        let found = Reopened {
            open_s: mid(&|one| one.open_s),
            first_get_ns: whole(&|one| one.first_get_ns),
            p50_ns: whole(&|one| one.p50_ns),
            p90_ns: whole(&|one| one.p90_ns),
            p99_ns: whole(&|one| one.p99_ns),
            p999_ns: whole(&|one| one.p999_ns),
            p9999_ns: whole(&|one| one.p9999_ns),
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
        (row.p50_ns, row.p90_ns, row.p99_ns) = (found.p50_ns, found.p90_ns, found.p99_ns);
        (row.p999_ns, row.p9999_ns, row.max_ns) = (found.p999_ns, found.p9999_ns, found.max_ns);
        row.longest_ns = all.iter().map(|one| one.max_ns).max().unwrap_or(0);
        row.latency_every = 1;
        row.settled_s = short(found.recovered_s);
        row.dram_bytes_per_key = per_key(found.dram_bytes.unwrap_or(found.rss_anon_bytes));
        row.dram_fixed_bytes = found.dram_fixed_bytes;
        row.rss_anon_bytes_per_key = per_key(found.rss_anon_bytes);
        row.medium_bytes_per_key = per_key(found.medium_bytes);
        row.medium_size_bytes_per_key = per_key(found.medium_size_bytes);
        row.command = args.command(&[]);
        row.repeat = variant.by_itself().command(&[]);
        row.reopen = Some(found);
        row
    }
}

/// Returns the variants of a run. They were already created before the run, so this cannot fail.
pub(crate) fn variants(args: &Args) -> Vec<Variant> {
    args.variants().unwrap_or_default()
}

/// Returns a row for each workload and store that ran, for each part of the load, and for each kind
/// of reopening.
pub(crate) fn rows(args: &Args, findings: &Findings) -> Vec<Row> {
    let mut rows = Vec::new();
    let variants = variants(args);
    for turn in Turn::all(&args.workloads) {
        rows.extend(variants.iter().filter_map(|variant| Row::of(variant, &variants, findings, turn)));
    }
    for variant in &variants {
        let label = variant.label();
        let steps = findings.steps.iter().filter(|((of, _), _)| *of == label);
        rows.extend(steps.map(|((_, records), phases)| Row::of_step(variant, findings, *records, phases)));
        let kinds = findings.reopened.iter().filter(|((of, _), _)| *of == label);
        rows.extend(kinds.map(|((_, kind), all)| Row::of_reopening(variant, findings, kind, all)));
        rows.extend(findings.failed.get(&label).map(|why| Row::of_failure(variant, findings, why)));
    }
    rows
}

impl Row {
    /// Returns whether the row is of a part of the load.
    pub(crate) fn is_step(&self) -> bool {
        self.workload == STEP
    }

    /// Returns whether both rows are of the same work, by two stores or by one.
    pub(crate) fn is_beside(&self, other: &Self) -> bool {
        (&self.workload, &self.sweep, self.threads) == (&other.workload, &other.sweep, other.threads)
    }
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
    fn the_median_is_the_middle() {
        assert!((median([3.0, 1.0, 2.0].into_iter()) - 2.0).abs() < 1e-9);
        assert!((median([4.0, 1.0, 2.0, 3.0].into_iter()) - 2.5).abs() < 1e-9);
        assert!(median(std::iter::empty()).abs() < 1e-9);
    }

    #[test]
    fn amplification_is_told_where_something_was_put_or_is_live() {
        let phase = |written, put| Phase {
            ops: 10,
            wall_s: 1.0,
            bytes_written: written,
            device_bytes: written * 2,
            called_bytes: written * 3,
            put_bytes: put,
            medium_used_bytes: 300,
            block_bytes: 500,
            live_bytes: 200,
            peak_rss_bytes: written,
            ..Phase::default()
        };
        let mut row = Row::default();
        row.take(&[phase(500, 100), phase(300, 100), phase(400, 100)], 5);
        assert_eq!((row.write_amplification, row.space_amplification), (Some(4.0), Some(1.5)));
        assert_eq!((row.write_amplification_of_device, row.write_amplification_of_calls), (Some(8.0), Some(12.0)));
        assert_eq!(row.space_amplification_of_blocks, Some(2.5));
        assert_eq!((row.space_amplification_of_size, row.peak_rss_anon_bytes), (None, 500));
        row.take(&[phase(500, 0)], 5);
        assert_eq!(row.write_amplification, None);
    }

    #[test]
    fn the_longest_is_that_of_any_round_and_the_others_are_medians() {
        let phase =
            |max_ns: u64| Phase { ops: 10, wall_s: 1.0, p90_ns: 3, p9999_ns: max_ns / 2, max_ns, ..Phase::default() };
        let mut row = Row::default();
        row.take(&[phase(40), phase(10), phase(20)], 5);
        assert_eq!((row.longest_ns, row.max_ns, row.p9999_ns, row.p90_ns), (40, 20, 10, 3));
    }

    #[test]
    fn a_row_is_read_as_it_is_written() {
        let open_loop =
            OpenLoop { asked_per_s: 5, reached_per_s: 4.5, arrivals: "even".into(), kept_up: true, behind_s: 0.5 };
        let mut row =
            Row { value_size: Size::Uniform(1, 9), open_loop: Some(open_loop), ..Row::of_rate("a", "get", 9.5) };
        row.sweep = Some(Swept { name: "threads".into(), value: "2".into() });
        row.reopen = Some(Reopened { keys: 7, ..Reopened::default() });
        row.ratio_to.insert("b".into(), 0.25);
        let written = serde_json::to_string(&row).expect("JSON");
        let read: Row = serde_json::from_str(&written).expect("a row");
        assert_eq!(serde_json::to_string(&read).expect("JSON"), written);
        let bare: Row = serde_json::from_str("{\"store\":\"a\"}").expect("what is not there has its default");
        assert_eq!((bare.store.as_str(), bare.failed), ("a", None));
    }
}
