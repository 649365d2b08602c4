//! Rows and the record of a run, for tests.

use crate::metric::Measure;
use crate::record::{Draw, Medium, Record, Site};
use crate::row::Row;

/// Returns a row at durability process, with a spread of a tenth.
pub(crate) fn row(store: &str, workload: &str, rate: f64) -> Row {
    let mut row = Row {
        rounds: 3,
        samples: 100_000,
        ops_per_s_min: rate,
        ops_per_s_max: rate,
        spread: 0.1,
        durability: "process".into(),
        medium: "shm".into(),
        repeat: format!("lodestore-bench run --engine {store} --dir \"$MEMORY\" --workloads {workload} --peers none"),
        ..Row::of_rate(store, workload, rate)
    };
    row.settings.insert("cache".into(), "1".into());
    if store == "rocksdb" {
        row.settings.insert("version".into(), "7.8".into());
    }
    row
}

/// Returns the row of a store that failed at durability process.
pub(crate) fn failed(store: &str, why: &str) -> Row {
    Row { failed: Some(why.into()), ..row(store, "failed", 0.0) }
}

/// Returns the row at another durability.
pub(crate) fn at(durability: &str, row: Row) -> Row {
    Row { durability: durability.into(), ..row }
}

/// Returns the record of an experiment named sample that compares rates.
pub(crate) fn record() -> Record {
    Record {
        name: "sample".into(),
        place: 0,
        title: "A title".into(),
        question: "What is asked?".into(),
        medium: Medium::Memory,
        measures: vec![Measure::Rate],
        draw: Some(Draw::Rates),
        size: None,
        scale: "small".into(),
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
        rows: 1,
    }
}
