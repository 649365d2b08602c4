//! Locking that survives a panic of an earlier holder.

pub(crate) use lodestore_contract::threads::lock;
