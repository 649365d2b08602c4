//! A Redis-protocol server over a Lodestore store.
//!
//! A write is acknowledged when the store has acknowledged it. An `OK` therefore survives the same
//! failures as a write of the store: `kill -9` at every level, and a power failure at `power`.
//!
//! * `config`: listeners and limits. `tls_config`: TLS. `config_check`: their check.
//! * `options`: the table of all options, and the sources of their values. `runtime`: the options
//!   that change while the server runs.
//! * `client`: a client as all threads share it. `session`: its state in its event loop.
//! * `net`: sockets and event loops.
//! * `command`: the commands. `command_specs`: the table that describes them.
//! * `upkeep`: background work.
//! * `acl`: users and permissions.
//! * `http`: metrics, health and the status page.
//! * `memory`: bounds on the bytes of the store and of clients. `pause`: the pause of clients.
//! * `data`: databases, values with types, and isolation between commands.
//! * `messaging`: published messages, keyspace events, and invalidations of caches.
//!   `keyspace_events`: the classes of the events.
//! * `statistics`: counters and times.
//! * `clock`, `glob`, `words`: leaf modules that depend on no other one.
//! * `store_events`: the events of the store. `saves`: backups.
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
