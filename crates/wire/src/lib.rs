//! The Redis protocol as pure functions over byte slices.
//!
//! The crate performs no I/O. A server feeds the bytes of a connection to a [`CommandParser`] and
//! writes the answers by a [`ReplyWriter`]. A client reads the answers by [`decode_reply`].
//!
//! Source of the format: the public Redis protocol specification, versions 2 and 3.
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
