//! The shared state of a named keyspace's handles.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError};

use lodestore_contract::{Error, Result};

/// A named keyspace. A process has at most one `NamedKeyspace` per id that is not dropped.
///
/// Invariants:
/// 1. `is_dropped` changes from false to true once, under the write lock of `gate`.
/// 2. A writer holds the read lock of `gate` from its check of `is_dropped` until its records are
///    in the store. Therefore no record of a dropped keyspace is written after the drop.
/// 3. A reader checks `is_dropped` after it has read. If the keyspace is still alive then, the
///    reclaim had removed nothing before.
pub(in crate::db) struct NamedKeyspace {
    id: u32,
    name: String,
    is_dropped: AtomicBool,
    gate: RwLock<()>,
    /// The process that opened the store. A fork may copy a gate that no thread unlocks.
    process: u32,
}

/// The right of a drop: no writer is in progress.
pub(in crate::db) type WritersBlocked<'a> = RwLockWriteGuard<'a, ()>;

/// The right to write to a keyspace: a drop waits until the guard is dropped.
pub(in crate::db) type WriteGuard<'a> = RwLockReadGuard<'a, ()>;

impl NamedKeyspace {
    pub(in crate::db) fn new(id: u32, name: String) -> Self {
        Self { id, name, is_dropped: AtomicBool::new(false), gate: RwLock::new(()), process: std::process::id() }
    }

    pub(in crate::db) fn id(&self) -> u32 {
        self.id
    }

    pub(in crate::db) fn name(&self) -> &str {
        &self.name
    }

    /// # Errors
    /// [`Error::KeyspaceDropped`].
    #[inline]
    pub(in crate::db) fn check_alive(&self) -> Result<()> {
        if self.is_dropped.load(Ordering::Acquire) {
            return Err(Error::KeyspaceDropped { name: self.name.clone() });
        }
        Ok(())
    }

    /// Begins a write. A thread must not hold two guards of one keyspace: a waiting drop would
    /// block the second guard.
    ///
    /// # Errors
    /// [`Error::KeyspaceDropped`]; [`Error::ForeignProcess`].
    #[inline]
    pub(in crate::db) fn begin_write(&self) -> Result<WriteGuard<'_>> {
        let writing = match self.gate.try_read() {
            Ok(writing) => writing,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) if self.process != std::process::id() => {
                return Err(Error::ForeignProcess);
            }
            Err(TryLockError::WouldBlock) => self.gate.read().unwrap_or_else(PoisonError::into_inner),
        };
        self.check_alive()?;
        Ok(writing)
    }

    /// Waits for the writers of the keyspace, and blocks others until the guard is dropped.
    pub(in crate::db) fn block_writers(&self) -> WritersBlocked<'_> {
        self.gate.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses all later operations.
    pub(in crate::db) fn mark_dropped(&self, _blocked: &WritersBlocked<'_>) {
        self.is_dropped.store(true, Ordering::Release);
    }
}

/// The named keyspaces of a batch or a transaction, by their ids.
#[derive(Default)]
pub(in crate::db) struct NamedKeyspaces {
    by_id: BTreeMap<u32, Arc<NamedKeyspace>>,
}

impl NamedKeyspaces {
    /// Adds a keyspace.
    pub(in crate::db) fn add(&mut self, named: &Arc<NamedKeyspace>) {
        self.by_id.entry(named.id()).or_insert_with(|| Arc::clone(named));
    }

    /// Begins a write to all of the keyspaces. Each has one guard, because a thread must not hold
    /// two of one keyspace. The guards are acquired in the order of the ids.
    ///
    /// # Errors
    ///
    /// As [`NamedKeyspace::begin_write`].
    pub(in crate::db) fn begin_write(&self) -> Result<Vec<WriteGuard<'_>>> {
        self.by_id.values().map(|named| named.begin_write()).collect()
    }
}
