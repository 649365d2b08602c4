//! The pages of `lodestore-bench evaluate`, in Markdown, with their plots: one for each experiment,
//! and their index.

mod compare;
mod contest;
mod index;
mod page;
#[cfg(test)]
pub(crate) mod sample;
mod standings;

use std::fs;
use std::io::{Error, ErrorKind, Result};
use std::path::Path;

use crate::plot::{latency, memory, rates, timeline, written};
use crate::record::{Draw, RECORDS, Record, read_records};
use crate::row::{Row, read_rows};

/// A file of the pages: its name, and its text.
pub type Made = (String, String);

/// Returns the pages and plots of the experiments in a directory, and their index. Experiments with
/// missing rows have no page.
///
/// # Errors
/// `runs.json` cannot be read, or is not the file of the records; a timeline is none.
pub fn pages(dir: &Path) -> Result<Vec<Made>> {
    let text = fs::read_to_string(dir.join(RECORDS))?;
    let records = read_records(&text).map_err(|error| Error::new(ErrorKind::InvalidData, error))?;
    let rows: Vec<_> = records.iter().map(|record| rows_of(dir, record)).collect();
    let entries: Vec<_> = records.iter().zip(&rows).map(|(record, rows)| (record, rows.as_deref())).collect();
    let mut made = vec![("README.md".to_string(), index::index(&entries))];
    for (record, rows) in entries {
        let Some(rows) = rows else { continue };
        let plots = plots(dir, record, rows)?;
        let names: Vec<String> = match plots.as_slice() {
            // A plot of an earlier program stays until the experiment runs again.
            [] => [format!("{}.svg", record.name)].into_iter().filter(|name| dir.join(name).exists()).collect(),
            plots => plots.iter().map(|(name, _)| name.clone()).collect(),
        };
        made.push((format!("{}.md", record.name), page::page(record, rows, &names)));
        made.extend(plots);
    }
    Ok(made)
}

/// Returns the plots of an experiment. Each has one message.
fn plots(dir: &Path, record: &Record, rows: &[Row]) -> Result<Vec<Made>> {
    let file = |ending: &str| dir.join(format!("{}.{ending}", record.name));
    let own = match record.draw {
        None => None,
        Some(Draw::Rates) => Some(rates(rows)),
        Some(Draw::Latency) => Some(latency(rows)),
        Some(Draw::Memory) => Some(memory(rows)),
        Some(Draw::Timeline) if !file("csv").exists() => None,
        Some(Draw::Timeline) => Some(timeline(&fs::read_to_string(file("csv"))?)?),
    };
    let mut made: Vec<Made> = own.into_iter().map(|svg| (format!("{}.svg", record.name), svg)).collect();
    let has = |of: fn(&Row) -> bool| record.draw == Some(Draw::Rates) && rows.iter().any(of);
    if has(|row| row.sweep.is_some() && row.write_amplification.is_some()) {
        made.push((format!("{}-written.svg", record.name), written(rows)));
    }
    if has(|row| row.open_loop.is_some()) {
        made.push((format!("{}-latency.svg", record.name), latency(rows)));
    }
    Ok(made)
}

/// Returns the rows of an experiment; `None` if their number differs from the recorded one.
fn rows_of(dir: &Path, record: &Record) -> Option<Vec<Row>> {
    let lines = fs::read_to_string(dir.join(format!("{}.jsonl", record.name))).ok()?;
    let rows = read_rows(&lines);
    (rows.len() == record.rows && lines.lines().count() == record.rows).then_some(rows)
}
