//! The conformance suite, which every engine passes on every medium.
//!
//! An engine's test implements a [`Harness`]: how to create, open, stop and clear a store in its
//! own place, and how to alter the bytes of its files while it is stopped.
//! [`conformance!`](crate::conformance!) then generates one `#[test]` per behaviour, so each
//! failure has a name. [`outcomes`] runs all behaviours in sequence and returns the result of each.
//!
//! This module does no I/O; the harness does. Everything random derives from one seed, printed by
//! each behaviour. `LODESTORE_SEED` (decimal, or hexadecimal after `0x`) replaces the seed.
//! Behaviours with threads are as repeatable as their interleaving.
//!
//! ```text
//! struct Place { dir: TempDir }
//! impl Harness for Place { ... }     // about 40 lines
//! fn shm() -> Place { ... }
//! mod over_shm { lodestore_contract::conformance!(super::shm); }
//! ```

use std::any::Any;
use std::fmt;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::{Durability, Result, Store};

mod check;
mod data;
mod registry;

pub mod accounts;
pub mod batches;
pub mod conditions;
pub mod copies;
pub mod damage;
pub mod expiring;
pub mod full;
pub mod groups;
pub mod lifecycle;
pub mod model;
pub mod points;
pub mod range_conditions;
pub mod readers;
pub mod scans;
pub mod sizes;
pub mod swaps;
pub mod threads;

pub use check::{Pairs, assert_holds, assert_sees, assert_sound};
pub use data::{Rng, version_of, versioned};
pub use registry::{Behaviour, behaviours};

/// The size of a run. The default needs some seconds in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// Keys of a store with many keys.
    pub keys: usize,
    /// Threads of the concurrent behaviours, at least 2.
    pub threads: usize,
    /// Operations of each thread.
    pub thread_ops: usize,
    /// Sequences that the model check generates.
    pub model_cases: u32,
    /// Maximum number of operations of such a sequence.
    pub model_ops: usize,
    /// Stores that are damaged, one after the other.
    pub damage_rounds: usize,
    /// Largest value written, in bytes (not counting [`sizes::value_of_a_gib`]).
    pub value_max: usize,
    /// Capacity of an ordinary store, in bytes.
    pub capacity: u64,
    /// Capacity of a store that is to become full, and of the many small stores, in bytes.
    pub capacity_small: u64,
    /// Time after which a behaviour counts as hung.
    pub patience: Duration,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            keys: 2000,
            threads: 4,
            thread_ops: 2000,
            model_cases: 40,
            model_ops: 80,
            damage_rounds: 33,
            value_max: 64 << 20,
            capacity: 64 << 20,
            capacity_small: 8 << 20,
            patience: Duration::from_secs(300),
        }
    }
}

impl Plan {
    /// Returns a plan for media where each write waits for a device.
    pub fn small() -> Self {
        Self {
            keys: 200,
            threads: 3,
            thread_ops: 100,
            model_cases: 8,
            model_ops: 40,
            damage_rounds: 11,
            value_max: 1 << 20,
            capacity: 32 << 20,
            ..Self::default()
        }
    }
}

/// An engine's interface to the suite: a place for one store at a time.
///
/// The place is empty at first; the harness's `Drop` removes it. Each behaviour has its own
/// harness, so behaviours may run concurrently.
pub trait Harness: Send + Sync + 'static {
    /// The store under test.
    type S: Store + 'static;

    /// Returns engine, medium and variant, for messages.
    fn name(&self) -> String;

    /// Returns the durability with which the stores are opened.
    fn durability(&self) -> Durability;

    /// Returns whether synced data survives power loss on this medium, so that `sync` must succeed.
    fn survives_power(&self) -> bool {
        self.durability() == Durability::Power
    }

    /// Returns the size of the run.
    fn plan(&self) -> Plan {
        Plan::default()
    }

    /// Creates a store of this capacity and opens it. The place has no store when the suite calls
    /// this, except to check the refusal.
    ///
    /// # Errors
    /// Those of the engine.
    fn create(&self, capacity: u64) -> Result<Self::S>;

    /// Opens the store in the place.
    ///
    /// # Errors
    /// Those of the engine.
    fn open(&self) -> Result<Self::S>;

    /// Ends a store without closing it, as close to `kill -9` as possible within one process.
    fn abandon(&self, store: Self::S) {
        drop(store);
    }

    /// Removes everything in the place. No store is open.
    fn clear(&self);

    /// Returns the names of the store's files that hold data. No store is open.
    fn files(&self) -> Vec<String>;

    /// Reads a whole file, passes its bytes to `change`, and writes the changed bytes back, with
    /// their new length. No store is open.
    fn alter(&self, file: &str, change: &mut dyn FnMut(&mut Vec<u8>));
}

/// How a store is stopped before it is opened again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// By `close`.
    Clean,
    /// Without it.
    Crash,
}

/// The run of one behaviour with one harness.
pub struct Case<H> {
    /// The place.
    pub harness: H,
    /// The size of the run.
    pub plan: Plan,
    /// The seed of everything random.
    pub seed: u64,
}

impl<H: Harness> Case<H> {
    /// Creates a case with the harness's plan and the seed of this run.
    pub fn new(harness: H) -> Self {
        let plan = harness.plan();
        Self { harness, plan, seed: seed() }
    }

    /// Returns a generator seeded with this case's seed and `salt`.
    pub fn rng(&self, salt: u64) -> Rng {
        Rng::new(self.seed ^ salt.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// Creates a store of the ordinary capacity.
    pub fn create(&self) -> H::S {
        self.create_sized(self.plan.capacity)
    }

    /// Creates a store of this capacity.
    pub fn create_sized(&self, capacity: u64) -> H::S {
        self.harness.create(capacity).unwrap_or_else(|error| panic!("create in an empty place: {error}"))
    }

    /// Stops `store` and keeps its files.
    pub fn stop(&self, store: H::S, how: Stop) {
        match how {
            Stop::Clean => {
                store.close().unwrap_or_else(|error| panic!("close: {error}"));
                drop(store);
            }
            Stop::Crash => self.harness.abandon(store),
        }
    }

    /// Stops `store` and opens it again.
    pub fn reopen(&self, store: H::S, how: Stop) -> H::S {
        self.stop(store, how);
        self.harness.open().unwrap_or_else(|error| panic!("open after a stop ({how:?}): {error}"))
    }

    /// Stops `store` and removes it.
    pub fn discard(&self, store: H::S) {
        self.harness.abandon(store);
        self.harness.clear();
    }
}

/// Returns the seed of this run: `LODESTORE_SEED`, or a fixed seed.
///
/// # Panics
/// If the variable is set but not a number.
pub fn seed() -> u64 {
    const FIXED_SEED: u64 = 0x10de_5702_e2b5_91c3;
    let Ok(text) = std::env::var("LODESTORE_SEED") else { return FIXED_SEED };
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.unwrap_or_else(|_| panic!("LODESTORE_SEED={text}: give a number, decimal or 0x and hexadecimal"))
}

/// The result of one behaviour.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The behaviour.
    pub name: &'static str,
    /// The failure, if the behaviour failed.
    pub failure: Option<String>,
    /// How long it ran.
    pub took: Duration,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.failure {
            None => write!(f, "ok    {:6} ms  {}", self.took.as_millis(), self.name),
            Some(failure) => write!(f, "FAILS {:6} ms  {}: {failure}", self.took.as_millis(), self.name),
        }
    }
}

/// Runs the named behaviour with `harness`.
///
/// # Panics
/// If the behaviour fails, hangs, or does not exist.
pub fn check<H: Harness>(name: &str, harness: H) {
    let behaviour = behaviours::<H>()
        .into_iter()
        .find(|behaviour| behaviour.name == name)
        .unwrap_or_else(|| panic!("there is no behaviour {name}"));
    println!("{name} over {}: LODESTORE_SEED={:#x}", harness.name(), seed());
    if let Err(payload) = attempt(&behaviour, harness) {
        // The text of a hanging behaviour is reported nowhere else.
        println!("{name}: {}", text_of(payload.as_ref()));
        std::panic::resume_unwind(payload);
    }
}

/// Runs every behaviour, each with its own harness, and returns the results. Does not print the
/// seed ([`seed`]).
pub fn outcomes<H: Harness>(make: impl Fn() -> H) -> Vec<Outcome> {
    behaviours::<H>().iter().map(|behaviour| outcome_of(behaviour, make())).collect()
}

/// Runs the behaviours of `names` in this order until one fails, and returns its outcome.
///
/// # Panics
/// If a name is not the name of a behaviour.
pub fn first_failure<H: Harness>(names: &[&str], make: impl Fn() -> H) -> Option<Outcome> {
    let behaviours = behaviours::<H>();
    let named = |name: &str| {
        let behaviour = behaviours.iter().find(|behaviour| behaviour.name == name);
        behaviour.unwrap_or_else(|| panic!("{name} is not a behaviour"))
    };
    names.iter().map(|name| outcome_of(named(name), make())).find(|outcome| outcome.failure.is_some())
}

fn outcome_of<H: Harness>(behaviour: &Behaviour<H>, harness: H) -> Outcome {
    let start = Instant::now();
    let failure = attempt(behaviour, harness).err().map(|payload| text_of(payload.as_ref()));
    Outcome { name: behaviour.name, failure, took: start.elapsed() }
}

/// Runs a behaviour on a separate thread, so that a hanging behaviour is named.
fn attempt<H: Harness>(behaviour: &Behaviour<H>, harness: H) -> thread::Result<()> {
    let case = Case::new(harness);
    let (name, run, patience) = (behaviour.name, behaviour.run, case.plan.patience);
    let (done, ended) = channel();
    let worker = thread::Builder::new()
        .name(name.into())
        .spawn(move || {
            run(&case);
            drop(case);
            // The receiver is gone if the patience ended at this moment.
            let _ = done.send(());
        })
        .map_err(|error| Box::new(format!("no thread to run on: {error}")) as Box<dyn Any + Send>)?;
    match ended.recv_timeout(patience) {
        Err(RecvTimeoutError::Timeout) => Err(Box::new(format!("{name} hangs: not done after {patience:?}"))),
        Ok(()) | Err(RecvTimeoutError::Disconnected) => worker.join(),
    }
}

/// Returns the message of a panic, if it has one.
fn text_of(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<String>().cloned();
    text.or_else(|| payload.downcast_ref::<&str>().map(|text| (*text).into()))
        .unwrap_or_else(|| "a panic without text".into())
}
