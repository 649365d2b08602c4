//! The commands.
//!
//! * `handlers`: the handler of each command of `command_specs`.
//! * `dispatch`: the path of a command from its arguments to its reply. `admission`: the checks
//!   before it runs. `grouped`: writes of several clients that share one commit.
//! * `context`: the context of a command.
//! * `kill`: the end of other clients. `pause`: the commands that a pause holds.
//! * `transaction`: `MULTI`, `EXEC` and `WATCH`.
//! * `arguments`, `decimal`: options and numbers among the arguments of commands.
//! * `key_specs`, `published`: the data of `COMMAND INFO` in addition to the table.
//! * `syntax`: the arguments of commands, from the texts of the table.
//! * `absent`: commands of Redis that the server does not have.
//! * All other modules have the commands of one group.

mod absent;
pub(crate) mod acl;
pub(crate) mod admin;
pub(crate) mod admission;
pub(crate) mod arguments;
pub(crate) mod client;
pub(crate) mod config;
pub(crate) mod connection;
pub(crate) mod context;
mod decimal;
pub(crate) mod describe;
pub(crate) mod dispatch;
pub(crate) mod expiry;
pub(crate) mod grouped;
mod handlers;
mod hash_random;
mod hash_read;
mod hash_scan;
mod hash_write;
pub(crate) mod info;
mod info_statistics;
pub(crate) mod key_specs;
pub(crate) mod keys;
mod kill;
pub(crate) mod numbers;
mod object;
pub(crate) mod observe;
mod pause;
pub(crate) mod persistence;
mod published;
pub(crate) mod pubsub;
pub(crate) mod scan;
pub(crate) mod strings;
mod syntax;
pub(crate) mod tracking;
pub(crate) mod transaction;
