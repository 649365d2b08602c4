//! Latencies: for each workload, the length that a share of the calls does not exceed, a line per
//! store. Both scales are logarithmic: each mark to the right excludes nine tenths of the remaining
//! calls.

use super::choice::{SERIES_MAX, choose};
use super::describe::{describe, named};
use super::figure::Figure;
use super::lines::{Axis, Line, Lines, Spot, scale_of};
use super::unit::Unit;
use crate::row::{Row, distinct};

/// Height of a panel.
const PANEL_PIXELS: f64 = 300.0;
const ACROSS_MAX: usize = 2;

/// A percentile of a row: its name, the share of calls beyond it as a number of calls, and its
/// length.
struct Percentile {
    name: &'static str,
    one_of: u64,
    of: fn(&Row) -> u64,
}

const PERCENTILES: [Percentile; 5] = [
    Percentile { name: "50 %", one_of: 2, of: |row| row.p50_ns },
    Percentile { name: "90 %", one_of: 10, of: |row| row.p90_ns },
    Percentile { name: "99 %", one_of: 100, of: |row| row.p99_ns },
    Percentile { name: "99.9 %", one_of: 1000, of: |row| row.p999_ns },
    Percentile { name: "99.99 %", one_of: 10_000, of: |row| row.p9999_ns },
];

impl Percentile {
    fn place(&self) -> f64 {
        (self.one_of as f64).log10()
    }
}

/// Returns the rows of a plot of latencies: open loops if there are any, since a closed loop does
/// not measure the calls that a stalled store would have received.
fn timed(rows: &[Row]) -> Vec<&Row> {
    let all = || rows.iter().filter(|row| row.failed.is_none() && row.reopen.is_none() && row.samples >= 2);
    let open: Vec<&Row> = all().filter(|row| row.open_loop.is_some()).collect();
    if open.is_empty() { all().collect() } else { open }
}

/// Draws the latencies of these rows.
pub(crate) fn draw(rows: &[Row]) -> String {
    let rows = timed(rows);
    // The score is that of the tail, as far as there are calls.
    let choice = choose(&rows, &|row| Some(1.0 / last(row).max(1.0)));
    let rows = choice.rows(&rows);
    let name = |row: &Row| match &row.sweep {
        Some(swept) => format!("{} {swept}", named(&rows, &row.store)),
        None => named(&rows, &row.store),
    };
    let names = distinct(rows.iter().map(|row| name(row)));
    let line = |row: &&Row| {
        let name = name(row);
        let series = names.iter().position(|known| *known == name)?;
        (series < SERIES_MAX).then(|| Line { name, series, pieces: vec![spots(row)] })
    };
    let panel = |workload: &str| {
        let lines: Vec<Line> = rows.iter().filter(|row| row.workload == workload).filter_map(line).collect();
        (workload.to_string(), lines)
    };
    let panels: Vec<_> = distinct(rows.iter().map(|row| row.workload.as_str())).into_iter().map(panel).collect();
    let scale = scale_of(panels.iter().flat_map(|(_, lines)| lines));
    let right = panels.iter().flat_map(|(_, lines)| lines).flat_map(|line| &line.pieces[0]).map(|spot| spot.x);
    let right = right.fold(1.0, f64::max);
    let shown = PERCENTILES.iter().filter(|percentile| percentile.place() <= right);
    let marks = shown.map(|percentile| (percentile.place(), percentile.name.to_string())).collect();
    let axis = Axis { name: "share of calls that last no longer".into(), ends: [0.2, right + 0.1], marks };
    let asked = rows.iter().find_map(|row| row.open_loop.as_ref());
    let asked = asked.map(|found| format!("open loop of {} a second; ", found.asked_per_s)).unwrap_or_default();
    let mut note = format!("{asked}{}", describe(&rows));
    if !choice.note.is_empty() {
        note += &format!("; {}", choice.note);
    }
    if names.len() > SERIES_MAX {
        note += &format!("; the first {SERIES_MAX} of {} lines", names.len());
    }
    let panels = panels.into_iter().map(|(caption, lines)| Lines {
        caption,
        unit: Unit::Nanos,
        axis: axis.clone(),
        scale,
        lines,
        places: Vec::new(),
        height: PANEL_PIXELS,
    });
    Figure { title: "Latency of a call".into(), note, panels: panels.collect(), across: ACROSS_MAX }.svg()
}

/// Returns the percentiles of a row as far as there are calls beyond them.
fn spots(row: &Row) -> Vec<Spot> {
    let known = PERCENTILES.iter().filter(|percentile| row.samples >= percentile.one_of);
    known.map(|percentile| Spot::at(percentile.place(), (percentile.of)(row) as f64)).collect()
}

/// Returns the last percentile of a row.
fn last(row: &Row) -> f64 {
    spots(row).last().map_or(0.0, |spot| spot.y)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::OpenLoop;

    fn row(store: &str, workload: &str, samples: u64) -> Row {
        let mut row = Row { samples, durability: "process".into(), ..Row::of_rate(store, workload, 1.0) };
        (row.p50_ns, row.p90_ns, row.p99_ns, row.p999_ns, row.p9999_ns) = (100, 200, 3000, 40_000, 500_000);
        row
    }

    #[test]
    fn a_line_goes_as_far_as_there_are_calls() {
        assert_eq!(spots(&row("hikv", "get", 5000)).len(), 4);
        assert_eq!(spots(&row("hikv", "get", 10_000)).last().map(|spot| (spot.x, spot.y)), Some((4.0, 500_000.0)));
        assert!(spots(&row("hikv", "get", 1)).is_empty());
    }

    #[test]
    fn open_loops_have_a_plot_without_the_closed_ones() {
        let open = Row { open_loop: Some(OpenLoop { asked_per_s: 500, kept_up: true }), ..row("hikv", "a", 1000) };
        let rows = [row("hikv", "load", 1000), row("hikv", "a", 1000), open];
        assert_eq!((timed(&rows).len(), timed(&rows[..2]).len()), (1, 2));
        let svg = draw(&rows);
        for text in ["Latency of a call", "open loop of 500 a second", ">a<", ">hikv<", "99.9 %", "us<"] {
            assert!(svg.contains(text), "{text}: {svg}");
        }
        assert!(!svg.contains(">load<") && !svg.contains("99.99 %"), "{svg}");
        draw(&[]);
    }
}
