//! A RocksDB database of another program, opened for reading.

use std::ffi::{CStr, CString, c_char, c_int};
use std::path::Path;
use std::ptr::{null, null_mut};

use lodestore_contract::{Error, Result};

use super::api::{Api, Db, Family, Options, ReadOptions};
use crate::common::{Each, Halt};
use crate::library::{c_path, failed};

/// The column family that each database has.
const DEFAULT: &CStr = c"default";
/// Bytes that a walk reads ahead.
const READAHEAD_BYTES: usize = 2 << 20;

/// A column family of a RocksDB database, opened for reading.
///
/// The open writes nothing. The pairs are of the time of the open, including pairs that are only in
/// the log. RocksDB verifies the checksums of all blocks that a walk reads.
pub struct RocksDbReader {
    api: &'static Api,
    options: *mut Options,
    read: *mut ReadOptions,
    db: *mut Db,
    /// The handle of the default family, which RocksDB always opens, and of another family.
    handles: [*mut Family; 2],
    families: Vec<String>,
}

/// RocksDB's recovery mode `kTolerateCorruptedTailRecords`: an incomplete record at the end of the
/// log is ignored, and any other damage of the log refuses the open. The default mode ends the log
/// silently at the first damage.
const TOLERATE_TORN_TAIL: c_int = 0;

impl RocksDbReader {
    /// Opens the column family `family` of the database in the directory `dir`.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] if RocksDB's library is not installed, or if the database has no
    /// such family; [`Error::Io`] with RocksDB's own text if RocksDB refuses the database.
    pub fn open(dir: &Path, family: &str) -> Result<Self> {
        let name = c_path("opening RocksDB", dir)?;
        let api = Api::get()?;
        // SAFETY: Inv 4: the objects are freed by the owner.
        let (options, read) = unsafe { ((api.options_create)(), (api.read_create)()) };
        let handles = [null_mut(); 2];
        let mut reader = Self { api, options, read, db: null_mut(), handles, families: Vec::new() };
        // SAFETY: Inv 4: the options are alive.
        unsafe {
            (api.set_log_recovery)(options, TOLERATE_TORN_TAIL);
            (api.read_set_fill_cache)(read, 0);
            (api.read_set_total_order)(read, 1);
            (api.read_set_readahead)(read, READAHEAD_BYTES);
        }
        reader.families = reader.list(&name)?;
        if !reader.families.iter().any(|each| each == family) {
            let why = format!("the database has no such column family, but these: {}", reader.families.join(", "));
            return Err(Error::InvalidOption { name: "column-family".into(), value: family.into(), why });
        }
        reader.open_family(&name, family)?;
        Ok(reader)
    }

    /// Returns the names of all column families.
    pub fn families(&self) -> &[String] {
        &self.families
    }

    /// Calls `each` for all pairs of the column family, in the order of keys. Returns their number.
    ///
    /// # Errors
    /// [`Halt`]. Pairs that `each` received before the error are valid.
    pub fn for_each_pair<E>(&self, each: &mut Each<'_, E>) -> std::result::Result<u64, Halt<E>> {
        let [default, other] = self.handles;
        let family = if other.is_null() { default } else { other };
        // SAFETY: Inv 4: the database and the handle outlive the iterator, which the walk frees.
        unsafe {
            let iterator = (self.api.family_iterator_create)(self.db, self.read, family);
            self.api.common.walk("reading RocksDB", iterator, each)
        }
    }

    fn list(&self, name: &CStr) -> Result<Vec<String>> {
        let (mut count, mut message) = (0, null_mut());
        // SAFETY: Inv 4 and 6: the options are alive, and all pointers are valid in the call.
        let list = unsafe { (self.api.families_list)(self.options, name.as_ptr(), &raw mut count, &raw mut message) };
        self.api.common.outcome("opening RocksDB", message)?;
        if list.is_null() {
            return Err(failed("opening RocksDB", "RocksDB returned no column families".into()));
        }
        // SAFETY: Inv 7: the list has `count` texts that end with a zero byte, and is freed once.
        unsafe {
            let names = (0..count).map(|at| CStr::from_ptr(*list.add(at)).to_string_lossy().into_owned()).collect();
            (self.api.families_free)(list, count);
            Ok(names)
        }
    }

    fn open_family(&mut self, name: &CStr, family: &str) -> Result<()> {
        let other = CString::new(family).map_err(|_| failed("opening RocksDB", "a zero byte in a name".into()))?;
        let has_other = other.as_c_str() != DEFAULT;
        let names: [*const c_char; 2] = [DEFAULT.as_ptr(), if has_other { other.as_ptr() } else { null() }];
        let options = [self.options.cast_const(); 2];
        let (count, mut message) = (1 + c_int::from(has_other), null_mut());
        // SAFETY: Inv 4 and 6: the options are alive, the arrays have at least `count` elements,
        // and the names outlive the call. An existing log is no error.
        self.db = unsafe {
            (self.api.open_to_read)(
                self.options,
                name.as_ptr(),
                count,
                names.as_ptr(),
                options.as_ptr(),
                self.handles.as_mut_ptr(),
                0,
                &raw mut message,
            )
        };
        self.api.common.outcome("opening RocksDB", message)?;
        let is_open = !self.db.is_null() && !self.handles[0].is_null() && has_other != self.handles[1].is_null();
        if is_open { Ok(()) } else { Err(failed("opening RocksDB", "RocksDB returned no handle".into())) }
    }
}

impl Drop for RocksDbReader {
    fn drop(&mut self) {
        let api = self.api;
        // SAFETY: Inv 4: each object is freed once, the families before the database, and the
        // database before its options.
        unsafe {
            for family in self.handles.into_iter().filter(|family| !family.is_null()) {
                (api.family_destroy)(family);
            }
            if !self.db.is_null() {
                (api.close)(self.db);
            }
            (api.read_destroy)(self.read);
            (api.options_destroy)(self.options);
        }
    }
}
