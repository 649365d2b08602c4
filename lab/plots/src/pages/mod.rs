//! The pages of `lodestore-bench evaluate`, in Markdown: one for each experiment, and their index.

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

use crate::record::{RECORDS, Record, read_records};
use crate::row::{Row, read_rows};

/// A file of the pages: its name, and its text.
pub type Made = (String, String);

/// Returns the pages of the experiments in a directory, and their index. Experiments with missing
/// rows have no page.
///
/// # Errors
/// `runs.json` cannot be read, or is not the file of the records.
pub fn pages(dir: &Path) -> Result<Vec<Made>> {
    let text = fs::read_to_string(dir.join(RECORDS))?;
    let records = read_records(&text).map_err(|error| Error::new(ErrorKind::InvalidData, error))?;
    let rows: Vec<_> = records.iter().map(|record| rows_of(dir, record)).collect();
    let entries: Vec<_> = records.iter().zip(&rows).map(|(record, rows)| (record, rows.as_deref())).collect();
    let mut made = vec![("README.md".to_string(), index::index(&entries))];
    for (record, rows) in entries {
        let Some(rows) = rows else { continue };
        made.push((format!("{}.md", record.name), page::page(record, rows)));
    }
    Ok(made)
}

/// Returns the rows of an experiment; `None` if their number differs from the recorded one.
fn rows_of(dir: &Path, record: &Record) -> Option<Vec<Row>> {
    let lines = fs::read_to_string(dir.join(format!("{}.jsonl", record.name))).ok()?;
    let rows = read_rows(&lines);
    (rows.len() == record.rows && lines.lines().count() == record.rows).then_some(rows)
}
