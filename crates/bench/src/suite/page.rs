//! The page of an experiment, in Markdown, made of its rows.

use std::fmt::Write;

use serde::{Deserialize, Serialize};

use super::compare::{Level, Verdict, distinct, verdicts, what};
use super::list::{Experiment, Measure, Scale};
use super::site::Site;
use crate::report::ns_text;
use crate::row::Row;

/// Most commands that a page shows unfolded.
const SHOWN: usize = 12;

/// What is known of an experiment that ran, beside its rows.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) scale: Scale,
    /// Version and commit of this program.
    pub(super) program: String,
    pub(super) date: String,
    pub(super) site: Site,
    /// How long it took.
    pub(super) seconds: f64,
    pub(super) expected_seconds: u64,
    /// The commands that ran.
    pub(super) commands: Vec<String>,
    /// Stores that were not asked, or that failed, and why.
    pub(super) left_out: Vec<(String, String)>,
    /// Runs that failed as a whole, and why.
    pub(super) failed: Vec<String>,
    /// The pictures that were drawn.
    pub(super) plots: Vec<String>,
}

/// A table in Markdown.
pub(super) fn table(heads: &[String], lines: impl Iterator<Item = Vec<String>>) -> String {
    let line = |fields: &[String]| format!("| {} |\n", fields.join(" | "));
    let mut text = line(heads) + &format!("|{}\n", "---|".repeat(heads.len()));
    text.extend(lines.map(|fields| line(&fields)));
    text
}

pub(super) fn texts<const N: usize>(fields: [&str; N]) -> Vec<String> {
    fields.map(String::from).to_vec()
}

/// What was left out of an experiment, a line each; and of runs that failed.
pub(super) fn missing(record: &Record) -> Vec<String> {
    let stores = record.left_out.iter().map(|(store, why)| format!("`{store}`: {why}"));
    record.failed.iter().map(|why| format!("A run failed: {why}")).chain(stores).collect()
}

/// The page.
pub(super) fn page(experiment: &Experiment, record: &Record, rows: &[Row]) -> String {
    let mut text = head(experiment, record, rows);
    let levels = Level::all(rows);
    for level in &levels {
        text += &of_level(level, experiment.measures);
    }
    text += &lost(&verdicts(&levels, experiment.measures));
    let missing = missing(record);
    if !missing.is_empty() {
        let _ = writeln!(text, "\n## Left out\n");
        missing.iter().for_each(|line| text += &format!("* {line}\n"));
    }
    for plot in &record.plots {
        let _ = writeln!(text, "\n![{}]({plot})", experiment.title);
    }
    text += &settings(rows);
    text + &repeats(experiment, rows)
}

fn head(experiment: &Experiment, record: &Record, rows: &[Row]) -> String {
    let Site { machine, memory_mib, memory_on, disk_on } = &record.site;
    let rounds = distinct(rows.iter().map(|row| row.rounds).filter(|rounds| *rounds > 0));
    let rounds: Vec<_> = rounds.iter().map(usize::to_string).collect();
    let versions = distinct(rows.iter().filter_map(|row| {
        let version = row.settings.get("version")?;
        Some(format!("{} {version}", row.store))
    }));
    let versions = if versions.is_empty() { "none that has one".into() } else { versions.join(", ") };
    format!(
        "# {title}\n\n\
         Made by `lodestore evaluate`, which writes it anew: analysis stands in pages of its own. Every value that came back was checked.\n\n\
         {question}\n\n\
         * Scale: {scale}; it took {took:.0} s, {expected} s were expected; medians of {rounds} round(s)\n\
         * Program: lodestore {program}\n\
         * Date: {date} (UTC)\n\
         * Machine: {machine}, {memory_mib} MiB; `$MEMORY` lies on {memory_on}, `$DISK` on {disk_on}\n\
         * Versions of peers: {versions}\n\n\
         ```sh\n{commands}\n```\n",
        title = experiment.title,
        question = experiment.question,
        scale = record.scale.name(),
        took = record.seconds,
        expected = record.expected_seconds,
        rounds = rounds.join(" or "),
        program = record.program,
        date = record.date,
        commands = record.commands.join("\n"),
    )
}

/// The tables of a level: one of each measure, with a column a store, and one of what else was found, with a line a row.
fn of_level(level: &Level<'_>, measures: &[Measure]) -> String {
    let survives = match level.name {
        "none" => "nothing, or but a clean stop".to_string(),
        name => format!("`{name}`"),
    };
    let mut text = format!("\n## An acknowledged write survives: {survives}\n");
    for measure in measures {
        text += &of_measure(level, *measure);
    }
    let rows: Vec<&Row> = level.lines.iter().flat_map(|(_, cells)| cells.iter().flatten().copied()).collect();
    text + &details(&rows)
}

fn of_measure(level: &Level<'_>, measure: Measure) -> String {
    let cell = |row: &Option<&Row>| {
        let Some((row, figure)) = row.and_then(|row| Some((row, measure.of(row)?))) else { return "-".into() };
        let late = row.open_loop.as_ref().is_some_and(|found| !found.kept_up);
        // The other figures are told as medians alone.
        let spread = (measure == Measure::Rate && row.rounds > 1).then(|| format!(" ({:.0} %)", row.spread * 100.0));
        let late = if late { " (did not keep up)" } else { "" };
        format!("{}{}{late}", measure.text(figure), spread.unwrap_or_default())
    };
    let told = |cells: &Vec<Option<&Row>>| cells.iter().flatten().any(|row| measure.of(row).is_some());
    let lines: Vec<_> = level.lines.iter().filter(|(_, cells)| told(cells)).collect();
    if lines.is_empty() {
        return String::new();
    }
    let heads: Vec<String> =
        std::iter::once("workload".into()).chain(level.stores.iter().map(|store| format!("`{store}`"))).collect();
    let lines =
        lines.into_iter().map(|(line, cells)| std::iter::once(line.clone()).chain(cells.iter().map(cell)).collect());
    let spread = if measure == Measure::Rate { " (in brackets the spread over the rounds, of the median)" } else { "" };
    format!("\n### {}{spread}\n\n{}", measure.title(), table(&heads, lines))
}

/// What else was found of each row: latencies, processor time, memory and bytes.
fn details(rows: &[&Row]) -> String {
    let heads = [
        "workload",
        "store",
        "least to greatest",
        "p50",
        "p99",
        "p99.9",
        "longest",
        "cpu ns/op",
        "DRAM B/key",
        "RSS B/key",
        "medium B/key",
        "flush/op",
        "fence/op",
        "write x",
        "space x",
    ];
    let times = |times: Option<f64>| times.map_or("-".into(), |times| format!("{times:.2}"));
    let line = |row: &&Row| {
        vec![
            what(row),
            format!("`{}`", row.store),
            format!("{} to {}", Measure::Rate.text(row.ops_per_s_min), Measure::Rate.text(row.ops_per_s_max)),
            ns_text(row.p50_ns),
            ns_text(row.p99_ns),
            ns_text(row.p999_ns),
            ns_text(row.longest_ns),
            format!("{:.0}", row.cpu_ns_per_op),
            format!("{:.1}", row.dram_bytes_per_key),
            format!("{:.1}", row.rss_anon_bytes_per_key),
            format!("{:.1}", row.medium_bytes_per_key),
            format!("{:.2}", row.flushes_per_op),
            format!("{:.2}", row.fences_per_op),
            times(row.write_amplification),
            times(row.space_amplification),
        ]
    };
    let table = table(&texts(heads), rows.iter().map(line));
    format!(
        "\n<details><summary>Latency, processor time, memory and bytes of each row</summary>\n\n{table}\n</details>\n"
    )
}

fn best(store: &str, measure: Measure, figure: f64) -> Vec<String> {
    vec![format!("`{store}`"), measure.text(figure)]
}

/// The fields of a verdict but for its line: our best, the best peer, how many times better ours is.
pub(super) fn fields(verdict: &Verdict<'_>) -> Vec<String> {
    let mut fields = best(&verdict.ours.row.store, verdict.measure, verdict.ours.figure);
    match verdict.peer {
        Some(peer) => fields.extend(best(&peer.row.store, verdict.measure, peer.figure)),
        None => fields.extend(texts(["-", "-"])),
    }
    let times = verdict.times.map_or("-".into(), |times| match times {
        times if times > 1000.0 => "over 1000".into(),
        times => format!("{times:.2}"),
    });
    let close = if verdict.close() { ", rounds overlap" } else { "" };
    let uneven = if verdict.uneven() { format!(", ours at {}", verdict.ours.row.durability) } else { String::new() };
    fields.push(format!("{times}{close}{uneven}"));
    fields
}

/// Heads of [`fields`].
pub(super) const FIELD_HEADS: [&str; 5] = ["our best", "", "best peer", "", "times better"];

fn lost(verdicts: &[Verdict<'_>]) -> String {
    let mut text = "\n## Where we lose\n\n".to_string();
    let lost: Vec<_> = verdicts.iter().filter(|verdict| verdict.lost()).collect();
    if !verdicts.iter().any(|verdict| verdict.peer.is_some()) {
        return text + "No peer was measured.\n";
    }
    if lost.is_empty() {
        return text
            + "In no row: in each the best of our engines is ahead of the best peer of its table, or level with it.\n";
    }
    let heads = [&["workload", "by", "survives"][..], &FIELD_HEADS].concat();
    let heads: Vec<String> = heads.into_iter().map(String::from).collect();
    let line = |verdict: &&Verdict<'_>| {
        let first = texts([verdict.line.as_str(), verdict.measure.name(), verdict.level]);
        [first, fields(verdict)].concat()
    };
    text += &table(&heads, lost.iter().map(line));
    text
}

/// Every setting of each store, and what its writes survive.
fn settings(rows: &[Row]) -> String {
    let stores = distinct(rows.iter().filter(|row| row.failed.is_none()).map(|row| row.store.as_str()));
    let line = |store: &str| {
        let own = || rows.iter().filter(|row| row.store == store && row.failed.is_none());
        let levels = distinct(own().map(|row| row.durability.as_str())).join(", ");
        let media = distinct(own().map(|row| row.medium.as_str())).join(", ");
        let set = own().next().map(|row| &row.settings).into_iter().flatten();
        let set: Vec<_> = set.map(|(name, value)| format!("{name}={value}")).collect();
        vec![format!("`{store}`"), levels, media, set.join(" ")]
    };
    let heads = texts(["store", "an acknowledged write survives", "medium", "settings"]);
    format!(
        "\n## Settings\n\nUnder a sweep those at its first value.\n\n{}",
        table(&heads, stores.into_iter().map(line))
    )
}

/// The commands that repeat single rows.
fn repeats(experiment: &Experiment, rows: &[Row]) -> String {
    let told = rows.iter().filter(|row| row.failed.is_none());
    let commands = distinct(told.map(|row| row.command.as_str()).filter(|command| !command.is_empty()));
    let list = format!("```sh\n{}\n```\n", commands.join("\n"));
    let list = if commands.len() > SHOWN {
        format!("<details><summary>{} commands</summary>\n\n{list}\n</details>\n", commands.len())
    } else {
        list
    };
    let name = &experiment.name;
    format!(
        "\n## To repeat a row\n\nEach command gives one row again, of its store alone; the lines of [{name}.jsonl]({name}.jsonl) have it beside all figures of \
         their rows, as `command`.\n\n{list}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pace::OpenLoop;
    use crate::suite::sample::{at, experiment, record, row};

    fn made(rows: &[Row]) -> String {
        page(&experiment(), &record(), rows)
    }

    fn has(text: &str, lines: &[&str]) {
        for line in lines {
            assert!(text.lines().any(|known| known == *line), "{line}\nis not in\n{text}");
        }
    }

    #[test]
    fn a_page_says_what_was_asked_where_and_how() {
        has(
            &made(&[row("hikv", "get", 9e6), row("rocksdb", "get", 5e5)]),
            &[
                "# A title",
                "What is asked?",
                "* Scale: small; it took 61 s, 60 s were expected; medians of 3 round(s)",
                "* Program: lodestore 0.1.0 (abc)",
                "* Date: 2026-01-31 (UTC)",
                "* Machine: a processor, 2048 MiB; `$MEMORY` lies on tmpfs, `$DISK` on ext4",
                "* Versions of peers: rocksdb 7.8",
                "lodestore bench --dir \"$MEMORY\" --engine hikv",
                "| workload | `hikv` | `rocksdb` |",
                "|---|---|---|",
                "| get | 9.00 M (10 %) | 500.0 k (10 %) |",
                "| `rocksdb` | process | shm | cache=1 version=7.8 |",
                "lodestore bench --workloads get",
                "![A title](sample.svg)",
            ],
        );
    }

    #[test]
    fn each_durability_has_a_section_of_its_own() {
        let text = made(&[row("hikv", "get", 9e6), at("none", row("hashmap", "get", 2e7))]);
        has(
            &text,
            &["## An acknowledged write survives: `process`", "| workload | `hikv` |", "| workload | `hashmap` |"],
        );
        has(&text, &["## An acknowledged write survives: nothing, or but a clean stop"]);
        has(&text, &["| get | ops/s | none | `hikv` | 9.00 M | `hashmap` | 20.00 M | 0.45, ours at process |"]);
    }

    #[test]
    fn a_latency_of_a_queue_that_grew_says_so() {
        let found =
            |kept_up| OpenLoop { asked_per_s: 5, reached_per_s: 4.0, arrivals: "even".into(), kept_up, behind_s: 1.0 };
        let asked = |store: &str, kept_up| Row { open_loop: Some(found(kept_up)), p99_ns: 9, ..row(store, "a", 4.0) };
        let experiment = Experiment { measures: &[Measure::P99], ..experiment() };
        let text = page(&experiment, &record(), &[asked("hikv", true), asked("lmdb", false)]);
        has(&text, &["| a at 5/s | 9 ns | 9 ns (did not keep up) |"]);
    }

    #[test]
    fn the_rows_that_are_lost_are_listed_with_their_ratio() {
        let rows =
            [row("hikv", "get", 8e6), row("lmdb", "get", 1e7), row("hikv", "load", 2e6), row("lmdb", "load", 1e6)];
        let text = made(&rows);
        has(&text, &["| get | ops/s | process | `hikv` | 8.00 M | `lmdb` | 10.00 M | 0.80 |"]);
        assert!(!text.contains("| load | ops/s | process"), "it is won: {text}");
        let won = made(&rows[2..]);
        has(
            &won,
            &["In no row: in each the best of our engines is ahead of the best peer of its table, or level with it."],
        );
        has(&made(&rows[..1]), &["No peer was measured."]);
    }

    #[test]
    fn what_was_left_out_and_what_failed_is_told() {
        let mut record = record();
        record.left_out.push(("memcached".into(), "its library is missing".into()));
        record.failed.push("it was killed".into());
        let failed = Row { failed: Some("full".into()), ..row("nvht", "failed", 0.0) };
        let text = page(&experiment(), &record, &[row("hikv", "get", 9e6), failed]);
        has(&text, &["## Left out", "* `memcached`: its library is missing", "* A run failed: it was killed"]);
        assert!(!text.contains("| failed |"), "a failure is no row: {text}");
        assert!(!made(&[row("hikv", "get", 9e6)]).contains("## Left out"));
    }
}
