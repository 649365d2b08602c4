//! The parser of commands.
//!
//! A command in the array form:
//!
//! ```text
//! *3\r\n $3\r\nSET\r\n $3\r\nkey\r\n $5\r\nvalue\r\n
//! ```
//!
//! The parser stops at the end of the buffer and continues there in the next call. So a command
//! that arrives in many pieces costs one pass over its bytes, and not one pass for each piece.

use crate::arguments::{Arguments, Span};
use crate::error::ProtocolError;
use crate::inline::parse_inline;
use crate::limits::Limits;
use crate::number::parse_integer;

/// Most spans that are allocated for a count that a client claims. More are allocated as they come.
const RESERVED_SPANS_MAX: usize = 64;

/// What a call of [`CommandParser::parse`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// The command has no end yet.
    Incomplete {
        /// Least number of bytes that the buffer needs before the next call can do more.
        bytes_needed: usize,
    },
    /// A command without arguments, as an empty line. The client gets no answer.
    Empty {
        /// Length of the command in bytes.
        bytes: usize,
    },
    /// A command. [`CommandParser::arguments`] returns its arguments until the next call.
    Complete {
        /// Length of the command in bytes.
        bytes: usize,
    },
}

/// Where the parser continues in a command of the array form.
#[derive(Debug, Clone, Copy)]
struct Position {
    /// Offset of the next byte to read.
    at: usize,
    /// Number of arguments that are missing.
    arguments_left: usize,
    /// Length of the argument at `at`, if its line was read.
    bulk_bytes: Option<usize>,
}

/// Reads commands from the read buffer of one connection.
#[derive(Debug, Default)]
pub struct CommandParser {
    position: Option<Position>,
    arguments: Arguments,
    /// Bytes of an inline command that have no line end.
    searched_bytes: usize,
    /// Whether the last call returned a command.
    is_complete: bool,
}

impl CommandParser {
    /// Creates a parser that expects the first byte of a command.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the arguments of the command that the last call completed.
    pub fn arguments(&self) -> &Arguments {
        &self.arguments
    }

    /// Whether the parser waits for the rest of a command.
    pub fn is_within_command(&self) -> bool {
        !self.is_complete && (self.position.is_some() || self.searched_bytes > 0)
    }

    /// Reads the command at the begin of `buffer`.
    ///
    /// After [`Progress::Incomplete`], the next call must have the same bytes with more after
    /// them. After any other result, `buffer` must begin after the command.
    ///
    /// # Errors
    ///
    /// [`ProtocolError`] if the bytes are no command or exceed a limit. The connection cannot
    /// continue, because nobody knows where the next command begins.
    pub fn parse(&mut self, buffer: &[u8], limits: &Limits) -> Result<Progress, ProtocolError> {
        if self.is_complete {
            self.arguments.clear();
            self.is_complete = false;
        }
        let progress = match (self.position, buffer.first()) {
            (_, None) => return Ok(Progress::Incomplete { bytes_needed: 1 }),
            (Some(position), _) => self.parse_array(buffer, position, limits)?,
            (None, Some(b'*')) => self.parse_count(buffer, limits)?,
            (None, Some(_)) => match parse_inline(buffer, &mut self.searched_bytes, limits, &mut self.arguments)? {
                None => Progress::Incomplete { bytes_needed: buffer.len() + 1 },
                Some(bytes) if self.arguments.is_empty() => Progress::Empty { bytes },
                Some(bytes) => Progress::Complete { bytes },
            },
        };
        if !matches!(progress, Progress::Incomplete { .. }) {
            self.position = None;
            self.searched_bytes = 0;
            self.is_complete = true;
        }
        Ok(progress)
    }

    /// Reads the line `*<count>` and what follows.
    fn parse_count(&mut self, buffer: &[u8], limits: &Limits) -> Result<Progress, ProtocolError> {
        let Some(line) = find_line(buffer, 1, limits, ProtocolError::MultibulkCountTooLong)? else {
            return Ok(Progress::Incomplete { bytes_needed: buffer.len() + 1 });
        };
        let count = parse_integer(line.of(buffer)).ok_or(ProtocolError::InvalidMultibulkLength)?;
        let Ok(arguments_left) = usize::try_from(count) else {
            return Ok(Progress::Empty { bytes: line.end + LINE_END.len() });
        };
        if arguments_left > limits.arguments_max {
            return Err(ProtocolError::InvalidMultibulkLength);
        }
        if !limits.allows_stranger_arguments(arguments_left) {
            return Err(ProtocolError::UnauthenticatedMultibulkLength);
        }
        if arguments_left == 0 {
            return Ok(Progress::Empty { bytes: line.end + LINE_END.len() });
        }
        self.arguments.spans.reserve(arguments_left.min(RESERVED_SPANS_MAX));
        self.parse_array(buffer, Position { at: line.end + LINE_END.len(), arguments_left, bulk_bytes: None }, limits)
    }

    /// Reads arguments from `position` on.
    fn parse_array(
        &mut self,
        buffer: &[u8],
        mut position: Position,
        limits: &Limits,
    ) -> Result<Progress, ProtocolError> {
        while position.arguments_left > 0 {
            let bulk_bytes = match position.bulk_bytes {
                Some(bytes) => bytes,
                None => match parse_bulk_length(buffer, position.at, limits)? {
                    Some((line, bytes)) => {
                        position.at = line.end + LINE_END.len();
                        position.bulk_bytes = Some(bytes);
                        bytes
                    }
                    None => {
                        self.position = Some(position);
                        return Ok(Progress::Incomplete { bytes_needed: buffer.len() + 1 });
                    }
                },
            };
            let end = position.at + bulk_bytes;
            let Some(line_end) = buffer.get(end..end + LINE_END.len()) else {
                self.position = Some(position);
                return Ok(Progress::Incomplete { bytes_needed: end + LINE_END.len() });
            };
            if line_end != LINE_END {
                return Err(ProtocolError::ExpectedLineEnd);
            }
            self.arguments.spans.push(Span { start: position.at, end });
            let at = end + LINE_END.len();
            position = Position { at, arguments_left: position.arguments_left - 1, bulk_bytes: None };
        }
        Ok(Progress::Complete { bytes: position.at })
    }
}

/// The end of each line and bulk string.
pub const LINE_END: &[u8] = b"\r\n";

/// Reads the line `$<length>` at `at`. Returns `None` if the line has no end yet.
fn parse_bulk_length(buffer: &[u8], at: usize, limits: &Limits) -> Result<Option<(Span, usize)>, ProtocolError> {
    match buffer.get(at) {
        None => return Ok(None),
        Some(b'$') => {}
        Some(byte) => return Err(ProtocolError::ExpectedBulk(*byte)),
    }
    let Some(line) = find_line(buffer, at + 1, limits, ProtocolError::BulkCountTooLong)? else {
        return Ok(None);
    };
    let length = parse_integer(line.of(buffer)).and_then(|length| usize::try_from(length).ok());
    match length {
        Some(bytes) if bytes > limits.bulk_bytes_max => Err(ProtocolError::InvalidBulkLength),
        Some(bytes) if !limits.allows_stranger_bulk(bytes) => Err(ProtocolError::UnauthenticatedBulkLength),
        Some(bytes) => Ok(Some((line, bytes))),
        None => Err(ProtocolError::InvalidBulkLength),
    }
}

/// Returns the text of the line that begins at `start`, without CR LF, or `None` if the line has
/// no end yet. Fails with `too_long` if the line exceeds the limit.
pub(crate) fn find_line<E>(buffer: &[u8], start: usize, limits: &Limits, too_long: E) -> Result<Option<Span>, E> {
    let bound = buffer.len().min(start + limits.inline_bytes_max);
    match buffer[start..bound].windows(LINE_END.len()).position(|pair| pair == LINE_END) {
        Some(bytes) => Ok(Some(Span { start, end: start + bytes })),
        None if bound - start >= limits.inline_bytes_max => Err(too_long),
        None => Ok(None),
    }
}
