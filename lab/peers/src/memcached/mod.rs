//! Memcached: Debian's server on a unix socket, by Debian's client library (libmemcached).
//!
//! Each thread has its own connection, with one command at a time. Only multi-key reads request all
//! keys at once. The client uses the binary protocol, because keys of the text protocol cannot
//! contain blanks or control characters. All data is in the memory of the server, which is
//! configured to refuse writes that do not fit instead of evicting keys. Its replace and its delete
//! check for the key.

mod api;

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, OsString, c_char, c_int};
use std::path::Path;
use std::ptr::null_mut;

use lodestore_contract::{Error, Result};

use self::api::{Api, BINARY_PROTOCOL, Client, END, Found, NOT_FOUND, NOT_STORED, SOURCE, SUCCESS};
use crate::library::{c_path, chars, failed};
use crate::peer::{About, Asked, NOTHING_WAITS, Peer, Survives, unordered};
use crate::server::{Pool, Program, Server};

/// Debian's server.
const PROGRAM: Program = Program { peer: "memcached", file: "memcached", package: "memcached" };
/// Maximum MiB of keys and values, allocated on demand: more than the bench loads.
const MEMORY: &str = "65536";
/// Number of server threads: its default.
const THREADS: &str = "4";

/// Checks that library and server are installed.
pub(crate) fn ready() -> Result<()> {
    Api::get()?;
    PROGRAM.version().map(drop)
}

/// Starts a server with its socket in `dir`.
pub(crate) fn open(dir: &Path, asked: &Asked) -> Result<Box<dyn Peer>> {
    let (api, version) = (Api::get()?, PROGRAM.version()?);
    let server = Server::start(&PROGRAM, dir, |_, socket| words(socket))?;
    let socket = c_path("connecting to Memcached", server.socket())?;
    let pool = Pool::new(asked.threads.max(1), move || Connection::new(api, &socket))?;
    let survives = Survives::Nothing;
    let settings = BTreeMap::from([
        ("version".into(), format!("Memcached {version} ({})", SOURCE.file)),
        ("sync".into(), "false".into()),
        ("memory".into(), format!("{MEMORY} MiB at most, nothing is forgotten")),
        ("server-threads".into(), THREADS.into()),
        ("protocol".into(), "binary".into()),
        ("reached-by".into(), "unix socket, a connection a thread".into()),
        ("an-acknowledged-write-survives".into(), survives.text_of_server().into()),
        ("settles".into(), NOTHING_WAITS.into()),
        ("update".into(), "replace, which looks".into()),
    ]);
    Ok(Box::new(Memcached { pool, server, about: About { survives, settings } }))
}

/// Returns the server's command line.
fn words(socket: &Path) -> Vec<OsString> {
    let mut words: Vec<OsString> = vec!["-s".into(), socket.into()];
    // `-u` is ignored unless the server runs as root, which must name a user.
    let more = ["-a", "700", "-U", "0", "-u", "root", "-m", MEMORY, "-M", "-t", THREADS, "-c", "4096"];
    words.extend(more.map(OsString::from));
    words
}

/// A connection, for one call at a time.
struct Connection {
    api: &'static Api,
    client: *mut Client,
}

// SAFETY: Inv 5.
unsafe impl Send for Connection {}

impl Connection {
    fn new(api: &'static Api, socket: &CString) -> Result<Self> {
        const DOING: &str = "connecting to Memcached";
        // SAFETY: Inv 4: the call only creates an object, which the owner below frees.
        let client = unsafe { (api.create)(null_mut()) };
        if client.is_null() {
            return Err(failed(DOING, "it gave no client".into()));
        }
        let connection = Self { api, client };
        // SAFETY: Inv 4 and 6: the path ends with a zero byte.
        unsafe {
            connection.outcome(DOING, (api.set_behavior)(client, BINARY_PROTOCOL, 1))?;
            connection.outcome(DOING, (api.add_socket)(client, socket.as_ptr()))?;
            // The first command connects.
            connection.outcome(DOING, (api.ask_version)(client))?;
        }
        Ok(connection)
    }

    /// Returns an error if `code` is not success.
    #[inline]
    fn outcome(&self, doing: &'static str, code: c_int) -> Result<()> {
        if code == SUCCESS { Ok(()) } else { Err(self.error(doing, code)) }
    }

    /// Returns whether a command found its key, or the error of `code`.
    #[inline]
    fn met(&self, doing: &'static str, code: c_int) -> Result<bool> {
        match code {
            SUCCESS => Ok(true),
            NOT_FOUND | NOT_STORED => Ok(false),
            _ => Err(self.error(doing, code)),
        }
    }

    #[cold]
    fn error(&self, doing: &'static str, code: c_int) -> Error {
        // SAFETY: Inv 7: both are static texts; the first may be missing.
        let text = unsafe {
            let last = (self.api.last_error)(self.client);
            let text = if last.is_null() { (self.api.error)(self.client, code) } else { last };
            CStr::from_ptr(text)
        };
        failed(doing, text.to_string_lossy().into_owned())
    }

    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let (mut length, mut flags, mut code) = (0, 0, SUCCESS);
        // SAFETY: Inv 4 and 6.
        let found = unsafe {
            (self.api.get)(self.client, chars(key), key.len(), &raw mut length, &raw mut flags, &raw mut code)
        };
        if !found.is_null() {
            // SAFETY: Inv 7: the value belongs to this process until it is freed, below and once.
            unsafe {
                value.extend_from_slice(std::slice::from_raw_parts(found.cast::<u8>(), length));
                (self.api.free_value)(found.cast());
            }
        }
        // An empty value has no pointer.
        self.met("getting from Memcached", code)
    }

    /// Reads several keys. Replies come in the order of the keys, without absent keys.
    fn get_several(&mut self, keys: &[&[u8]], each: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()> {
        const DOING: &str = "getting from Memcached";
        let starts: Vec<*const c_char> = keys.iter().map(|key| chars(key)).collect();
        let lengths: Vec<usize> = keys.iter().map(|key| key.len()).collect();
        // SAFETY: Inv 4 and 6: both arrays have an element for each key.
        let code = unsafe { (self.api.get_several)(self.client, starts.as_ptr(), lengths.as_ptr(), keys.len()) };
        self.outcome(DOING, code)?;
        let mut at = 0;
        loop {
            let mut code = SUCCESS;
            // SAFETY: Inv 4 and 7: the result is stored in the client. (It would free a caller's
            // result after the last one.)
            let found = unsafe { (self.api.fetch)(self.client, null_mut(), &raw mut code) };
            if found.is_null() {
                break match code {
                    END | NOT_FOUND | SUCCESS => Ok(()),
                    _ => Err(self.error(DOING, code)),
                }?;
            }
            let (key, value) = self.pair(found);
            let skipped = keys[at..].iter().position(|asked| *asked == key);
            let skipped = skipped.ok_or_else(|| failed(DOING, "it answered for other keys".into()))?;
            (at..at + skipped).for_each(|absent| each(absent, None));
            at += skipped;
            each(at, Some(value));
            at += 1;
        }
        (at..keys.len()).for_each(|absent| each(absent, None));
        Ok(())
    }

    /// Returns key and value of a reply, valid until the next fetch.
    fn pair(&self, found: *mut Found) -> (&[u8], &[u8]) {
        let api = self.api;
        // SAFETY: Inv 7: both are valid until the next fetch, which needs exclusive access.
        unsafe {
            let (key, value) = ((api.found_key)(found), (api.found_value)(found));
            let slice = |start: *const c_char, length: usize| match start.is_null() || length == 0 {
                true => &[][..],
                false => std::slice::from_raw_parts(start.cast::<u8>(), length),
            };
            (slice(key, (api.found_key_length)(found)), slice(value, (api.found_length)(found)))
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // SAFETY: Inv 4: once.
        unsafe { (self.api.free)(self.client) };
    }
}

/// A server with its connections, which are dropped first.
struct Memcached {
    pool: Pool<Connection>,
    server: Server,
    about: About,
}

impl Peer for Memcached {
    fn about(&self) -> About {
        self.about.clone()
    }

    fn server(&self) -> Option<u32> {
        Some(self.server.id())
    }

    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        value.clear();
        self.pool.with(|connection| connection.get(key, value))
    }

    fn multi_get(&self, keys: &[&[u8]], each: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()> {
        if keys.is_empty() {
            return Ok(());
        }
        self.pool.with(|connection| connection.get_several(keys, each))
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.pool.with(|it| {
            // SAFETY: Inv 4 and 6.
            let code = unsafe { (it.api.set)(it.client, chars(key), key.len(), chars(value), value.len(), 0, 0) };
            it.outcome("putting into Memcached", code)
        })
    }

    fn update(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        self.pool.with(|it| {
            // SAFETY: Inv 4 and 6.
            let code = unsafe { (it.api.replace)(it.client, chars(key), key.len(), chars(value), value.len(), 0, 0) };
            it.met("putting into Memcached", code)
        })
    }

    fn delete(&self, key: &[u8]) -> Result<bool> {
        self.pool.with(|it| {
            // SAFETY: Inv 4 and 6.
            let code = unsafe { (it.api.delete)(it.client, chars(key), key.len(), 0) };
            it.met("deleting from Memcached", code)
        })
    }

    fn scan(&self, _from: &[u8], _limit: usize, _each: &mut dyn FnMut(&[u8], &[u8])) -> Result<usize> {
        Err(unordered("memcached"))
    }

    /// Does nothing: the server keeps no files.
    fn flush(&self) -> Result<()> {
        Ok(())
    }
}
