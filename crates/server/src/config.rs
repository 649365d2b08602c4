//! The configuration of a server.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::acl::Acl;
use crate::data::databases::DATABASES_MAX;

/// Databases of a server, as in Redis.
const DATABASES: usize = 16;

/// Connected clients, as in Redis.
const CLIENTS_MAX: usize = 10_000;

/// Most event loops.
const THREADS_MAX: usize = 64;

/// How a server listens and what it allows. [`Config::default`] listens on the loopback address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Addresses of TCP. Port 0 lets the system choose. Redis' names: `bind` and `port`.
    pub listen: Vec<SocketAddr>,
    /// Path of a unix socket. Redis' name: `unixsocket`.
    pub unix: Option<PathBuf>,
    /// Event loops. 0 means one for each processor.
    pub threads: usize,
    /// Most connected clients. Redis' name: `maxclients`.
    pub clients_max: usize,
    /// The password of the default user. Redis' name: `requirepass`.
    pub password: Option<String>,
    /// Time after which an idle client is disconnected. 0 means never. Redis' name: `timeout`.
    pub idle_timeout: Duration,
    /// Numbered databases. Redis' name: `databases`.
    pub databases: usize,
    /// Longest argument in bytes. Redis' name: `proto-max-bulk-len`.
    pub bulk_bytes_max: usize,
    /// Unsent replies of a client at which the server reads no more commands of it.
    pub output_bytes_pause: usize,
    /// Users: a name and rules each, as in `ACL SETUSER`. Redis' name: `user`.
    pub users: Vec<String>,
    /// File of users, for `ACL LOAD` and `ACL SAVE`. Redis' name: `aclfile`.
    pub acl_file: Option<PathBuf>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: vec![SocketAddr::from(([127, 0, 0, 1], 6379))],
            unix: None,
            threads: 0,
            clients_max: CLIENTS_MAX,
            password: None,
            idle_timeout: Duration::ZERO,
            databases: DATABASES,
            bulk_bytes_max: 512 << 20,
            output_bytes_pause: 64 << 20,
            users: Vec::new(),
            acl_file: None,
        }
    }
}

/// A configuration that the server refuses.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigError {
    /// The server would be reachable from other machines without a password.
    OpenToOthers(SocketAddr),
    /// A user, or the file of users, is refused. The text says why.
    Users(String),
    /// There is nothing to listen on.
    NoListener,
    /// A number is out of range.
    OutOfRange {
        /// Name of the option.
        option: &'static str,
        /// Least value.
        min: usize,
        /// Greatest value.
        max: usize,
    },
}

impl std::fmt::Display for ConfigError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::OpenToOthers(address) => {
                write!(
                    f,
                    "{address} is reachable from other machines: set a password (requirepass, or a user line for default), or listen on 127.0.0.1"
                )
            }
            Self::Users(text) => write!(f, "the users are refused: {text}"),
            Self::NoListener => f.write_str("there is nothing to listen on: name an address (listen) or a path (unix)"),
            Self::OutOfRange { option, min, max } => write!(f, "{option} must be from {min} to {max}"),
        }
    }
}

impl std::error::Error for ConfigError {}

impl Config {
    /// Checks the configuration.
    ///
    /// # Errors
    ///
    /// [`ConfigError`], which says what to change.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.listen.is_empty() && self.unix.is_none() {
            return Err(ConfigError::NoListener);
        }
        let ranges = [
            ("databases", self.databases, 1, DATABASES_MAX),
            ("threads", self.threads, 0, THREADS_MAX),
            ("maxclients", self.clients_max, 1, 1 << 20),
            ("proto-max-bulk-len", self.bulk_bytes_max, 1 << 20, 512 << 20),
        ];
        match ranges.into_iter().find(|(_, value, min, max)| !(min..=max).contains(&value)) {
            Some((option, _, min, max)) => Err(ConfigError::OutOfRange { option, min, max }),
            None => Acl::new(self).map(drop),
        }
    }

    /// Returns the number of event loops.
    pub(crate) fn thread_count(&self) -> usize {
        match self.threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX),
            threads => threads,
        }
    }

    /// Returns the parameters of `CONFIG GET`, by Redis' names.
    pub(crate) fn parameters(&self) -> Vec<(&'static str, String)> {
        let addresses: Vec<String> = self.listen.iter().map(|address| address.ip().to_string()).collect();
        let port = self.listen.first().map_or(0, SocketAddr::port);
        vec![
            ("aclfile", self.acl_file.as_ref().map(|path| path.display().to_string()).unwrap_or_default()),
            ("appendfsync", "no".into()),
            ("appendonly", "no".into()),
            ("bind", addresses.join(" ")),
            ("databases", self.databases.to_string()),
            ("io-threads", self.thread_count().to_string()),
            ("maxclients", self.clients_max.to_string()),
            ("maxmemory-policy", "noeviction".into()),
            ("port", port.to_string()),
            ("proto-max-bulk-len", self.bulk_bytes_max.to_string()),
            ("requirepass", self.password.clone().unwrap_or_default()),
            ("save", String::new()),
            ("tcp-keepalive", "0".into()),
            ("timeout", self.idle_timeout.as_secs().to_string()),
            ("unixsocket", self.unix.as_ref().map(|path| path.display().to_string()).unwrap_or_default()),
        ]
    }
}
