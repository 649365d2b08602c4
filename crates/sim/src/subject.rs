//! What the explorer needs of an engine.

use std::sync::Arc;

use lodestore_contract::{Direction, Durability, Result, Store};
use lodestore_media::sim::{Recorder, Rng, SimImage, SimSpec};
use lodestore_media::{Mutant, PoolOptions, Prefault};

use crate::op::{Op, Outcome};
use crate::script::{Script, random_op, with_conditions};

/// A key with its value.
pub type Pair = (Vec<u8>, Vec<u8>);

/// The size of a simulated store. Small ones make recovery quick and growth frequent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Most bytes of all regions.
    pub capacity: u64,
    /// Bytes of one region.
    pub region_bytes: u64,
    /// Bytes of one allocation unit.
    pub chunk_bytes: u32,
    /// Partitions, where the engine has some.
    pub partitions: u32,
    /// A mode of the engine, by its own numbers; 0 is the ordinary one.
    pub mode: u32,
}

impl Default for Shape {
    fn default() -> Self {
        Self { capacity: 128 << 10, region_bytes: 128 << 10, chunk_bytes: 512, partitions: 1, mode: 0 }
    }
}

/// Mode of a [`Shape`], for every engine: the store is opened in salvage mode.
pub const MODE_SALVAGE: u32 = 1 << 31;

impl Shape {
    /// The options of a pool of this size, which touches nothing ahead.
    pub(crate) fn pool(&self) -> PoolOptions {
        let salvage = self.mode & MODE_SALVAGE != 0;
        PoolOptions { capacity: self.capacity, salvage, ..simulated_pool(self.region_bytes, self.chunk_bytes) }
    }
}

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

/// What an engine says that its recovery found wrong.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RecoveryDamage {
    /// Findings of the recovery.
    pub corrupt: u64,
    /// Records that the recovery could not read.
    pub left_out: u64,
}

/// Options of a simulated pool of one region of these bytes, durability `process`.
pub fn simulated_pool(region_bytes: u64, chunk_bytes: u32) -> PoolOptions {
    PoolOptions {
        capacity: region_bytes,
        region_bytes,
        chunk_bytes,
        durability: Durability::Process,
        huge_pages: false,
        prefault: Prefault::None,
        ..PoolOptions::default()
    }
}

/// Whether a store was opened without a part of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Losses {
    /// All of it was there.
    #[default]
    None,
    /// A part was taken away, and it was opened without.
    Borne,
    /// A part was taken away, and it refused to be opened without, as the image says that it must; it was opened with all of it then.
    Refused,
}

/// An engine on simulated media.
pub trait Engine: Send + Sync {
    /// Its name.
    fn name(&self) -> &'static str;

    /// The planted faults that it knows.
    fn mutants(&self) -> &'static [Mutant];

    /// Those of them that do harm only where threads meet: they are looked for in concurrent histories.
    fn mutants_of_threads(&self) -> &'static [Mutant] {
        &[]
    }

    /// The planted faults that do harm only if bytes are damaged, for the damage explorer.
    fn damage_mutants(&self) -> &'static [Mutant] {
        &[]
    }

    /// Scripts that lead this engine alone through what it has and others do not. Keys and values differ by `round`.
    fn scripts(&self, _seed: u64, _round: u64) -> Vec<Script> {
        Vec::new()
    }

    /// Whether no script runs on it but [`Self::scripts`].
    fn has_own_scripts_only(&self) -> bool {
        false
    }

    /// A random operation on `keys`, with a value of at most so many bytes.
    fn random_op(&self, rng: &mut Rng, keys: &[Vec<u8>], most: u64) -> Op {
        with_conditions(random_op(rng, keys, most), &[])
    }

    /// Whether its stores can see that a sync failed. Where they cannot, none fails.
    fn sees_failed_syncs(&self) -> bool {
        true
    }

    /// Whether a write that finds no room may have been done in part, and is taken back: a crash within it may leave it done.
    fn takes_back(&self) -> bool {
        false
    }

    /// Whether a crash may bring back pairs that had expired and were swept, until the next sweep.
    /// They are never answered, and count.
    fn recounts_expired(&self) -> bool {
        false
    }

    /// A new store.
    ///
    /// # Errors
    /// As the engine's.
    fn create(&self, spec: &SimSpec, shape: &Shape) -> Result<Box<dyn Subject>>;

    /// The store in an image, recovered or recovering.
    ///
    /// # Errors
    /// As the engine's.
    fn open(&self, image: &SimImage, shape: &Shape) -> Result<Box<dyn Subject>>;
}

/// A running store on a simulated medium.
pub trait Subject: Send + Sync {
    /// What sees its stores.
    fn recorder(&self) -> &Recorder;

    /// The store, where it is one of the contract.
    fn store(&self) -> Option<Arc<dyn Store>> {
        None
    }

    /// Waits until everything is rebuilt.
    ///
    /// # Errors
    /// As the engine's.
    fn wait_recovered(&self) -> Result<()>;

    /// Does one operation; `Error::Full` is an outcome.
    ///
    /// # Errors
    /// As the engine's.
    fn apply(&self, op: &Op) -> Result<Outcome>;

    /// A value with its expiry in milliseconds.
    ///
    /// # Errors
    /// As the engine's.
    fn get(&self, key: &[u8]) -> Result<Option<(Vec<u8>, Option<u64>)>>;

    /// Every live pair in this order; `None` where the engine has no order.
    ///
    /// # Errors
    /// As the engine's.
    fn scan(&self, direction: Direction) -> Result<Option<Vec<Pair>>>;

    /// Every live pair in any order.
    ///
    /// # Errors
    /// As the engine's.
    fn pairs(&self) -> Result<Vec<Pair>>;

    /// Visits every live pair and adds each to `into`, where the pairs stay on an error.
    /// Returns false if the engine has no such walk.
    ///
    /// # Errors
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
    /// As the engine's.
    fn contains(&self, key: &[u8]) -> Result<bool> {
        Ok(self.get(key)?.is_some())
    }

    /// Returns the damage that the recovery counted.
    fn recovery_damage(&self) -> RecoveryDamage {
        RecoveryDamage::default()
    }

    /// Live keys by the engine's count.
    ///
    /// # Errors
    /// As the engine's.
    fn len(&self) -> Result<u64>;

    /// Whether there are none.
    ///
    /// # Errors
    /// As the engine's.
    fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// What the engine's own verification finds wrong, the allocator included.
    ///
    /// # Errors
    /// As the engine's.
    fn verify(&self) -> Result<Vec<String>>;

    /// Bytes in use on the medium when nothing waits to be freed; `None` where the engine does not know.
    fn live_bytes(&self) -> Option<u64>;

    /// Bytes of a clean stop's checkpoint that count as live although a crash gives them back.
    fn checkpoint_bytes(&self) -> u64 {
        0
    }

    /// What one of the engine's own counters says; 0 where it has none of this name.
    fn counter(&self, _name: &str) -> u64 {
        0
    }

    /// Whether it was opened without a part of it.
    fn losses(&self) -> Losses {
        Losses::None
    }

    /// Clean stop.
    ///
    /// # Errors
    /// As the engine's.
    fn close(&self) -> Result<()>;
}
