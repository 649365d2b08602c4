//! The log on standard error: a line for each message, as text or as a JSON object.

use std::fmt::{self, Write as _};
use std::io::{self, Write as _};
use std::time::{SystemTime, UNIX_EPOCH};

use lodestore_server::{LogConfig, LogLevel};
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Name of the field with the text of a message.
const MESSAGE: &str = "message";

const DAY_SECONDS: u64 = 86_400;

/// Starts the log.
pub fn start(config: &LogConfig) {
    let level = match config.level {
        LogLevel::Error => Level::ERROR,
        LogLevel::Warn => Level::WARN,
        LogLevel::Info => Level::INFO,
        LogLevel::Debug => Level::DEBUG,
        LogLevel::Trace => Level::TRACE,
    };
    // A process has one log.
    drop(tracing::subscriber::set_global_default(Log { level, is_json: config.is_json }));
}

/// Writes messages. The server has no spans.
struct Log {
    level: Level,
    is_json: bool,
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() <= self.level
    }

    fn max_level_hint(&self) -> Option<tracing::level_filters::LevelFilter> {
        Some(self.level.into())
    }

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let time = rfc3339(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros());
        let level = event.metadata().level();
        let line = if self.is_json { fields.json(&time, level) } else { fields.text(&time, level) };
        // Without standard error there is no log.
        drop(io::stderr().lock().write_all(line.as_bytes()));
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// The fields of a message.
#[derive(Default)]
struct Fields(Map<String, Value>);

impl Fields {
    fn json(self, time: &str, level: &Level) -> String {
        let head = [("time".to_owned(), time.into()), ("level".to_owned(), level.as_str().to_lowercase().into())];
        let object: Map<String, Value> = head.into_iter().chain(self.0).collect();
        format!("{}\n", Value::Object(object))
    }

    fn text(mut self, time: &str, level: &Level) -> String {
        let message = match self.0.shift_remove(MESSAGE) {
            Some(Value::String(text)) => text,
            other => other.unwrap_or_default().to_string(),
        };
        let mut line = format!("{time} {level:5} {}", message.replace(['\n', '\r'], " "));
        for (name, value) in &self.0 {
            // Writing to a string does not fail.
            let _ = write!(line, " {name}={value}");
        }
        line + "\n"
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name().into(), format!("{value:?}").into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().into(), value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.0.insert(field.name().into(), value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.0.insert(field.name().into(), value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.0.insert(field.name().into(), value.into());
    }
}

/// Returns a time in UTC by RFC 3339.
fn rfc3339(micros: u128) -> String {
    let (seconds, micros) = (u64::try_from(micros / 1_000_000).unwrap_or(u64::MAX), micros % 1_000_000);
    let (year, month, day) = date(seconds / DAY_SECONDS);
    let second = seconds % DAY_SECONDS;
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z")
}

/// Returns year, month and day of a number of days since 1970.
fn date(days: u64) -> (u64, u64, u64) {
    let (mut year, mut left) = (1970, days);
    let is_leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    while left >= 365 + u64::from(is_leap(year)) {
        left -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let lengths = [31, 28 + u64::from(is_leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 1;
    for length in lengths {
        if left < length {
            break;
        }
        left -= length;
        month += 1;
    }
    (year, month, left + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_agree_with_the_calendar() {
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00.000000Z"),
            (951_782_399, "2000-02-28T23:59:59.000000Z"),
            (951_782_400, "2000-02-29T00:00:00.000000Z"),
            (1_795_651_200, "2026-11-26T00:00:00.000000Z"),
            (1_798_761_599, "2026-12-31T23:59:59.000000Z"),
        ] {
            assert_eq!(rfc3339(seconds * 1_000_000), expected);
        }
    }

    #[test]
    fn a_message_is_one_line() {
        let fields =
            || Fields([(MESSAGE.to_owned(), "a\nb".into()), ("size".to_owned(), 3.into())].into_iter().collect());
        assert_eq!(fields().text("T", &Level::WARN), "T WARN  a b size=3\n");
        let json = "{\"time\":\"T\",\"level\":\"info\",\"message\":\"a\\nb\",\"size\":3}\n";
        assert_eq!(fields().json("T", &Level::INFO), json);
    }
}
