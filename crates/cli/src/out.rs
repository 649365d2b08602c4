//! Standard output, or a file instead: buffered, without a panic when its reader is gone.

use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};
use std::path::PathBuf;

use serde_json::{Map, Value};

use crate::failure::{Failure, Outcome, file_failure};
use crate::new_file::NewFile;

/// Standard output, or a file instead.
pub struct Out {
    sink: Sink,
    terminal: bool,
}

enum Sink {
    Standard(BufWriter<StdoutLock<'static>>),
    File(NewFile),
}

impl Sink {
    fn writer(&mut self) -> &mut dyn Write {
        match self {
            Self::Standard(writer) => writer,
            Self::File(file) => file,
        }
    }

    fn failure(&self, error: io::Error) -> Failure {
        match self {
            Self::Standard(_) => Failure::Output(error),
            Self::File(file) => file_failure("writing", file.target())(error),
        }
    }
}

impl Out {
    /// Returns an output to standard output.
    pub fn new() -> Self {
        let stdout = io::stdout().lock();
        let terminal = stdout.is_terminal();
        Self { terminal, sink: Sink::Standard(BufWriter::with_capacity(64 << 10, stdout)) }
    }

    /// Returns an output to a file.
    pub fn to_file(file: NewFile) -> Self {
        Self { terminal: false, sink: Sink::File(file) }
    }

    /// Ends the output. A file gets its name, which is returned.
    pub fn finish(mut self) -> Outcome<Option<PathBuf>> {
        self.flush()?;
        let Sink::File(file) = self.sink else { return Ok(None) };
        let path = file.target().to_path_buf();
        file.finish().map(|()| Some(path))
    }

    /// Whether the output is a terminal.
    pub fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// Writes these bytes.
    pub fn bytes(&mut self, bytes: &[u8]) -> Outcome {
        self.sink.writer().write_all(bytes).map_err(|error| self.sink.failure(error))
    }

    /// Writes a line.
    pub fn line(&mut self, text: impl AsRef<str>) -> Outcome {
        self.bytes(text.as_ref().as_bytes())?;
        self.bytes(b"\n")
    }

    /// Writes a JSON object as a line.
    pub fn json(&mut self, object: Map<String, Value>) -> Outcome {
        self.line(Value::Object(object).to_string())
    }

    /// Writes the output of `fill`.
    pub fn with(&mut self, fill: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Outcome {
        fill(self.sink.writer()).map_err(|error| self.sink.failure(error))
    }

    /// Flushes the buffer.
    pub fn flush(&mut self) -> Outcome {
        self.sink.writer().flush().map_err(|error| self.sink.failure(error))
    }

    /// Writes names and values in two columns.
    pub fn table(&mut self, rows: &[(String, String)]) -> Outcome {
        let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        rows.iter().try_for_each(|(name, value)| self.line(format!("{name:width$}  {value}").trim_end()))
    }
}

/// Returns `number` with separators of thousands: `1,234,567`.
pub fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_separated_by_commas() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(thousands(number), text);
        }
    }
}
