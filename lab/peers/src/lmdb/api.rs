//! LMDB's C interface (`lmdb.h`), as far as the bench uses it.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

use lodestore_contract::{Error, Result};

use crate::library::{Source, c_api, failed, opaque};

/// Debian's library.
pub(super) const SOURCE: Source = Source { peer: "lmdb", file: "liblmdb.so.0", package: "liblmdb0" };

/// The flags `MDB_NOSYNC`, `MDB_RDONLY` and `MDB_WRITEMAP`.
pub(super) const NO_SYNC: c_uint = 0x1_0000;
pub(super) const READ_ONLY: c_uint = 0x2_0000;
pub(super) const WRITE_MAP: c_uint = 0x8_0000;
/// `MDB_NOTFOUND`.
pub(super) const NOT_FOUND: c_int = -30798;
/// `MDB_FIRST`, `MDB_NEXT` and `MDB_SET_RANGE` of `MDB_cursor_op`.
pub(super) const FIRST: c_int = 0;
pub(super) const NEXT: c_int = 8;
pub(super) const SET_RANGE: c_int = 17;

opaque! { Env Txn Cursor }

/// Input or borrowed bytes (`MDB_val`).
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Val {
    pub(super) size: usize,
    pub(super) data: *mut c_void,
}

c_api! {
    SOURCE, "lmdb.h";
    version = "mdb_version": unsafe extern "C" fn(*mut c_int, *mut c_int, *mut c_int) -> *const c_char;
    error = "mdb_strerror": unsafe extern "C" fn(c_int) -> *const c_char;
    env_create = "mdb_env_create": unsafe extern "C" fn(*mut *mut Env) -> c_int;
    env_set_map_size = "mdb_env_set_mapsize": unsafe extern "C" fn(*mut Env, usize) -> c_int;
    env_set_readers = "mdb_env_set_maxreaders": unsafe extern "C" fn(*mut Env, c_uint) -> c_int;
    env_open = "mdb_env_open": unsafe extern "C" fn(*mut Env, *const c_char, c_uint, u32) -> c_int;
    env_sync = "mdb_env_sync": unsafe extern "C" fn(*mut Env, c_int) -> c_int;
    env_close = "mdb_env_close": unsafe extern "C" fn(*mut Env);
    begin = "mdb_txn_begin": unsafe extern "C" fn(*mut Env, *mut Txn, c_uint, *mut *mut Txn) -> c_int;
    commit = "mdb_txn_commit": unsafe extern "C" fn(*mut Txn) -> c_int;
    abort = "mdb_txn_abort": unsafe extern "C" fn(*mut Txn);
    dbi_open = "mdb_dbi_open": unsafe extern "C" fn(*mut Txn, *const c_char, c_uint, *mut c_uint) -> c_int;
    get = "mdb_get": unsafe extern "C" fn(*mut Txn, c_uint, *mut Val, *mut Val) -> c_int;
    put = "mdb_put": unsafe extern "C" fn(*mut Txn, c_uint, *mut Val, *mut Val, c_uint) -> c_int;
    del = "mdb_del": unsafe extern "C" fn(*mut Txn, c_uint, *mut Val, *mut Val) -> c_int;
    cursor_open = "mdb_cursor_open": unsafe extern "C" fn(*mut Txn, c_uint, *mut *mut Cursor) -> c_int;
    cursor_close = "mdb_cursor_close": unsafe extern "C" fn(*mut Cursor);
    cursor_get = "mdb_cursor_get": unsafe extern "C" fn(*mut Cursor, *mut Val, *mut Val, c_int) -> c_int;
}

impl Api {
    /// Returns the functions; loads the library at the first call.
    pub(super) fn get() -> Result<&'static Self> {
        static API: OnceLock<Api> = OnceLock::new();
        if let Some(api) = API.get() {
            return Ok(api);
        }
        let loaded = Self::load()?;
        let (major, minor, _) = loaded.numbers();
        if (major, minor) != (0, 9) {
            return Err(SOURCE.refuse(format!("{} is LMDB {major}.{minor}, not 0.9", SOURCE.file)));
        }
        Ok(API.get_or_init(|| loaded))
    }

    /// Returns the library's version.
    pub(super) fn numbers(&self) -> (c_int, c_int, c_int) {
        let (mut major, mut minor, mut patch) = (0, 0, 0);
        // SAFETY: Inv 2: the call only returns numbers.
        unsafe { (self.version)(&raw mut major, &raw mut minor, &raw mut patch) };
        (major, minor, patch)
    }

    /// Returns an error if `code` is not 0.
    #[inline]
    pub(super) fn outcome(&self, doing: &'static str, code: c_int) -> Result<()> {
        if code == 0 { Ok(()) } else { Err(self.failure(doing, code)) }
    }

    /// Returns whether a pair was found, or the error of `code`.
    #[inline]
    pub(super) fn met(&self, doing: &'static str, code: c_int) -> Result<bool> {
        if code == NOT_FOUND { Ok(false) } else { self.outcome(doing, code).map(|()| true) }
    }

    #[cold]
    fn failure(&self, doing: &'static str, code: c_int) -> Error {
        // SAFETY: Inv 7: the result is static text.
        let text = unsafe { CStr::from_ptr((self.error)(code)) };
        failed(doing, text.to_string_lossy().into_owned())
    }
}
