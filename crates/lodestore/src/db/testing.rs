//! Keyspaces for the crash explorer: over any open store, without a thread, with planted faults.

use std::sync::Arc;

use lodestore_contract::{Durability, Result, Store};

pub use super::keyspace::planted::Fault;
use super::keyspace::planted::Planted;
use super::keyspace::reclaim::Keyspaces;
use super::{Choice, Db, Keyspace, Shared};

/// Returns a handle over an open store. The reclaim runs only in [`reclaim`]. The drop of the last
/// handle does not close the store: a dropped handle simulates the death of the process.
pub fn open_stepped(store: Arc<dyn Store>, fault: Option<Fault>) -> Db {
    let durability = store.stats().durability;
    let choice = Choice { engine: store.engine(), durability, reason: "a test".into() };
    let needs_sync = matches!(durability, Durability::Interval(_));
    let keyspaces = Keyspaces::begin_planted(Arc::clone(&store), needs_sync, Planted::stepped(fault));
    Db { default: Keyspace::of_default(Arc::new(Shared { store, choice, keyspaces, is_read_only: false })) }
}

/// Removes at most `pieces` pieces of the records of dropped keyspaces; all of them if it is
/// `usize::MAX`.
///
/// # Errors
/// Errors of a read and a write.
pub fn reclaim(db: &Db, pieces: usize) -> Result<()> {
    db.shared().keyspaces.reclaim_pieces(pieces)
}
