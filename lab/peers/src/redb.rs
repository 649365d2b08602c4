//! redb, a copy-on-write B-tree in one file.
//!
//! Every call is a separate transaction, as with the other peers. Only the keys of a multi-key read
//! are combined. redb's own lock serializes writers; readers see the last commit.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::Path;

use ::redb::{Database, Durability, ReadableDatabase, TableDefinition, WriteTransaction};
use lodestore_contract::{Error, Result};

use crate::library::failed;
use crate::peer::{About, Asked, NOTHING_WAITS, Peer, Survives};

const RECORDS: TableDefinition<&[u8], &[u8]> = TableDefinition::new("records");
/// The version in `Cargo.lock`.
pub(crate) const VERSION: &str = "redb 4.5.0";

/// Creates an empty store in `dir`, or opens the existing one.
pub(crate) fn open(dir: &Path, durability: Durability, asked: &Asked) -> Result<Box<dyn Peer>> {
    let cache = usize::try_from(asked.budget()).unwrap_or(usize::MAX);
    let database = Database::builder().set_cache_size(cache).create(dir.join("peer.redb"));
    let store = Redb { database: database.map_err(error("opening redb"))?, durability, cache };
    // The table has to exist before the first get.
    store.change(Durability::Immediate, |_| Ok(())).map(|()| Box::new(store) as Box<dyn Peer>)
}

struct Redb {
    database: Database,
    durability: Durability,
    cache: usize,
}

fn error<E: Display>(doing: &'static str) -> impl Fn(E) -> Error {
    move |cause| failed(doing, cause.to_string())
}

type Records<'a> = ::redb::Table<'a, &'static [u8], &'static [u8]>;

impl Redb {
    fn change<T>(&self, durability: Durability, work: impl FnOnce(&mut Records<'_>) -> Result<T>) -> Result<T> {
        let mut transaction: WriteTransaction = self.database.begin_write().map_err(error("writing to redb"))?;
        transaction.set_durability(durability).map_err(error("writing to redb"))?;
        let done = {
            let mut records = transaction.open_table(RECORDS).map_err(error("writing to redb"))?;
            work(&mut records)?
        };
        transaction.commit().map_err(error("writing to redb"))?;
        Ok(done)
    }
}

impl Peer for Redb {
    fn about(&self) -> About {
        let synced = matches!(self.durability, Durability::Immediate);
        let settings = BTreeMap::from([
            ("version".into(), VERSION.into()),
            ("sync".into(), if synced { "each commit" } else { "at the end" }.into()),
            ("transactions".into(), "one for each call".into()),
            ("budget".into(), self.cache.to_string()),
            ("cache".into(), self.cache.to_string()),
            ("settles".into(), if synced { NOTHING_WAITS } else { "a durable commit" }.into()),
            ("update".into(), "an insert, which looks".into()),
        ]);
        About { survives: if synced { Survives::Medium } else { Survives::Stop }, settings }
    }

    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        value.clear();
        let transaction = self.database.begin_read().map_err(error("reading from redb"))?;
        let records = transaction.open_table(RECORDS).map_err(error("reading from redb"))?;
        let found = records.get(key).map_err(error("reading from redb"))?;
        Ok(found.is_some_and(|found| {
            value.extend_from_slice(found.value());
            true
        }))
    }

    fn multi_get(&self, keys: &[&[u8]], each: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()> {
        let transaction = self.database.begin_read().map_err(error("reading from redb"))?;
        let records = transaction.open_table(RECORDS).map_err(error("reading from redb"))?;
        keys.iter().enumerate().try_for_each(|(at, key)| {
            let found = records.get(*key).map_err(error("reading from redb"))?;
            each(at, found.as_ref().map(|found| found.value()));
            Ok(())
        })
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.update(key, value).map(drop)
    }

    fn update(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        self.change(self.durability, |records| {
            records.insert(key, value).map(|old| old.is_some()).map_err(error("writing to redb"))
        })
    }

    fn delete(&self, key: &[u8]) -> Result<bool> {
        self.change(self.durability, |records| {
            records.remove(key).map(|old| old.is_some()).map_err(error("deleting from redb"))
        })
    }

    fn scan(&self, from: &[u8], limit: usize, each: &mut dyn FnMut(&[u8], &[u8])) -> Result<usize> {
        let transaction = self.database.begin_read().map_err(error("reading from redb"))?;
        let records = transaction.open_table(RECORDS).map_err(error("reading from redb"))?;
        let run = records.range(from..).map_err(error("reading from redb"))?;
        let mut seen = 0;
        for pair in run.take(limit) {
            let (key, value) = pair.map_err(error("reading from redb"))?;
            each(key.value(), value.value());
            seen += 1;
        }
        Ok(seen)
    }

    fn flush(&self) -> Result<()> {
        self.change(Durability::Immediate, |_| Ok(()))
    }

    fn settle(&self) -> Result<()> {
        if matches!(self.durability, Durability::Immediate) { Ok(()) } else { self.flush() }
    }
}
