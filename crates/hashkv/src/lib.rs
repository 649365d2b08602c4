//! The HashKV engine (HashKV, ATC 2018): keys and small values in an LSM, large values in segments of a file, grouped by the hash of their keys.
//!
//! A write goes to the LSM ([`lodestore_fluidkv`]) with its value: the thread's log is the write-ahead log and the cache in one. When a memtable is flushed its large values are
//! written to their groups' segments, in whole blocks, and the tables hold pointers (`separator.rs`). A group that is mostly garbage is collected by reading it, and nothing else
//! (`collect.rs`). What is live and what is free follows from the LSM alone (`begin.rs`). The formats are in `docs/format/hashkv.md`.
//!
//! Unless the option `mapped` is off, the first store of a process sets a handler of SIGBUS: what the page cache has of the file is read through a mapping, and a medium that fails under it is to be an
//! error and not the end of the process. It passes on what is not of a mapping to the handler that was there. Whoever sets a handler later passes on to this one what is not its own.
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
mod scan;
mod separator;
mod space;
mod stats;
mod store;
mod values;
mod verify;
mod window;

pub use options::{HashKvOptions, HashkvSettings, Mode};
pub use stats::HashkvStats;
pub use store::HashKv;

/// The engine's name in options and pool headers.
pub const ENGINE: &str = layout::ENGINE;
/// Version of the pool's format, which is the LSM's. The file of values has a version of its own.
pub const FORMAT: u32 = lodestore_fluidkv::FORMAT;
