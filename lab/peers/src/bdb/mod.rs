//! Berkeley DB 5.3, hash and B-tree, from Debian's library.
//!
//! The database has no environment: no transactions, no log, and no locks of its own. Writers hold
//! this module's lock exclusively, and readers share it. On one thread the lock costs some
//! nanoseconds. If every put is synced, the pages of a put are on the medium when it returns. There
//! is no log, so a crash in the middle of a sync may leave a page torn. `update` is a put, which
//! does not check for the key.

mod api;
mod layout;

use std::collections::BTreeMap;
use std::path::Path;
use std::ptr::null_mut;
use std::sync::{PoisonError, RwLock};

use lodestore_contract::{Error, Result};

use self::api::{Api, CursorMethods, DbMethods};
use self::layout::{BTREE, BUFFER_SMALL, Bytes, CREATE_FLAG, Cursor, Db, FOR_THREADS, HASH, NEXT_FLAG};
use self::layout::{NO_SYNC_FLAG, NOT_FOUND, SET_RANGE_FLAG, VERSION};
use crate::library::{c_path, length};
use crate::peer::{About, Asked, NOTHING_WAITS, Peer, Survives};

/// Initial bytes of a buffer.
const BUFFER_BYTES_MIN: usize = 256;

/// An access method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Method {
    /// Extended linear hashing.
    Hash,
    /// B+-tree.
    BTree,
}

/// A setting.
#[derive(Clone, Copy)]
pub(crate) struct Setting {
    /// Sync the database after each write.
    sync: bool,
    /// Bytes of the page cache.
    cache: u32,
    /// Whether `cache` is a DRAM budget.
    budgeted: bool,
}

/// A cache for a store of some hundred megabytes, written out at the end. The size comes from the
/// budget.
pub(crate) const SANE: Setting = Setting { sync: false, cache: 0, budgeted: true };
/// The setting of the NVHT paper's authors: the library's default cache, and a full sync after
/// every put.
pub(crate) const PAPER: Setting = Setting { sync: true, cache: 256 << 10, budgeted: false };

impl Setting {
    /// Returns this setting within `asked`: the page cache uses the whole DRAM budget.
    pub(crate) fn within(self, asked: &Asked) -> Self {
        let cache = u32::try_from(asked.budget()).unwrap_or(u32::MAX);
        Self { cache, budgeted: true, ..self }
    }
}

/// Checks that the library is installed.
pub(crate) fn ready() -> Result<()> {
    Api::get().map(drop)
}

/// Creates an empty database in `dir`, or opens the existing one.
pub(crate) fn open(dir: &Path, method: Method, setting: &Setting, there: bool) -> Result<Box<dyn Peer>> {
    Bdb::open(dir, method, setting, there).map(|db| Box::new(db) as Box<dyn Peer>)
}

/// A handle, closed on drop.
struct Handle {
    raw: *mut Db,
    methods: DbMethods,
}

// SAFETY: Inv 5: accessed only through the lock.
unsafe impl Send for Handle {}
// SAFETY: Inv 5: readers that share the lock only read.
unsafe impl Sync for Handle {}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: Inv 4: called once. `flush` has written out everything that had to be written.
        unsafe { (self.methods.close)(self.raw, NO_SYNC_FLAG) };
    }
}

struct Bdb {
    api: &'static Api,
    handle: RwLock<Handle>,
    method: Method,
    setting: Setting,
}

impl Handle {
    fn open(api: &Api, dir: &Path, (method, there): (Method, bool), cache: u32) -> Result<Self> {
        let name = c_path("opening Berkeley DB", &dir.join("peer.db"))?;
        let mut raw = null_mut();
        // SAFETY: Inv 2: no environment, no flags.
        api.outcome("making a Berkeley DB", unsafe { (api.create)(&raw mut raw, null_mut(), 0) })?;
        // SAFETY: Inv 3: just made. (If its methods cannot be read, it cannot be closed either.)
        let methods = unsafe { DbMethods::of(api, raw) }?;
        let handle = Self { raw, methods };
        let kind = match method {
            Method::Hash => HASH,
            Method::BTree => BTREE,
        };
        // SAFETY: Inv 4.
        let code = unsafe { (handle.methods.set_cachesize)(handle.raw, 0, cache, 1) };
        api.outcome("setting the cache of Berkeley DB", code)?;
        let flags = if there { FOR_THREADS } else { FOR_THREADS | CREATE_FLAG };
        // SAFETY: Inv 4 and 6: the name is text that outlives the call. Several threads may use the
        // handle (Inv 5).
        let code = unsafe {
            let (no_transaction, no_name, mode) = (null_mut(), std::ptr::null(), 0o600);
            (handle.methods.open)(handle.raw, no_transaction, name.as_ptr(), no_name, kind, flags, mode)
        };
        api.outcome("opening Berkeley DB", code)?;
        Ok(handle)
    }

    fn sync(&self) -> i32 {
        // SAFETY: Inv 4.
        unsafe { (self.methods.sync)(self.raw, 0) }
    }
}

impl Bdb {
    fn open(dir: &Path, method: Method, setting: &Setting, there: bool) -> Result<Self> {
        let api = Api::get()?;
        let handle = Handle::open(api, dir, (method, there), setting.cache)?;
        Ok(Self { api, handle: RwLock::new(handle), method, setting: *setting })
    }

    /// Runs `work`, which changes the database, exclusively, and syncs the database if the setting
    /// requires it.
    #[inline]
    fn change(&self, doing: &'static str, work: impl FnOnce(&Handle) -> i32) -> Result<bool> {
        let handle = self.handle.write().unwrap_or_else(PoisonError::into_inner);
        let code = work(&handle);
        if code == NOT_FOUND {
            return Ok(false);
        }
        self.api.outcome(doing, code)?;
        if self.setting.sync {
            self.api.outcome("syncing Berkeley DB", handle.sync())?;
        }
        Ok(true)
    }
}

impl Peer for Bdb {
    fn about(&self) -> About {
        let (major, minor, patch) = VERSION;
        let method = match self.method {
            Method::Hash => "hash",
            Method::BTree => "btree",
        };
        let mut settings = BTreeMap::from([
            ("version".into(), format!("Berkeley DB {major}.{minor}.{patch} ({})", api::SOURCE.file)),
            ("method".into(), method.into()),
            ("cache".into(), self.setting.cache.to_string()),
            ("sync".into(), if self.setting.sync { "after each write" } else { "at the end" }.into()),
            ("log".into(), "none: a crash inside a sync may tear pages".into()),
            ("lock".into(), "ours, std RwLock".into()),
            ("settles".into(), if self.setting.sync { NOTHING_WAITS } else { "pages written out and synced" }.into()),
            ("update".into(), "a put, unlooked".into()),
        ]);
        if self.setting.budgeted {
            settings.insert("budget".into(), self.setting.cache.to_string());
        }
        About { survives: if self.setting.sync { Survives::Medium } else { Survives::Stop }, settings }
    }

    #[inline]
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let handle = self.handle.read().unwrap_or_else(PoisonError::into_inner);
        let key_length = length(key)?;
        if value.is_empty() {
            value.resize(value.capacity().max(BUFFER_BYTES_MIN), 0);
        }
        loop {
            let mut from = Bytes::of(key.as_ptr(), key_length);
            let mut to = Bytes::buffer(value, 0);
            // SAFETY: Inv 4, 5, 6 and 8.
            let code = unsafe { (handle.methods.get)(handle.raw, null_mut(), &raw mut from, &raw mut to, 0) };
            match code {
                BUFFER_SMALL if to.size as usize > value.len() => value.resize(to.size as usize, 0),
                NOT_FOUND => {
                    value.clear();
                    return Ok(false);
                }
                code => {
                    self.api.outcome("getting from Berkeley DB", code)?;
                    value.truncate(to.size as usize);
                    return Ok(true);
                }
            }
        }
    }

    #[inline]
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        let (key_length, value_length) = (length(key)?, length(value)?);
        let put = |handle: &Handle| {
            let mut key = Bytes::of(key.as_ptr(), key_length);
            let mut value = Bytes::of(value.as_ptr(), value_length);
            // SAFETY: Inv 4, 5 and 6.
            unsafe { (handle.methods.put)(handle.raw, null_mut(), &raw mut key, &raw mut value, 0) }
        };
        self.change("putting into Berkeley DB", put).map(drop)
    }

    #[inline]
    fn delete(&self, key: &[u8]) -> Result<bool> {
        let key_length = length(key)?;
        let delete = |handle: &Handle| {
            let mut key = Bytes::of(key.as_ptr(), key_length);
            // SAFETY: Inv 4, 5 and 6.
            unsafe { (handle.methods.del)(handle.raw, null_mut(), &raw mut key, 0) }
        };
        self.change("deleting from Berkeley DB", delete)
    }

    fn scan(&self, from: &[u8], limit: usize, each: &mut dyn FnMut(&[u8], &[u8])) -> Result<usize> {
        if self.method == Method::Hash {
            return Err(Error::Unsupported { engine: "bdb-hash", what: "scan".into(), instead: "bdb-btree" });
        }
        let handle = self.handle.read().unwrap_or_else(PoisonError::into_inner);
        let mut walk = Walk::new(self.api, &handle)?;
        let mut seen = 0;
        while seen < limit {
            let Some((key, value)) = walk.step((seen == 0).then_some(from))? else { break };
            each(key, value);
            seen += 1;
        }
        Ok(seen)
    }

    fn flush(&self) -> Result<()> {
        let handle = self.handle.write().unwrap_or_else(PoisonError::into_inner);
        self.api.outcome("syncing Berkeley DB", handle.sync())
    }

    fn settle(&self) -> Result<()> {
        if self.setting.sync { Ok(()) } else { self.flush() }
    }
}

/// A cursor with buffers for its current pair. The cursor borrows the handle, under the lock.
struct Walk<'a> {
    api: &'static Api,
    _handle: &'a Handle,
    raw: *mut Cursor,
    methods: CursorMethods,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl<'a> Walk<'a> {
    fn new(api: &'static Api, handle: &'a Handle) -> Result<Self> {
        let mut raw = null_mut();
        // SAFETY: Inv 4 and 5.
        let code = unsafe { (handle.methods.cursor)(handle.raw, null_mut(), &raw mut raw, 0) };
        api.outcome("scanning Berkeley DB", code)?;
        // SAFETY: Inv 3: just made.
        let methods = unsafe { CursorMethods::of(api, raw) }?;
        Ok(Self {
            api,
            _handle: handle,
            raw,
            methods,
            key: vec![0; BUFFER_BYTES_MIN],
            value: vec![0; BUFFER_BYTES_MIN],
        })
    }

    /// Returns the pair at or after `from`, or else the next pair; `None` after the last.
    fn step(&mut self, from: Option<&[u8]>) -> Result<Option<(&[u8], &[u8])>> {
        loop {
            let mut given = 0;
            if let Some(from) = from {
                given = length(from)?;
                self.key.resize(self.key.len().max(from.len()), 0);
                self.key[..from.len()].copy_from_slice(from);
            }
            let mut key = Bytes::buffer(&mut self.key, given);
            let mut value = Bytes::buffer(&mut self.value, 0);
            let flags = if from.is_some() { SET_RANGE_FLAG } else { NEXT_FLAG };
            // SAFETY: Inv 4, 6 and 8. A cursor that refuses a small buffer does not move.
            let code = unsafe { (self.methods.get)(self.raw, &raw mut key, &raw mut value, flags) };
            let (key_size, value_size) = (key.size as usize, value.size as usize);
            match code {
                BUFFER_SMALL if key_size > self.key.len() || value_size > self.value.len() => {
                    self.key.resize(self.key.len().max(key_size), 0);
                    self.value.resize(self.value.len().max(value_size), 0);
                }
                NOT_FOUND => return Ok(None),
                code => {
                    self.api.outcome("scanning Berkeley DB", code)?;
                    return Ok(Some((&self.key[..key_size], &self.value[..value_size])));
                }
            }
        }
    }
}

impl Drop for Walk<'_> {
    fn drop(&mut self) {
        // SAFETY: Inv 4: once, before its database.
        unsafe { (self.methods.close)(self.raw) };
    }
}
