//! The server: its threads, from start to stop.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use lodestore::Db;
use mio::Poll;
use rustix::process::{Resource, getrlimit, setrlimit};

use crate::acl::Acl;
use crate::config::{Config, ConfigError};
use crate::data::databases::Databases;
use crate::http::HttpServer;
use crate::net::event_loop::{EventLoop, MAILBOX, Start};
use crate::net::inbox::Inbox;
use crate::net::listen::{BoundSockets, ListenError, UnixSocketFile};
use crate::net::stream::Listener;
use crate::shared::Shared;
use crate::store_events::StoreEvents;

/// Descriptors for files of the store, listeners and event queues.
const RESERVED_DESCRIPTOR_COUNT: u64 = 256;

/// Why a server did not start.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// The configuration is refused.
    Config(ConfigError),
    /// An address or a path cannot be listened on.
    Listen {
        /// The address or the path.
        at: String,
        /// The system's own word.
        source: io::Error,
    },
    /// The system refused threads or event queues.
    System(io::Error),
    /// The store failed.
    Store(lodestore::Error),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(error) => error.fmt(f),
            Self::Listen { at, source } if source.kind() == io::ErrorKind::AddrInUse => {
                write!(f, "{at} is in use: stop the other server, or listen on another port or path")
            }
            Self::Listen { at, source } => {
                write!(f, "cannot listen on {at}: {source}; {}", listen_advice(at, source.kind()))
            }
            Self::System(source) => write!(
                f,
                "the system refused a thread or an event queue: {source}; raise the limits of threads and open files \
                 (ulimit -u, ulimit -n)"
            ),
            Self::Store(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for StartError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Config(error) => Some(error),
            Self::Listen { source, .. } | Self::System(source) => Some(source),
            Self::Store(error) => Some(error),
        }
    }
}

impl From<ListenError> for StartError {
    fn from(error: ListenError) -> Self {
        match error {
            ListenError::Config(error) => Self::Config(error),
            ListenError::System { at, source } => Self::Listen { at, source },
        }
    }
}

/// Returns advice for a refused address or path of a unix socket.
fn listen_advice(at: &str, kind: io::ErrorKind) -> &'static str {
    use io::ErrorKind as Kind;
    match (kind, at.parse::<SocketAddr>().is_ok()) {
        (Kind::PermissionDenied, true) => "use a port of 1024 or more, or give the program CAP_NET_BIND_SERVICE",
        (Kind::AddrNotAvailable, _) => "use an address of this machine (`ip address` lists them)",
        (Kind::PermissionDenied | Kind::ReadOnlyFilesystem, false) => "choose a directory that this user may write",
        (Kind::NotFound | Kind::NotADirectory, false) => "create the directory, or choose another path",
        (Kind::InvalidInput, false) => "choose a path of at most 107 bytes",
        (_, true) => "use another address or port",
        (_, false) => "choose another path",
    }
}

/// A server that listens, and whose clients wait for [`BoundServer::start`]. A drop closes the
/// sockets.
#[derive(Debug)]
pub struct BoundServer {
    config: Config,
    acl: Acl,
    sockets: BoundSockets,
}

impl BoundServer {
    /// Serves an open store. The server serves when the call returns.
    ///
    /// # Errors
    ///
    /// [`StartError`] with advice.
    pub fn start(self, db: Db) -> Result<Server, StartError> {
        let Self { config, acl, sockets } = self;
        let databases = Databases::open(db, config.databases).map_err(StartError::Store)?;
        raise_descriptor_limit(&config);
        let BoundSockets { listeners, addresses, tls_addresses, http, unix } = sockets;
        let port = addresses.first().map_or(0, SocketAddr::port);
        let threads = config.thread_count();
        let shared = Arc::new(Shared::new(databases, config, acl, port));
        let (threads_started, inboxes) = (Vec::new(), Vec::new());
        let mut server =
            Server { shared, threads: threads_started, inboxes, addresses, tls_addresses, http: None, _unix: unix };
        if let Some((listener, address)) = http {
            let http = HttpServer::start(&server.shared, listener, address).map_err(StartError::System)?;
            server.http = Some(http);
        }
        server.start_threads(threads, listeners).map_err(StartError::System)?;
        Ok(server)
    }
}

/// A running server. [`Server::stop`] or a client's `SHUTDOWN` stops it.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<io::Result<()>>>,
    inboxes: Vec<Arc<Inbox>>,
    addresses: Vec<SocketAddr>,
    tls_addresses: Vec<SocketAddr>,
    http: Option<HttpServer>,
    /// Removed after the drop of the server, which ends the threads.
    _unix: Option<Box<UnixSocketFile>>,
}

/// Asks a server to stop, from any thread.
#[derive(Debug, Clone)]
pub struct Stopper {
    shared: Arc<Shared>,
    inboxes: Vec<Arc<Inbox>>,
}

impl Stopper {
    /// Asks the server to stop, and returns at once.
    pub fn stop(&self) {
        self.shared.stop();
        self.inboxes.iter().for_each(|inbox| inbox.mailbox.wake());
    }

    /// Whether the server stops or has stopped.
    pub fn is_stopping(&self) -> bool {
        self.shared.is_stopping()
    }

    /// Returns the time of the stop request, by this program or by a client.
    pub fn stopping_since(&self) -> Option<Instant> {
        self.shared.stopping_since()
    }
}

/// Stops the server when the thread that owns the guard ends.
struct StopGuard(Stopper);

impl Drop for StopGuard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            tracing::error!("a thread of the server panicked, so the server stops");
        }
        self.0.stop();
    }
}

impl Server {
    /// Starts a server over an open store. The server serves when the call returns.
    ///
    /// # Errors
    ///
    /// [`StartError`] with advice.
    pub fn start(db: Db, config: Config) -> Result<Self, StartError> {
        Self::bind(config)?.start(db)
    }

    /// Checks a configuration, and listens on its addresses. A program that calls this before it
    /// opens or creates its store detects early that an address is in use.
    ///
    /// # Errors
    ///
    /// [`StartError`] with advice.
    pub fn bind(config: Config) -> Result<BoundServer, StartError> {
        config.check().map_err(StartError::Config)?;
        let acl = Acl::new(&config).map_err(StartError::Config)?;
        let sockets = BoundSockets::new(&config)?;
        Ok(BoundServer { config, acl, sockets })
    }

    fn start_threads(&mut self, count: usize, mut listeners: Vec<Listener>) -> io::Result<()> {
        let polls = (0..count).map(|_| Poll::new()).collect::<io::Result<Vec<Poll>>>()?;
        for poll in &polls {
            self.inboxes.push(Arc::new(Inbox::new(poll.registry(), MAILBOX)?));
        }
        self.shared.hub.connect(self.inboxes.iter().map(|inbox| Arc::clone(&inbox.mailbox)).collect());
        for (own, poll) in polls.into_iter().enumerate() {
            let start = Start {
                shared: Arc::clone(&self.shared),
                poll,
                inboxes: self.inboxes.clone(),
                own,
                listeners: std::mem::take(&mut listeners),
            };
            let event_loop = EventLoop::new(start)?;
            self.spawn(format!("loop-{own}"), || event_loop.run())?;
        }
        let shared = Arc::clone(&self.shared);
        self.spawn("upkeep".into(), move || {
            crate::upkeep::run(&shared);
            Ok(())
        })
    }

    /// Starts a thread of the server. Its end, by a failure or a panic too, stops the server.
    fn spawn(&mut self, name: String, run: impl FnOnce() -> io::Result<()> + Send + 'static) -> io::Result<()> {
        let guard = StopGuard(self.stopper());
        let thread = std::thread::Builder::new().name(name).spawn(move || {
            let _guard = guard;
            run()
        });
        // The system drops the guard with the thread that it refuses, so the other threads end.
        self.threads.push(thread?);
        Ok(())
    }

    /// Returns the addresses of TCP that the server listens on.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Returns the addresses of TLS that the server listens on.
    pub fn tls_addresses(&self) -> &[SocketAddr] {
        &self.tls_addresses
    }

    /// Shows the events of the store in `INFO`, the metrics and the status page. The first value
    /// stays.
    pub fn report_store_events(&self, events: &StoreEvents) {
        drop(self.shared.store_events.set(events.clone()));
    }

    /// Shows the time from the start of the program until it served in the metrics and the status
    /// page. The first value stays.
    pub fn report_served_after(&self, time: Duration) {
        self.shared.served_after.get_or_init(|| time);
    }

    /// Whether the server stops or has stopped.
    pub fn is_stopping(&self) -> bool {
        self.shared.is_stopping()
    }

    /// Returns the address of HTTP, if the server has one.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.http.as_ref().map(HttpServer::address)
    }

    /// Returns the handle that stops the server.
    pub fn stopper(&self) -> Stopper {
        Stopper { shared: Arc::clone(&self.shared), inboxes: self.inboxes.clone() }
    }

    /// Asks the server to stop, and returns at once. [`Server::wait`] waits for the end.
    pub fn stop(&self) {
        self.stopper().stop();
    }

    /// Waits until the server has stopped and all replies are sent. The store stays open.
    ///
    /// # Errors
    ///
    /// If an event loop failed.
    pub fn wait(mut self) -> io::Result<()> {
        let mut result = Ok(());
        for thread in self.threads.drain(..) {
            let end = thread.join().unwrap_or_else(|_| Err(io::Error::other("an event loop panicked")));
            result = result.and(end);
        }
        result
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

/// Raises the limit of open descriptors, so that it allows the configured clients. The system may
/// refuse that; then it accepts fewer clients.
fn raise_descriptor_limit(config: &Config) {
    let needed = (config.clients_max as u64).saturating_add(RESERVED_DESCRIPTOR_COUNT);
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= needed) {
        return;
    }
    limit.current = Some(limit.maximum.map_or(needed, |maximum| maximum.min(needed)));
    if setrlimit(Resource::Nofile, limit).is_err() || limit.current < Some(needed) {
        tracing::warn!(
            needed,
            limit = limit.current,
            "the system allows fewer open files than maxclients needs: raise the limit of open files (ulimit -n)"
        );
    }
}

#[cfg(test)]
mod tests {
    use lodestore::db::Engine;

    use super::*;

    #[test]
    fn a_refused_address_or_path_comes_with_advice() {
        for (at, kind, advice) in [
            ("127.0.0.1:80", io::ErrorKind::PermissionDenied, "use a port of 1024 or more"),
            ("192.0.2.1:6379", io::ErrorKind::AddrNotAvailable, "use an address of this machine"),
            ("none/socket", io::ErrorKind::NotFound, "create the directory"),
            ("/run/socket", io::ErrorKind::PermissionDenied, "choose a directory that this user may write"),
            ("long/socket", io::ErrorKind::InvalidInput, "choose a path of at most 107 bytes"),
        ] {
            let text = StartError::Listen { at: at.into(), source: kind.into() }.to_string();
            let (_, found) = text.split_once("; ").expect("advice");
            assert!(found.starts_with(advice), "{text}");
        }
    }

    #[test]
    fn a_thread_that_panics_stops_the_server() {
        let dir = tempfile::tempdir().unwrap();
        let db = Db::builder(dir.path().join("store")).engine(Engine::fluidkv()).capacity(64 << 20).open().unwrap();
        let config = Config { listen: vec![([127, 0, 0, 1], 0).into()], threads: 2, ..Config::default() };
        let mut server = Server::start(db, config).unwrap();
        server.spawn("panics".into(), || panic!("a fault of a test")).unwrap();
        assert!(server.wait().is_err());
    }
}
