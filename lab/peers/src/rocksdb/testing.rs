//! RocksDB databases with several column families, for tests.

use std::ffi::CString;
use std::path::Path;
use std::ptr::null_mut;

use lodestore_contract::Result;

use super::{RocksDb, Setting, Shape};
use crate::library::{chars, failed};
use crate::peer::Asked;

/// Adds a column family with these pairs to the database in `dir`, which has only the default
/// family.
///
/// # Errors
/// Those of RocksDB.
pub fn make_rocksdb_family(dir: &Path, family: &str, pairs: &[(&str, &str)]) -> Result<()> {
    let asked = Asked { there: true, ..Asked::default() };
    let db = RocksDb::make(dir, &Setting::of(dir, Shape { sync: false, blobs: false }, &asked))?;
    let name = CString::new(family).map_err(|_| failed("making a column family", "a zero byte in a name".into()))?;
    let (api, mut message) = (db.api, null_mut());
    // SAFETY: Inv 4 and 6: database and options are alive, and name and message outlive the call.
    let handle = unsafe { (api.family_create)(db.db, db.options, name.as_ptr(), &raw mut message) };
    api.common.outcome("making a column family", message)?;
    let put = |(key, value): &(&str, &str)| {
        let (key, value, mut message) = (key.as_bytes(), value.as_bytes(), null_mut());
        // SAFETY: Inv 4 and 6: the handle is freed below, before the database.
        unsafe {
            let (key, value) = ((chars(key), key.len()), (chars(value), value.len()));
            (api.family_put)(db.db, db.write, handle, key.0, key.1, value.0, value.1, &raw mut message);
        }
        api.common.outcome("putting into RocksDB", message)
    };
    let put = pairs.iter().try_for_each(put);
    // SAFETY: Inv 4: once, before its database.
    unsafe { (api.family_destroy)(handle) };
    put
}
