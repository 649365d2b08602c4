//! The table of docs/crash.md: the results of each damage to each structure.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::fault::Kind;
use super::{Report, Row};

fn add(sum: &mut Row, row: &Row) {
    sum.correct += row.correct;
    sum.reported += row.reported;
    sum.refused += row.refused;
    sum.indistinguishable += row.indistinguishable;
    sum.violations += row.violations;
}

/// The columns of the table, each with the damage that it sums.
pub const COLUMNS: [(&str, &[Kind]); 7] = [
    ("bits flipped", &[Kind::Flip, Kind::Flips]),
    ("line zeroed", &[Kind::ZeroLine]),
    ("page zeroed or random", &[Kind::ZeroPage, Kind::Garbage]),
    ("line or page stale", &[Kind::StaleLine, Kind::StalePage]),
    ("misplaced", &[Kind::Misplaced]),
    ("file stale, cut, missing or swapped", &[Kind::StaleFile, Kind::Truncated, Kind::Swapped]),
    ("several damages", &[Kind::Mixed]),
];

fn cell(row: Option<&Row>) -> String {
    let Some(row) = row else { return String::new() };
    let all = row.correct + row.reported + row.refused + row.indistinguishable + row.violations;
    let parts = [
        ("correct", row.correct),
        ("reported", row.reported),
        ("refused", row.refused),
        ("indistinguishable", row.indistinguishable),
        ("**violated**", row.violations),
    ];
    let share = |count: u64| count as f64 * 100.0 / all as f64;
    let shown: Vec<String> = parts
        .iter()
        .filter(|(_, count)| *count > 0)
        .map(|(name, count)| match share(*count) {
            // A small share is printed as a count.
            share if share < 1.0 => format!("{name} {count} of {all}"),
            share => format!("{name} {share:.1} %"),
        })
        .collect();
    shown.join(", ")
}

/// Prints the table as Markdown: one row for each structure and end, one column for each damage.
pub fn markdown(engine: &str, report: &Report) -> String {
    let mut rows: BTreeMap<(String, &str), BTreeMap<usize, Row>> = BTreeMap::new();
    for ((structure, kind, end), row) in &report.rows {
        let Some(column) = COLUMNS.iter().position(|(_, kinds)| kinds.contains(kind)) else { continue };
        let end = if *end == "clean stop" { "clean stop" } else { "kill or crash" };
        let structure = structure.trim_end_matches(": head").to_owned();
        add(rows.entry((structure, end)).or_default().entry(column).or_default(), row);
    }
    let heads: Vec<&str> = COLUMNS.iter().map(|(name, _)| *name).collect();
    let mut out = format!("### {engine}: {} images\n\n| structure | end | {} |\n", report.images, heads.join(" | "));
    let _ = writeln!(out, "|---|---|{}", "---|".repeat(COLUMNS.len()));
    for ((structure, end), columns) in &rows {
        let cells: Vec<String> = (0..COLUMNS.len()).map(|column| cell(columns.get(&column))).collect();
        let _ = writeln!(out, "| {structure} | {end} | {} |", cells.join(" | "));
    }
    out
}

/// Returns the lines before and after an engine's table in a page.
fn markers(engine: &str) -> [String; 2] {
    ["begin", "end"].map(|side| format!("<!-- damage table of {engine}: {side} -->\n"))
}

/// Returns the table of an engine in a page, without its markers; `None` if the page has none.
pub fn table_in<'a>(page: &'a str, engine: &str) -> Option<&'a str> {
    let [begin, end] = markers(engine);
    let (_, rest) = page.split_once(&begin)?;
    Some(rest.split_once(&end)?.0)
}

/// Returns the page with the engine's table replaced by that of `report`; `None` if the page has no
/// markers for the table.
pub fn replace_in(page: &str, engine: &str, report: &Report) -> Option<String> {
    let [begin, end] = markers(engine);
    let (before, rest) = page.split_once(&begin)?;
    let (_, after) = rest.split_once(&end)?;
    Some(format!("{before}{begin}{}{end}{after}", markdown(engine, report)))
}

/// Returns the structures of a table's rows.
pub fn structures_of(table: &str) -> BTreeSet<&str> {
    let rows = table.lines().filter(|line| line.starts_with("| ")).skip(1);
    rows.filter_map(|row| row.split('|').nth(1)).map(str::trim).collect()
}

/// Prints the totals of each damage by the history's end.
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
