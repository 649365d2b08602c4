//! A Redis-protocol server over a Lodestore store.
//!
//! A write is acknowledged when the store has acknowledged it. So an `OK` survives what the
//! durability of the store survives: `kill -9` at every level, and a power failure at `power`.
//!
//! * `config`: how a server listens and what it allows. `options`: the table of all options, and
//!   where their values come from. `runtime`: the options that change while the server runs.
//! * `net`: sockets and event loops.
//! * `command`: the commands, and the table that describes them.
//! * `upkeep`: what the server does in the background.
//! * `acl`: users and permissions.
//! * `http`: metrics, health and the status page.
//! * `memory`: the bound on used bytes.
//! * `data`: databases, values with types, and isolation between commands.
#![forbid(unsafe_code)]

mod acl;
mod command;
mod config;
mod data;
mod error;
mod expired;
mod http;
mod memory;
mod net;
pub mod options;
mod runtime;
mod server;
mod session;
mod shared;
mod upkeep;

pub use command::describe::{CommandDescription, command_table};
pub use config::{Config, ConfigError, LogConfig, LogLevel, MetricsConfig, StoreConfig, TlsClients, TlsConfig};
pub use expired::ExpiredKeys;
pub use server::{Server, StartError, Stopper};

/// The code of the guide is compiled and run as a test of the documentation.
#[cfg(doctest)]
mod guide {
    #[doc = include_str!("../../../docs/guide/src/server.md")]
    mod server {}
}
