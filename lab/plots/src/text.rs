//! Numbers of rows as text, as in the bench's own tables.

use crate::row::{Machine, Pauses, Row};

/// Formats a time in a suitable unit.
pub(crate) fn ns_text(ns: u64) -> String {
    match ns {
        0..10_000 => format!("{ns} ns"),
        10_000..10_000_000 => format!("{:.1} us", ns as f64 / 1e3),
        _ => format!("{:.1} ms", ns as f64 / 1e6),
    }
}

/// Formats a rate in a suitable unit.
pub(crate) fn rate_text(rate: f64) -> String {
    if rate >= 1e6 { format!("{:.2} M", rate / 1e6) } else { format!("{:.1} k", rate / 1e3) }
}

/// Formats the latency that one of `one_of` calls exceeds, or `-` if fewer calls were timed.
pub(crate) fn tail_text(row: &Row, ns: u64, one_of: u64) -> String {
    if row.samples < one_of { "-".into() } else { ns_text(ns) }
}

/// Formats the longest call of a row, if any was timed.
pub(crate) fn longest_text(row: &Row) -> String {
    tail_text(row, row.longest_ns, 1)
}

/// Heads of the columns of [`pause_fields`].
pub(crate) const PAUSE_HEADS: [&str; 13] = [
    "pauses in",
    "store",
    "ops/s",
    "p99",
    "p99.9",
    "p99.99",
    "longest",
    "over 1 / 10 / 50 ms",
    "machine beside",
    "over 1 / 10 / 50 ms",
    "machine before",
    "over 1 / 10 / 50 ms",
    "stolen s",
];

/// The explanation of the columns of [`PAUSE_HEADS`].
pub(crate) const PAUSES_NOTE: &str = "every call timed; machine beside: how late a thread woke that slept 1 ms at a time; before: a thread that read the clock on the idle machine for 5 s at most";

/// Returns the line of an overload's or an open loop's call durations, with the machine's own
/// pauses.
pub(crate) fn pause_fields(row: &Row, machine: &Machine) -> Vec<String> {
    let counts = |pauses: &Pauses| pauses.longer.map(|count| count.to_string()).join(" / ");
    vec![
        row.workload.clone(),
        row.swept_store(),
        rate_text(row.ops_per_s),
        tail_text(row, row.p99_ns, 100),
        tail_text(row, row.p999_ns, 1000),
        tail_text(row, row.p9999_ns, 10_000),
        longest_text(row),
        row.pauses.map_or("-".into(), |pauses| counts(&pauses)),
        ns_text(machine.beside.longest_ns),
        counts(&machine.beside),
        ns_text(machine.before.longest_ns),
        counts(&machine.before),
        format!("{:.2}", machine.stolen_s),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_written_short() {
        assert_eq!(ns_text(170), "170 ns");
        assert_eq!(ns_text(12_345), "12.3 us");
        assert_eq!(ns_text(12_345_678), "12.3 ms");
        assert_eq!(rate_text(1_234_567.0), "1.23 M");
        assert_eq!(rate_text(12_345.0), "12.3 k");
    }
}
