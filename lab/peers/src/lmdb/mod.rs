//! LMDB, a copy-on-write B+-tree in a mapped file, by its C interface, from Debian's library.
//!
//! Every call is a separate transaction, as with the other peers. Only the keys of a multi-key read
//! are combined. LMDB's own lock serializes writers; readers see the last commit and wait for no
//! thread. Its put does not check for the key, so `update` is a put and returns `true`. Its delete
//! checks.
//!
//! Without a sync, commits are made in the mapping itself (`MDB_NOSYNC`, `MDB_WRITEMAP`): the
//! operating system has them when they return. With a sync, LMDB runs with its defaults: it writes
//! pages to the file and syncs the file, and then writes the page that names the commit. LMDB has
//! no cache of its own.

mod api;

use std::collections::BTreeMap;
use std::ffi::{CStr, c_int, c_uint, c_void};
use std::path::Path;
use std::ptr::{null, null_mut};

use lodestore_contract::Result;

use self::api::{Api, Cursor, Env, FIRST, NEXT, NO_SYNC, READ_ONLY, SET_RANGE, SOURCE, Txn, Val, WRITE_MAP};
use crate::library::{c_path, failed};
use crate::peer::{About, NOTHING_WAITS, Peer, Survives};

/// Bytes of address space for the mapping. Without a sync this is also the file's length, mostly a
/// hole.
const MAP_BYTES: usize = 64 << 30;
/// Maximum number of concurrent reader threads.
const READERS: c_uint = 4096;
/// File mode.
const MODE_MASK: u32 = 0o600;

/// Checks that the library is installed.
pub(crate) fn ready() -> Result<()> {
    Api::get().map(drop)
}

/// Creates an empty database in `dir`, or opens the existing one.
pub(crate) fn open(dir: &Path, sync: bool) -> Result<Box<dyn Peer>> {
    Lmdb::open(dir, sync).map(|db| Box::new(db) as Box<dyn Peer>)
}

/// An environment with its one database.
struct Lmdb {
    api: &'static Api,
    env: *mut Env,
    dbi: c_uint,
    about: About,
}

// SAFETY: Inv 5.
unsafe impl Send for Lmdb {}
// SAFETY: Inv 5.
unsafe impl Sync for Lmdb {}

/// A transaction of the calling thread. Dropping it aborts the transaction.
struct Transaction<'a> {
    db: &'a Lmdb,
    raw: *mut Txn,
}

fn val(bytes: &[u8]) -> Val {
    Val { size: bytes.len(), data: bytes.as_ptr().cast_mut().cast::<c_void>() }
}

const EMPTY: Val = Val { size: 0, data: null_mut() };

impl Lmdb {
    fn open(dir: &Path, sync: bool) -> Result<Self> {
        const DOING: &str = "opening LMDB";
        let (api, name) = (Api::get()?, c_path(DOING, dir)?);
        let (major, minor, patch) = api.numbers();
        let settings = BTreeMap::from([
            ("version".into(), format!("LMDB {major}.{minor}.{patch} ({})", SOURCE.file)),
            ("sync".into(), sync.to_string()),
            ("flags".into(), if sync { "none" } else { "NOSYNC, WRITEMAP" }.into()),
            ("transactions".into(), "one for each call".into()),
            ("map".into(), MAP_BYTES.to_string()),
            ("cache".into(), "the kernel's, of the mapping".into()),
            ("settles".into(), NOTHING_WAITS.into()),
            ("update".into(), "a put, unlooked".into()),
        ]);
        let about = About { survives: if sync { Survives::Medium } else { Survives::Process }, settings };
        let mut env = null_mut();
        // SAFETY: Inv 4: the call only creates an object, which the owner below frees.
        api.outcome(DOING, unsafe { (api.env_create)(&raw mut env) })?;
        let mut db = Self { api, env, dbi: 0, about };
        db.begin(&name, if sync { 0 } else { NO_SYNC | WRITE_MAP })?;
        Ok(db)
    }

    fn begin(&mut self, name: &CStr, flags: c_uint) -> Result<()> {
        const DOING: &str = "opening LMDB";
        let api = self.api;
        // SAFETY: Inv 4 and 6: the name ends with a zero byte.
        unsafe {
            api.outcome(DOING, (api.env_set_map_size)(self.env, MAP_BYTES))?;
            api.outcome(DOING, (api.env_set_readers)(self.env, READERS))?;
            api.outcome(DOING, (api.env_open)(self.env, name.as_ptr(), flags, MODE_MASK))?;
        }
        let mut dbi = 0;
        self.change(DOING, |transaction| {
            // SAFETY: Inv 4: no name selects the database that every environment has.
            unsafe { (api.dbi_open)(transaction, null(), 0, &raw mut dbi) }
        })?;
        self.dbi = dbi;
        Ok(())
    }

    fn transaction(&self, doing: &'static str, flags: c_uint) -> Result<Transaction<'_>> {
        let mut raw = null_mut();
        // SAFETY: Inv 4 and 5: this thread has no other one.
        let code = unsafe { (self.api.begin)(self.env, null_mut(), flags, &raw mut raw) };
        self.api.outcome(doing, code)?;
        Ok(Transaction { db: self, raw })
    }

    /// Runs `work` in a separate transaction, and commits it if `work` found a pair.
    fn change(&self, doing: &'static str, work: impl FnOnce(*mut Txn) -> c_int) -> Result<bool> {
        let transaction = self.transaction(doing, 0)?;
        let met = self.api.met(doing, work(transaction.raw))?;
        if met {
            transaction.commit(doing)?;
        }
        Ok(met)
    }
}

impl Transaction<'_> {
    fn commit(self, doing: &'static str) -> Result<()> {
        // A commit ends the transaction even if it fails.
        let (api, raw) = (self.db.api, self.raw);
        std::mem::forget(self);
        // SAFETY: Inv 4: once.
        api.outcome(doing, unsafe { (api.commit)(raw) })
    }

    /// Returns the value of `key`, valid until the transaction ends.
    fn get(&self, key: &[u8]) -> Result<Option<&[u8]>> {
        let (api, mut key, mut found) = (self.db.api, val(key), EMPTY);
        // SAFETY: Inv 4 and 6.
        let code = unsafe { (api.get)(self.raw, self.db.dbi, &raw mut key, &raw mut found) };
        Ok(api.met("getting from LMDB", code)?.then(|| self.lent(found)))
    }

    /// Returns bytes that LMDB lent.
    fn lent(&self, bytes: Val) -> &[u8] {
        if bytes.size == 0 {
            return &[];
        }
        // SAFETY: Inv 7: the bytes are in the mapping, where nothing that a transaction sees
        // changes.
        unsafe { std::slice::from_raw_parts(bytes.data.cast::<u8>(), bytes.size) }
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        // SAFETY: Inv 4: once.
        unsafe { (self.db.api.abort)(self.raw) };
    }
}

/// A cursor of a transaction that outlives it.
struct Walk<'a> {
    transaction: &'a Transaction<'a>,
    raw: *mut Cursor,
}

impl<'a> Walk<'a> {
    fn new(transaction: &'a Transaction<'a>) -> Result<Self> {
        let (api, mut raw) = (transaction.db.api, null_mut());
        // SAFETY: Inv 4.
        let code = unsafe { (api.cursor_open)(transaction.raw, transaction.db.dbi, &raw mut raw) };
        api.outcome("scanning LMDB", code)?;
        Ok(Self { transaction, raw })
    }

    /// Returns the pair that a step reaches.
    fn pair(&self, from: &[u8], step: c_int) -> Result<Option<(&'a [u8], &'a [u8])>> {
        let (api, mut key, mut value) = (self.transaction.db.api, val(from), EMPTY);
        // SAFETY: Inv 4 and 6.
        let code = unsafe { (api.cursor_get)(self.raw, &raw mut key, &raw mut value, step) };
        let met = api.met("scanning LMDB", code)?;
        Ok(met.then(|| (self.transaction.lent(key), self.transaction.lent(value))))
    }
}

impl Drop for Walk<'_> {
    fn drop(&mut self) {
        // SAFETY: Inv 4: once, before its transaction.
        unsafe { (self.transaction.db.api.cursor_close)(self.raw) };
    }
}

impl Drop for Lmdb {
    fn drop(&mut self) {
        // SAFETY: Inv 4: once; no transaction outlives its call.
        unsafe { (self.api.env_close)(self.env) };
    }
}

impl Peer for Lmdb {
    fn about(&self) -> About {
        self.about.clone()
    }

    #[inline]
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        value.clear();
        let transaction = self.transaction("getting from LMDB", READ_ONLY)?;
        let found = transaction.get(key)?;
        value.extend_from_slice(found.unwrap_or_default());
        Ok(found.is_some())
    }

    fn multi_get(&self, keys: &[&[u8]], each: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()> {
        let transaction = self.transaction("getting from LMDB", READ_ONLY)?;
        keys.iter().enumerate().try_for_each(|(at, key)| {
            each(at, transaction.get(key)?);
            Ok(())
        })
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        const DOING: &str = "putting into LMDB";
        let (mut key, mut value) = (val(key), val(value));
        let put = self.change(DOING, |transaction| {
            // SAFETY: Inv 4 and 6.
            unsafe { (self.api.put)(transaction, self.dbi, &raw mut key, &raw mut value, 0) }
        })?;
        if put { Ok(()) } else { Err(failed(DOING, "it found no place".into())) }
    }

    fn delete(&self, key: &[u8]) -> Result<bool> {
        let mut key = val(key);
        self.change("deleting from LMDB", |transaction| {
            // SAFETY: Inv 4 and 6.
            unsafe { (self.api.del)(transaction, self.dbi, &raw mut key, null_mut()) }
        })
    }

    fn scan(&self, from: &[u8], limit: usize, each: &mut dyn FnMut(&[u8], &[u8])) -> Result<usize> {
        let transaction = self.transaction("scanning LMDB", READ_ONLY)?;
        let walk = Walk::new(&transaction)?;
        let mut step = if from.is_empty() { FIRST } else { SET_RANGE };
        let mut seen = 0;
        while seen < limit
            && let Some((key, value)) = walk.pair(from, step)?
        {
            each(key, value);
            (seen, step) = (seen + 1, NEXT);
        }
        Ok(seen)
    }

    fn flush(&self) -> Result<()> {
        // SAFETY: Inv 4.
        let code = unsafe { (self.api.env_sync)(self.env, 1) };
        self.api.outcome("syncing LMDB", code)
    }
}
