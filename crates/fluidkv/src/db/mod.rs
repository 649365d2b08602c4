//! The operations of an open store, from its open to its close.

pub(crate) mod batch;
mod close;
mod embedding;
mod inner;
mod key_ops;
mod open;
mod read;
mod recover;
pub(crate) mod replace;
mod salvage;
mod scan;
mod scrub;
pub(crate) mod stats;
pub(crate) mod store;
mod verify;
mod write;
