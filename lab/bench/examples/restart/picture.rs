//! The medians as a picture: time to the first `GET` over the number of keys, a line for each
//! server, on logarithmic scales.

use std::path::Path;

use plotters::prelude::*;

use crate::server::Kind;
use crate::{AnyResult, Row};

const SIZE: (u32, u32) = (760, 420);

/// Colours of the lines, in the order of [`Kind::ALL`].
const COLOURS: [RGBColor; 4] =
    [RGBColor(31, 119, 180), RGBColor(214, 39, 40), RGBColor(255, 127, 14), RGBColor(127, 127, 127)];

/// Draws the rows to `file`.
pub(crate) fn draw(rows: &[Row], value_bytes: usize, file: &Path) -> AnyResult<()> {
    let mut svg = String::new();
    draw_into(&mut svg, rows, value_bytes).map_err(|error| error.to_string())?;
    Ok(std::fs::write(file, svg)?)
}

fn draw_into(svg: &mut String, rows: &[Row], value_bytes: usize) -> Result<(), Box<dyn std::error::Error>> {
    let keys = rows.iter().map(|row| row.keys as f64);
    let (least, most) = keys.fold((f64::MAX, 1.0_f64), |(least, most), keys| (least.min(keys), most.max(keys)));
    let longest = rows.iter().map(|row| row.first_get().as_secs_f64() * 1e3).fold(10.0, f64::max);
    let area = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .caption("From exec to the first GET, after kill -9 under load", ("sans-serif", 18))
        .margin(12)
        .margin_right(28)
        .x_label_area_size(44)
        .y_label_area_size(72)
        .build_cartesian_2d((least * 0.8..most * 1.25).log_scale(), (1.0..longest * 2.0).log_scale())?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .x_desc(format!("keys of 16 bytes, with values of {value_bytes} bytes"))
        .y_desc("median")
        .x_label_formatter(&|keys| count_text(*keys))
        .y_label_formatter(&|ms| if *ms < 1e3 { format!("{ms} ms") } else { format!("{} s", ms / 1e3) })
        .draw()?;
    for (kind, colour) in Kind::ALL.into_iter().zip(COLOURS) {
        let of_kind = rows.iter().filter(|row| row.kind == kind);
        let line: Vec<(f64, f64)> = of_kind.map(|row| (row.keys as f64, row.first_get().as_secs_f64() * 1e3)).collect();
        if line.is_empty() {
            continue;
        }
        chart
            .draw_series(LineSeries::new(line.clone(), colour.stroke_width(2)))?
            .label(kind.name())
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
        chart.draw_series(line.into_iter().map(|spot| Circle::new(spot, 3, colour.filled())))?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.85))
        .border_style(BLACK.mix(0.3))
        .draw()?;
    area.present()?;
    Ok(())
}

fn count_text(keys: f64) -> String {
    match keys {
        keys if keys >= 1e6 => format!("{} M", keys / 1e6),
        keys if keys >= 1e3 => format!("{} k", keys / 1e3),
        keys => format!("{keys}"),
    }
}
