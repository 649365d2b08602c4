//! The way of new connections and of messages to an event loop.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use mio::{Registry, Token};

use super::stream::Stream;
use crate::messaging::mailbox::Mailbox;

/// Connections and messages that wait for their event loop.
#[derive(Debug)]
pub(crate) struct Inbox {
    streams: Mutex<Vec<Stream>>,
    pub(crate) mailbox: Arc<Mailbox>,
}

impl Inbox {
    pub(crate) fn new(registry: &Registry, token: Token) -> io::Result<Self> {
        Ok(Self { streams: Mutex::default(), mailbox: Arc::new(Mailbox::new(registry, token)?) })
    }

    /// Hands a connection to the loop.
    pub(crate) fn send(&self, stream: Stream) {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner).push(stream);
        self.mailbox.wake();
    }

    /// Returns all waiting connections.
    pub(crate) fn take_streams(&self) -> Vec<Stream> {
        std::mem::take(&mut *self.streams.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
