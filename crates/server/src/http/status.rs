//! `/status.json`: the numbers of the status page.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::json::{JsonWriter, printable};
use crate::clock::now_milliseconds;
use crate::process::read_memory;
use crate::shared::Shared;
use crate::statistics::slow_log::SlowEntry;
use crate::store_events::StoreEvents;

/// Most entries of the slow log that the page shows.
const SLOW_ENTRIES_MAX: usize = 20;

/// Replaces texts that may contain keys.
const HIDDEN: &str = "details are in the log of the server";

/// Returns the numbers as one JSON object. `shows_keys`: whether the reader may see keys and
/// arguments of commands.
pub(super) fn json(shared: &Shared, shows_keys: bool) -> String {
    let mut json = JsonWriter::default();
    json.object(|json| {
        write_server(json, shared);
        write_counters(json, shared);
        write_store(json, shared);
        write_damage(json, shared, shows_keys);
        json.name("commands_used").array(|json| write_commands(json, shared));
        json.name("slow_log").object(|json| write_slow_log(json, shared, shows_keys));
    });
    json.finish()
}

fn write_server(json: &mut JsonWriter, shared: &Shared) {
    json.name("version").text(env!("CARGO_PKG_VERSION"));
    json.name("run_id").text(&shared.run_id);
    json.name("now_ms").number(u64::try_from(now_milliseconds()).unwrap_or(0));
    json.name("uptime_s").number(shared.started.elapsed().as_secs());
    json.name("stopping").number(shared.is_stopping().into());
    if let Some(time) = shared.served_after.get() {
        json.name("served_after_us").number(micros(*time));
    }
    json.name("clients").number(shared.client_count() as u64);
    json.name("clients_max").number(shared.runtime.clients_max() as u64);
    let memory = read_memory();
    json.name("resident_bytes").number(memory.resident);
    json.name("anonymous_bytes").number(memory.anonymous);
}

fn write_counters(json: &mut JsonWriter, shared: &Shared) {
    let counters = &shared.counters;
    for (name, counter) in [
        ("commands", &counters.commands),
        ("connections", &counters.connections),
        ("refused_connections", &counters.refused_connections),
        ("errors", &counters.errors),
        ("hits", &counters.hits),
        ("misses", &counters.misses),
        ("bytes_received", &counters.bytes_read),
        ("bytes_sent", &counters.bytes_written),
    ] {
        json.name(name).number(counter.load(Ordering::Relaxed));
    }
    if let Some(events) = shared.store_events.get() {
        json.name("expired_keys").number(events.expired_keys());
    }
}

fn write_store(json: &mut JsonWriter, shared: &Shared) {
    let stats = shared.db().stats();
    json.name("engine").text(stats.engine);
    json.name("medium").text(&stats.medium);
    json.name("durability").text(&stats.durability.to_string());
    if let Some(path) = &shared.config.store.path {
        json.name("store").text(&path.display().to_string());
    }
    let recovery = &stats.recovery;
    for (name, number) in [
        ("keys", stats.keys),
        ("used_bytes", stats.space.live),
        ("capacity_bytes", stats.space.capacity),
        ("size_bytes", stats.space.size),
        ("dram_bytes", stats.dram_bytes),
        ("memory_max", shared.runtime.memory_max()),
        ("memory_exceeded", shared.memory.is_exceeded().into()),
        ("recovery_done", recovery.done.into()),
        ("recovery_percent", (recovery.share.clamp(0.0, 1.0) * 100.0) as u64),
        ("recovery_keys", recovery.keys),
        ("recovery_corrupt", recovery.corrupt),
        ("ready_after_us", micros(recovery.ready_after)),
        ("recovery_took_us", micros(recovery.took)),
    ] {
        json.name(name).number(number);
    }
    json.name("engine_counters").object(|json| {
        stats.engine_counters.iter().for_each(|(metric, number)| json.name(metric.name).number(*number));
    });
}

fn write_damage(json: &mut JsonWriter, shared: &Shared, shows_keys: bool) {
    json.name("damage_reports").number(shared.store_events.get().map_or(0, StoreEvents::damage_reports));
    let texts = shared.store_events.get().map(StoreEvents::texts).unwrap_or_default();
    for (name, text) in [("damage", texts.damage), ("poison", texts.poison), ("device", texts.device)] {
        if let Some(text) = text {
            // The location of damage may name a key.
            json.name(name).text(if shows_keys { &text } else { HIDDEN });
        }
    }
}

/// Writes each command that clients called, with the filled buckets of its histogram: the longest
/// time of the bucket in nanoseconds, and the number of calls.
fn write_commands(json: &mut JsonWriter, shared: &Shared) {
    shared.statistics.for_each_used(|command, totals| {
        json.object(|json| {
            json.name("name").text(command);
            for (name, number) in [
                ("calls", totals.calls),
                ("nanoseconds", totals.nanoseconds),
                ("rejected", totals.rejected),
                ("failed", totals.failed),
            ] {
                json.name(name).number(number);
            }
            json.name("buckets").array(|json| {
                for (end, count) in totals.filled_buckets() {
                    json.array(|json| [end, count].into_iter().for_each(|number| json.number(number)));
                }
            });
        });
    });
}

fn write_slow_log(json: &mut JsonWriter, shared: &Shared, shows_keys: bool) {
    if let Some(time) = shared.runtime.slow_time() {
        json.name("threshold_us").number(micros(time));
    }
    json.name("length").number(shared.statistics.slow_log.len() as u64);
    json.name("shows_arguments").number(shows_keys.into());
    json.name("entries").array(|json| {
        for entry in shared.statistics.slow_log.newest(SLOW_ENTRIES_MAX) {
            json.object(|json| write_slow_entry(json, &entry, shows_keys));
        }
    });
}

fn write_slow_entry(json: &mut JsonWriter, entry: &SlowEntry, shows_keys: bool) {
    let shown = if shows_keys { entry.arguments.len() } else { 1 };
    json.name("number").number(entry.number);
    json.name("unix_seconds").number(entry.unix_seconds);
    json.name("microseconds").number(entry.microseconds);
    json.name("arguments").array(|json| {
        entry.arguments.iter().take(shown).for_each(|argument| json.text(&printable(argument)));
    });
    json.name("address").text(&printable(entry.address.as_bytes()));
    json.name("client").text(&printable(entry.name.as_bytes()));
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
