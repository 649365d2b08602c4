//! An SVG picture under construction. All lengths are pixels, from the upper left corner.

use std::fmt::Write;

/// A point: to the right, and downwards.
pub(crate) type Point = (f64, f64);

/// Height of the text of labels.
pub(crate) const TEXT_PIXELS: f64 = 12.0;
/// Distance of the lines of a text.
pub(crate) const TEXT_LINE_PIXELS: f64 = 13.0;
/// Estimate of the mean width of a character of a label. Fonts differ between machines.
const CHARACTER_PIXELS: f64 = 7.2;

/// The colour of axes and of guides.
pub(crate) const FAINT: &str = "#d5d5d5";
/// The colour of texts and of ranges.
pub(crate) const DARK: &str = "#222222";

/// The side of a text that is at its point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Anchor {
    Left,
    Middle,
    Right,
}

/// A picture under construction.
#[derive(Debug)]
pub(crate) struct Svg {
    text: String,
}

impl Svg {
    /// Returns an empty white picture.
    pub(crate) fn new(width: f64, height: f64) -> Self {
        let text = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" viewBox=\"0 0 {width:.0} {height:.0}\" \
             font-family=\"sans-serif\" font-size=\"{TEXT_PIXELS}\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
        );
        Self { text }
    }

    /// Draws a filled rectangle.
    pub(crate) fn rectangle(&mut self, (x, y): Point, (width, height): (f64, f64), colour: &str) {
        self.element(format_args!(
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{colour}\"/>"
        ));
    }

    /// Draws a line through all points.
    pub(crate) fn line(&mut self, points: &[Point], colour: &str, width: f64) {
        let mut path = String::new();
        for (x, y) in points {
            let _ = write!(path, "{x:.1},{y:.1} ");
        }
        let path = path.trim_end();
        self.element(format_args!(
            "<polyline points=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"{width}\"/>"
        ));
    }

    /// Draws a filled circle.
    pub(crate) fn circle(&mut self, (x, y): Point, radius: f64, colour: &str) {
        self.element(format_args!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\" fill=\"{colour}\"/>"));
    }

    /// Writes a label, whose vertical middle is at the point.
    pub(crate) fn label(&mut self, (x, y): Point, anchor: Anchor, colour: &str, text: &str) {
        let anchor = match anchor {
            Anchor::Left => "start",
            Anchor::Middle => "middle",
            Anchor::Right => "end",
        };
        // The base line of the text is below its middle.
        let (y, text) = (y + TEXT_PIXELS * 0.35, escaped(text));
        self.element(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" fill=\"{colour}\">{text}</text>"
        ));
    }

    /// Writes a heading.
    pub(crate) fn heading(&mut self, (x, y): Point, pixels: f64, text: &str) {
        let (y, text) = (y + pixels * 0.35, escaped(text));
        self.element(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{pixels}\" font-weight=\"bold\" fill=\"{DARK}\">{text}</text>"
        ));
    }

    /// Returns the text of the finished picture.
    pub(crate) fn finish(self) -> String {
        self.text + "</svg>\n"
    }

    fn element(&mut self, element: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "{element}");
    }
}

/// Estimates the width of a label.
pub(crate) fn text_width(text: &str) -> f64 {
    text.chars().count() as f64 * CHARACTER_PIXELS
}

/// Breaks a text into lines of at most this width. Breaks after a blank, a colon or a comma, and
/// nowhere else: a longer word has a line of its own.
pub(crate) fn wrapped(text: &str, width: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_inclusive([' ', ':', ',']) {
        match lines.last_mut() {
            Some(line) if text_width(&format!("{line}{}", word.trim_end())) <= width => line.push_str(word),
            _ => lines.push(word.to_string()),
        }
    }
    lines.iter().map(|line| line.trim_end().to_string()).collect()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_broken_after_blanks_and_colons() {
        let width = text_width("mkvs:groups=2:");
        assert_eq!(
            wrapped("mkvs:groups=2:devices=2 none", width),
            ["mkvs:groups=2:", "devices=2 none"].map(String::from)
        );
        assert_eq!(wrapped("averyverylongwordindeed ab", width), ["averyverylongwordindeed", "ab"].map(String::from));
        assert_eq!(wrapped("", width), Vec::<String>::new());
    }

    #[test]
    fn texts_are_escaped_and_a_picture_is_whole() {
        let mut svg = Svg::new(10.0, 20.0);
        svg.label((1.0, 2.0), Anchor::Left, DARK, "a < b & c");
        let text = svg.finish();
        assert!(text.starts_with("<svg ") && text.ends_with("</svg>\n"), "{text}");
        assert!(text.contains(">a &lt; b &amp; c<"), "{text}");
    }
}
