//! Servers of other projects: a process of Debian's package, started for one store in its directory
//! and reached by a unix socket there.
//!
//! A shell between this process and the server waits for a word from this process. The shell ends
//! the server when the word arrives, or when the pipe is closed because this process ended for any
//! reason (including SIGKILL). The shell is in its own process group, so that a terminal's signals
//! reach only this process.

use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use lodestore_contract::{Error, Result};

use crate::library::failed;

/// Starts the server, prints its process id, waits for a word, and ends the server: with the signal
/// that the word names, or with SIGKILL if no word arrives.
const SHELL: &str = r#"
log=$1
shift
"$@" </dev/null >"$log" 2>&1 &
server=$!
echo "$server"
signal=KILL
read -r word && signal=$word
kill -s "$signal" "$server"
wait "$server"
"#;
/// Maximum bytes of a socket's path: the space of `sockaddr_un`, minus a zero byte.
const SOCKET_PATH_BYTES_MAX: usize = 107;
/// Maximum time before a server's socket answers.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);
/// Interval of the polls for that.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// A server's program, and the package that contains it.
pub(crate) struct Program {
    /// The peer that needs it, as in `--peers`.
    pub(crate) peer: &'static str,
    /// Its file name, which is searched for as a shell does.
    pub(crate) file: &'static str,
    /// The package of Debian and Ubuntu that contains it.
    pub(crate) package: &'static str,
}

impl Program {
    /// Returns the version that the program prints.
    ///
    /// # Errors
    /// [`Error::InvalidOption`], which names the package, if the program is missing.
    pub(crate) fn version(&self) -> Result<String> {
        let said = Command::new(self.file).arg("--version").stdin(Stdio::null()).output();
        let said = said.map_err(|error| self.refuse(format!("{} cannot be started ({error})", self.file)))?;
        let text = String::from_utf8_lossy(&said.stdout);
        let number = |word: &&str| word.trim_start_matches("v=").starts_with(|first: char| first.is_ascii_digit());
        let version = text.split_whitespace().find(number).map(|word| word.trim_start_matches("v=").to_string());
        version.ok_or_else(|| self.refuse(format!("{} does not say its version", self.file)))
    }

    fn refuse(&self, why: impl std::fmt::Display) -> Error {
        Error::InvalidOption {
            name: "peers".into(),
            value: self.peer.into(),
            why: format!("{why}: install Debian's package {} (scripts/peers.sh does)", self.package),
        }
    }
}

/// The name of the socket in the server's directory.
const SOCKET: &str = "socket";

/// Refuses a directory in which the path of a server's socket would be too long. `dir` is an
/// absolute path.
pub(crate) fn check_path(peer: &str, dir: &Path) -> Result<()> {
    let bytes = dir.join(SOCKET).as_os_str().as_bytes().len();
    if bytes <= SOCKET_PATH_BYTES_MAX {
        return Ok(());
    }
    let why = format!(
        "the path of a socket has {SOCKET_PATH_BYTES_MAX} bytes at most, and that of {peer} would have {bytes}: give a shorter directory"
    );
    Err(Error::InvalidOption { name: "dir".into(), value: dir.display().to_string(), why })
}

/// A running server. Dropping it stops it with SIGTERM and waits for its end.
pub(crate) struct Server {
    shell: Child,
    /// The pipe on which the shell waits for its word.
    word: Option<ChildStdin>,
    /// The server's process id.
    id: u32,
    socket: PathBuf,
}

impl Server {
    /// Starts the server with the command line that `words` builds from its directory and its
    /// socket, and waits until the socket accepts connections.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] if the directory's path is too long for a socket. [`Error::Io`] if
    /// the directory is missing, or if the server ends, with the last line that it wrote.
    pub(crate) fn start(
        program: &Program,
        dir: &Path,
        words: impl FnOnce(&Path, &Path) -> Vec<OsString>,
    ) -> Result<Self> {
        // A server may change its own directory.
        let dir = fs::canonicalize(dir).map_err(|source| Error::io("starting a server in", dir, source))?;
        let (socket, log) = (dir.join(SOCKET), dir.join("server.log"));
        check_path(program.peer, &dir)?;
        let mut shell = Command::new("sh")
            .args(["-c", SHELL, "sh"])
            .arg(&log)
            .arg(program.file)
            .args(words(&dir, &socket))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .map_err(|source| Error::io("starting", program.file, source))?;
        let word = shell.stdin.take();
        let mut line = String::new();
        if let Some(said) = shell.stdout.take() {
            let read = BufReader::new(said).read_line(&mut line);
            read.map_err(|source| Error::io("starting", program.file, source))?;
        }
        // From here on any failure ends the server.
        let server = Self { shell, word, id: line.trim().parse().unwrap_or(0), socket };
        server.wait_ready(program, &log)?;
        Ok(server)
    }

    fn wait_ready(&self, program: &Program, log: &Path) -> Result<()> {
        let begun = Instant::now();
        while UnixStream::connect(&self.socket).is_err() {
            if !self.is_alive() || begun.elapsed() > ANSWER_TIMEOUT {
                let said = fs::read_to_string(log).unwrap_or_default();
                let last = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it wrote nothing");
                return Err(failed("starting a server", format!("{} does not answer: {last}", program.file)));
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    fn is_alive(&self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.id)).unwrap_or_default();
        // The state follows the name, which is in parentheses.
        stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
    }

    /// Returns the process id of the server.
    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    /// Returns the path of the socket.
    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut word) = self.word.take() {
            // If the write fails, the shell has ended or sees the pipe closed.
            let _ = word.write_all(b"TERM\n");
        }
        let _ = self.shell.wait();
        // If the shell was killed, nothing else ends the server.
        for signal in ["-TERM", "-KILL"] {
            let begun = Instant::now();
            if self.is_alive() {
                let _ = Command::new("kill").args([signal, &self.id.to_string()]).stderr(Stdio::null()).status();
            }
            while self.is_alive() && begun.elapsed() < ANSWER_TIMEOUT {
                std::thread::sleep(POLL_INTERVAL);
            }
        }
        // Not every server removes its own socket; the file may be missing.
        let _ = fs::remove_file(&self.socket);
    }
}

/// Connections to a server, one for each concurrent call: as many as there are threads.
pub(crate) struct Pool<C> {
    idle: Mutex<Vec<C>>,
    connect: Box<dyn Fn() -> Result<C> + Send + Sync>,
}

impl<C> Pool<C> {
    /// Creates a pool with `count` connections.
    pub(crate) fn new(count: usize, connect: impl Fn() -> Result<C> + Send + Sync + 'static) -> Result<Self> {
        let idle = (0..count).map(|_| connect()).collect::<Result<_>>()?;
        Ok(Self { idle: Mutex::new(idle), connect: Box::new(connect) })
    }

    /// Runs `work` with an exclusive connection. A connection that failed is not used again.
    pub(crate) fn with<T>(&self, work: impl FnOnce(&mut C) -> Result<T>) -> Result<T> {
        let idle = || self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = idle().pop();
        let mut connection = taken.map_or_else(&self.connect, Ok)?;
        let done = work(&mut connection)?;
        idle().push(connection);
        Ok(done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_is_too_long_for_a_socket_is_refused_with_both_lengths() {
        let path = |bytes: usize| PathBuf::from("/").join("d".repeat(bytes - 1 - "/socket".len()));
        check_path("redis", &path(SOCKET_PATH_BYTES_MAX)).expect("it just fits");
        let text = check_path("redis", &path(SOCKET_PATH_BYTES_MAX + 1)).expect_err("it does not").to_string();
        assert!(text.contains("redis would have 108") && text.contains("107 bytes"), "{text}");
    }

    /// Such a server used to outlive its owner forever.
    #[test]
    fn a_server_whose_shell_was_killed_ends_with_its_owner() {
        let program = Program { peer: "redis", file: "redis-server", package: "redis-server" };
        if let Err(missing) = program.version() {
            println!("not tried: {missing}");
            return;
        }
        let dir = lodestore_contract::testing::Scratch::on_disk();
        let words = |_: &Path, socket: &Path| {
            let words = ["--port", "0", "--save", "", "--unixsocket"].map(OsString::from);
            words.into_iter().chain([socket.into()]).collect()
        };
        let mut server = Server::start(&program, dir.path(), words).expect("it starts");
        server.shell.kill().expect("the shell ends");
        assert!(server.is_alive(), "the server goes on");
        let stat = PathBuf::from(format!("/proc/{}/stat", server.id));
        drop(server);
        let state = fs::read_to_string(stat).unwrap_or_default();
        assert!(state.is_empty() || state.contains(") Z "), "{state}");
    }

    #[test]
    fn a_missing_program_is_refused_with_the_name_of_its_package() {
        let program = Program { peer: "some", file: "lodestore-no-such-server", package: "nosuch" };
        let text = program.version().expect_err("there is no such program").to_string();
        assert!(text.contains("nosuch") && text.contains("lodestore-no-such-server"), "{text}");
    }
}
