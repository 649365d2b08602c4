//! sled, a tree of pages on a log, in the last stable release 0.34 (2021; newer versions are an
//! alpha).
//!
//! A write is in a buffer of the process until the buffer is full, or until sled's own thread
//! flushes it (every half second). If writes are synced, each write flushes the buffers. On Linux
//! that flush is `sync_file_range`, which waits neither for a file's length nor for a disk's cache,
//! although sled's documentation mentions fsync. The peer therefore also syncs sled's log. Pages
//! over 128 KiB are separate files, which nothing syncs.
//!
//! sled checks for the key in each call: its insert and its delete report whether the key was
//! present.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, Instant};

use ::sled::{Config, Db};
use lodestore_contract::{Error, Result};

use crate::library::failed;
use crate::peer::{About, Asked, Peer, Survives};

/// The version in `Cargo.lock`.
pub(crate) const VERSION: &str = "sled 0.34.7";

/// Milliseconds between flushes by its own thread: sled's default.
const FLUSH_INTERVAL_MILLIS: u64 = 500;
/// Interval of the polls for the close.
const POLL_INTERVAL: Duration = Duration::from_millis(1);
/// Maximum time of that wait.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// Creates an empty store in `dir`, or opens the existing one.
pub(crate) fn open(dir: &Path, sync: bool, asked: &Asked) -> Result<Box<dyn Peer>> {
    // sled creates missing parent directories; no peer does so here.
    fs::metadata(dir).map_err(|source| Error::io("opening sled", dir, source))?;
    let (own, cache) = (dir.join("peer.sled"), asked.budget());
    let config = Config::new().path(&own).cache_capacity(cache).flush_every_ms(Some(FLUSH_INTERVAL_MILLIS));
    let database = config.open().map_err(error("opening sled"))?;
    let path = own.join("db");
    let log = File::open(&path).map_err(|source| Error::io("opening sled's log", path, source))?;
    Ok(Box::new(Sled { database, log: Log(log), sync, cache }))
}

/// The fields are dropped in this order. `log` waits for the end of `database`, so it follows it.
struct Sled {
    database: Db,
    log: Log,
    sync: bool,
    cache: u64,
}

/// The file of sled's log, which sled locks while it is open.
struct Log(File);

impl Drop for Log {
    /// Waits until sled has released its lock. Its threads may release it some time after the drop
    /// of the database, and the store cannot be opened before.
    fn drop(&mut self) {
        let since = Instant::now();
        while self.0.try_lock().is_err() && since.elapsed() < CLOSE_TIMEOUT {
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}

fn error<E: Display>(doing: &'static str) -> impl Fn(E) -> Error {
    move |cause| failed(doing, cause.to_string())
}

impl Sled {
    /// Syncs the writes, if each write is synced.
    fn written(&self) -> Result<()> {
        if self.sync { self.flush() } else { Ok(()) }
    }
}

impl Peer for Sled {
    fn about(&self) -> About {
        let settings = BTreeMap::from([
            ("version".into(), VERSION.into()),
            ("sync".into(), if self.sync { "each write" } else { "at the end" }.into()),
            ("budget".into(), self.cache.to_string()),
            ("settles".into(), "its buffers flushed".into()),
            ("cache".into(), self.cache.to_string()),
            ("flush-every-ms".into(), FLUSH_INTERVAL_MILLIS.to_string()),
            ("compression".into(), "none".into()),
            ("update".into(), "an insert, which looks".into()),
        ]);
        About { survives: if self.sync { Survives::Medium } else { Survives::Stop }, settings }
    }

    #[inline]
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        value.clear();
        let found = self.database.get(key).map_err(error("getting from sled"))?;
        Ok(found.is_some_and(|found| {
            value.extend_from_slice(&found);
            true
        }))
    }

    #[inline]
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.update(key, value).map(drop)
    }

    #[inline]
    fn update(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        let old = self.database.insert(key, value).map_err(error("putting into sled"))?;
        self.written().map(|()| old.is_some())
    }

    #[inline]
    fn delete(&self, key: &[u8]) -> Result<bool> {
        let old = self.database.remove(key).map_err(error("deleting from sled"))?;
        self.written().map(|()| old.is_some())
    }

    fn scan(&self, from: &[u8], limit: usize, each: &mut dyn FnMut(&[u8], &[u8])) -> Result<usize> {
        let mut seen = 0;
        for pair in self.database.range(from..).take(limit) {
            let (key, value) = pair.map_err(error("scanning sled"))?;
            each(&key, &value);
            seen += 1;
        }
        Ok(seen)
    }

    fn flush(&self) -> Result<()> {
        self.database.flush().map_err(error("flushing sled"))?;
        self.log.0.sync_data().map_err(error("syncing sled"))
    }

    fn settle(&self) -> Result<()> {
        self.database.flush().map(drop).map_err(error("flushing sled"))
    }
}
