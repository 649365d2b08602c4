//! The servers that are compared.

use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use lodestore::Db;
use lodestore::db::Engine;
use lodestore_server::{Config, DebugClients, Server};

/// Longest wait for a reply.
const REPLY_TIMEOUT: Duration = Duration::from_secs(20);

/// A server that runs until it is dropped.
pub struct Running {
    kind: Kind,
    socket: PathBuf,
    pub password: Option<String>,
    /// Removed with the server.
    _dir: tempfile::TempDir,
}

/// The action that ends a server when it is dropped.
enum Kind {
    Lodestore { _server: Box<Server>, _db: Db },
    Redis { child: Child },
}

impl Running {
    /// Connects a client.
    pub fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(&self.socket).expect("a connection");
        stream.set_read_timeout(Some(REPLY_TIMEOUT)).expect("a timeout");
        stream
    }

    /// Returns the path of the socket.
    pub fn socket_path(&self) -> String {
        self.socket.display().to_string()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Kind::Redis { child } = &mut self.kind {
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
    let socket = dir.path().join("own.sock");
    let mut config = Config {
        listen: Vec::new(),
        unix: Some(socket.clone()),
        threads: 2,
        password: password.clone(),
        debug_clients: DebugClients::Everybody,
        ..Config::default()
    };
    config.backup_dir = Some(dir.path().into());
    let server = Server::start(db.clone(), config).expect("a server");
    Running { kind: Kind::Lodestore { _server: Box::new(server), _db: db }, socket, password, _dir: dir }
}

/// Returns the program of Redis, if it has version 7.0.
///
/// A program that `LODESTORE_REDIS_SERVER` names must have this version.
fn find_redis() -> Option<String> {
    let named = std::env::var("LODESTORE_REDIS_SERVER").ok();
    let program = named.clone().unwrap_or_else(|| "redis-server".into());
    let output = Command::new(&program).arg("--version").output();
    let version = output.map_or_else(|error| error.to_string(), |shown| String::from_utf8_lossy(&shown.stdout).into());
    let is_right = version.contains("v=7.0.");
    let version = version.trim();
    assert!(is_right || named.is_none(), "LODESTORE_REDIS_SERVER={program} is not Redis 7.0: {version}");
    if !is_right {
        eprintln!("skipped: {program} is not Redis 7.0: {version}");
    }
    is_right.then_some(program)
}

/// Starts Redis, if there is one of version 7.0.
pub fn start_redis(password: Option<&str>) -> Option<Running> {
    let program = find_redis()?;
    let dir = tempfile::tempdir().expect("a directory");
    let socket = dir.path().join("redis.sock");
    let mut command = Command::new(&program);
    command.args(["--port", "0", "--save", "", "--enable-debug-command", "yes", "--unixsocket"]).arg(&socket);
    command.arg("--dir").arg(dir.path());
    if let Some(password) = password {
        command.args(["--requirepass", password]);
    }
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("Redis starts");
    let running = Running {
        kind: Kind::Redis { child },
        socket: socket.clone(),
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
