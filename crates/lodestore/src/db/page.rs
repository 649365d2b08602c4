//! Pages of a range, and the cursors between them.

use std::fmt;
use std::str::FromStr;

use lodestore_contract::Result;
use lodestore_contract::limits::KEY_MAX;

use super::Value;

/// The start of the text of each cursor. The number is the version of the form.
const TEXT_PREFIX: &str = "c1-";

/// A page of a range. See [`Pairs::page`](super::Pairs::page).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Page {
    /// The keys and their values.
    pub pairs: Vec<(Value, Value)>,
    /// The cursor of the next page; `None` if this is the last one.
    pub next: Option<Cursor>,
}

impl Page {
    /// Reads a page, and checks whether a pair follows.
    pub(super) fn read(pairs_max: usize, mut next: impl FnMut() -> Option<Result<(Value, Value)>>) -> Result<Self> {
        let mut pairs = Vec::new();
        while let Some(pair) = next() {
            let pair = pair?;
            if pairs.len() == pairs_max.max(1) {
                let cursor = pairs.last().map(|(key, _): &(Value, Value)| Cursor::at(key));
                return Ok(Self { pairs, next: cursor });
            }
            pairs.push(pair);
        }
        Ok(Self { pairs, next: None })
    }
}

/// A position in the order of keys: the last key of a page.
///
/// The text of a cursor has only letters, digits and `-`, so that it fits into a URL. The text
/// shows the key to its readers. A cursor from a client may name any key, but it cannot leave the
/// range that it is used with.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Cursor {
    key: Vec<u8>,
}

impl Cursor {
    /// Returns the cursor at a key.
    pub fn at(key: impl AsRef<[u8]>) -> Self {
        Self { key: key.as_ref().to_vec() }
    }

    /// Returns the key.
    pub fn key(&self) -> &[u8] {
        &self.key
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(TEXT_PREFIX)?;
        self.key.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cursor(b\"{}\")", self.key.escape_ascii())
    }
}

/// A text that is not a cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParseCursorError;

impl fmt::Display for ParseCursorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the text is not a cursor: pass the text of a cursor unchanged ({TEXT_PREFIX} and hexadecimal digits)"
        )
    }
}

impl std::error::Error for ParseCursorError {}

impl FromStr for Cursor {
    type Err = ParseCursorError;

    fn from_str(text: &str) -> Result<Self, ParseCursorError> {
        let digits = text.strip_prefix(TEXT_PREFIX).ok_or(ParseCursorError)?.as_bytes();
        if !digits.len().is_multiple_of(2) || digits.len() / 2 > KEY_MAX {
            return Err(ParseCursorError);
        }
        let digit = |byte: u8| char::from(byte).to_digit(16).ok_or(ParseCursorError);
        let byte = |pair: &[u8]| Ok((digit(pair[0])? * 16 + digit(pair[1])?) as u8);
        Ok(Self { key: digits.chunks(2).map(byte).collect::<Result<_, _>>()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_back_from_its_text() {
        for key in [&b""[..], b"a", b"\0\xff", &[0xAB; KEY_MAX]] {
            let cursor = Cursor::at(key);
            assert_eq!(cursor.to_string().parse(), Ok(cursor));
        }
        assert_eq!(Cursor::at(b"\x1f").to_string(), "c1-1f");
    }

    #[test]
    fn a_text_that_is_no_cursor_is_refused() {
        let too_long = format!("{TEXT_PREFIX}{}", "00".repeat(KEY_MAX + 1));
        for text in ["", "c1", "1f", "c2-1f", "c1-1", "c1-1g", "c1--1", "c1-+1", "c1-é", &too_long] {
            assert_eq!(text.parse::<Cursor>(), Err(ParseCursorError), "{text:.20}");
        }
    }
}
