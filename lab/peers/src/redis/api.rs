//! Redis' own client, hiredis (`hiredis.h`), as far as the bench uses it: structs and functions of
//! 0.14, which is part of its file name.

use std::ffi::{c_char, c_int, c_longlong, c_void};
use std::sync::OnceLock;

use lodestore_contract::Result;

use crate::library::{Source, c_api};

/// Debian's library.
pub(super) const SOURCE: Source = Source { peer: "redis", file: "libhiredis.so.0.14", package: "libhiredis0.14" };

/// The kinds of replies: `REDIS_REPLY_STRING` and so on.
pub(super) const STRING: c_int = 1;
pub(super) const ARRAY: c_int = 2;
pub(super) const INTEGER: c_int = 3;
pub(super) const NIL: c_int = 4;
pub(super) const STATUS: c_int = 5;

/// The beginning of a connection (`redisContext`). Only the library knows its length.
#[repr(C)]
pub(super) struct Context {
    pub(super) error: c_int,
    pub(super) text: [c_char; 128],
}

/// A reply (`redisReply`).
#[repr(C)]
pub(super) struct RawReply {
    pub(super) kind: c_int,
    pub(super) integer: c_longlong,
    pub(super) length: usize,
    pub(super) bytes: *const c_char,
    pub(super) elements: usize,
    pub(super) element: *const *mut RawReply,
}

c_api! {
    SOURCE, "hiredis.h";
    connect = "redisConnectUnix": unsafe extern "C" fn(*const c_char) -> *mut Context;
    free = "redisFree": unsafe extern "C" fn(*mut Context);
    command = "redisCommandArgv": unsafe extern "C" fn(
        *mut Context, c_int, *const *const c_char, *const usize) -> *mut c_void;
    free_reply = "freeReplyObject": unsafe extern "C" fn(*mut c_void);
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
