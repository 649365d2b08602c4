//! Redis: Debian's server on a unix socket, by Redis' own client (hiredis).
//!
//! Each thread has its own connection, with one command at a time. Only multi-key reads request all
//! keys at once (MGET). Its SET with XX and its DEL check for the key. Changes are in the memory of
//! the server. If its command log (append-only file) is on, the server writes them to the log
//! before it replies. If each write is synced, the server also syncs the log before it replies.

mod api;

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, OsString, c_char, c_int};
use std::path::Path;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use lodestore_contract::{Error, Result};

use self::api::{ARRAY, Api, Context, INTEGER, NIL, RawReply, SOURCE, STATUS, STRING};
use crate::library::{ZERO, c_path, chars, failed};
use crate::peer::{About, Asked, NOTHING_WAITS, Peer, Survives};
use crate::server::{Pool, Program, Server};

/// Debian's server.
const PROGRAM: Program = Program { peer: "redis", file: "redis-server", package: "redis-server" };
/// Maximum time for a server to read its log at the start.
const LOAD_TIMEOUT: Duration = Duration::from_secs(600);
/// Interval of the polls for the end of that.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// The server's status texts while a rewrite of its log runs, or is scheduled.
const REWRITES: [&str; 2] = ["aof_rewrite_in_progress:1", "aof_rewrite_scheduled:1"];
/// Prefix of the reply to any command while the server loads its log.
const LOADS: &[u8] = b"LOAD_TIMEOUT";

/// Checks that library and server are installed.
pub(crate) fn ready() -> Result<()> {
    Api::get()?;
    version().map(drop)
}

/// Returns the server's version. The program is asked once, because opening the peer is timed.
fn version() -> Result<&'static str> {
    static VERSION: OnceLock<String> = OnceLock::new();
    match VERSION.get() {
        Some(version) => Ok(version),
        None => PROGRAM.version().map(|version| VERSION.get_or_init(|| version).as_str()),
    }
}

/// Starts a server in `dir` whose acknowledged writes survive `survives`. [`Survives::Nothing`]
/// means no log.
pub(crate) fn open(dir: &Path, survives: Survives, asked: &Asked) -> Result<Box<dyn Peer>> {
    let (api, version) = (Api::get()?, version()?);
    let (log, sync) = match survives {
        Survives::Nothing => ("no", "no"),
        Survives::Stop | Survives::Process => ("yes", "no"),
        Survives::Medium => ("yes", "always"),
    };
    let server = Server::start(&PROGRAM, dir, |dir, socket| words(dir, socket, log, sync))?;
    let socket = c_path("connecting to Redis", server.socket())?;
    let pool = Pool::new(1, {
        let socket = socket.clone();
        move || Connection::new(api, &socket)
    })?;
    pool.with(Connection::wait_loaded)?;
    let pool = Pool::new(asked.threads.max(1), move || Connection::new(api, &socket))?;
    let settings = BTreeMap::from([
        ("version".into(), format!("Redis {version} ({})", SOURCE.file)),
        ("sync".into(), (survives == Survives::Medium).to_string()),
        ("appendonly".into(), log.into()),
        ("appendfsync".into(), sync.into()),
        ("save".into(), "none".into()),
        ("io-threads".into(), "1".into()),
        ("reached-by".into(), "unix socket, a connection a thread".into()),
        ("an-acknowledged-write-survives".into(), survives.text_of_server().into()),
        (
            "settles".into(),
            if survives == Survives::Nothing { NOTHING_WAITS } else { "until its log is not rewritten" }.into(),
        ),
        ("update".into(), "SET XX, which looks".into()),
    ]);
    Ok(Box::new(Redis { pool, server, about: About { survives, settings } }))
}

/// Returns the server's command line.
fn words(dir: &Path, socket: &Path, log: &str, sync: &str) -> Vec<OsString> {
    let mut words: Vec<OsString> = vec!["--dir".into(), dir.into(), "--unixsocket".into(), socket.into()];
    let more = ["--port", "0", "--save", "", "--daemonize", "no", "--databases", "1", "--maxclients", "4096"];
    words.extend(more.map(OsString::from));
    words.extend(["--appendonly", log, "--appendfsync", sync].map(OsString::from));
    words
}

/// A connection, for one call at a time.
struct Connection {
    api: &'static Api,
    context: *mut Context,
}

// SAFETY: Inv 5.
unsafe impl Send for Connection {}

/// The content of a reply.
enum Answer<'a> {
    Bytes(&'a [u8]),
    Number(i64),
    Nothing,
    /// Done, or a reply with several replies.
    Other,
}

/// A reply, freed on drop.
struct Reply {
    api: &'static Api,
    raw: *mut RawReply,
}

impl Connection {
    fn new(api: &'static Api, socket: &CString) -> Result<Self> {
        // SAFETY: Inv 6: the path ends with a zero byte.
        let context = unsafe { (api.connect)(socket.as_ptr()) };
        if context.is_null() {
            return Err(failed("connecting to Redis", "it gave no connection".into()));
        }
        let connection = Self { api, context };
        connection.outcome("connecting to Redis")?;
        Ok(connection)
    }

    /// Waits until the server has read its log.
    fn wait_loaded(&mut self) -> Result<()> {
        let begun = Instant::now();
        loop {
            let reply = self.ask("starting Redis", &[b"PING"])?;
            match reply.refusal(reply.raw) {
                Some(text) if text.starts_with(LOADS) && begun.elapsed() < LOAD_TIMEOUT => {
                    std::thread::sleep(POLL_INTERVAL)
                }
                Some(text) => return Err(refused("starting Redis", text)),
                None => return Ok(()),
            }
        }
    }

    /// Waits until no rewrite of the log runs. The server rewrites its log when it has doubled in
    /// size.
    fn wait_rewritten(&mut self) -> Result<()> {
        const DOING: &str = "settling Redis";
        let begun = Instant::now();
        loop {
            let reply = self.command(DOING, &[b"INFO", b"persistence"])?;
            let Answer::Bytes(told) = reply.answer(reply.raw) else {
                return Err(failed(DOING, "it does not say what it does".into()));
            };
            let told = String::from_utf8_lossy(told);
            if !told.lines().any(|line| REWRITES.contains(&line.trim_end())) {
                return Ok(());
            }
            if begun.elapsed() > LOAD_TIMEOUT {
                return Err(failed(DOING, "it rewrites its log without an end".into()));
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Returns the error of the connection, if it has one.
    fn outcome(&self, doing: &'static str) -> Result<()> {
        // SAFETY: Inv 4 and 9: the context is alive and begins as declared, and its text ends with
        // a zero byte.
        let (error, text) =
            unsafe { ((*self.context).error, CStr::from_ptr((&raw const (*self.context).text).cast())) };
        if error == ZERO { Ok(()) } else { Err(failed(doing, text.to_string_lossy().into_owned())) }
    }

    /// Sends a command and returns the reply, which may be a refusal.
    fn ask(&mut self, doing: &'static str, words: &[&[u8]]) -> Result<Reply> {
        // Most commands have three words or fewer.
        let (mut few, mut few_lengths) = ([std::ptr::null::<c_char>(); 4], [0; 4]);
        let (many, many_lengths): (Vec<_>, Vec<_>);
        let (starts, lengths) = if words.len() <= few.len() {
            for (at, word) in words.iter().enumerate() {
                (few[at], few_lengths[at]) = (chars(word), word.len());
            }
            (&few[..], &few_lengths[..])
        } else {
            (many, many_lengths) = words.iter().map(|word| (chars(word), word.len())).unzip();
            (&many[..], &many_lengths[..])
        };
        let count = c_int::try_from(words.len()).map_err(|_| failed(doing, "too many keys".into()))?;
        // SAFETY: Inv 4 and 6: both arrays have an element for each word.
        let raw = unsafe { (self.api.command)(self.context, count, starts.as_ptr(), lengths.as_ptr()) };
        if raw.is_null() {
            self.outcome(doing)?;
            return Err(failed(doing, "it gave no reply".into()));
        }
        Ok(Reply { api: self.api, raw: raw.cast() })
    }

    /// Sends a command, and returns an error if the server refused it.
    fn command(&mut self, doing: &'static str, words: &[&[u8]]) -> Result<Reply> {
        let reply = self.ask(doing, words)?;
        match reply.refusal(reply.raw) {
            Some(text) => Err(refused(doing, text)),
            None => Ok(reply),
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // SAFETY: Inv 4: once.
        unsafe { (self.api.free)(self.context) };
    }
}

fn refused(doing: &'static str, text: &[u8]) -> Error {
    failed(doing, String::from_utf8_lossy(text).into_owned())
}

impl Reply {
    /// Returns the content of a reply.
    fn answer(&self, raw: *const RawReply) -> Answer<'_> {
        // SAFETY: Inv 7 and 9: the raw reply is alive while `self` is, and has the declared layout.
        // A text has a pointer and a length.
        unsafe {
            match (*raw).kind {
                STRING => Answer::Bytes(std::slice::from_raw_parts((*raw).bytes.cast(), (*raw).length)),
                INTEGER => Answer::Number((*raw).integer),
                NIL => Answer::Nothing,
                _ => Answer::Other,
            }
        }
    }

    /// Returns the text of a refusal.
    fn refusal(&self, raw: *const RawReply) -> Option<&[u8]> {
        // SAFETY: Inv 7 and 9, as above.
        unsafe {
            let is_good = matches!((*raw).kind, STRING | ARRAY | INTEGER | NIL | STATUS);
            (!is_good).then(|| std::slice::from_raw_parts((*raw).bytes.cast(), (*raw).length))
        }
    }

    /// Returns the replies of an array.
    fn parts(&self) -> &[*mut RawReply] {
        // SAFETY: Inv 7 and 9: an array has as many pointers as its count.
        unsafe {
            if (*self.raw).kind != ARRAY || (*self.raw).elements == 0 {
                return &[];
            }
            std::slice::from_raw_parts((*self.raw).element, (*self.raw).elements)
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        // SAFETY: Inv 7: once.
        unsafe { (self.api.free_reply)(self.raw.cast()) };
    }
}

/// A server with its connections, which are dropped first.
struct Redis {
    pool: Pool<Connection>,
    server: Server,
    about: About,
}

impl Peer for Redis {
    fn about(&self) -> About {
        self.about.clone()
    }

    fn server(&self) -> Option<u32> {
        Some(self.server.id())
    }

    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        value.clear();
        self.pool.with(|connection| {
            let reply = connection.command("getting from Redis", &[b"GET", key])?;
            let Answer::Bytes(found) = reply.answer(reply.raw) else { return Ok(false) };
            value.extend_from_slice(found);
            Ok(true)
        })
    }

    fn multi_get(&self, keys: &[&[u8]], each: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()> {
        if keys.is_empty() {
            return Ok(());
        }
        let words: Vec<&[u8]> = std::iter::once(&b"MGET"[..]).chain(keys.iter().copied()).collect();
        self.pool.with(|connection| {
            let reply = connection.command("getting from Redis", &words)?;
            if reply.parts().len() != keys.len() {
                return Err(failed("getting from Redis", "it answered for other keys".into()));
            }
            for (at, part) in reply.parts().iter().enumerate() {
                match reply.answer(*part) {
                    Answer::Bytes(found) => each(at, Some(found)),
                    _ => each(at, None),
                }
            }
            Ok(())
        })
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.pool.with(|connection| connection.command("putting into Redis", &[b"SET", key, value]).map(drop))
    }

    fn update(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        self.pool.with(|connection| {
            let reply = connection.command("putting into Redis", &[b"SET", key, value, b"XX"])?;
            Ok(!matches!(reply.answer(reply.raw), Answer::Nothing))
        })
    }

    fn delete(&self, key: &[u8]) -> Result<bool> {
        self.pool.with(|connection| {
            let reply = connection.command("deleting from Redis", &[b"DEL", key])?;
            Ok(matches!(reply.answer(reply.raw), Answer::Number(1..)))
        })
    }

    fn scan(&self, _from: &[u8], _limit: usize, _each: &mut dyn FnMut(&[u8], &[u8])) -> Result<usize> {
        Err(crate::peer::unordered("redis"))
    }

    /// Does nothing: stored data is written before the reply, and a clean stop syncs it.
    fn flush(&self) -> Result<()> {
        Ok(())
    }

    /// Waits for the rewrite of the log, which corresponds to the compactions of other peers.
    fn settle(&self) -> Result<()> {
        match self.about.survives {
            Survives::Nothing => Ok(()),
            _ => self.pool.with(Connection::wait_rewritten),
        }
    }
}
