//! The operations of an open store, from its open to its close.

pub(crate) mod batch;
mod close;
mod embedding;
mod key_ops;
mod open;
mod open_store;
mod read;
mod recover;
pub(crate) mod replace;
mod salvage;
mod scan;
mod scrub;
mod snapshot;
pub(crate) mod stats;
pub(crate) mod store;
mod verify;
mod write;
