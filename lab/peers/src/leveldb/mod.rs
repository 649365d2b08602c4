//! LevelDB, by its C interface, from Debian's library.
//!
//! Its put and delete do not check for the key, so `update` is a put, and both return `true`. A get
//! copies the value twice: the C interface returns a copy, and the bench makes its own.

mod api;
mod levels;

use std::collections::BTreeMap;
use std::ffi::{CStr, c_int};
use std::path::Path;
use std::ptr::null_mut;
use std::time::{Duration, Instant};

use lodestore_contract::Result;

use self::api::{Api, Cache, Db, Filter, Options, ReadOptions, SOURCE, WriteOptions};
use crate::library::{ZERO, c_path, chars, failed};
use crate::peer::{About, Asked, BUFFER_BYTES_MAX, Peer, Survives};

/// A key after all keys of the bench.
const BEHIND: [u8; 64] = [0xFF; 64];
/// Interval of the polls for the end of compactions.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Number of consecutive polls in which nothing may be due and nothing may have changed.
const IDLE_POLL_COUNT: u32 = 3;
/// Maximum time without a change while a compaction is due.
const UNCHANGED_TIME_MAX: Duration = Duration::from_secs(120);

/// A setting.
#[derive(Clone, Copy)]
pub(crate) struct Setting {
    /// Sync every put.
    sync: bool,
    /// Bytes of DRAM for everything; 0 if the setting does not depend on a budget.
    budget: u64,
    /// Bytes of the write buffer.
    write_buffer: usize,
    /// Bytes of the block cache; 0 keeps LevelDB's default, 8 MiB.
    cache: usize,
    /// Bits per key of the Bloom filter; 0 for none, LevelDB's default.
    bloom_bits: c_int,
    /// Compress with snappy, LevelDB's default.
    compress: bool,
}

/// A careful user's setting for a store of some hundred megabytes in memory, within its budget.
pub(crate) const SANE: Setting =
    Setting { sync: false, budget: 0, write_buffer: 0, cache: 0, bloom_bits: 10, compress: false };
/// The same with a sync of every put.
pub(crate) const SYNC: Setting = Setting { sync: true, ..SANE };
/// The setting of the NVHT paper's authors: LevelDB's defaults, and a sync of every put.
pub(crate) const PAPER: Setting =
    Setting { sync: true, budget: 0, write_buffer: 4 << 20, cache: 0, bloom_bits: 0, compress: true };

impl Setting {
    /// Returns this setting within `asked`.
    ///
    /// LevelDB has two write buffers while one is written out, so each uses at most an eighth of
    /// the DRAM budget. The cache uses the rest minus an eighth for filters and indexes, which are
    /// outside the cache. If a buffer size is requested, the cache uses the whole rest.
    pub(crate) fn within(self, asked: &Asked) -> Self {
        let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX).max(64 << 10);
        let (budget, eighth) = (asked.budget(), asked.budget() / 8);
        let buffer = eighth.min(BUFFER_BYTES_MAX);
        Self {
            budget,
            write_buffer: size(asked.write_buffer.unwrap_or(buffer)),
            cache: asked.cache_beside_buffers().unwrap_or(size(budget - 2 * buffer - eighth)),
            ..self
        }
    }

    fn texts(&self) -> BTreeMap<String, String> {
        let cache = if self.cache == 0 { 8 << 20 } else { self.cache };
        let budget = (self.budget > 0).then(|| ("budget".to_string(), self.budget.to_string()));
        let set = [
            ("sync".into(), self.sync.to_string()),
            ("write-buffer".into(), self.write_buffer.to_string()),
            ("cache".into(), cache.to_string()),
            ("bloom-bits".into(), self.bloom_bits.to_string()),
            ("compression".into(), if self.compress { "snappy" } else { "none" }.into()),
            ("settles".into(), "a flush, then until no compaction is due".into()),
            ("update".into(), "a put, unlooked".into()),
        ];
        set.into_iter().chain(budget).collect()
    }
}

/// Checks that the library is installed.
pub(crate) fn ready() -> Result<()> {
    Api::get().map(drop)
}

/// Creates an empty database in `dir`, or opens the existing one.
pub(crate) fn open(dir: &Path, setting: &Setting, there: bool) -> Result<Box<dyn Peer>> {
    LevelDb::open(dir, setting, there).map(|db| Box::new(db) as Box<dyn Peer>)
}

/// A LevelDB. Pointers to objects that were never created are null.
struct LevelDb {
    api: &'static Api,
    db: *mut Db,
    options: *mut Options,
    read: *mut ReadOptions,
    write: *mut WriteOptions,
    cache: *mut Cache,
    filter: *mut Filter,
    about: About,
}

// SAFETY: Inv 5.
unsafe impl Send for LevelDb {}
// SAFETY: Inv 5.
unsafe impl Sync for LevelDb {}

impl LevelDb {
    fn open(dir: &Path, setting: &Setting, there: bool) -> Result<Self> {
        let api = Api::get()?;
        let name = c_path("opening LevelDB", dir)?;
        // SAFETY: Inv 4: the calls only create objects, which the owner below frees.
        let (options, read, write) = unsafe { ((api.options_create)(), (api.read_create)(), (api.write_create)()) };
        let (major, minor) = api.version();
        let mut settings = setting.texts();
        settings.insert("version".into(), format!("LevelDB {major}.{minor} ({})", SOURCE.file));
        let survives = if setting.sync { Survives::Medium } else { Survives::Process };
        let about = About { survives, settings };
        let mut owner =
            Self { api, db: null_mut(), options, read, write, cache: null_mut(), filter: null_mut(), about };
        owner.set(setting, there);
        let mut message = null_mut();
        // SAFETY: Inv 4 and 6: the options are alive, and the name is text that outlives the call.
        owner.db = unsafe { (api.open)(owner.options, name.as_ptr(), &raw mut message) };
        api.common.outcome("opening LevelDB", message)?;
        if owner.db.is_null() {
            return Err(failed("opening LevelDB", "it gave no handle".into()));
        }
        Ok(owner)
    }

    fn set(&mut self, setting: &Setting, there: bool) {
        let api = self.api;
        // SAFETY: Inv 4: the objects are alive, and the cache and the filter outlive the options
        // and the database.
        unsafe {
            (api.set_create)(self.options, u8::from(!there));
            (api.set_exclusive)(self.options, u8::from(!there));
            (api.set_write_buffer)(self.options, setting.write_buffer);
            (api.set_compression)(self.options, c_int::from(setting.compress));
            (api.write_set_sync)(self.write, u8::from(setting.sync));
            if setting.cache > 0 {
                self.cache = (api.cache_create)(setting.cache);
                (api.set_cache)(self.options, self.cache);
            }
            if setting.bloom_bits > ZERO {
                self.filter = (api.bloom_create)(setting.bloom_bits);
                (api.set_filter)(self.options, self.filter);
            }
        }
    }
}

impl LevelDb {
    /// Returns LevelDB's own list of the tables of each level.
    fn tables(&self) -> Result<String> {
        // SAFETY: Inv 4 and 6: the name ends with a zero byte.
        let told = unsafe { (self.api.property)(self.db, c"leveldb.sstables".as_ptr()) };
        if told.is_null() {
            return Err(failed("settling LevelDB", "it does not tell its tables".into()));
        }
        // SAFETY: Inv 7: text that ends with a zero byte, and belongs to this process until it is
        // freed, below and once.
        let text = unsafe { CStr::from_ptr(told) }.to_string_lossy().into_owned();
        // SAFETY: Inv 7, as above.
        unsafe { self.api.common.free(told.cast()) };
        Ok(text)
    }
}

impl Drop for LevelDb {
    fn drop(&mut self) {
        let api = self.api;
        // SAFETY: Inv 4: each object is freed once, the database before the objects it uses.
        unsafe {
            if !self.db.is_null() {
                (api.close)(self.db);
            }
            (api.read_destroy)(self.read);
            (api.write_destroy)(self.write);
            (api.options_destroy)(self.options);
            if !self.cache.is_null() {
                (api.cache_destroy)(self.cache);
            }
            if !self.filter.is_null() {
                (api.filter_destroy)(self.filter);
            }
        }
    }
}

impl Peer for LevelDb {
    fn about(&self) -> About {
        self.about.clone()
    }

    #[inline]
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        value.clear();
        let (mut message, mut length) = (null_mut(), 0);
        // SAFETY: Inv 4 and 6.
        let found =
            unsafe { (self.api.get)(self.db, self.read, chars(key), key.len(), &raw mut length, &raw mut message) };
        self.api.common.outcome("getting from LevelDB", message)?;
        if found.is_null() {
            return Ok(false);
        }
        // SAFETY: Inv 7: valid until it is freed, below and once.
        value.extend_from_slice(unsafe { std::slice::from_raw_parts(found.cast::<u8>(), length) });
        // SAFETY: Inv 7, as above.
        unsafe { self.api.common.free(found.cast()) };
        Ok(true)
    }

    #[inline]
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        let mut message = null_mut();
        // SAFETY: Inv 4 and 6.
        unsafe {
            (self.api.put)(self.db, self.write, chars(key), key.len(), chars(value), value.len(), &raw mut message);
        }
        self.api.common.outcome("putting into LevelDB", message)
    }

    #[inline]
    fn delete(&self, key: &[u8]) -> Result<bool> {
        let mut message = null_mut();
        // SAFETY: Inv 4 and 6.
        unsafe { (self.api.delete)(self.db, self.write, chars(key), key.len(), &raw mut message) };
        self.api.common.outcome("deleting from LevelDB", message).map(|()| true)
    }

    fn scan(&self, from: &[u8], limit: usize, each: &mut dyn FnMut(&[u8], &[u8])) -> Result<usize> {
        // SAFETY: Inv 4: the database is borrowed until the iterator is freed.
        unsafe {
            let iterator = (self.api.iterator_create)(self.db, self.read);
            self.api.common.scan("scanning LevelDB", iterator, (from, limit), each)
        }
    }

    /// Does nothing: every put is in the log or in a table when it returns.
    fn flush(&self) -> Result<()> {
        Ok(())
    }

    /// Flushes the write buffer, then polls until no compaction is due.
    ///
    /// LevelDB has no call that flushes and none that waits. But a range compaction flushes first,
    /// and then compacts nothing if the range is empty. LevelDB also lists the tables of each
    /// level, and its own rule tells from that list whether a compaction is due. The input of a
    /// compaction stays in the list until the compaction ends.
    fn settle(&self) -> Result<()> {
        const DOING: &str = "settling LevelDB";
        // SAFETY: Inv 4 and 6.
        unsafe { (self.api.compact)(self.db, chars(&BEHIND), BEHIND.len(), chars(&BEHIND), BEHIND.len()) };
        let (mut quiet, mut last, mut since) = (0, String::new(), Instant::now());
        while quiet < IDLE_POLL_COUNT {
            std::thread::sleep(POLL_INTERVAL);
            let now = self.tables()?;
            quiet = if now == last && !levels::is_due(&now) { quiet + 1 } else { 0 };
            if now != last {
                (last, since) = (now, Instant::now());
            } else if since.elapsed() > UNCHANGED_TIME_MAX {
                return Err(failed(DOING, "compactions are due, and it does none".into()));
            }
        }
        Ok(())
    }
}
