//! A line of tab-separated fields that is decoded piece by piece.

use lodestore::Expiry;

use super::bounded::BoundedBytes;
use crate::format::Record;

/// Longest accepted text of an expiry.
const EXPIRY_BYTES_MAX: usize = 4096;

/// The state of an escape sequence in a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Escape {
    No,
    Backslash,
    HighDigit,
    LowDigit(u8),
}

/// The part of a line of tab-separated fields read so far.
#[derive(Debug)]
pub struct Tsv {
    fields: [BoundedBytes; 3],
    /// The field being read, from 0.
    field: usize,
    escape: Escape,
    /// A carriage return was read: data if anything follows, else part of the line's end.
    has_return: bool,
}

impl Tsv {
    pub fn new() -> Self {
        let expiry = BoundedBytes::new("third field", EXPIRY_BYTES_MAX);
        Self {
            fields: [BoundedBytes::key(), BoundedBytes::value(), expiry],
            field: 0,
            escape: Escape::No,
            has_return: false,
        }
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.fields[self.field].extend(bytes)
    }

    pub fn feed(&mut self, bytes: &[u8]) -> Result<(), String> {
        let mut rest = bytes;
        while let Some(&byte) = rest.first() {
            if std::mem::take(&mut self.has_return) {
                self.put(b"\r")?;
            }
            if self.escape != Escape::No {
                self.read_escaped(byte)?;
                rest = &rest[1..];
                continue;
            }
            let special = |byte: &u8| matches!(byte, b'\t' | b'\\' | b'\r');
            let (run, after) = rest.split_at(rest.iter().position(special).unwrap_or(rest.len()));
            self.put(run)?;
            rest = after;
            let Some((&byte, after)) = rest.split_first() else { break };
            rest = after;
            match byte {
                b'\t' if self.field == 2 => {
                    return Err("the line has more than three fields; write a tab in a value as \\t".into());
                }
                b'\t' => self.field += 1,
                b'\r' => self.has_return = true,
                // No escape is part of an expiry: it is refused at the end.
                _ if self.field == 2 => self.put(b"\\")?,
                _ => self.escape = Escape::Backslash,
            }
        }
        Ok(())
    }

    fn read_escaped(&mut self, byte: u8) -> Result<(), String> {
        let digit = || {
            let digit = char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
            digit.ok_or("\\x needs two hexadecimal digits")
        };
        let decoded = match self.escape {
            Escape::HighDigit => {
                self.escape = Escape::LowDigit(digit()?);
                return Ok(());
            }
            Escape::LowDigit(high) => high << 4 | digit()?,
            _ => match byte {
                b't' => b'\t',
                b'n' => b'\n',
                b'r' => b'\r',
                b'\\' => b'\\',
                b'x' => {
                    self.escape = Escape::HighDigit;
                    return Ok(());
                }
                _ => return Err("a backslash needs t, n, r, x or another backslash after it".into()),
            },
        };
        self.escape = Escape::No;
        self.put(&[decoded])
    }

    pub fn finish(self) -> Result<Record, String> {
        if self.escape != Escape::No {
            return Err("the line ends within an escape sequence that a backslash begins".into());
        }
        if self.field == 0 {
            return Err("the line has no tab between a key and a value".into());
        }
        let [key, value, expiry] = self.fields.map(BoundedBytes::into_bytes);
        let millis = || std::str::from_utf8(&expiry).ok()?.parse().ok();
        let expiry = match self.field {
            2 => Some(Expiry::at_millis(
                millis().ok_or("the third field is not an expiry in milliseconds; write a tab in a value as \\t")?,
            )),
            _ => None,
        };
        Ok(Record { key, value, expiry, keyspace: None })
    }
}
