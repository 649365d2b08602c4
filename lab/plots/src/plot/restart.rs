//! The time from `exec` to the first answered `GET` over the number of keys, a line per server:
//! from the JSON lines of the bench's example `restart`.

use std::io::{Error, ErrorKind, Result};

use serde::Deserialize;

use super::figure::Figure;
use super::lines::{Axis, Line, Lines, Spot, scale_of};
use super::unit::Unit;
use crate::row::distinct;

/// Height of the panel.
const PANEL_PIXELS: f64 = 380.0;

/// The restarts of one server at one number of keys.
#[derive(Debug, Clone, Deserialize)]
struct Restarts {
    server: String,
    keys: u64,
    value_bytes: u64,
    /// Times in milliseconds: the median of the restarts, the least and the greatest.
    first_get_ms: [f64; 3],
}

/// Draws the restarts of these JSON lines.
///
/// # Errors
/// A line is no restart, or there is no line.
pub(crate) fn draw(lines: &str) -> Result<String> {
    let rows: Vec<Restarts> = lines
        .lines()
        .map(serde_json::from_str)
        .collect::<std::result::Result<_, _>>()
        .map_err(|error| Error::new(ErrorKind::InvalidData, error))?;
    let Some(first) = rows.first() else { return Err(Error::new(ErrorKind::InvalidData, "there is no line")) };
    let place = |keys: u64| (keys.max(1) as f64).log10();
    let line = |(series, server): (usize, &str)| {
        let spot = |row: &Restarts| {
            let [y, least, most] = row.first_get_ms.map(|ms| ms * 1e6);
            Spot { x: place(row.keys), y, range: [least, most] }
        };
        Line {
            name: server.into(),
            series,
            pieces: vec![rows.iter().filter(|row| row.server == server).map(spot).collect()],
        }
    };
    let drawn: Vec<Line> =
        distinct(rows.iter().map(|row| row.server.as_str())).into_iter().enumerate().map(line).collect();
    let keys = distinct(rows.iter().map(|row| row.keys));
    let places = || keys.iter().map(|keys| place(*keys));
    let marks = keys.iter().map(|keys| (place(*keys), Unit::Count.text(*keys as f64))).collect();
    let ends = [places().fold(f64::INFINITY, f64::min) - 0.05, places().fold(0.0, f64::max) + 0.05];
    let scale = scale_of(drawn.iter());
    let note = format!(
        "After kill -9 under load; keys of 16 bytes, with values of {} bytes; medians, thin lines from the least to the \
         greatest; logarithmic scale{}",
        first.value_bytes,
        if scale.is_log() { "s" } else { " of keys" },
    );
    let axis = Axis { name: "keys".into(), ends, marks };
    let panel = Lines {
        caption: String::new(),
        unit: Unit::Nanos,
        axis,
        scale,
        lines: drawn,
        places: Vec::new(),
        height: PANEL_PIXELS,
    };
    Ok(Figure { title: "From exec to the first GET".into(), note, panels: vec![panel], across: 1 }.svg())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_server_has_a_line_over_the_keys() {
        let line = |server: &str, keys: u64, ms: f64| {
            format!(
                "{{\"server\":\"{server}\",\"keys\":{keys},\"value_bytes\":64,\"first_get_ms\":[{ms},{ms},{ms}]}}\n"
            )
        };
        let lines =
            [line("lodestore", 100_000, 9.0), line("lodestore", 1_000_000, 10.0), line("redis", 100_000, 900.0)];
        let svg = draw(&lines.concat()).expect("a picture");
        for text in [">lodestore<", ">redis<", ">100 k<", ">1 M<", "values of 64 bytes", "logarithmic scales"] {
            assert!(svg.contains(text), "{text}: {svg}");
        }
        assert!(draw("").is_err() && draw("{}").is_err());
    }
}
