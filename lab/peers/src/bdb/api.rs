//! Berkeley DB's functions, and its methods inside structs, as far as the bench uses them.

use std::ffi::CStr;
use std::ops::Range;
use std::sync::OnceLock;

use libloading::Library;
use lodestore_contract::{Error, Result};

use super::layout::{self, Cursor, CursorClose, CursorGet, Db};
use super::layout::{DbClose, DbCreate, DbCursor, DbDel, DbGet, DbOpen, DbPut, DbSetCachesize, DbStrerror, DbSync};
use super::layout::{DbVersion, VERSION};
use crate::library::{Source, code_of, failed, function};

/// Debian's library.
pub(super) const SOURCE: Source = Source { peer: "bdb-hash", file: "libdb-5.3.so", package: "libdb5.3" };

/// The functions that the library exports.
pub(super) struct Api {
    pub(super) create: DbCreate,
    strerror: DbStrerror,
    /// Address ranges of the library's code. A method must point into them.
    code: Vec<Range<usize>>,
    /// Keeps the functions loaded.
    #[expect(dead_code, reason = "held, so that the library stays loaded")]
    library: Library,
}

impl Api {
    /// Returns the functions; loads the library at the first call.
    pub(super) fn get() -> Result<&'static Self> {
        static API: OnceLock<Api> = OnceLock::new();
        if let Some(api) = API.get() {
            return Ok(api);
        }
        let loaded = Self::load()?;
        Ok(API.get_or_init(|| loaded))
    }

    fn load() -> Result<Self> {
        let library = SOURCE.load()?;
        let (mut major, mut minor, mut patch) = (0, 0, 0);
        // SAFETY: Inv 2: the prototype of `db_version` in `db.h`, which every version has.
        unsafe {
            let version: DbVersion = function(&library, &SOURCE, "db_version")?;
            version(&raw mut major, &raw mut minor, &raw mut patch);
        }
        if (major, minor, patch) != VERSION {
            let (a, b, c) = VERSION;
            return Err(SOURCE.refuse(format!("{} is {major}.{minor}.{patch}, not {a}.{b}.{c}", SOURCE.file)));
        }
        // SAFETY: Inv 2: the prototypes of `db.h` of that version.
        let (create, strerror) =
            unsafe { (function(&library, &SOURCE, "db_create")?, function(&library, &SOURCE, "db_strerror")?) };
        let code = code_of(SOURCE.file);
        Ok(Self { create, strerror, code, library })
    }

    /// Returns an error if `code` is not 0.
    #[inline]
    pub(super) fn outcome(&self, doing: &'static str, code: i32) -> Result<()> {
        if code == 0 { Ok(()) } else { Err(self.error(doing, code)) }
    }

    #[cold]
    fn error(&self, doing: &'static str, code: i32) -> Error {
        // SAFETY: Inv 7: the result is static text.
        let text = unsafe { CStr::from_ptr((self.strerror)(code)) };
        failed(doing, text.to_string_lossy().into_owned())
    }

    /// Reads the method at `offset` of a struct.
    ///
    /// # Safety
    /// `object` is a live struct of the library, and `F` is the type of its method at this offset
    /// (Inv 3).
    unsafe fn method<F: Copy>(&self, object: *const u8, offset: usize) -> Result<F> {
        const { assert!(size_of::<F>() == size_of::<usize>()) };
        // SAFETY: Inv 3, guaranteed by the caller.
        let address = unsafe { object.add(offset).cast::<usize>().read() };
        if !self.code.iter().any(|range| range.contains(&address)) {
            return Err(SOURCE.refuse(format!("{} has other structs than Debian's db.h", SOURCE.file)));
        }
        // SAFETY: Inv 3: the address is in the library's code.
        Ok(unsafe { object.add(offset).cast::<F>().read() })
    }
}

/// The methods of one `DB`.
pub(super) struct DbMethods {
    pub(super) close: DbClose,
    pub(super) cursor: DbCursor,
    pub(super) del: DbDel,
    pub(super) get: DbGet,
    pub(super) open: DbOpen,
    pub(super) put: DbPut,
    pub(super) set_cachesize: DbSetCachesize,
    pub(super) sync: DbSync,
}

impl DbMethods {
    /// Reads the methods of `db`.
    ///
    /// # Safety
    /// `db` came from `db_create` and is alive.
    pub(super) unsafe fn of(api: &Api, db: *const Db) -> Result<Self> {
        use layout::db;
        let object = db.cast::<u8>();
        // SAFETY: Inv 3: the offsets and types match `db.h`.
        unsafe {
            Ok(Self {
                close: api.method(object, db::CLOSE_AT)?,
                cursor: api.method(object, db::CURSOR_AT)?,
                del: api.method(object, db::DEL_AT)?,
                get: api.method(object, db::GET_AT)?,
                open: api.method(object, db::OPEN_AT)?,
                put: api.method(object, db::PUT_AT)?,
                set_cachesize: api.method(object, db::SET_CACHESIZE_AT)?,
                sync: api.method(object, db::SYNC_AT)?,
            })
        }
    }
}

/// The methods of one `DBC`.
pub(super) struct CursorMethods {
    pub(super) close: CursorClose,
    pub(super) get: CursorGet,
}

impl CursorMethods {
    /// Reads the methods of `cursor`.
    ///
    /// # Safety
    /// `cursor` came from a `DB`'s `cursor` and is alive.
    pub(super) unsafe fn of(api: &Api, cursor: *const Cursor) -> Result<Self> {
        let object = cursor.cast::<u8>();
        // SAFETY: Inv 3: the offsets and types match `db.h`.
        unsafe {
            Ok(Self {
                close: api.method(object, layout::cursor::CLOSE_AT)?,
                get: api.method(object, layout::cursor::GET_AT)?,
            })
        }
    }
}
