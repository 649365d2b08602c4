//! The way of a new connection from the accepting loop to its own loop.

use std::io;
use std::sync::{Mutex, PoisonError};

use mio::{Registry, Token, Waker};

use super::stream::Stream;

/// Connections that wait for their event loop.
#[derive(Debug)]
pub(crate) struct Mailbox {
    streams: Mutex<Vec<Stream>>,
    waker: Waker,
}

impl Mailbox {
    pub(crate) fn new(registry: &Registry, token: Token) -> io::Result<Self> {
        Ok(Self { streams: Mutex::default(), waker: Waker::new(registry, token)? })
    }

    /// Hands a connection to the loop.
    pub(crate) fn send(&self, stream: Stream) {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner).push(stream);
        self.wake();
    }

    /// Makes the loop run a tick. A loop that cannot be woken runs one within its poll timeout.
    pub(crate) fn wake(&self) {
        drop(self.waker.wake());
    }

    /// Returns all waiting connections.
    pub(crate) fn take(&self) -> Vec<Stream> {
        std::mem::take(&mut *self.streams.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
