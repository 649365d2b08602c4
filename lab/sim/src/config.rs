//! Bounds of an exploration.

use lodestore_media::PlantedFault;
use lodestore_media::sim::{DropSite, LINE, SimSpec};

/// Deepest chain of crashes: the operation, its recovery, the recovery after that.
pub const DEPTH_MAX: usize = 3;

/// Bounds and shares of an exploration. A share is "one in n"; 0 means never.
#[derive(Debug, Clone)]
pub struct Config {
    /// Seed of everything random.
    pub seed: u64,
    /// Bytes that persist independently.
    pub grain: u32,
    /// Every store persists at once: only the process crashes.
    pub stores_persist: bool,
    /// Images at a crash point of an operation: all if there are no more, else this number.
    pub images_per_point: usize,
    /// A crash point before one in n stores, in addition to those before each fence and at each
    /// operation's end.
    pub store_point_every: u64,
    /// One in n images has its recovery crashed as well.
    pub nested_every: u64,
    /// Maximum crash points in one recovery.
    pub nested_points: usize,
    /// Images at each of them.
    pub nested_images: usize,
    /// Consecutive crashes: 1 to [`DEPTH_MAX`].
    pub depth: usize,
    /// Random operations after a recovery.
    pub ops_after: usize,
    /// One in n images gets all of `ops_after`.
    pub ops_after_every: u64,
    /// Operations of the other images.
    pub ops_after_few: usize,
    /// One in n images is recovered once more, to compare the allocator's account.
    pub leak_every: u64,
    /// Stop after this many images.
    pub images: u64,
    /// Stop after this many seconds; 0 for never.
    pub seconds: u64,
    /// Scripts that run in parallel.
    pub threads: usize,
    /// Runs only the script with this index.
    pub only_script: Option<u64>,
    /// After one of n operations and clean stops a sync soon fails, and the store is then reopened.
    pub failing_every: u64,
    /// Stores have durability `interval`: a crash may lose the newest writes since the last sync,
    /// and leaves a prefix.
    pub prefix: bool,
    /// Crashes only opens and changes of the devices.
    pub only_device_changes: bool,
    /// The planted fault.
    pub mutant: Option<PlantedFault>,
    /// The call site whose flushes or fences are dropped.
    pub drop_site: Option<DropSite>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            seed: 1,
            grain: LINE,
            stores_persist: false,
            images_per_point: 16,
            store_point_every: 16,
            nested_every: 16,
            nested_points: 4,
            nested_images: 3,
            depth: DEPTH_MAX,
            ops_after: 100,
            ops_after_every: 10,
            ops_after_few: 8,
            leak_every: 10,
            images: 100_000,
            seconds: 0,
            threads: 2,
            only_script: None,
            failing_every: 16,
            prefix: false,
            only_device_changes: false,
            mutant: None,
            drop_site: None,
        }
    }
}

impl Config {
    /// The behaviour of pools in this exploration.
    pub fn spec(&self, record: bool) -> SimSpec {
        SimSpec {
            grain: self.grain,
            stores_persist: self.stores_persist,
            record,
            mutant: self.mutant,
            drop_site: self.drop_site.clone(),
            failing_fence: 0,
            failing_call: None,
        }
    }
}
