//! A connection of TLS.

use std::io::{self, ErrorKind, Read, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use rustls::{ServerConfig, ServerConnection};

/// Most bytes that a client may send for its handshake. A chain of certificates has a few KiB.
const HANDSHAKE_BYTES_MAX: usize = 256 << 10;

/// Most receipts from the socket in a row that bring no data. A client that sends empty records
/// without end must not hold the event loop.
const RECEIPTS_MAX: usize = 1024;

/// Most bytes of replies and of messages of the protocol that wait for the socket.
const BUFFER_BYTES_MAX: usize = 64 << 10;

/// A connection of TLS. Reads and writes never wait.
#[derive(Debug)]
pub(crate) struct TlsStream {
    pub(crate) tcp: TcpStream,
    session: ServerConnection,
    handshake_end: Instant,
    handshake_bytes: usize,
}

impl TlsStream {
    pub(super) fn new(tcp: TcpStream, config: Arc<ServerConfig>, handshake_timeout: Duration) -> io::Result<Self> {
        let mut session = ServerConnection::new(config).map_err(io::Error::other)?;
        session.set_buffer_limit(Some(BUFFER_BYTES_MAX));
        let handshake_end = Instant::now() + handshake_timeout;
        Ok(Self { tcp, session, handshake_end, handshake_bytes: 0 })
    }

    /// Whether the handshake has not ended.
    pub(crate) fn is_handshaking(&self) -> bool {
        self.session.is_handshaking()
    }

    /// Whether the handshake exceeds its time limit.
    pub(crate) fn is_late(&self) -> bool {
        self.session.is_handshaking() && Instant::now() > self.handshake_end
    }

    /// Whether encrypted bytes wait for the socket.
    pub(crate) fn has_unsent(&self) -> bool {
        self.session.wants_write()
    }

    /// Tells the client that no more bytes follow. The message is lost if the socket is full.
    pub(crate) fn close(&mut self) {
        if !self.session.is_handshaking() {
            self.session.send_close_notify();
            drop(self.send());
        }
    }

    /// Sends encrypted bytes until the socket is full.
    fn send(&mut self) -> io::Result<()> {
        while self.session.wants_write() {
            match self.session.write_tls(&mut self.tcp) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Receives and decrypts the available bytes. Returns false at the end of the socket.
    fn receive(&mut self) -> io::Result<bool> {
        let bytes = self.session.read_tls(&mut self.tcp)?;
        if self.session.is_handshaking() {
            self.handshake_bytes += bytes;
            if self.handshake_bytes > HANDSHAKE_BYTES_MAX {
                return Err(io::Error::new(ErrorKind::InvalidData, "the handshake is too long"));
            }
        }
        if let Err(error) = self.session.process_new_packets() {
            // The alert informs the client about the error.
            drop(self.send());
            return Err(io::Error::new(ErrorKind::InvalidData, error));
        }
        Ok(bytes > 0)
    }
}

impl Read for TlsStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut is_open = true;
        for _ in 0..RECEIPTS_MAX {
            match self.session.reader().read(buffer) {
                Ok(bytes) => return Ok(bytes),
                Err(error) if error.kind() == ErrorKind::WouldBlock && is_open => {}
                // The client closed the socket without the message that ends the stream.
                Err(error) if matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::WouldBlock) => return Ok(0),
                Err(error) => return Err(error),
            }
            is_open = self.receive()?;
        }
        Err(io::Error::new(ErrorKind::InvalidData, "too many records have no data"))
    }
}

impl Write for TlsStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.send()?;
        if self.session.wants_write() {
            return Err(ErrorKind::WouldBlock.into());
        }
        let accepted = self.session.writer().write(bytes)?;
        self.send()?;
        Ok(accepted)
    }

    /// Sends encrypted bytes until the socket is full.
    fn flush(&mut self) -> io::Result<()> {
        self.send()
    }
}
