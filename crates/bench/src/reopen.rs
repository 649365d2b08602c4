//! Reopening: after a clean stop, and after the kill of a process in the middle of writes.
//!
//! One process makes and loads the store, and stops or is killed (SIGKILL; a server is killed first); another opens it. What
//! the second measures: the open itself, the first get, gets while recovery goes on behind, and the
//! end of recovery. Then it reads back every record: each is there, in some version.
//!
//! Engines and peers are left and opened in the same way. A peer has recovered when its open returns; whether a peer is opened again
//! after a kill goes by what it says that an acknowledged write survives ([`crate::peers::survives_kill`]).

use std::time::Instant;

use hdrhistogram::Histogram;
use lodestore_contract::{Error, Result};
use serde::{Deserialize, Serialize};

use crate::args::Args;
use crate::cell::{self, Cell, Message, Task, Tell};
use crate::dist::Rng;
use crate::driver::{self, Drive};
use crate::keys::Records;
use crate::measure::{Processes, rss_anon};
use crate::store;
use crate::target::Target;
use crate::workload::{Mix, Workload};

/// Gets that are timed one by one right after the open.
const EARLY_GETS: u64 = 10_000;
/// Longest latency that is told apart, in ns: 100 s.
const LATENCY_MOST: u64 = 100_000_000_000;
/// The rng stream of these gets.
const EARLY_STREAM: u64 = u64::MAX;

/// How the names of the kinds of reopening begin.
pub(crate) const REOPENING: &str = "reopen-";
/// The kinds of reopening, and how the process before leaves the store.
pub(crate) const KINDS: [(&str, Task); 2] =
    [("reopen-clean", Task::StopCleanly), ("reopen-kill", Task::WriteUntilKilled)];

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
    /// From the beginning of `open` to the end of recovery; of a peer, to the end of `open`.
    pub(crate) recovered_s: f64,
    /// Until the first scan was answered, from the beginning of `open`; of a store without an order, until the gets were.
    pub(crate) first_scan_s: f64,
    /// Live keys after it; of a store that does not count them, those read back.
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
    let target = store::make(args, cell)?;
    tell(Message::Facts(store::facts(args, cell, &*target)))?;
    let mix = cell::mix(args);
    let drive = Drive { latency_every: 0, ..cell::drive(args) };
    driver::run(&*target, &mix.streams(Workload::Load), &drive)?;
    target.catch_up()?;
    if cell.task == Task::StopCleanly {
        return target.close();
    }
    tell(Message::Writing(target.server()))?;
    let updates = Mix { ops: args.op_count().min(1_000_000), ..mix }.streams(Workload::Update);
    loop {
        driver::run(&*target, &updates, &drive)?;
    }
}

/// Opens what another process left, and measures.
///
/// # Errors
/// What the store meets; a record that is wrong or missing as [`Error::Corrupt`].
pub(crate) fn reopen(args: &Args, cell: &Cell, tell: Tell<'_>) -> Result<()> {
    let records = cell::records(args);
    let rss = rss_anon();
    let (target, took) = store::open_again(args, cell)?;
    // From when its own open began.
    let opened = Instant::now();
    let since = || took + opened.elapsed();
    let mut found = Reopened { open_s: took.as_secs_f64(), recovered_s: took.as_secs_f64(), ..Reopened::default() };
    let early = early_gets(args, &*target, &records, &mut found)?;
    if target.wait_recovered()? {
        found.recovered_s = since().as_secs_f64();
    }
    target.catch_up()?;
    if target.ordered() {
        target.scan(&[], 1, &mut |_, _| ())?;
    }
    found.first_scan_s = since().as_secs_f64();
    found.rss_anon_bytes = Processes::of(&*target).rss_anon().saturating_sub(rss);
    (found.p50_ns, found.p90_ns) = (early.value_at_quantile(0.5), early.value_at_quantile(0.9));
    found.p99_ns = early.value_at_quantile(0.99);
    (found.p999_ns, found.p9999_ns) = (early.value_at_quantile(0.999), early.value_at_quantile(0.9999));
    found.max_ns = early.max();
    finish(args, &*target, &mut found)?;
    tell(Message::Reopened(found))?;
    target.close()
}

/// Gets records one by one, each timed, and takes down the first.
fn early_gets(args: &Args, target: &dyn Target, records: &Records, found: &mut Reopened) -> Result<Histogram<u64>> {
    let mut rng = Rng::new(args.seed, EARLY_STREAM);
    // With bounds: without, the highest that it tells apart is 2 us.
    let mut early = Histogram::new_with_bounds(1, LATENCY_MOST, 3).expect("constant bounds are valid");
    let (mut key, mut value) = (Vec::new(), Vec::with_capacity(records.value_most()));
    for at in 0..EARLY_GETS {
        let record = rng.below(args.records) as u32;
        records.key(record, &mut key);
        let one = Instant::now();
        let there = target.get(&key, &mut value)?;
        let ns = u64::try_from(one.elapsed().as_nanos()).unwrap_or(u64::MAX);
        if !there || !records.belongs(&key, &value) {
            let record = format!("record {record} of the bench");
            return Err(Error::corrupt(record, "missing or wrong after reopening"));
        }
        early.saturating_record(ns.max(1));
        if at == 0 {
            found.first_get_ns = ns;
        }
    }
    Ok(early)
}

/// Takes the account and reads every record back.
fn finish(args: &Args, target: &dyn Target, found: &mut Reopened) -> Result<()> {
    let account = target.account();
    found.dram_bytes = account.dram_bytes;
    found.dram_fixed_bytes = account.dram_fixed_bytes;
    found.medium_bytes = account.medium_bytes;
    found.medium_size_bytes = account.medium_size_bytes;
    let mix = cell::mix(args);
    let mut streams = mix.room(0);
    mix.fill_with_reads_of_all(&mut streams);
    let outcome = driver::run(target, &streams, &Drive { latency_every: 0, ..cell::drive(args) })?;
    found.checked = outcome.counts.ops;
    // Each was there; a store that counts its keys says whether there are others.
    found.keys = target.keys()?.unwrap_or(found.checked);
    Ok(())
}
