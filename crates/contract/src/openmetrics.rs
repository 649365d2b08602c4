//! Statistics as OpenMetrics 1.0 text, which Prometheus and other monitors read.

use std::fmt::Write as _;

use crate::engine_statistics;
use crate::metric::{EngineStatistics, Metric, MetricKind, Unit};
use crate::stats::Stats;

/// Prefix of every metric name.
const PREFIX: &str = "lodestore";
/// The media type of the text, for the header `Content-Type` of an answer over HTTP.
pub const OPENMETRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

engine_statistics! {
    /// The numbers that every store has.
    pub struct StoreStats {
        /// Live keys, by a count that may trail the newest writes.
        Gauge Count keys,
        /// DRAM of the store's own structures.
        Gauge Bytes dram_bytes,
        /// DRAM that an empty store uses.
        Gauge Bytes dram_fixed_bytes,
        /// Most DRAM that the store may use; 0 for no limit.
        Gauge Bytes dram_budget_bytes,
        /// Bytes of the store's files.
        Gauge Bytes medium_size_bytes,
        /// Most bytes that the store's files may grow to.
        Gauge Bytes medium_capacity_bytes,
        /// Bytes of live records and index structures.
        Gauge Bytes medium_live_bytes,
        /// Bytes that hold nothing live and cannot be reused yet.
        Gauge Bytes medium_dead_bytes,
        /// Bytes of the store's files that are free.
        Gauge Bytes medium_free_bytes,
        /// Cache lines or pages that were flushed to the medium since the open.
        Counter Count flushes,
        /// Fences or syncs since the open.
        Counter Count fences,
        /// Bytes written to the medium since the open.
        Counter Bytes written_bytes,
        /// Segments of the medium that hold data, if wear is counted; else 0.
        Gauge Count wear_segments,
        /// Bytes written to the medium since the store was created.
        Gauge Bytes wear_written_bytes,
        /// Bytes written to the segment of the medium that was written most.
        Gauge Bytes wear_hottest_bytes,
        /// 1 if the recovery of the last open has ended, else 0.
        Gauge Count recovery_is_done,
        /// Share of the recovery that is done.
        Gauge PerMillion recovery_progress_per_million,
        /// Keys that the recovery has found so far.
        Gauge Count recovery_keys,
        /// Damaged places that the recovery found.
        Gauge Count recovery_corrupt,
        /// Damaged records that the recovery left out.
        Gauge Count recovery_left_out,
        /// Time from the open to the first operation that could be served.
        Gauge Nanoseconds recovery_ready_ns,
        /// Time from the open to the end of the recovery; 0 before the end.
        Gauge Nanoseconds recovery_took_ns,
    }
}

impl From<&Stats> for StoreStats {
    fn from(stats: &Stats) -> Self {
        let nanos = |time: std::time::Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let (space, recovery) = (&stats.space, &stats.recovery);
        Self {
            keys: stats.keys,
            dram_bytes: stats.dram_bytes,
            dram_fixed_bytes: stats.dram_fixed_bytes,
            dram_budget_bytes: stats.dram_budget_bytes,
            medium_size_bytes: space.size,
            medium_capacity_bytes: space.capacity,
            medium_live_bytes: space.live,
            medium_dead_bytes: space.dead,
            medium_free_bytes: space.free,
            flushes: stats.flushes,
            fences: stats.fences,
            written_bytes: stats.bytes_written,
            wear_segments: stats.wear.segments,
            wear_written_bytes: stats.wear.bytes,
            wear_hottest_bytes: stats.wear.max,
            recovery_is_done: recovery.done.into(),
            recovery_progress_per_million: (recovery.share.clamp(0.0, 1.0) * 1e6) as u64,
            recovery_keys: recovery.keys,
            recovery_corrupt: recovery.corrupt,
            recovery_left_out: recovery.left_out,
            recovery_ready_ns: nanos(recovery.ready_after),
            recovery_took_ns: nanos(recovery.took),
        }
    }
}

impl Stats {
    /// Returns the statistics as OpenMetrics 1.0 text. `store` is the value of the label `store` of
    /// each sample, for instance the path of the store.
    ///
    /// Times are in seconds, and shares are ratios from 0 to 1.
    pub fn to_openmetrics(&self, store: &str) -> String {
        openmetrics([(store, self)])
    }
}

/// Returns the statistics of several stores as one OpenMetrics 1.0 text. Each store has a value of
/// the label `store`, and no two stores may have the same one.
pub fn openmetrics<'a>(stores: impl IntoIterator<Item = (&'a str, &'a Stats)>) -> String {
    let mut families: Vec<Family> = Vec::new();
    for (store, stats) in stores {
        let labels = format!(r#"engine="{}",store="{}""#, escape(stats.engine), escape(store));
        let (medium, durability) = (escape(&stats.medium), escape(&stats.durability.to_string()));
        let info = format!(r#"{PREFIX}_store_info{{{labels},medium="{medium}",durability="{durability}"}} 1"#);
        let described = "The engine, the medium and the durability of the store.";
        family(&mut families, &format!("{PREFIX}_store"), ("info", "", described)).push(info);
        StoreStats::from(stats).visit(&mut |metric, number| add(&mut families, PREFIX, metric, (&labels, *number)));
        let prefix = format!("{PREFIX}_{}", stats.engine);
        stats.engine_counters.iter().for_each(|(metric, number)| {
            add(&mut families, &prefix, metric, (&labels, *number));
        });
    }
    let mut text = String::new();
    for Family { name, kind, unit, help, samples } in &families {
        let _ = writeln!(text, "# TYPE {name} {kind}");
        if !unit.is_empty() {
            let _ = writeln!(text, "# UNIT {name} {unit}");
        }
        let _ = writeln!(text, "# HELP {name} {}", escape(help));
        samples.iter().for_each(|sample| {
            let _ = writeln!(text, "{sample}");
        });
    }
    text + "# EOF\n"
}

/// The samples of one metric.
struct Family {
    name: String,
    kind: &'static str,
    /// Empty: the metric has no unit.
    unit: &'static str,
    help: &'static str,
    samples: Vec<String>,
}

/// Returns the samples of the family of this name, and creates the family if there is none.
fn family<'a>(
    families: &'a mut Vec<Family>,
    name: &str,
    (kind, unit, help): (&'static str, &'static str, &'static str),
) -> &'a mut Vec<String> {
    let at = families.iter().position(|family| family.name == name).unwrap_or_else(|| {
        families.push(Family { name: name.into(), kind, unit, help, samples: Vec::new() });
        families.len() - 1
    });
    &mut families[at].samples
}

/// Adds a sample of a number.
fn add(families: &mut Vec<Family>, prefix: &str, metric: &Metric, (labels, number): (&str, u64)) {
    let (unit, divisor) = base_unit(metric.unit);
    let stem = metric.name.strip_suffix(metric.unit.name_suffix()).unwrap_or(metric.name);
    let name = if unit.is_empty() { format!("{prefix}_{stem}") } else { format!("{prefix}_{stem}_{unit}") };
    let (kind, suffix) = match metric.kind {
        MetricKind::Counter => ("counter", "_total"),
        MetricKind::Gauge => ("gauge", ""),
    };
    let value = if divisor == 1 { number.to_string() } else { (number as f64 / divisor as f64).to_string() };
    let sample = format!("{name}{suffix}{{{labels}}} {value}");
    family(families, &name, (kind, unit, metric.help)).push(sample);
}

/// Returns the base unit that OpenMetrics requires, and the divisor that converts a number to it.
fn base_unit(unit: Unit) -> (&'static str, u64) {
    match unit {
        Unit::Count => ("", 1),
        Unit::Bytes => ("bytes", 1),
        Unit::BytesPerSecond => ("bytes_per_second", 1),
        Unit::Nanoseconds => ("seconds", 1_000_000_000),
        Unit::Percent => ("ratio", 100),
        Unit::PerMille => ("ratio", 1000),
        Unit::PerMillion => ("ratio", 1_000_000),
    }
}

/// Escapes a text for a label or a help.
fn escape(text: &str) -> String {
    text.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{EngineCounters, ScrubStats};

    engine_statistics! {
        /// Statistics of a test.
        pub struct TestStats {
            /// Bytes in the log now.
            Gauge Bytes log_bytes,
            /// Time that writers waited.
            Counter Nanoseconds waited_ns,
            /// Share of absent keys.
            Gauge PerMille absent_per_mille,
        }
    }

    fn stats(engine: &'static str) -> Stats {
        let own = TestStats { log_bytes: u64::MAX, waited_ns: 1_500_000_000, absent_per_mille: 250 };
        Stats { engine, keys: 3, medium: "file".into(), engine_counters: EngineCounters::new(own), ..Stats::default() }
    }

    #[test]
    fn numbers_are_rendered_in_base_units_with_their_kinds() {
        let text = stats("hikv").to_openmetrics("a\"\\\nb");
        let labels = r#"{engine="hikv",store="a\"\\\nb"}"#;
        for line in [
            "# TYPE lodestore_hikv_waited_seconds counter".into(),
            "# UNIT lodestore_hikv_waited_seconds seconds".into(),
            "# HELP lodestore_hikv_waited_seconds Time that writers waited.".into(),
            format!("lodestore_hikv_waited_seconds_total{labels} 1.5"),
            format!("lodestore_hikv_log_bytes{labels} {}", u64::MAX),
            format!("lodestore_hikv_absent_ratio{labels} 0.25"),
            "# TYPE lodestore_keys gauge".into(),
            format!("lodestore_keys{labels} 3"),
            "# TYPE lodestore_store info".into(),
        ] {
            assert!(text.lines().any(|known| known == line), "{line} is not in {text}");
        }
        assert!(text.ends_with("\n# EOF\n"), "{text}");
        let info = r#"",medium="file",durability="process"} 1"#;
        assert!(text.lines().any(|line| line.starts_with("lodestore_store_info{") && line.ends_with(info)), "{text}");
    }

    #[test]
    fn the_samples_of_several_stores_are_grouped_by_metric() {
        let (first, second) = (stats("hikv"), stats("hikv"));
        let text = openmetrics([("a", &first), ("b", &second)]);
        let lines: Vec<_> = text.lines().collect();
        let at = lines.iter().position(|line| line.starts_with("lodestore_keys{")).expect("a sample");
        assert_eq!(lines[at + 1], r#"lodestore_keys{engine="hikv",store="b"} 3"#);
        assert_eq!(lines.iter().filter(|line| line.starts_with("# TYPE lodestore_keys ")).count(), 1);
    }

    #[test]
    fn each_name_ends_in_its_unit() {
        let mut names = 0;
        let mut check = |metric: &'static Metric, _: &u64| {
            names += 1;
            assert!(metric.name.ends_with(metric.unit.name_suffix()), "{}", metric.name);
        };
        StoreStats::default().visit(&mut check);
        ScrubStats::default().visit(&mut check);
        assert!(names > 20, "{names}");
    }
}
