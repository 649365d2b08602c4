//! A connection of TCP, of TLS or of a unix socket.

use std::io::{self, Read, Write};
use std::time::Duration;

use mio::event::Source;
use mio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use mio::{Interest, Registry, Token};
use rustix::net::sockopt;

/// Probes without an answer after which the system ends a connection, as in Redis.
const KEEPALIVE_PROBE_COUNT: u32 = 3;

use super::tls::{TlsAcceptor, TlsStream};

/// A connection.
#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(TcpStream),
    Tls(Box<TlsStream>),
    Unix(UnixStream),
}

/// A socket that accepts connections.
#[derive(Debug)]
pub(crate) enum Listener {
    Tcp(TcpListener),
    Tls(TcpListener, TlsAcceptor),
    Unix(UnixListener),
}

/// The addresses of both ends of a connection, as `CLIENT LIST` shows them.
#[derive(Debug)]
pub(crate) struct Addresses {
    pub(crate) peer: String,
    pub(crate) local: String,
}

impl Stream {
    /// Sends replies at once instead of waiting for more.
    pub(crate) fn disable_delay(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_nodelay(true),
            Self::Tls(stream) => stream.tcp.set_nodelay(true),
            Self::Unix(_) => Ok(()),
        }
    }

    /// Makes the system probe whether a silent client still exists. 0 means never.
    pub(crate) fn set_keepalive(&self, after: Duration) -> io::Result<()> {
        let stream = match self {
            Self::Tcp(stream) => stream,
            Self::Tls(stream) => &stream.tcp,
            Self::Unix(_) => return Ok(()),
        };
        sockopt::set_socket_keepalive(stream, !after.is_zero())?;
        if after.is_zero() {
            return Ok(());
        }
        sockopt::set_tcp_keepidle(stream, after)?;
        sockopt::set_tcp_keepintvl(stream, (after / KEEPALIVE_PROBE_COUNT).max(Duration::from_secs(1)))?;
        Ok(sockopt::set_tcp_keepcnt(stream, KEEPALIVE_PROBE_COUNT)?)
    }

    pub(crate) fn addresses(&self) -> Addresses {
        match self {
            Self::Tcp(stream) => addresses_of(stream),
            Self::Tls(stream) => addresses_of(&stream.tcp),
            Self::Unix(stream) => {
                let path = stream.local_addr().ok();
                let path = path.as_ref().and_then(|address| address.as_pathname());
                let local = path.map(|path| path.display().to_string()).unwrap_or_default();
                Addresses { peer: format!("{local}:0"), local: format!("{local}:0") }
            }
        }
    }

    /// Whether a read that returns fewer bytes than requested has read all available bytes.
    pub(crate) fn is_drained_by_short_read(&self) -> bool {
        !matches!(self, Self::Tls(_))
    }

    /// Whether a write of several parts sends them without a copy. TLS encrypts into a buffer.
    pub(crate) fn gathers_writes(&self) -> bool {
        !matches!(self, Self::Tls(_))
    }

    /// Whether the connection is not ready for commands yet.
    pub(crate) fn is_handshaking(&self) -> bool {
        matches!(self, Self::Tls(stream) if stream.is_handshaking())
    }

    /// Whether the handshake exceeds its time limit.
    pub(crate) fn is_late(&self) -> bool {
        matches!(self, Self::Tls(stream) if stream.is_late())
    }

    /// Whether bytes that were written wait for the socket.
    pub(crate) fn has_unsent(&self) -> bool {
        matches!(self, Self::Tls(stream) if stream.has_unsent())
    }

    /// Tells the client that no more bytes follow.
    pub(crate) fn announce_end(&mut self) {
        if let Self::Tls(stream) = self {
            stream.close();
        }
    }

    fn source(&mut self) -> &mut dyn Source {
        match self {
            Self::Tcp(stream) => stream,
            Self::Tls(stream) => &mut stream.tcp,
            Self::Unix(stream) => stream,
        }
    }

    /// Asks for events when the socket has bytes.
    pub(crate) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        registry.register(self.source(), token, Interest::READABLE)
    }

    /// Asks for events when the socket has bytes, and when it accepts bytes if `awaits_writable`.
    /// Without the second, a unix socket wakes the loop each time that its client reads.
    pub(crate) fn change_interest(
        &mut self,
        registry: &Registry,
        token: Token,
        awaits_writable: bool,
    ) -> io::Result<()> {
        let interest = if awaits_writable { Interest::READABLE | Interest::WRITABLE } else { Interest::READABLE };
        registry.reregister(self.source(), token, interest)
    }

    pub(crate) fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        registry.deregister(self.source())
    }
}

fn addresses_of(stream: &TcpStream) -> Addresses {
    let text = |address: io::Result<std::net::SocketAddr>| {
        address.map_or_else(|_| "?:0".into(), |address| address.to_string())
    };
    Addresses { peer: text(stream.peer_addr()), local: text(stream.local_addr()) }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(buffer),
            Self::Tls(stream) => stream.read(buffer),
            Self::Unix(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(bytes),
            Self::Tls(stream) => stream.write(bytes),
            Self::Unix(stream) => stream.write(bytes),
        }
    }

    fn write_vectored(&mut self, parts: &[io::IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write_vectored(parts),
            Self::Tls(stream) => stream.write_vectored(parts),
            Self::Unix(stream) => stream.write_vectored(parts),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        if let Self::Tls(stream) = self {
            return stream.flush();
        }
        Ok(())
    }
}

impl Listener {
    /// Accepts a connection that waits.
    pub(crate) fn accept(&self) -> io::Result<Stream> {
        match self {
            Self::Tcp(listener) => listener.accept().map(|(stream, _)| Stream::Tcp(stream)),
            Self::Tls(listener, acceptor) => {
                let (stream, _) = listener.accept()?;
                Ok(Stream::Tls(Box::new(acceptor.accept(stream)?)))
            }
            Self::Unix(listener) => listener.accept().map(|(stream, _)| Stream::Unix(stream)),
        }
    }

    pub(crate) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        match self {
            Self::Tcp(listener) | Self::Tls(listener, _) => registry.register(listener, token, Interest::READABLE),
            Self::Unix(listener) => registry.register(listener, token, Interest::READABLE),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns both ends of a connection over the loopback address.
    fn connected() -> (TcpStream, std::net::TcpStream) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a listener");
        let client = std::net::TcpStream::connect(listener.local_addr().expect("an address")).expect("a connection");
        let (accepted, _) = listener.accept().expect("a connection");
        accepted.set_nonblocking(true).expect("an option");
        (TcpStream::from_std(accepted), client)
    }

    fn has_probes(stream: &TcpStream, after: Duration) -> bool {
        let idle = sockopt::tcp_keepidle(stream).expect("an option");
        sockopt::socket_keepalive(stream).expect("an option") && idle == after
    }

    #[test]
    fn silent_clients_of_tcp_are_probed() {
        let (tcp, _client) = connected();
        let stream = Stream::Tcp(tcp);
        stream.set_keepalive(Duration::from_secs(100)).expect("options");
        assert!(matches!(&stream, Stream::Tcp(tcp) if has_probes(tcp, Duration::from_secs(100))));
    }

    #[cfg(all(feature = "tls", any(target_arch = "x86_64", target_arch = "aarch64")))]
    #[test]
    fn silent_clients_of_tls_are_probed() {
        let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/certificates/first");
        let config = crate::TlsConfig {
            cert_file: dir.join("cert.pem"),
            key_file: dir.join("key.pem"),
            clients: crate::TlsClients::WithoutCertificate,
            ..crate::TlsConfig::default()
        };
        let acceptor = TlsAcceptor::new(&config).expect("an acceptor");
        let (tcp, _client) = connected();
        let stream = Stream::Tls(Box::new(acceptor.accept(tcp).expect("a connection")));
        stream.set_keepalive(Duration::from_secs(100)).expect("options");
        assert!(matches!(&stream, Stream::Tls(tls) if has_probes(&tls.tcp, Duration::from_secs(100))));
        stream.set_keepalive(Duration::ZERO).expect("options");
        assert!(matches!(&stream, Stream::Tls(tls) if !sockopt::socket_keepalive(&tls.tcp).expect("an option")));
    }
}
