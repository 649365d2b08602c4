//! The explorer's interface to an engine.

use std::sync::Arc;

use lodestore_contract::{Direction, Result, Store};
use lodestore_media::PlantedFault;
use lodestore_media::sim::{Recorder, Rng, SimImage, SimSpec};

use crate::op::{Op, Outcome};
use crate::script::{Script, random_op, with_conditions};
use crate::shape::Shape;

/// A key with its value.
pub type Pair = (Vec<u8>, Vec<u8>);

/// A way to read every live pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Walk {
    /// `for_each`.
    ForEach,
    /// `scan_each` in ascending order.
    Ascending,
    /// `scan_each` in descending order.
    Descending,
    /// The owned `scan`, which the program's `export` uses.
    Owned,
}

impl Walk {
    /// Every walk.
    pub const ALL: [Self; 4] = [Self::ForEach, Self::Ascending, Self::Descending, Self::Owned];
}

/// The damage that an engine's recovery reports.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RecoveryDamage {
    /// Findings of the recovery.
    pub corrupt: u64,
    /// Records that the recovery could not read.
    pub left_out: u64,
}

/// Whether a store was opened without a part of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Losses {
    /// All parts were present.
    #[default]
    None,
    /// A part was missing, and the store was opened without it.
    Borne,
    /// A part was missing, and the store refused the open, as the image requires. The store was
    /// then opened with all parts.
    Refused,
}

/// An engine on simulated media.
pub trait Engine: Send + Sync {
    /// Returns the name.
    fn name(&self) -> &'static str;

    /// Returns the planted faults that it supports.
    fn mutants(&self) -> &'static [PlantedFault];

    /// Returns those of them that are harmful only with concurrency: concurrent histories look for
    /// them.
    fn mutants_of_threads(&self) -> &'static [PlantedFault] {
        &[]
    }

    /// Returns the planted faults that are harmful only if bytes are damaged, for the damage
    /// explorer.
    fn damage_mutants(&self) -> &'static [PlantedFault] {
        &[]
    }

    /// Returns further planted faults, which only tests of their own look for.
    fn other_mutants(&self) -> &'static [PlantedFault] {
        &[]
    }

    /// Returns scripts for behaviour that only this engine has. `round` determines keys and values.
    fn scripts(&self, _seed: u64, _round: u64) -> Vec<Script> {
        Vec::new()
    }

    /// Whether only [`Self::scripts`] run on it.
    fn has_own_scripts_only(&self) -> bool {
        false
    }

    /// Returns a random operation on `keys`, with a value of at most `most` bytes.
    fn random_op(&self, rng: &mut Rng, keys: &[Vec<u8>], most: u64) -> Op {
        with_conditions(random_op(rng, keys, most), &[])
    }

    /// Whether its stores detect a failed sync. Otherwise no sync fails.
    fn sees_failed_syncs(&self) -> bool {
        true
    }

    /// Whether a write that does not fit may have been applied in part, and is reverted: a crash
    /// within it may leave it done.
    fn takes_back(&self) -> bool {
        false
    }

    /// Whether a crash may restore pairs that had expired and were swept, until the next sweep.
    /// They are never returned, but count.
    fn recounts_expired(&self) -> bool {
        false
    }

    /// Whether this file of the image is the only one of a store in it, and no other store has
    /// copies of its pairs.
    fn is_store_alone(&self, _shape: &Shape, _file: u16) -> bool {
        false
    }

    /// Creates a store.
    ///
    /// # Errors
    ///
    /// Errors of the engine.
    fn create(&self, spec: &SimSpec, shape: &Shape) -> Result<Box<dyn Subject>>;

    /// Opens the store of an image; it is recovered or recovering.
    ///
    /// # Errors
    ///
    /// Errors of the engine.
    fn open(&self, image: &SimImage, shape: &Shape) -> Result<Box<dyn Subject>>;
}

/// A running store on a simulated medium.
pub trait Subject: Send + Sync {
    /// Returns the recorder of its stores.
    fn recorder(&self) -> &Recorder;

    /// Returns the store, if it is one of the contract.
    fn store(&self) -> Option<Arc<dyn Store>> {
        None
    }

    /// Waits until everything is rebuilt.
    ///
    /// # Errors
    ///
    /// Errors of the engine.
    fn wait_recovered(&self) -> Result<()>;

    /// Applies one operation; `Error::Full` is an outcome.
    ///
    /// # Errors
    ///
    /// Errors of the engine.
    fn apply(&self, op: &Op) -> Result<Outcome>;

    /// Returns a value with its expiry in milliseconds.
    ///
    /// # Errors
    ///
    /// Errors of the engine.
    fn get(&self, key: &[u8]) -> Result<Option<(Vec<u8>, Option<u64>)>>;

    /// Returns every live pair in this order; `None` if the engine has no order.
    ///
    /// # Errors
    ///
    /// Errors of the engine.
    fn scan(&self, direction: Direction) -> Result<Option<Vec<Pair>>>;

    /// Returns every live pair in any order.
    ///
    /// # Errors
    ///
    /// Errors of the engine.
    fn pairs(&self) -> Result<Vec<Pair>>;

    /// Visits every live pair and adds it to `into`, which keeps the pairs on an error. Returns
    /// false if the engine lacks this walk.
    ///
    /// # Errors
    ///
    /// The first error of the walk.
    fn walk(&self, walk: Walk, into: &mut Vec<Pair>) -> Result<bool> {
        let found = match walk {
            Walk::ForEach => Some(self.pairs()?),
            Walk::Ascending => self.scan(Direction::Forward)?,
            Walk::Descending => self.scan(Direction::Backward)?,
            Walk::Owned => None,
        };
        into.extend(found.iter().flatten().cloned());
        Ok(found.is_some())
    }

    /// Returns whether the key has a live value.
    ///
    /// # Errors
    ///
    /// Errors of the engine.
    fn contains(&self, key: &[u8]) -> Result<bool> {
        Ok(self.get(key)?.is_some())
    }

    /// Returns the damage that the recovery counted.
    fn recovery_damage(&self) -> RecoveryDamage {
        RecoveryDamage::default()
    }

    /// Returns the number of live keys by the engine's count.
    ///
    /// # Errors
    ///
    /// Errors of the engine.
    fn len(&self) -> Result<u64>;

    /// Returns whether there are no live keys.
    ///
    /// # Errors
    ///
    /// Errors of the engine.
    fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Returns the findings of the engine's own verification, the allocator included.
    ///
    /// # Errors
    ///
    /// Errors of the engine.
    fn verify(&self) -> Result<Vec<String>>;

    /// Returns the bytes in use on the medium when no space waits to be freed; `None` if unknown.
    fn live_bytes(&self) -> Option<u64>;

    /// Returns the bytes of a clean stop's checkpoint that count as live although a crash frees
    /// them.
    fn checkpoint_bytes(&self) -> u64 {
        0
    }

    /// Returns one of the engine's own counters; 0 if it has none of this name.
    fn counter(&self, _name: &str) -> u64 {
        0
    }

    /// Returns whether it was opened without a part of it.
    fn losses(&self) -> Losses {
        Losses::None
    }

    /// Stops cleanly.
    ///
    /// # Errors
    ///
    /// Errors of the engine.
    fn close(&self) -> Result<()>;
}
