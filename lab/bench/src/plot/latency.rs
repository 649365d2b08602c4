//! Latencies as an SVG picture. For each workload: the share of calls over the maximum duration of
//! that share, a line per store. Both scales are logarithmic: each mark to the right excludes nine
//! tenths of the remaining calls.

use std::path::Path;

use lodestore_contract::{Error, Result};
use plotters::coord::Shift;
use plotters::prelude::*;

use crate::args::Args;
use crate::plot::{COLOURS, Drawn, legend, marked, title};
use crate::report::row::{Row, rows};
use crate::report::{ns_text, swept_store};
use crate::run::latency_curve::PART_POINT_COUNT;
use crate::run::session::Findings;
use crate::workload::Turn;

/// Size of a panel.
const PANEL: (u32, u32) = (480, 400);
/// Maximum panels in a row.
const ROW_PANELS_MAX: usize = 3;
/// Height of the title above the panels.
const TITLE_HEIGHT_PIXELS: u32 = 28;

/// Draws the medians of a run to `file`.
///
/// # Errors
/// [`Error::Io`] if the file cannot be written.
pub(crate) fn draw(args: &Args, findings: &Findings, file: &Path) -> Result<()> {
    let rows = rows(args, findings);
    let picture = picture(args, &rows).map_err(|error| std::io::Error::other(error.to_string()));
    let written = picture.and_then(|svg| std::fs::write(file, svg));
    written.map_err(|source| Error::io("writing the plot", file, source))
}

/// A workload's part of the picture: its name, and each line's name and points.
#[derive(Debug, PartialEq)]
struct Panel {
    workload: String,
    lines: Vec<(String, Vec<(f64, f64)>)>,
}

/// Returns a panel for each workload with timed calls, in the order in which they ran.
fn panels(args: &Args, rows: &[Row]) -> Vec<Panel> {
    let spot = |(place, ns): (usize, &u64)| (place as f64 / f64::from(PART_POINT_COUNT), (*ns as f64).max(1.0).log10());
    let name = |row: &Row| match marked(rows, &row.store) {
        store if store == row.store => swept_store(row),
        _ => format!("{}: {}", swept_store(row), row.durability),
    };
    let line = |row: &Row| (name(row), row.latency_curve.iter().enumerate().map(spot).collect());
    let panel = |turn: &Turn| {
        let workload = turn.name();
        let timed = rows.iter().filter(|row| row.workload == workload && !row.latency_curve.is_empty());
        Panel { lines: timed.map(line).collect(), workload }
    };
    Turn::all(&args.workloads).iter().map(panel).filter(|panel| !panel.lines.is_empty()).collect()
}

/// Returns the common scales of all panels: the maximum to the right, and the powers of ten that
/// enclose all lines.
fn scales(panels: &[Panel]) -> (f64, std::ops::Range<f64>) {
    let spots = || panels.iter().flat_map(|panel| &panel.lines).flat_map(|(_, line)| line);
    let right = spots().map(|spot| spot.0).fold(1.0, f64::max);
    let least = spots().map(|spot| spot.1).fold(f64::INFINITY, f64::min).floor();
    let most = spots().map(|spot| spot.1).fold(1.0, f64::max).ceil();
    let least = if least < most { least } else { most - 1.0 };
    (right.ceil(), least..most)
}

/// Returns the label of a mark on the lower scale: the share of calls to its left.
fn share_text(tenths: f64) -> String {
    let whole = tenths.round();
    if (tenths - whole).abs() > 1e-6 {
        return String::new();
    }
    format!("{:.*} %", (whole as usize).saturating_sub(2), 100.0 - 100.0 * 0.1_f64.powf(whole))
}

fn picture(args: &Args, rows: &[Row]) -> std::result::Result<String, Box<dyn std::error::Error>> {
    let panels = panels(args, rows);
    let across = panels.len().clamp(1, ROW_PANELS_MAX);
    let down = panels.len().div_ceil(across).max(1);
    let mut svg = String::new();
    {
        let size = (PANEL.0 * across.max(2) as u32, TITLE_HEIGHT_PIXELS + PANEL.1 * down as u32);
        let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        area.fill(&WHITE)?;
        let asked = args.rate.map(|rate| format!(", open loop of {rate} a second")).unwrap_or_default();
        let below = area.titled(&format!("{}{asked}", title(args, rows)), ("sans-serif", 15))?;
        let scales = scales(&panels);
        for (panel, area) in panels.iter().zip(&below.split_evenly((down, across))) {
            panel.draw(area, &scales)?;
        }
        area.present()?;
    }
    Ok(svg)
}

impl Panel {
    fn draw(&self, area: &DrawingArea<SVGBackend<'_>, Shift>, scales: &(f64, std::ops::Range<f64>)) -> Drawn {
        let (right, heights) = scales;
        let mut chart = ChartBuilder::on(area)
            .caption(&self.workload, ("sans-serif", 14))
            .margin(12)
            .margin_right(28)
            .x_label_area_size(40)
            .y_label_area_size(64)
            .build_cartesian_2d(0.0..*right, heights.clone())?;
        chart
            .configure_mesh()
            .max_light_lines(1)
            .x_labels(*right as usize + 1)
            .x_label_formatter(&|tenths| share_text(*tenths))
            .x_desc("share of calls")
            .y_labels((heights.end - heights.start) as usize + 1)
            .y_label_formatter(&|power| ns_text(10_f64.powf(*power).round() as u64))
            .y_desc("that last no longer")
            .label_style(("sans-serif", 12))
            .draw()?;
        for (place, (name, line)) in self.lines.iter().enumerate() {
            let colour = COLOURS[place % COLOURS.len()];
            chart
                .draw_series(LineSeries::new(line.iter().copied(), colour.stroke_width(2)))?
                .label(name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 14, y)], colour.stroke_width(2)));
        }
        legend(&mut chart, SeriesLabelPosition::LowerRight)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::parsed;
    use crate::report::row::Swept;

    #[test]
    fn marks_are_called_by_the_share_left_of_them() {
        assert_eq!([0.0, 1.0, 2.0, 3.0, 5.0].map(share_text), ["0 %", "90 %", "99 %", "99.9 %", "99.999 %"]);
        assert_eq!(share_text(0.5), "");
    }

    fn row(store: &str, workload: &str, value: Option<&str>, latency_curve: Vec<u64>) -> Row {
        let mut row = Row::for_plot(store, workload, 1.0);
        row.sweep = value.map(|value| Swept { name: "rate".into(), value: value.into() });
        row.latency_curve = latency_curve;
        row
    }

    #[test]
    fn lines_of_stores_of_another_durability_say_so() {
        let at = |store: &str, level: &str| Row { durability: level.into(), ..row(store, "get", Some("1"), vec![9]) };
        let args = parsed("--engine hikv --peers hashmap --workloads get --sweep rate=1,2");
        let panels = panels(&args, &[at("hikv", "process"), at("hashmap", "none")]);
        let names: Vec<_> = panels[0].lines.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["hikv rate=1: process", "hashmap rate=1: none"]);
    }

    #[test]
    fn each_timed_workload_has_a_panel_with_a_line_for_each_store_and_value() {
        let args = parsed("--engine hikv --peers hashmap --workloads load,get,idle,get --sweep rate=1,2");
        let rows = [
            row("hikv", "get", Some("1"), vec![100, 1000]),
            row("hikv", "get", Some("2"), vec![100]),
            row("hashmap", "get", Some("1"), vec![10, 20_000]),
            row("hikv", "get-2", Some("1"), vec![300]),
            row("hikv", "idle", Some("1"), vec![]),
        ];
        let panels = panels(&args, &rows);
        let names = |panel: &Panel| {
            let lines: Vec<_> = panel.lines.iter().map(|(name, _)| name.as_str()).collect();
            format!("{}: {}", panel.workload, lines.join(", "))
        };
        let all: Vec<_> = panels.iter().map(names).collect();
        assert_eq!(all, ["get: hikv rate=1, hikv rate=2, hashmap rate=1", "get-2: hikv rate=1"]);
        assert_eq!(panels[0].lines[0].1, [(0.0, 2.0), (0.1, 3.0)]);
        assert_eq!(scales(&panels), (1.0, 1.0..5.0));
        assert_eq!(scales(&[]), (1.0, 0.0..1.0), "a scale needs some length");
        let svg = picture(&args, &rows).expect("a picture");
        assert!(svg.contains("hikv rate=2") && svg.contains("90 %") && svg.contains("100.0 us"), "{svg}");
        picture(&args, &[]).expect("an empty picture");
    }
}
