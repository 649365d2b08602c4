//! A paper's figures as tables, from the rows of a preset that is named after a figure: only the
//! quantities of the figure, a column per store.

use std::io::{self, Write};

use crate::args::Args;
use crate::args::preset::{Figure, Told};
use crate::report::row::Row;
use crate::report::{draw, named};
use crate::workload::Turn;

impl Told {
    fn text(self) -> &'static str {
        match self {
            Self::Rate => "thousand ops/s",
            Self::Latency => "mean latency, us",
            Self::Dram => "DRAM by the stores' own accounts, bytes a key",
            Self::Medium => "medium by the stores' own accounts, bytes a key",
        }
    }

    fn figure(self, row: &Row) -> String {
        match self {
            Self::Rate => format!("{:.1}", row.ops_per_s / 1e3),
            Self::Latency if row.mean_ns > 0.0 => format!("{:.2}", row.mean_ns / 1e3),
            Self::Latency => "-".into(),
            Self::Dram => format!("{:.1}", row.dram_bytes_per_key),
            Self::Medium => format!("{:.1}", row.medium_bytes_per_key),
        }
    }
}

/// Prints a figure. For a sweep: a table for each workload with a line for each value. Otherwise: a
/// table with a line for each workload.
///
/// # Errors
/// Errors of `out`.
pub(crate) fn print(figure: &Figure, args: &Args, rows: &[Row], out: &mut impl Write) -> io::Result<()> {
    let stores = args.targets();
    let turns: Vec<_> = Turn::all(&args.workloads).into_iter().map(Turn::name).collect();
    let names = named(&stores, rows);
    let heads = |first: &str| std::iter::once(first.to_string()).chain(names.iter().cloned()).collect::<Vec<_>>();
    for told in figure.told {
        let line = |head: &String, turn: &str, value: Option<&String>| -> Vec<String> {
            let told = |store: &String| find(rows, store, turn, value).map_or("-".into(), |row| told.figure(row));
            std::iter::once(head.clone()).chain(stores.iter().map(told)).collect()
        };
        let title = format!("{}: {}", figure.name, told.text());
        match &args.sweep {
            None => {
                let lines = turns.iter().map(|turn| line(turn, turn, None));
                writeln!(out, "\n{title}\n{}", draw(&heads(""), lines))?;
            }
            Some(sweep) => {
                for turn in &turns {
                    let lines = sweep.values.iter().map(|value| line(value, turn, Some(value)));
                    writeln!(out, "\n{title}: {turn}\n{}", draw(&heads(&sweep.name), lines))?;
                }
            }
        }
    }
    Ok(())
}

fn find<'a>(rows: &'a [Row], store: &str, turn: &str, value: Option<&String>) -> Option<&'a Row> {
    let swept = |row: &Row| row.sweep.as_ref().map(|swept| swept.value.clone());
    rows.iter().find(|row| row.store == store && row.workload == turn && swept(row).as_ref() == value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::parsed;
    use crate::report::row::Swept;

    fn printed(figure: &Figure, words: &str, rows: &[Row]) -> String {
        let mut text = Vec::new();
        print(figure, &parsed(words), rows, &mut text).expect("printed");
        let text = String::from_utf8(text).expect("text");
        text.split(' ').filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_figure_over_workloads_has_a_line_for_each() {
        let mut rows = [("hikv", "load"), ("nvht", "load"), ("hikv", "scan")]
            .map(|(store, workload)| Row::of_rate(store, workload, 2500.0));
        (rows[0].mean_ns, rows[2].mean_ns) = (1500.0, 7250.0);
        let figure = Figure { name: "Figure 5", told: &[Told::Latency, Told::Rate] };
        let text = printed(&figure, "--engine hikv --peers nvht --workloads load,scan", &rows);
        for line in [
            "Figure 5: mean latency, us",
            "| load | 1.50 | - |",
            "| scan | 7.25 | - |",
            "Figure 5: thousand ops/s",
            "| load | 2.5 | 2.5 |",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
    }

    #[test]
    fn a_figure_over_a_sweep_has_a_table_for_each_workload_and_a_line_for_each_value() {
        let row = |store: &str, workload: &str, value: &str, dram: f64| {
            let mut row = Row::of_rate(store, workload, 1e6);
            row.sweep = Some(Swept { name: "value-size".into(), value: value.into() });
            (row.dram_bytes_per_key, row.medium_bytes_per_key) = (dram, dram * 10.0);
            row
        };
        let rows = [row("hikv", "load", "64", 20.0), row("nvht", "load", "64", 1.0), row("hikv", "get", "128", 21.0)];
        let figure = Figure { name: "Figure 13", told: &[Told::Dram, Told::Medium] };
        let text = printed(&figure, "--engine hikv --peers nvht --workloads load,get --sweep value-size=64,128", &rows);
        for line in [
            "Figure 13: DRAM by the stores' own accounts, bytes a key: load\n| value-size | hikv | nvht |",
            "| 64 | 20.0 | 1.0 |",
            "DRAM by the stores' own accounts, bytes a key: get",
            "| 128 | 21.0 | - |",
            "Figure 13: medium by the stores' own accounts, bytes a key: load",
            "| 64 | 200.0 | 10.0 |",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
    }
}
