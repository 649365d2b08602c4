//! The plot: one panel per scenario; overwrites of each piece of the heap, by position.

use std::fmt::Write as _;

const WIDTH_PIXELS: f64 = 900.0;
const PANEL_PIXELS: f64 = 190.0;
const LEFT_PIXELS: f64 = 60.0;
const TOP_PIXELS: f64 = 34.0;
/// Height of a panel's axes.
const HEIGHT_PIXELS: f64 = 120.0;
const COLOURS: [(&str, &str); 2] = [("without", "#d98f2b"), ("with", "#1b6ca8")];

/// Maximum points of a line; neighbours are merged if there are more.
const POINTS_MAX: usize = 320;

/// Returns the plot. `panels` has a name and the line of each choice, one point per 64 KiB.
pub(crate) fn svg(panels: &[(&str, Vec<Vec<f64>>)]) -> String {
    let height = PANEL_PIXELS * panels.len() as f64 + 24.0;
    let mut out = format!(
        "<svg width=\"{WIDTH_PIXELS}\" height=\"{height}\" viewBox=\"0 0 {WIDTH_PIXELS} {height}\" xmlns=\"http://www.w3.org/2000/svg\" \
         font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"{WIDTH_PIXELS}\" height=\"{height}\" fill=\"#fff\"/>\n"
    );
    for (index, (choice, colour)) in COLOURS.iter().enumerate() {
        let x = LEFT_PIXELS + 260.0 * index as f64;
        let _ = writeln!(
            out,
            "<rect x=\"{x}\" y=\"6\" width=\"14\" height=\"10\" fill=\"{colour}\"/><text x=\"{}\" y=\"15\">{choice} the wear-aware choice</text>",
            x + 20.0
        );
    }
    for (index, (name, lines)) in panels.iter().enumerate() {
        panel(&mut out, PANEL_PIXELS * index as f64 + TOP_PIXELS, name, lines);
    }
    out.push_str("</svg>\n");
    out
}

fn panel(out: &mut String, top: f64, name: &str, lines: &[Vec<f64>]) {
    let most = lines.iter().flatten().copied().fold(1.0, f64::max);
    let width = WIDTH_PIXELS - LEFT_PIXELS - 20.0;
    let bottom = top + 16.0 + HEIGHT_PIXELS;
    let _ = writeln!(out, "<text x=\"{LEFT_PIXELS}\" y=\"{}\" font-weight=\"bold\">{name}</text>", top + 10.0);
    for (share, text) in [(0.0, "0".to_owned()), (0.5, format!("{:.0}", most / 2.0)), (1.0, format!("{most:.0}"))] {
        let y = bottom - share * HEIGHT_PIXELS;
        let _ = writeln!(
            out,
            "<line x1=\"{LEFT_PIXELS}\" x2=\"{}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#ccc\"/><text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{text}</text>",
            WIDTH_PIXELS - 20.0,
            LEFT_PIXELS - 6.0,
            y + 4.0
        );
    }
    let together = lines.iter().map(Vec::len).max().unwrap_or(0).div_ceil(POINTS_MAX).max(1);
    for ((_, colour), line) in COLOURS.iter().zip(lines) {
        let line: Vec<f64> = line.chunks(together).map(|some| some.iter().sum::<f64>() / some.len() as f64).collect();
        let step = width / line.len() as f64;
        let mut points = String::new();
        for (index, value) in line.iter().enumerate() {
            let y = bottom - value / most * HEIGHT_PIXELS;
            let x = LEFT_PIXELS + step * index as f64;
            let _ = write!(points, "{x:.1},{y:.1} {:.1},{y:.1} ", x + step);
        }
        let _ = writeln!(out, "<polyline fill=\"none\" stroke=\"{colour}\" points=\"{}\"/>", points.trim_end());
    }
    let _ = writeln!(
        out,
        "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">place in the heap, each {} KiB; upwards: times overwritten</text>",
        LEFT_PIXELS + width / 2.0,
        bottom + 16.0,
        64 * together
    );
}
