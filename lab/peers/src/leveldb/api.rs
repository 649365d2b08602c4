//! LevelDB's C interface (`leveldb/c.h`), as far as the bench uses it.

use std::ffi::{c_char, c_int, c_uchar};
use std::sync::OnceLock;

use lodestore_contract::Result;

use crate::common::Iterator;
use crate::library::{Source, c_api, opaque};

/// Debian's library.
pub(super) const SOURCE: Source = Source { peer: "leveldb", file: "libleveldb.so.1d", package: "libleveldb1d" };

opaque! { Db Options ReadOptions WriteOptions Cache Filter }

c_api! {
    SOURCE, "leveldb/c.h", "leveldb";
    major = "leveldb_major_version": unsafe extern "C" fn() -> c_int;
    minor = "leveldb_minor_version": unsafe extern "C" fn() -> c_int;
    open = "leveldb_open": unsafe extern "C" fn(*const Options, *const c_char, *mut *mut c_char) -> *mut Db;
    close = "leveldb_close": unsafe extern "C" fn(*mut Db);
    put = "leveldb_put": unsafe extern "C" fn(
        *mut Db, *const WriteOptions, *const c_char, usize, *const c_char, usize, *mut *mut c_char);
    delete = "leveldb_delete": unsafe extern "C" fn(
        *mut Db, *const WriteOptions, *const c_char, usize, *mut *mut c_char);
    get = "leveldb_get": unsafe extern "C" fn(
        *mut Db, *const ReadOptions, *const c_char, usize, *mut usize, *mut *mut c_char) -> *mut c_char;
    compact = "leveldb_compact_range": unsafe extern "C" fn(*mut Db, *const c_char, usize, *const c_char, usize);
    property = "leveldb_property_value": unsafe extern "C" fn(*mut Db, *const c_char) -> *mut c_char;
    options_create = "leveldb_options_create": unsafe extern "C" fn() -> *mut Options;
    options_destroy = "leveldb_options_destroy": unsafe extern "C" fn(*mut Options);
    set_create = "leveldb_options_set_create_if_missing": unsafe extern "C" fn(*mut Options, c_uchar);
    set_exclusive = "leveldb_options_set_error_if_exists": unsafe extern "C" fn(*mut Options, c_uchar);
    set_write_buffer = "leveldb_options_set_write_buffer_size": unsafe extern "C" fn(*mut Options, usize);
    set_compression = "leveldb_options_set_compression": unsafe extern "C" fn(*mut Options, c_int);
    set_filter = "leveldb_options_set_filter_policy": unsafe extern "C" fn(*mut Options, *mut Filter);
    set_cache = "leveldb_options_set_cache": unsafe extern "C" fn(*mut Options, *mut Cache);
    read_create = "leveldb_readoptions_create": unsafe extern "C" fn() -> *mut ReadOptions;
    read_destroy = "leveldb_readoptions_destroy": unsafe extern "C" fn(*mut ReadOptions);
    write_create = "leveldb_writeoptions_create": unsafe extern "C" fn() -> *mut WriteOptions;
    write_destroy = "leveldb_writeoptions_destroy": unsafe extern "C" fn(*mut WriteOptions);
    write_set_sync = "leveldb_writeoptions_set_sync": unsafe extern "C" fn(*mut WriteOptions, c_uchar);
    cache_create = "leveldb_cache_create_lru": unsafe extern "C" fn(usize) -> *mut Cache;
    cache_destroy = "leveldb_cache_destroy": unsafe extern "C" fn(*mut Cache);
    bloom_create = "leveldb_filterpolicy_create_bloom": unsafe extern "C" fn(c_int) -> *mut Filter;
    filter_destroy = "leveldb_filterpolicy_destroy": unsafe extern "C" fn(*mut Filter);
    iterator_create = "leveldb_create_iterator": unsafe extern "C" fn(*mut Db, *const ReadOptions) -> *mut Iterator;
}

impl Api {
    /// Returns the functions; loads the library at the first call.
    pub(super) fn get() -> Result<&'static Self> {
        static API: OnceLock<Api> = OnceLock::new();
        if let Some(api) = API.get() {
            return Ok(api);
        }
        let loaded = Self::load()?;
        let (major, minor) = loaded.version();
        if major != 1 {
            return Err(SOURCE.refuse(format!("{} is LevelDB {major}.{minor}, not 1.x", SOURCE.file)));
        }
        Ok(API.get_or_init(|| loaded))
    }

    /// Returns the library's version.
    pub(super) fn version(&self) -> (c_int, c_int) {
        // SAFETY: Inv 2: both functions have no parameters and only return a number.
        unsafe { ((self.major)(), (self.minor)()) }
    }
}
