//! The output: JSON lines, or tables for a terminal.

pub(crate) mod figures;
pub(crate) mod open_loop;
pub(crate) mod row;
pub(crate) mod tables;
pub(crate) mod timeline;

use std::io::{self, Write};

use comfy_table::{Cell as Field, CellAlignment, ContentArrangement, Table, presets};

use crate::args::Args;
use crate::args::preset::Preset;
use crate::peers;
use crate::procfs::machine;
use crate::report::row::{Row, distinct, rows, strength, variants};
use crate::run::pauses::{BEFORE_TIME_MAX, Machine, Pauses};
use crate::run::session::Findings;

/// Prints one JSON object per line.
///
/// # Errors
/// Errors of `out`.
pub(crate) fn json(args: &Args, findings: &Findings, mut out: impl Write) -> io::Result<()> {
    for row in rows(args, findings) {
        writeln!(out, "{}", serde_json::to_string(&row)?)?;
    }
    out.flush()
}

/// Formats a time in a suitable unit.
pub(crate) fn ns_text(ns: u64) -> String {
    match ns {
        0..10_000 => format!("{ns} ns"),
        10_000..10_000_000 => format!("{:.1} us", ns as f64 / 1e3),
        _ => format!("{:.1} ms", ns as f64 / 1e6),
    }
}

/// Formats the latency that one of `one_of` calls exceeds, or `-` if fewer calls were timed.
pub(crate) fn tail_text(row: &Row, ns: u64, one_of: u64) -> String {
    if row.samples < one_of { "-".into() } else { ns_text(ns) }
}

/// Formats the longest call of a row, if any was timed.
pub(crate) fn longest_text(row: &Row) -> String {
    tail_text(row, row.longest_ns, 1)
}

/// Formats a rate in a suitable unit.
pub(crate) fn rate_text(rate: f64) -> String {
    if rate >= 1e6 { format!("{:.2} M", rate / 1e6) } else { format!("{:.1} k", rate / 1e3) }
}

/// Returns the store, with its value in a sweep.
pub(crate) fn swept_store(row: &Row) -> String {
    let swept = row.sweep.as_ref().map(|swept| format!(" {}={}", swept.name, swept.value));
    format!("{}{}", row.store, swept.unwrap_or_default())
}

fn main_fields(row: &Row) -> Vec<String> {
    let store = swept_store(row);
    // A reopening is no operation; its times are printed below the table.
    let told = |text: String| if row.reopen.is_some() { "-".into() } else { text };
    vec![
        row.workload.clone(),
        store,
        told(rate_text(row.ops_per_s)),
        told(format!("{:.0} %", row.spread * 100.0)),
        tail_text(row, row.p50_ns, 2),
        tail_text(row, row.p90_ns, 10),
        tail_text(row, row.p99_ns, 100),
        tail_text(row, row.p999_ns, 1000),
        tail_text(row, row.p9999_ns, 10_000),
        longest_text(row),
        format!("{:.2}", row.settled_s),
        told(format!("{:.0}", row.serving_cpu_ns_per_op)),
        told(format!("{:.0}", row.cpu_ns_per_op)),
        format!("{:.1}", row.dram_bytes_per_key),
        format!("{:.1}", row.rss_anon_bytes_per_key),
        format!("{:.1}", row.medium_bytes_per_key),
        format!("{:.2}", row.flushes_per_op),
        format!("{:.2}", row.fences_per_op),
        amplification_text(row.write_amplification),
        amplification_text(row.write_amplification_of_device),
        amplification_text(row.write_amplification_of_calls),
        amplification_text(row.space_amplification),
        amplification_text(row.space_amplification_of_blocks),
        format!("{:.1}", row.peak_rss_anon_bytes as f64 / f64::from(1 << 20)),
    ]
}

fn amplification_text(times: Option<f64>) -> String {
    times.map_or("-".into(), |times| format!("{times:.2}"))
}

/// Heads of the columns of [`main_fields`].
const MAIN_HEADS: [&str; 24] = [
    "workload",
    "store",
    "ops/s",
    "spread",
    "p50",
    "p90",
    "p99",
    "p99.9",
    "p99.99",
    "longest",
    "settled s",
    "serving ns/op",
    "cpu ns/op",
    "DRAM B/key",
    "RSS B/key",
    "medium B/key",
    "flush/op",
    "fence/op",
    "write x",
    "device x",
    "calls x",
    "space x",
    "blocks x",
    "peak MiB",
];

/// Returns the line of an overload's or an open loop's call durations, with the machine's own
/// pauses.
pub(crate) fn pause_fields(row: &Row, machine: &Machine) -> Vec<String> {
    let counts = |pauses: &Pauses| pauses.longer.map(|count| count.to_string()).join(" / ");
    vec![
        row.workload.clone(),
        swept_store(row),
        rate_text(row.ops_per_s),
        tail_text(row, row.p99_ns, 100),
        tail_text(row, row.p999_ns, 1000),
        tail_text(row, row.p9999_ns, 10_000),
        longest_text(row),
        row.pauses.map_or("-".into(), |pauses| counts(&pauses)),
        ns_text(machine.beside.longest_ns),
        counts(&machine.beside),
        ns_text(machine.before.longest_ns),
        counts(&machine.before),
        format!("{:.2}", machine.stolen_s),
    ]
}

/// Heads of the columns of [`pause_fields`].
pub(crate) const PAUSE_HEADS: [&str; 13] = [
    "pauses in",
    "store",
    "ops/s",
    "p99",
    "p99.9",
    "p99.99",
    "longest",
    "over 1 / 10 / 50 ms",
    "machine beside",
    "over 1 / 10 / 50 ms",
    "machine before",
    "over 1 / 10 / 50 ms",
    "stolen s",
];

/// Prints the table of the overloads and the open loops, if there are any.
fn pauses(rows: &[Row], out: &mut impl Write) -> io::Result<()> {
    let lines: Vec<_> =
        rows.iter().filter_map(|row| row.machine_pauses.map(|machine| pause_fields(row, &machine))).collect();
    if lines.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n{}\n{}", draw(&PAUSE_HEADS, lines.into_iter()), pauses_note(),)
}

/// Returns the explanation of the columns of [`PAUSE_HEADS`].
pub(crate) fn pauses_note() -> String {
    let before = BEFORE_TIME_MAX.as_secs();
    format!(
        "every call timed; machine beside: how late a thread woke that slept 1 ms at a time; before: a thread that read the clock on the idle machine for {before} s at most"
    )
}

fn step_fields(row: &Row) -> Vec<String> {
    let mib = |bytes: f64| format!("{:.1}", bytes / f64::from(1 << 20));
    let records = row.records as f64;
    vec![
        row.records.to_string(),
        swept_store(row),
        rate_text(row.ops_per_s),
        tail_text(row, row.p9999_ns, 10_000),
        longest_text(row),
        format!("{:.2}", row.dram_bytes_per_key),
        mib(row.dram_fixed_bytes as f64),
        format!("{:.2}", row.rss_anon_bytes_per_key),
        mib(row.rss_anon_bytes_per_key * records),
        format!("{:.1}", row.medium_bytes_per_key),
    ]
}

/// Heads of the columns of [`step_fields`].
const STEP_HEADS: [&str; 10] = [
    "records",
    "store",
    "ops/s since",
    "p99.99",
    "longest",
    "DRAM B/key",
    "fixed MiB",
    "RSS B/key",
    "RSS MiB",
    "medium B/key",
];

pub(crate) fn draw<H: AsRef<str>>(heads: &[H], lines: impl Iterator<Item = Vec<String>>) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(heads.iter().map(AsRef::as_ref));
    for line in lines {
        table.add_row(line.into_iter().enumerate().map(|(at, text)| {
            let side = if at < 2 { CellAlignment::Left } else { CellAlignment::Right };
            Field::new(text).set_alignment(side)
        }));
    }
    table
}

/// Returns the durabilities of these rows, the strongest first.
fn levels(rows: &[Row]) -> Vec<&str> {
    let mut levels = distinct(rows.iter().filter(|row| row.failed.is_none()).map(|row| row.durability.as_str()));
    levels.sort_by_key(|level| std::cmp::Reverse(strength(level)));
    levels
}

/// Returns the names of stores. If the rows have several durabilities, each name has its own, with
/// that of the load last.
pub(crate) fn named(stores: &[String], rows: &[Row]) -> Vec<String> {
    let several = levels(rows).len() > 1;
    let name = |store: &String| {
        let own = rows.iter().filter(|row| row.store == *store && row.failed.is_none());
        let mut levels = distinct(own.map(|row| row.durability.as_str()));
        levels.sort_by_key(|level| std::cmp::Reverse(strength(level)));
        if several && !levels.is_empty() { format!("{store} ({})", levels.join(", ")) } else { store.clone() }
    };
    stores.iter().map(name).collect()
}

/// Prints a table for each durability. A table contains only stores with the same durability.
fn by_level(rows: &[Row], out: &mut impl Write) -> io::Result<()> {
    let levels = levels(rows);
    for level in &levels {
        let own = || rows.iter().filter(|row| row.durability == *level && row.failed.is_none());
        if levels.len() > 1 {
            let survives = if *level == "none" { "nothing, or but a clean stop" } else { level };
            writeln!(out, "an acknowledged write survives: {survives}")?;
        }
        if own().any(|row| !row.is_step()) {
            writeln!(out, "{}", draw(&MAIN_HEADS, own().filter(|row| !row.is_step()).map(main_fields)))?;
        }
        if own().any(Row::is_step) {
            writeln!(out, "\n{}", draw(&STEP_HEADS, own().filter(|row| row.is_step()).map(step_fields)))?;
        }
    }
    Ok(())
}

/// Prints the engine's rate as a multiple of each peer's, a line for each workload: a table of the
/// peers with the engine's durability, and a table for each other durability.
fn ratios(args: &Args, rows: &[Row], out: &mut impl Write) -> io::Result<()> {
    if args.sweep.is_some() {
        return Ok(());
    }
    let peers = args.targets().split_off(1);
    let ours: Vec<&Row> = rows.iter().filter(|row| row.store == args.engine && !row.ratio_to.is_empty()).collect();
    for equal in [true, false] {
        for level in levels(rows) {
            // Only for a workload that both ran, at their durabilities in it.
            let ratio = |row: &Row, peer: &str| {
                let theirs = rows.iter().find(|other| other.store == peer && other.is_beside(row))?;
                let told = theirs.durability == level && (theirs.durability == row.durability) == equal;
                row.ratio_to.get(peer).filter(|_| told).copied()
            };
            let shown: Vec<&String> =
                peers.iter().filter(|peer| ours.iter().any(|row| ratio(row, peer).is_some())).collect();
            let lines = ours.iter().filter(|row| shown.iter().any(|peer| ratio(row, peer).is_some()));
            let text = |ratio: Option<f64>| ratio.map_or("-".into(), |ratio| format!("{ratio:.2}"));
            let line = |row: &&Row| -> Vec<String> {
                let own = [row.workload.clone(), rate_text(row.ops_per_s)];
                own.into_iter().chain(shown.iter().map(|peer| text(ratio(row, peer)))).collect()
            };
            if shown.is_empty() {
                continue;
            }
            let heads: Vec<String> = ["workload".into(), args.engine.clone()]
                .into_iter()
                .chain(shown.iter().map(|peer| format!("x {peer}")))
                .collect();
            let survives = if level == "none" { "nothing, or but a clean stop" } else { level };
            match equal {
                true => writeln!(out, "\nbeside those whose writes survive the same ({level})")?,
                false => writeln!(out, "\nbeside those whose writes survive something else ({survives})")?,
            }
            writeln!(out, "{}", draw(&heads, lines.map(line)))?;
        }
    }
    Ok(())
}

/// Prints tables, each store's description, and how to repeat the run.
///
/// # Errors
/// Errors of `out`.
pub(crate) fn table(args: &Args, findings: &Findings, mut out: impl Write) -> io::Result<()> {
    let rows = rows(args, findings);
    by_level(&rows, &mut out)?;
    ratios(args, &rows, &mut out)?;
    if args.preset == Some(Preset::MkvsTables) {
        tables::print(args, &rows, &mut out)?;
    }
    if let Some(figure) = args.preset.and_then(Preset::figure) {
        figures::print(&figure, args, &rows, &mut out)?;
    }
    pauses(&rows, &mut out)?;
    open_loops(&rows, &mut out)?;
    reopenings(&rows, &mut out)?;
    not_reopened(args, &mut out)?;
    writeln!(
        out,
        "{} records of {} + {} B, {} thread(s), median of {} round(s), seed {}; multiget counts keys, its latency is of a call of {};\n\
         latency of every {}. call (in an open loop of every one, from when it was due), the longest of any round; settled: until the work behind the writes was done;\n\
         serving and cpu ns/op: processor time of the serving threads, and of all threads, a server's too; x: median ratio within a round;\n\
         write x: bytes written to the medium for each byte put, by the store's own account (of a peer as calls x); device x, calls x: the same by the kernel's, write_bytes and wchar;\n\
         space x: bytes taken on the medium for each live byte, blocks x: by the blocks of its files; peak: most that RssAnon grew",
        args.records,
        args.key_size,
        args.value_size,
        args.threads,
        args.rounds,
        args.seed,
        args.multiget,
        args.latency_every,
    )?;
    if let Some(sweep) = &args.sweep {
        writeln!(out, "{} of {}, other settings as below", sweep.name, args.targets().join(", "))?;
    }
    if let Some(level) = args.load_durability {
        writeln!(
            out,
            "the load ran at durability {level}; then each store was closed, and opened again at the durability below for the other workloads"
        )?;
    }
    args.left_out().iter().try_for_each(|line| writeln!(out, "{line}"))?;
    not_run(args, findings, &mut out)?;
    for (store, facts) in &findings.facts {
        let set: Vec<_> = facts.settings.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let load = facts.load_durability.as_ref().map(|level| format!(" (the load: {level})")).unwrap_or_default();
        writeln!(out, "{store}: medium {}, durability {}{load}; {}", facts.medium, facts.durability, set.join(" "))?;
    }
    writeln!(
        out,
        "{}\n{}\nto run all of it again:\n  {}",
        machine(),
        args.row_by_row(),
        args.command(&args.workloads)
    )?;
    out.flush()
}

/// Prints for each open loop whether the store kept up.
fn open_loops(rows: &[Row], out: &mut impl Write) -> io::Result<()> {
    for (row, found) in rows.iter().filter_map(|row| row.open_loop.as_ref().map(|found| (row, found))) {
        let (store, asked, reached) =
            (swept_store(row), rate_text(found.asked_per_s as f64), rate_text(found.reached_per_s));
        let kept =
            if found.kept_up { "kept up" } else { "COULD NOT KEEP UP, so its latencies are of a queue that grew" };
        writeln!(
            out,
            "{} on {store}: open loop, {asked}/s asked ({}), {reached}/s reached, all done {:.3} s after the last was due: {kept}",
            row.workload, found.arrivals, found.behind_s
        )?;
    }
    Ok(())
}

fn reopenings(rows: &[Row], out: &mut impl Write) -> io::Result<()> {
    for (row, found) in rows.iter().filter_map(|row| row.reopen.as_ref().map(|found| (row, found))) {
        writeln!(
            out,
            "{} {}: open {:.1} ms, first get {}, first scan after {:.2} s, recovered after {:.2} s{}, {} of {} records read back right",
            row.store,
            row.workload,
            found.open_s * 1e3,
            ns_text(found.first_get_ns),
            found.first_scan_s,
            found.recovered_s,
            if row.ops_per_s > 0.0 { format!(" ({} keys/s)", rate_text(row.ops_per_s)) } else { String::new() },
            found.checked,
            row.records,
        )?;
    }
    Ok(())
}

/// Prints which stores were not reopened, and why.
fn not_reopened(args: &Args, out: &mut impl Write) -> io::Result<()> {
    for store in args.targets().iter().filter(|_| args.reopen) {
        if !peers::survives_stop(store) {
            writeln!(out, "{store} was not opened again: it keeps nothing that could be")?;
        } else if !peers::survives_kill(store) {
            writeln!(
                out,
                "{store} was not opened again after a kill: what it acknowledged survives a clean stop alone"
            )?;
        }
    }
    Ok(())
}

/// Prints which workloads did not run on which store.
fn not_run(args: &Args, findings: &Findings, out: &mut impl Write) -> io::Result<()> {
    for (label, why) in &findings.failed {
        writeln!(out, "{label} failed, and what is told of it is of what came before: {why}")?;
    }
    let failed = |label: &str| findings.failed.contains_key(label);
    args.unordered(|label| !failed(label)).iter().try_for_each(|line| writeln!(out, "{line}"))?;
    // The run ended early.
    for variant in variants(args).iter().filter(|it| !findings.facts.contains_key(&it.label()) && !failed(&it.label()))
    {
        writeln!(out, "not run on {}: the run ended before", variant.label())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_written_short() {
        assert_eq!(ns_text(170), "170 ns");
        assert_eq!(ns_text(12_345), "12.3 us");
        assert_eq!(ns_text(12_345_678), "12.3 ms");
        assert_eq!(rate_text(1_234_567.0), "1.23 M");
        assert_eq!(rate_text(12_345.0), "12.3 k");
    }

    #[test]
    fn stores_whose_writes_survive_another_thing_stand_in_a_table_of_their_own() {
        let row = |store: &str, level: &str| Row { durability: level.into(), ..Row::of_rate(store, "get", 5.0) };
        let rows = [row("btreemap", "none"), row("hikv", "process"), row("lmdb", "process")];
        let mut out = Vec::new();
        by_level(&rows, &mut out).expect("written");
        let text = String::from_utf8(out).expect("text");
        let places =
            ["survives: process", "| hikv", "| lmdb", "survives: nothing", "| btreemap"].map(|part| text.find(part));
        assert!(places.is_sorted() && places[0].is_some(), "{places:?} in {text}");
        let stores = ["hikv".to_string(), "btreemap".into()];
        assert_eq!(named(&stores, &rows), ["hikv (process)", "btreemap (none)"]);
        assert_eq!(named(&stores[..1], &rows[1..]), ["hikv"]);
    }
}
