//! MKVS engine (Micromachines 2019): a matrix of devices, with sharding over groups and replication
//! within each group.
//!
//! Groups partition the keys. The devices of a group hold the same pairs and compete to answer
//! reads. A device is a directory on a medium of its own, with a store of any engine, an operation
//! log, a queue and a processor. The host assigns a sequence number to each operation of a group,
//! and every device applies the operations in that order. `docs/mkvs.md` describes the differences
//! from the paper.
//!
//! Layer 2b: the crate depends on the contract, and on stores of any engine that its owner passes
//! in ([`Places`]).
//!
//! # Guarantees
//! * The option `acks` selects how many devices have a write before it is acknowledged, and thus
//!   which losses the write survives.
//! * On each device, a write survives the failures of the store's durability.
//! * A read returns the last acknowledged value of its key, with every setting of `reads`.
//! * A write that only some devices have is in doubt, and its error says so. Its key is not
//!   readable until the write is decided.
//! * With too few active devices, writes are refused and reads continue. An open with too few
//!   devices is refused, except in salvage.
//! * There are no batches, conditions on ranges or snapshots.
//! * The crate itself opens only labels and the record of an unfinished creation.
//!
//! # Modules
//! * [`planted`], `events`, `latency`: planted faults, queued events, read latency estimate.
//! * `route`: routing of keys to groups.
//! * `layout`, `codec`, `operation`, `options`: encodings of records and operations; options.
//! * `filter`, `stripes`: counting Bloom filter; key locks.
//! * `walk`, `apply`: paged walks over a store; application of operations.
//! * `label`, `places`, `oplog`: device labels, source of stores, operation log.
//! * `salvage_doubts`, `rate_limit`: doubts of a salvage; rate limit of copies.
//! * `command`, `device`: device commands; the processor that executes them.
//! * `advice`, `host`, `salvage`: lost host stores; the host's store; writes given up.
//! * `group`: members, sequence of operations, and key states of a group.
//! * `group_count`: the number of groups in each device.
//! * `group_write`, `single_device`: commit path of a group; writes to a single device.
//! * `group_read`: single, hedged and raced reads.
//! * `catchup`, `state_transfer`, `leader`: catch-up from a log, state transfer, leader choice.
//! * `in_doubt_writes`, `reelection`: in-doubt writes; groups without active members.
//! * `topology`: the groups, and the move of keys to added ones.
//! * `source`: the stores that walks read.
//! * `inner`: shared state of an open matrix.
//! * `scan`, `copy`, `filter_rebuild`: merged walks, whole-store copies, filter rebuild.
//! * `creation`, `recover`: record of an unfinished creation; creation and opening.
//! * `factory`, `log_replay`: stores of a device; replay of a device's log.
//! * `keeper`, `maintenance_wait`: background maintenance; waits for it.
//! * `stats`, `close`: statistics; clean stop, and maintenance without threads.
//! * `verify`: verification of each store, and of members against each other.
//! * `admin`: replacement of devices, addition of groups, status.
//! * `store`: the operations of the contract.
//! * `fuzz` (feature): parsers for the fuzz targets.
#![forbid(unsafe_code)]

mod admin;
mod advice;
mod apply;
mod catchup;
mod close;
mod codec;
mod command;
mod copy;
mod creation;
mod device;
mod events;
mod factory;
mod filter;
mod filter_rebuild;
#[cfg(feature = "fuzz")]
pub mod fuzz;
mod group;
mod group_count;
mod group_read;
mod group_write;
mod host;
mod in_doubt_writes;
mod inner;
mod keeper;
mod label;
mod latency;
mod layout;
mod leader;
mod log_replay;
mod maintenance_wait;
mod operation;
mod oplog;
mod options;
mod places;
#[doc(hidden)]
pub mod planted;
mod rate_limit;
mod recover;
mod reelection;
mod route;
mod salvage;
mod salvage_doubts;
mod scan;
mod single_device;
mod source;
mod state_transfer;
mod stats;
mod store;
mod stripes;
mod topology;
mod verify;
mod walk;

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

// A panic in another thread leaves no half-done state: missing votes run into the timeout.
use lodestore_contract::threads::lock;

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

fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}
