//! A client of the Redis protocol that waits for each reply.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use lodestore_wire::{Limits, Reply, decode_reply};

/// Longest wait for a reply.
const REPLY_TIMEOUT: Duration = Duration::from_secs(60);

/// Bytes of one read.
const READ_BYTES: usize = 64 << 10;

/// A connection to a server.
#[derive(Debug)]
pub(super) struct Client {
    stream: UnixStream,
    received: Vec<u8>,
}

impl Client {
    /// Connects to a unix socket.
    ///
    /// # Errors
    ///
    /// Errors of the system.
    pub(super) fn connect(socket: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(REPLY_TIMEOUT))?;
        Ok(Self { stream, received: Vec::new() })
    }

    /// Sends a command and returns its reply.
    ///
    /// # Errors
    ///
    /// If the connection ended, or the reply is malformed.
    pub(super) fn call<A: AsRef<[u8]>>(&mut self, arguments: &[A]) -> io::Result<Reply> {
        let mut bytes = Vec::new();
        push_command(&mut bytes, arguments);
        self.send(&bytes)?;
        self.receive()
    }

    /// Sends commands that [`push_command`] made.
    ///
    /// # Errors
    ///
    /// Errors of the system.
    pub(super) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Waits for the next reply.
    ///
    /// # Errors
    ///
    /// As [`Self::call`].
    pub(super) fn receive(&mut self) -> io::Result<Reply> {
        loop {
            let decoded = decode_reply(&self.received, &Limits::default());
            if let Some((reply, length)) = decoded.map_err(|error| io::Error::other(error.to_string()))? {
                self.received.drain(..length);
                return Ok(reply);
            }
            let before = self.received.len();
            self.received.resize(before + READ_BYTES, 0);
            let read = self.stream.read(&mut self.received[before..]);
            self.received.truncate(before + read.as_ref().copied().unwrap_or(0));
            if read? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

/// Appends a command.
pub(super) fn push_command<A: AsRef<[u8]>>(bytes: &mut Vec<u8>, arguments: &[A]) {
    bytes.extend_from_slice(format!("*{}\r\n", arguments.len()).as_bytes());
    for argument in arguments.iter().map(AsRef::as_ref) {
        bytes.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
        bytes.extend_from_slice(argument);
        bytes.extend_from_slice(b"\r\n");
    }
}
