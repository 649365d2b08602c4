//! A Redis-protocol server over a Lodestore store.
//!
//! A write is acknowledged when the store has acknowledged it. So an `OK` survives what the
//! durability of the store survives: `kill -9` at every level, and a power failure at `power`.
//!
//! * `config`: how a server listens and what it allows.
//! * `net`: sockets and event loops.
//! * `command`: the commands, and the table that describes them.
//! * `upkeep`: what the server does in the background.
//! * `acl`: users and permissions.
//! * `data`: databases, values with types, and isolation between commands.
#![forbid(unsafe_code)]

mod acl;
mod command;
mod config;
mod data;
mod error;
mod net;
mod server;
mod session;
mod shared;
mod upkeep;

pub use command::describe::{CommandDescription, command_table};
pub use config::{Config, ConfigError};
pub use server::{Server, StartError};
