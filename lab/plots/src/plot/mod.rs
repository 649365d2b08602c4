//! Plots as SVG pictures.
//!
//! A plot has one message, at most [`choice::SERIES_MAX`] series, and the name of each series next
//! to it. Numbers that differ by more than [`scale::LOG_SCALE_RATIO`] have a logarithmic scale.

mod bars;
mod choice;
mod compared;
mod describe;
mod figure;
mod latency;
mod lines;
mod restart;
mod scale;
mod svg;
mod timeline;
mod unit;

use compared::Quantity;

use crate::row::Row;

pub(crate) use latency::draw as latency;
pub(crate) use restart::draw as restart;
pub(crate) use timeline::draw as timeline;

/// Draws the operations per second of each workload.
pub(crate) fn rates(rows: &[Row]) -> String {
    compared::draw(rows, Quantity::rate(rows))
}

/// Draws the bytes written for each byte put.
pub(crate) fn written(rows: &[Row]) -> String {
    compared::draw(rows, Quantity::Written)
}

/// Draws the DRAM per key.
pub(crate) fn memory(rows: &[Row]) -> String {
    compared::draw(rows, Quantity::Memory)
}
