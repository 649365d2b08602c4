//! The common part of the C interfaces of LevelDB and RocksDB (which grew out of it): error texts
//! and iterators.

use std::ffi::{CStr, c_char, c_uchar, c_void};
use std::ptr::null_mut;

use libloading::Library;
use lodestore_contract::{Error, Result};

use crate::library::{Source, chars, failed, function, opaque};

opaque! { Iterator }

/// The functions. Each prototype is in both headers, with a different prefix of the name.
pub(crate) struct Common {
    free: unsafe extern "C" fn(*mut c_void),
    destroy: unsafe extern "C" fn(*mut Iterator),
    valid: unsafe extern "C" fn(*const Iterator) -> c_uchar,
    seek: unsafe extern "C" fn(*mut Iterator, *const c_char, usize),
    next: unsafe extern "C" fn(*mut Iterator),
    key: unsafe extern "C" fn(*const Iterator, *mut usize) -> *const c_char,
    value: unsafe extern "C" fn(*const Iterator, *mut usize) -> *const c_char,
    error: unsafe extern "C" fn(*const Iterator, *mut *mut c_char),
}

impl Common {
    /// Loads the functions whose names begin with `prefix`.
    pub(crate) fn load(library: &Library, source: &Source, prefix: &str) -> Result<Self> {
        let named = |name: &str| format!("{prefix}_{name}");
        // SAFETY: Inv 2: the types above match these names in both headers.
        unsafe {
            Ok(Self {
                free: function(library, source, &named("free"))?,
                destroy: function(library, source, &named("iter_destroy"))?,
                valid: function(library, source, &named("iter_valid"))?,
                seek: function(library, source, &named("iter_seek"))?,
                next: function(library, source, &named("iter_next"))?,
                key: function(library, source, &named("iter_key"))?,
                value: function(library, source, &named("iter_value"))?,
                error: function(library, source, &named("iter_get_error"))?,
            })
        }
    }

    /// Frees bytes that the library allocated.
    ///
    /// # Safety
    /// The library allocated the bytes, and they are freed once (Inv 7).
    pub(crate) unsafe fn free(&self, bytes: *mut c_void) {
        // SAFETY: Inv 7, guaranteed by the caller.
        unsafe { (self.free)(bytes) };
    }

    /// Returns the error that a call stored in `message`, if any.
    #[inline]
    pub(crate) fn outcome(&self, doing: &'static str, message: *mut c_char) -> Result<()> {
        if message.is_null() { Ok(()) } else { Err(self.take(doing, message)) }
    }

    #[cold]
    fn take(&self, doing: &'static str, message: *mut c_char) -> Error {
        // SAFETY: Inv 7: a message is text that ends with a zero byte, and belongs to this process
        // until it is freed, below and once.
        let text = unsafe { CStr::from_ptr(message) }.to_string_lossy().into_owned();
        // SAFETY: Inv 7, as above.
        unsafe { self.free(message.cast()) };
        failed(doing, text)
    }

    /// Calls `each` for at most `limit` pairs in order, starting at `from`, and frees the iterator.
    /// Returns the number of pairs.
    ///
    /// # Safety
    /// The iterator was just made by the same library, of a database that outlives the call (Inv
    /// 4).
    pub(crate) unsafe fn scan(
        &self,
        doing: &'static str,
        iterator: *mut Iterator,
        (from, limit): (&[u8], usize),
        each: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<usize> {
        let mut cursor = Cursor { common: self, raw: iterator };
        // SAFETY: Inv 4, guaranteed by the caller, and 6.
        unsafe { (self.seek)(cursor.raw, chars(from), from.len()) };
        let mut seen = 0;
        while seen < limit
            && let Some((key, value)) = cursor.pair()
        {
            each(key, value);
            seen += 1;
            if seen < limit {
                cursor.next();
            }
        }
        cursor.outcome(doing).map(|()| seen)
    }
}

/// Receives a key and a value, and may stop the walk.
pub type Each<'a, E> = dyn FnMut(&[u8], &[u8]) -> std::result::Result<(), E> + 'a;

/// Why a walk over all pairs ended early.
#[derive(Debug)]
pub enum Halt<E> {
    /// The other store could not be read.
    Store(Error),
    /// The caller stopped the walk.
    Caller(E),
}

impl Common {
    /// Calls `each` for all pairs in the order of keys, and frees the iterator. Returns the number
    /// of pairs.
    ///
    /// # Errors
    /// [`Halt`]. Pairs that `each` received before the error are valid.
    ///
    /// # Safety
    /// The iterator was just made by the same library, of a database that outlives the call (Inv
    /// 4).
    pub(crate) unsafe fn walk<E>(
        &self,
        doing: &'static str,
        iterator: *mut Iterator,
        each: &mut Each<'_, E>,
    ) -> std::result::Result<u64, Halt<E>> {
        let mut cursor = Cursor { common: self, raw: iterator };
        // SAFETY: Inv 4, guaranteed by the caller, and 6.
        unsafe { (self.seek)(cursor.raw, chars(&[]), 0) };
        let mut pairs = 0;
        while let Some((key, value)) = cursor.pair() {
            each(key, value).map_err(Halt::Caller)?;
            pairs += 1;
            cursor.next();
        }
        cursor.outcome(doing).map(|()| pairs).map_err(Halt::Store)
    }
}

/// An iterator of a database that outlives it.
struct Cursor<'a> {
    common: &'a Common,
    raw: *mut Iterator,
}

impl Cursor<'_> {
    /// Returns the current pair, valid until the cursor moves.
    fn pair(&mut self) -> Option<(&[u8], &[u8])> {
        let common = self.common;
        let (mut key_length, mut value_length) = (0, 0);
        // SAFETY: Inv 4 and 7: the cursor is at a pair. The slices borrow the cursor, so it cannot
        // move while they exist.
        unsafe {
            if (common.valid)(self.raw) == 0 {
                return None;
            }
            let key = (common.key)(self.raw, &raw mut key_length);
            let value = (common.value)(self.raw, &raw mut value_length);
            Some((
                std::slice::from_raw_parts(key.cast(), key_length),
                std::slice::from_raw_parts(value.cast(), value_length),
            ))
        }
    }

    /// Moves to the next pair.
    fn next(&mut self) {
        // SAFETY: Inv 4: called only at a pair.
        unsafe { (self.common.next)(self.raw) };
    }

    fn outcome(&self, doing: &'static str) -> Result<()> {
        let mut message = null_mut();
        // SAFETY: Inv 4.
        unsafe { (self.common.error)(self.raw, &raw mut message) };
        self.common.outcome(doing, message)
    }
}

impl Drop for Cursor<'_> {
    fn drop(&mut self) {
        // SAFETY: Inv 4: once.
        unsafe { (self.common.destroy)(self.raw) };
    }
}
