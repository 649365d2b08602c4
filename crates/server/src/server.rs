//! The server: its threads, from start to stop.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use lodestore::Db;
use mio::Poll;
use mio::net::{TcpListener, UnixListener};
use rustix::process::{Resource, getrlimit, setrlimit};

use crate::acl::Acl;
use crate::config::{Config, ConfigError};
use crate::data::databases::Databases;
use crate::http::HttpServer;
use crate::net::event_loop::{EventLoop, MAILBOX, Start};
use crate::net::mailbox::Mailbox;
use crate::net::stream::Listener;
use crate::net::tls::TlsAcceptor;
use crate::shared::Shared;
use crate::store_events::StoreEvents;

/// Descriptors for files of the store, listeners and event queues.
const DESCRIPTORS_RESERVED: u64 = 256;

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
            Self::Listen { at, source } => write!(f, "cannot listen on {at}: {source}"),
            Self::System(source) => write!(f, "the system refused a thread or an event queue: {source}"),
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

/// A running server. [`Server::stop`] or a client's `SHUTDOWN` stops it.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<io::Result<()>>>,
    mailboxes: Vec<Arc<Mailbox>>,
    addresses: Vec<SocketAddr>,
    tls_addresses: Vec<SocketAddr>,
    unix: Option<PathBuf>,
    http: Option<HttpServer>,
}

/// Asks a server to stop, from any thread.
#[derive(Debug, Clone)]
pub struct Stopper {
    shared: Arc<Shared>,
    mailboxes: Vec<Arc<Mailbox>>,
}

impl Stopper {
    /// Asks the server to stop, and returns at once.
    pub fn stop(&self) {
        self.shared.stop();
        self.mailboxes.iter().for_each(|mailbox| mailbox.wake());
    }

    /// Whether the server stops or has stopped.
    pub fn is_stopping(&self) -> bool {
        self.shared.is_stopping()
    }
}

/// Stops the server when the thread that owns the guard ends.
struct StopGuard(Stopper);

impl Drop for StopGuard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            tracing::error!("a thread of the server panicked: the server stops");
        }
        self.0.stop();
    }
}

impl Server {
    /// Starts a server over an open store. The server serves when the call returns.
    ///
    /// # Errors
    ///
    /// [`StartError`], which says what to change.
    pub fn start(db: Db, config: Config) -> Result<Self, StartError> {
        config.check().map_err(StartError::Config)?;
        let acl = Acl::new(&config).map_err(StartError::Config)?;
        let databases = Databases::open(db, config.databases).map_err(StartError::Store)?;
        let Listening { listeners, addresses, tls_addresses } = listen(&config)?;
        raise_descriptor_limit(&config);
        let (unix, metrics) = (config.unix.clone(), config.metrics.address);
        let port = addresses.first().map_or(0, SocketAddr::port);
        let threads = config.thread_count();
        let shared = Arc::new(Shared::new(databases, config, acl, port));
        let (threads_started, mailboxes) = (Vec::new(), Vec::new());
        let mut server =
            Self { shared, threads: threads_started, mailboxes, addresses, tls_addresses, unix, http: None };
        if let Some(address) = metrics {
            let failed = |source| StartError::Listen { at: address.to_string(), source };
            server.http = Some(HttpServer::start(&server.shared, address).map_err(failed)?);
        }
        server.start_threads(threads, listeners).map_err(StartError::System)?;
        Ok(server)
    }

    fn start_threads(&mut self, count: usize, mut listeners: Vec<Listener>) -> io::Result<()> {
        let polls = (0..count).map(|_| Poll::new()).collect::<io::Result<Vec<Poll>>>()?;
        for poll in &polls {
            self.mailboxes.push(Arc::new(Mailbox::new(poll.registry(), MAILBOX)?));
        }
        self.shared.hub.connect(&self.mailboxes);
        for (own, poll) in polls.into_iter().enumerate() {
            let start = Start {
                shared: Arc::clone(&self.shared),
                poll,
                mailboxes: self.mailboxes.clone(),
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

    /// Shows in `INFO`, the metrics and the status page what the store reports. The first value
    /// stays.
    pub fn report_store_events(&self, events: &StoreEvents) {
        drop(self.shared.store_events.set(events.clone()));
    }

    /// Shows in the metrics and the status page how long the program took from its start until it
    /// served. The first value stays.
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

    /// Returns what asks the server to stop.
    pub fn stopper(&self) -> Stopper {
        Stopper { shared: Arc::clone(&self.shared), mailboxes: self.mailboxes.clone() }
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
        if let Some(path) = &self.unix {
            // Another process may have removed the socket.
            drop(std::fs::remove_file(path));
        }
    }
}

/// Raises the limit of open descriptors, so that it allows the configured clients. The system may
/// refuse that; then it accepts fewer clients.
fn raise_descriptor_limit(config: &Config) {
    let needed = (config.clients_max as u64).saturating_add(DESCRIPTORS_RESERVED);
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= needed) {
        return;
    }
    limit.current = Some(limit.maximum.map_or(needed, |maximum| maximum.min(needed)));
    if setrlimit(Resource::Nofile, limit).is_err() || limit.current < Some(needed) {
        tracing::warn!(needed, limit = limit.current, "the system allows fewer open files than maxclients needs");
    }
}

/// The sockets that a server listens on.
struct Listening {
    listeners: Vec<Listener>,
    addresses: Vec<SocketAddr>,
    tls_addresses: Vec<SocketAddr>,
}

fn listen(config: &Config) -> Result<Listening, StartError> {
    let failed = |at: String| move |source| StartError::Listen { at, source };
    let bind = |address: &SocketAddr| {
        let bound = TcpListener::bind(*address).and_then(|listener| Ok((listener.local_addr()?, listener)));
        bound.map_err(failed(address.to_string()))
    };
    let (mut listeners, mut addresses, mut tls_addresses) = (Vec::new(), Vec::new(), Vec::new());
    for address in &config.listen {
        let (local, listener) = bind(address)?;
        addresses.push(local);
        listeners.push(Listener::Tcp(listener));
    }
    if let Some(tls) = config.tls.as_ref().filter(|tls| !tls.listen.is_empty()) {
        let acceptor = TlsAcceptor::new(tls).map_err(StartError::Config)?;
        for address in &tls.listen {
            let (local, listener) = bind(address)?;
            tls_addresses.push(local);
            listeners.push(Listener::Tls(listener, acceptor.clone()));
        }
    }
    if let Some(path) = &config.unix {
        remove_stale_socket(path);
        let listener = UnixListener::bind(path).map_err(failed(path.display().to_string()))?;
        if let Some(bits) = config.unix_permissions {
            let permissions = std::fs::Permissions::from_mode(bits);
            std::fs::set_permissions(path, permissions).map_err(failed(path.display().to_string()))?;
        }
        listeners.push(Listener::Unix(listener));
    }
    Ok(Listening { listeners, addresses, tls_addresses })
}

/// Removes a socket that no process listens on.
fn remove_stale_socket(path: &Path) {
    use std::os::unix::fs::FileTypeExt as _;
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|metadata| metadata.file_type().is_socket());
    if is_socket && std::os::unix::net::UnixStream::connect(path).is_err() {
        // The bind that follows reports a failure.
        drop(std::fs::remove_file(path));
    }
}

#[cfg(test)]
mod tests {
    use lodestore::db::Engine;

    use super::*;

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
