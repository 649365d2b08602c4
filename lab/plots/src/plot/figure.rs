//! A figure: a title, a note, and panels in rows.

use super::svg::{Anchor, DARK, Point, Svg, TEXT_LINE_PIXELS, wrapped};

/// Width of a figure.
pub(crate) const WIDTH_PIXELS: f64 = 900.0;
/// Space around a figure, and between its panels.
pub(crate) const SPACE_PIXELS: f64 = 12.0;
const TITLE_PIXELS: f64 = 16.0;
/// Height of the caption of a panel.
pub(crate) const CAPTION_PIXELS: f64 = 20.0;
/// Height of the caption's text.
const CAPTION_TEXT_PIXELS: f64 = 13.0;

/// The area of a panel.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Area {
    /// The upper left corner.
    pub(crate) corner: Point,
    pub(crate) width: f64,
    pub(crate) height: f64,
}

/// A part of a figure, with scales of its own.
pub(crate) trait Panel {
    /// Returns the caption; empty if it needs none.
    fn caption(&self) -> &str;

    /// Returns the height at this width, without the caption.
    fn height(&self, width: f64) -> f64;

    /// Draws the panel without the caption.
    fn draw(&self, svg: &mut Svg, area: Area);
}

/// A figure with one message, which its title names.
pub(crate) struct Figure<P> {
    pub(crate) title: String,
    /// The measured rows, and how to read the panels.
    pub(crate) note: String,
    pub(crate) panels: Vec<P>,
    /// Panels in a row.
    pub(crate) across: usize,
}

impl<P: Panel> Figure<P> {
    /// Draws the figure.
    pub(crate) fn svg(&self) -> String {
        let inner = WIDTH_PIXELS - 2.0 * SPACE_PIXELS;
        let note = wrapped(&self.note, inner);
        let across = self.across.min(self.panels.len()).max(1);
        let width = (inner - SPACE_PIXELS * (across - 1) as f64) / across as f64;
        let rows: Vec<&[P]> = self.panels.chunks(across).collect();
        let caption =
            |row: &[P]| if row.iter().any(|panel| !panel.caption().is_empty()) { CAPTION_PIXELS } else { 0.0 };
        let height = |row: &[P]| row.iter().map(|panel| panel.height(width)).fold(0.0, f64::max);
        let head = SPACE_PIXELS + TITLE_PIXELS + TEXT_LINE_PIXELS * note.len() as f64 + SPACE_PIXELS;
        let below: f64 = rows.iter().map(|row| caption(row) + height(row) + SPACE_PIXELS).sum();
        let mut svg = Svg::new(WIDTH_PIXELS, head + below);
        svg.heading((SPACE_PIXELS, SPACE_PIXELS + TITLE_PIXELS / 2.0), TITLE_PIXELS, &self.title);
        for (at, line) in note.iter().enumerate() {
            let y = SPACE_PIXELS + TITLE_PIXELS + TEXT_LINE_PIXELS * (at as f64 + 0.8);
            svg.label((SPACE_PIXELS, y), Anchor::Left, DARK, line);
        }
        let mut top = head;
        for row in rows {
            for (at, panel) in row.iter().enumerate() {
                let left = SPACE_PIXELS + (width + SPACE_PIXELS) * at as f64;
                svg.heading((left, top + CAPTION_PIXELS / 2.0), CAPTION_TEXT_PIXELS, panel.caption());
                let area = Area { corner: (left, top + caption(row)), width, height: height(row) };
                panel.draw(&mut svg, area);
            }
            top += caption(row) + height(row) + SPACE_PIXELS;
        }
        svg.finish()
    }
}
