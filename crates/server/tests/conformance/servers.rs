//! The servers that are compared.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use lodestore::Db;
use lodestore::db::Engine;
use lodestore_server::{Config, DebugClients, Server};

/// Longest wait for a reply.
const REPLY_TIMEOUT: Duration = Duration::from_secs(60);

/// A connection of any kind.
pub trait Socket: Read + Write {}

impl<T: Read + Write> Socket for T {}

/// A server that runs until it is dropped.
pub struct Running {
    kind: Kind,
    pub password: Option<String>,
    /// Removed with the server.
    _dir: tempfile::TempDir,
}

enum Kind {
    Lodestore { server: Server, _db: Db },
    Redis { child: Child, socket: PathBuf },
}

impl Running {
    /// Connects a client.
    pub fn connect(&self) -> Box<dyn Socket> {
        match &self.kind {
            Kind::Lodestore { server, .. } => {
                let stream = TcpStream::connect(server.addresses()[0]).expect("a connection");
                stream.set_read_timeout(Some(REPLY_TIMEOUT)).expect("a timeout");
                Box::new(stream)
            }
            Kind::Redis { socket, .. } => {
                let stream = UnixStream::connect(socket).expect("a connection to Redis");
                stream.set_read_timeout(Some(REPLY_TIMEOUT)).expect("a timeout");
                Box::new(stream)
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Kind::Redis { child, .. } = &mut self.kind {
            drop(child.kill());
            drop(child.wait());
        }
    }
}

/// Starts this server over a new store.
pub fn start_lodestore(password: Option<&str>) -> Running {
    let dir = tempfile::tempdir().expect("a directory");
    let db = Db::builder(dir.path().join("store")).engine(Engine::fluidkv()).capacity(64 << 20).open();
    let db = db.expect("a store");
    let password = password.map(str::to_string);
    let listen = vec![([127, 0, 0, 1], 0).into()];
    let debug_clients = DebugClients::Everybody;
    let config = Config { listen, threads: 2, password: password.clone(), debug_clients, ..Config::default() };
    let server = Server::start(db.clone(), config).expect("a server");
    Running { kind: Kind::Lodestore { server, _db: db }, password, _dir: dir }
}

/// Starts Redis, if there is one of version 7.0.
pub fn start_redis(password: Option<&str>) -> Option<Running> {
    let program = std::env::var("LODESTORE_REDIS_SERVER").unwrap_or_else(|_| "redis-server".into());
    let version = Command::new(&program).arg("--version").output().ok()?;
    if !String::from_utf8_lossy(&version.stdout).contains("v=7.0.") {
        return None;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let socket = dir.path().join("redis.sock");
    let mut command = Command::new(&program);
    command.args(["--port", "0", "--save", "", "--enable-debug-command", "yes", "--unixsocket"]).arg(&socket);
    command.arg("--dir").arg(dir.path());
    if let Some(password) = password {
        command.args(["--requirepass", password]);
    }
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok()?;
    let running = Running {
        kind: Kind::Redis { child, socket: socket.clone() },
        password: password.map(str::to_string),
        _dir: dir,
    };
    let is_up = (0..2000).any(|_| {
        std::thread::sleep(Duration::from_millis(5));
        UnixStream::connect(&socket).is_ok()
    });
    assert!(is_up, "Redis did not start");
    Some(running)
}
