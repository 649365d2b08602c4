//! The HashKV engine (HashKV, ATC 2018). Keys and small values are in an LSM; large values are in
//! segments of a file, grouped by the hash of their keys.
//!
//! A write goes to the LSM ([`lodestore_fluidkv`]) with its value: the thread's log is both
//! write-ahead log and cache. A memtable flush writes large values to their groups' segments, in
//! whole blocks, and the tables hold pointers (`separator.rs`). GC of a group that is mostly
//! garbage reads only that group (`collect.rs`). The LSM alone determines which bytes are live and
//! which segments are free (`begin.rs`). The formats are in `docs/format/hashkv.md`.
//!
//! Unless the option `mapped` is off, the first store of a process sets a SIGBUS handler. The
//! file's cached pages are read through a mapping, and the handler turns a failing medium into an
//! error instead of ending the process. Signals outside a mapping are passed to the handler that
//! was set before. A handler that is set later must pass signals that are not its own to this
//! handler.
#![forbid(unsafe_code)]

mod admit;
mod append;
mod begin;
mod collect;
#[cfg(feature = "fuzz")]
pub mod fuzz;
mod late;
mod layout;
mod opening;
mod options;
mod pace;
mod read;
mod room;
mod running;
mod scan;
mod separator;
mod space;
mod stats;
mod store;
mod superblock;
mod values;
mod verify;
mod window;

pub use options::{HashKvOptions, HashkvSettings, Mode};
pub use stats::HashkvStats;
pub use store::HashKv;

/// The engine's name in options and pool headers.
pub const ENGINE: &str = layout::ENGINE;
/// Version of the pool's format: the LSM's. The values file has its own version.
pub const FORMAT: u32 = lodestore_fluidkv::FORMAT;
