//! Standard output: buffered, and never a panic when its reader is gone.

use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};

use serde_json::{Map, Value};

use crate::failure::{Failure, Outcome};

/// Standard output.
pub struct Out {
    writer: BufWriter<StdoutLock<'static>>,
    terminal: bool,
}

impl Out {
    /// Takes standard output.
    pub fn new() -> Self {
        let stdout = io::stdout().lock();
        Self { terminal: stdout.is_terminal(), writer: BufWriter::with_capacity(64 << 10, stdout) }
    }

    /// Whether a person reads it.
    pub fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// Writes these bytes.
    pub fn bytes(&mut self, bytes: &[u8]) -> Outcome {
        self.writer.write_all(bytes).map_err(Failure::Output)
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

    /// Writes what `fill` gives.
    pub fn with(&mut self, fill: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Outcome {
        fill(&mut self.writer).map_err(Failure::Output)
    }

    /// Hands all of it to the reader.
    pub fn flush(&mut self) -> Outcome {
        self.writer.flush().map_err(Failure::Output)
    }

    /// Writes names and values in two columns.
    pub fn table(&mut self, rows: &[(String, String)]) -> Outcome {
        let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        rows.iter().try_for_each(|(name, value)| self.line(format!("{name:width$}  {value}").trim_end()))
    }
}

/// `number` with its thousands apart: `1,234,567`.
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
    fn thousands_stand_apart() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(thousands(number), text);
        }
    }
}
