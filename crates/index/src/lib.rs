//! Volatile concurrent structures: a B+-tree, a bounded queue and group commit.
//!
//! Layer 0. The tree stores no keys: it holds positions of records elsewhere, with 4-byte heads of
//! their keys.
//!
//! # Guarantees
//! * All methods may be called from any thread. [`group::Group::join`] calls are serialized by
//!   their caller.
//! * Lookups and scans of the tree acquire no latch of a node. Every call may resolve a payload
//!   that another thread is just removing. The caller therefore retires a record only through an
//!   epoch, after its removal from the tree.
//! * [`queue::Ring::try_push`] never waits.
//! * Groups complete in the order of their numbers. After a failed group no further group runs.
//!   Threads that wait for its numbers, or for later ones, receive an error.
//! * The crate performs no I/O and has no persistent state.
//!
//! `unsafe` is allowed here; each use cites an invariant of SAFETY.md.
//!
//! # Modules
//! * `mutant`: names of the faults that the models plant.
//! * `group_sync`, [`group`]: replaceable locks; group commit.
//! * `queue_sync`, [`queue`]: replaceable atomics; bounded multi-producer queue.
//! * `sync`, `latch`: replaceable atomics of the tree; version latch of a node.
//! * `bytes`, `shape`: key heads as numbers; sizes of nodes.
//! * `resolver`: the interface through which the tree reads keys.
//! * `arena`, `reclaim`: memory of the leaves; allocation and reclamation of nodes.
//! * `leaf`, `inner`: the two kinds of nodes.
//! * `tree`: the tree's interface, descent, and operations on one key.
//! * `split`, `merge`: growth and shrinking.
//! * `range`, `bulk`, `check`: range scans, bulk load, structural verification.

mod arena;
mod bulk;
mod bytes;
mod check;
pub mod group;
mod group_sync;
mod inner;
mod latch;
mod leaf;
mod merge;
mod mutant;
pub mod queue;
mod queue_sync;
mod range;
mod reclaim;
mod resolver;
mod shape;
mod split;
mod sync;
mod tree;

pub use bulk::{BulkError, Headed, sort_headed};
pub use bytes::key_head;
pub use resolver::KeyResolver;
pub use tree::{BPlusTree, Direction, Pin, Seek, pinned};
