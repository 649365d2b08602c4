//! A panel with lines, each with its name at its right end.

use super::figure::{Area, Panel};
use super::scale::Scale;
use super::svg::{Anchor, DARK, FAINT, Point, Svg, TEXT_LINE_PIXELS, text_width, wrapped};
use super::unit::Unit;

/// Height of the lower marks, and of the name of the lower axis.
const FOOT_PIXELS: f64 = 36.0;
/// Width of the marks to the left.
const MARKS_PIXELS: f64 = 48.0;
/// Share of a panel's width that the names may have.
const NAMES_RATIO: f64 = 0.34;
/// Space between a line and its name.
const NAME_GAP_PIXELS: f64 = 12.0;
const DOT_PIXELS: f64 = 3.0;
/// Points of a line up to which it has dots.
const DOTS_MAX: usize = 16;
/// Colours of the lines, dark enough for their names.
const COLOURS: [&str; super::choice::SERIES_MAX] =
    ["#1b6ca8", "#b36b00", "#3b7d40", "#a34a6b", "#5a5a5a", "#1f8079", "#c84b31", "#4a4e8f"];

/// A point of a line, and the ends of its range.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Spot {
    /// The place to the right, between the ends of the panel.
    pub(crate) x: f64,
    pub(crate) y: f64,
    pub(crate) range: [f64; 2],
}

impl Spot {
    /// Returns a point without a range.
    pub(crate) fn at(x: f64, y: f64) -> Self {
        Self { x, y, range: [y; 2] }
    }
}

/// A line, in pieces with gaps between them.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Line {
    pub(crate) name: String,
    /// The number of the series, which has the same colour in all panels.
    pub(crate) series: usize,
    pub(crate) pieces: Vec<Vec<Spot>>,
}

impl Line {
    fn colour(&self) -> &'static str {
        COLOURS[self.series % COLOURS.len()]
    }
}

/// The lower axis.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Axis {
    pub(crate) name: String,
    /// The left and the right end.
    pub(crate) ends: [f64; 2],
    pub(crate) marks: Vec<(f64, String)>,
}

/// A panel of lines.
#[derive(Debug)]
pub(crate) struct Lines {
    pub(crate) caption: String,
    pub(crate) unit: Unit,
    pub(crate) axis: Axis,
    pub(crate) scale: Scale,
    pub(crate) lines: Vec<Line>,
    /// Names of places to the right, shown as vertical lines.
    pub(crate) places: Vec<(f64, String)>,
    pub(crate) height: f64,
}

/// Returns the scale of all numbers of these lines.
pub(crate) fn scale_of<'a>(lines: impl Iterator<Item = &'a Line>) -> Scale {
    let spots = lines.flat_map(|line| line.pieces.iter().flatten());
    Scale::of(spots.flat_map(|spot| [spot.y, spot.range[0], spot.range[1]]))
}

/// The inner area of a panel.
struct Frame {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
}

impl Lines {
    fn point(&self, frame: &Frame, x: f64, y: f64) -> Point {
        let [from, to] = self.axis.ends;
        let across = if to > from { (x - from) / (to - from) } else { 0.5 };
        let up = self.scale.place(y);
        (frame.left + across * (frame.right - frame.left), frame.bottom - up * (frame.bottom - frame.top))
    }

    /// Draws the scale and the lower axis.
    fn draw_axes(&self, svg: &mut Svg, frame: &Frame) {
        for mark in self.scale.marks() {
            let y = self.point(frame, self.axis.ends[0], mark).1;
            svg.line(&[(frame.left, y), (frame.right, y)], FAINT, 1.0);
            svg.label((frame.left - 6.0, y), Anchor::Right, DARK, &self.unit.text(mark));
        }
        svg.line(&[(frame.left, frame.bottom), (frame.right, frame.bottom)], DARK, 1.0);
        let mut free_from = f64::NEG_INFINITY;
        for (x, text) in &self.axis.marks {
            let x = self.point(frame, *x, 0.0).0;
            if x - text_width(text) / 2.0 > free_from {
                svg.label((x, frame.bottom + 10.0), Anchor::Middle, DARK, text);
                free_from = x + text_width(text) / 2.0 + 4.0;
            }
        }
        let middle = f64::midpoint(frame.left, frame.right);
        svg.label((middle, frame.bottom + 26.0), Anchor::Middle, DARK, &self.axis.name);
        for (x, text) in &self.places {
            let x = self.point(frame, *x, 0.0).0;
            svg.line(&[(x, frame.top), (x, frame.bottom)], FAINT, 1.0);
            svg.label((x + 3.0, frame.top + TEXT_LINE_PIXELS / 2.0), Anchor::Left, DARK, text);
        }
    }

    fn draw_line(&self, svg: &mut Svg, frame: &Frame, line: &Line, colour: &str) {
        for piece in line.pieces.iter().filter(|piece| !piece.is_empty()) {
            let points: Vec<Point> = piece.iter().map(|spot| self.point(frame, spot.x, spot.y)).collect();
            svg.line(&points, colour, if points.len() > DOTS_MAX { 1.2 } else { 2.0 });
            if points.len() > DOTS_MAX {
                continue;
            }
            for (spot, point) in piece.iter().zip(&points) {
                svg.circle(*point, DOT_PIXELS, colour);
                let ends = spot.range.map(|end| self.point(frame, spot.x, end));
                if (ends[0].1 - ends[1].1).abs() > DOT_PIXELS {
                    svg.line(&ends, colour, 1.0);
                }
            }
        }
    }

    /// Writes the name of each line next to its last point. Names that would overlap move apart.
    fn draw_names(&self, svg: &mut Svg, frame: &Frame, width: f64) {
        let mut names = Vec::new();
        for line in &self.lines {
            let Some(last) = line.pieces.iter().flatten().last() else { continue };
            let end = self.point(frame, last.x, last.y);
            names.push((end, wrapped(&line.name, width), line.colour()));
        }
        names.sort_by(|one, other| one.0.1.total_cmp(&other.0.1));
        let heights: Vec<f64> = names.iter().map(|name| name.1.len() as f64 * TEXT_LINE_PIXELS).collect();
        let wanted: Vec<f64> = names.iter().map(|name| name.0.1).collect();
        let middles = apart(&wanted, &heights, [frame.top, frame.bottom + FOOT_PIXELS]);
        for ((end, lines, colour), middle) in names.iter().zip(&middles) {
            let x = frame.right + NAME_GAP_PIXELS;
            svg.line(&[*end, (x - 3.0, *middle)], colour, 0.6);
            let first = middle - (lines.len() as f64 - 1.0) * TEXT_LINE_PIXELS / 2.0;
            for (at, line) in lines.iter().enumerate() {
                svg.label((x, first + TEXT_LINE_PIXELS * at as f64), Anchor::Left, colour, line);
            }
        }
    }
}

/// Returns the middles of labels with these heights, near the wanted ones, without overlaps and
/// between the limits if all labels fit. The wanted middles ascend.
fn apart(wanted: &[f64], heights: &[f64], [top, bottom]: [f64; 2]) -> Vec<f64> {
    let mut middles = wanted.to_vec();
    let mut free_from = top;
    for (middle, height) in middles.iter_mut().zip(heights) {
        *middle = middle.max(free_from + height / 2.0);
        free_from = *middle + height / 2.0;
    }
    let mut free_to = bottom;
    for (middle, height) in middles.iter_mut().zip(heights).rev() {
        *middle = middle.min(free_to - height / 2.0);
        free_to = *middle - height / 2.0;
    }
    middles
}

impl Panel for Lines {
    fn caption(&self) -> &str {
        &self.caption
    }

    fn height(&self, _width: f64) -> f64 {
        self.height
    }

    fn draw(&self, svg: &mut Svg, area: Area) {
        let names: Vec<_> = self.lines.iter().flat_map(|line| wrapped(&line.name, area.width * NAMES_RATIO)).collect();
        let width = names.iter().map(|line| text_width(line)).fold(0.0, f64::max);
        let (left, top) = area.corner;
        let frame = Frame {
            left: left + MARKS_PIXELS,
            right: left + area.width - width - NAME_GAP_PIXELS,
            top: top + TEXT_LINE_PIXELS / 2.0,
            bottom: top + area.height - FOOT_PIXELS,
        };
        self.draw_axes(svg, &frame);
        for line in &self.lines {
            self.draw_line(svg, &frame, line, line.colour());
        }
        self.draw_names(svg, &frame, area.width * NAMES_RATIO);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::figure::Figure;

    #[test]
    fn names_move_apart_and_stay_between_the_limits() {
        assert_eq!(apart(&[50.0, 52.0, 90.0], &[10.0; 3], [0.0, 100.0]), [50.0, 60.0, 90.0]);
        assert_eq!(apart(&[95.0, 96.0], &[10.0; 2], [0.0, 100.0]), [85.0, 95.0]);
        assert_eq!(apart(&[0.0], &[10.0], [0.0, 100.0]), [5.0]);
    }

    #[test]
    fn each_line_has_its_name_and_gaps_stay_gaps() {
        let line = |name: &str, series: usize, pieces: &[&[f64]]| {
            let spots = |piece: &&[f64]| piece.iter().map(|x| Spot::at(*x, x + 1.0)).collect();
            Line { name: name.into(), series, pieces: pieces.iter().map(spots).collect() }
        };
        let lines = vec![line("hikv", 0, &[&[0.0, 1.0], &[3.0, 4.0]]), line("lmdb", 1, &[&[0.0, 4.0]])];
        let panel = Lines {
            caption: "get".into(),
            unit: Unit::Count,
            axis: Axis { name: "threads".into(), ends: [0.0, 4.0], marks: vec![(0.0, "1".into())] },
            scale: scale_of(lines.iter()),
            lines,
            places: vec![(3.0, "a place".into())],
            height: 200.0,
        };
        let svg = Figure { title: "Rates".into(), note: String::new(), panels: vec![panel], across: 1 }.svg();
        for text in ["hikv", "lmdb", "threads", ">1<", "a place", COLOURS[0], COLOURS[1]] {
            assert!(svg.contains(text), "{text}: {svg}");
        }
        assert_eq!(svg.matches("stroke-width=\"2\"").count(), 3, "pieces of lines: {svg}");
    }
}
