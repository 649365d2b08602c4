//! Rows and the record of a run, for tests.

use super::list::{Draw, Experiment, Medium, Run, Scale, Size};
use super::metric::Measure;
use super::record::{About, Record};
use super::site::Site;
use crate::report::row::Row;

/// Returns a row at durability process.
pub(super) fn row(store: &str, workload: &str, rate: f64) -> Row {
    Row { rounds: 3, durability: "process".into(), ..Row::of_rate(store, workload, rate) }
}

/// Returns an experiment named sample that compares rates.
pub(super) fn experiment() -> Experiment {
    let size = Size { words: "--records 10", seconds: 60 };
    Experiment {
        name: "sample".into(),
        title: "A title".into(),
        question: "What is asked?".into(),
        medium: Medium::Memory,
        runs: vec![Run { words: "--engine hikv".into(), open: false }],
        small: size,
        full: size,
        measures: vec![Measure::Rate],
        preset: None,
        draw: Some(Draw::Rates),
    }
}

/// Returns the record of a run of it.
pub(super) fn record() -> Record {
    Record {
        about: About::of(0, &experiment(), Scale::Small),
        scale: Scale::Small,
        program: "0.1.0 (abc)".into(),
        date: "2026-01-31".into(),
        site: Site::default(),
        seconds: 61.0,
        expected_seconds: 60,
        commands: Vec::new(),
        left_out: Vec::new(),
        failed: Vec::new(),
        rows: 1,
    }
}
