//! Options of a store.

use lodestore_contract::{Durability, Error, OptionSpec, Options, Result};
use lodestore_fluidkv::FluidOptions;
use lodestore_media::{BlockFile, BlockOptions, PoolOptions};

use crate::layout::{SEGMENT_LEAST, SEGMENT_MOST};

/// Regions of a pool are whole pages, this part of the capacity at most, and so long at least where they are not set to be shorter.
const PAGE: u64 = 4096;
const REGIONS: u64 = 128;
const REGION_MIN: u64 = 256 << 10;
/// Bytes of a segment that its header and what stands around a value take, about.
const ROUND: u64 = 512;
/// Bytes that a group should be given by a flush, at least.
const SHARE: u64 = 128 << 10;
const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
/// Most segments of a store, but of one of over 16 TiB. DRAM has 56 bytes of each, and 4 of each dead record of those that were begun since the open: the store's account counts them
/// (`dram_bytes`), no budget bounds them.
const SEGMENTS_MAX: u64 = 1 << 20;

/// Where values go, and how their garbage is found: the paper's design, and what it compares itself with. A store may be opened with another mode each time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// By the hash of their keys to groups of segments, of which those with most garbage are collected (HashKV, ATC 2018).
    #[default]
    Hash,
    /// To one log, which is collected from its oldest end, whatever is garbage there (vLog: WiscKey, FAST 2016).
    Vlog,
    /// Nowhere: keys and values stand in the LSM.
    Nosep,
}

impl Mode {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "hash" => Some(Self::Hash),
            "vlog" => Some(Self::Vlog),
            "nosep" => Some(Self::Nosep),
            _ => None,
        }
    }
}

/// How a store is made and opened.
#[derive(Clone)]
pub struct HashKvOptions {
    /// The LSM's options, and its pool's. The pool's capacity is that of the whole store: the LSM's regions and the file of values share it as they need.
    pub index: FluidOptions,
    /// Where values go.
    pub mode: Mode,
    /// Bytes of a segment, a power of two from 8 KiB to 16 MiB. Fixed when a store is made. 0: 64 KiB, or as many as leave a store of this capacity a million of them, 16 MiB at most.
    /// Lowered to a 256th of the capacity, and to a power of two not below 16 KiB, where that is less. DRAM has 56 bytes of each segment and 4 of each dead record; the option `dram-budget` does not bound
    /// them.
    pub segment_bytes: u64,
    /// Bytes from which a value is kept in the file, from 32 (selective separation: HashKV, ATC 2018, section 3.5); 0: none is.
    pub value_threshold: u64,
    /// Live bytes over which a group is split when it is collected, 64 KiB to 1 GiB.
    pub group_bytes: u64,
    /// Whether values that were not updated between two collections of their group go to a cold storage (hotness awareness: HashKV, ATC 2018, section 3.4). Of mode [`Mode::Hash`].
    pub hotness: bool,
    /// Whether reads and writes of the values' file go past the page cache.
    pub direct: bool,
    /// Bytes a second that the thread which collects behind reads and writes, about, over some seconds: it waits ten at most for what was read and written; 0: no limit. A flush that finds no room collects for itself, at any rate.
    pub collect_rate: u64,
    /// Whether what the page cache has of the values' file is read through a mapping, which sets a handler of SIGBUS in this process ([`BlockOptions::mapped`]). Without effect with `direct`.
    pub mapped: bool,
}

impl Default for HashKvOptions {
    fn default() -> Self {
        Self {
            // Its memtables are large enough for all groups' shares, and their logs are small beside the values.
            index: FluidOptions { range_bytes: 4 * MIB, runs_max: 64, buffer_percent: 100, ..FluidOptions::default() },
            mode: Mode::Hash,
            segment_bytes: 0,
            value_threshold: 256,
            group_bytes: MIB,
            hotness: true,
            direct: false,
            collect_rate: 0,
            mapped: true,
        }
    }
}

macro_rules! spec {
    ($name:literal, $default:literal, $fixed:literal, $help:literal) => {
        OptionSpec { name: $name, default: $default, help: $help, fixed: $fixed }
    };
}

/// The engine's own options by name.
const SPECS: &[OptionSpec] = &[
    spec!(
        "mode",
        "hash",
        false,
        "where values go: hash (to groups, by the hash of their keys), vlog (to one circular log), nosep (nowhere: they stay with their keys)"
    ),
    spec!(
        "value-segment",
        "0",
        true,
        "bytes of a segment of the file, a power of two from 8192 to 16777216; 0: 65536, or more in a store of over 64 GiB. Lowered to capacity/256, rounded up to a power of two and no less than 16384. Each takes 56 bytes of DRAM, and 4 for each dead value, which dram_bytes counts and dram-budget does not bound"
    ),
    spec!(
        "separate-from",
        "256",
        false,
        "bytes from which a value is kept in the file, 32 to 1048576; 0: none is. What a segment or half a segment of the index's log does not hold (counter values_longest_bytes) stands in the index's value log instead"
    ),
    spec!("group-bytes", "1048576", false, "live bytes over which a group of keys is split, 65536 to 1073741824"),
    spec!(
        "hotness",
        "on",
        false,
        "whether values that are not updated between two collections of their group are kept apart: on or off"
    ),
    spec!(
        "collect-rate",
        "0",
        false,
        "bytes a second that collections behind the writers read and write, 1048576 to 1099511627776; 0: no limit. Flushes that find no room collect at any rate. They wait ten seconds at most for one collection: long segments at a low rate exceed it"
    ),
    spec!("direct", "off", false, "whether the file is read and written past the page cache (O_DIRECT): on or off"),
    spec!(
        "mapped",
        "on",
        false,
        "whether what the page cache has of the file is read through a mapping, guarded by a handler of SIGBUS: on or off"
    ),
];

/// A memtable's log takes this part of the capacity at most, and may take so many bytes.
const MEMTABLES: u64 = 256;
const MEMTABLE_MIN: u64 = 64 * KIB;
/// But never more than this part of the capacity, which is FluidKV's own rule.
const MEMTABLES_LEAST: u64 = 32;
/// Options of the LSM that have other defaults here: its tables hold keys and pointers, and its logs' bytes go to the file.
const INDEX: &[(&str, &str)] = &[("range-bytes", "4194304"), ("runs-max", "64"), ("buffer-percent", "100")];
/// Options of the LSM that users of this engine have no part in: its own value log takes what is too long for a segment.
const OWN: &[&str] = &["value-threshold"];

impl HashKvOptions {
    /// The options by name, for `--set name=value`: its own, then the LSM's.
    pub fn specs() -> Vec<OptionSpec> {
        let index = FluidOptions::specs().iter().filter(|spec| !OWN.contains(&spec.name));
        let index = index.map(|spec| {
            let own = INDEX.iter().find(|(name, _)| *name == spec.name);
            own.map_or(*spec, |(_, default)| OptionSpec { default, ..*spec })
        });
        SPECS.iter().copied().chain(index).collect()
    }

    /// Options of `pool` and those named in `options`.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] for a name or value that is none.
    pub fn from_options(pool: PoolOptions, options: &Options) -> Result<Self> {
        options.check_names(&Self::specs())?;
        let mut index = Options::new();
        for (name, value) in INDEX {
            index.set(*name, *value);
        }
        for (name, value) in options.iter().filter(|(name, _)| SPECS.iter().all(|spec| spec.name != *name)) {
            index.set(name, value);
        }
        let base = Self::default();
        let on_or_off = |name: &'static str, default: bool| {
            options.read(name, default, "on or off", |text| match text {
                "on" => Some(true),
                "off" => Some(false),
                _ => None,
            })
        };
        let read = Self {
            index: FluidOptions::from_options(pool, &index)?,
            segment_bytes: options.read_size("value-segment", base.segment_bytes)?,
            value_threshold: options.read_size("separate-from", base.value_threshold)?,
            group_bytes: options.read_size("group-bytes", base.group_bytes)?,
            mode: options.read("mode", base.mode, "hash, vlog or nosep", Mode::parse)?,
            hotness: on_or_off("hotness", base.hotness)?,
            direct: on_or_off("direct", base.direct)?,
            collect_rate: options.read_size("collect-rate", base.collect_rate)?,
            mapped: on_or_off("mapped", base.mapped)?,
        };
        read.check()?;
        Ok(read)
    }

    /// Refuses values out of range.
    ///
    /// # Errors
    /// [`Error::InvalidOption`].
    pub fn check(&self) -> Result<()> {
        let within = |name: &str, value: u64, least: u64, most: u64, off: bool| {
            if (least..=most).contains(&value) || (off && value == 0) {
                return Ok(());
            }
            let why = format!("it takes {least} to {most}{}", if off { ", or 0" } else { "" });
            Err(Error::InvalidOption { name: name.into(), value: value.to_string(), why })
        };
        within("value-segment", self.segment_bytes, SEGMENT_LEAST.into(), SEGMENT_MOST.into(), true)?;
        within("separate-from", self.value_threshold, 32, MIB, true)?;
        within("group-bytes", self.group_bytes, 64 * KIB, 1 << 30, false)?;
        within("collect-rate", self.collect_rate, MIB, 1 << 40, true)?;
        if self.segment_bytes != 0 && !self.segment_bytes.is_power_of_two() {
            let why = "it takes a power of two, or 0".into();
            return Err(Error::InvalidOption {
                name: "value-segment".into(),
                value: self.segment_bytes.to_string(),
                why,
            });
        }
        let levels = [Some(self.index.pool.durability), self.index.pool.raise];
        if let Some(asked) = levels.into_iter().flatten().find(|level| matches!(level, Durability::Interval(_))) {
            let instead = "use process or power; fluidkv has interval".into();
            return Err(Error::DurabilityRefused { asked, medium: "any medium by hashkv".into(), instead });
        }
        self.index.check()
    }

    /// Bytes of a segment of a new store.
    pub(crate) fn segment_of_new(&self) -> u64 {
        let capacity = self.index.pool.capacity;
        let least = (capacity / SEGMENTS_MAX).next_power_of_two().max(64 * KIB);
        let own = if self.segment_bytes == 0 { least } else { self.segment_bytes };
        // A small store has some hundreds of them all the same.
        let most = (capacity / 256).next_power_of_two().max(16 * KIB);
        own.min(most).clamp(BlockFile::BLOCK, SEGMENT_MOST.into())
    }

    /// The LSM's options, in a store of this capacity with segments of so many bytes.
    pub(crate) fn index_options(&self, capacity: u64, segment_bytes: u64) -> FluidOptions {
        let mut index = self.index.clone();
        index.pool = self.pool();
        // Several of them wait at a time, and what is theirs is not the values'.
        let most = (capacity / MEMTABLES).max(MEMTABLE_MIN).min(capacity / MEMTABLES_LEAST);
        index.memtable_bytes = index.memtable_bytes.min(most);
        // What a segment does not take stands in the LSM's own value log, and so does what a table could not take beside others where it finds only pieces of free space as long as a log's segment.
        let log_segment = index.segment_bytes.min(index.memtable_bytes / 4);
        let longest = (segment_bytes - ROUND).min(log_segment / 2);
        index.value_threshold = if self.mode == Mode::Nosep { 0 } else { longest };
        index
    }

    /// Refuses a threshold that no value passes which the file takes: all from `longest` bytes on stand in the LSM's value log.
    ///
    /// # Errors
    /// [`Error::InvalidOption`].
    pub(crate) fn check_threshold(&self, longest: u64) -> Result<()> {
        if self.threshold() == 0 || (self.threshold() as u64) < longest {
            return Ok(());
        }
        let why = format!(
            "in this store values from {longest} bytes on stand in the index's value log: take less, or 0, or a larger value-segment, segment-bytes or capacity"
        );
        Err(Error::InvalidOption { name: "separate-from".into(), value: self.value_threshold.to_string(), why })
    }

    /// The pool's options: regions are short beside the capacity, which the file of values has a part of.
    pub fn pool(&self) -> PoolOptions {
        let mut pool = self.index.pool.clone();
        let most = (pool.capacity / REGIONS).max(REGION_MIN);
        pool.region_bytes = pool.region_bytes.min(most) / PAGE * PAGE;
        pool.first_bytes = pool.first_bytes.map(|bytes| bytes.min(most) / PAGE * PAGE);
        pool
    }

    /// Bytes from which values are separated; 0: none is.
    pub(crate) fn threshold(&self) -> usize {
        if self.mode == Mode::Nosep { 0 } else { self.value_threshold as usize }
    }

    /// Most groups: so many that a flush gives each [`SHARE`] bytes, which makes the file's writes no smaller.
    pub(crate) fn groups_max(&self, memtable_bytes: u64) -> usize {
        match self.mode {
            Mode::Hash => (memtable_bytes / SHARE).clamp(4, 1 << 16) as usize,
            Mode::Vlog | Mode::Nosep => 1,
        }
    }

    pub(crate) fn blocks(&self) -> BlockOptions {
        // The pool knows how much of the capacity there is.
        BlockOptions { direct: self.direct, mapped: self.mapped, ..BlockOptions::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Superblock;

    /// What an open takes for damage was made.
    #[test]
    fn segments_of_a_new_store_are_no_longer_than_an_open_takes_whatever_its_capacity() {
        let cases = [
            (MIB, 16 * KIB),
            (1 << 30, 64 * KIB),
            (1 << 40, MIB),
            (1 << 44, 16 * MIB),
            (1 << 44 | 1 << 30, 16 * MIB),
            (1 << 50, 16 * MIB),
        ];
        for (capacity, wanted) in cases {
            let mut options = HashKvOptions::default();
            options.index.pool.capacity = capacity;
            assert_eq!(options.segment_of_new(), wanted, "in {capacity}");
            let superblock = Superblock { segment_bytes: wanted as u32, freed_expiry_max: 0, opening: 1 };
            assert!(Superblock::decode(&superblock.encode()).is_ok(), "in {capacity}");
        }
    }
}
