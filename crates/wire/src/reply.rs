//! The writer of replies.

use crate::command::LINE_END;
use crate::number::{DECIMAL_BYTES_MAX, format_integer};

/// The version of the protocol that a client speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Protocol {
    /// RESP2: each client begins with it.
    #[default]
    Resp2,
    /// RESP3: a client asks for it by `HELLO 3`.
    Resp3,
}

/// Appends replies to the output buffer of a connection.
///
/// A type that RESP2 lacks is written in the form that Redis sends to clients of RESP2: a map as a
/// flat array, a boolean as 0 or 1, a double and a verbatim string as a bulk string.
#[derive(Debug)]
pub struct ReplyWriter<'a> {
    output: &'a mut Vec<u8>,
    protocol: Protocol,
    /// Most bytes of the output buffer.
    output_max: usize,
    /// Whether a string was left out, because it exceeded `output_max`.
    is_cut: bool,
}

impl<'a> ReplyWriter<'a> {
    /// Creates a writer that appends to `output`.
    pub fn new(output: &'a mut Vec<u8>, protocol: Protocol) -> Self {
        Self { output, protocol, output_max: usize::MAX, is_cut: false }
    }

    /// Bounds the output buffer to `bytes`. A string that would exceed the bound is left out, and
    /// so are the strings after it. The caller checks [`Self::is_cut`] and replaces the reply.
    pub fn set_output_max(&mut self, bytes: usize) {
        self.output_max = bytes;
    }

    /// Whether a string was left out. The reply is invalid then.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Whether a string of `bytes` bytes may be written.
    fn admits(&mut self, bytes: usize) -> bool {
        self.is_cut |= self.output.len().saturating_add(bytes) > self.output_max;
        !self.is_cut
    }

    /// Returns the version of the protocol.
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Changes the version of the protocol for the replies that follow.
    pub fn set_protocol(&mut self, protocol: Protocol) {
        self.protocol = protocol;
    }

    /// Returns the number of bytes in the output buffer.
    pub fn output_bytes(&self) -> usize {
        self.output.len()
    }

    /// Removes all bytes after the first `bytes`: a reply that turned out to be an error is
    /// written again.
    pub fn truncate(&mut self, bytes: usize) {
        self.output.truncate(bytes);
        self.is_cut = false;
    }

    /// Writes `+text`. A line end in the text becomes a space.
    pub fn write_simple(&mut self, text: &str) {
        self.write_line(b'+', text.as_bytes());
    }

    /// Writes `+OK`.
    pub fn write_ok(&mut self) {
        self.output.extend_from_slice(b"+OK\r\n");
    }

    /// Writes `-text`. The text begins with the error's code. A line end in the text becomes a
    /// space.
    pub fn write_error(&mut self, text: &str) {
        self.write_line(b'-', text.as_bytes());
    }

    /// Writes an integer.
    pub fn write_integer(&mut self, number: i64) {
        self.write_number(b':', number);
    }

    /// Writes a bulk string.
    pub fn write_bulk(&mut self, bytes: &[u8]) {
        if !self.admits(bytes.len()) {
            return;
        }
        self.write_length(b'$', bytes.len());
        self.output.reserve(bytes.len() + LINE_END.len());
        self.output.extend_from_slice(bytes);
        self.output.extend_from_slice(LINE_END);
    }

    /// Writes an integer as a bulk string.
    pub fn write_bulk_integer(&mut self, number: i64) {
        let mut buffer = [0; DECIMAL_BYTES_MAX];
        let text = format_integer(number, &mut buffer);
        self.write_bulk(text);
    }

    /// Writes the absence of a value.
    pub fn write_null(&mut self) {
        self.output.extend_from_slice(match self.protocol {
            Protocol::Resp2 => b"$-1\r\n",
            Protocol::Resp3 => b"_\r\n",
        });
    }

    /// Writes the absence of an array.
    pub fn write_null_array(&mut self) {
        self.output.extend_from_slice(match self.protocol {
            Protocol::Resp2 => b"*-1\r\n",
            Protocol::Resp3 => b"_\r\n",
        });
    }

    /// Writes the head of an array. `elements` replies follow.
    pub fn write_array(&mut self, elements: usize) {
        self.write_length(b'*', elements);
    }

    /// Writes the head of a map. `pairs` pairs of replies follow.
    pub fn write_map(&mut self, pairs: usize) {
        match self.protocol {
            Protocol::Resp2 => self.write_length(b'*', pairs * 2),
            Protocol::Resp3 => self.write_length(b'%', pairs),
        }
    }

    /// Writes the head of a set. `elements` replies follow.
    pub fn write_set(&mut self, elements: usize) {
        match self.protocol {
            Protocol::Resp2 => self.write_length(b'*', elements),
            Protocol::Resp3 => self.write_length(b'~', elements),
        }
    }

    /// Writes the head of a message that answers no command. `elements` replies follow.
    pub fn write_push(&mut self, elements: usize) {
        match self.protocol {
            Protocol::Resp2 => self.write_length(b'*', elements),
            Protocol::Resp3 => self.write_length(b'>', elements),
        }
    }

    /// Writes a boolean.
    pub fn write_boolean(&mut self, is_true: bool) {
        match self.protocol {
            Protocol::Resp2 => self.write_integer(i64::from(is_true)),
            Protocol::Resp3 => self.output.extend_from_slice(if is_true { b"#t\r\n" } else { b"#f\r\n" }),
        }
    }

    /// Writes a number by its decimal text, which the caller formats.
    pub fn write_double(&mut self, text: &str) {
        match self.protocol {
            Protocol::Resp2 => self.write_bulk(text.as_bytes()),
            Protocol::Resp3 => self.write_line(b',', text.as_bytes()),
        }
    }

    /// Writes a text of the format `txt`.
    pub fn write_verbatim(&mut self, text: &[u8]) {
        match self.protocol {
            Protocol::Resp2 => self.write_bulk(text),
            Protocol::Resp3 => {
                /// Bytes of the format's name and its colon.
                const FORMAT: &[u8] = b"txt:";
                self.write_length(b'=', FORMAT.len() + text.len());
                self.output.extend_from_slice(FORMAT);
                self.output.extend_from_slice(text);
                self.output.extend_from_slice(LINE_END);
            }
        }
    }

    /// Writes bytes that are a reply already.
    pub fn write_raw(&mut self, reply: &[u8]) {
        self.output.extend_from_slice(reply);
    }

    fn write_line(&mut self, kind: u8, text: &[u8]) {
        self.output.push(kind);
        let start = self.output.len();
        self.output.extend_from_slice(text);
        for byte in &mut self.output[start..] {
            if *byte == b'\r' || *byte == b'\n' {
                *byte = b' ';
            }
        }
        self.output.extend_from_slice(LINE_END);
    }

    fn write_length(&mut self, kind: u8, length: usize) {
        // No length in memory exceeds `i64::MAX`.
        self.write_number(kind, i64::try_from(length).unwrap_or(i64::MAX));
    }

    fn write_number(&mut self, kind: u8, number: i64) {
        let mut buffer = [0; DECIMAL_BYTES_MAX];
        let text = format_integer(number, &mut buffer);
        self.output.push(kind);
        self.output.extend_from_slice(text);
        self.output.extend_from_slice(LINE_END);
    }
}
