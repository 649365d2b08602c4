//! The reader of replies: for clients, tests and load generators.

use crate::command::{LINE_END, find_line};
use crate::error::DecodeError;
use crate::limits::Limits;
use crate::number::parse_integer;

/// A reply of a server.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Reply {
    /// `+`
    Simple(Vec<u8>),
    /// `-` or `!`
    Error(Vec<u8>),
    /// `:`
    Integer(i64),
    /// `$`
    Bulk(Vec<u8>),
    /// `$-1`, `*-1` or `_`
    Null,
    /// `*`
    Array(Vec<Reply>),
    /// `%`
    Map(Vec<(Reply, Reply)>),
    /// `~`
    Set(Vec<Reply>),
    /// `>`
    Push(Vec<Reply>),
    /// `#`
    Boolean(bool),
    /// `,`, as the server wrote the number
    Double(Vec<u8>),
    /// `(`
    BigNumber(Vec<u8>),
    /// `=`, without the format's name
    Verbatim(Vec<u8>),
}

/// Most elements that are allocated for a count that a server claims.
const RESERVED_ELEMENTS_MAX: usize = 64;

/// Reads the reply at the begin of `buffer`. Returns the reply and its length in bytes, or `None`
/// if the reply has no end yet.
///
/// # Errors
///
/// [`DecodeError`] if the bytes are no reply or exceed a limit.
pub fn decode_reply(buffer: &[u8], limits: &Limits) -> Result<Option<(Reply, usize)>, DecodeError> {
    let mut reader = Reader { buffer, at: 0, limits };
    Ok(reader.read_reply(0)?.map(|reply| (reply, reader.at)))
}

struct Reader<'a> {
    buffer: &'a [u8],
    /// Offset of the next byte to read.
    at: usize,
    limits: &'a Limits,
}

impl<'a> Reader<'a> {
    fn read_reply(&mut self, depth: usize) -> Result<Option<Reply>, DecodeError> {
        if depth > self.limits.depth_max {
            return Err(DecodeError::TooDeep);
        }
        let Some(kind) = self.buffer.get(self.at).copied() else { return Ok(None) };
        let Some(line) = self.read_line()? else { return Ok(None) };
        Ok(match kind {
            b'+' => Some(Reply::Simple(line.to_vec())),
            b'-' => Some(Reply::Error(line.to_vec())),
            b':' => Some(Reply::Integer(parse_integer(line).ok_or(DecodeError::InvalidNumber)?)),
            b',' => Some(Reply::Double(line.to_vec())),
            b'(' => Some(Reply::BigNumber(line.to_vec())),
            b'_' => Some(Reply::Null),
            b'#' => Some(Reply::Boolean(line == b"t")),
            b'$' | b'!' | b'=' => self.read_string(kind, line)?,
            b'*' | b'~' | b'>' => self.read_elements(kind, line, depth)?,
            b'%' => self.read_map(line, depth)?,
            other => return Err(DecodeError::UnknownType(other)),
        })
    }

    /// Reads the line at `at`, without its type and its end.
    fn read_line(&mut self) -> Result<Option<&'a [u8]>, DecodeError> {
        let Some(line) = find_line(self.buffer, self.at + 1, self.limits, DecodeError::LineTooLong)? else {
            return Ok(None);
        };
        self.at = line.end + LINE_END.len();
        Ok(Some(line.of(self.buffer)))
    }

    fn read_string(&mut self, kind: u8, line: &[u8]) -> Result<Option<Reply>, DecodeError> {
        let Some(length) = parse_length(line, self.limits.bulk_bytes_max)? else { return Ok(Some(Reply::Null)) };
        let end = self.at + length;
        let Some(line_end) = self.buffer.get(end..end + LINE_END.len()) else { return Ok(None) };
        if line_end != LINE_END {
            return Err(DecodeError::ExpectedLineEnd);
        }
        let text = &self.buffer[self.at..end];
        self.at = end + LINE_END.len();
        Ok(Some(match kind {
            b'$' => Reply::Bulk(text.to_vec()),
            b'!' => Reply::Error(text.to_vec()),
            // The name of a format has three letters and a colon.
            _ => Reply::Verbatim(text.get(4..).unwrap_or_default().to_vec()),
        }))
    }

    fn read_elements(&mut self, kind: u8, line: &[u8], depth: usize) -> Result<Option<Reply>, DecodeError> {
        let Some(count) = parse_length(line, self.limits.arguments_max)? else { return Ok(Some(Reply::Null)) };
        let mut elements = Vec::with_capacity(count.min(RESERVED_ELEMENTS_MAX));
        for _ in 0..count {
            let Some(element) = self.read_reply(depth + 1)? else { return Ok(None) };
            elements.push(element);
        }
        Ok(Some(match kind {
            b'*' => Reply::Array(elements),
            b'~' => Reply::Set(elements),
            _ => Reply::Push(elements),
        }))
    }

    fn read_map(&mut self, line: &[u8], depth: usize) -> Result<Option<Reply>, DecodeError> {
        let Some(count) = parse_length(line, self.limits.arguments_max)? else { return Ok(Some(Reply::Null)) };
        let mut pairs = Vec::with_capacity(count.min(RESERVED_ELEMENTS_MAX));
        for _ in 0..count {
            let Some(key) = self.read_reply(depth + 1)? else { return Ok(None) };
            let Some(value) = self.read_reply(depth + 1)? else { return Ok(None) };
            pairs.push((key, value));
        }
        Ok(Some(Reply::Map(pairs)))
    }
}

/// Reads a length of at most `max`. -1 is the absence of the string or aggregate.
fn parse_length(line: &[u8], max: usize) -> Result<Option<usize>, DecodeError> {
    match parse_integer(line) {
        Some(-1) => Ok(None),
        Some(length) => match usize::try_from(length) {
            Ok(length) if length <= max => Ok(Some(length)),
            _ => Err(DecodeError::InvalidNumber),
        },
        None => Err(DecodeError::InvalidNumber),
    }
}
