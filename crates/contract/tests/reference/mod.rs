//! A store in memory that fulfils the contract, and a list of ways to break it.
//!
//! The store tests the suite: unmodified it must pass, and with any one [`Flaw`] it must fail.

mod disk;
mod flaw;
mod ops;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use lodestore_contract::conformance::{Harness, Plan};
use lodestore_contract::{Capabilities, Durability, Error, Expiry, Finding, Result};

pub use disk::Disk;
pub use flaw::Flaw;

/// A value and its expiry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    pub value: Vec<u8>,
    pub expiry: Option<Expiry>,
}

/// The state of an open store. Only the owned scans of some flaws share it.
#[derive(Debug, Default)]
pub struct State {
    pub map: BTreeMap<Vec<u8>, Record>,
    pub findings: Vec<Finding>,
    pub closed: bool,
    pub bytes_written: u64,
    /// Bytes in use; 0 if not counted yet.
    pub used: u64,
    /// The last key put and the record that it replaced, for flaws that lose it.
    pub last_put: Option<(Vec<u8>, Option<Record>)>,
    /// The last deleted key and its record.
    pub last_deleted: Option<(Vec<u8>, Record)>,
    /// The last key that a batch put, for a flaw that loses it.
    pub batch_end: Option<Vec<u8>>,
    pub puts: u64,
    pub capacity: u64,
}

/// The engine: a map with a lock, written to its [`Disk`] when the store stops.
pub struct Reference {
    pub state: Arc<Mutex<State>>,
    disk: Arc<Disk>,
    flaw: Option<Flaw>,
    ordered: bool,
}

impl Reference {
    /// Returns the state, unless the store is closed.
    fn open_state(&self) -> Result<MutexGuard<'_, State>> {
        let state = self.state();
        if state.closed && !self.has(Flaw::ClosedStillReads) { Err(Error::Closed) } else { Ok(state) }
    }

    /// Returns the state, even after a panic of a closure under the lock.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn has(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    /// Applies the flaws that appear in a crash to the map.
    fn crash(&self, state: &mut State) {
        match self.flaw {
            Some(Flaw::CrashLosesLastPut) => match state.last_put.take() {
                Some((key, Some(old))) => drop(state.map.insert(key, old)),
                Some((key, None)) => drop(state.map.remove(&key)),
                None => {}
            },
            Some(Flaw::BatchEndsAtCrash) => {
                let last = state.batch_end.take();
                last.iter().for_each(|key| drop(state.map.remove(key)));
            }
            Some(Flaw::CrashBringsBackLastDelete) => {
                let last = state.last_deleted.take();
                state.map.extend(last);
            }
            _ => {}
        }
    }

    fn stop(&self, clean: bool) {
        let mut state = self.state();
        if !state.closed {
            state.closed = true;
            if !clean {
                self.crash(&mut state);
            }
            if self.has(Flaw::CloseForgetsExpiry) && clean {
                state.map.values_mut().for_each(|record| record.expiry = None);
            }
            self.disk.store(&state.map, state.capacity);
        }
    }
}

impl Drop for Reference {
    fn drop(&mut self) {
        self.stop(false);
    }
}

/// A place for one reference store.
pub struct Place {
    pub disk: Arc<Disk>,
    pub flaw: Option<Flaw>,
    pub ordered: bool,
    pub plan: Plan,
}

impl Place {
    pub fn new(flaw: Option<Flaw>) -> Self {
        Self { disk: Arc::default(), flaw, ordered: true, plan: Plan::default() }
    }

    fn reference(&self, map: BTreeMap<Vec<u8>, Record>, findings: Vec<Finding>, capacity: u64) -> Reference {
        let state = Arc::new(Mutex::new(State { map, findings, capacity, ..State::default() }));
        Reference { state, disk: Arc::clone(&self.disk), flaw: self.flaw, ordered: self.ordered }
    }
}

impl Harness for Place {
    type S = Reference;

    fn name(&self) -> String {
        match self.flaw {
            None => "reference, in memory".into(),
            Some(flaw) => format!("reference with the flaw {flaw:?}"),
        }
    }

    fn durability(&self) -> Durability {
        Durability::Process
    }

    fn plan(&self) -> Plan {
        self.plan
    }

    fn create(&self, capacity: u64) -> Result<Reference> {
        if self.flaw != Some(Flaw::CreateOverwrites) {
            self.disk.claim_empty()?;
        }
        self.disk.store_open(capacity);
        Ok(self.reference(BTreeMap::new(), Vec::new(), capacity))
    }

    fn open(&self) -> Result<Reference> {
        if self.flaw == Some(Flaw::OpenMakesAStore) && self.disk.claim_empty().is_ok() {
            return self.create(1 << 20);
        }
        let (map, findings, capacity) = self.disk.load(self.flaw)?;
        Ok(self.reference(map, findings, capacity))
    }

    fn clear(&self) {
        self.disk.clear();
    }

    fn files(&self) -> Vec<String> {
        vec!["image".into()]
    }

    fn alter(&self, _file: &str, change: &mut dyn FnMut(&mut Vec<u8>)) {
        self.disk.alter(change);
    }
}

/// Returns the capabilities of the reference store.
pub fn capabilities(ordered: bool) -> Capabilities {
    Capabilities {
        scan: ordered,
        batch: true,
        range_conditions: ordered,
        snapshot: ordered,
        expiry: true,
        power: false,
        interval: false,
        estimates: false,
    }
}
