//! Locking after a panic. No code under the locks of this crate panics half-way, and a pool whose
//! writer panicked is poisoned by then.

pub(crate) use lodestore_contract::threads::lock;
