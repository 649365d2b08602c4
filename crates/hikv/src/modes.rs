//! Modes for comparison with the paper (HiKV, ATC 2017, Figure 10), fixed when a store is created.
//! Only a build with the feature `lab` has them. Other builds refuse a store with a mode.

use lodestore_contract::{Error, Result};

use crate::layout::{ENGINE, PARTITIONED_MODE_FLAG, SYNC_MODE_FLAG, Superblock, WAL_MODE_FLAG};
use crate::options::HiKvOptions;

/// The cargo feature that compiles the modes.
const FEATURE: &str = "lab";
/// Each mode with its option.
const MODES: [(u32, &str); 3] =
    [(SYNC_MODE_FLAG, "update=sync"), (PARTITIONED_MODE_FLAG, "tree=partitioned"), (WAL_MODE_FLAG, "wal=on")];

impl Superblock {
    /// Returns whether the store was created with this mode.
    pub(crate) fn has_mode(&self, flag: u32) -> bool {
        cfg!(feature = "lab") && self.modes & flag != 0
    }

    /// Refuses a store whose modes are not compiled in.
    ///
    /// # Errors
    /// [`Error::ModeNotBuilt`].
    pub(crate) fn check_modes(&self) -> Result<()> {
        let absent = MODES.into_iter().filter(|(flag, _)| self.modes & flag != 0 && !self.has_mode(*flag));
        let absent: Vec<&str> = absent.map(|(_, option)| option).collect();
        if absent.is_empty() {
            return Ok(());
        }
        Err(Error::ModeNotBuilt { engine: ENGINE, mode: absent.join(" and "), feature: FEATURE })
    }
}

impl HiKvOptions {
    /// Returns the modes of a new store.
    #[cfg(feature = "lab")]
    pub(crate) fn modes(&self) -> u32 {
        let bit = |on: bool, bit: u32| if on { bit } else { 0 };
        bit(self.sync_update, SYNC_MODE_FLAG)
            | bit(self.partitioned_tree, PARTITIONED_MODE_FLAG)
            | bit(self.wal, WAL_MODE_FLAG)
    }

    /// Returns the modes of a new store: none in this build.
    #[cfg(not(feature = "lab"))]
    pub(crate) fn modes(&self) -> u32 {
        0
    }
}
