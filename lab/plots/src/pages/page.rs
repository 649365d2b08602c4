//! The page of an experiment, in Markdown, generated from its rows.

use std::fmt::Write;

use super::compare::{Level, distinct, is_ours, what};
use super::contest::Contest;
use super::standings;
use crate::metric::Measure;
use crate::record::{Medium, Record, Site};
use crate::row::Row;
use crate::text::{PAUSE_HEADS, PAUSES_NOTE, longest_text, pause_fields, tail_text};

/// Returns a Markdown table.
pub(super) fn table(heads: &[String], lines: impl Iterator<Item = Vec<String>>) -> String {
    let line = |fields: &[String]| format!("| {} |\n", fields.join(" | "));
    let mut text = line(heads) + &format!("|{}\n", "---|".repeat(heads.len()));
    text.extend(lines.map(|fields| line(&fields)));
    text
}

pub(super) fn texts<const N: usize>(fields: [&str; N]) -> Vec<String> {
    fields.map(String::from).to_vec()
}

/// Returns the skipped stores of an experiment, and the failed runs, one per line.
pub(super) fn missing(record: &Record) -> Vec<String> {
    let stores = record.left_out.iter().map(|(store, why)| format!("`{store}`: {why}"));
    record.failed.iter().map(|why| format!("A run failed: {why}")).chain(stores).collect()
}

/// The checks of the returned values.
pub(super) const CHECKED: &str = "Each value that came back was checked to belong to its key: one of 24 bytes or more by its length and its first and last 8 bytes (all of them with \
     `--check full`, which these runs do not have), a shorter one whole. Behind each workload the 256 records that each \
     thread wrote or deleted last were read back, and held what was put there last, or nothing; what another thread put meanwhile passed, and a value of less than 24 bytes, which has no \
     version. Of stores that were opened again any value of the key passed.";

/// Returns the page. `plots` are the files of its plots.
pub(super) fn page(record: &Record, rows: &[Row], plots: &[String]) -> String {
    let mut text = head(record, rows);
    let levels = Level::all(rows);
    let contest = Contest::of(rows, &levels, &record.measures);
    for level in &levels {
        text += &of_level(level, &record.measures, &contest);
    }
    text += &standings::uneven(&contest);
    text += &standings::lost(&contest);
    let missing = missing(record);
    if !missing.is_empty() {
        let _ = writeln!(text, "\n## Left out\n");
        missing.iter().for_each(|line| text += &format!("* {line}\n"));
        text += &repeats(&rows.iter().filter(|row| row.failed.is_some()).collect::<Vec<_>>());
    }
    for plot in plots {
        let _ = writeln!(text, "\n![{}]({plot})", record.title);
    }
    text + &settings(rows)
}

fn head(record: &Record, rows: &[Row]) -> String {
    let Site { machine, memory_mib, memory_on, disk_on } = &record.site;
    let rounds = distinct(rows.iter().map(|row| row.rounds).filter(|rounds| *rounds > 0));
    let rounds: Vec<_> = rounds.iter().map(usize::to_string).collect();
    let versions = distinct(rows.iter().filter_map(|row| {
        let version = row.settings.get("version")?;
        Some(format!("{} {version}", row.store))
    }));
    let versions = if versions.is_empty() { "none that has one".into() } else { versions.join(", ") };
    let size = record.size.as_ref().map(|told| format!("* Size: {told}\n")).unwrap_or_default();
    format!(
        "# {title}\n\n\
         Made by `lodestore-plots pages` from the rows of `lodestore-bench evaluate`; analysis has pages of its own. {CHECKED}\n\n\
         {question}\n\n\
         * Scale: {scale}; it took {took:.0} s, {expected} s were expected; medians of {rounds} round(s)\n{size}\
         * Program: lodestore {program}\n\
         * Date: {date} (UTC)\n\
         * Machine: {machine}, {memory_mib} MiB; `$MEMORY` lies on {memory_on}, `$DISK` on {disk_on}\n\
         * Versions of peers: {versions}\n\n{again}",
        title = record.title,
        question = record.question,
        scale = record.scale,
        took = record.seconds,
        expected = record.expected_seconds,
        rounds = rounds.join(" or "),
        program = record.program,
        date = record.date,
        again = again(record),
    )
}

/// Returns how to recreate the page, the commands of its runs, and the variables in its commands.
fn again(record: &Record) -> String {
    let (name, scale, took) = (&record.name, &record.scale, record.seconds);
    let disk = if record.medium == Medium::Disk { " --disk \"$DISK\"" } else { "" };
    format!(
        "In commands `lodestore` is the program of a build with `--features peers`, and `$MEMORY` and `$DISK` are directories in memory and on a disk: `export \
         MEMORY=/dev/shm DISK=\"$PWD\"`. This makes the page again, as `runs/{name}.md`, in {took:.0} s as here:\n\n\
         ```sh\nlodestore-bench evaluate --scale {scale} --dir \"$MEMORY\"{disk} --out runs --only {name}\nlodestore-plots pages runs\n```\n\n\
         It ran the following. The command of each row by itself is folded under the tables, and is `repeat` in its line of [{name}.jsonl]({name}.jsonl).\n\n\
         ```sh\n{commands}\n```\n",
        commands = record.commands.join("\n"),
    )
}

/// Returns the tables of a level: a table of each measure with a column per store, the engines'
/// results against the best peer, and further results with a line per row.
fn of_level(level: &Level<'_>, measures: &[Measure], contest: &Contest<'_>) -> String {
    let survives = match level.name {
        "none" => "nothing, or but a clean stop".to_string(),
        name => format!("`{name}`"),
    };
    let mut text = format!("\n## An acknowledged write survives: {survives}\n");
    for measure in measures {
        text += &of_measure(level, *measure);
    }
    let rows: Vec<&Row> = level.lines.iter().flat_map(|(_, cells)| cells.iter().flatten().copied()).collect();
    text + &standings::of_level(contest, level.name) + &details(&rows) + &pauses(&rows) + &repeats(&rows)
}

fn of_measure(level: &Level<'_>, measure: Measure) -> String {
    let cell = |row: &Option<&Row>| {
        let Some((row, figure)) = row.and_then(|row| Some((row, measure.of(row)?))) else { return "-".into() };
        let late = row.open_loop.as_ref().is_some_and(|found| !found.kept_up);
        // The other measures are reported only as medians.
        let percent = || format!("{:.0} %", row.spread * 100.0);
        let bold = || if row.spread > 1.0 { format!(" (**{}**)", percent()) } else { format!(" ({})", percent()) };
        let spread = (measure == Measure::Rate && row.rounds > 1).then(bold);
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
    let note = measure.note().map(|note| format!("{note}\n\n")).unwrap_or_default();
    format!("\n### {}\n\n{note}{}", measure.title(), table(&heads, lines))
}

/// Explanations of the columns of the details.
const DETAILS: &str = "`DRAM B/key`: what a store says of itself, of one that says nothing its anonymous memory; `RSS B/key`: growth of that, by the kernel; `blocks B/key`: blocks \
     of the files, by the file system; `live B/key`: what of the medium holds something that is live, by our engines' own account. `write x`: bytes written for each byte put, \
     of ours by their own count, of peers as `calls x`; `calls x`: bytes given to files in calls (`wchar`); `device x`: bytes written to a device (`write_bytes`), none in \
     memory. `space x`: bytes that hold something or cannot be used again yet, by ours' own account, of peers blocks, for each byte that is live. Latencies are of the calls that were timed, one in `latency_every` of the row, in an open loop all: `longest` is the longest of these.";

/// Returns further results of each row: latencies, CPU time, memory and bytes.
fn details(rows: &[&Row]) -> String {
    let heads = [
        "workload",
        "store",
        "least to greatest",
        "mean",
        "p50",
        "p99",
        "p99.9",
        "longest",
        "cpu ns/op",
        "DRAM B/key",
        "RSS B/key",
        "blocks B/key",
        "live B/key",
        "flush/op",
        "fence/op",
        "write x",
        "calls x",
        "device x",
        "space x",
    ];
    let times = |times: Option<f64>| times.map_or("-".into(), |times| format!("{times:.2}"));
    let rates =
        |row: &Row| format!("{} to {}", Measure::Rate.text(row.ops_per_s_min), Measure::Rate.text(row.ops_per_s_max));
    let line = |row: &&Row| {
        vec![
            what(row),
            format!("`{}`", row.store),
            if row.ops_per_s > 0.0 { rates(row) } else { "-".into() },
            Measure::Mean.of(row).map_or("-".into(), |mean| Measure::Mean.text(mean)),
            tail_text(row, row.p50_ns, 2),
            tail_text(row, row.p99_ns, 100),
            tail_text(row, row.p999_ns, 1000),
            longest_text(row),
            format!("{:.0}", row.cpu_ns_per_op),
            format!("{:.1}", row.dram_bytes_per_key),
            format!("{:.1}", row.rss_anon_bytes_per_key),
            format!("{:.1}", row.medium_blocks_bytes_per_key),
            if is_ours(&row.store) { format!("{:.1}", row.medium_bytes_per_key) } else { "-".into() },
            format!("{:.2}", row.flushes_per_op),
            format!("{:.2}", row.fences_per_op),
            times(row.write_amplification),
            times(row.write_amplification_of_calls),
            times(row.write_amplification_of_device),
            times(row.space_amplification),
        ]
    };
    let table = table(&texts(heads), rows.iter().map(line));
    format!(
        "\n<details><summary>Latency, processor time, memory and bytes of each row</summary>\n\n{DETAILS}\n\n{table}\n</details>\n"
    )
}

/// Returns the pauses of open loops, with the pauses of the machine.
fn pauses(rows: &[&Row]) -> String {
    let lines: Vec<_> =
        rows.iter().filter_map(|row| row.machine_pauses.map(|machine| pause_fields(row, &machine))).collect();
    if lines.is_empty() {
        return String::new();
    }
    let table = table(&texts(PAUSE_HEADS), lines.into_iter());
    format!(
        "\n<details><summary>Pauses of each row, and of the machine</summary>\n\n{PAUSES_NOTE}\n\n{table}\n</details>\n"
    )
}

/// Returns the command of each row, which runs only the workloads that the row needs.
fn repeats(rows: &[&Row]) -> String {
    let told = rows.iter().filter(|row| !row.repeat.is_empty());
    let line = |row: &&Row| vec![what(row), format!("`{}`", row.store), format!("`{}`", row.repeat)];
    let lines: Vec<_> = told.map(line).collect();
    if lines.is_empty() {
        return String::new();
    }
    let table = table(&texts(["workload", "store", "the row by itself"]), lines.into_iter());
    format!("\n<details><summary>The command of each row</summary>\n\n{table}\n</details>\n")
}

/// Returns every setting of each store, a line for each durability of its rows.
fn settings(rows: &[Row]) -> String {
    let ran = || rows.iter().filter(|row| row.failed.is_none());
    let stores = distinct(ran().map(|row| (row.store.as_str(), row.durability.as_str())));
    let line = |(store, level): (&str, &str)| {
        let own = || ran().filter(|row| row.store == store && row.durability == level);
        let media = distinct(own().map(|row| row.medium.as_str())).join(", ");
        let set = own().next().map(|row| &row.settings).into_iter().flatten();
        let set: Vec<_> = set.map(|(name, value)| format!("{name}={value}")).collect();
        vec![format!("`{store}`"), level.into(), media, set.join(" ")]
    };
    let heads = texts(["store", "an acknowledged write survives", "medium", "settings"]);
    format!(
        "\n## Settings\n\nUnder a sweep those at its first value.\n\n{}",
        table(&heads, stores.into_iter().map(line))
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pages::sample::{at, failed, record, row};
    use crate::row::{Machine, OpenLoop};

    fn made(rows: &[Row]) -> String {
        page(&record(), rows, &["sample.svg".into()])
    }

    fn has(text: &str, lines: &[&str]) {
        for line in lines {
            assert!(text.lines().any(|known| known == *line), "{line}\nis not in\n{text}");
        }
    }

    #[test]
    fn a_store_has_its_settings_of_each_durability() {
        let set = |level: &str, sync: &str| {
            let settings = [("sync".to_string(), sync.to_string())].into();
            at(level, Row { settings, ..row("lmdb-sync", "get", 5e5) })
        };
        has(
            &made(&[set("process", "false"), set("power", "true")]),
            &["| `lmdb-sync` | process | shm | sync=false |", "| `lmdb-sync` | power | shm | sync=true |"],
        );
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
                "lodestore-bench run --dir \"$MEMORY\" --engine hikv",
                "| workload | `hikv` | `rocksdb` |",
                "|---|---|---|",
                "| get | 9.00 M (10 %) | 500.0 k (10 %) |",
                "| `rocksdb` | process | shm | cache=1 version=7.8 |",
                "lodestore-bench evaluate --scale small --dir \"$MEMORY\" --out runs --only sample",
                "| get | `hikv` | `lodestore-bench run --engine hikv --dir \"$MEMORY\" --workloads get --peers none` |",
                "| get | `rocksdb` | `lodestore-bench run --engine rocksdb --dir \"$MEMORY\" --workloads get --peers none` |",
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
        has(
            &text,
            &["## An acknowledged write survives: nothing, or but a clean stop", "## Beside peers that survive less"],
        );
    }

    #[test]
    fn a_latency_of_a_queue_that_grew_says_so() {
        let found = |kept_up| OpenLoop { asked_per_s: 5, kept_up };
        let asked = |store: &str, kept_up| Row { open_loop: Some(found(kept_up)), p99_ns: 9, ..row(store, "a", 4.0) };
        let record = Record { measures: vec![Measure::P99], ..record() };
        let text = page(&record, &[asked("hikv", true), asked("lmdb", false)], &[]);
        has(&text, &["| a at 5/s | 9 ns | 9 ns (did not keep up) |"]);
        assert!(!text.contains("Pauses of each row"), "none was taken down");
        let beside = Machine { stolen_s: 0.25, ..Machine::default() };
        let noisy = Row { machine_pauses: Some(beside), ..asked("hikv", true) };
        let text = page(&record, &[noisy], &[]);
        assert!(text.contains("Pauses of each row") && text.contains("| 0 / 0 / 0 | 0.25 |\n"), "{text}");
    }

    #[test]
    fn each_durability_has_the_ratio_of_each_engine_and_the_page_what_is_lost() {
        let rows = [row("hikv", "get", 8e6), row("nvht", "get", 2e7), row("lmdb", "get", 1e7)];
        let text = made(&rows);
        has(
            &text,
            &[
                "| get | ops/s | `lmdb` | 10.00 M | **0.80** | 2.00 |",
                "* `hikv` is behind the best peer in 1 of 1 lines: get 0.80 of `lmdb`",
                "* `nvht` is behind the best peer in 0 of 1 lines",
            ],
        );
        has(&made(&rows[..1]), &["No peer was measured."]);
    }

    #[test]
    fn what_was_checked_is_not_overstated() {
        let text = made(&[row("hikv", "get", 9e6)]);
        assert!(
            text.contains("the 256 records that each thread wrote or deleted last")
                && text.contains("first and last 8 bytes")
        );
        assert!(!text.contains("Every value that came back was checked."), "{text}");
    }

    #[test]
    fn blocks_are_compared_and_live_bytes_are_a_detail_of_ours() {
        let sized = |store: &str| {
            let bytes =
                Row { medium_blocks_bytes_per_key: 900.0, medium_bytes_per_key: 300.0, ..row(store, "load", 1e6) };
            Row { write_amplification_of_device: Some(7.5), ..bytes }
        };
        let record = Record { measures: vec![Measure::Medium, Measure::OnDevice], ..record() };
        let text = page(&record, &[sized("hikv"), sized("lmdb")], &[]);
        has(
            &text,
            &["### Blocks that the files take, bytes a record", "| load | 900.0 | 900.0 |", "| load | 7.50 | 7.50 |"],
        );
        let details: Vec<_> = text.lines().filter(|line| line.contains("1.00 M to 1.00 M")).collect();
        assert!(details[0].contains("| 900.0 | 300.0 |") && details[1].contains("| 900.0 | - |"), "{details:?}");
    }

    #[test]
    fn the_page_of_a_preset_says_how_large_it_is() {
        let size = Some("rounds 3 where the preset has 1".to_string());
        let record = Record { name: "hashkv-threshold".into(), medium: Medium::Disk, size, ..record() };
        let text = page(&record, &[], &[]);
        has(&text, &["* Size: rounds 3 where the preset has 1"]);
        assert!(text.contains("--dir \"$MEMORY\" --disk \"$DISK\" --out runs --only hashkv-threshold"), "{text}");
    }

    #[test]
    fn what_was_left_out_and_what_failed_is_told() {
        let mut record = record();
        record.left_out.push(("memcached".into(), "its library is missing".into()));
        record.failed.push("it was killed".into());
        let failed = failed("nvht", "full");
        let text = page(&record, &[row("hikv", "get", 9e6), failed], &[]);
        has(&text, &["## Left out", "* `memcached`: its library is missing", "* A run failed: it was killed"]);
        let again = "`lodestore-bench run --engine nvht --dir \"$MEMORY\" --workloads failed --peers none`";
        has(&text, &[&format!("| failed | `nvht` | {again} |")]);
        assert_eq!(text.matches("| failed |").count(), 1, "a failure is in no table of figures: {text}");
        assert!(!made(&[row("hikv", "get", 9e6)]).contains("## Left out"));
    }
}
