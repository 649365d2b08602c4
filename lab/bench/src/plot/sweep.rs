//! A sweep as an SVG picture: lines over the values of the parameter. With one store, a line per
//! workload. With several stores, a column of panels per workload, with a line per store. The upper
//! panel shows the operations per second. If records were put, the lower panel shows the bytes
//! written for each byte put.
//!
//! The values are in the order given, at equal distances: they are settings, not measurements.

use std::path::Path;

use lodestore_contract::{Error, Result};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::args::Args;
use crate::args::sweep::Sweep;
use crate::plot::{COLOURS, Drawn, SIZE, durabilities, legend, marked, rated};
use crate::report::row::{Row, rows};
use crate::run::session::Findings;

/// Width of a panel if there are several in a row. Its height is that of the whole picture with one
/// panel.
const PANEL_WIDTH_PIXELS: u32 = 480;
/// Height of the title above the panels.
const TITLE_HEIGHT_PIXELS: u32 = 28;

/// Draws the medians of a sweep to `file`. Whiskers show the minimum and the maximum round.
///
/// # Errors
/// [`Error::Io`] if the file cannot be written.
pub(crate) fn draw(args: &Args, sweep: &Sweep, findings: &Findings, file: &Path) -> Result<()> {
    let rows = rows(args, findings);
    let picture = picture(args, sweep, &rows).map_err(|error| std::io::Error::other(error.to_string()));
    let written = picture.and_then(|svg| std::fs::write(file, svg));
    written.map_err(|source| Error::io("writing the plot", file, source))
}

/// The quantity that a line shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Figure {
    /// Millions of operations per second.
    Operations,
    /// MiB of keys and values per second, if their size is swept.
    Bytes,
    /// Bytes written for each byte put, as in the column `write x`. The kernel's count of device
    /// writes counts a page once if it is rewritten before it reaches the device.
    Written,
}

impl Figure {
    fn rate(sweep: &Sweep) -> Self {
        if matches!(sweep.name.as_str(), "value-size" | "key-size") { Self::Bytes } else { Self::Operations }
    }

    fn text(self) -> &'static str {
        match self {
            Self::Operations => "million operations a second",
            Self::Bytes => "MiB of keys and values a second",
            Self::Written => "bytes written for each byte put",
        }
    }

    /// Returns the median of a row, its minimum and its maximum.
    fn of(self, row: &Row) -> Option<[f64; 3]> {
        let rates = [row.ops_per_s, row.ops_per_s_min, row.ops_per_s_max];
        match self {
            Self::Operations => Some(rates.map(|rate| rate / 1e6)),
            Self::Bytes => Some(rates.map(|rate| rate * row.record_bytes() / f64::from(1 << 20))),
            Self::Written => row.write_amplification.map(|times| [times; 3]),
        }
    }
}

/// A value of a line: its position, median, minimum and maximum.
#[derive(Debug, PartialEq)]
struct Spot {
    at: f64,
    mid: f64,
    least: f64,
    most: f64,
}

/// A line and its name.
type Line = (String, Vec<Spot>);

/// Returns the line of `workload` on `store`: a point for each value.
fn line(rows: &[Row], sweep: &Sweep, store: &str, workload: &str, figure: Figure) -> Vec<Spot> {
    let spot = |(at, value): (usize, &String)| {
        let of_value = |row: &&Row| row.sweep.as_ref().is_some_and(|swept| swept.value == *value);
        let row = rows.iter().filter(of_value).find(|row| row.workload == workload && row.store == store)?;
        figure.of(row).map(|[mid, least, most]| Spot { at: at as f64, mid, least, most })
    };
    sweep.values.iter().enumerate().filter_map(spot).collect()
}

/// A part of the picture.
#[derive(Debug, PartialEq)]
struct Panel {
    /// The workload, if the panel shows only one.
    caption: Option<String>,
    figure: Figure,
    lines: Vec<Line>,
}

/// Returns the panels, one row of them for each quantity.
fn panels(args: &Args, sweep: &Sweep, rows: &[Row]) -> Vec<Vec<Panel>> {
    let (stores, workloads) = (args.targets(), rated(args));
    let written = rows.iter().any(|row| row.write_amplification.is_some()).then_some(Figure::Written);
    let figures = std::iter::once(Figure::rate(sweep)).chain(written);
    let panels = |figure: Figure| match stores.as_slice() {
        [store] => {
            let lines = workloads.iter().map(|name| (name.clone(), line(rows, sweep, store, name, figure)));
            vec![Panel { caption: None, figure, lines: lines.collect() }]
        }
        several => {
            let lines = |workload: &String| {
                several.iter().map(|store| (marked(rows, store), line(rows, sweep, store, workload, figure))).collect()
            };
            workloads.iter().map(|it| Panel { caption: Some(it.clone()), figure, lines: lines(it) }).collect()
        }
    };
    figures.map(panels).collect()
}

fn picture(args: &Args, sweep: &Sweep, rows: &[Row]) -> std::result::Result<String, Box<dyn std::error::Error>> {
    let panels = panels(args, sweep, rows);
    let across = panels.first().map_or(1, Vec::len);
    let width = if across == 1 { SIZE.0 } else { PANEL_WIDTH_PIXELS * across as u32 };
    let mut svg = String::new();
    {
        let size = (width, TITLE_HEIGHT_PIXELS + SIZE.1 * panels.len() as u32);
        let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        area.fill(&WHITE)?;
        let below = area.titled(&title(args, sweep, rows), ("sans-serif", 15))?;
        let areas = below.split_evenly((panels.len(), across));
        for (place, (panel, area)) in panels.iter().flatten().zip(&areas).enumerate() {
            panel.draw(area, sweep, greatest(&panels[place / across]), place == 0)?;
        }
        area.present()?;
    }
    Ok(svg)
}

/// Returns the common scale of a row of panels: their greatest value.
fn greatest(panels: &[Panel]) -> f64 {
    let lines = panels.iter().flat_map(|panel| &panel.lines);
    let most = lines.flat_map(|(_, line)| line).map(|spot| spot.most.max(spot.mid)).fold(0.0, f64::max);
    if most > 0.0 { most } else { 1.0 }
}

impl Panel {
    fn draw(&self, area: &DrawingArea<SVGBackend<'_>, Shift>, sweep: &Sweep, most: f64, named: bool) -> Drawn {
        // Space to the right for the names of the lines.
        let values = sweep.values.len() as f64;
        let right = if named { values * 1.35 - 0.6 } else { values - 0.6 };
        let mut builder = ChartBuilder::on(area);
        builder.margin(12).x_label_area_size(44).y_label_area_size(60);
        if let Some(caption) = &self.caption {
            builder.caption(caption, ("sans-serif", 14));
        }
        let mut chart = builder.build_cartesian_2d(-0.4..right, 0.0..most * 1.12)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .x_labels(0)
            .x_desc(sweep.name.as_str())
            .y_max_light_lines(1)
            .y_desc(self.figure.text())
            .label_style(("sans-serif", 12))
            .draw()?;
        let middle = TextStyle::from(("sans-serif", 12).into_font()).pos(Pos::new(HPos::Center, VPos::Top));
        let (left, top) = area.get_base_pixel();
        for (index, value) in sweep.values.iter().enumerate() {
            let at = chart.backend_coord(&(index as f64, 0.0));
            area.draw(&Text::new(value.clone(), (at.0 - left, at.1 - top + 8), middle.clone()))?;
        }
        for (place, (name, line)) in self.lines.iter().enumerate() {
            let colour = COLOURS[place % COLOURS.len()];
            chart
                .draw_series(LineSeries::new(line.iter().map(|spot| (spot.at, spot.mid)), colour.stroke_width(2)))?
                .label(name.as_str())
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 14, y)], colour.stroke_width(2)));
            chart.draw_series(line.iter().map(|spot| Circle::new((spot.at, spot.mid), 3, colour.filled())))?;
            let whisker = |spot: &Spot| PathElement::new([(spot.at, spot.least), (spot.at, spot.most)], colour);
            chart.draw_series(line.iter().map(whisker))?;
        }
        if named { legend(&mut chart, SeriesLabelPosition::LowerRight) } else { Ok(()) }
    }
}

/// Returns the title of a sweep's picture, in one line.
pub(crate) fn title(args: &Args, sweep: &Sweep, rows: &[Row]) -> String {
    let durability = durabilities(rows);
    let flushed = if args.emulate_dax { ", every flush and fence executed" } else { "" };
    let loaded = match args.load_bytes {
        Some(bytes) => format!("{} of records", lodestore::stats::format_size(bytes)),
        None => format!("{} records", args.records),
    };
    let sizes = match sweep.name.as_str() {
        "key-size" => format!("{} bytes of value", args.value_size),
        "value-size" => format!("{} bytes of key", args.key_size),
        _ => format!("{} + {} bytes", args.key_size, args.value_size),
    };
    let memory =
        args.memory.map(|bytes| format!(", {} of memory", lodestore::stats::format_size(bytes))).unwrap_or_default();
    format!("{} over {}: {loaded} of {sizes}, {durability}{memory}{flushed}", args.targets().join(", "), sweep.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::parsed;
    use crate::report::row::Swept;

    fn row(store: &str, workload: &str, value: &str, rate: f64) -> Row {
        let mut row = Row::for_plot(store, workload, rate);
        row.sweep = Some(Swept { name: "load-factor".into(), value: value.into() });
        row
    }

    #[test]
    fn a_line_has_a_spot_for_each_value_that_ran() {
        let sweep: Sweep = "load-factor=0.5,0.7,0.9".parse().expect("a sweep");
        let rows = [row("ours", "get", "0.9", 1e6), row("ours", "get", "0.5", 3e6), row("theirs", "get", "0.7", 5e6)];
        let spots = line(&rows, &sweep, "ours", "get", Figure::Operations);
        let places: Vec<_> = spots.iter().map(|spot| (spot.at, spot.mid)).collect();
        assert_eq!(places, [(0.0, 3.0), (2.0, 1.0)]);
        assert!(line(&rows, &sweep, "ours", "load", Figure::Operations).is_empty());
        assert!(line(&rows, &sweep, "ours", "get", Figure::Written).is_empty(), "it put nothing");
    }

    #[test]
    fn lines_of_stores_of_another_durability_say_so() {
        let at = |store: &str, level: &str| Row { durability: level.into(), ..row(store, "load", "1", 1e6) };
        let args = parsed("--engine hikv --peers hashmap --workloads load --sweep threads=1,2");
        let sweep = args.sweep.clone().expect("a sweep");
        let rows = [at("hikv", "process"), at("hashmap", "none")];
        let names: Vec<_> = panels(&args, &sweep, &rows)[0][0].lines.iter().map(|(name, _)| name.clone()).collect();
        assert_eq!(names, ["hikv: process", "hashmap: none"]);
        assert!(title(&args, &sweep, &rows).contains("process and none"));
    }

    #[test]
    fn one_store_has_a_line_a_workload_and_several_have_a_panel_a_workload() {
        let named = |panels: &[Vec<Panel>]| -> Vec<_> {
            let names = |panel: &Panel| panel.lines.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>().join(" ");
            panels.iter().flatten().map(|panel| format!("{:?} {}", panel.figure, names(panel))).collect()
        };
        let args = parsed("--engine hikv --workloads load,zipfput,zipfput --sweep threads=1,2");
        let sweep = args.sweep.clone().expect("a sweep");
        assert_eq!(named(&panels(&args, &sweep, &[])), ["Operations load zipfput zipfput-2"], "nothing was put");
        let args = parsed("--engine hikv --peers nvht --workloads load,zipfput --sweep value-size=1,2");
        let sweep = args.sweep.clone().expect("a sweep");
        let mut rows = vec![row("hikv", "load", "1", 1e6), row("nvht", "load", "1", 1e6)];
        rows.iter_mut().for_each(|row| row.write_amplification = Some(3.0));
        let both = ["Bytes hikv nvht", "Bytes hikv nvht", "Written hikv nvht", "Written hikv nvht"];
        assert_eq!(named(&panels(&args, &sweep, &rows)), both);
        let drawn = panels(&args, &sweep, &rows);
        assert!((greatest(&drawn[1]) - 3.0).abs() < 1e-9 && greatest(&[]) > 0.0);
        assert_eq!(drawn[1][0].lines[1].1, [Spot { at: 0.0, mid: 3.0, least: 3.0, most: 3.0 }]);
    }
}
