//! The numbered databases. Each is a keyspace of the store.
//!
//! The default keyspace of the store has a record: for each database the number of its
//! keyspace. `FLUSHDB` creates an empty keyspace, writes the record, and drops the old keyspace.
//! Thus the flush is one atomic write, and takes constant time. `SWAPDB` writes the record too.
//!
//! Persist order of a flush: the new keyspace, the record, the drop. A crash before the record
//! leaves an empty keyspace that no database has. The next open drops such keyspaces.
//!
//! ```text
//! record "lodestore-server/databases"
//! byte 0       version: 1
//! bytes 1..5   number of databases n, u32
//! then n times number of the keyspace, u64
//! ```
//!
//! The elements of large collections are in a second keyspace with the same number (module
//! `collections`). A flush drops it after the keys. The next open drops one that a crash left.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use lodestore::store::{HiddenKeys, Visit};
use lodestore::{Db, Error, Keyspace, Result};

use super::collections::{CollectionIds, ELEMENTS_PREFIX, Elements};
use crate::config::DATABASES_MAX;

/// Key of the record in the default keyspace.
const RECORD_KEY: &str = "lodestore-server/databases";

/// Version of the record.
const RECORD_VERSION: u8 = 1;

/// Bytes before the numbers: version and count.
const RECORD_HEAD_BYTES: usize = 5;

/// Prefix of the names of the keyspaces of databases.
const NAME_PREFIX: &str = "lodestore-server/database-";

/// Maximum keys that a flush of a full store deletes before it tries again.
const FREED_KEYS_MAX: usize = 1024;

/// The keyspaces of all databases at one moment.
#[derive(Debug, Clone)]
pub(crate) struct View {
    db: Db,
    keyspaces: Vec<Keyspace>,
    /// The elements of large collections, with the indexes of `keyspaces`.
    elements: Vec<Arc<Elements>>,
    ids: Arc<CollectionIds>,
    has_order: bool,
}

impl View {
    /// Returns the store.
    pub(crate) fn db(&self) -> &Db {
        &self.db
    }

    /// Returns the elements of the large collections of a database.
    pub(crate) fn elements(&self, database: usize) -> &Elements {
        &self.elements[database]
    }

    /// Whether the engine keeps keys in order. Collections without an order are one record each.
    pub(crate) fn has_order(&self) -> bool {
        self.has_order
    }

    /// Returns a number that no collection had.
    ///
    /// # Errors
    ///
    /// Errors of the store.
    pub(crate) fn new_collection(&self) -> Result<super::collections::CollectionId> {
        self.ids.next(&self.db)
    }

    /// Returns the keyspace of a database.
    pub(crate) fn keyspace(&self, database: usize) -> &Keyspace {
        &self.keyspaces[database]
    }

    /// Returns the number of databases.
    pub(crate) fn count(&self) -> usize {
        self.keyspaces.len()
    }
}

/// The databases of a server.
#[derive(Debug)]
pub(crate) struct Databases {
    db: Db,
    view: RwLock<Arc<View>>,
    /// Raised with each new view. Event loops compare the number before each tick.
    generation: AtomicU64,
    /// Serializes the changes of the record. The value is the next free keyspace number.
    next_number: Mutex<u64>,
}

impl Databases {
    /// Opens the databases of a store. A store without databases gets `count` empty ones. A store
    /// with fewer gets more, and a store with more keeps all of them.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] if the record is damaged or of another version, if the record is missing
    /// and a database has keys, or if a database is missing; those of the store.
    pub(crate) fn open(db: Db, count: usize) -> Result<Self> {
        let mut numbers = match db.get(RECORD_KEY)? {
            Some(record) => decode_record(&record)?,
            None => Vec::new(),
        };
        let names = db.keyspaces()?;
        check_names(&db, &numbers, &names)?;
        let known = names.iter().filter_map(|name| number_of(name).or_else(|| elements_number_of(name)));
        let mut next = known.chain(numbers.iter().copied()).max().map_or(0, |number| number + 1);
        let is_changed = numbers.len() < count;
        while numbers.len() < count {
            numbers.push(next);
            next += 1;
        }
        let mut keyspaces = Vec::with_capacity(numbers.len());
        let mut elements = Vec::with_capacity(numbers.len());
        for number in &numbers {
            keyspaces.push(db.keyspace(name_of(*number))?);
            let of_database = Elements::new(*number);
            if names.contains(&of_database.name()) {
                of_database.open(&db)?;
            }
            elements.push(Arc::new(of_database));
        }
        let ids = Arc::new(CollectionIds::open(&db, elements.iter().filter_map(|elements| elements.find()))?);
        if is_changed {
            db.put(RECORD_KEY, encode_record(&numbers))?;
        }
        drop_unused(&db, &numbers);
        let has_order = db.as_store().capabilities().scan;
        let view = View { db: db.clone(), keyspaces, elements, ids, has_order };
        Ok(Self { db, view: RwLock::new(Arc::new(view)), generation: AtomicU64::new(0), next_number: Mutex::new(next) })
    }

    /// Returns the store.
    pub(crate) fn db(&self) -> &Db {
        &self.db
    }

    /// Returns the number of the present view.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Returns the keyspaces of all databases.
    pub(crate) fn view(&self) -> Arc<View> {
        self.view.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces databases by empty ones. The caller holds all stripes.
    ///
    /// # Errors
    ///
    /// Errors of the store. On an error the databases keep their keys, except those that were
    /// deleted to free space in a full store.
    pub(crate) fn flush(&self, databases: impl Iterator<Item = usize>) -> Result<()> {
        let mut next = self.next_number.lock().unwrap_or_else(PoisonError::into_inner);
        let mut view = View::clone(&self.view());
        let databases: Vec<usize> = databases.collect();
        let old: Vec<Keyspace> = databases.iter().map(|database| view.keyspace(*database).clone()).collect();
        let mut old_elements = Vec::new();
        for database in databases {
            view.keyspaces[database] = retry_while_full(&old, || self.db.keyspace(name_of(*next)))?;
            let new = Arc::new(Elements::new(*next));
            old_elements.push(std::mem::replace(&mut view.elements[database], new));
            *next += 1;
        }
        retry_while_full(&old, || self.publish(view.clone()))?;
        // The databases are empty already. The next open drops a keyspace that stays.
        for keyspace in old {
            drop(self.db.drop_keyspace(keyspace.name()));
        }
        for keyspace in old_elements.iter().filter_map(|elements| elements.find()) {
            drop(self.db.drop_keyspace(keyspace.name()));
        }
        Ok(())
    }

    /// Exchanges two databases. The caller holds all stripes.
    ///
    /// # Errors
    ///
    /// Errors of the store. On an error nothing is changed.
    pub(crate) fn swap(&self, first: usize, second: usize) -> Result<()> {
        let _next = self.next_number.lock().unwrap_or_else(PoisonError::into_inner);
        let mut view = View::clone(&self.view());
        view.keyspaces.swap(first, second);
        view.elements.swap(first, second);
        self.publish(view)
    }

    /// Writes the record, then shows the new view to all threads.
    fn publish(&self, view: View) -> Result<()> {
        let numbers: Vec<u64> = view.keyspaces.iter().filter_map(|keyspace| number_of(keyspace.name())).collect();
        self.db.put(RECORD_KEY, encode_record(&numbers))?;
        *self.view.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(view);
        self.generation.fetch_add(1, Ordering::Release);
        Ok(())
    }
}

/// Runs a change until it fits into a full store. Deletes keys of databases that will be empty to
/// free space.
fn retry_while_full<T>(emptied: &[Keyspace], change: impl Fn() -> Result<T>) -> Result<T> {
    loop {
        match change() {
            Err(Error::Full { .. }) if delete_some(emptied)? => {}
            result => return result,
        }
    }
}

/// Deletes some keys of the first keyspace with keys. Returns whether there is one.
fn delete_some(keyspaces: &[Keyspace]) -> Result<bool> {
    let mut keys = Vec::with_capacity(FREED_KEYS_MAX);
    for keyspace in keyspaces {
        keyspace.for_each(|key, _| {
            keys.push(key.to_vec());
            if keys.len() < FREED_KEYS_MAX { Visit::More } else { Visit::Stop }
        })?;
        if !keys.is_empty() {
            keys.iter().try_for_each(|key| keyspace.delete(key).map(|_| ()))?;
            return Ok(true);
        }
    }
    Ok(false)
}

/// Refuses a store whose record does not fit its keyspaces: an open would hide keys, or drop them.
/// A killed first start leaves empty keyspaces without a record, which are accepted.
fn check_names(db: &Db, numbers: &[u64], names: &[String]) -> Result<()> {
    if let Some(number) = numbers.iter().find(|number| !names.contains(&name_of(**number))) {
        return Err(damaged(&format!("the keyspace {} of a database is missing", name_of(*number))));
    }
    if !numbers.is_empty() {
        return Ok(());
    }
    for name in names.iter().filter(|name| number_of(name).is_some()) {
        if db.keyspace(name)?.count()? > 0 {
            return Err(damaged("the record of the databases is missing, and a database has keys"));
        }
    }
    Ok(())
}

fn damaged(what: &str) -> Error {
    Error::Corrupt { place: RECORD_KEY.into(), what: what.into(), hidden: HiddenKeys::None }
}

fn name_of(number: u64) -> String {
    format!("{NAME_PREFIX}{number}")
}

fn number_of(name: &str) -> Option<u64> {
    name.strip_prefix(NAME_PREFIX)?.parse().ok()
}

fn elements_number_of(name: &str) -> Option<u64> {
    name.strip_prefix(ELEMENTS_PREFIX)?.parse().ok()
}

/// Drops the keyspaces that an interrupted flush left. A full store may refuse that: a later open
/// tries again.
fn drop_unused(db: &Db, used: &[u64]) {
    for name in db.keyspaces().unwrap_or_default() {
        let number = number_of(&name).or_else(|| elements_number_of(&name));
        if number.is_some_and(|number| !used.contains(&number)) {
            drop(db.drop_keyspace(name));
        }
    }
}

fn encode_record(numbers: &[u64]) -> Vec<u8> {
    let mut record = vec![RECORD_VERSION];
    // At most `DATABASES_MAX` databases.
    record.extend_from_slice(&(numbers.len() as u32).to_le_bytes());
    for number in numbers {
        record.extend_from_slice(&number.to_le_bytes());
    }
    record
}

fn decode_record(record: &[u8]) -> Result<Vec<u64>> {
    let [version, count @ ..] = record else { return Err(damaged("the record of the databases is empty")) };
    if *version != RECORD_VERSION {
        return Err(damaged(
            "the record of the databases has an unsupported version: serve the store with a newer program",
        ));
    }
    let count = count.first_chunk::<4>().map(|count| u32::from_le_bytes(*count) as usize);
    let numbers = record.get(RECORD_HEAD_BYTES..).unwrap_or_default();
    match count {
        Some(count) if (1..=DATABASES_MAX).contains(&count) && numbers.len() == count * 8 => Ok(numbers
            .chunks_exact(8)
            .filter_map(|number| number.first_chunk())
            .map(|number| u64::from_le_bytes(*number))
            .collect()),
        _ => Err(damaged("the record of the databases has a wrong length")),
    }
}
