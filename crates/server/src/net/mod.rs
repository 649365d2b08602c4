//! Sockets and event loops.
//!
//! * `stream`: a connection of TCP, of TLS or of a unix socket. `tls`: TLS.
//! * `buffers`: the input and the output of one connection.
//! * `mailbox`: the way of a new connection from the accepting loop to its own.
//! * `event_loop`: reads sockets, runs commands and writes replies, on one thread.
//! * `tick`: the commands of one tick, with the reads of all connections batched.
//! * `group`: the writes of all connections as one commit, where each commit waits for a device.

pub(crate) mod buffers;
pub(crate) mod event_loop;
mod group;
pub(crate) mod mailbox;
pub(crate) mod stream;
mod tick;
pub(crate) mod tls;
