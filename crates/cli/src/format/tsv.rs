//! Records as lines of tab-separated fields: key, value and, if it expires, milliseconds since the
//! Unix epoch.
//!
//! In a field, tab, newline, carriage return and backslash are `\t`, `\n`, `\r`, `\\`. Any other
//! control byte, and any byte that is not part of valid UTF-8, is `\xNN`. A file is therefore UTF-8
//! text, and all bytes are preserved. A reader also accepts unescaped bytes that a writer escapes,
//! if they are unambiguous; a carriage return before the newline belongs to the line's end.

use std::io::{self, Write};

use lodestore::Expiry;

use super::Record;

const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// Adds the escaped form of `bytes` to `out`.
pub fn escape(bytes: &[u8], out: &mut Vec<u8>) {
    for chunk in bytes.utf8_chunks() {
        for &byte in chunk.valid().as_bytes() {
            match byte {
                b'\t' => out.extend_from_slice(b"\\t"),
                b'\n' => out.extend_from_slice(b"\\n"),
                b'\r' => out.extend_from_slice(b"\\r"),
                b'\\' => out.extend_from_slice(b"\\\\"),
                0..0x20 | 0x7f => escape_byte(byte, out),
                _ => out.push(byte),
            }
        }
        for &byte in chunk.invalid() {
            escape_byte(byte, out);
        }
    }
}

fn escape_byte(byte: u8, out: &mut Vec<u8>) {
    out.extend_from_slice(b"\\x");
    out.push(DIGITS[usize::from(byte >> 4)]);
    out.push(DIGITS[usize::from(byte & 15)]);
}

/// Returns the bytes that an escaped field encodes.
pub fn unescape(field: &[u8]) -> Result<Vec<u8>, String> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some(at) = rest.iter().position(|byte| *byte == b'\\') {
        out.extend_from_slice(&rest[..at]);
        rest = &rest[at + 1..];
        let (byte, used) = match rest {
            [b't', ..] => (b'\t', 1),
            [b'n', ..] => (b'\n', 1),
            [b'r', ..] => (b'\r', 1),
            [b'\\', ..] => (b'\\', 1),
            [b'x', high, low, ..] => match (digit(*high), digit(*low)) {
                (Some(high), Some(low)) => (high << 4 | low, 3),
                _ => return Err("\\x needs two hexadecimal digits".into()),
            },
            [b'x', ..] => return Err("\\x needs two hexadecimal digits".into()),
            _ => return Err("a backslash needs t, n, r, x or another backslash after it".into()),
        };
        out.push(byte);
        rest = &rest[used..];
    }
    out.extend_from_slice(rest);
    Ok(out)
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

/// Writes one line.
pub fn write(out: &mut dyn Write, key: &[u8], value: &[u8], expiry: Option<Expiry>) -> io::Result<()> {
    let mut line = Vec::with_capacity(key.len() + value.len() + 2);
    escape(key, &mut line);
    line.push(b'\t');
    escape(value, &mut line);
    if let Some(expiry) = expiry {
        line.push(b'\t');
        line.extend_from_slice(expiry.millis().to_string().as_bytes());
    }
    line.push(b'\n');
    out.write_all(&line)
}

/// Reads one line, without its newline.
pub fn parse(line: &[u8]) -> Result<Record, String> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let mut fields = line.split(|byte| *byte == b'\t');
    let key = unescape(fields.next().unwrap_or_default())?;
    let value = fields.next().ok_or("the line has no tab between a key and a value")?;
    let value = unescape(value)?;
    let expiry = match fields.next() {
        None => None,
        Some(text) => {
            let millis = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
            Some(Expiry::at_millis(
                millis.ok_or("the third field is not an expiry in milliseconds; write a tab in a value as \\t")?,
            ))
        }
    };
    match fields.next() {
        None => Ok(Record { key, value, expiry, keyspace: None }),
        Some(_) => Err("the line has more than three fields; write a tab in a value as \\t".into()),
    }
}
