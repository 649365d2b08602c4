//! Volatile structures: the concurrent B+-tree, bounded queues and group commit. No I/O and no
//! persistent state.

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
pub use tree::{BPlusTree, Direction, pinned};
