//! The Redis protocol as pure functions over byte slices.
//!
//! Layer 0. A server feeds the bytes of a connection to a [`CommandParser`] and writes the answers
//! by a [`ReplyWriter`]. A client reads the answers by [`decode_reply`].
//!
//! Source of the format: the public Redis protocol specification, versions 2 and 3.
//!
//! # Guarantees
//! * The crate performs no I/O and has no global state.
//! * Commands and errors do not depend on the pieces in which the bytes arrive.
//! * Parsing a command in many pieces costs one pass over its bytes.
//! * [`Limits`] bounds the lengths, counts and nesting that a command or reply may claim.
//! * Malformed input is a [`ProtocolError`] or a [`DecodeError`].
//!
//! # Modules
//! * `limits`, `error`: bounds of commands and replies; protocol errors.
//! * `number`, `arguments`: strict decimal numbers; arguments of one command.
//! * `inline`, `command`: inline commands; the parser of commands.
//! * `reply`, `decode`: the writer and the reader of replies.
#![forbid(unsafe_code)]

mod arguments;
mod command;
mod decode;
mod error;
mod inline;
mod limits;
mod number;
mod reply;

pub use arguments::{Arguments, Span};
pub use command::{CommandParser, LINE_END, Progress};
pub use decode::{Reply, decode_reply};
pub use error::{DecodeError, ProtocolError};
pub use limits::Limits;
pub use number::{DECIMAL_BYTES_MAX, format_integer, parse_integer};
pub use reply::{Protocol, ReplyWriter};
