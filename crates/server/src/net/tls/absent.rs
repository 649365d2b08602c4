//! A build without TLS: an acceptor cannot be created.

use std::convert::Infallible;
use std::io::{self, Read, Write};

use mio::net::TcpStream;

use crate::tls_config::TlsConfig;

/// Never exists.
#[derive(Debug, Clone)]
pub(crate) struct TlsAcceptor(Infallible);

/// Never exists.
#[derive(Debug)]
pub(crate) struct TlsStream {
    pub(crate) tcp: TcpStream,
    never: Infallible,
}

impl TlsAcceptor {
    pub(crate) fn new(_: &TlsConfig) -> Result<Self, String> {
        Err("this program was built without TLS: build it with the feature tls".into())
    }

    pub(crate) fn accept(&self, _: TcpStream) -> io::Result<TlsStream> {
        match self.0 {}
    }
}

impl TlsStream {
    pub(crate) fn is_handshaking(&self) -> bool {
        match self.never {}
    }

    pub(crate) fn is_late(&self) -> bool {
        match self.never {}
    }

    pub(crate) fn has_unsent(&self) -> bool {
        match self.never {}
    }

    pub(crate) fn close(&mut self) {
        match self.never {}
    }
}

impl Read for TlsStream {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        match self.never {}
    }
}

impl Write for TlsStream {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        match self.never {}
    }

    fn flush(&mut self) -> io::Result<()> {
        match self.never {}
    }
}
