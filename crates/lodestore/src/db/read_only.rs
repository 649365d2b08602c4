//! A store that refuses all writes.

use std::sync::Arc;

use lodestore_contract::copy::CopySink;
use lodestore_contract::{
    Batch, Capabilities, ChangeFn, Commit, Condition, Error, Expiry, Lifetime, Options, Pair, Progress, RangeCondition,
    Result, Scan, ScanRange, Snapshot, Stats, Store, Swap, VerifyReport, Visit,
};

/// Forwards reads to a store, and returns [`Error::ReadOnly`] for every write.
pub(super) struct ReadOnly(pub(super) Arc<dyn Store>);

impl Store for ReadOnly {
    fn engine(&self) -> &'static str {
        self.0.engine()
    }

    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    fn identity(&self) -> Option<u64> {
        self.0.identity()
    }

    fn opening(&self) -> u64 {
        self.0.opening()
    }

    fn mark(&self) -> Option<u64> {
        self.0.mark()
    }

    fn set_mark(&self, _mark: u64) -> Result<()> {
        Err(Error::ReadOnly)
    }

    fn creation_options(&self) -> Options {
        self.0.creation_options()
    }

    fn get_into(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        self.0.get_into(key, value)
    }

    fn get_with(&self, key: &[u8], with: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.0.get_with(key, with)
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.0.get(key)
    }

    fn contains(&self, key: &[u8]) -> Result<bool> {
        self.0.contains(key)
    }

    fn multi_get(&self, keys: &[&[u8]], each: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()> {
        self.0.multi_get(keys, each)
    }

    fn expiry(&self, key: &[u8]) -> Result<Option<Option<Expiry>>> {
        self.0.expiry(key)
    }

    fn put_expiring(&self, _key: &[u8], _value: &[u8], _expiry: Option<Expiry>) -> Result<()> {
        Err(Error::ReadOnly)
    }

    fn insert(&self, _key: &[u8], _value: &[u8], _lifetime: Lifetime) -> Result<bool> {
        Err(Error::ReadOnly)
    }

    fn update(&self, _key: &[u8], _value: &[u8], _lifetime: Lifetime) -> Result<bool> {
        Err(Error::ReadOnly)
    }

    fn delete(&self, _key: &[u8]) -> Result<bool> {
        Err(Error::ReadOnly)
    }

    fn compare_and_swap(&self, _: &[u8], _: Option<&[u8]>, _: Option<&[u8]>, _: Lifetime) -> Result<Swap> {
        Err(Error::ReadOnly)
    }

    fn update_with(&self, _key: &[u8], _change: &mut ChangeFn<'_>) -> Result<()> {
        Err(Error::ReadOnly)
    }

    fn scan_each(&self, range: &ScanRange, visit: &mut dyn FnMut(&[u8], &[u8]) -> Visit) -> Result<usize> {
        self.0.scan_each(range, visit)
    }

    fn scan(&self, range: &ScanRange) -> Result<Scan> {
        self.0.scan(range)
    }

    fn for_each_pair(&self, visit: &mut dyn FnMut(Pair<'_>) -> Visit) -> Result<u64> {
        self.0.for_each_pair(visit)
    }

    fn copy_all(&self, sink: &mut dyn CopySink) -> Result<()> {
        self.0.copy_all(sink)
    }

    fn write_if(&self, conditions: &[Condition], batch: &Batch) -> Result<Commit> {
        // An empty batch only checks its conditions.
        if batch.ops.is_empty() { self.0.write_if(conditions, batch) } else { Err(Error::ReadOnly) }
    }

    fn write_if_ranges(&self, conditions: &[Condition], ranges: &[RangeCondition], batch: &Batch) -> Result<Commit> {
        if !batch.ops.is_empty() {
            return Err(Error::ReadOnly);
        }
        self.0.write_if_ranges(conditions, ranges, batch)
    }

    fn snapshot(&self) -> Result<Box<dyn Snapshot>> {
        self.0.snapshot()
    }

    fn len(&self) -> Result<u64> {
        self.0.len()
    }

    fn stats(&self) -> Stats {
        self.0.stats()
    }

    fn sync(&self) -> Result<()> {
        Err(Error::ReadOnly)
    }

    fn settle(&self) -> Result<()> {
        Err(Error::ReadOnly)
    }

    fn wait_recovered(&self) -> Result<()> {
        self.0.wait_recovered()
    }

    fn verify(&self, progress: &mut dyn FnMut(Progress)) -> Result<VerifyReport> {
        self.0.verify(progress)
    }

    fn close(&self) -> Result<()> {
        self.0.close()
    }
}
