//! Layouts of Berkeley DB 5.3.28 on x86-64, from Debian's `db.h` (libdb5.3-dev). `layout/bdb.c`
//! prints them.

use std::ffi::{c_char, c_int, c_void};
use std::ptr::null_mut;

/// The version of these layouts.
pub(super) const VERSION: (c_int, c_int, c_int) = (5, 3, 28);

/// `DB`, of which only the offsets of some methods are known.
#[repr(C)]
pub(super) struct Db {
    inside: [u8; 0],
}

/// `DBC`, a cursor, likewise.
#[repr(C)]
pub(super) struct Cursor {
    inside: [u8; 0],
}

/// `DBT`: input or output bytes.
#[repr(C)]
pub(super) struct Bytes {
    pub(super) data: *mut c_void,
    pub(super) size: u32,
    pub(super) ulen: u32,
    dlen: u32,
    doff: u32,
    app_data: *mut c_void,
    flags: u32,
}

const _: () = assert!(size_of::<Bytes>() == 40 && std::mem::offset_of!(Bytes, flags) == 32);

/// Offsets of methods in `DB`.
pub(super) mod db {
    pub(crate) const CLOSE_AT: usize = 568;
    pub(crate) const CURSOR_AT: usize = 584;
    pub(crate) const DEL_AT: usize = 592;
    pub(crate) const GET_AT: usize = 632;
    pub(crate) const OPEN_AT: usize = 1008;
    pub(crate) const PUT_AT: usize = 1024;
    pub(crate) const SET_CACHESIZE_AT: usize = 1096;
    pub(crate) const SYNC_AT: usize = 1352;
}

/// Offsets of methods in `DBC`.
pub(super) mod cursor {
    pub(crate) const CLOSE_AT: usize = 352;
    pub(crate) const GET_AT: usize = 392;
}

/// `DB_BTREE`.
pub(super) const BTREE: c_int = 1;
/// `DB_HASH`.
pub(super) const HASH: c_int = 2;
/// `DB_THREAD`, of `open`.
pub(super) const FOR_THREADS: u32 = 0x20;
/// `DB_CREATE | DB_EXCL`, of `open`.
pub(super) const CREATE_FLAG: u32 = 0x1 | 0x4;
/// `DB_NOSYNC`, of `close`.
pub(super) const NO_SYNC_FLAG: u32 = 1;
/// `DB_NEXT`.
pub(super) const NEXT_FLAG: u32 = 16;
/// `DB_SET_RANGE`: finds the first key that is not less.
pub(super) const SET_RANGE_FLAG: u32 = 27;
/// `DB_NOTFOUND`.
pub(super) const NOT_FOUND: c_int = -30_988;
/// `DB_BUFFER_SMALL`.
pub(super) const BUFFER_SMALL: c_int = -30_999;
/// `DB_DBT_USERMEM`.
const USER_MEMORY_FLAG: u32 = 0x800;

impl Bytes {
    /// Input bytes. C accepts them as writable, but writes only if a flag asks for it.
    #[inline]
    pub(super) fn of(data: *const u8, size: u32) -> Self {
        Self { data: data.cast_mut().cast(), size, ulen: 0, dlen: 0, doff: 0, app_data: null_mut(), flags: 0 }
    }

    /// A buffer to fill, whose first `size` bytes are input.
    #[inline]
    pub(super) fn buffer(buffer: &mut [u8], size: u32) -> Self {
        let ulen = u32::try_from(buffer.len()).unwrap_or(u32::MAX);
        let flags = USER_MEMORY_FLAG;
        Self { data: buffer.as_mut_ptr().cast(), size, ulen, dlen: 0, doff: 0, app_data: null_mut(), flags }
    }
}

pub(super) type DbCreate = unsafe extern "C" fn(*mut *mut Db, *mut c_void, u32) -> c_int;
pub(super) type DbStrerror = unsafe extern "C" fn(c_int) -> *mut c_char;
pub(super) type DbVersion = unsafe extern "C" fn(*mut c_int, *mut c_int, *mut c_int) -> *mut c_char;
pub(super) type DbClose = unsafe extern "C" fn(*mut Db, u32) -> c_int;
pub(super) type DbCursor = unsafe extern "C" fn(*mut Db, *mut c_void, *mut *mut Cursor, u32) -> c_int;
pub(super) type DbDel = unsafe extern "C" fn(*mut Db, *mut c_void, *mut Bytes, u32) -> c_int;
pub(super) type DbGet = unsafe extern "C" fn(*mut Db, *mut c_void, *mut Bytes, *mut Bytes, u32) -> c_int;
pub(super) type DbOpen =
    unsafe extern "C" fn(*mut Db, *mut c_void, *const c_char, *const c_char, c_int, u32, c_int) -> c_int;
pub(super) type DbPut = DbGet;
pub(super) type DbSetCachesize = unsafe extern "C" fn(*mut Db, u32, u32, c_int) -> c_int;
pub(super) type DbSync = unsafe extern "C" fn(*mut Db, u32) -> c_int;
pub(super) type CursorClose = unsafe extern "C" fn(*mut Cursor) -> c_int;
pub(super) type CursorGet = unsafe extern "C" fn(*mut Cursor, *mut Bytes, *mut Bytes, u32) -> c_int;
