//! A server without threads and listeners, for the fuzz targets of `fuzz/`.
//!
//! The caller runs the one event loop step by step, so a run repeats exactly for the same bytes.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use lodestore::Db;
use lodestore::db::Engine;
use mio::{Events, Poll};

use crate::acl::Acl;
pub use crate::command::describe::{CommandDescription, command_table};
use crate::command::dispatch::ViewCache;
use crate::config::{Config, DebugClients};
use crate::data::databases::Databases;
use crate::net::event_loop::{EventLoop, MAILBOX, Start};
use crate::net::inbox::Inbox;
use crate::net::stream::Stream;
use crate::shared::Shared;

/// Longest argument of the server, so that no command creates large strings.
pub const BULK_BYTES_MAX: usize = 1 << 20;

/// Capacity of the store in bytes.
const CAPACITY_BYTES: u64 = 256 << 20;

/// Events that one step handles.
const EVENTS_MAX: usize = 64;

/// A server whose event loop the caller runs.
#[derive(Debug)]
pub struct LoopServer {
    event_loop: EventLoop,
    view: ViewCache,
    events: Events,
}

impl LoopServer {
    /// Creates a server over a new small store.
    ///
    /// # Errors
    ///
    /// If the store or the system refuses it. The text says why.
    pub fn create(store: &Path) -> Result<Self, String> {
        let builder = Db::builder(store).engine(Engine::fluidkv()).capacity(CAPACITY_BYTES);
        let db = builder.open().map_err(|error| error.to_string())?;
        let debug_clients = DebugClients::Everybody;
        let config = Config { bulk_bytes_max: BULK_BYTES_MAX, debug_clients, ..Config::default() };
        let acl = Acl::new(&config).map_err(|error| error.to_string())?;
        let databases = Databases::open(db, config.databases).map_err(|error| error.to_string())?;
        let shared = Arc::new(Shared::new(databases, config, acl, 0));
        let start = || -> io::Result<EventLoop> {
            let poll = Poll::new()?;
            let inboxes = vec![Arc::new(Inbox::new(poll.registry(), MAILBOX)?)];
            shared.hub.connect(inboxes.iter().map(|inbox| Arc::clone(&inbox.mailbox)).collect());
            inboxes[0].mailbox.claim();
            EventLoop::new(Start { shared: Arc::clone(&shared), poll, inboxes, own: 0, listeners: Vec::new() })
        };
        let event_loop = start().map_err(|error| error.to_string())?;
        let view = ViewCache::new(&shared);
        Ok(Self { event_loop, view, events: Events::with_capacity(EVENTS_MAX) })
    }

    #[cfg(test)]
    pub(crate) fn shared(&self) -> &Shared {
        &self.event_loop.shared
    }

    /// Connects a client. Returns the client's end, which does not block.
    ///
    /// # Errors
    ///
    /// If the system refuses a pair of sockets.
    pub fn connect(&mut self) -> io::Result<UnixStream> {
        let (own, client) = UnixStream::pair()?;
        own.set_nonblocking(true)?;
        client.set_nonblocking(true)?;
        self.event_loop.adopt(Stream::Unix(mio::net::UnixStream::from_std(own)));
        Ok(client)
    }

    /// Reads the sockets that have bytes, runs the commands, and sends the replies.
    ///
    /// # Errors
    ///
    /// If the system refuses to report events.
    pub fn step(&mut self) -> io::Result<()> {
        self.event_loop.step(&mut self.events, &mut self.view, Duration::ZERO)
    }

    /// Whether the server has commands or messages that no socket announces.
    pub fn is_busy(&self) -> bool {
        self.event_loop.is_busy()
    }

    /// Whether a client stopped the server.
    pub fn is_stopping(&self) -> bool {
        self.event_loop.is_stopping()
    }
}

/// Returns the text that a client has received.
#[cfg(test)]
pub(crate) fn receive(client: &mut UnixStream) -> String {
    let mut bytes = Vec::new();
    // The socket does not block, so the read ends with an error.
    drop(io::Read::read_to_end(client, &mut bytes));
    String::from_utf8_lossy(&bytes).into_owned()
}
