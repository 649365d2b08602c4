//! Reopening: after a clean stop, and after a kill of a process during writes.
//!
//! A first process creates and loads the store, and stops or is killed (SIGKILL; a server is killed
//! first). A second process opens it and measures the open, the first get, and gets during
//! background recovery. A separate thread measures the end of recovery and the first scan after it.
//! Then the process reads back every record: each is present, in some version.
//!
//! Engines and peers are left and opened in the same way. A peer has recovered when its open
//! returns. Whether a peer is opened again after a kill depends on its declared durability
//! ([`crate::peers::survives_kill`]).

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use lodestore_contract::{Error, Result};
use serde::{Deserialize, Serialize};

use crate::args::Args;
use crate::procfs::{Processes, rss_anon};
use crate::run::cell::{self, Cell, Message, Task, Tell, broken};
use crate::run::driver::{self, Drive};
use crate::run::outcome::histogram;
use crate::run::store;
use crate::target::Target;
use crate::workload::Workload;
use crate::workload::dist::Rng;
use crate::workload::keys::Records;
use crate::workload::stream::Mix;

/// Number of gets that are timed individually right after the open.
pub(crate) const EARLY_GET_COUNT: u64 = 10_000;
/// The rng stream of these gets.
const EARLY_STREAM_ID: u64 = u64::MAX;

/// Prefix of the names of the kinds of reopening.
pub(crate) const REOPENING: &str = "reopen-";
/// The kinds of reopening, and how the previous process leaves the store.
pub(crate) const KINDS: [(&str, Task); 2] =
    [("reopen-clean", Task::StopCleanly), ("reopen-kill", Task::WriteUntilKilled)];

/// The measurements of an opening process.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Reopened {
    /// Time until `open` returned.
    pub(crate) open_s: f64,
    /// Latency of the first get after it.
    pub(crate) first_get_ns: u64,
    /// Latencies of the following gets, served during recovery.
    pub(crate) p50_ns: u64,
    pub(crate) p90_ns: u64,
    pub(crate) p99_ns: u64,
    pub(crate) p999_ns: u64,
    pub(crate) p9999_ns: u64,
    pub(crate) max_ns: u64,
    /// Time from the beginning of `open` to the end of recovery; for a peer, to the end of `open`.
    pub(crate) recovered_s: f64,
    /// Time from the beginning of `open` to the result of the first scan after recovery. For a
    /// store without order, to the end of the gets.
    pub(crate) first_scan_s: f64,
    /// Live keys after it. For a store that does not count them, the keys read back.
    pub(crate) keys: u64,
    /// Records read back and correct.
    pub(crate) checked: u64,
    pub(crate) dram_bytes: Option<u64>,
    pub(crate) dram_fixed_bytes: u64,
    pub(crate) rss_anon_bytes: u64,
    pub(crate) medium_bytes: u64,
    pub(crate) medium_size_bytes: u64,
}

/// Creates and loads a store, and leaves it: closed, or during writes until killed.
///
/// # Errors
/// Errors of the store.
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
    // Enough updates for the kill to come during them, and not when they restart.
    let updates = Mix { ops: args.op_count().max(args.records).min(1_000_000), ..mix }.streams(Workload::Update);
    loop {
        driver::run(&*target, &updates, &drive)?;
    }
}

/// Opens a store that another process left, and measures.
///
/// # Errors
/// Errors of the store; a wrong or missing record as [`Error::Corrupt`].
pub(crate) fn reopen(args: &Args, cell: &Cell, tell: Tell<'_>) -> Result<()> {
    let rss = rss_anon();
    let (target, took) = store::open_again(args, cell)?;
    let (mut found, early) = serve_at_once(args, &*target, took)?;
    found.rss_anon_bytes = Processes::of(&*target).rss_anon().saturating_sub(rss);
    (found.p50_ns, found.p90_ns) = (early.value_at_quantile(0.5), early.value_at_quantile(0.9));
    found.p99_ns = early.value_at_quantile(0.99);
    (found.p999_ns, found.p9999_ns) = (early.value_at_quantile(0.999), early.value_at_quantile(0.9999));
    found.max_ns = early.max();
    finish(args, &*target, &mut found)?;
    tell(Message::Reopened(found))?;
    target.close()
}

/// Gets records from a store that was just opened, in the time `took`, and waits for its recovery
/// meanwhile. Returns the results, and the latencies of the gets.
fn serve_at_once(args: &Args, target: &dyn Target, took: Duration) -> Result<(Reopened, Histogram<u64>)> {
    let records = cell::records(args);
    // Times count from the beginning of the open.
    let opened = Instant::now();
    let since = || (took + opened.elapsed()).as_secs_f64();
    let mut found = Reopened { open_s: took.as_secs_f64(), ..Reopened::default() };
    let (early, behind) = std::thread::scope(|scope| {
        // Runs concurrently with the gets and is not part of their time.
        let behind = scope.spawn(|| wait_behind(target, &since));
        let early = early_gets(args, target, &records, &mut found);
        (early, behind.join())
    });
    let (early, behind) = (early?, behind.map_err(|_| broken("waiting for recovery", "its thread ended early"))??);
    found.recovered_s = behind.recovered_s.unwrap_or(found.open_s);
    found.first_scan_s = behind.first_scan_s.unwrap_or_else(since);
    Ok((found, early))
}

/// Times of background work after an open, during the gets.
struct Behind {
    /// End of the recovery; `None` for a store without background recovery.
    recovered_s: Option<f64>,
    /// End of the first scan; `None` for a store without order.
    first_scan_s: Option<f64>,
}

/// Waits for the end of recovery, and then scans.
fn wait_behind(target: &dyn Target, since: &(dyn Fn() -> f64 + Sync)) -> Result<Behind> {
    let recovered_s = target.wait_recovered()?.then(since);
    target.catch_up()?;
    let ordered = target.ordered();
    if ordered {
        target.scan(&[], 1, &mut |_, _| ())?;
    }
    Ok(Behind { recovered_s, first_scan_s: ordered.then(since) })
}

/// Gets records one by one, each timed, and records the first time.
fn early_gets(args: &Args, target: &dyn Target, records: &Records, found: &mut Reopened) -> Result<Histogram<u64>> {
    let mut rng = Rng::new(args.seed, EARLY_STREAM_ID);
    let mut early = histogram();
    let (mut key, mut value) = (Vec::new(), Vec::with_capacity(records.value_most()));
    for at in 0..EARLY_GET_COUNT {
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

/// Records the statistics and reads every record back.
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
    // Each record was present. A store that counts its keys reports whether there are others.
    found.keys = target.keys()?.unwrap_or(found.checked);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::{Condvar, Mutex, PoisonError};

    use super::*;
    use crate::args::parsed;
    use crate::peers::{self, Asked};
    use crate::target::{Account, Facts};

    /// A store that answers no get before a thread waits for its recovery.
    struct Recovers {
        store: Box<dyn Target>,
        waited: (Mutex<bool>, Condvar),
    }

    impl Target for Recovers {
        fn facts(&self) -> Facts {
            self.store.facts()
        }

        fn account(&self) -> Account {
            self.store.account()
        }

        fn wait_recovered(&self) -> Result<bool> {
            *self.waited.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
            self.waited.1.notify_all();
            Ok(true)
        }

        fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
            let waited = self.waited.0.lock().unwrap_or_else(PoisonError::into_inner);
            let long = Duration::from_secs(20);
            let (waited, _) = self
                .waited
                .1
                .wait_timeout_while(waited, long, |waited| !*waited)
                .unwrap_or_else(PoisonError::into_inner);
            if *waited { self.store.get(key, value) } else { Ok(false) }
        }

        fn multi_get(&self, keys: &[&[u8]], each: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()> {
            self.store.multi_get(keys, each)
        }

        fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
            self.store.put(key, value)
        }

        fn update(&self, key: &[u8], value: &[u8]) -> Result<bool> {
            self.store.update(key, value)
        }

        fn delete(&self, key: &[u8]) -> Result<bool> {
            self.store.delete(key)
        }

        fn scan(&self, from: &[u8], limit: usize, each: &mut dyn FnMut(&[u8], &[u8])) -> Result<usize> {
            self.store.scan(from, limit, each)
        }

        fn catch_up(&self) -> Result<()> {
            self.store.catch_up()
        }

        fn settle(&self) -> Result<()> {
            self.store.settle()
        }

        fn close(&self) -> Result<()> {
            self.store.close()
        }
    }

    #[test]
    fn recovery_is_waited_for_while_gets_are_served() {
        let args = parsed("--engine btreemap --records 50");
        let store = peers::open("btreemap", Path::new(""), &Asked::default()).expect("a map");
        driver::run(&*store, &cell::mix(&args).streams(Workload::Load), &cell::drive(&args)).expect("loaded");
        let store = Recovers { store, waited: (Mutex::new(false), Condvar::new()) };
        let (found, early) = serve_at_once(&args, &store, Duration::from_secs(3)).expect("every get is answered");
        assert_eq!(early.len(), EARLY_GET_COUNT);
        assert!(found.open_s <= found.recovered_s && found.recovered_s <= found.first_scan_s, "{found:?}");
    }
}
