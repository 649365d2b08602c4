//! `/metrics`: the server's own numbers and those of the store, as OpenMetrics 1.0 text.
//! `exposition` has the older text format.

use std::fmt::{self, Write as _};
use std::sync::atomic::Ordering;

use prometheus_client::encoding::text::encode_registry;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::registry::{Registry, Unit};

use super::command_metrics::CommandNumbers;
use crate::process::read_memory;
use crate::shared::Shared;
use crate::store_events::StoreEvents;

/// Prefix of the names of the server's own metrics.
const PREFIX: &str = "lodestore_server";

/// A number of the server.
struct Number {
    name: &'static str,
    help: &'static str,
    value: Value,
}

enum Value {
    Counter(u64),
    Gauge(u64),
    /// A counter of bytes.
    Bytes(u64),
    GaugeBytes(u64),
    GaugeSeconds(f64),
}

/// Returns the text.
///
/// # Errors
///
/// None but those of formatting.
pub(super) fn render(shared: &Shared) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix(PREFIX);
    registry.register_collector(Box::new(Numbers::of(shared)));
    registry.register_collector(Box::new(CommandNumbers::of(shared)));
    let mut text = String::new();
    encode_registry(&mut text, &registry)?;
    // The store's text ends with the mark of the end.
    let stats = shared.db().stats();
    text.write_str(&stats.to_openmetrics(&store_label(shared)))?;
    Ok(text)
}

/// Returns the label `store` of the store's samples.
fn store_label(shared: &Shared) -> String {
    shared.config.store.path.as_ref().map_or_else(|| "store".into(), |path| path.display().to_string())
}

/// The server's own numbers as they are now.
#[derive(Debug)]
struct Numbers {
    version: &'static str,
    numbers: Vec<Number>,
}

impl fmt::Debug for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl Numbers {
    fn of(shared: &Shared) -> Self {
        let counters = &shared.counters;
        let number = |name, help, value| Number { name, help, value };
        let read = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        let memory = read_memory();
        let mut numbers = vec![
            number("connected_clients", "Connected clients.", Value::Gauge(shared.client_count() as u64)),
            number(
                "clients_limit",
                "Maximum number of connected clients.",
                Value::Gauge(shared.runtime.clients_max() as u64),
            ),
            number("connections", "Clients that have connected.", Value::Counter(read(&counters.connections))),
            number(
                "refused_connections",
                "Connections that were refused because of maxclients.",
                Value::Counter(read(&counters.refused_connections)),
            ),
            number("commands", "Commands that have run.", Value::Counter(read(&counters.commands))),
            number("errors", "Commands that returned an error.", Value::Counter(read(&counters.errors))),
            number("hits", "Look-ups of keys that exist.", Value::Counter(read(&counters.hits))),
            number("misses", "Look-ups of keys that do not exist.", Value::Counter(read(&counters.misses))),
            number("received", "Bytes of commands.", Value::Bytes(read(&counters.bytes_read))),
            number("sent", "Bytes of replies.", Value::Bytes(read(&counters.bytes_written))),
            number(
                "memory_limit",
                "Used bytes of the store above which writes are refused; 0: its capacity.",
                Value::GaugeBytes(shared.runtime.memory_max()),
            ),
            number(
                "memory_exceeded",
                "1 if writes that need space are refused because of maxmemory, else 0.",
                Value::Gauge(shared.memory.is_exceeded().into()),
            ),
            number(
                "uptime",
                "Time since the start of the server.",
                Value::GaugeSeconds(shared.started.elapsed().as_secs_f64()),
            ),
            number(
                "memory_resident",
                "Resident memory of the process, with the resident part of the mapped store.",
                Value::GaugeBytes(memory.resident),
            ),
            number(
                "memory_anonymous",
                "Resident memory of the process that no file backs.",
                Value::GaugeBytes(memory.anonymous),
            ),
            number(
                "slow_log_entries",
                "Entries of the slow log.",
                Value::Gauge(shared.statistics.slow_log.len() as u64),
            ),
        ];
        numbers.extend(reported_numbers(shared));
        Self { version: env!("CARGO_PKG_VERSION"), numbers }
    }
}

/// Returns the numbers that exist only if the program reports them.
fn reported_numbers(shared: &Shared) -> Vec<Number> {
    let of_events = |name, help, read: fn(&StoreEvents) -> u64| {
        shared.store_events.get().map(|events| Number { name, help, value: Value::Counter(read(events)) })
    };
    let served_after = shared.served_after.get().map(|time| Number {
        name: "start",
        help: "Time from the start of the program to the start of service.",
        value: Value::GaugeSeconds(time.as_secs_f64()),
    });
    [
        of_events("expired_keys", "Expired keys that the engine has removed.", StoreEvents::expired_keys),
        of_events("damage_reports", "Reports of damage in the store.", StoreEvents::damage_reports),
        served_after,
    ]
    .into_iter()
    .flatten()
    .collect()
}

impl prometheus_client::collector::Collector for Numbers {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let info = prometheus_client::metrics::info::Info::new([("version", self.version)]);
        info.encode(encoder.encode_descriptor("build", "The version of the server.", None, info.metric_type())?)?;
        for Number { name, help, value } in &self.numbers {
            match value {
                Value::Counter(number) => encode(&mut encoder, name, help, None, &ConstCounter::new(*number))?,
                Value::Bytes(number) => {
                    encode(&mut encoder, name, help, Some(&Unit::Bytes), &ConstCounter::new(*number))?
                }
                Value::Gauge(number) => encode(&mut encoder, name, help, None, &gauge(*number))?,
                Value::GaugeBytes(number) => encode(&mut encoder, name, help, Some(&Unit::Bytes), &gauge(*number))?,
                Value::GaugeSeconds(seconds) => {
                    let gauge: Gauge<f64, std::sync::atomic::AtomicU64> = Gauge::default();
                    gauge.set(*seconds);
                    encode(&mut encoder, name, help, Some(&Unit::Seconds), &gauge)?;
                }
            }
        }
        Ok(())
    }
}

fn gauge(number: u64) -> ConstGauge<i64> {
    ConstGauge::new(i64::try_from(number).unwrap_or(i64::MAX))
}

fn encode(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    unit: Option<&Unit>,
    metric: &impl EncodeMetric,
) -> Result<(), fmt::Error> {
    metric.encode(encoder.encode_descriptor(name, help, unit, metric.metric_type())?)
}
