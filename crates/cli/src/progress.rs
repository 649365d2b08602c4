//! A progress bar on standard error: one line that is redrawn.

use std::cell::{Cell, RefCell};
use std::env;
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use lodestore::stats::format_size;

/// The minimum time between two drawings.
const DRAW_INTERVAL: Duration = Duration::from_millis(100);
/// Columns of the bar itself.
const BAR_COLUMNS: usize = 30;
/// Columns of a line at most, so that it fits on a terminal.
const LINE_COLUMNS: usize = 79;

/// The unit of the numbers of a bar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Records, or anything else: shown as a share.
    Records,
    /// Bytes: shown as sizes.
    Bytes,
}

/// A progress bar. Dropping a bar clears its line.
#[derive(Debug)]
pub struct ProgressBar {
    what: &'static str,
    unit: Unit,
    is_hidden: bool,
    begun: Instant,
    /// The end, if it is known.
    length: Cell<Option<u64>>,
    position: Cell<u64>,
    message: Cell<&'static str>,
    /// The time of the last drawing.
    drawn: Cell<Option<Instant>>,
    line: RefCell<String>,
}

impl ProgressBar {
    /// Returns a bar, hidden where standard error is no terminal that can clear a line.
    pub fn new(what: &'static str, length: Option<u64>, unit: Unit) -> Self {
        let is_hidden = !io::stderr().is_terminal() || env::var_os("TERM").is_none_or(|term| term == "dumb");
        Self::begin(what, length, unit, is_hidden)
    }

    /// Returns a bar that is not shown.
    pub fn hidden() -> Self {
        Self::begin("", None, Unit::Records, true)
    }

    fn begin(what: &'static str, length: Option<u64>, unit: Unit, is_hidden: bool) -> Self {
        Self {
            what,
            unit,
            is_hidden,
            begun: Instant::now(),
            length: Cell::new(length),
            position: Cell::new(0),
            message: Cell::new(""),
            drawn: Cell::new(None),
            line: RefCell::default(),
        }
    }

    /// Sets the end.
    pub fn set_length(&self, length: u64) {
        self.length.set(Some(length));
    }

    /// Sets the text after the bar.
    pub fn set_message(&self, message: &'static str) {
        self.message.set(message);
    }

    /// Moves the bar by `step`.
    pub fn inc(&self, step: u64) {
        self.set_position(self.position.get() + step);
    }

    /// Moves the bar to a position, and draws it if it was last drawn some time ago.
    pub fn set_position(&self, position: u64) {
        self.position.set(position);
        if self.is_hidden || self.drawn.get().is_some_and(|drawn| drawn.elapsed() < DRAW_INTERVAL) {
            return;
        }
        self.drawn.set(Some(Instant::now()));
        let mut line = self.line.borrow_mut();
        line.clear();
        self.write_line(&mut line, self.begun.elapsed());
        write_error(&format!("\r{line}\x1b[K"));
    }

    /// Removes the bar from the terminal.
    pub fn finish_and_clear(&self) {
        if self.drawn.take().is_some() {
            write_error("\r\x1b[K");
        }
    }

    /// Writes the line for the time since the beginning.
    fn write_line(&self, line: &mut String, elapsed: Duration) {
        let (position, length) = (self.position.get(), self.length.get());
        line.push_str(self.what);
        let seconds = elapsed.as_secs_f64().max(0.001);
        let speed = position as f64 / seconds;
        let share = length.map(|length| (position as f64 / length.max(1) as f64).min(1.0));
        if let Some(share) = share {
            let done = (share * BAR_COLUMNS as f64) as usize;
            line.push_str(" [");
            line.extend((0..BAR_COLUMNS).map(|column| if column < done { '#' } else { '-' }));
            line.push(']');
        }
        // Writing to a string does not fail.
        let _ = match (self.unit, length, share) {
            (Unit::Bytes, Some(length), _) => write!(line, " {}/{}", format_size(position), format_size(length)),
            (Unit::Bytes, None, _) => write!(line, " {}", format_size(position)),
            (Unit::Records, _, Some(share)) => write!(line, " {}%", (share * 100.0) as u64),
            (Unit::Records, _, None) => write!(line, " {position}"),
        };
        if self.unit == Unit::Bytes {
            let _ = write!(line, " {}/s", format_size(speed as u64));
        }
        if let Some(length) = length.filter(|_| position > 0) {
            let left = (length.saturating_sub(position) as f64 / speed) as u64;
            let _ = write!(line, " {}:{:02} left", left / 60, left % 60);
        }
        if !self.message.get().is_empty() {
            let _ = write!(line, " {}", self.message.get());
        }
        line.truncate(LINE_COLUMNS);
    }
}

impl Drop for ProgressBar {
    fn drop(&mut self) {
        self.finish_and_clear();
    }
}

/// Writes to standard error. A bar that cannot be drawn does not fail the work.
fn write_error(text: &str) {
    let mut error = io::stderr().lock();
    let _ = error.write_all(text.as_bytes()).and_then(|()| error.flush());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(bar: &ProgressBar, seconds: u64) -> String {
        let mut line = String::new();
        bar.write_line(&mut line, Duration::from_secs(seconds));
        line
    }

    #[test]
    fn a_bar_shows_the_share_and_the_time_that_is_left() {
        let bar = ProgressBar::begin("exporting", Some(200), Unit::Records, true);
        assert_eq!(line(&bar, 0), format!("exporting [{}] 0%", "-".repeat(30)));
        bar.inc(20);
        bar.inc(30);
        bar.set_message("copying");
        assert_eq!(line(&bar, 30), format!("exporting [{}{}] 25% 1:30 left copying", "#".repeat(7), "-".repeat(23)));
        bar.set_position(300);
        assert_eq!(line(&bar, 30), format!("exporting [{}] 100% 0:00 left copying", "#".repeat(30)));
    }

    #[test]
    fn bytes_are_shown_as_sizes_and_a_line_never_wraps() {
        let bar = ProgressBar::begin("importing", None, Unit::Bytes, true);
        bar.set_position(20 << 20);
        assert_eq!(line(&bar, 10), "importing 20M 2M/s");
        bar.set_length(40 << 20);
        assert_eq!(line(&bar, 10), format!("importing [{}{}] 20M/40M 2M/s 0:10 left", "#".repeat(15), "-".repeat(15)));
        bar.set_message("a text that is much longer than the rest of the line");
        assert_eq!(line(&bar, 10).len(), LINE_COLUMNS);
    }

    #[test]
    fn a_hidden_bar_and_an_empty_length_do_no_harm() {
        let bar = ProgressBar::hidden();
        bar.set_length(0);
        bar.set_position(7);
        bar.finish_and_clear();
        assert_eq!(line(&bar, 0), format!(" [{}] 100% 0:00 left", "#".repeat(30)));
    }
}
