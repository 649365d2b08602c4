//! Reopening: after a clean stop, and after the kill of a process in the middle of writes.
//!
//! One process makes and loads the store, and stops or is killed (SIGKILL); another opens it. What
//! the second measures: the open itself, the first get, gets while recovery goes on behind, and the
//! end of recovery. Then it reads back every record.

use std::time::Instant;

use hdrhistogram::Histogram;
use lodestore_contract::Result;
use serde::{Deserialize, Serialize};

use crate::args::Args;
use crate::cell::{self, Cell, Message, Task, Tell};
use crate::dist::Rng;
use crate::driver::{self, Drive};
use crate::measure::rss_anon;
use crate::store;
use crate::target::{StoreTarget, Target};
use crate::workload::{Mix, Workload};

/// Gets that are timed one by one right after the open.
const EARLY_GETS: u64 = 10_000;
/// The rng stream of these gets.
const EARLY_STREAM: u64 = u64::MAX;

/// What an opening process measures.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Reopened {
    /// Until `open` returned.
    pub(crate) open_s: f64,
    /// The first get after it.
    pub(crate) first_get_ns: u64,
    /// Latencies of the gets that follow, served while recovery goes on.
    pub(crate) p50_ns: u64,
    pub(crate) p90_ns: u64,
    pub(crate) p99_ns: u64,
    pub(crate) p999_ns: u64,
    pub(crate) p9999_ns: u64,
    pub(crate) max_ns: u64,
    /// From the beginning of `open` to the end of recovery.
    pub(crate) recovered_s: f64,
    /// Until the first scan was answered, from the beginning of `open`.
    pub(crate) first_scan_s: f64,
    /// Live keys after it.
    pub(crate) keys: u64,
    /// Records read back and found right.
    pub(crate) checked: u64,
    pub(crate) dram_bytes: Option<u64>,
    pub(crate) dram_fixed_bytes: u64,
    pub(crate) rss_anon_bytes: u64,
    pub(crate) medium_bytes: u64,
    pub(crate) medium_size_bytes: u64,
}

/// Makes and loads a store, and leaves it: closed, or in the middle of writes until killed.
///
/// # Errors
/// What the store meets.
pub(crate) fn leave(args: &Args, cell: &Cell, tell: Tell<'_>) -> Result<()> {
    let target = store::create(args, &cell.target, &cell.path, args.durability.unwrap_or_default())?;
    tell(Message::Facts(target.facts()))?;
    let mix = cell::mix(args);
    let drive = Drive { latency_every: 0, ..cell::drive(args) };
    driver::run(&target, &mix.streams(Workload::Load), &drive)?;
    target.catch_up()?;
    if cell.task == Task::StopCleanly {
        return target.close();
    }
    tell(Message::Writing)?;
    let updates = Mix { ops: args.op_count().min(1_000_000), ..mix }.streams(Workload::Update);
    loop {
        driver::run(&target, &updates, &drive)?;
    }
}

/// Opens what another process left, and measures.
///
/// # Errors
/// What the store meets; a record that is wrong or missing as [`lodestore_contract::Error::Corrupt`].
pub(crate) fn reopen(args: &Args, cell: &Cell, tell: Tell<'_>) -> Result<()> {
    let records = cell::records(args);
    let mut rng = Rng::new(args.seed, EARLY_STREAM);
    let mut early = Histogram::<u64>::new(3).expect("constant precision is valid");
    let (mut key, mut value) = (Vec::new(), Vec::with_capacity(records.value_most()));
    let rss = rss_anon();
    let options = store::open_options(args, &cell.target)?;
    let start = Instant::now();
    let store = lodestore::open(&cell.path, &options)?;
    let mut found = Reopened { open_s: start.elapsed().as_secs_f64(), ..Reopened::default() };
    for at in 0..EARLY_GETS {
        let record = rng.below(args.records) as u32;
        records.key(record, &mut key);
        let one = Instant::now();
        let there = store.get_into(&key, &mut value)?;
        let ns = u64::try_from(one.elapsed().as_nanos()).unwrap_or(u64::MAX);
        if !there || !records.belongs(&key, &value) {
            return Err(lodestore_contract::Error::corrupt(
                format!("record {record} of the bench"),
                "missing or wrong after reopening",
            ));
        }
        early.saturating_record(ns.max(1));
        if at == 0 {
            found.first_get_ns = ns;
        }
    }
    store.wait_recovered()?;
    found.recovered_s = start.elapsed().as_secs_f64();
    let target = StoreTarget::new(store, store::settings(args, &cell.target));
    target.catch_up()?;
    found.first_scan_s = start.elapsed().as_secs_f64();
    found.rss_anon_bytes = rss_anon().saturating_sub(rss);
    (found.p50_ns, found.p90_ns) = (early.value_at_quantile(0.5), early.value_at_quantile(0.9));
    found.p99_ns = early.value_at_quantile(0.99);
    (found.p999_ns, found.p9999_ns) = (early.value_at_quantile(0.999), early.value_at_quantile(0.9999));
    found.max_ns = early.max();
    finish(args, &target, &mut found)?;
    tell(Message::Reopened(found))?;
    target.close()
}

/// Takes the account and reads every record back.
fn finish(args: &Args, target: &StoreTarget, found: &mut Reopened) -> Result<()> {
    let account = target.account();
    found.dram_bytes = account.dram_bytes;
    found.dram_fixed_bytes = account.dram_fixed_bytes;
    found.medium_bytes = account.medium_bytes;
    found.medium_size_bytes = account.medium_size_bytes;
    found.keys = target.store().len()?;
    let mix = cell::mix(args);
    let mut streams = mix.room();
    mix.fill_with_reads_of_all(&mut streams);
    let outcome = driver::run(target, &streams, &Drive { latency_every: 0, ..cell::drive(args) })?;
    found.checked = outcome.ops;
    Ok(())
}
