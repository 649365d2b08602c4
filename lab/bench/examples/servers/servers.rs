//! The servers, each with its settings.

use std::fs;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::load::{Cell, Operation, Transport};
use crate::{AnyResult, Args};

/// Maximum wait for a starting server.
const START_TIMEOUT: Duration = Duration::from_secs(20);

/// Clock ticks per second in `/proc/PID/stat` (`getconf CLK_TCK` of Linux).
const SECOND_TICK_COUNT: f64 = 100.0;

/// A server and its durability.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Redis,
    RedisEverySecond,
    Memcached,
    Lodestore,
    RedisAlways,
    LodestorePower,
}

impl Kind {
    pub(crate) const ALL: [Self; 6] = [
        Self::Redis,
        Self::RedisEverySecond,
        Self::Memcached,
        Self::Lodestore,
        Self::RedisAlways,
        Self::LodestorePower,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Redis => "redis, no AOF",
            Self::RedisEverySecond => "redis, everysec",
            Self::Memcached => "memcached",
            Self::Lodestore => "lodestore, process",
            Self::RedisAlways => "redis, always",
            Self::LodestorePower => "lodestore, power",
        }
    }

    /// Returns whether each write waits for the disk.
    pub(crate) fn is_on_disk(self) -> bool {
        matches!(self, Self::RedisAlways | Self::LodestorePower)
    }

    pub(crate) fn is_memcached(self) -> bool {
        self == Self::Memcached
    }

    /// Returns whether the server takes part in a row. memcached listens on one transport only.
    pub(crate) fn takes(self, cell: &Cell) -> bool {
        let is_unix = cell.transport == Transport::Unix;
        !self.is_memcached() || (is_unix && cell.operation != Operation::MultiGet)
    }
}

/// A running server with its own directory.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) kind: Kind,
    child: Child,
    socket: PathBuf,
    port: u16,
    directories: [PathBuf; 2],
}

impl Running {
    /// Starts a server and waits until its socket answers.
    pub(crate) fn start(kind: Kind, args: &Args) -> AnyResult<Self> {
        let name = format!("lodestore-servers-{}", std::process::id());
        let directories = [args.dir.join(&name), args.disk.join(&name)];
        for directory in &directories {
            fs::create_dir_all(directory)?;
        }
        let place = if kind.is_on_disk() { &directories[1] } else { &directories[0] };
        let socket = directories[0].join("socket");
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let mut command = command_of(kind, args, place, &socket, port);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let child = child.map_err(|error| format!("{}: {error}", kind.name()))?;
        let mut server = Self { kind, child, socket, port, directories };
        let start = Instant::now();
        while UnixStream::connect(&server.socket).is_err() {
            if let Some(status) = server.child.try_wait()? {
                return Err(format!("{} ended: {status}", kind.name()).into());
            }
            if start.elapsed() > START_TIMEOUT {
                return Err(format!("{} does not answer", kind.name()).into());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(server)
    }

    pub(crate) fn connect(&self, transport: Transport) -> AnyResult<Connection> {
        Ok(match transport {
            Transport::Unix => Connection::Unix(UnixStream::connect(&self.socket)?),
            Transport::Tcp => {
                let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port))?;
                stream.set_nodelay(true)?;
                Connection::Tcp(stream)
            }
        })
    }

    /// Returns the CPU time of the server so far.
    pub(crate) fn cpu_seconds(&self) -> AnyResult<f64> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        // After the name in parentheses: state is field 0, utime 11, stime 12.
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks: f64 = fields[11].parse::<f64>()? + fields[12].parse::<f64>()?;
        Ok(ticks / SECOND_TICK_COUNT)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
        for directory in &self.directories {
            drop(fs::remove_dir_all(directory));
        }
    }
}

fn command_of(kind: Kind, args: &Args, place: &Path, socket: &Path, port: u16) -> Command {
    let mut command;
    match kind {
        Kind::Memcached => {
            command = Command::new("memcached");
            command.arg("-s").arg(socket).args(["-m", "2048", "-t", "1", "-u", "root", "-I", "2m"]);
        }
        Kind::Lodestore | Kind::LodestorePower => {
            command = Command::new(&args.program);
            command.arg("serve").arg(place.join("store")).arg("--unix").arg(socket);
            command.args(["--listen", &format!("127.0.0.1:{port}"), "--threads", &args.threads.to_string()]);
            command.args(["--create", "--size", "4G", "--log-level", "error"]);
            if kind == Kind::LodestorePower {
                command.args(["--durability", "power"]);
            }
        }
        Kind::Redis | Kind::RedisEverySecond | Kind::RedisAlways => {
            command = Command::new("redis-server");
            command.arg("--unixsocket").arg(socket).args(["--port", &port.to_string(), "--save", ""]);
            command.arg("--dir").arg(place);
            let fsync = if kind == Kind::RedisAlways { "always" } else { "everysec" };
            let is_logged = if kind == Kind::Redis { "no" } else { "yes" };
            command.args(["--appendonly", is_logged, "--appendfsync", fsync]);
        }
    }
    command
}

/// A connection to a server.
#[derive(Debug)]
pub(crate) enum Connection {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl std::io::Read for Connection {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.read(buffer),
            Self::Tcp(stream) => stream.read(buffer),
        }
    }
}

impl std::io::Write for Connection {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.write(bytes),
            Self::Tcp(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Connection {
    /// Makes reads and writes non-blocking.
    pub(crate) fn set_nonblocking(&self) -> std::io::Result<()> {
        match self {
            Self::Unix(stream) => stream.set_nonblocking(true),
            Self::Tcp(stream) => stream.set_nonblocking(true),
        }
    }
}

impl std::os::fd::AsRawFd for Connection {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        match self {
            Self::Unix(stream) => stream.as_raw_fd(),
            Self::Tcp(stream) => stream.as_raw_fd(),
        }
    }
}
