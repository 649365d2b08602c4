//! Sockets and event loops.
//!
//! * `listen`: the sockets that a server listens on.
//! * `stream`: a connection of TCP, of TLS or of a unix socket. `tls`: TLS.
//! * `buffers`: the input and the output of one connection.
//! * `inbox`: the way of new connections and of messages to an event loop.
//! * `event_loop`: reads sockets, runs commands and writes replies, on one thread.
//! * `stop`: the last work of an event loop.
//! * `messages`: the messages that a loop adds to the outputs of its clients.
//! * `held`: connections whose next command waits for the end of a pause.
//! * `limits`: bounds on the unsent bytes of clients. `client_memory`: the memory of clients.
//! * `tick`: the commands of one tick. `gets`: its `GET`s, read for all connections at once.
//! * `group`: the writes of all connections as one commit, where each commit waits for a device.

pub(crate) mod buffers;
mod client_memory;
pub(crate) mod event_loop;
mod gets;
mod group;
mod held;
pub(crate) mod inbox;
mod limits;
pub(crate) mod listen;
mod messages;
mod stop;
pub(crate) mod stream;
mod tick;
pub(crate) mod tls;
