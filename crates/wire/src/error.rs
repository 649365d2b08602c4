//! Errors of the protocol, with the texts that Redis sends.

use std::fmt;

/// A command that breaks the protocol. The server sends the text and closes the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProtocolError {
    /// The number of arguments is no number, or too large.
    InvalidMultibulkLength,
    /// A client that must authenticate first sends too many arguments.
    UnauthenticatedMultibulkLength,
    /// The line with the number of arguments has no end within the limit.
    MultibulkCountTooLong,
    /// An argument does not begin with `$` but with this byte.
    ExpectedBulk(u8),
    /// The length of an argument is no number, or too large.
    InvalidBulkLength,
    /// A client that must authenticate first sends a long argument.
    UnauthenticatedBulkLength,
    /// The line with an argument's length has no end within the limit.
    BulkCountTooLong,
    /// The two bytes after an argument are not CR LF.
    ExpectedLineEnd,
    /// An inline command has no end within the limit.
    InlineTooLong,
    /// An inline command has a quote without its partner, or text right after a closing quote.
    UnbalancedQuotes,
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Protocol error: ")?;
        match self {
            Self::InvalidMultibulkLength => f.write_str("invalid multibulk length"),
            Self::UnauthenticatedMultibulkLength => f.write_str("unauthenticated multibulk length"),
            Self::MultibulkCountTooLong => f.write_str("too big mbulk count string"),
            Self::ExpectedBulk(byte) => write!(f, "expected '$', got '{}'", printable(*byte)),
            Self::InvalidBulkLength => f.write_str("invalid bulk length"),
            Self::UnauthenticatedBulkLength => f.write_str("unauthenticated bulk length"),
            Self::BulkCountTooLong => f.write_str("too big bulk count string"),
            Self::ExpectedLineEnd => f.write_str("expected CR LF after an argument"),
            Self::InlineTooLong => f.write_str("too big inline request"),
            Self::UnbalancedQuotes => f.write_str("unbalanced quotes in request"),
        }
    }
}

impl std::error::Error for ProtocolError {}

/// Returns the character of a byte, or `?` for a byte that would break the reply's line.
fn printable(byte: u8) -> char {
    if byte.is_ascii_graphic() || byte == b' ' { char::from(byte) } else { '?' }
}

/// A reply that breaks the protocol or exceeds a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecodeError {
    /// A reply begins with a byte that names no type.
    UnknownType(u8),
    /// A length, count or integer is no number, or out of range.
    InvalidNumber,
    /// A line has no end within the limit.
    LineTooLong,
    /// Aggregates are nested more deeply than the limit.
    TooDeep,
    /// The two bytes after a bulk string are not CR LF.
    ExpectedLineEnd,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownType(byte) => write!(f, "the reply begins with byte {byte:#04x}, which names no type"),
            Self::InvalidNumber => f.write_str("a length or number of the reply is invalid"),
            Self::LineTooLong => f.write_str("a line of the reply is too long"),
            Self::TooDeep => f.write_str("the reply is nested too deeply"),
            Self::ExpectedLineEnd => f.write_str("a string of the reply does not end with CR LF"),
        }
    }
}

impl std::error::Error for DecodeError {}
