//! A sweep as a picture: one line a workload over the values of the parameter, as SVG.
//!
//! The values stand side by side in the order given, at equal distances: they are settings, not measurements.

use std::path::Path;

use lodestore_contract::{Error, Result};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::args::Args;
use crate::plot::{COLOURS, SIZE, legend, rated};
use crate::row::{Row, rows};
use crate::session::Findings;
use crate::sweep::Sweep;

/// Draws the medians of a sweep into `file`; whiskers show the least and the greatest round.
///
/// # Errors
/// [`Error::Io`] where the file cannot be written.
pub(crate) fn draw(args: &Args, sweep: &Sweep, findings: &Findings, file: &Path) -> Result<()> {
    let rows = rows(args, findings);
    let picture = picture(args, sweep, &rows).map_err(|error| std::io::Error::other(error.to_string()));
    let written = picture.and_then(|svg| std::fs::write(file, svg));
    written.map_err(|source| Error::io("writing the plot", file, source))
}

/// One value of one line: its place, and its median, least and greatest rate in millions.
#[derive(Debug, PartialEq)]
struct Spot {
    at: f64,
    mid: f64,
    least: f64,
    most: f64,
}

/// The line of `workload`: a spot for each value that it ran with.
fn line(rows: &[Row], sweep: &Sweep, workload: &str) -> Vec<Spot> {
    let spot = |(at, value): (usize, &String)| {
        let of_value = |row: &&Row| row.sweep.as_ref().is_some_and(|swept| swept.value == *value);
        let row = rows.iter().filter(of_value).find(|row| row.workload == workload)?;
        let (mid, least, most) = (row.ops_per_s / 1e6, row.ops_per_s_min / 1e6, row.ops_per_s_max / 1e6);
        Some(Spot { at: at as f64, mid, least, most })
    };
    sweep.values.iter().enumerate().filter_map(spot).collect()
}

fn picture(args: &Args, sweep: &Sweep, rows: &[Row]) -> std::result::Result<String, Box<dyn std::error::Error>> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let names = rated(args);
        let lines: Vec<(&str, Vec<Spot>)> = names.iter().map(|name| (name.as_str(), line(rows, sweep, name))).collect();
        let most = lines.iter().flat_map(|(_, line)| line).map(|spot| spot.most.max(spot.mid)).fold(0.0, f64::max);
        let most = if most > 0.0 { most } else { 1.0 };
        // Room at the right for the names of the lines.
        let right = sweep.values.len() as f64 * 1.2 - 0.6;
        let mut chart = ChartBuilder::on(&area)
            .caption(title(args, sweep, rows), ("sans-serif", 15))
            .margin(12)
            .x_label_area_size(44)
            .y_label_area_size(52)
            .build_cartesian_2d(-0.4..right, 0.0..most * 1.12)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .x_labels(0)
            .x_desc(sweep.name.as_str())
            .y_max_light_lines(1)
            .y_desc("million operations a second")
            .label_style(("sans-serif", 12))
            .draw()?;
        let middle = TextStyle::from(("sans-serif", 12).into_font()).pos(Pos::new(HPos::Center, VPos::Top));
        for (index, value) in sweep.values.iter().enumerate() {
            let at = chart.backend_coord(&(index as f64, 0.0));
            area.draw(&Text::new(value.clone(), (at.0, at.1 + 8), middle.clone()))?;
        }
        for (place, (name, line)) in lines.iter().enumerate() {
            let colour = COLOURS[place % COLOURS.len()];
            chart
                .draw_series(LineSeries::new(line.iter().map(|spot| (spot.at, spot.mid)), colour.stroke_width(2)))?
                .label(*name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 14, y)], colour.stroke_width(2)));
            chart.draw_series(line.iter().map(|spot| Circle::new((spot.at, spot.mid), 3, colour.filled())))?;
            let whisker = |spot: &Spot| PathElement::new([(spot.at, spot.least), (spot.at, spot.most)], colour);
            chart.draw_series(line.iter().map(whisker))?;
        }
        legend(&mut chart, SeriesLabelPosition::LowerRight)?;
        area.present()?;
    }
    Ok(svg)
}

fn title(args: &Args, sweep: &Sweep, rows: &[Row]) -> String {
    let durability = rows.first().map_or("", |row| row.durability.as_str());
    let flushed = if args.emulate_dax { ", every flush and fence executed" } else { "" };
    format!(
        "{} over {}: {} records of {} + {} bytes, {durability}{flushed}",
        args.engine, sweep.name, args.records, args.key_size, args.value_size,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::Swept;

    #[test]
    fn a_line_has_a_spot_for_each_value_that_ran() {
        let sweep: Sweep = "load-factor=0.5,0.7,0.9".parse().expect("a sweep");
        let row = |value: &str, rate: f64| {
            let mut row = Row::for_plot("ours", "get", rate);
            row.sweep = Some(Swept { name: "load-factor".into(), value: value.into() });
            row
        };
        let rows = [row("0.9", 1e6), row("0.5", 3e6)];
        let spots = line(&rows, &sweep, "get");
        let places: Vec<_> = spots.iter().map(|spot| (spot.at, spot.mid)).collect();
        assert_eq!(places, [(0.0, 3.0), (2.0, 1.0)]);
        assert!(line(&rows, &sweep, "load").is_empty());
    }
}
