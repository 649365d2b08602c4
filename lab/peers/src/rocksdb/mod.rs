//! RocksDB, by its C interface, from Debian's library.
//!
//! Its put and delete do not check for the key, so `update` is a put, and both return `true`. If
//! writes are synced, concurrent writes share a sync: RocksDB's own group commit.
//!
//! Four write buffers use half of the DRAM budget, but at most 64 MiB each. The block cache uses
//! the rest, with the tables' indexes and filters in it. If the files are in memory (tmpfs), tables
//! are read through a mapping and not copied to the cache. Indexes and filters are outside the
//! cache then: for a mapping RocksDB keeps none in the cache and would read them again in each get.
//!
//! Measured on tmpfs, two hardware threads, 200,000 records of 16 + 256 bytes, CPU time per
//! operation in us, medians of three rounds:
//!
//! | setting | get | absent | multiget | scan |
//! |---|---|---|---|---|
//! | mapping | 2.7 | 0.33 | 2.7 | 15.3 |
//! | no mapping | 5.1 | 0.54 | 3.6 | 21.8 |
//! | mapping, no checksums | 3.1 | 0.33 | 3.0 | 14.1 |
//! | mapping, hash index in blocks | 3.2 | 0.34 | 3.2 | 14.3 |
//!
//! With the mapping and indexes in the cache, a get took ten times as long. The last two rows show
//! no difference.
//!
//! With blobs (its integrated BlobDB), values from [`BLOB_BYTES_MIN`] bytes are stored in separate
//! files, and the tables hold their positions. A compaction that reads a value in the oldest files
//! rewrites it. A file without live values is deleted.

mod api;
pub(crate) mod reader;
pub(crate) mod testing;

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int};
use std::path::Path;
use std::ptr::null_mut;
use std::time::Duration;

use lodestore_contract::Result;

use self::api::WriteOptions;
use self::api::{Api, Cache, Db, Family, FlushOptions, Options, ReadOptions, SOURCE, Slice, TableOptions};
use crate::library::{c_path, chars, failed, is_memory};
use crate::peer::{self, About, Account, Asked, BUFFER_BYTES_MAX, Peer, Survives};

/// Maximum number of write buffers without a requested size, including the active one.
const BUFFERS_MAX: usize = 4;
/// Bytes of the first sorted level, in write buffers: as many as the tables above it contain when
/// they are merged into it, as RocksDB's guide recommends.
const LEVEL_BASE_FACTOR: usize = 4;
/// Minimum bytes of a write buffer: RocksDB's limit.
const BUFFER_BYTES_MIN: usize = 64 << 10;
/// Bits per key of the Bloom filter.
const BLOOM_BITS: u8 = 10;
/// Minimum bytes of a value that BlobDB separates: the threshold of the engine `hashkv`.
const BLOB_BYTES_MIN: u64 = 256;
/// Maximum bytes of a blob file: RocksDB's default.
const BLOB_FILE_BYTES: u64 = 256 << 20;
/// Share of the blob files, oldest first, whose live values a compaction moves: RocksDB's default.
const BLOB_AGE_RATIO: f64 = 0.25;
/// Share of garbage in the oldest files that triggers compactions for their sake alone: RocksDB's
/// default, which means all of it.
const BLOB_GARBAGE_RATIO: f64 = 1.0;
/// `rocksdb_no_compression`.
const NO_COMPRESSION: c_int = 0;
/// Interval of the polls for the end of compactions.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Number of consecutive idle polls required.
const IDLE_POLL_COUNT: u32 = 3;
/// Properties that are above 0 while there is background work.
const WORK: [&CStr; 4] = [
    c"rocksdb.mem-table-flush-pending",
    c"rocksdb.num-running-flushes",
    c"rocksdb.compaction-pending",
    c"rocksdb.num-running-compactions",
];

/// Variant of the peer.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    /// Sync every write.
    pub(crate) sync: bool,
    /// Store large values in separate files: BlobDB.
    pub(crate) blobs: bool,
}

/// The settings of a database.
struct Setting {
    sync: bool,
    blobs: bool,
    /// The database already exists.
    there: bool,
    budget: u64,
    buffer: usize,
    buffers: usize,
    cache: usize,
    jobs: c_int,
    /// Read tables through a mapping of their files.
    mapped: bool,
}

impl Setting {
    fn of(dir: &Path, shape: Shape, asked: &Asked) -> Self {
        let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        let (buffer, buffers) = match asked.write_buffer {
            Some(bytes) => (size(bytes), peer::BUFFER_COUNT as usize),
            None => (size((asked.budget() / 2 / BUFFERS_MAX as u64).min(BUFFER_BYTES_MAX)), BUFFERS_MAX),
        };
        let buffer = buffer.max(BUFFER_BYTES_MIN);
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            sync: shape.sync,
            blobs: shape.blobs,
            there: asked.there,
            budget: asked.budget(),
            buffer,
            buffers,
            cache: asked.cache_beside_buffers().unwrap_or(size(asked.budget()).saturating_sub(buffer * buffers)),
            // At least one flush and one compaction.
            jobs: c_int::try_from(cores).unwrap_or(c_int::MAX).max(2),
            mapped: is_memory(dir),
        }
    }

    fn level_base(&self) -> u64 {
        LEVEL_BASE_FACTOR.saturating_mul(self.buffer) as u64
    }

    fn texts(&self) -> BTreeMap<String, String> {
        let mut texts = BTreeMap::from([
            ("version".into(), format!("RocksDB ({})", SOURCE.file)),
            ("sync".into(), self.sync.to_string()),
            ("budget".into(), self.budget.to_string()),
            ("write-buffer".into(), self.buffer.to_string()),
            ("write-buffers".into(), self.buffers.to_string()),
            ("cache".into(), self.cache.to_string()),
            ("mmap-reads".into(), self.mapped.to_string()),
            ("cached".into(), if self.mapped { "what is not in a mapping" } else { "blocks, indexes, filters" }.into()),
            ("level-base".into(), self.level_base().to_string()),
            ("dynamic-levels".into(), "true".into()),
            ("background-jobs".into(), self.jobs.to_string()),
            ("bloom-bits".into(), BLOOM_BITS.to_string()),
            ("compression".into(), "none".into()),
            ("blobs".into(), self.blobs.to_string()),
            ("settles".into(), "a flush, then until no compaction is due".into()),
            ("update".into(), "a put, unlooked".into()),
        ]);
        if self.blobs {
            texts.extend([
                ("blob-least".into(), BLOB_BYTES_MIN.to_string()),
                ("blob-file".into(), BLOB_FILE_BYTES.to_string()),
                ("blob-collection".into(), "true".into()),
                ("blob-age-cutoff".into(), BLOB_AGE_RATIO.to_string()),
                ("blob-force-threshold".into(), BLOB_GARBAGE_RATIO.to_string()),
            ]);
        }
        texts
    }
}

/// Checks that the library is installed.
pub(crate) fn ready() -> Result<()> {
    Api::get().map(drop)
}

/// Creates an empty database in `dir`, or opens the existing one.
pub(crate) fn open(dir: &Path, shape: Shape, asked: &Asked) -> Result<Box<dyn Peer>> {
    RocksDb::make(dir, &Setting::of(dir, shape, asked)).map(|db| Box::new(db) as Box<dyn Peer>)
}

/// A RocksDB. Pointers to objects that were never created are null.
struct RocksDb {
    api: &'static Api,
    db: *mut Db,
    family: *mut Family,
    options: *mut Options,
    table: *mut TableOptions,
    cache: *mut Cache,
    read: *mut ReadOptions,
    write: *mut WriteOptions,
    flush: *mut FlushOptions,
    about: About,
}

// SAFETY: Inv 5.
unsafe impl Send for RocksDb {}
// SAFETY: Inv 5.
unsafe impl Sync for RocksDb {}

impl RocksDb {
    fn make(dir: &Path, setting: &Setting) -> Result<Self> {
        let name = c_path("opening RocksDB", dir)?;
        let mut owner = Self::unopened(Api::get()?, setting);
        owner.set(setting);
        owner.open(&name)?;
        Ok(owner)
    }

    /// Creates the owner with all objects except the database.
    fn unopened(api: &'static Api, setting: &Setting) -> Self {
        let survives = if setting.sync { Survives::Medium } else { Survives::Process };
        let about = About { survives, settings: setting.texts() };
        // SAFETY: Inv 4: the calls only create objects, which the owner frees.
        unsafe {
            Self {
                api,
                db: null_mut(),
                family: null_mut(),
                options: (api.options_create)(),
                table: (api.table_create)(),
                cache: (api.cache_create)(setting.cache),
                read: (api.read_create)(),
                write: (api.write_create)(),
                flush: (api.flush_create)(),
                about,
            }
        }
    }

    fn set(&mut self, setting: &Setting) {
        let api = self.api;
        // SAFETY: Inv 4: the objects are alive. The table options take ownership of the filter (as
        // a shared pointer), and share the cache.
        unsafe {
            (api.set_create)(self.options, u8::from(!setting.there));
            (api.set_exclusive)(self.options, u8::from(!setting.there));
            (api.set_write_buffer)(self.options, setting.buffer);
            (api.set_write_buffers)(self.options, c_int::try_from(setting.buffers).unwrap_or(c_int::MAX));
            (api.set_level_base)(self.options, setting.level_base());
            (api.set_dynamic_levels)(self.options, 1);
            (api.set_jobs)(self.options, setting.jobs);
            (api.set_compression)(self.options, NO_COMPRESSION);
            (api.table_set_cache)(self.table, self.cache);
            (api.table_set_filter)(self.table, (api.bloom_create)(f64::from(BLOOM_BITS)));
            (api.set_mmap_reads)(self.options, u8::from(setting.mapped));
            (api.table_set_cache_index)(self.table, u8::from(!setting.mapped));
            (api.set_table)(self.options, self.table);
            (api.write_set_sync)(self.write, u8::from(setting.sync));
            (api.flush_set_wait)(self.flush, 1);
        }
        if setting.blobs {
            self.set_blobs();
        }
    }

    fn set_blobs(&mut self) {
        let api = self.api;
        // SAFETY: Inv 4: the options are alive.
        unsafe {
            (api.set_blobs)(self.options, 1);
            (api.set_blob_least)(self.options, BLOB_BYTES_MIN);
            (api.set_blob_file)(self.options, BLOB_FILE_BYTES);
            (api.set_blob_compression)(self.options, NO_COMPRESSION);
            (api.set_blob_collection)(self.options, 1);
            (api.set_blob_age)(self.options, BLOB_AGE_RATIO);
            (api.set_blob_garbage)(self.options, BLOB_GARBAGE_RATIO);
        }
    }

    /// Opens the database with a handle of its only column family, which multi-key reads require.
    fn open(&mut self, name: &CStr) -> Result<()> {
        let (names, options) = ([c"default".as_ptr()], [self.options.cast_const()]);
        let mut message = null_mut();
        // SAFETY: Inv 4 and 6: the options are alive, the arrays have one element each, and the
        // names outlive the call.
        self.db = unsafe {
            (self.api.open)(
                self.options,
                name.as_ptr(),
                1,
                names.as_ptr(),
                options.as_ptr(),
                &raw mut self.family,
                &raw mut message,
            )
        };
        self.api.common.outcome("opening RocksDB", message)?;
        if self.db.is_null() || self.family.is_null() {
            return Err(failed("opening RocksDB", "it gave no handle".into()));
        }
        Ok(())
    }

    /// Returns a numeric property; 0 if RocksDB does not report it.
    fn property(&self, name: &CStr) -> u64 {
        let mut value = 0;
        // SAFETY: Inv 4 and 6: the name ends with a zero byte, and the number outlives the call.
        let told = unsafe { (self.api.property)(self.db, name.as_ptr(), &raw mut value) };
        if told == 0 { value } else { 0 }
    }

    /// Calls `each` with the value of `slice`, and frees the slice. Returns whether there was a
    /// value.
    fn take(&self, slice: *mut Slice, each: impl FnOnce(&[u8])) -> bool {
        if slice.is_null() {
            return false;
        }
        let mut length = 0;
        // SAFETY: Inv 7: the value is valid until the slice is destroyed, below and once.
        unsafe {
            let value = (self.api.slice_value)(slice, &raw mut length);
            if length > 0 {
                each(std::slice::from_raw_parts(value.cast(), length));
            } else {
                each(&[]);
            }
            (self.api.slice_destroy)(slice);
        }
        true
    }
}

impl Drop for RocksDb {
    fn drop(&mut self) {
        let api = self.api;
        // SAFETY: Inv 4: each object is freed once, the family before the database, and the
        // database before the objects it uses.
        unsafe {
            if !self.family.is_null() {
                (api.family_destroy)(self.family);
            }
            if !self.db.is_null() {
                (api.close)(self.db);
            }
            (api.flush_destroy)(self.flush);
            (api.write_destroy)(self.write);
            (api.read_destroy)(self.read);
            (api.options_destroy)(self.options);
            (api.table_destroy)(self.table);
            (api.cache_destroy)(self.cache);
        }
    }
}

impl Peer for RocksDb {
    fn about(&self) -> About {
        self.about.clone()
    }

    #[inline]
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        value.clear();
        let mut message = null_mut();
        // SAFETY: Inv 4 and 6.
        let found = unsafe { (self.api.get)(self.db, self.read, chars(key), key.len(), &raw mut message) };
        self.api.common.outcome("getting from RocksDB", message)?;
        Ok(self.take(found, |bytes| value.extend_from_slice(bytes)))
    }

    fn multi_get(&self, keys: &[&[u8]], each: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()> {
        let starts: Vec<*const c_char> = keys.iter().map(|key| chars(key)).collect();
        let lengths: Vec<usize> = keys.iter().map(|key| key.len()).collect();
        let mut found = vec![null_mut::<Slice>(); keys.len()];
        let mut messages = vec![null_mut::<c_char>(); keys.len()];
        // SAFETY: Inv 4 and 6: all four arrays have an element for each key.
        unsafe {
            (self.api.multi_get)(
                self.db,
                self.read,
                self.family,
                keys.len(),
                starts.as_ptr(),
                lengths.as_ptr(),
                found.as_mut_ptr(),
                messages.as_mut_ptr(),
                false,
            );
        }
        let mut outcome = Ok(());
        for (at, (slice, message)) in found.into_iter().zip(messages).enumerate() {
            outcome = outcome.and(self.api.common.outcome("getting from RocksDB", message));
            if !self.take(slice, |bytes| each(at, Some(bytes))) {
                each(at, None);
            }
        }
        outcome
    }

    #[inline]
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        let mut message = null_mut();
        // SAFETY: Inv 4 and 6.
        unsafe {
            (self.api.put)(self.db, self.write, chars(key), key.len(), chars(value), value.len(), &raw mut message);
        }
        self.api.common.outcome("putting into RocksDB", message)
    }

    #[inline]
    fn delete(&self, key: &[u8]) -> Result<bool> {
        let mut message = null_mut();
        // SAFETY: Inv 4 and 6.
        unsafe { (self.api.delete)(self.db, self.write, chars(key), key.len(), &raw mut message) };
        self.api.common.outcome("deleting from RocksDB", message).map(|()| true)
    }

    fn scan(&self, from: &[u8], limit: usize, each: &mut dyn FnMut(&[u8], &[u8])) -> Result<usize> {
        // SAFETY: Inv 4: the database is borrowed until the iterator is freed.
        unsafe {
            let iterator = (self.api.iterator_create)(self.db, self.read);
            self.api.common.scan("scanning RocksDB", iterator, (from, limit), each)
        }
    }

    /// Does nothing: every put is in the log or in a table when it returns.
    fn flush(&self) -> Result<()> {
        Ok(())
    }

    /// Flushes, then waits until several consecutive polls find no background work. A compaction
    /// may schedule the next one only after it has ended.
    fn settle(&self) -> Result<()> {
        let mut message = null_mut();
        // SAFETY: Inv 4.
        unsafe { (self.api.flush)(self.db, self.flush, &raw mut message) };
        self.api.common.outcome("flushing RocksDB", message)?;
        let mut quiet = 0;
        while quiet < IDLE_POLL_COUNT {
            let busy = WORK.iter().any(|name| self.property(name) > 0);
            quiet = if busy { 0 } else { quiet + 1 };
            std::thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    fn account(&self) -> Account {
        // SAFETY: Inv 4.
        let cached = unsafe { (self.api.cache_usage)(self.cache) } as u64;
        let parts = [c"rocksdb.size-all-mem-tables", c"rocksdb.estimate-table-readers-mem"];
        let dram_bytes = cached + parts.iter().map(|name| self.property(name)).sum::<u64>();
        Account { dram_bytes: Some(dram_bytes), ..Account::default() }
    }
}
