//! The options of messages, logs and backups.

use std::time::Duration;

use lodestore_wire::parse_integer;

use super::ValueError;
use super::kinds::{self, one, shown};
use crate::config::{Config, OutputLimit, OutputLimits};
use crate::keyspace_events::{format_flags, parse_flags};

pub(super) fn notify(config: &Config) -> Vec<String> {
    let flags = parse_flags(config.notify_keyspace_events.as_bytes()).unwrap_or(0);
    kinds::shown_option(Some(&flags).filter(|flags| **flags != 0), |flags| format_flags(*flags))
}

pub(super) fn set_notify(config: &mut Config, values: &[String]) -> Result<(), ValueError> {
    let letters = one(values)?;
    parse_flags(letters.as_bytes()).ok_or("Invalid event class character. Use 'Ag$lshzxeKEtmdn'.")?;
    config.notify_keyspace_events = letters.into();
    Ok(())
}

pub(super) fn set_slow_time(config: &mut Config, values: &[String]) -> Result<(), ValueError> {
    let time = parse_integer(one(values)?.as_bytes()).filter(|time| *time >= -1);
    config.slow_microseconds = time.ok_or_else(|| out_of_range(values, -1))?;
    Ok(())
}

/// Reads a number that is not negative.
pub(super) fn count(values: &[String]) -> Result<usize, ValueError> {
    let number = parse_integer(one(values)?.as_bytes()).and_then(|number| usize::try_from(number).ok());
    number.ok_or_else(|| out_of_range(values, 0))
}

fn out_of_range(values: &[String], min: i64) -> ValueError {
    let text = format!("{:?} is not a whole number from {min} to {}", values.concat(), i64::MAX);
    ValueError::with_redis(text, kinds::redis_bounds(min, i64::MAX))
}

pub(super) fn limits(config: &Config) -> Vec<String> {
    let limits = config.output_limits;
    let classes = [("normal", limits.normal), ("slave", limits.replica), ("pubsub", limits.pubsub)];
    let text = |(class, limit): &(&str, OutputLimit)| {
        format!("{class} {} {} {}", limit.hard_bytes, limit.soft_bytes, limit.soft_time.as_secs())
    };
    shown(classes.iter().map(text).collect::<Vec<String>>().join(" "))
}

pub(super) fn set_limits(config: &mut Config, values: &[String]) -> Result<(), ValueError> {
    config.output_limits = parse_limits(config.output_limits, one(values)?)?;
    Ok(())
}

/// Reads groups of class, hard bound, soft bound and seconds. Other classes keep their bounds.
fn parse_limits(mut limits: OutputLimits, text: &str) -> Result<OutputLimits, ValueError> {
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    if words.is_empty() || !words.len().is_multiple_of(4) {
        return Err("Wrong number of arguments in buffer limit configuration.".into());
    }
    for group in words.chunks_exact(4) {
        let wrong = || ValueError::from("Error in hard, soft or soft_seconds setting in buffer limit configuration.");
        let limit = match (parse_bytes(group[1]), parse_bytes(group[2]), group[3].parse()) {
            (Some(hard_bytes), Some(soft_bytes), Ok(seconds)) => {
                OutputLimit { hard_bytes, soft_bytes, soft_time: Duration::from_secs(seconds) }
            }
            _ => return Err(wrong()),
        };
        match group[0].to_ascii_lowercase().as_str() {
            "normal" => limits.normal = limit,
            "slave" | "replica" => limits.replica = limit,
            "pubsub" => limits.pubsub = limit,
            _ => return Err("Invalid client class specified in buffer limit configuration.".into()),
        }
    }
    Ok(limits)
}

/// Reads a number of bytes with a unit of Redis: `k`, `kb`, `m`, `mb`, `g` or `gb`.
fn parse_bytes(text: &str) -> Option<usize> {
    let text = text.to_ascii_lowercase();
    let digits = text.trim_end_matches(|character: char| character.is_ascii_alphabetic());
    let unit: usize = match &text[digits.len()..] {
        "" | "b" => 1,
        "k" => 1000,
        "kb" => 1 << 10,
        "m" => 1_000_000,
        "mb" => 1 << 20,
        "g" => 1_000_000_000,
        "gb" => 1 << 30,
        _ => return None,
    };
    digits.parse::<usize>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_of_a_class_do_not_change_the_others() {
        let limits = parse_limits(OutputLimits::default(), "pubsub 1mb 1k 5 normal 2 1 3").unwrap();
        assert_eq!((limits.pubsub.hard_bytes, limits.pubsub.soft_bytes), (1 << 20, 1000));
        assert_eq!(limits.normal.soft_time, Duration::from_secs(3));
        assert_eq!(limits.replica, OutputLimits::default().replica);
        for text in ["", "pubsub 1 2", "pubsub 1 2 x", "other 1 2 3", "normal 1q 2 3"] {
            assert!(parse_limits(limits, text).is_err(), "{text}");
        }
    }
}
