//! The exploration: scripts on worker threads, each script on its own store.
//!
//! The exploration of a script depends only on the seed and its index, not on its thread.

mod check;
mod run;

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lodestore_media::sim::{LineModel, Verb};

use crate::config::{Config, DEPTH_MAX};
use crate::counts::Counts;
use crate::failure::{Failure, Saved};
use crate::faults::named;
use crate::oracle::Wrong;
use crate::script::{self, Script};
use crate::subject::Engine;

pub use check::Checker;
pub use run::run_script;

/// Number of executions of each flush and fence of the source, by verb, file and line.
pub type Sites = std::collections::BTreeMap<(Verb, &'static str, u32), u64>;

/// The result of an exploration.
#[derive(Debug)]
pub struct Report {
    /// The counts.
    pub counts: Counts,
    /// Call sites of flushes and fences.
    pub sites: Sites,
    /// The first failure met, if any.
    pub failure: Option<Box<Failure>>,
    /// Elapsed time.
    pub took: Duration,
}

/// State shared by the workers.
pub struct Shared {
    images: AtomicU64,
    stop: AtomicBool,
    image_limit: u64,
    deadline: Option<Instant>,
}

impl Shared {
    /// Returns the state for an exploration with these bounds.
    pub fn new(config: &Config) -> Self {
        let deadline = (config.seconds > 0).then(|| Instant::now() + Duration::from_secs(config.seconds));
        Self { images: AtomicU64::new(0), stop: AtomicBool::new(false), image_limit: config.images, deadline }
    }

    fn count_image(&self) {
        self.images.fetch_add(1, Ordering::Relaxed);
    }

    fn images(&self) -> u64 {
        self.images.load(Ordering::Relaxed)
    }

    /// Whether a bound is reached or a worker failed.
    pub fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
            || self.images() >= self.image_limit
            || self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }
}

/// Random scripts between two rounds of the hand-written ones.
const RANDOM_SCRIPT_COUNT: u64 = 16;

/// Returns the script of an index: the hand-written ones, then some random ones, and again, each
/// time with other keys and values.
pub fn script_at(seed: u64, index: u64) -> Script {
    let mut by_hand = script::by_hand(seed, 0);
    let period = by_hand.len() as u64 + RANDOM_SCRIPT_COUNT;
    let (round, place) = (index / period, (index % period) as usize);
    if place >= by_hand.len() {
        return script::random(seed, index);
    }
    if round > 0 {
        by_hand = script::by_hand(seed, round);
    }
    by_hand.swap_remove(place)
}

/// Returns the script of an index for this engine. An engine's own scripts are every second one, or
/// all of them.
pub fn script_of(engine: &dyn Engine, seed: u64, index: u64) -> Script {
    let mut own = engine.scripts(seed, 0);
    if own.is_empty() {
        return script_at(seed, index);
    }
    let count = own.len() as u64;
    let turn = if engine.has_own_scripts_only() { index } else { index / 2 };
    if turn != index && index % 2 == 1 {
        return script_at(seed, turn);
    }
    if turn >= count {
        own = engine.scripts(seed, turn / count);
    }
    own.swap_remove((turn % count) as usize)
}

/// Explores `engine` until a bound of `config` is reached or something fails.
pub fn explore(engine: &dyn Engine, config: &Config) -> Report {
    let started = Instant::now();
    let shared = Shared::new(config);
    let next = AtomicU64::new(0);
    let total =
        Mutex::new(Report { counts: Counts::default(), sites: Sites::new(), failure: None, took: Duration::ZERO });
    thread::scope(|scope| {
        for _ in 0..config.threads.max(1) {
            scope.spawn(|| worker(engine, config, &shared, &next, &total));
        }
    });
    let mut report = total.into_inner().unwrap_or_else(PoisonError::into_inner);
    report.took = started.elapsed();
    report
}

fn worker(engine: &dyn Engine, config: &Config, shared: &Shared, next: &AtomicU64, total: &Mutex<Report>) {
    while !shared.is_over() {
        let turn = next.fetch_add(1, Ordering::Relaxed);
        let index = match config.only_script {
            None => turn,
            Some(index) if turn == 0 => index,
            Some(_) => return,
        };
        let script = script_of(engine, config.seed, index);
        let (counts, sites, result) = run_script(engine, config, &script, index, shared);
        let mut total = total.lock().unwrap_or_else(PoisonError::into_inner);
        total.counts.add(&counts);
        for (site, count) in sites {
            *total.sites.entry(site).or_default() += count;
        }
        if let Err(failure) = result {
            shared.stop.store(true, Ordering::Relaxed);
            total.failure.get_or_insert(failure);
        }
    }
}

/// Opens a saved image once more and judges it.
///
/// # Errors
///
/// The judgement, if it still fails.
pub fn replay(engine: &dyn Engine, saved: &Saved) -> Result<(), Wrong> {
    let config = Config { seed: saved.seed, ..Config::default() };
    let mut image = saved.image.clone();
    image.spec.mutant = saved.fault.as_deref().and_then(|name| named(engine, name));
    let model = LineModel::new(image.clone());
    let set = model.crash_set();
    let hash = set.hash(&set.all_old());
    let shared = Shared::new(&config);
    let mut checker = Checker::new(engine, &config, &shared, saved.shape, &saved.universe);
    let allowed: Vec<_> = saved.allowed.iter().collect();
    checker
        .check(&image, hash, &allowed, saved.may_be_missing, saved.depth.clamp(1, DEPTH_MAX))
        .map_err(|failed| failed.wrong)
}
