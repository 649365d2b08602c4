//! RocksDB, by its C interface, from Debian's library.
//!
//! Its put and delete do not look whether the key is there, so `update` is a put, and both answer yes. Where writes are synced, those that wait
//! at one time share a sync: RocksDB's own group commit.
//!
//! Of the DRAM budget four write buffers have half, but 64 MiB each at most, and the block cache has the rest, the tables' indexes and filters in it.
//! Where its files are memory (tmpfs) tables are read in a mapping of them, and nothing of them is copied into the cache; indexes and
//! filters are beside the cache then, since of a mapping RocksDB keeps none in it and reads them anew in each get.
//!
//! Measured on tmpfs, two hardware threads, 200,000 records of 16 + 256 bytes, processor time of an operation, medians of three rounds: with the mapping
//! get 2.7 us, absent 0.33, multiget 2.7, scan 15.3; without it 5.1, 0.54, 3.6 and 21.8; with it and indexes in the cache get took ten times as long.
//! No difference were: reads without checksums (3.1, 0.33, 3.0, 14.1), and with a hash index in blocks besides (3.2, 0.34, 3.2, 14.3).
//!
//! With blobs (its integrated BlobDB) values from [`BLOB_LEAST`] bytes stand in files of their own, and the tables hold where. A compaction that comes
//! upon a value in the oldest files writes it again; a file in which nothing lives goes.

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
use crate::peer::{self, About, Account, Asked, BUFFER_MOST, Peer, Survives};

/// Write buffers at most, the one written to included, where their size is not asked for.
const BUFFERS: usize = 4;
/// Bytes of the first sorted level, in write buffers: as many as there are in the tables above it when they are merged into it, as RocksDB's guide has it.
const LEVEL_BASE: usize = 4;
/// Least bytes of a write buffer, as RocksDB has it.
const BUFFER_LEAST: usize = 64 << 10;
/// Bits a key of the Bloom filter.
const BLOOM_BITS: u8 = 10;
/// Bytes from which BlobDB keeps a value apart from the tables: those from which the engine `hashkv` does.
const BLOB_LEAST: u64 = 256;
/// Most bytes of a file of blobs: RocksDB's own.
const BLOB_FILE: u64 = 256 << 20;
/// The part of the files of blobs, oldest first, whose live values a compaction moves: RocksDB's own.
const BLOB_AGE: f64 = 0.25;
/// The part of the oldest files that is garbage when compactions are made for their sake alone: RocksDB's own, which is never before all of it is.
const BLOB_GARBAGE: f64 = 1.0;
/// `rocksdb_no_compression`.
const NO_COMPRESSION: c_int = 0;
/// How often it is asked whether its compactions are done.
const POLL: Duration = Duration::from_millis(5);
/// How often in a row it must have nothing to do.
const QUIET: u32 = 3;
/// What is above 0 while there is work behind the writes.
const WORK: [&CStr; 4] = [
    c"rocksdb.mem-table-flush-pending",
    c"rocksdb.num-running-flushes",
    c"rocksdb.compaction-pending",
    c"rocksdb.num-running-compactions",
];

/// What a kind of it is.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    /// Sync every write.
    pub(crate) sync: bool,
    /// Keep large values in files of their own: BlobDB.
    pub(crate) blobs: bool,
}

/// What is set.
struct Setting {
    sync: bool,
    blobs: bool,
    /// It is there already.
    there: bool,
    budget: u64,
    buffer: usize,
    buffers: usize,
    cache: usize,
    jobs: c_int,
    /// Read tables in a mapping of their files.
    mapped: bool,
}

impl Setting {
    fn of(dir: &Path, shape: Shape, asked: &Asked) -> Self {
        let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        let (buffer, buffers) = match asked.write_buffer {
            Some(bytes) => (size(bytes), peer::BUFFERS as usize),
            None => (size((asked.budget() / 2 / BUFFERS as u64).min(BUFFER_MOST)), BUFFERS),
        };
        let buffer = buffer.max(BUFFER_LEAST);
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            sync: shape.sync,
            blobs: shape.blobs,
            there: asked.there,
            budget: asked.budget(),
            buffer,
            buffers,
            cache: asked.cache_beside_buffers().unwrap_or(size(asked.budget()).saturating_sub(buffer * buffers)),
            // One flush and one compaction at least.
            jobs: c_int::try_from(cores).unwrap_or(c_int::MAX).max(2),
            mapped: is_memory(dir),
        }
    }

    fn level_base(&self) -> u64 {
        LEVEL_BASE.saturating_mul(self.buffer) as u64
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
                ("blob-least".into(), BLOB_LEAST.to_string()),
                ("blob-file".into(), BLOB_FILE.to_string()),
                ("blob-collection".into(), "true".into()),
                ("blob-age-cutoff".into(), BLOB_AGE.to_string()),
                ("blob-force-threshold".into(), BLOB_GARBAGE.to_string()),
            ]);
        }
        texts
    }
}

/// Whether the library is here.
pub(crate) fn ready() -> Result<()> {
    Api::get().map(drop)
}

/// Makes an empty one in `dir`, or opens the one there.
pub(crate) fn open(dir: &Path, shape: Shape, asked: &Asked) -> Result<Box<dyn Peer>> {
    RocksDb::make(dir, &Setting::of(dir, shape, asked)).map(|db| Box::new(db) as Box<dyn Peer>)
}

/// A RocksDB. Null pointers are what was never made.
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

    /// The owner of all objects but the database.
    fn unopened(api: &'static Api, setting: &Setting) -> Self {
        let survives = if setting.sync { Survives::Medium } else { Survives::Process };
        let about = About { survives, settings: setting.texts() };
        // SAFETY: Inv 4: they only make objects, which the owner gives back.
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
        // SAFETY: Inv 4: the objects are alive. The options of tables take the filter over (a shared pointer is
        // made of it), and share the cache.
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
            (api.set_blob_least)(self.options, BLOB_LEAST);
            (api.set_blob_file)(self.options, BLOB_FILE);
            (api.set_blob_compression)(self.options, NO_COMPRESSION);
            (api.set_blob_collection)(self.options, 1);
            (api.set_blob_age)(self.options, BLOB_AGE);
            (api.set_blob_garbage)(self.options, BLOB_GARBAGE);
        }
    }

    /// Opens the database with its one family of columns, by a handle: reads of several keys ask for one.
    fn open(&mut self, name: &CStr) -> Result<()> {
        let (names, options) = ([c"default".as_ptr()], [self.options.cast_const()]);
        let mut message = null_mut();
        // SAFETY: Inv 4 and 6: the options are alive, the arrays have one place each, and the names outlive the call.
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

    /// A number that it tells of itself; 0 where it does not.
    fn property(&self, name: &CStr) -> u64 {
        let mut value = 0;
        // SAFETY: Inv 4 and 6: the name ends with a zero byte, and the number outlives the call.
        let told = unsafe { (self.api.property)(self.db, name.as_ptr(), &raw mut value) };
        if told == 0 { value } else { 0 }
    }

    /// Gives `each` the value that `slice` holds, and gives the slice back; whether there was one.
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
        // SAFETY: Inv 4: each is given back once, the database before what it stands on, its family before it.
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
        // SAFETY: Inv 4 and 6: all four arrays have a place for each key.
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
        // SAFETY: Inv 4: the database is borrowed until the iterator is given back.
        unsafe {
            let iterator = (self.api.iterator_create)(self.db, self.read);
            self.api.common.scan("scanning RocksDB", iterator, (from, limit), each)
        }
    }

    /// Every put is in the log, or in a table, by the time it returns.
    fn flush(&self) -> Result<()> {
        Ok(())
    }

    /// A compaction may ask for the next only after it has ended, so the work must be done several times in a row.
    fn settle(&self) -> Result<()> {
        let mut message = null_mut();
        // SAFETY: Inv 4.
        unsafe { (self.api.flush)(self.db, self.flush, &raw mut message) };
        self.api.common.outcome("flushing RocksDB", message)?;
        let mut quiet = 0;
        while quiet < QUIET {
            let busy = WORK.iter().any(|name| self.property(name) > 0);
            quiet = if busy { 0 } else { quiet + 1 };
            std::thread::sleep(POLL);
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
