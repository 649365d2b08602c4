//! The table of docs/crash.md: what becomes of each damage to each structure.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::fault::Kind;
use super::{Report, Row};

fn share(part: u64, row: &Row) -> String {
    let all = row.correct + row.reported + row.refused + row.indistinguishable + row.violations;
    match part {
        0 => "-".into(),
        part if part == all => "all".into(),
        part => format!("{:.1} %", part as f64 * 100.0 / all as f64),
    }
}

fn add(sum: &mut Row, row: &Row) {
    sum.correct += row.correct;
    sum.reported += row.reported;
    sum.refused += row.refused;
    sum.indistinguishable += row.indistinguishable;
    sum.violations += row.violations;
}

/// Prints the table as Markdown, one row for each structure and damage.
pub fn markdown(engine: &str, report: &Report) -> String {
    let mut rows: BTreeMap<(String, Kind), Row> = BTreeMap::new();
    for ((structure, kind, _), row) in &report.rows {
        add(rows.entry((structure.clone(), *kind)).or_default(), row);
    }
    let mut out = format!("### {engine}\n\n");
    out.push_str("| structure | damage | images | correct | reported | refused | indistinguishable | violations |\n");
    out.push_str("|---|---|---:|---:|---:|---:|---:|---:|\n");
    for ((structure, kind), row) in &rows {
        let images = row.correct + row.reported + row.refused + row.indistinguishable + row.violations;
        let parts = [row.correct, row.reported, row.refused, row.indistinguishable, row.violations];
        let cells: Vec<String> = parts.iter().map(|part| share(*part, row)).collect();
        let _ = writeln!(out, "| {structure} | {kind} | {images} | {} |", cells.join(" | "));
    }
    out
}

/// Prints the sums of each damage by the history's end.
pub fn summary(report: &Report) -> String {
    let mut rows: BTreeMap<(Kind, &str), Row> = BTreeMap::new();
    for ((_, kind, end), row) in &report.rows {
        add(rows.entry((*kind, *end)).or_default(), row);
    }
    let mut out = format!(
        "{:<26} {:<10} {:>9} {:>9} {:>9} {:>9} {:>9}\n",
        "damage", "end", "correct", "reported", "refused", "indist.", "VIOLATED"
    );
    for ((kind, end), row) in &rows {
        let _ = writeln!(
            out,
            "{kind:<26} {end:<10} {:>9} {:>9} {:>9} {:>9} {:>9}",
            row.correct, row.reported, row.refused, row.indistinguishable, row.violations
        );
    }
    out
}
