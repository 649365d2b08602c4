//! Memcached's client library, libmemcached (`libmemcached/memcached.h`), as far as the bench uses
//! it.

use std::ffi::{c_char, c_int, c_void};
use std::sync::OnceLock;

use lodestore_contract::Result;

use crate::library::{Source, c_api, opaque};

/// Debian's library.
pub(super) const SOURCE: Source = Source { peer: "memcached", file: "libmemcached.so.11", package: "libmemcached11" };

/// `MEMCACHED_SUCCESS`, `MEMCACHED_NOTSTORED`, `MEMCACHED_NOTFOUND` and `MEMCACHED_END` of
/// `memcached_return_t`.
pub(super) const SUCCESS: c_int = 0;
pub(super) const NOT_STORED: c_int = 14;
pub(super) const NOT_FOUND: c_int = 16;
pub(super) const END: c_int = 21;
/// `MEMCACHED_BEHAVIOR_BINARY_PROTOCOL` of `memcached_behavior_t`.
pub(super) const BINARY_PROTOCOL: c_int = 18;

opaque! { Client Found }

c_api! {
    SOURCE, "libmemcached/memcached.h";
    create = "memcached_create": unsafe extern "C" fn(*mut Client) -> *mut Client;
    free = "memcached_free": unsafe extern "C" fn(*mut Client);
    set_behavior = "memcached_behavior_set": unsafe extern "C" fn(*mut Client, c_int, u64) -> c_int;
    add_socket = "memcached_server_add_unix_socket": unsafe extern "C" fn(*mut Client, *const c_char) -> c_int;
    ask_version = "memcached_version": unsafe extern "C" fn(*mut Client) -> c_int;
    set = "memcached_set": unsafe extern "C" fn(
        *mut Client, *const c_char, usize, *const c_char, usize, i64, u32) -> c_int;
    replace = "memcached_replace": unsafe extern "C" fn(
        *mut Client, *const c_char, usize, *const c_char, usize, i64, u32) -> c_int;
    delete = "memcached_delete": unsafe extern "C" fn(*mut Client, *const c_char, usize, i64) -> c_int;
    get = "memcached_get": unsafe extern "C" fn(
        *mut Client, *const c_char, usize, *mut usize, *mut u32, *mut c_int) -> *mut c_char;
    get_several = "memcached_mget": unsafe extern "C" fn(
        *mut Client, *const *const c_char, *const usize, usize) -> c_int;
    fetch = "memcached_fetch_result": unsafe extern "C" fn(*mut Client, *mut Found, *mut c_int) -> *mut Found;
    found_key = "memcached_result_key_value": unsafe extern "C" fn(*const Found) -> *const c_char;
    found_key_length = "memcached_result_key_length": unsafe extern "C" fn(*const Found) -> usize;
    found_value = "memcached_result_value": unsafe extern "C" fn(*const Found) -> *const c_char;
    found_length = "memcached_result_length": unsafe extern "C" fn(*const Found) -> usize;
    last_error = "memcached_last_error_message": unsafe extern "C" fn(*const Client) -> *const c_char;
    error = "memcached_strerror": unsafe extern "C" fn(*const Client, c_int) -> *const c_char;
    // C's own `free`, which frees the values that the library returns. The lookup includes the
    // library's dependencies.
    free_value = "free": unsafe extern "C" fn(*mut c_void);
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
}
