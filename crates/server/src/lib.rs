//! A Redis-protocol server over a Lodestore store.
//!
//! Layer 4. Each event loop thread reads sockets, runs commands and writes replies. Databases are
//! keyspaces of the store. `docs/server-design.md` describes data, lock order and tests.
//!
//! # Guarantees
//! * A write is acknowledged when the store has acknowledged it. An `OK` therefore survives the
//!   same failures as a write of the store: `kill -9` at every level, and a power failure at
//!   `power`.
//! * A command that changes a key holds the key's stripe until the store acknowledges the change.
//! * `EXEC` commits one batch, applied completely or not at all. On an engine without batches, an
//!   `EXEC` that changes several records is refused.
//! * A command that reads several keys acquires no lock, and reads again if one of them changed
//!   meanwhile.
//! * The replies to a client are in the order of its commands.
//! * A stop runs the complete commands that were received, for at most one second.
//!
//! # Modules
//! * `clock`, `glob`, `words`: clock, key patterns, words of the protocol.
//! * `process`, `pause`: memory and processor time; the pause of clients.
//! * `error`, `store_events`: errors as Redis sends them; events of the store.
//! * `tls_config`, `config`, `config_check`: TLS; listeners and limits; their check.
//! * [`options`]: the table of all options, and their sources.
//! * `runtime`: options that change while the server runs.
//! * `command_specs`: the table that describes the commands.
//! * `acl`: users and permissions.
//! * `keyspace_events`: classes of keyspace events.
//! * `client`: the state of a client that all threads share.
//! * `statistics`: counters and times.
//! * `data`: databases, typed values, and isolation between commands.
//! * `messaging`: published messages, keyspace events, and invalidations of caches.
//! * `memory`, `saves`: bounds on the bytes of the store and of clients; backups.
//! * `shared`, `session`: state of all event loops; state of a client in its event loop.
//! * `command`: the commands.
//! * `net`: sockets and event loops.
//! * `upkeep`: background work.
//! * `http`: metrics, health and the status page.
//! * `server`: the threads, from start to stop.
//! * `loop_server`, `fuzzed` (tests, fuzzing): a server without threads; its fuzz target.
//! * `guide` (doc tests): the examples of the guide.
#![forbid(unsafe_code)]

mod acl;
mod client;
mod clock;
mod command;
mod command_specs;
mod config;
mod config_check;
mod data;
mod error;
#[cfg(test)]
mod fuzzed;
mod glob;
mod http;
mod keyspace_events;
#[cfg(any(test, feature = "fuzz"))]
pub mod loop_server;
mod memory;
mod messaging;
mod net;
pub mod options;
mod pause;
mod process;
mod runtime;
mod saves;
mod server;
mod session;
mod shared;
mod statistics;
mod store_events;
mod tls_config;
mod upkeep;
mod words;

pub use command::describe::{CommandDescription, command_table};
pub use config::{
    Config, ConfigError, DebugClients, LogConfig, LogLevel, MetricsConfig, OutputLimit, OutputLimits, StoreConfig,
};
pub use server::{BoundServer, Server, StartError, Stopper};
pub use store_events::StoreEvents;
pub use tls_config::{TlsClients, TlsConfig};

/// The code of the guide is compiled and run as a test of the documentation.
#[cfg(doctest)]
mod guide {
    #[doc = include_str!("../guide/server.md")]
    mod server {}
}
