//! The suite that every engine passes, over every medium.
//!
//! An engine's test gives a [`Harness`]: how to create, open, stop and clear a
//! store in a place of its own, and how to alter the bytes of its files while
//! it is stopped. [`conformance!`](crate::conformance!) then makes one `#[test]` a behaviour, so that what
//! fails has a name; [`outcomes`] runs them all in a row and tells the result of each.
//!
//! This module does no I/O: the harness does. What is random follows from one
//! seed, printed by each behaviour; `LODESTORE_SEED` (decimal, or hexadecimal after `0x`) replaces it.
//! Behaviours with threads are as repeatable as their interleaving is.
//!
//! ```text
//! struct Place { dir: TempDir }
//! impl Harness for Place { ... }                    // about 40 lines
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

/// How large a run is. The default takes some seconds over memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// Keys of a store that is "filled with many".
    pub keys: usize,
    /// Threads of the concurrent behaviours, at least 2.
    pub threads: usize,
    /// Operations of each thread.
    pub thread_ops: usize,
    /// Sequences that the model check draws.
    pub model_cases: u32,
    /// Most operations of such a sequence.
    pub model_ops: usize,
    /// Stores that are damaged, one after the other.
    pub damage_rounds: usize,
    /// Largest value written, in bytes (not counting [`sizes::value_of_a_gib`]).
    pub value_max: usize,
    /// Capacity of an ordinary store, in bytes.
    pub capacity: u64,
    /// Capacity of a store that is to become full, and of the many small ones, in bytes.
    pub capacity_small: u64,
    /// After this long a behaviour counts as hung.
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
    /// For media where each write waits for a device.
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

/// What an engine's test gives the suite: one place for one store at a time.
///
/// The place is empty at first, and is removed by the harness's `Drop`. Each
/// behaviour gets a harness of its own, so behaviours may run at the same time.
pub trait Harness: Send + Sync + 'static {
    /// The store under test.
    type S: Store + 'static;

    /// Engine, medium and variant, for messages.
    fn name(&self) -> String;

    /// The durability that its stores are opened with.
    fn durability(&self) -> Durability;

    /// Whether the medium keeps what is synced through a loss of power, so that `sync` must succeed.
    fn survives_power(&self) -> bool {
        self.durability() == Durability::Power
    }

    /// How large the run is.
    fn plan(&self) -> Plan {
        Plan::default()
    }

    /// Makes a store of this capacity and opens it. There is none in the place
    /// when the suite calls this, except to see it refused.
    ///
    /// # Errors
    /// The engine's.
    fn create(&self, capacity: u64) -> Result<Self::S>;

    /// Opens the store that is in the place.
    ///
    /// # Errors
    /// The engine's.
    fn open(&self) -> Result<Self::S>;

    /// Ends a store without closing it, as near to `kill -9` as can be had in one process.
    fn abandon(&self, store: Self::S) {
        drop(store);
    }

    /// Removes whatever is in the place. No store is open.
    fn clear(&self);

    /// Names of the store's files that carry data. No store is open.
    fn files(&self) -> Vec<String>;

    /// Reads a whole file, hands its bytes to `change`, and writes back what is left in them,
    /// with its length. No store is open.
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

/// One behaviour's run over one harness.
pub struct Case<H> {
    /// The place.
    pub harness: H,
    /// How large.
    pub plan: Plan,
    /// What everything random follows from.
    pub seed: u64,
}

impl<H: Harness> Case<H> {
    /// A case of this harness's own plan and the seed of this run.
    pub fn new(harness: H) -> Self {
        let plan = harness.plan();
        Self { harness, plan, seed: seed() }
    }

    /// A generator of this case's seed and `salt`.
    pub fn rng(&self, salt: u64) -> Rng {
        Rng::new(self.seed ^ salt.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// A fresh store of the ordinary capacity.
    pub fn create(&self) -> H::S {
        self.create_sized(self.plan.capacity)
    }

    /// A fresh store of this capacity.
    pub fn create_sized(&self, capacity: u64) -> H::S {
        self.harness.create(capacity).unwrap_or_else(|error| panic!("create in an empty place: {error}"))
    }

    /// Stops `store` and leaves its files.
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

/// The seed of this run: `LODESTORE_SEED`, or a fixed one.
///
/// # Panics
/// If the variable is set to no number.
pub fn seed() -> u64 {
    const FIXED: u64 = 0x10de_5702_e2b5_91c3;
    let Ok(text) = std::env::var("LODESTORE_SEED") else { return FIXED };
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.unwrap_or_else(|_| panic!("LODESTORE_SEED={text}: give a number, decimal or 0x and hexadecimal"))
}

/// What one behaviour came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The behaviour.
    pub name: &'static str,
    /// What failed, if it did.
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

/// Runs the behaviour of this name over `harness`.
///
/// # Panics
/// If it fails, or hangs, or if there is none of this name.
pub fn check<H: Harness>(name: &str, harness: H) {
    let behaviour = behaviours::<H>()
        .into_iter()
        .find(|behaviour| behaviour.name == name)
        .unwrap_or_else(|| panic!("there is no behaviour {name}"));
    println!("{name} over {}: LODESTORE_SEED={:#x}", harness.name(), seed());
    if let Err(payload) = attempt(&behaviour, harness) {
        // The text of one that hangs is told nowhere else.
        println!("{name}: {}", text_of(payload.as_ref()));
        std::panic::resume_unwind(payload);
    }
}

/// Runs every behaviour, each over a harness of its own, and tells what each came to.
/// The seed is not printed: it is [`seed`]'s.
pub fn outcomes<H: Harness>(make: impl Fn() -> H) -> Vec<Outcome> {
    behaviours::<H>().iter().map(|behaviour| outcome_of(behaviour, make())).collect()
}

/// Runs the behaviours of `names` in this order until one fails, and returns its outcome.
///
/// # Panics
/// If a name is not one of a behaviour.
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

/// Runs a behaviour on a thread of its own, so that one that hangs is named.
fn attempt<H: Harness>(behaviour: &Behaviour<H>, harness: H) -> thread::Result<()> {
    let case = Case::new(harness);
    let (name, run, patience) = (behaviour.name, behaviour.run, case.plan.patience);
    let (done, ended) = channel();
    let worker = thread::Builder::new()
        .name(name.into())
        .spawn(move || {
            run(&case);
            drop(case);
            // Nobody listens any more if the patience ran out in this moment.
            let _ = done.send(());
        })
        .map_err(|error| Box::new(format!("no thread to run on: {error}")) as Box<dyn Any + Send>)?;
    match ended.recv_timeout(patience) {
        Err(RecvTimeoutError::Timeout) => Err(Box::new(format!("{name} hangs: not done after {patience:?}"))),
        Ok(()) | Err(RecvTimeoutError::Disconnected) => worker.join(),
    }
}

/// The message of a panic, where it has one.
fn text_of(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<String>().cloned();
    text.or_else(|| payload.downcast_ref::<&str>().map(|text| (*text).into()))
        .unwrap_or_else(|| "a panic without text".into())
}
