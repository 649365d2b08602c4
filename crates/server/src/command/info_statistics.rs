//! The sections of `INFO` on commands and errors.

use super::info::field;
use crate::shared::Shared;

/// Percentiles of the section `Latencystats`, as in Redis.
const PERCENTILES: [f64; 3] = [50.0, 99.0, 99.9];

/// Writes the section `Commandstats`.
pub(super) fn write_commands(shared: &Shared, text: &mut String) {
    shared.statistics.for_each_used(|name, totals| {
        let microseconds = totals.nanoseconds as f64 / 1000.0;
        let mean = microseconds / totals.calls.max(1) as f64;
        let value = format!(
            "calls={},usec={microseconds:.0},usec_per_call={mean:.2},rejected_calls={},failed_calls={}",
            totals.calls, totals.rejected, totals.failed
        );
        field(text, &format!("cmdstat_{name}"), value);
    });
}

/// Writes the section `Errorstats`.
pub(super) fn write_errors(shared: &Shared, text: &mut String) {
    for (code, count) in shared.statistics.errors() {
        field(text, &format!("errorstat_{code}"), format!("count={count}"));
    }
}

/// Writes the section `Latencystats`.
pub(super) fn write_latency(shared: &Shared, text: &mut String) {
    shared.statistics.for_each_used(|name, totals| {
        if totals.calls > 0 {
            let percentiles: Vec<String> =
                PERCENTILES.iter().map(|percent| format!("p{percent}={:.3}", totals.percentile(*percent))).collect();
            field(text, &format!("latency_percentiles_usec_{name}"), percentiles.join(","));
        }
    });
}
