//! Rows and the record of a run, for tests.

use super::list::{Draw, Experiment, Medium, Run, Scale, Size};
use super::metric::Measure;
use super::page::Record;
use super::site::Site;
use crate::report::row::Row;

/// Returns a row at durability process, with a spread of a tenth.
pub(super) fn row(store: &str, workload: &str, rate: f64) -> Row {
    let mut row = Row {
        rounds: 3,
        samples: 100_000,
        ops_per_s_min: rate,
        ops_per_s_max: rate,
        spread: 0.1,
        durability: "process".into(),
        medium: "shm".into(),
        command: format!("lodestore-bench run --engine {store} --workloads {workload} --peers lmdb"),
        repeat: format!("lodestore-bench run --engine {store} --dir \"$MEMORY\" --workloads {workload} --peers none"),
        ..Row::for_plot(store, workload, rate)
    };
    row.settings.insert("cache".into(), "1".into());
    if store == "rocksdb" {
        row.settings.insert("version".into(), "7.8".into());
    }
    row
}

/// Returns the row of a store that failed at durability process.
pub(super) fn failed(store: &str, why: &str) -> Row {
    Row { failed: Some(why.into()), ..row(store, "failed", 0.0) }
}

/// Returns the row at another durability.
pub(super) fn at(durability: &str, row: Row) -> Row {
    Row { durability: durability.into(), ..row }
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
        scale: Scale::Small,
        program: "0.1.0 (abc)".into(),
        date: "2026-01-31".into(),
        site: Site {
            machine: "a processor".into(),
            memory_mib: 2048,
            memory_on: "tmpfs".into(),
            disk_on: "ext4".into(),
        },
        seconds: 61.0,
        expected_seconds: 60,
        commands: vec!["lodestore-bench run --dir \"$MEMORY\" --engine hikv".into()],
        left_out: Vec::new(),
        failed: Vec::new(),
        plots: vec!["sample.svg".into()],
        rows: Some(1),
    }
}
