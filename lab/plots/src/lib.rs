//! Pages and plots of the bench's results, from files alone.
//!
//! `lodestore-bench evaluate` leaves rows (NAME.jsonl) and their description (`runs.json`) in a
//! directory. This crate makes the pages of that directory, and plots of single files. The bench
//! does not use this crate.
//!
//! # Guarantees
//! * The same files give the same pages and plots, on every machine.
//! * A plot has at most eight series. Numbers that differ by more than ten times have a logarithmic
//!   scale, so none flattens the others.
//!
//! # Modules
//! * `row`, `record`: the files of the bench.
//! * `metric`: the measures that compare stores.
//! * `store`: names of stores.
//! * `text`: numbers as text.
//! * `plot`: pictures.
//! * `pages`: pages of experiments, and their index.
#![forbid(unsafe_code)]

mod metric;
mod pages;
mod plot;
mod record;
mod row;
mod store;
mod text;

use std::io::Result;

pub use pages::{Made, pages};

/// The kind of a plot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Operations per second of each workload, from rows.
    Rates,
    /// Bytes written for each byte put, from rows.
    Written,
    /// Percentiles of the latency of each workload, from rows.
    Latency,
    /// DRAM per key, from rows.
    Memory,
    /// The progress of each store, from the CSV of `--timeline`.
    Timeline,
    /// The first `GET` of restarted servers, from the lines of the bench's example `restart`.
    Restart,
}

/// Draws a plot of the text of a file of results, as SVG.
///
/// # Errors
/// The text is no timeline, or no output of the example `restart`.
pub fn plot(kind: Kind, text: &str) -> Result<String> {
    let rows = || row::read_rows(text);
    match kind {
        Kind::Rates => Ok(plot::rates(&rows())),
        Kind::Written => Ok(plot::written(&rows())),
        Kind::Latency => Ok(plot::latency(&rows())),
        Kind::Memory => Ok(plot::memory(&rows())),
        Kind::Timeline => plot::timeline(text),
        Kind::Restart => plot::restart(text),
    }
}
