//! The removal of elements that no key refers to.
//!
//! `DEL`, an overwrite and an expiry remove the record of a large collection, and leave its
//! elements. A crash may leave elements whose record was never written. A background thread walks
//! over the headers of all collections and removes such elements.
//!
//! Argument:
//!
//! 1. The header of a collection is written before its elements or with them, and is deleted after
//!    them. Therefore each collection with elements has a header.
//! 2. A command that writes a header or the owner's record holds the owner's stripe until the
//!    commit of the record. A rename changes header and record in one batch under the stripes of
//!    both keys.
//! 3. The sweep decides under the stripe of the owner that the header names. If the owner's record
//!    does not refer to the collection then, no record does.
//! 4. Numbers of collections are never used again. Therefore an orphan stays an orphan, and its
//!    elements are removed without a lock.
//! 5. A reader of a large collection compares the sequence of the owner's stripe before and after
//!    its reads. The decision of the sweep changes the sequence, also after an expiry. Therefore no
//!    reader sees a part of a collection.
//!
//! A sweep works on the keyspaces of one moment. A flush drops them, which ends the sweep.

use std::ops::Bound;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use lodestore::store::{ScanRange, Visit};
use lodestore::{Keyspace, Result};

use super::collections::{CollectionId, collection_of, elements_range, header_key, headers_range, owner_of};
use super::databases::{Databases, View};
use super::hash::HashRecord;
use super::stripes::Stripes;
use super::value::Stored;

/// Headers or elements of one step.
const STEP_ENTRIES: usize = 128;

/// Shortest pause between two sweeps for commands that a full store refused.
const FULL_PAUSE_MIN: Duration = Duration::from_millis(20);

/// Such a sweep pauses for this many times its own length.
const FULL_PAUSE_FACTOR: u32 = 4;

/// The sweeps for commands that a full store refused.
#[derive(Debug, Default)]
pub(crate) struct OrphanSweeps {
    /// When the next one may begin.
    next: Mutex<Option<Instant>>,
}

impl OrphanSweeps {
    /// Removes orphans, unless a sweep came just before. Returns whether it removed any. The caller
    /// holds no stripe.
    pub(crate) fn sweep_full(&self, sweep: &Sweep<'_>) -> bool {
        // Another thread that sweeps frees space too.
        let Ok(mut next) = self.next.try_lock() else { return false };
        let begun = Instant::now();
        if next.is_some_and(|next| begun < next) {
            return false;
        }
        // A damaged store may refuse a sweep. The command then ends with its own error.
        let removed = sweep.run().unwrap_or(0);
        let pause = FULL_PAUSE_MIN.max(begun.elapsed().saturating_mul(FULL_PAUSE_FACTOR));
        *next = Some(Instant::now() + pause);
        removed > 0
    }
}

/// A sweep of the orphans of all databases.
#[derive(Debug)]
pub(crate) struct Sweep<'a> {
    pub(crate) databases: &'a Databases,
    pub(crate) stripes: &'a Stripes,
    /// Set when the server stops. The sweep then ends early.
    pub(crate) is_stopping: &'a AtomicBool,
}

impl Sweep<'_> {
    /// Removes the orphans of all databases. Returns the number of collections that were removed.
    ///
    /// # Errors
    ///
    /// Errors of the store. The next sweep continues.
    pub(crate) fn run(&self) -> Result<u64> {
        let view = self.databases.view();
        let mut removed = 0;
        for database in 0..view.count() {
            let Some(elements) = view.elements(database).find() else { continue };
            match self.sweep_database(&view, database, elements) {
                Ok(count) => removed += count,
                // A flush dropped the keyspace and all of its orphans.
                Err(lodestore::Error::KeyspaceDropped { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(removed)
    }

    fn sweep_database(&self, view: &View, database: usize, elements: &Keyspace) -> Result<u64> {
        let (mut from, end) = headers_range();
        let mut removed = 0;
        loop {
            let mut headers: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
            let range = ScanRange { from, to: end.clone(), limit: STEP_ENTRIES, ..ScanRange::all() };
            elements.as_store().scan_each(&range, &mut |key, header| {
                headers.push((key.to_vec(), header.to_vec()));
                Visit::More
            })?;
            let Some((last, _)) = headers.last() else { return Ok(removed) };
            from = Bound::Excluded(last.clone());
            for (key, header) in &headers {
                if self.is_stopping() {
                    return Ok(removed);
                }
                if let (Some(id), Some(owner)) = (collection_of(key), owner_of(header))
                    && !refers_to(view.keyspace(database), owner, id)?
                    && self.is_orphan(view.keyspace(database), elements, id)?
                {
                    self.remove_collection(elements, id)?;
                    removed += 1;
                }
            }
        }
    }

    /// Decides under the stripe of the owner whether a collection is an orphan.
    fn is_orphan(&self, keys: &Keyspace, elements: &Keyspace, id: CollectionId) -> Result<bool> {
        let Some(header) = elements.get(header_key(id))? else { return Ok(false) };
        let Some(owner) = owner_of(&header) else { return Ok(false) };
        let _held = self.stripes.lock_one(owner);
        // A rename may have changed the header before the stripe was locked: the next sweep
        // decides.
        let is_same = elements.get(header_key(id))?.is_some_and(|now| *now == *header);
        Ok(is_same && !refers_to(keys, owner, id)?)
    }

    /// Removes the elements of an orphan, then its header.
    fn remove_collection(&self, elements: &Keyspace, id: CollectionId) -> Result<()> {
        loop {
            let keys = elements.range_keys(elements_range(id))?.take(STEP_ENTRIES).collect::<Result<Vec<_>>>()?;
            if keys.is_empty() {
                break;
            }
            let mut batch = self.databases.db().batch();
            for key in &keys {
                batch.delete(elements, key);
            }
            batch.commit()?;
            if self.is_stopping() {
                return Ok(());
            }
        }
        elements.delete(header_key(id))?;
        Ok(())
    }

    fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::SeqCst)
    }
}

/// Whether the record of a key names a collection. A record that this version cannot read may.
fn refers_to(keys: &Keyspace, owner: &[u8], id: CollectionId) -> Result<bool> {
    let named = keys.get_with(owner, |stored| match Stored::parse(stored) {
        Stored::String(_) => false,
        Stored::Hash(record) => match HashRecord::parse(record) {
            Ok(HashRecord::Large(large)) => large.id == id,
            Ok(HashRecord::Small(_)) => false,
            Err(_) => true,
        },
        Stored::Unknown => true,
    })?;
    Ok(named.unwrap_or(false))
}
