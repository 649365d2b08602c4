//! RocksDB's C interface (`rocksdb/c.h`), as far as the bench uses it.

use std::ffi::{c_char, c_double, c_int, c_uchar};
use std::sync::OnceLock;

use lodestore_contract::Result;

use crate::common::Iterator;
use crate::library::{Source, c_api, opaque};

/// Debian's library. Its file name contains the version of the prototypes below; another version
/// has another name.
pub(super) const SOURCE: Source = Source { peer: "rocksdb", file: "librocksdb.so.7.8", package: "librocksdb7.8" };

opaque! { Db Options TableOptions ReadOptions WriteOptions FlushOptions Cache Filter Family Slice }

c_api! {
    SOURCE, "rocksdb/c.h", "rocksdb";
    open = "rocksdb_open_column_families": unsafe extern "C" fn(
        *const Options, *const c_char, c_int, *const *const c_char, *const *const Options, *mut *mut Family,
        *mut *mut c_char) -> *mut Db;
    open_to_read = "rocksdb_open_for_read_only_column_families": unsafe extern "C" fn(
        *const Options, *const c_char, c_int, *const *const c_char, *const *const Options, *mut *mut Family,
        c_uchar, *mut *mut c_char) -> *mut Db;
    families_list = "rocksdb_list_column_families": unsafe extern "C" fn(
        *const Options, *const c_char, *mut usize, *mut *mut c_char) -> *mut *mut c_char;
    families_free = "rocksdb_list_column_families_destroy": unsafe extern "C" fn(*mut *mut c_char, usize);
    family_create = "rocksdb_create_column_family": unsafe extern "C" fn(
        *mut Db, *const Options, *const c_char, *mut *mut c_char) -> *mut Family;
    family_put = "rocksdb_put_cf": unsafe extern "C" fn(
        *mut Db, *const WriteOptions, *mut Family, *const c_char, usize, *const c_char, usize, *mut *mut c_char);
    close = "rocksdb_close": unsafe extern "C" fn(*mut Db);
    family_destroy = "rocksdb_column_family_handle_destroy": unsafe extern "C" fn(*mut Family);
    put = "rocksdb_put": unsafe extern "C" fn(
        *mut Db, *const WriteOptions, *const c_char, usize, *const c_char, usize, *mut *mut c_char);
    delete = "rocksdb_delete": unsafe extern "C" fn(
        *mut Db, *const WriteOptions, *const c_char, usize, *mut *mut c_char);
    get = "rocksdb_get_pinned": unsafe extern "C" fn(
        *mut Db, *const ReadOptions, *const c_char, usize, *mut *mut c_char) -> *mut Slice;
    multi_get = "rocksdb_batched_multi_get_cf": unsafe extern "C" fn(
        *mut Db, *const ReadOptions, *mut Family, usize, *const *const c_char, *const usize, *mut *mut Slice,
        *mut *mut c_char, bool);
    slice_value = "rocksdb_pinnableslice_value": unsafe extern "C" fn(*const Slice, *mut usize) -> *const c_char;
    slice_destroy = "rocksdb_pinnableslice_destroy": unsafe extern "C" fn(*mut Slice);
    property = "rocksdb_property_int": unsafe extern "C" fn(*mut Db, *const c_char, *mut u64) -> c_int;
    flush = "rocksdb_flush": unsafe extern "C" fn(*mut Db, *const FlushOptions, *mut *mut c_char);
    options_create = "rocksdb_options_create": unsafe extern "C" fn() -> *mut Options;
    options_destroy = "rocksdb_options_destroy": unsafe extern "C" fn(*mut Options);
    set_create = "rocksdb_options_set_create_if_missing": unsafe extern "C" fn(*mut Options, c_uchar);
    set_exclusive = "rocksdb_options_set_error_if_exists": unsafe extern "C" fn(*mut Options, c_uchar);
    set_write_buffer = "rocksdb_options_set_write_buffer_size": unsafe extern "C" fn(*mut Options, usize);
    set_write_buffers = "rocksdb_options_set_max_write_buffer_number": unsafe extern "C" fn(*mut Options, c_int);
    set_level_base = "rocksdb_options_set_max_bytes_for_level_base": unsafe extern "C" fn(*mut Options, u64);
    set_dynamic_levels = "rocksdb_options_set_level_compaction_dynamic_level_bytes":
        unsafe extern "C" fn(*mut Options, c_uchar);
    set_jobs = "rocksdb_options_set_max_background_jobs": unsafe extern "C" fn(*mut Options, c_int);
    set_log_recovery = "rocksdb_options_set_wal_recovery_mode": unsafe extern "C" fn(*mut Options, c_int);
    set_compression = "rocksdb_options_set_compression": unsafe extern "C" fn(*mut Options, c_int);
    set_mmap_reads = "rocksdb_options_set_allow_mmap_reads": unsafe extern "C" fn(*mut Options, c_uchar);
    set_blobs = "rocksdb_options_set_enable_blob_files": unsafe extern "C" fn(*mut Options, c_uchar);
    set_blob_least = "rocksdb_options_set_min_blob_size": unsafe extern "C" fn(*mut Options, u64);
    set_blob_file = "rocksdb_options_set_blob_file_size": unsafe extern "C" fn(*mut Options, u64);
    set_blob_compression = "rocksdb_options_set_blob_compression_type": unsafe extern "C" fn(*mut Options, c_int);
    set_blob_collection = "rocksdb_options_set_enable_blob_gc": unsafe extern "C" fn(*mut Options, c_uchar);
    set_blob_age = "rocksdb_options_set_blob_gc_age_cutoff": unsafe extern "C" fn(*mut Options, c_double);
    set_blob_garbage = "rocksdb_options_set_blob_gc_force_threshold": unsafe extern "C" fn(*mut Options, c_double);
    set_table = "rocksdb_options_set_block_based_table_factory": unsafe extern "C" fn(*mut Options, *mut TableOptions);
    table_create = "rocksdb_block_based_options_create": unsafe extern "C" fn() -> *mut TableOptions;
    table_destroy = "rocksdb_block_based_options_destroy": unsafe extern "C" fn(*mut TableOptions);
    table_set_cache = "rocksdb_block_based_options_set_block_cache": unsafe extern "C" fn(*mut TableOptions, *mut Cache);
    table_set_filter = "rocksdb_block_based_options_set_filter_policy":
        unsafe extern "C" fn(*mut TableOptions, *mut Filter);
    table_set_cache_index = "rocksdb_block_based_options_set_cache_index_and_filter_blocks":
        unsafe extern "C" fn(*mut TableOptions, c_uchar);
    cache_create = "rocksdb_cache_create_lru": unsafe extern "C" fn(usize) -> *mut Cache;
    cache_usage = "rocksdb_cache_get_usage": unsafe extern "C" fn(*mut Cache) -> usize;
    cache_destroy = "rocksdb_cache_destroy": unsafe extern "C" fn(*mut Cache);
    bloom_create = "rocksdb_filterpolicy_create_bloom_full": unsafe extern "C" fn(c_double) -> *mut Filter;
    read_create = "rocksdb_readoptions_create": unsafe extern "C" fn() -> *mut ReadOptions;
    read_destroy = "rocksdb_readoptions_destroy": unsafe extern "C" fn(*mut ReadOptions);
    write_create = "rocksdb_writeoptions_create": unsafe extern "C" fn() -> *mut WriteOptions;
    write_destroy = "rocksdb_writeoptions_destroy": unsafe extern "C" fn(*mut WriteOptions);
    write_set_sync = "rocksdb_writeoptions_set_sync": unsafe extern "C" fn(*mut WriteOptions, c_uchar);
    flush_create = "rocksdb_flushoptions_create": unsafe extern "C" fn() -> *mut FlushOptions;
    flush_destroy = "rocksdb_flushoptions_destroy": unsafe extern "C" fn(*mut FlushOptions);
    flush_set_wait = "rocksdb_flushoptions_set_wait": unsafe extern "C" fn(*mut FlushOptions, c_uchar);
    read_set_fill_cache = "rocksdb_readoptions_set_fill_cache": unsafe extern "C" fn(*mut ReadOptions, c_uchar);
    read_set_total_order = "rocksdb_readoptions_set_total_order_seek": unsafe extern "C" fn(*mut ReadOptions, c_uchar);
    read_set_readahead = "rocksdb_readoptions_set_readahead_size": unsafe extern "C" fn(*mut ReadOptions, usize);
    family_iterator_create = "rocksdb_create_iterator_cf":
        unsafe extern "C" fn(*mut Db, *const ReadOptions, *mut Family) -> *mut Iterator;
    iterator_create = "rocksdb_create_iterator": unsafe extern "C" fn(*mut Db, *const ReadOptions) -> *mut Iterator;
}

impl Api {
    /// Returns the functions; loads the library at the first call.
    pub(super) fn get() -> Result<&'static Self> {
        static API: OnceLock<Api> = OnceLock::new();
        match API.get() {
            Some(api) => Ok(api),
            None => Self::load().map(|loaded| API.get_or_init(|| loaded)),
        }
    }
}
