//! A contract store on a simulated pool, for the explorer.

use std::sync::Arc;

use lodestore_contract::{Change, Direction, Error, Expiry, Result, ScanRange, Store, Swap, Visit};
use lodestore_media::Pool;
use lodestore_media::sim::Recorder;

use crate::op::{Op, Outcome, append_lifetime};
use crate::subject::{Pair, RecoveryDamage, Subject, Walk};

/// A contract store on a pool.
pub struct PoolSubject {
    /// The store.
    pub store: Arc<dyn Store>,
    /// Its pool.
    pub pool: Arc<Pool>,
    /// As [`Subject::checkpoint_bytes`].
    pub checkpoint_bytes: u64,
    /// Bytes of extents that an open creates only if they fit. They do not count as live.
    pub optional_bytes: u64,
    /// Whether the live bytes follow from the contents. For an engine with logs and flushes they
    /// depend on the flush progress. Its own `verify`, which knows every extent, finds leaks.
    pub accounts: bool,
    /// Removes expired pairs.
    pub sweep: Box<dyn Fn() -> Result<()> + Send + Sync>,
}

/// Errors after which an owned scan counts as endless.
const SCAN_ERRORS_MAX: u32 = 100_000;

impl PoolSubject {
    /// Reads the owned scan to its end, also after errors. Returns the first error.
    fn owned_walk(&self, into: &mut Vec<Pair>) -> Result<bool> {
        let (mut first, mut errors) = (None, 0);
        for entry in self.store.scan(&ScanRange::all())? {
            match entry {
                Ok(entry) => into.push(entry.into_pair()),
                Err(error) => {
                    errors += 1;
                    assert!(errors < SCAN_ERRORS_MAX, "an owned scan that never ends: {error}");
                    first.get_or_insert(error);
                }
            }
        }
        first.map_or(Ok(true), Err)
    }

    fn apply_all(&self, op: &Op) -> Result<Outcome> {
        match op {
            Op::Sweep => (self.sweep)().map(|()| Outcome::Done),
            _ => apply_to(&*self.store, op),
        }
    }
}

/// Applies an operation of the contract to a store.
///
/// # Errors
///
/// Errors of the engine.
pub fn apply_to(store: &dyn Store, op: &Op) -> Result<Outcome> {
    Ok(match op {
        Op::Put { key, value, expiry } => {
            store.put_expiring(key, value, expiry.map(Expiry::at_millis))?;
            Outcome::Done
        }
        Op::Insert { key, value, lifetime } => Outcome::Changed(store.insert(key, value, *lifetime)?),
        Op::Update { key, value, lifetime } => Outcome::Changed(store.update(key, value, *lifetime)?),
        Op::Delete { key } => Outcome::Changed(store.delete(key)?),
        Op::Swap { key, expected, new, lifetime } => {
            match store.compare_and_swap(key, expected.as_deref(), new.as_deref(), *lifetime)? {
                Swap::Done => Outcome::Changed(true),
                Swap::Differs(there) => Outcome::Value(there),
            }
        }
        Op::Append { key, bytes, lifetime } => {
            store.update_with(key, &mut |there, expiry| {
                let mut value = there.unwrap_or_default().to_vec();
                value.extend_from_slice(bytes);
                Change::Put(value, append_lifetime(bytes, *lifetime, expiry))
            })?;
            Outcome::Done
        }
        Op::Remove { key } => {
            store.update_with(key, &mut |_, _| Change::Delete)?;
            Outcome::Done
        }
        Op::Get { key } => Outcome::Value(store.get(key)?),
        Op::Batch { batch } => {
            store.write(batch)?;
            Outcome::Done
        }
        Op::WriteIf { conditions, ranges, batch } => {
            Outcome::Changed(store.write_if_ranges(conditions, ranges, batch)?.is_done())
        }
        Op::Sync => {
            store.sync()?;
            Outcome::Done
        }
        // The store has no devices or keyspaces.
        Op::Replace { .. } | Op::AddGroup => Outcome::Full,
        Op::CreateKeyspace { .. } | Op::DropKeyspace { .. } | Op::Reclaim { .. } => Outcome::Full,
        Op::Sweep | Op::Reopen | Op::Kill | Op::PowerCut => Outcome::Done,
    })
}

/// Returns a value with its expiry in milliseconds.
///
/// # Errors
///
/// Errors of the engine.
pub fn get_from(store: &dyn Store, key: &[u8]) -> Result<Option<(Vec<u8>, Option<u64>)>> {
    let Some(value) = store.get(key)? else { return Ok(None) };
    let expiry = store.expiry(key)?;
    Ok(expiry.map(|expiry| (value, expiry.map(Expiry::millis))))
}

impl Subject for PoolSubject {
    fn recorder(&self) -> &Recorder {
        self.pool.recorder().expect("a simulated pool has a recorder")
    }

    fn store(&self) -> Option<Arc<dyn Store>> {
        Some(Arc::clone(&self.store))
    }

    fn wait_recovered(&self) -> Result<()> {
        self.store.wait_recovered()
    }

    fn apply(&self, op: &Op) -> Result<Outcome> {
        match self.apply_all(op) {
            Err(Error::Full { .. }) => Ok(Outcome::Full),
            Err(Error::Unsupported { .. }) if op.is_batch() => Ok(Outcome::Full),
            other => other,
        }
    }

    fn get(&self, key: &[u8]) -> Result<Option<(Vec<u8>, Option<u64>)>> {
        get_from(&*self.store, key)
    }

    fn scan(&self, direction: Direction) -> Result<Option<Vec<Pair>>> {
        if !self.store.capabilities().scan {
            return Ok(None);
        }
        let range = ScanRange { direction, ..ScanRange::all() };
        let mut pairs = Vec::new();
        self.store.scan_each(&range, &mut |key, value| {
            pairs.push((key.to_vec(), value.to_vec()));
            Visit::More
        })?;
        Ok(Some(pairs))
    }

    fn pairs(&self) -> Result<Vec<Pair>> {
        let mut pairs = Vec::new();
        self.store.for_each(&mut |key, value| {
            pairs.push((key.to_vec(), value.to_vec()));
            Visit::More
        })?;
        Ok(pairs)
    }

    fn walk(&self, walk: Walk, into: &mut Vec<Pair>) -> Result<bool> {
        let mut visit = |key: &[u8], value: &[u8]| {
            into.push((key.to_vec(), value.to_vec()));
            Visit::More
        };
        let direction = match walk {
            Walk::ForEach => {
                self.store.for_each(&mut visit)?;
                return Ok(true);
            }
            _ if !self.store.capabilities().scan => return Ok(false),
            Walk::Owned => return self.owned_walk(into),
            Walk::Ascending => Direction::Forward,
            Walk::Descending => Direction::Backward,
        };
        self.store.scan_each(&ScanRange { direction, ..ScanRange::all() }, &mut visit)?;
        Ok(true)
    }

    fn contains(&self, key: &[u8]) -> Result<bool> {
        self.store.contains(key)
    }

    fn recovery_damage(&self) -> RecoveryDamage {
        let recovery = self.store.stats().recovery;
        RecoveryDamage { corrupt: recovery.corrupt, left_out: recovery.left_out }
    }

    fn len(&self) -> Result<u64> {
        self.store.len()
    }

    fn verify(&self) -> Result<Vec<String>> {
        let report = self.store.verify(&mut |_| ())?;
        let mut wrong: Vec<String> =
            report.findings.iter().map(|found| format!("{}: {}", found.place, found.what)).collect();
        let corrupt = self.store.stats().recovery.corrupt;
        if corrupt > 0 {
            wrong.push(format!("recovery counts {corrupt} corrupt records, and a crash corrupts none"));
        }
        Ok(wrong)
    }

    fn live_bytes(&self) -> Option<u64> {
        if !self.accounts {
            return None;
        }
        for _ in 0..4 {
            self.pool.epochs().reclaim(&self.pool);
        }
        Some(self.pool.space().live - self.optional_bytes)
    }

    fn checkpoint_bytes(&self) -> u64 {
        self.checkpoint_bytes
    }

    fn counter(&self, name: &str) -> u64 {
        self.store.stats().engine_counters.get(name).copied().unwrap_or(0)
    }

    fn close(&self) -> Result<()> {
        self.store.close()
    }
}
