//! The configuration of a server.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use lodestore::Durability;

use crate::tls_config::TlsConfig;

/// Databases of a server without the option, as in Redis.
const DATABASES_DEFAULT: usize = 16;

/// Maximum connected clients without the option, as in Redis.
const CLIENTS_DEFAULT: usize = 10_000;

/// Most event loops.
pub(crate) const THREADS_MAX: usize = 64;

/// Maximum of `maxclients`.
pub(crate) const CLIENTS_MAX: usize = 1 << 20;

/// Minimum of the longest argument.
pub(crate) const BULK_BYTES_MIN: usize = 1 << 20;

/// Maximum and default of the longest argument: the codec's own limit.
pub(crate) const BULK_BYTES_MAX: usize = 512 << 20;

/// Maximum databases of a server, and of its record of databases.
pub(crate) const DATABASES_MAX: usize = 1024;

/// The port of Redis.
pub(crate) const PORT_DEFAULT: u16 = 6379;

/// Time until the system probes a silent client, without the option, as in Redis.
const KEEPALIVE_DEFAULT: Duration = Duration::from_secs(300);

/// The listeners and limits of a server. [`Config::default`] listens on the loopback address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Addresses of TCP. Port 0 lets the system choose. Redis' names: `bind` and `port`.
    pub listen: Vec<SocketAddr>,
    /// Path of a unix socket. Redis' name: `unixsocket`.
    pub unix: Option<PathBuf>,
    /// Permissions of the unix socket. `None`: as the process's umask leaves them.
    pub unix_permissions: Option<u32>,
    /// Event loops. 0 means one for each processor.
    pub threads: usize,
    /// Most connected clients. Redis' name: `maxclients`.
    pub clients_max: usize,
    /// The password of the default user. Redis' name: `requirepass`.
    pub password: Option<String>,
    /// Time after which an idle client is disconnected. 0 means never. Redis' name: `timeout`.
    pub idle_timeout: Duration,
    /// Time after which the system probes whether a silent client still exists. 0 means never.
    /// Redis' name: `tcp-keepalive`.
    pub keepalive: Duration,
    /// Used bytes of the store above which writes that need space are refused. 0: no bound but the
    /// store's capacity. Redis' name: `maxmemory`.
    pub memory_max: u64,
    /// Numbered databases. Redis' name: `databases`.
    pub databases: usize,
    /// Longest argument in bytes. Redis' name: `proto-max-bulk-len`.
    pub bulk_bytes_max: usize,
    /// Unsent replies of a client at which the server reads no more commands of it.
    pub output_bytes_pause: usize,
    /// Longest reply of a command that reads, in bytes.
    pub reply_bytes_max: usize,
    /// Bytes of commands, of a transaction's queue, of watched keys and of subscriptions above
    /// which a client is closed. Redis' name: `client-query-buffer-limit`.
    pub query_bytes_max: usize,
    /// Bytes of all clients above which the largest clients are closed. 0: no bound. Redis' name:
    /// `maxmemory-clients`.
    pub clients_memory_max: u64,
    /// Which clients may run `DEBUG`.
    pub debug_clients: DebugClients,
    /// Bounds on unsent bytes. Redis' name: `client-output-buffer-limit`.
    pub output_limits: OutputLimits,
    /// Classes of keyspace events as letters of `KEA$lszhxetdgmn`. Redis' name:
    /// `notify-keyspace-events`.
    pub notify_keyspace_events: String,
    /// Most keys that the server remembers for caches. Redis' name: `tracking-table-max-keys`.
    pub tracking_keys_max: usize,
    /// Microseconds from which a command enters the slow log. Negative: none enters. Redis' name:
    /// `slowlog-log-slower-than`.
    pub slow_microseconds: i64,
    /// Most entries of the slow log. Redis' name: `slowlog-max-len`.
    pub slow_log_entries: usize,
    /// Milliseconds from which latency is recorded. 0: none is recorded. Redis' name:
    /// `latency-monitor-threshold`.
    pub latency_milliseconds: usize,
    /// Directory in which `SAVE` and `BGSAVE` create backups. Redis' name: `dir`.
    pub backup_dir: Option<PathBuf>,
    /// Users: a name and rules each, as in `ACL SETUSER`. Redis' name: `user`.
    pub users: Vec<String>,
    /// File of users, for `ACL LOAD` and `ACL SAVE`. Redis' name: `aclfile`.
    pub acl_file: Option<PathBuf>,
    /// TLS, on separate addresses.
    pub tls: Option<TlsConfig>,
    /// The listener for metrics and the status page.
    pub metrics: MetricsConfig,
    /// The log of the program.
    pub log: LogConfig,
    /// The store that the program serves. [`Server::start`](crate::Server::start) gets an open
    /// store and ignores it.
    pub store: StoreConfig,
    /// The file that the configuration was read from.
    pub file: Option<PathBuf>,
}

/// Which clients may run `DEBUG`. Redis' name: `enable-debug-command`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DebugClients {
    /// `no`: no client.
    #[default]
    Nobody,
    /// `local`: clients of this machine, by a unix socket or a loopback address.
    Local,
    /// `yes`: all clients.
    Everybody,
}

/// A bound on the unsent bytes of a client. 0 means no bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OutputLimit {
    /// A client with more unsent bytes is closed at once.
    pub hard_bytes: usize,
    /// A client that has more unsent bytes for longer than `soft_time` is closed.
    pub soft_bytes: usize,
    /// See `soft_bytes`.
    pub soft_time: Duration,
}

/// Bounds on the unsent bytes of clients by their class. Redis' name: `client-output-buffer-limit`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutputLimits {
    /// Clients that only send commands.
    pub normal: OutputLimit,
    /// Clients that read the commands of others by `MONITOR`. Redis' class `replica`.
    pub replica: OutputLimit,
    /// Clients that subscribe.
    pub pubsub: OutputLimit,
}

impl Default for OutputLimits {
    fn default() -> Self {
        let of_mebibytes = |hard: usize, soft: usize| OutputLimit {
            hard_bytes: hard << 20,
            soft_bytes: soft << 20,
            soft_time: Duration::from_secs(60),
        };
        Self { normal: OutputLimit::default(), replica: of_mebibytes(256, 64), pubsub: of_mebibytes(32, 8) }
    }
}

/// The listener for metrics and the status page.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MetricsConfig {
    /// Address of HTTP; `None`: no listener.
    pub address: Option<SocketAddr>,
    /// Whether the address may be reachable from other machines. The pages need no password.
    pub allows_remote: bool,
}

/// The log of the program.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LogConfig {
    /// Least important messages that are written.
    pub level: LogLevel,
    /// Whether messages are JSON objects.
    pub is_json: bool,
}

/// The importance of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogLevel {
    /// Something failed.
    Error,
    /// Something needs attention.
    Warn,
    /// Start, stop and other rare events.
    #[default]
    Info,
    /// Each connection.
    Debug,
    /// All messages.
    Trace,
}

/// The store that the program serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreConfig {
    /// The store's directory; `None`: the program chooses one.
    pub path: Option<PathBuf>,
    /// Whether a store that is named and does not exist is created.
    pub creates: bool,
    /// The engine of a new store. A store of another engine is refused.
    pub engine: Option<String>,
    /// Maximum bytes of a new store.
    pub size: u64,
    /// The failure that an acknowledged write survives.
    pub durability: Option<Durability>,
    /// Options of the engine, as `name=value`.
    pub set: Vec<String>,
}

impl Default for StoreConfig {
    fn default() -> Self {
        let size = lodestore::options::DEFAULT_SIZE;
        Self { path: None, creates: false, engine: None, size, durability: None, set: Vec::new() }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: vec![SocketAddr::from(([127, 0, 0, 1], PORT_DEFAULT))],
            unix: None,
            unix_permissions: None,
            threads: 0,
            clients_max: CLIENTS_DEFAULT,
            password: None,
            idle_timeout: Duration::ZERO,
            keepalive: KEEPALIVE_DEFAULT,
            memory_max: 0,
            databases: DATABASES_DEFAULT,
            bulk_bytes_max: BULK_BYTES_MAX,
            output_bytes_pause: 64 << 20,
            reply_bytes_max: 1 << 30,
            query_bytes_max: 1 << 30,
            clients_memory_max: 0,
            debug_clients: DebugClients::default(),
            users: Vec::new(),
            acl_file: None,
            metrics: MetricsConfig::default(),
            log: LogConfig::default(),
            store: StoreConfig::default(),
            file: None,
            tls: None,
            output_limits: OutputLimits::default(),
            notify_keyspace_events: String::new(),
            tracking_keys_max: 1_000_000,
            slow_microseconds: 10_000,
            slow_log_entries: 128,
            latency_milliseconds: 0,
            backup_dir: None,
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
    /// The metrics would be reachable from other machines, without an explicit option for it.
    MetricsOpenToOthers(SocketAddr),
    /// The configuration of TLS is refused. The text says why.
    Tls(String),
    /// The classes of keyspace events have an unknown letter.
    NotifyEvents(String),
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
                    "other machines can reach {address}: set a password (option password, or a user line for \
                     default), or listen on 127.0.0.1"
                )
            }
            Self::Users(text) => write!(f, "the users are invalid: {text}"),
            Self::MetricsOpenToOthers(address) => write!(
                f,
                "other machines can reach the metrics on {address} without a password: set metrics-remote to yes, or \
                 use an address of 127.0.0.1"
            ),
            Self::Tls(text) => write!(f, "TLS: {text}"),
            Self::NotifyEvents(letters) => {
                write!(f, "notify-keyspace-events has an unknown letter in '{letters}': use letters of KEA$lszhxetdgmn")
            }
            Self::NoListener => {
                f.write_str("the server has no address to listen on: set an address (listen) or a path (unix)")
            }
            Self::OutOfRange { option, min, max } => write!(f, "{option} must be from {min} to {max}"),
        }
    }
}

impl std::error::Error for ConfigError {}

impl Config {
    /// Returns the number of event loops.
    pub(crate) fn thread_count(&self) -> usize {
        match self.threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX),
            threads => threads,
        }
    }
}
