//! The data of the server: databases, values with types, and isolation between commands.
//!
//! * `value`: a value with its type, as the store holds it.
//! * `databases`: the numbered databases, which are keyspaces of the store.
//! * `stripes`: locks over keys, and the keys that clients watch.
//! * `access`: what a command does with keys, directly or within `EXEC`.

pub(crate) mod access;
pub(crate) mod databases;
pub(crate) mod stripes;
pub(crate) mod value;
