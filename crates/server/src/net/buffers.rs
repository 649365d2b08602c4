//! The input and the output of one connection.

use std::io::{self, ErrorKind, IoSlice, Read, Write};

use lodestore_wire::{Arguments, CommandParser, LINE_END, Limits, Progress, ProtocolError};

use super::stream::Stream;

/// Bytes by which the buffer of a connection grows at least.
const READ_BYTES: usize = 16 << 10;

/// Most bytes by which the buffer grows for one read.
const GROWTH_BYTES_MAX: usize = 1 << 20;

/// Least free bytes of a buffer before a read.
const READ_BYTES_MIN: usize = 4 << 10;

/// Most bytes that a tick reads from one connection, so that all connections get their turn.
const TICK_BYTES_MAX: usize = 256 << 10;

/// Largest empty buffer that a connection keeps: one in which a value of 64 KiB fits.
const KEPT_BYTES_MAX: usize = 160 << 10;

/// The result of a read of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadEnd {
    /// The socket has no more bytes now.
    Drained,
    /// The socket may have more bytes.
    More,
    /// The client closed its end, or the connection failed.
    Closed,
}

/// The bytes that a client sent.
#[derive(Debug, Default)]
pub(crate) struct Input {
    /// The buffer. The bytes from `end` on are free.
    bytes: Vec<u8>,
    /// End of the bytes that were read.
    end: usize,
    /// Offset of the command that is parsed next.
    start: usize,
    parser: CommandParser,
    /// Length of the command that was parsed, until it is consumed.
    parsed_bytes: Option<usize>,
    /// Bytes after `start` that must exist before the next command can be complete.
    bytes_needed: usize,
}

impl Input {
    /// Reads the available bytes of the socket. Returns their number and how the reading ended.
    pub(crate) fn read_from(&mut self, stream: &mut Stream) -> (usize, ReadEnd) {
        self.compact();
        let before = self.end;
        let was_unallocated = self.bytes.is_empty();
        let end = loop {
            if self.end - before >= TICK_BYTES_MAX {
                break ReadEnd::More;
            }
            match self.read_once(stream) {
                Ok(0) => break ReadEnd::Closed,
                Ok(_) if self.end < self.bytes.len() && stream.is_drained_by_short_read() => break ReadEnd::Drained,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break ReadEnd::Drained,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => break ReadEnd::Closed,
            }
        };
        if self.end == 0 && was_unallocated {
            // A connection that has sent nothing needs no buffer.
            self.bytes = Vec::new();
        }
        (self.end - before, end)
    }

    /// Returns the bytes of the buffer.
    pub(crate) fn allocated_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the bytes of the buffer after the last one that was read.
    pub(crate) fn free_bytes(&self) -> usize {
        self.bytes.len() - self.end
    }

    /// Returns the bytes that no command has consumed.
    pub(crate) fn pending_bytes(&self) -> usize {
        self.end - self.start
    }

    /// Frees an empty buffer of more than `bytes_max` bytes.
    pub(crate) fn free_empty(&mut self, bytes_max: usize) {
        if self.start == self.end && self.bytes.len() > bytes_max {
            (self.start, self.end) = (0, 0);
            self.bytes = Vec::new();
        }
    }

    /// Frees a large empty buffer.
    pub(crate) fn free_large_empty(&mut self) {
        self.free_empty(KEPT_BYTES_MAX);
    }

    fn read_once(&mut self, stream: &mut Stream) -> io::Result<usize> {
        if self.bytes.is_empty() {
            // The system has pages of zeros, which a short command does not touch.
            self.bytes = vec![0; READ_BYTES];
        } else if self.bytes.len() < self.end + READ_BYTES_MIN {
            // New bytes are written with zeros once, and not for each read.
            let growth = self.bytes.len().clamp(READ_BYTES, GROWTH_BYTES_MAX);
            self.bytes.resize(self.end + growth, 0);
        }
        let bytes = stream.read(&mut self.bytes[self.end..])?;
        self.end += bytes;
        Ok(bytes)
    }

    /// Moves the rest to the begin of the buffer, and frees a large empty buffer.
    fn compact(&mut self) {
        if self.start == self.end {
            self.end = 0;
            if self.bytes.len() > KEPT_BYTES_MAX {
                self.bytes = Vec::new();
            }
        } else if self.start > 0 {
            self.bytes.copy_within(self.start..self.end, 0);
            self.end -= self.start;
        }
        self.start = 0;
    }

    /// Parses the next command. Returns whether there is a complete one. The command stays the
    /// same until [`Self::consume`].
    ///
    /// # Errors
    ///
    /// [`ProtocolError`]: the connection cannot continue.
    pub(crate) fn parse(&mut self, limits: &Limits) -> Result<bool, ProtocolError> {
        while self.parsed_bytes.is_none() {
            let rest = &self.bytes[self.start..self.end];
            if rest.len() < self.bytes_needed {
                return Ok(false);
            }
            match self.parser.parse(rest, limits)? {
                Progress::Incomplete { bytes_needed } => {
                    self.bytes_needed = bytes_needed;
                    return Ok(false);
                }
                Progress::Empty { bytes } => {
                    self.start += bytes;
                    self.bytes_needed = 0;
                }
                Progress::Complete { bytes } => self.parsed_bytes = Some(bytes),
            }
        }
        Ok(true)
    }

    /// Returns the arguments of the parsed command, and the bytes that they refer to.
    pub(crate) fn command(&self) -> (&Arguments, &[u8]) {
        (self.parser.arguments(), &self.bytes[self.start..self.end])
    }

    /// Returns argument `index` of the parsed command.
    pub(crate) fn argument(&self, index: usize) -> Option<&[u8]> {
        let (arguments, bytes) = self.command();
        arguments.get(index, bytes)
    }

    /// Returns bytes of the buffer by their offset, which stays valid until the next read.
    pub(crate) fn slice(&self, start: usize, end: usize) -> &[u8] {
        &self.bytes[start..end]
    }

    /// Returns where argument `index` of an array command is in the buffer.
    pub(crate) fn range_of(&self, index: usize) -> Option<(usize, usize)> {
        match self.parser.arguments().spans() {
            (spans, None) => spans.get(index).map(|span| (self.start + span.start, self.start + span.end)),
            _ => None,
        }
    }

    /// Returns the offset of the next command. The offset stays valid until the next read.
    pub(crate) fn position(&self) -> usize {
        self.start
    }

    /// Goes back to a command that was consumed after the last read.
    pub(crate) fn rewind(&mut self, position: usize) {
        self.start = position;
        self.parser = CommandParser::default();
        self.parsed_bytes = None;
        self.bytes_needed = 0;
    }

    /// Goes to the next command.
    pub(crate) fn consume(&mut self) {
        if let Some(bytes) = self.parsed_bytes.take() {
            self.start += bytes;
            self.bytes_needed = 0;
        }
    }
}

/// The replies that a client has not received.
#[derive(Debug, Default)]
pub(crate) struct Output {
    pub(crate) bytes: Vec<u8>,
    /// Bytes at the begin that are sent.
    sent: usize,
}

impl Output {
    /// Returns the number of bytes that are not sent.
    pub(crate) fn pending_bytes(&self) -> usize {
        self.bytes.len() - self.sent
    }

    /// Returns the bytes of the buffer.
    pub(crate) fn allocated_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// Frees an empty buffer.
    pub(crate) fn free_empty(&mut self) {
        if self.bytes.is_empty() {
            self.bytes = Vec::new();
        }
    }

    /// Sends as much as the socket accepts. Returns the number of bytes.
    ///
    /// # Errors
    ///
    /// If the connection failed.
    pub(crate) fn write_to(&mut self, stream: &mut Stream) -> io::Result<usize> {
        let before = self.sent;
        stream.flush()?;
        while self.sent < self.bytes.len() {
            match stream.write(&self.bytes[self.sent..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(bytes) => self.sent += bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        let sent = self.sent - before;
        if self.sent == self.bytes.len() {
            self.clear();
        } else if self.sent > self.bytes.len() / 2 {
            self.bytes.drain(..self.sent);
            self.sent = 0;
        }
        Ok(sent)
    }

    /// Appends a bulk string, and sends as much as the socket accepts without copying the string.
    /// The rest waits in the output. Returns the number of sent bytes.
    ///
    /// A failure of the connection sends nothing. The next write reports it again.
    pub(crate) fn send_bulk(&mut self, stream: &mut Stream, string: &[u8]) -> usize {
        self.bytes.extend_from_slice(format!("${}\r\n", string.len()).as_bytes());
        let first = &self.bytes[self.sent..];
        let first_bytes = first.len();
        let mut parts = [IoSlice::new(first), IoSlice::new(string), IoSlice::new(LINE_END)];
        let mut left: &mut [IoSlice<'_>] = &mut parts;
        let mut sent = 0;
        while !left.is_empty() {
            match stream.write_vectored(left) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Ok(0) | Err(_) => break,
                Ok(bytes) => {
                    sent += bytes;
                    IoSlice::advance_slices(&mut left, bytes);
                }
            }
        }
        if sent < first_bytes {
            self.sent += sent;
        } else {
            self.clear();
        }
        let string_sent = sent.saturating_sub(first_bytes).min(string.len());
        let end_sent = sent.saturating_sub(first_bytes + string.len());
        self.bytes.extend_from_slice(&string[string_sent..]);
        self.bytes.extend_from_slice(&LINE_END[end_sent..]);
        sent
    }

    /// Forgets all bytes, which are sent, and frees a large buffer.
    fn clear(&mut self) {
        self.bytes.clear();
        self.sent = 0;
        if self.bytes.capacity() > KEPT_BYTES_MAX {
            self.bytes = Vec::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (Stream, std::os::unix::net::UnixStream) {
        let (own, client) = std::os::unix::net::UnixStream::pair().unwrap();
        own.set_nonblocking(true).unwrap();
        (Stream::Unix(mio::net::UnixStream::from_std(own)), client)
    }

    #[test]
    fn a_bulk_string_follows_unsent_bytes_and_its_rest_waits() {
        use std::io::Read as _;
        // From a string of which all is sent at once to one that fills the socket.
        for string_bytes in [0, 1, 100_000, 5_000_000] {
            let (mut stream, mut client) = pair();
            let mut output = Output { bytes: b"lost+OK\r\n".to_vec(), sent: 4 };
            let string: Vec<u8> = (0..string_bytes).map(|number: u32| (number % 251) as u8).collect();
            let sent = output.send_bulk(&mut stream, &string);
            let expected = [b"+OK\r\n", format!("${string_bytes}\r\n").as_bytes(), &string, b"\r\n"].concat();
            assert_eq!(sent + output.pending_bytes(), expected.len());
            let reader = std::thread::spawn(move || {
                let mut received = Vec::new();
                client.read_to_end(&mut received).map(|_| received)
            });
            while output.pending_bytes() > 0 {
                output.write_to(&mut stream).unwrap();
            }
            drop(stream);
            assert!(reader.join().unwrap().unwrap() == expected, "a string of {string_bytes} bytes");
        }
    }

    #[test]
    fn a_silent_connection_has_no_buffer_and_a_large_one_is_freed_after_its_command() {
        let (mut stream, mut client) = pair();
        let mut input = Input::default();
        assert_eq!(input.read_from(&mut stream), (0, ReadEnd::Drained));
        assert_eq!(input.allocated_bytes(), 0);
        let value = vec![b'x'; 150_000];
        let command = [&b"*2\r\n$4\r\nECHO\r\n$150000\r\n"[..], &value, b"\r\n"].concat();
        let sender = std::thread::spawn(move || client.write_all(&command).map(|()| client));
        while input.parse(&Limits::default()) != Ok(true) {
            input.read_from(&mut stream);
        }
        let _client = sender.join().unwrap().unwrap();
        assert_eq!(input.argument(1), Some(value.as_slice()));
        input.free_large_empty();
        assert!(input.allocated_bytes() >= 150_000, "the command is in the buffer");
        input.consume();
        input.free_large_empty();
        assert_eq!(input.allocated_bytes(), 0);
    }

    #[test]
    fn a_connection_keeps_the_buffer_of_a_value_of_64_kib() {
        let (mut stream, mut client) = pair();
        let mut input = Input::default();
        let command = [&b"*2\r\n$4\r\nECHO\r\n$65536\r\n"[..], &[b'x'; 65536], b"\r\n"].concat();
        let mut allocated_bytes = Vec::new();
        for _ in 0..2 {
            std::thread::scope(|scope| {
                scope.spawn(|| client.write_all(&command).unwrap());
                while input.parse(&Limits::default()) != Ok(true) {
                    input.read_from(&mut stream);
                }
            });
            input.consume();
            input.free_large_empty();
            allocated_bytes.push(input.allocated_bytes());
        }
        assert!(allocated_bytes[0] > 65536 && allocated_bytes[0] == allocated_bytes[1], "{allocated_bytes:?}");
    }
}
