//! A keyspace as a `Store`, and the handle with keyspaces over an open store.

use lodestore_contract::copy::CopySink;
use lodestore_contract::{
    Batch, Capabilities, ChangeFn, Commit, Condition, Entry, Error, Expiry, Lifetime, Options, Pair, Progress,
    RangeCondition, Result, Scan, ScanRange, Snapshot, Stats, Store, Swap, VerifyReport, Visit,
};

use super::Db;
use super::keyspace::Keyspace;
use super::keyspace::key::{KeyMap, StoredRange};
use super::open::choice_of;
use super::view::View;
use crate::handle::Lodestore;

impl From<Lodestore> for Db {
    /// Returns the handle with keyspaces, batches and transactions over an open store.
    fn from(store: Lodestore) -> Self {
        let store = store.into_store();
        let choice = choice_of(&*store, None);
        Self::of(store, choice)
    }
}

impl Db {
    /// Returns the default keyspace as a store; see [`Keyspace::as_store`].
    #[must_use]
    pub fn as_store(&self) -> Lodestore {
        self.default.as_store()
    }
}

impl Keyspace {
    /// Returns the keyspace as a store: keys and walks are those of the
    /// keyspace; statistics, checks, [`Store::sync`] and [`Store::close`] are those of the whole
    /// store.
    ///
    /// There are no copies of one keyspace ([`Store::copy_all`]): use [`Db::backup`].
    #[must_use]
    pub fn as_store(&self) -> Lodestore {
        Lodestore::of(std::sync::Arc::new(KeyspaceStore { keyspace: self.clone() }))
    }

    /// Returns the one range of stored keys that holds those of `range`, and possibly keys of other
    /// keyspaces in between; `None` if the range excludes all keys.
    fn stored_range(&self, range: &ScanRange) -> Option<ScanRange> {
        if self.named.is_none() && self.shared.keyspaces.has_default_only() {
            return Some(range.clone());
        }
        let mut parts = self.map.split_range(range).into_iter();
        let StoredRange { range: first, .. } = parts.next()?;
        let to = parts.last().map_or(first.to, |last| last.range.to);
        Some(ScanRange { from: first.from, to, direction: range.direction, limit: usize::MAX })
    }
}

/// A keyspace as a store.
struct KeyspaceStore {
    keyspace: Keyspace,
}

impl KeyspaceStore {
    fn inner(&self) -> &dyn Store {
        self.keyspace.store()
    }
}

/// Returns the pair with the user's key; `None` if the key belongs to another keyspace.
fn to_user(map: &KeyMap, entry: Entry) -> Option<Entry> {
    let key = map.decode_key(entry.key())?;
    if key.len() == entry.key().len() { Some(entry) } else { Some(Entry::of_pair(Pair { key, ..entry.pair() })) }
}

impl Store for KeyspaceStore {
    fn engine(&self) -> &'static str {
        self.inner().engine()
    }

    fn capabilities(&self) -> Capabilities {
        self.inner().capabilities()
    }

    fn identity(&self) -> Option<u64> {
        self.inner().identity()
    }

    fn opening(&self) -> u64 {
        self.inner().opening()
    }

    fn mark(&self) -> Option<u64> {
        self.inner().mark()
    }

    fn set_mark(&self, mark: u64) -> Result<()> {
        self.inner().set_mark(mark)
    }

    fn creation_options(&self) -> Options {
        self.inner().creation_options()
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.keyspace.get(key)?.map(Vec::from))
    }

    fn get_with(&self, key: &[u8], with: &mut dyn FnMut(&[u8])) -> Result<bool> {
        Ok(self.keyspace.get_with(key, with)?.is_some())
    }

    fn get_into(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        self.keyspace.get_into(key, value)
    }

    fn contains(&self, key: &[u8]) -> Result<bool> {
        self.keyspace.contains(key)
    }

    fn multi_get(&self, keys: &[&[u8]], each: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()> {
        self.keyspace.multi_get_with(keys, each)
    }

    fn expiry(&self, key: &[u8]) -> Result<Option<Option<Expiry>>> {
        self.keyspace.expiry(key)
    }

    fn put_expiring(&self, key: &[u8], value: &[u8], expiry: Option<Expiry>) -> Result<()> {
        match expiry {
            Some(expiry) => self.keyspace.put_expiring(key, value, expiry),
            None => self.keyspace.put(key, value),
        }
    }

    fn insert(&self, key: &[u8], value: &[u8], lifetime: Lifetime) -> Result<bool> {
        self.keyspace.insert(key, value, lifetime)
    }

    fn update(&self, key: &[u8], value: &[u8], lifetime: Lifetime) -> Result<bool> {
        self.keyspace.update(key, value, lifetime)
    }

    fn delete(&self, key: &[u8]) -> Result<bool> {
        self.keyspace.delete(key)
    }

    fn compare_and_swap(
        &self,
        key: &[u8],
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
        lifetime: Lifetime,
    ) -> Result<Swap> {
        self.keyspace.compare_and_swap(key, expected, new, lifetime)
    }

    fn update_with(&self, key: &[u8], change: &mut ChangeFn<'_>) -> Result<()> {
        self.keyspace.update_with(key, change)
    }

    fn scan_each(&self, range: &ScanRange, visit: &mut dyn FnMut(&[u8], &[u8]) -> Visit) -> Result<usize> {
        let Some(stored) = self.keyspace.stored_range(range) else { return Ok(0) };
        let (map, mut visits) = (self.keyspace.map, 0);
        let scanned = self.inner().scan_each(&stored, &mut |key, value| {
            let Some(key) = map.decode_key(key) else { return Visit::More };
            if visits >= range.limit {
                return Visit::Stop;
            }
            visits += 1;
            let verdict = visit(key, value);
            if visits == range.limit { Visit::Stop } else { verdict }
        });
        self.keyspace.check_alive()?;
        scanned.map(|_| visits)
    }

    fn scan(&self, range: &ScanRange) -> Result<Scan> {
        let Some(stored) = self.keyspace.stored_range(range) else { return Ok(Box::new(std::iter::empty())) };
        let keyspace = self.keyspace.clone();
        let scan = self.inner().scan(&stored)?;
        let user = scan.filter_map(move |entry| match entry {
            Ok(entry) => to_user(&keyspace.map, entry).map(Ok),
            Err(error) => Some(Err(keyspace.check_alive().err().unwrap_or(error))),
        });
        Ok(Box::new(user.take(range.limit)))
    }

    fn for_each(&self, visit: &mut dyn FnMut(&[u8], &[u8]) -> Visit) -> Result<u64> {
        self.keyspace.for_each(visit)
    }

    fn for_each_pair(&self, visit: &mut dyn FnMut(Pair<'_>) -> Visit) -> Result<u64> {
        self.keyspace.for_each_pair(visit)
    }

    fn snapshot(&self) -> Result<Box<dyn Snapshot>> {
        let view = View::begin(&self.keyspace)?;
        self.keyspace.check_alive()?;
        Ok(Box::new(view))
    }

    fn copy_all(&self, _sink: &mut dyn CopySink) -> Result<()> {
        Err(Error::Unsupported {
            engine: self.engine(),
            what: "a copy of one keyspace".into(),
            instead: "use the backup of the handle `Db`, which has all keyspaces",
        })
    }

    fn write(&self, batch: &Batch) -> Result<()> {
        self.keyspace.write_all(batch)
    }

    fn write_if(&self, conditions: &[Condition], batch: &Batch) -> Result<Commit> {
        self.keyspace.write_all_if(conditions, &[], batch)
    }

    fn write_if_ranges(&self, conditions: &[Condition], ranges: &[RangeCondition], batch: &Batch) -> Result<Commit> {
        self.keyspace.write_all_if(conditions, ranges, batch)
    }

    fn len(&self) -> Result<u64> {
        self.keyspace.count()
    }

    fn stats(&self) -> Stats {
        self.inner().stats()
    }

    fn sync(&self) -> Result<()> {
        self.inner().sync()
    }

    fn settle(&self) -> Result<()> {
        self.inner().settle()
    }

    fn wait_recovered(&self) -> Result<()> {
        self.inner().wait_recovered()
    }

    fn verify(&self, progress: &mut dyn FnMut(Progress)) -> Result<VerifyReport> {
        self.inner().verify(progress)
    }

    fn close(&self) -> Result<()> {
        self.keyspace.shared.keyspaces.stop();
        self.inner().close()
    }
}
