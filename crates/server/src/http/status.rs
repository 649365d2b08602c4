//! `/status.json`: the numbers of the status page.

use std::fmt::Write as _;
use std::sync::atomic::Ordering;

use crate::shared::Shared;

/// Returns the numbers as one JSON object.
pub(super) fn json(shared: &Shared) -> String {
    let (stats, counters) = (shared.db().stats(), &shared.counters);
    let mut object = Object(String::from("{"));
    object.text("version", env!("CARGO_PKG_VERSION"));
    object.text("engine", stats.engine);
    object.text("medium", &stats.medium);
    object.text("durability", &stats.durability.to_string());
    object.number("uptime_s", shared.started.elapsed().as_secs());
    object.number("clients", shared.client_count() as u64);
    object.number("clients_max", shared.runtime.clients_max() as u64);
    for (name, counter) in [
        ("commands", &counters.commands),
        ("errors", &counters.errors),
        ("hits", &counters.hits),
        ("misses", &counters.misses),
        ("bytes_received", &counters.bytes_read),
        ("bytes_sent", &counters.bytes_written),
    ] {
        object.number(name, counter.load(Ordering::Relaxed));
    }
    object.number("keys", stats.keys);
    object.number("used_bytes", stats.space.live);
    object.number("capacity_bytes", stats.space.capacity);
    object.number("size_bytes", stats.space.size);
    object.number("dram_bytes", stats.dram_bytes);
    object.number("memory_max", shared.runtime.memory_max());
    object.number("recovery_done", stats.recovery.done.into());
    object.number("ready_after_us", micros(stats.recovery.ready_after));
    object.number("recovery_took_us", micros(stats.recovery.took));
    object.number("stopping", shared.is_stopping().into());
    object.finish()
}

fn micros(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// A JSON object under construction.
struct Object(String);

impl Object {
    fn name(&mut self, name: &str) {
        if self.0.len() > 1 {
            self.0.push(',');
        }
        // Writing to a string does not fail.
        let _ = write!(self.0, "\"{name}\":");
    }

    fn number(&mut self, name: &str, number: u64) {
        self.name(name);
        let _ = write!(self.0, "{number}");
    }

    fn text(&mut self, name: &str, text: &str) {
        self.name(name);
        self.0.push('"');
        for character in text.chars() {
            match character {
                '"' | '\\' => self.0.extend(['\\', character]),
                control if control.is_control() => {
                    let _ = write!(self.0, "\\u{:04x}", u32::from(control));
                }
                other => self.0.push(other),
            }
        }
        self.0.push('"');
    }

    fn finish(mut self) -> String {
        self.0.push_str("}\n");
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_escaped() {
        let mut object = Object("{".into());
        object.number("a", 1);
        object.text("b", "\"\\\n\u{e9}");
        assert_eq!(object.finish(), "{\"a\":1,\"b\":\"\\\"\\\\\\u000a\u{e9}\"}\n");
    }
}
