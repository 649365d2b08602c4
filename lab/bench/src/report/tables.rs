//! Tables 1 to 6 of the MKVS paper (Micromachines 2019, section 5), from the rows of its preset.
//! The first table has the paper's builds of MKVS and the servers; the second has the stores that
//! run in the bench's own process.

use std::io::{self, Write};

use crate::args::Args;
use crate::args::sweep::Sweep;
use crate::peers;
use crate::report::row::Row;
use crate::report::{draw, named};
use crate::store_name;
use crate::workload::Workload;

/// Stores of the preset, and their names in the paper or in the tables.
const HEADS: [(&str, &str); 6] = [
    ("mkvs:groups=2:devices=2:acks=one:reads=race-all:filter=on:inline=off", "MKVS"),
    ("mkvs:groups=2:devices=2:reads=single:filter=on:inline=off", "MKVS-GEKV"),
    ("mkvs:groups=1:devices=1:filter=off", "MKVS-EKV"),
    ("mkvs:groups=2:devices=2", "mkvs 2x2 as it comes"),
    ("redis", "Redis"),
    ("memcached", "Memcached"),
];
/// A setting that only peers with a server have.
const SERVER: &str = "reached-by";

/// The quantity of a line in a table of one run.
#[derive(Clone, Copy)]
enum Line {
    Rate,
    RunTime,
    Latency,
    ReadLatency,
    UpdateLatency,
}

impl Line {
    fn head(self) -> &'static str {
        match self {
            Self::Rate => "ops/s",
            Self::RunTime => "run time, ms",
            Self::Latency => "mean latency, us",
            Self::ReadLatency => "mean latency of reads, us",
            Self::UpdateLatency => "mean latency of updates, us",
        }
    }

    fn figure(self, row: &Row) -> String {
        let us = |ns: Option<f64>| ns.map_or("-".into(), |ns| format!("{:.2}", ns / 1e3));
        match self {
            Self::Rate => format!("{:.0}", row.ops_per_s),
            Self::RunTime => format!("{:.2}", row.ops as f64 / row.ops_per_s * 1e3),
            Self::Latency => us((row.mean_ns > 0.0).then_some(row.mean_ns)),
            Self::ReadLatency => us(row.read_mean_ns),
            Self::UpdateLatency => us(row.write_mean_ns),
        }
    }
}

/// A workload of the paper: its tables and figures, and the lines of the first table.
struct Part {
    workload: Workload,
    /// The table for one thread, and the table for several.
    tables: [&'static str; 2],
    /// The figure over the pairs, and the figure over the operations.
    figures: [&'static str; 2],
    lines: &'static [Line],
}

const PARTS: [Part; 3] = [
    Part {
        workload: Workload::Load,
        tables: ["Table 1", "Table 2"],
        figures: ["No figure of the paper", "No figure of the paper"],
        lines: &[Line::Rate, Line::RunTime, Line::Latency],
    },
    Part {
        workload: Workload::B,
        tables: ["Table 3", "Table 4"],
        figures: ["Figure 3", "Figure 4"],
        lines: &[Line::Rate, Line::RunTime, Line::ReadLatency],
    },
    Part {
        workload: Workload::A,
        tables: ["Table 5", "Table 6"],
        figures: ["Figure 5", "Figure 6"],
        lines: &[Line::Rate, Line::RunTime, Line::ReadLatency, Line::UpdateLatency],
    },
];

/// Returns the heading of a store.
fn head(store: &str) -> &str {
    HEADS.iter().find(|(name, _)| *name == store).map_or(store, |(_, head)| head)
}

/// Returns the stores of a run in groups with their titles: Lodestore's with servers, and the
/// embedded peers.
fn groups(args: &Args, rows: &[Row]) -> Vec<(&'static str, Vec<String>)> {
    let embedded = |name: &String| {
        let is_server = rows.iter().any(|row| row.store == *name && row.settings.contains_key(SERVER));
        peers::is_peer(store_name::base(name)) && !is_server
    };
    // The paper's own builds come first.
    let place = |name: &String| HEADS.iter().position(|(known, _)| known == name).unwrap_or(HEADS.len());
    let mut stores = args.targets();
    stores.sort_by_key(place);
    let (theirs, ours): (Vec<_>, Vec<_>) = stores.into_iter().partition(embedded);
    let groups = [("", ours), (", embedded stores of others", theirs)];
    groups.into_iter().filter(|(_, stores)| !stores.is_empty()).collect()
}

/// Prints the tables that the workloads and the sweep of a run provide.
///
/// # Errors
/// Errors of `out`.
pub(crate) fn print(args: &Args, rows: &[Row], out: &mut impl Write) -> io::Result<()> {
    let groups = groups(args, rows);
    for part in PARTS.iter().filter(|part| args.workloads.contains(&part.workload)) {
        for (what, stores) in &groups {
            one(args, rows, part, (what, stores), out)?;
        }
        for (what, stores) in &groups {
            if let Some(sweep) = &args.sweep {
                several(sweep, rows, part, (what, stores), out)?;
            }
        }
    }
    Ok(())
}

fn find<'a>(rows: &'a [Row], part: &Part, store: &str, swept: Option<&str>) -> Option<&'a Row> {
    let value = |row: &Row| row.sweep.as_ref().map(|swept| swept.value.clone());
    rows.iter().find(|row| row.workload == part.workload.name() && row.store == store && value(row).as_deref() == swept)
}

fn heads(first: &str, stores: &[String], rows: &[Row]) -> Vec<String> {
    // The durability may follow a name.
    let told = |(store, name): (&String, String)| name.replacen(store.as_str(), head(store), 1);
    std::iter::once(first.to_string()).chain(stores.iter().zip(named(stores, rows)).map(told)).collect()
}

/// Prints the table for one thread, if that was run: several numbers for each store.
fn one(
    args: &Args,
    rows: &[Row],
    part: &Part,
    (what, stores): (&str, &[String]),
    out: &mut impl Write,
) -> io::Result<()> {
    let swept = match &args.sweep {
        Some(sweep) if sweep.name == "threads" && sweep.values.iter().any(|value| value == "1") => Some("1"),
        None if args.threads == 1 => None,
        _ => return Ok(()),
    };
    let line = |line: &Line| {
        let figure = |store: &String| find(rows, part, store, swept).map_or("-".into(), |row| line.figure(row));
        std::iter::once(line.head().to_string()).chain(stores.iter().map(figure)).collect()
    };
    let (table, workload) = (part.tables[0], part.workload.name());
    writeln!(out, "\n{table}{what}: {workload}, {} pairs, {} operations, 1 thread", args.records, args.op_count())?;
    writeln!(out, "{}", draw(&heads("", stores, rows), part.lines.iter().map(line)))
}

/// Prints the table over the values of a sweep: the rate of each store.
fn several(
    sweep: &Sweep,
    rows: &[Row],
    part: &Part,
    (what, stores): (&str, &[String]),
    out: &mut impl Write,
) -> io::Result<()> {
    let title = match sweep.name.as_str() {
        "threads" => part.tables[1],
        "records" => part.figures[0],
        "ops" => part.figures[1],
        _ => "No table of the paper",
    };
    let line = |value: &String| {
        let figure =
            |store: &String| find(rows, part, store, Some(value)).map_or("-".into(), |row| Line::Rate.figure(row));
        std::iter::once(value.clone()).chain(stores.iter().map(figure)).collect()
    };
    writeln!(out, "\n{title}{what}: {}, ops/s by {}", part.workload.name(), sweep.name)?;
    writeln!(out, "{}", draw(&heads(&sweep.name, stores, rows), sweep.values.iter().map(line)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::parsed;
    use crate::args::preset::Preset;
    use crate::report::row::Swept;

    #[test]
    fn the_preset_runs_what_has_a_head_and_more() {
        for (store, head) in HEADS {
            let words = Preset::MkvsTables.words();
            let names = words.split_whitespace().flat_map(|word| word.split(','));
            assert!(names.into_iter().any(|name| name == store), "{head}");
        }
    }

    fn row(store: &str, workload: Workload, threads: &str, rate: f64) -> Row {
        let mut row = Row::of_rate(store, workload.name(), rate);
        row.sweep = Some(Swept { name: "threads".into(), value: threads.into() });
        row.ops = 1000;
        (row.mean_ns, row.read_mean_ns) = (1500.0, Some(2500.0));
        row
    }

    #[test]
    fn a_sweep_of_threads_gives_a_table_of_one_thread_and_one_of_all() {
        let args = parsed("--engine hikv --peers btreemap --workloads load,b --records 1000 --sweep threads=1,4");
        let each = |workload| {
            [("hikv", "1", 1e3), ("btreemap", "1", 2e3), ("hikv", "4", 3e3), ("btreemap", "4", 4e3)]
                .map(|(store, threads, rate)| row(store, workload, threads, rate))
        };
        let rows = [each(Workload::Load), each(Workload::B)].concat();
        let mut text = Vec::new();
        print(&args, &rows, &mut text).expect("printed");
        let text = String::from_utf8(text).expect("text");
        let squeezed: String = text.split(' ').filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
        for line in [
            "Table 1: load, 1000 pairs, 1000 operations, 1 thread",
            "Table 1, embedded stores of others: load, 1000 pairs",
            "| run time, ms | 1000.00 |",
            "| mean latency, us | 1.50 |",
            "Table 4: b, ops/s by threads",
            "| 4 | 3000 |",
            "| 4 | 4000 |",
            "| mean latency of reads, us | 2.50 |",
        ] {
            assert!(squeezed.contains(line), "{line} in {squeezed}");
        }
        assert!(!text.contains("Table 5") && !text.contains("Table 6"), "{text}");
    }
}
