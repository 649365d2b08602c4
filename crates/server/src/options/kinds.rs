//! Texts of values, and the values of texts. Error texts are those of Redis, if Redis has them.

use std::fmt::Display;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use lodestore::stats::parse_size;

use crate::config::{DebugClients, LogLevel, PORT};

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
pub(super) fn one(values: &[String]) -> Result<&str, String> {
    match values {
        [value] => Ok(value),
        _ => Err("give one value".into()),
    }
}

/// Reads a whole number within bounds.
pub(super) fn number(values: &[String], min: usize, max: usize) -> Result<usize, String> {
    let value: i128 = one(values)?.parse().map_err(|_| "argument couldn't be parsed into an integer".to_owned())?;
    bounded(value, min, max)
}

fn bounded(value: i128, min: usize, max: usize) -> Result<usize, String> {
    let number = usize::try_from(value).ok().filter(|number| (min..=max).contains(number));
    number.ok_or_else(|| format!("argument must be between {min} and {max} inclusive"))
}

/// Reads a number of seconds.
pub(super) fn seconds(values: &[String]) -> Result<Duration, String> {
    number(values, 0, i32::MAX as usize).map(|seconds| Duration::from_secs(seconds as u64))
}

/// Reads a size in bytes: a number, or a number with K, M, G or T, which are powers of 1024.
pub(super) fn size(values: &[String]) -> Result<u64, String> {
    parse_size(one(values)?).map_err(|_| "argument must be a memory value".to_owned())
}

/// Reads a size in bytes within bounds.
pub(super) fn size_within(values: &[String], min: usize, max: usize) -> Result<usize, String> {
    bounded(size(values)?.into(), min, max)
}

/// Reads `yes` or `no`.
pub(super) fn boolean(values: &[String]) -> Result<bool, String> {
    match one(values)?.to_ascii_lowercase().as_str() {
        "yes" | "true" => Ok(true),
        "no" | "false" => Ok(false),
        _ => Err("argument must be 'yes' or 'no'".into()),
    }
}

/// Reads a text. An empty text means that there is none.
pub(super) fn text(values: &[String]) -> Result<Option<String>, String> {
    Ok(Some(one(values)?.to_owned()).filter(|text| !text.is_empty()))
}

/// Reads a path. An empty text means that there is none.
pub(super) fn path(values: &[String]) -> Result<Option<PathBuf>, String> {
    Ok(text(values)?.map(PathBuf::from))
}

/// Reads permissions of a file in octal digits.
pub(super) fn permissions(values: &[String]) -> Result<Option<u32>, String> {
    let Some(text) = text(values)? else { return Ok(None) };
    match u32::from_str_radix(&text, 8) {
        Ok(0) => Ok(None),
        Ok(bits @ 1..=0o777) => Ok(Some(bits)),
        _ => Err("argument must be octal digits between 0 and 777".into()),
    }
}

/// Reads addresses of TCP. `none` is no address.
pub(super) fn addresses(values: &[String]) -> Result<Vec<SocketAddr>, String> {
    if values.iter().all(|value| value.is_empty() || value == "none") {
        return Ok(Vec::new());
    }
    values.iter().map(|value| address(value)).collect()
}

/// Reads an address of TCP: `127.0.0.1:6379`, `[::1]:6379`, `localhost:6379`, or an IP address,
/// which gets the port of Redis.
pub(super) fn address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    if let Ok(ip) = ip(text) {
        return Ok(SocketAddr::new(ip, PORT));
    }
    let local = text.strip_prefix("localhost:").and_then(|port| port.parse().ok());
    let local = local.map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    local.ok_or_else(|| format!("{text:?} is no address: give an IP address and a port, such as 127.0.0.1:6379"))
}

/// Reads an IP address. `*` and `::*` are all addresses. A `-` before it, as Redis allows for an
/// address that may be missing, is left out.
pub(super) fn ip(text: &str) -> Result<IpAddr, String> {
    match text.strip_prefix('-').unwrap_or(text) {
        "*" => Ok(Ipv4Addr::UNSPECIFIED.into()),
        "::*" => Ok(Ipv6Addr::UNSPECIFIED.into()),
        "localhost" => Ok(Ipv4Addr::LOCALHOST.into()),
        text => text.parse().map_err(|_| format!("{text:?} is no IP address")),
    }
}

/// Reads a level of the log.
pub(super) fn level(values: &[String]) -> Result<LogLevel, String> {
    let word = one(values)?.to_ascii_lowercase();
    let found = LEVELS.iter().find(|(name, _)| *name == word).map(|(_, level)| *level);
    found.ok_or_else(|| {
        let names: Vec<&str> = LEVELS.iter().map(|(name, _)| *name).collect();
        format!("argument(s) must be one of the following: {}", names.join(", "))
    })
}

/// Returns the name of a level.
pub(super) fn level_name(level: LogLevel) -> String {
    LEVELS.iter().find(|(_, known)| *known == level).map_or_else(String::new, |(name, _)| (*name).into())
}

/// The words of [`DebugClients`].
const DEBUG_CLIENTS: [(&str, DebugClients); 3] =
    [("no", DebugClients::Nobody), ("yes", DebugClients::Everybody), ("local", DebugClients::Local)];

/// Reads which clients may run `DEBUG`.
pub(super) fn debug_clients(values: &[String]) -> Result<DebugClients, String> {
    let words = DEBUG_CLIENTS.map(|(word, _)| word);
    choice(values, &words).map(|index| DEBUG_CLIENTS[index].1)
}

/// Returns the word for the clients that may run `DEBUG`.
pub(super) fn debug_clients_name(clients: DebugClients) -> &'static str {
    DEBUG_CLIENTS.iter().find(|(_, known)| *known == clients).map_or("", |(word, _)| word)
}

/// Reads one of several words, and returns its index.
pub(super) fn choice(values: &[String], words: &[&str]) -> Result<usize, String> {
    let word = one(values)?.to_ascii_lowercase();
    let index = words.iter().position(|known| *known == word);
    index.ok_or_else(|| format!("argument(s) must be one of the following: {}", words.join(", ")))
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
        for (text, part) in [("0", "between 1 and 9"), ("10", "between"), ("-1", "between"), ("x", "integer")] {
            assert!(number(&one(text), 1, 9).is_err_and(|error| error.contains(part)), "{text}");
        }
        assert!(number(&[], 1, 9).is_err());
    }
}
