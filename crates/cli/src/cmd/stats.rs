//! `count` and `stats`.

use std::time::Duration;

use lodestore::db::Choice;
use lodestore::stats::{Metric, Unit};
use lodestore::stats::{Stats, Wear, format_size};
use serde_json::{Map, Value, json};

use super::{Access, object, wait_recovered, with_keyspace, with_store};
use crate::args::{DataArgs, StatsArgs};
use crate::failure::Outcome;
use crate::out::thousands;

/// Writes the number of keys.
pub fn count(args: &DataArgs) -> Outcome {
    with_keyspace(args, Access::Read, |store, out| {
        wait_recovered(store)?;
        let count = store.len()?;
        if args.json { out.json(object([("count", count.into())])) } else { out.line(count.to_string()) }
    })
}

/// Writes the store's statistics.
pub fn run(args: &StatsArgs) -> Outcome {
    with_store(&args.store, false, |store, out| {
        if !args.no_wait {
            wait_recovered(store)?;
        }
        let (stats, choice) = (store.stats(), Choice::recorded(&args.store.store));
        if args.openmetrics {
            return out.bytes(stats.to_openmetrics(&args.store.store.display().to_string()).as_bytes());
        }
        if args.store.json {
            let mut json = as_json(&stats);
            json.insert("choice".into(), choice_as_json(choice.as_ref()));
            return out.json(json);
        }
        let mut rows = as_table(&stats);
        rows.insert(
            CHOICE_ROW_INDEX,
            ("created as".into(), choice.map_or("unknown".into(), |choice| choice.to_string())),
        );
        out.table(&rows)
    })
}

/// The row of the table after engine, medium and durability.
const CHOICE_ROW_INDEX: usize = 3;

/// Returns engine and durability at the creation, with the reason; null if the store has no record
/// of them.
fn choice_as_json(choice: Option<&Choice>) -> Value {
    choice.map_or(
        Value::Null,
        |choice| json!({"engine": choice.engine, "durability": choice.durability.to_string(), "reason": choice.reason}),
    )
}

fn as_json(stats: &Stats) -> Map<String, Value> {
    let Stats { space, recovery, .. } = stats;
    object([
        ("engine", stats.engine.into()),
        ("medium", stats.medium.as_str().into()),
        ("durability", stats.durability.to_string().into()),
        ("keys", stats.keys.into()),
        ("dram_bytes", stats.dram_bytes.into()),
        ("dram_fixed_bytes", stats.dram_fixed_bytes.into()),
        ("dram_budget_bytes", stats.dram_budget_bytes.into()),
        (
            "space",
            json!({"size": space.size, "capacity": space.capacity, "live": space.live, "dead": space.dead, "free": space.free}),
        ),
        ("flushes", stats.flushes.into()),
        ("fences", stats.fences.into()),
        ("bytes_written", stats.bytes_written.into()),
        ("wear", wear_as_json(&stats.wear)),
        (
            "recovery",
            json!({
                "done": recovery.done,
                "share": recovery.share,
                "keys": recovery.keys,
                "corrupt": recovery.corrupt,
                "ready_after_us": u64::try_from(recovery.ready_after.as_micros()).unwrap_or(u64::MAX),
                "took_us": u64::try_from(recovery.took.as_micros()).unwrap_or(u64::MAX),
            }),
        ),
        ("engine_counters", engine_counters_as_json(stats)),
    ])
}

fn engine_counters_as_json(stats: &Stats) -> Value {
    let counters = stats.engine_counters.iter().map(|(metric, number)| (metric.name.to_owned(), json!(number)));
    Value::Object(counters.collect())
}

fn wear_as_json(wear: &Wear) -> Value {
    let hottest: Vec<Value> = wear
        .hottest
        .iter()
        .map(|segment| json!({"region": segment.region, "segment": segment.segment, "bytes": segment.bytes}))
        .collect();
    json!({"segments": wear.segments, "bytes": wear.bytes, "max": wear.max, "mean": wear.mean, "hottest": hottest})
}

/// Writes by segment, hottest first.
fn wear_rows(wear: &Wear, sized: impl Fn(u64) -> String) -> Vec<(String, String)> {
    if wear.segments == 0 {
        return Vec::new();
    }
    let row = |name: &str, value: String| (name.to_owned(), value);
    let hottest = wear
        .hottest
        .iter()
        .filter(|segment| segment.bytes > 0)
        .map(|segment| (format!("  region {} segment {}", segment.region, segment.segment), sized(segment.bytes)));
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a mean of byte counts, shown")]
    let mean = wear.mean as u64;
    let mut rows = vec![
        row("written in total", sized(wear.bytes)),
        row("  segments", thousands(wear.segments)),
        row("  mean per segment", sized(mean)),
    ];
    rows.extend(hottest);
    rows
}

/// Returns a number of the engine by its name, with its unit in words if the number is long.
fn counter_row(engine: &str, metric: &Metric, number: u64) -> (String, String) {
    let value = match metric.unit {
        Unit::Bytes => format!("{} ({})", thousands(number), format_size(number)),
        Unit::BytesPerSecond => format!("{} ({}/s)", thousands(number), format_size(number)),
        Unit::Nanoseconds => format!("{} ({:.1?})", thousands(number), Duration::from_nanos(number)),
        _ => thousands(number),
    };
    (format!("{engine}.{}", metric.name), value)
}

fn as_table(stats: &Stats) -> Vec<(String, String)> {
    let Stats { space, recovery, .. } = stats;
    let sized = |bytes: u64| format!("{} ({})", thousands(bytes), format_size(bytes));
    let budget = if stats.dram_budget_bytes == 0 { "none".to_owned() } else { sized(stats.dram_budget_bytes) };
    let recovered = match recovery.done {
        true => format!("done in {:.1?}", recovery.took),
        false => format!("{:.0} % done", recovery.share * 100.0),
    };
    let rows = [
        ("engine", stats.engine.to_owned()),
        ("medium", stats.medium.clone()),
        ("durability", stats.durability.to_string()),
        ("keys", thousands(stats.keys)),
        ("DRAM bytes", sized(stats.dram_bytes)),
        ("  fixed part", sized(stats.dram_fixed_bytes)),
        ("  budget", budget),
        ("medium capacity", sized(space.capacity)),
        ("  size now", sized(space.size)),
        ("  live", sized(space.live)),
        ("  dead", sized(space.dead)),
        ("  free", sized(space.free)),
        ("flushes", thousands(stats.flushes)),
        ("fences", thousands(stats.fences)),
        ("bytes written", sized(stats.bytes_written)),
        ("recovery", recovered),
        ("  ready after", format!("{:.1?}", recovery.ready_after)),
        ("  keys found", thousands(recovery.keys)),
        ("  damaged places", thousands(recovery.corrupt)),
    ];
    let counters = stats.engine_counters.iter().map(|(metric, number)| counter_row(stats.engine, metric, *number));
    let rows = rows.into_iter().map(|(name, value)| (name.to_owned(), value));
    rows.chain(wear_rows(&stats.wear, sized)).chain(counters).collect()
}
