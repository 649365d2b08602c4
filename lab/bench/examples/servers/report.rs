//! The tables.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::servers::Kind;

/// A cell in a round.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sample {
    pub(crate) requests_per_second: f64,
    /// CPU time of the server in microseconds per key.
    pub(crate) cpu_us_per_key: f64,
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>10.0} requests/s, {:>8.3} us of CPU a key", self.requests_per_second, self.cpu_us_per_key)
    }
}

/// Returns the median, the minimum and the maximum.
pub(crate) fn spread(mut values: Vec<f64>) -> (f64, f64, f64) {
    values.sort_by(f64::total_cmp);
    match values.as_slice() {
        [] => (f64::NAN, f64::NAN, f64::NAN),
        [first, .., last] | [first @ last] => (values[values.len() / 2], *first, *last),
    }
}

/// Prints a table of all rows. The ratios are relative to Redis in the same group.
pub(crate) fn print(samples: &BTreeMap<(String, Kind), Vec<Sample>>) {
    println!("| row | server | requests/s | least to greatest | CPU us a key | least to greatest | CPU of Redis |");
    println!("|---|---|---:|---|---:|---|---:|");
    let rows: BTreeSet<&String> = samples.keys().map(|(row, _)| row).collect();
    for row in rows {
        let of = |kind: Kind| samples.get(&(row.clone(), kind));
        let base = of(Kind::Redis).or_else(|| of(Kind::RedisAlways));
        let base = base.map(|list| spread(list.iter().map(|sample| sample.cpu_us_per_key).collect()).0);
        for kind in Kind::ALL {
            let Some(list) = of(kind) else { continue };
            let (rate, rate_min, rate_max) = spread(list.iter().map(|sample| sample.requests_per_second).collect());
            let (cpu, cpu_min, cpu_max) = spread(list.iter().map(|sample| sample.cpu_us_per_key).collect());
            let ratio = base.map_or(String::new(), |base| format!("{:.2}", cpu / base));
            println!(
                "| {row} | {} | {rate:.0} | {rate_min:.0} to {rate_max:.0} | {cpu:.3} | {cpu_min:.3} to {cpu_max:.3} | {ratio} |",
                kind.name()
            );
        }
    }
}
