//! Texts of values, and the values of texts. Error texts are those of Redis, if Redis has them.

use std::fmt::Display;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use lodestore::stats::{format_size, parse_size};

use super::ValueError;
use crate::config::{DebugClients, LogLevel, PORT_DEFAULT};

/// The words of [`LogLevel`]. The first word of a level is its name; others are Redis' names.
const LEVELS: [(&str, LogLevel); 8] = [
    ("error", LogLevel::Error),
    ("warn", LogLevel::Warn),
    ("warning", LogLevel::Warn),
    ("info", LogLevel::Info),
    ("notice", LogLevel::Info),
    ("debug", LogLevel::Debug),
    ("verbose", LogLevel::Debug),
    ("trace", LogLevel::Trace),
];

/// Returns the only value.
pub(super) fn one(values: &[String]) -> Result<&str, ValueError> {
    match values {
        [value] => Ok(value),
        _ => Err("use one value".into()),
    }
}

/// Reads a whole number within bounds.
pub(super) fn number(values: &[String], min: usize, max: usize) -> Result<usize, ValueError> {
    let value = one(values)?;
    let text = || format!("{value:?} is not a whole number from {min} to {max}");
    let number: i128 =
        value.parse().map_err(|_| ValueError::with_redis(text(), "argument couldn't be parsed into an integer"))?;
    bounded(number, min, max).ok_or_else(|| ValueError::with_redis(text(), redis_bounds(min, max)))
}

fn bounded(value: i128, min: usize, max: usize) -> Option<usize> {
    usize::try_from(value).ok().filter(|number| (min..=max).contains(number))
}

/// Returns Redis' text for a number out of bounds.
pub(super) fn redis_bounds(min: impl Display, max: impl Display) -> String {
    format!("argument must be between {min} and {max} inclusive")
}

/// Reads a number of seconds.
pub(super) fn seconds(values: &[String]) -> Result<Duration, ValueError> {
    number(values, 0, i32::MAX as usize).map(|seconds| Duration::from_secs(seconds as u64))
}

/// Reads a size in bytes: a number, or a number with K, M, G or T, which are powers of 1024.
pub(super) fn size(values: &[String]) -> Result<u64, ValueError> {
    let value = one(values)?;
    parse_size(value).map_err(|_| {
        let text = format!("{value:?} is not a size: use a number, optionally with K, M, G or T");
        ValueError::with_redis(text, "argument must be a memory value")
    })
}

/// Reads a size in bytes within bounds.
pub(super) fn size_within(values: &[String], min: usize, max: usize) -> Result<usize, ValueError> {
    bounded(size(values)?.into(), min, max).ok_or_else(|| {
        let (least, greatest) = (format_size(min as u64), format_size(max as u64));
        let text = format!("{:?} is not a size from {least} to {greatest}", values.concat());
        ValueError::with_redis(text, redis_bounds(min, max))
    })
}

/// Reads `yes` or `no`.
pub(super) fn boolean(values: &[String]) -> Result<bool, ValueError> {
    let value = one(values)?;
    match value.to_ascii_lowercase().as_str() {
        "yes" | "true" => Ok(true),
        "no" | "false" => Ok(false),
        _ => {
            let text = format!("{value:?} is neither yes nor no");
            Err(ValueError::with_redis(text, "argument must be 'yes' or 'no'"))
        }
    }
}

/// Reads a text. An empty text means that there is none.
pub(super) fn text(values: &[String]) -> Result<Option<String>, ValueError> {
    Ok(Some(one(values)?.to_owned()).filter(|text| !text.is_empty()))
}

/// Reads a path. An empty text means that there is none.
pub(super) fn path(values: &[String]) -> Result<Option<PathBuf>, ValueError> {
    Ok(text(values)?.map(PathBuf::from))
}

/// Reads permissions of a file in octal digits.
pub(super) fn permissions(values: &[String]) -> Result<Option<u32>, ValueError> {
    let Some(text) = text(values)? else { return Ok(None) };
    match u32::from_str_radix(&text, 8) {
        Ok(0) => Ok(None),
        Ok(bits @ 1..=0o777) => Ok(Some(bits)),
        _ => {
            let error = format!("{text:?} is not a number of octal digits from 0 to 777");
            Err(ValueError::with_redis(error, "argument must be octal digits between 0 and 777"))
        }
    }
}

/// Reads addresses of TCP. `none` is no address.
pub(super) fn addresses(values: &[String]) -> Result<Vec<SocketAddr>, ValueError> {
    if values.iter().all(|value| value.is_empty() || value == "none") {
        return Ok(Vec::new());
    }
    values.iter().map(|value| address(value)).collect()
}

/// Reads an address of TCP: `127.0.0.1:6379`, `[::1]:6379`, `localhost:6379`, or an IP address,
/// which gets the port of Redis.
pub(super) fn address(text: &str) -> Result<SocketAddr, ValueError> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    if let Ok(ip) = ip(text) {
        return Ok(SocketAddr::new(ip, PORT_DEFAULT));
    }
    let local = text.strip_prefix("localhost:").and_then(|port| port.parse().ok());
    let local = local.map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    local.ok_or_else(|| {
        format!("{text:?} is not an address: use an IP address and a port, such as 127.0.0.1:6379").into()
    })
}

/// Reads an IP address. `*` and `::*` are all addresses. A preceding `-`, as Redis allows for an
/// address that may be missing, is ignored.
pub(super) fn ip(text: &str) -> Result<IpAddr, ValueError> {
    match text.strip_prefix('-').unwrap_or(text) {
        "*" => Ok(Ipv4Addr::UNSPECIFIED.into()),
        "::*" => Ok(Ipv6Addr::UNSPECIFIED.into()),
        "localhost" => Ok(Ipv4Addr::LOCALHOST.into()),
        text => text.parse().map_err(|_| format!("{text:?} is not an IP address").into()),
    }
}

/// Reads a level of the log.
pub(super) fn level(values: &[String]) -> Result<LogLevel, ValueError> {
    choice(values, &LEVELS.map(|(name, _)| name)).map(|index| LEVELS[index].1)
}

/// Returns the name of a level.
pub(super) fn level_name(level: LogLevel) -> String {
    LEVELS.iter().find(|(_, known)| *known == level).map_or_else(String::new, |(name, _)| (*name).into())
}

/// The words of [`DebugClients`].
const DEBUG_CLIENTS: [(&str, DebugClients); 3] =
    [("no", DebugClients::Nobody), ("yes", DebugClients::Everybody), ("local", DebugClients::Local)];

/// Reads which clients may run `DEBUG`.
pub(super) fn debug_clients(values: &[String]) -> Result<DebugClients, ValueError> {
    let words = DEBUG_CLIENTS.map(|(word, _)| word);
    choice(values, &words).map(|index| DEBUG_CLIENTS[index].1)
}

/// Returns the word for the clients that may run `DEBUG`.
pub(super) fn debug_clients_name(clients: DebugClients) -> &'static str {
    DEBUG_CLIENTS.iter().find(|(_, known)| *known == clients).map_or("", |(word, _)| word)
}

/// Reads one of several words, and returns its index.
pub(super) fn choice(values: &[String], words: &[&str]) -> Result<usize, ValueError> {
    let value = one(values)?;
    let index = words.iter().position(|known| known.eq_ignore_ascii_case(value));
    index.ok_or_else(|| {
        let words = words.join(", ");
        let redis = format!("argument(s) must be one of the following: {words}");
        ValueError::with_redis(format!("{value:?} is not one of {words}"), redis)
    })
}

/// Returns the text of a value.
pub(super) fn shown(value: impl Display) -> Vec<String> {
    vec![value.to_string()]
}

/// Returns the text of a value that may be absent.
pub(super) fn shown_option<T>(value: Option<&T>, text: impl FnOnce(&T) -> String) -> Vec<String> {
    value.map(text).into_iter().collect()
}

/// Returns `yes` or `no`.
pub(super) fn shown_boolean(is_true: bool) -> Vec<String> {
    shown(if is_true { "yes" } else { "no" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_a_port_or_get_the_port_of_redis() {
        for (text, expected) in [
            ("127.0.0.1:7000", "127.0.0.1:7000"),
            ("[::1]:7000", "[::1]:7000"),
            ("::1", "[::1]:6379"),
            ("10.0.0.1", "10.0.0.1:6379"),
            ("localhost:1", "127.0.0.1:1"),
            ("*", "0.0.0.0:6379"),
        ] {
            assert_eq!(address(text).map(|address| address.to_string()), Ok(expected.to_owned()));
        }
        for text in ["", "host:1", "127.0.0.1:", "127.0.0.1:70000", ":6379"] {
            assert!(address(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn numbers_are_bounded() {
        let one = |text: &str| [text.to_owned()];
        assert_eq!(number(&one("7"), 1, 9), Ok(7));
        for (text, redis) in [("0", "between 1 and 9"), ("10", "between"), ("-1", "between"), ("x", "integer")] {
            let error = number(&one(text), 1, 9).expect_err("a refusal");
            assert!(error.redis_text().contains(redis), "{error:?}");
            assert_eq!(error.to_string(), format!("{text:?} is not a whole number from 1 to 9"));
        }
        assert!(number(&[], 1, 9).is_err());
    }
}
