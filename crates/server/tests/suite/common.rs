//! A server on a port of the loopback address, and a client for it.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use lodestore::db::Engine;
use lodestore::{Db, Durability};
use lodestore_server::{Config, DebugClients, Server};
use lodestore_wire::{Limits, Reply, decode_reply};

/// Capacity of the stores of tests in bytes.
const CAPACITY: u64 = 64 << 20;

/// Longest wait for a reply.
const REPLY_TIMEOUT: Duration = Duration::from_secs(60);

/// Returns a temporary directory in memory if there is such a file system, else on disk. Stores
/// that survive a power failure need the disk.
pub fn memory_dir() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap_or_else(|_| tempfile::tempdir().expect("a directory"))
}

/// A server over a new store in a separate directory.
pub struct TestServer {
    server: Option<Server>,
    db: Option<Db>,
    dir: tempfile::TempDir,
    engine: Engine,
    durability: Option<Durability>,
    config: Config,
}

impl TestServer {
    /// Starts a server with the default configuration.
    pub fn start() -> Self {
        Self::start_with(Engine::fluidkv(), |_| {})
    }

    /// Starts a server over an engine, with a changed configuration.
    pub fn start_with(engine: impl Into<Engine>, change: impl FnOnce(&mut Config)) -> Self {
        Self::start_at(engine, None, change)
    }

    /// Starts a server over an engine whose writes survive a power failure.
    pub fn start_at_power(engine: impl Into<Engine>) -> Self {
        Self::start_at(engine, Some(Durability::Power), |_| {})
    }

    /// As [`Self::start_at_power`], with a changed configuration.
    pub fn start_at_power_with(engine: impl Into<Engine>, change: impl FnOnce(&mut Config)) -> Self {
        Self::start_at(engine, Some(Durability::Power), change)
    }

    /// Starts a server over the default store of a directory below `parent`.
    pub fn start_in(parent: &std::path::Path) -> Self {
        let config = Config { listen: vec![([127, 0, 0, 1], 0).into()], threads: 2, ..Config::default() };
        let dir = tempfile::tempdir_in(parent).expect("a directory");
        let mut server = Self { server: None, db: None, dir, engine: Engine::Auto, durability: None, config };
        server.open();
        server
    }

    fn start_at(engine: impl Into<Engine>, durability: Option<Durability>, change: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config { listen: vec![([127, 0, 0, 1], 0).into()], threads: 2, ..Config::default() };
        change(&mut config);
        let dir = if durability.is_some() { tempfile::tempdir().expect("a directory") } else { memory_dir() };
        let mut server = Self { server: None, db: None, dir, engine: engine.into(), durability, config };
        server.open();
        server
    }

    /// Starts a server over the store of a server that was killed.
    pub fn start_over(dir: tempfile::TempDir, engine: Engine) -> Self {
        let config = Config { listen: vec![([127, 0, 0, 1], 0).into()], threads: 2, ..Config::default() };
        let mut server = Self { server: None, db: None, dir, engine, durability: None, config };
        server.open();
        server
    }

    fn open(&mut self) {
        let db = open_store(self.dir.path(), &self.engine, self.durability);
        self.server = Some(Server::start(db.clone(), self.config.clone()).expect("a server"));
        self.db = Some(db);
    }

    /// Stops the server, closes the store, and starts both again.
    pub fn restart(&mut self) {
        self.stop();
        self.open();
    }

    /// Stops the server and closes the store.
    pub fn stop(&mut self) {
        if let Some(server) = self.server.take() {
            server.stop();
            server.wait().expect("a clean stop");
        }
        if let Some(db) = self.db.take() {
            db.close().expect("a clean close");
        }
    }

    /// Returns the directory of the store.
    pub fn store_dir(&self) -> std::path::PathBuf {
        self.dir.path().join("store")
    }

    /// Returns the server's address.
    pub fn address(&self) -> SocketAddr {
        self.server.as_ref().expect("a running server").addresses()[0]
    }

    /// Returns the store, for tests that change it under the server.
    pub fn db(&self) -> &Db {
        self.db.as_ref().expect("an open store")
    }

    /// Returns the address of HTTP.
    pub fn metrics_address(&self) -> SocketAddr {
        self.server.as_ref().and_then(Server::metrics_address).expect("a server with metrics")
    }

    /// Shows the events of the store.
    pub fn report_store_events(&self, events: &lodestore_server::StoreEvents) {
        self.server.as_ref().expect("a running server").report_store_events(events);
    }

    /// Returns the server's address of TLS.
    #[cfg(all(feature = "tls", any(target_arch = "x86_64", target_arch = "aarch64")))]
    pub fn tls_address(&self) -> SocketAddr {
        self.server.as_ref().expect("a running server").tls_addresses()[0]
    }

    /// Connects a client.
    pub fn client(&self) -> Client {
        Client::connect(self.address())
    }
}

/// Permits `DEBUG` to all clients.
pub fn enable_debug(config: &mut Config) {
    config.debug_clients = DebugClients::Everybody;
}

/// Opens or creates the store in a directory of a test.
pub fn open_store(dir: &std::path::Path, engine: &Engine, durability: Option<Durability>) -> Db {
    let builder = Db::builder(dir.join("store")).engine(engine.clone()).capacity(CAPACITY);
    let builder = match durability {
        Some(durability) => builder.durability(durability),
        None => builder,
    };
    builder.open().expect("a store")
}

/// A client that waits for each reply.
pub struct Client {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Client {
    pub fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("a connection");
        stream.set_read_timeout(Some(REPLY_TIMEOUT)).expect("a timeout");
        Self { stream, buffer: Vec::new() }
    }

    /// Sends no more, and still receives.
    pub fn close_writing(&self) {
        self.stream.shutdown(std::net::Shutdown::Write).expect("a half-closed connection");
    }

    /// Sends bytes as they are.
    pub fn send_raw(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("a write");
    }

    /// Sends bytes to a server that may close the connection meanwhile.
    pub fn try_send_raw(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Sends a command to a server that may have been killed.
    pub fn send_or_stop<A: AsRef<[u8]>>(&mut self, arguments: &[A]) {
        // The read that follows sees the end of the connection.
        drop(self.stream.write_all(&encode(arguments)));
    }

    /// Sends a command and does not wait for its reply.
    pub fn send<A: AsRef<[u8]>>(&mut self, arguments: &[A]) {
        self.send_raw(&encode(arguments));
    }

    /// Waits for a reply.
    pub fn receive(&mut self) -> Reply {
        self.try_receive().expect("a reply, and no end of the connection")
    }

    /// Waits for a reply. Returns `None` if the server closed the connection.
    pub fn try_receive(&mut self) -> Option<Reply> {
        loop {
            if let Some((reply, length)) = decode_reply(&self.buffer, &Limits::default()).expect("a valid reply") {
                self.buffer.drain(..length);
                return Some(reply);
            }
            let mut chunk = vec![0; 64 << 10];
            match self.stream.read(&mut chunk) {
                Ok(0) => return None,
                Ok(bytes) => self.buffer.extend_from_slice(&chunk[..bytes]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("no reply: {error}"),
            }
        }
    }

    /// Sends a command of words that are separated by spaces, and returns the text of its reply.
    pub fn run(&mut self, command: &str) -> String {
        let arguments: Vec<&str> = command.split(' ').collect();
        self.run_arguments(&arguments)
    }

    /// Sends a command and returns the text of its reply.
    pub fn run_arguments<A: AsRef<[u8]>>(&mut self, arguments: &[A]) -> String {
        self.send(arguments);
        show(&self.receive())
    }

    /// Runs commands and compares the texts of their replies.
    pub fn check(&mut self, cases: &[(&str, &str)]) {
        for (command, expected) in cases {
            assert_eq!(self.run(command), *expected, "{command}");
        }
    }
}

/// Returns the bytes of a command.
pub fn encode<A: AsRef<[u8]>>(arguments: &[A]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", arguments.len()).into_bytes();
    for argument in arguments {
        let argument = argument.as_ref();
        bytes.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
        bytes.extend_from_slice(argument);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// Returns a reply as a short text: `(nil)`, `:1`, `+OK`, `-ERR ...`, a string, or `[a, b]`.
pub fn show(reply: &Reply) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let list = |replies: &[Reply]| replies.iter().map(show).collect::<Vec<_>>().join(", ");
    match reply {
        Reply::Simple(bytes) => format!("+{}", text(bytes)),
        Reply::Error(bytes) => format!("-{}", text(bytes)),
        Reply::Integer(number) => format!(":{number}"),
        Reply::Bulk(bytes) | Reply::Verbatim(bytes) | Reply::Double(bytes) | Reply::BigNumber(bytes) => text(bytes),
        Reply::Null => "(nil)".into(),
        Reply::Array(replies) => format!("[{}]", list(replies)),
        Reply::Set(replies) => format!("~[{}]", list(replies)),
        Reply::Push(replies) => format!(">[{}]", list(replies)),
        Reply::Boolean(is_true) => format!("#{is_true}"),
        Reply::Map(pairs) => {
            let pairs: Vec<String> =
                pairs.iter().map(|(key, value)| format!("{}={}", show(key), show(value))).collect();
            format!("{{{}}}", pairs.join(", "))
        }
        other => format!("{other:?}"),
    }
}
