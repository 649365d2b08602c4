//! Starts, fills, and kills servers under load.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::protocol::{Client, Protocol};
use crate::{AnyResult, Args};

/// Maximum wait for the first reply.
const START_TIMEOUT: Duration = Duration::from_secs(600);

/// Pause between two attempts to reach a starting server.
const ATTEMPT_PAUSE: Duration = Duration::from_micros(200);

/// The key that the first `GET` reads. The load does not write it.
const QUIET_KEY_INDEX: usize = 0;

/// A server and its persistence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Lodestore,
    RedisLog,
    RedisSnapshot,
    Memcached,
}

impl Kind {
    pub(crate) const ALL: [Self; 4] = [Self::Lodestore, Self::RedisLog, Self::RedisSnapshot, Self::Memcached];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Lodestore => "lodestore, process",
            Self::RedisLog => "redis, AOF everysec",
            Self::RedisSnapshot => "redis, RDB",
            Self::Memcached => "memcached (empty)",
        }
    }

    fn protocol(self) -> Protocol {
        if self == Self::Memcached { Protocol::Memcached } else { Protocol::Redis }
    }

    fn command(self, place: &Place, args: &Args) -> Command {
        let mut command;
        match self {
            Self::Lodestore => {
                command = Command::new(&args.program);
                command.arg("serve").arg(place.dir.join("store")).arg("--unix").arg(place.socket());
                command.args(["--create", "--size", "16G", "--port", "0", "--log-level", "error"]);
            }
            Self::RedisLog | Self::RedisSnapshot => {
                command = Command::new("redis-server");
                command.arg("--unixsocket").arg(place.socket()).args(["--port", "0", "--save", ""]);
                command.arg("--dir").arg(&place.dir);
                let is_logged = if self == Self::RedisLog { "yes" } else { "no" };
                command.args(["--appendonly", is_logged, "--appendfsync", "everysec"]);
            }
            Self::Memcached => {
                command = Command::new("memcached");
                command.arg("-s").arg(place.socket()).args(["-m", "8192", "-t", "1", "-u", "root"]);
            }
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }
}

/// A directory for the files of one server, which is removed at the end.
#[derive(Debug)]
pub(crate) struct Place {
    dir: PathBuf,
}

impl Place {
    pub(crate) fn create(args: &Args) -> AnyResult<Self> {
        let dir = args.dir.join(format!("lodestore-restart-{}", std::process::id()));
        fs::create_dir(&dir)?;
        Ok(Self { dir })
    }

    fn socket(&self) -> PathBuf {
        self.dir.join("socket")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.dir));
    }
}

/// The times of a start.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Restart {
    /// Time from `exec` to the first `GET` that was not refused.
    pub(crate) first_get: Duration,
    /// Time from `exec` to the first acknowledged `SET`.
    pub(crate) first_set: Duration,
    /// Keys of the store.
    pub(crate) keys: usize,
}

/// A running server. Dropping it kills the process.
#[derive(Debug)]
pub(crate) struct Server {
    kind: Kind,
    child: Child,
    socket: PathBuf,
}

/// Starts a server and measures the times of its first replies.
pub(crate) fn start(kind: Kind, place: &Place, args: &Args) -> AnyResult<(Server, Restart)> {
    drop(fs::remove_file(place.socket()));
    let start = Instant::now();
    let child = kind.command(place, args).spawn().map_err(|error| format!("{}: {error}", kind.name()))?;
    let mut server = Server { kind, child, socket: place.socket() };
    let (mut first_get, mut first_set) = (None, None);
    loop {
        if let Ok(mut client) = server.connect() {
            if first_get.is_none() && client.get(QUIET_KEY_INDEX, args.value_bytes).is_ok() {
                first_get = Some(start.elapsed());
            }
            if first_get.is_some() && client.set_all(std::iter::once(QUIET_KEY_INDEX), args.value_bytes).1.is_ok() {
                first_set = Some(start.elapsed());
            }
            if let (Some(first_get), Some(first_set)) = (first_get, first_set) {
                let keys = client.count()?;
                return Ok((server, Restart { first_get, first_set, keys }));
            }
        }
        if let Some(status) = server.child.try_wait()? {
            return Err(format!("{} ended: {status}", kind.name()).into());
        }
        if start.elapsed() > START_TIMEOUT {
            return Err(format!("{} does not answer", kind.name()).into());
        }
        thread::sleep(ATTEMPT_PAUSE);
    }
}

impl Server {
    fn connect(&self) -> AnyResult<Client> {
        Client::connect(self.kind.protocol(), &self.socket)
    }

    /// Stores keys `0..keys`.
    pub(crate) fn fill(&mut self, keys: usize, value_bytes: usize) -> AnyResult<()> {
        let mut client = self.connect()?;
        client.set_all(0..keys, value_bytes).1?;
        if self.kind == Kind::RedisSnapshot {
            client.save()?;
        }
        Ok(())
    }

    /// Kills the server while a client writes.
    pub(crate) fn kill_under_load(mut self, keys: usize, args: &Args) -> AnyResult<()> {
        let mut client = self.connect()?;
        let value_bytes = args.value_bytes;
        // Every key except the first one, in large steps.
        let numbers = (1..keys).cycle().step_by(7919);
        let load = thread::spawn(move || client.set_all(numbers, value_bytes).0);
        thread::sleep(Duration::from_millis(args.load_ms));
        self.child.kill()?;
        self.child.wait()?;
        let acknowledged = load.join().map_err(|_| "the load panicked")?;
        if acknowledged == 0 {
            return Err(format!("{}: no write was acknowledged before the kill", self.kind.name()).into());
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
