//! MKVS (Micromachines 2019): a matrix of devices. Groups partition the keys. The devices of a
//! group hold the same pairs and compete to answer.
//!
//! A device is a directory on a medium of its own, with a store of any engine, an operation log,
//! a queue and a processor. The host assigns a sequence number to each operation of a group. Every
//! device applies the operations in that order, therefore the first answer is always correct. The
//! option `acks` selects which losses an acknowledged write survives. Reads return the same results
//! with every setting.
//!
//! # Floor
//! Floor 2b: the crate depends on the contract, and on stores of any engine that its owner passes
//! in ([`Places`]). The only files that the crate opens itself are labels and the record of an
//! unfinished creation.
#![forbid(unsafe_code)]

mod account;
mod admin;
mod advice;
mod apply;
mod catchup;
mod codec;
mod command;
mod commit;
mod compete;
mod copy;
mod creation;
mod decide;
mod device;
mod doubt;
mod events;
mod factory;
mod fill;
mod filter;
#[cfg(feature = "fuzz")]
pub mod fuzz;
mod group;
mod host;
mod inner;
mod keeper;
mod label;
mod latency;
mod layout;
mod lead;
mod operation;
mod oplog;
mod options;
mod pace;
mod places;
mod planted;
mod recover;
mod redo;
mod refill;
mod revive;
mod route;
mod salvage;
mod scan;
mod shape;
mod sole;
mod source;
mod stats;
mod store;
mod stripes;
mod verify;
mod wait;
mod walk;

use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

pub use admin::{DeviceStatus, MatrixStatus, Replaced, describe};
pub use advice::{explain_host, first_device};
pub use creation::may_create_in;
pub use events::Relay;
pub use options::{Acks, Filtering, Inline, MkvsOptions, MkvsSettings, Reads};
pub use places::{New, OpenMode, Part, Place, Places};
pub use planted::Planted;
pub use stats::MkvsStats;
pub use store::Mkvs;

/// The engine's name.
pub const ENGINE: &str = "mkvs";

/// Locks a mutex and ignores poisoning. A panic in another thread leaves no half-done state:
/// missing votes run into the timeout.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}
