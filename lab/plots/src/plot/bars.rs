//! A panel with a bar for each store, its name to the left, and its number to the right.

use super::figure::{Area, Panel};
use super::scale::Scale;
use super::svg::{Anchor, DARK, FAINT, Svg, TEXT_LINE_PIXELS, text_width, wrapped};
use super::unit::Unit;

/// Share of a panel's width that the names may have.
const NAMES_RATIO: f64 = 0.4;
/// Space between the bars.
const GAP_PIXELS: f64 = 6.0;
/// Space between a bar and its labels.
const LABEL_GAP_PIXELS: f64 = 5.0;
/// Height of the marks of the scale.
const MARKS_PIXELS: f64 = 18.0;
/// Radius of the dot that replaces a bar on a logarithmic scale.
const DOT_PIXELS: f64 = 4.0;
/// The colours of engines of this workspace, and of peers.
const OURS_COLOUR: &str = "#1b6ca8";
const PEERS_COLOUR: &str = "#9a6a1f";

/// A bar.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Bar {
    pub(crate) name: String,
    pub(crate) is_ours: bool,
    /// The number of the bar, and the ends of its range.
    pub(crate) number: f64,
    pub(crate) range: [f64; 2],
}

/// A panel of bars.
#[derive(Debug)]
pub(crate) struct Bars {
    pub(crate) caption: String,
    pub(crate) unit: Unit,
    pub(crate) bars: Vec<Bar>,
}

impl Bars {
    /// Returns the scale of the bars.
    pub(crate) fn scale(&self) -> Scale {
        Scale::of(self.bars.iter().flat_map(|bar| [bar.number, bar.range[0], bar.range[1]]))
    }

    /// Returns the names in lines, and the width of the widest.
    fn names(&self, width: f64) -> (Vec<Vec<String>>, f64) {
        let names: Vec<_> = self.bars.iter().map(|bar| wrapped(&bar.name, width * NAMES_RATIO)).collect();
        let widest = names.iter().flatten().map(|line| text_width(line)).fold(0.0, f64::max);
        (names, widest)
    }

    fn bar_height(lines: &[String]) -> f64 {
        TEXT_LINE_PIXELS * lines.len().max(1) as f64
    }

    /// Draws the marks of the scale between `left` and `right`, over the whole height.
    fn draw_marks(&self, svg: &mut Svg, area: Area, [left, right]: [f64; 2]) {
        let scale = self.scale();
        let bottom = area.corner.1 + self.height(area.width) - MARKS_PIXELS;
        let mut free_from = f64::NEG_INFINITY;
        for mark in scale.marks() {
            let (x, text) = (left + scale.place(mark) * (right - left), self.unit.text(mark));
            svg.line(&[(x, area.corner.1), (x, bottom)], FAINT, 1.0);
            if x - text_width(&text) / 2.0 > free_from {
                svg.label((x, bottom + MARKS_PIXELS / 2.0), Anchor::Middle, DARK, &text);
                free_from = x + text_width(&text) / 2.0 + LABEL_GAP_PIXELS;
            }
        }
    }
}

impl Panel for Bars {
    fn caption(&self) -> &str {
        &self.caption
    }

    fn height(&self, width: f64) -> f64 {
        let bars = self.names(width).0.iter().map(|lines| Self::bar_height(lines) + GAP_PIXELS).sum::<f64>();
        bars + MARKS_PIXELS
    }

    fn draw(&self, svg: &mut Svg, area: Area) {
        let scale = self.scale();
        let (names, names_width) = self.names(area.width);
        let numbers: Vec<_> = self.bars.iter().map(|bar| self.unit.text(bar.number)).collect();
        let numbers_width = numbers.iter().map(|text| text_width(text)).fold(0.0, f64::max);
        let left = area.corner.0 + names_width + LABEL_GAP_PIXELS;
        let right = area.corner.0 + area.width - numbers_width - LABEL_GAP_PIXELS;
        let x_of = |number: f64| left + scale.place(number) * (right - left);
        self.draw_marks(svg, area, [left, right]);
        let mut top = area.corner.1;
        for ((bar, lines), number) in self.bars.iter().zip(&names).zip(&numbers) {
            let height = Self::bar_height(lines);
            let middle = top + height / 2.0;
            for (at, line) in lines.iter().enumerate() {
                let y = top + TEXT_LINE_PIXELS * (at as f64 + 0.5);
                svg.label((left - LABEL_GAP_PIXELS, y), Anchor::Right, DARK, line);
            }
            let colour = if bar.is_ours { OURS_COLOUR } else { PEERS_COLOUR };
            let [least, end, most] = [bar.range[0], bar.number, bar.range[1]].map(x_of);
            if scale.is_log() {
                svg.circle((end, middle), DOT_PIXELS, colour);
            } else {
                svg.rectangle((left, top), (end - left, height), colour);
            }
            svg.line(&[(least, middle), (most, middle)], DARK, 1.0);
            svg.label((most.max(end) + LABEL_GAP_PIXELS + DOT_PIXELS, middle), Anchor::Left, DARK, number);
            top += height + GAP_PIXELS;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::figure::Figure;

    fn bar(name: &str, number: f64) -> Bar {
        Bar { name: name.into(), is_ours: name == "hikv", number, range: [number / 2.0, number * 2.0] }
    }

    fn drawn(bars: Vec<Bar>) -> String {
        let panel = Bars { caption: "get".into(), unit: Unit::Count, bars };
        Figure { title: "Rates".into(), note: "a note".into(), panels: vec![panel], across: 1 }.svg()
    }

    #[test]
    fn each_bar_has_its_name_and_its_number() {
        let svg = drawn(vec![bar("hikv", 4e6), bar("lmdb", 2e6)]);
        for text in ["Rates", "a note", "get", "hikv", "lmdb", ">4 M<", ">2 M<", OURS_COLOUR, PEERS_COLOUR] {
            assert!(svg.contains(text), "{text}: {svg}");
        }
        // The background is the first rectangle.
        assert_eq!((svg.matches("<rect").count(), svg.matches("<circle").count()), (3, 0), "{svg}");
    }

    #[test]
    fn numbers_that_differ_much_are_dots_since_a_bar_needs_a_zero() {
        let svg = drawn(vec![bar("hikv", 4e6), bar("lmdb", 2e4)]);
        assert_eq!((svg.matches("<rect").count(), svg.matches("<circle").count()), (1, 2), "{svg}");
    }
}
