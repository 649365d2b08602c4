//! fjall, a log-structured merge tree in Rust.
//!
//! The peer uses one keyspace. A write goes to the journal under fjall's own lock. If writes are
//! synced, each write syncs the journal afterwards, under the same lock. (fjall has no group
//! commit, but a sync covers earlier writes of other threads.) Its delete does not check for the
//! key. Delete and `update`, which is an insert, therefore return `true`.
//!
//! Memtables use half of the DRAM budget, but at most 64 MiB each; the block cache uses the rest.
//! At most five memtables exist: one active and four frozen. fjall has no reads through a mapping.
//!
//! Measured on tmpfs, two hardware threads, 200,000 records of 16 + 256 bytes, CPU time per
//! operation in us, medians of three rounds:
//!
//! | setting | get | absent | multiget | scan |
//! |---|---|---|---|---|
//! | used here | 3.3 | 0.16 | 2.7 | 19.3 |
//! | blocks of 2 KiB | 3.9 | 0.15 | 2.7 | 24.0 |
//! | hash indexes in blocks | 3.3 | 0.14 | 2.6 | 20.6 |
//! | indexes and filters unpartitioned and pinned | 3.5 | 0.15 | 2.9 | 21.7 |
//!
//! The remaining settings are therefore fjall's defaults.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::Path;
use std::time::{Duration, Instant};

use ::fjall::config::{BloomConstructionPolicy, FilterPolicy, FilterPolicyEntry};
use ::fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use lodestore_contract::{Error, Result};

use crate::library::failed;
use crate::peer::{About, Account, Asked, BUFFER_BYTES_MAX, Peer, Survives};

/// The version in `Cargo.lock`.
pub(crate) const VERSION: &str = "fjall 3.1.13";

/// Maximum number of memtables; beyond it fjall stops writers.
const MEMTABLES_MAX: u64 = 5;
/// Minimum bytes of a memtable.
const MEMTABLE_BYTES_MIN: u64 = 64 << 10;
/// Bits per key of the Bloom filter.
const BLOOM_BITS: u8 = 10;
/// Interval of the polls for the end of compactions.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Time without a change of state after which fjall counts as idle, if compactions ended meanwhile.
/// fjall may report activity forever although its compactions change nothing.
const UNCHANGED_TIME: Duration = Duration::from_secs(2);
/// The same time if no compaction ended. A single compaction takes at most this long.
const UNCHANGED_TIME_MAX: Duration = Duration::from_secs(120);
/// Number of consecutive idle polls required.
const IDLE_POLL_COUNT: u32 = 10;

/// Creates an empty store in `dir`, or opens the existing one.
pub(crate) fn open(dir: &Path, sync: bool, asked: &Asked) -> Result<Box<dyn Peer>> {
    // fjall creates missing parent directories; no peer does so here.
    std::fs::metadata(dir).map_err(|source| Error::io("opening fjall", dir, source))?;
    let memtable = (asked.budget() / 2 / MEMTABLES_MAX).clamp(MEMTABLE_BYTES_MIN, BUFFER_BYTES_MAX);
    let cache = asked.budget().saturating_sub(memtable * MEMTABLES_MAX);
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let database = Database::builder(dir.join("peer.fjall")).cache_size(cache).worker_threads(workers).open();
    let database = database.map_err(error("opening fjall"))?;
    let options = || {
        let bits = FilterPolicyEntry::Bloom(BloomConstructionPolicy::BitsPerKey(f32::from(BLOOM_BITS)));
        KeyspaceCreateOptions::default().max_memtable_size(memtable).filter_policy(FilterPolicy::all(bits))
    };
    let records = database.keyspace("records", options).map_err(error("opening fjall"))?;
    let settings = BTreeMap::from([
        ("version".into(), VERSION.into()),
        ("sync".into(), sync.to_string()),
        ("memtable".into(), memtable.to_string()),
        ("memtables".into(), MEMTABLES_MAX.to_string()),
        ("cache".into(), cache.to_string()),
        ("budget".into(), asked.budget().to_string()),
        ("background-threads".into(), workers.to_string()),
        ("bloom-bits".into(), BLOOM_BITS.to_string()),
        ("compression".into(), "none".into()),
        ("settles".into(), "a flush, then until no compaction changes anything".into()),
        ("update".into(), "an insert, unlooked".into()),
    ]);
    let about = About { survives: if sync { Survives::Medium } else { Survives::Process }, settings };
    Ok(Box::new(Fjall { records, database, sync, about }))
}

struct Fjall {
    records: Keyspace,
    database: Database,
    sync: bool,
    about: About,
}

fn error<E: Display>(doing: &'static str) -> impl Fn(E) -> Error {
    move |cause| failed(doing, cause.to_string())
}

impl Fjall {
    /// Syncs the writes, if each write is synced.
    fn persist(&self) -> Result<()> {
        match self.sync {
            true => self.database.persist(PersistMode::SyncData).map_err(error("syncing fjall")),
            false => Ok(()),
        }
    }
}

impl Peer for Fjall {
    fn about(&self) -> About {
        self.about.clone()
    }

    #[inline]
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        value.clear();
        let found = self.records.get(key).map_err(error("getting from fjall"))?;
        Ok(found.is_some_and(|found| {
            value.extend_from_slice(&found);
            true
        }))
    }

    #[inline]
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.records.insert(key, value).map_err(error("putting into fjall"))?;
        self.persist()
    }

    #[inline]
    fn delete(&self, key: &[u8]) -> Result<bool> {
        self.records.remove(key).map_err(error("deleting from fjall"))?;
        self.persist().map(|()| true)
    }

    fn scan(&self, from: &[u8], limit: usize, each: &mut dyn FnMut(&[u8], &[u8])) -> Result<usize> {
        let mut seen = 0;
        for pair in self.records.range(from..).take(limit) {
            let (key, value) = pair.into_inner().map_err(error("scanning fjall"))?;
            each(&key, &value);
            seen += 1;
        }
        Ok(seen)
    }

    fn flush(&self) -> Result<()> {
        self.database.persist(PersistMode::SyncAll).map_err(error("syncing fjall"))
    }

    /// Waits until tables and memtables are unchanged in several consecutive polls while no
    /// compaction runs. fjall's workers attempt compactions repeatedly, and its counter includes
    /// attempts that found nothing to do.
    fn settle(&self) -> Result<()> {
        self.records.rotate_memtable().map_err(error("flushing fjall"))?;
        let state = || {
            let records = &self.records;
            (records.sealed_memtable_count(), records.table_count(), records.l0_table_count(), records.disk_space())
        };
        let ended = || self.database.compactions_completed();
        let (mut quiet, mut last, mut since, mut before) = (0, state(), Instant::now(), ended());
        while quiet < IDLE_POLL_COUNT && since.elapsed() < UNCHANGED_TIME_MAX {
            std::thread::sleep(POLL_INTERVAL);
            let now = state();
            if now != last {
                (quiet, last, since, before) = (0, now, Instant::now(), ended());
            } else if now.0 == 0 && self.database.active_compactions() == 0 {
                quiet += 1;
            } else if since.elapsed() > UNCHANGED_TIME && ended() > before {
                break;
            }
        }
        Ok(())
    }

    fn account(&self) -> Account {
        let dram_bytes = self.database.cache_size() + self.database.write_buffer_size();
        Account { dram_bytes: Some(dram_bytes), compactions: Some(self.database.compactions_completed() as u64) }
    }
}
