//! Inline commands: one line of text, as a person types it.
//!
//! Arguments are separated by white space. An argument in double quotes may have the escapes
//! `\n \r \t \b \a \\ \" \xHH`. An argument in single quotes may have the escape `\'`. A closing
//! quote is followed by white space or by the end of the line.

use crate::arguments::{Arguments, Span};
use crate::error::ProtocolError;
use crate::limits::Limits;

/// Reads the inline command at the begin of `buffer`. Returns the length of the command in bytes,
/// or `None` if its line has no end yet. `searched_bytes` counts bytes of earlier calls that have
/// no line end.
pub(crate) fn parse_inline(
    buffer: &[u8],
    searched_bytes: &mut usize,
    limits: &Limits,
    arguments: &mut Arguments,
) -> Result<Option<usize>, ProtocolError> {
    let bound = buffer.len().min(limits.inline_bytes_max);
    let from = (*searched_bytes).min(bound);
    let Some(found) = buffer[from..bound].iter().position(|byte| *byte == b'\n') else {
        if bound >= limits.inline_bytes_max {
            return Err(ProtocolError::InlineTooLong);
        }
        *searched_bytes = bound;
        return Ok(None);
    };
    let end = from + found;
    let line = &buffer[..end];
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    split_line(line, arguments)?;
    Ok(Some(end + 1))
}

/// Splits a line into arguments.
fn split_line(line: &[u8], arguments: &mut Arguments) -> Result<(), ProtocolError> {
    let mut decoded = Vec::with_capacity(line.len());
    let mut rest = line;
    loop {
        rest = rest.trim_ascii_start();
        if rest.is_empty() {
            break;
        }
        let start = decoded.len();
        rest = split_argument(rest, &mut decoded)?;
        arguments.spans.push(Span { start, end: decoded.len() });
    }
    arguments.decoded = Some(decoded);
    Ok(())
}

/// Appends the first argument of `line` to `decoded` and returns what follows.
fn split_argument<'a>(line: &'a [u8], decoded: &mut Vec<u8>) -> Result<&'a [u8], ProtocolError> {
    let mut rest = line;
    loop {
        rest = match rest {
            [] => return Ok(rest),
            [byte, ..] if byte.is_ascii_whitespace() => return Ok(rest),
            [b'"', after @ ..] => return end_of_quoted(decode_double_quoted(after, decoded)?),
            [b'\'', after @ ..] => return end_of_quoted(decode_single_quoted(after, decoded)?),
            [byte, after @ ..] => {
                decoded.push(*byte);
                after
            }
        };
    }
}

/// Checks that white space or the end of the line follows a closing quote.
fn end_of_quoted(rest: &[u8]) -> Result<&[u8], ProtocolError> {
    match rest.first() {
        Some(byte) if !byte.is_ascii_whitespace() => Err(ProtocolError::UnbalancedQuotes),
        _ => Ok(rest),
    }
}

fn decode_double_quoted<'a>(text: &'a [u8], decoded: &mut Vec<u8>) -> Result<&'a [u8], ProtocolError> {
    let mut rest = text;
    loop {
        rest = match rest {
            [] => return Err(ProtocolError::UnbalancedQuotes),
            [b'"', after @ ..] => return Ok(after),
            [b'\\', b'x', high, low, after @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                decoded.push(hex_digit(*high) << 4 | hex_digit(*low));
                after
            }
            [b'\\', escaped, after @ ..] => {
                decoded.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 8,
                    b'a' => 7,
                    other => *other,
                });
                after
            }
            [byte, after @ ..] => {
                decoded.push(*byte);
                after
            }
        };
    }
}

fn decode_single_quoted<'a>(text: &'a [u8], decoded: &mut Vec<u8>) -> Result<&'a [u8], ProtocolError> {
    let mut rest = text;
    loop {
        rest = match rest {
            [] => return Err(ProtocolError::UnbalancedQuotes),
            [b'\'', after @ ..] => return Ok(after),
            [b'\\', b'\'', after @ ..] => {
                decoded.push(b'\'');
                after
            }
            [byte, after @ ..] => {
                decoded.push(*byte);
                after
            }
        };
    }
}

/// Returns the value of a hexadecimal digit. Other bytes have no meaning.
fn hex_digit(byte: u8) -> u8 {
    match byte {
        b'0'..=b'9' => byte - b'0',
        b'a'..=b'f' => byte - b'a' + 10,
        _ => byte.wrapping_sub(b'A').wrapping_add(10),
    }
}
