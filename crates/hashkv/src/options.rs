//! Options of a store.

use lodestore_contract::{Durability, Error, OptionSpec, OptionTable, Options, Result};
use lodestore_fluidkv::{FluidOptions, FluidkvSettings};
use lodestore_media::{BlockFile, BlockOptions, PoolOptions, RegionShare};

use crate::layout::{SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN};
#[cfg(feature = "lab")]
use crate::modes::Mode;

/// Regions of a pool are whole pages.
const PAGE_BYTES: u64 = 4096;
/// Limits regions by the capacity and by the medium: values cannot use a region's space.
const REGION_SHARE: RegionShare = RegionShare { divisor: 128, bytes_min: 256 << 10 };
/// Approximate bytes of a segment's header and of the record header and key around a value.
const VALUE_OVERHEAD_BYTES: u64 = 512;
/// Minimum bytes that a flush should bring to each group.
const GROUP_FLUSH_BYTES_MIN: u64 = 128 << 10;
const KIB: u64 = 1 << 10;
/// Maximum segments of a store up to 16 TiB. DRAM holds 56 bytes per segment, and 4 bytes per dead
/// record of segments allocated since the open. The store's account counts these bytes
/// (`dram_bytes`); no budget limits them.
const SEGMENTS_MAX: u64 = 1 << 20;

// The declared bounds are those that the code relies on.
const _: () = assert!(SEGMENT_BYTES_MIN == 8 << 10 && SEGMENT_BYTES_MAX == 16 << 20);

lodestore_contract::options! {
    /// Options of a HashKV store, for its creation and opening.
    #[derive(Clone)]
    pub struct HashKvOptions {
        /// The LSM's options, and its pool's. The pool's capacity is that of the whole store: the
        /// LSM's regions and the file of values share it as they need.
        pub index: FluidOptions = index_default(),
    }

    /// Options of a HashKV store that were set.
    pub settings HashkvSettings {
        /// Where values are stored: in groups of segments by the hash of their keys (hash; HashKV,
        /// ATC 2018), in one circular log (vlog; WiscKey, FAST 2016), or with their keys (nosep).
        /// Each open may use another mode.
        #[cfg(feature = "lab")]
        tunable mode: Mode = "hash", one_of("hash" => Mode::Hash, "vlog" => Mode::Vlog, "nosep" => Mode::Nosep), as "mode";
        /// Bytes of a segment of the values file; 0: 65536, or more in a store of over 64 GiB. The
        /// maximum is capacity/256, rounded up to a power of two, and at least 16384. A segment
        /// uses 56 bytes of DRAM, and 4 bytes per dead value, which dram_bytes counts and
        /// dram-budget does not limit.
        fixed segment_bytes: u64 = "0", zero_or(size("8K", "16M", power of two)), as "value-segment";
        /// Minimum bytes of a value in the values file (selective separation: HashKV, ATC 2018,
        /// section 3.5); 0: no value. A value that does not fit into a segment, or into half a
        /// segment of the index's log (counter values_longest_bytes), is stored in the index's
        /// value log.
        tunable value_threshold: u64 = "256", zero_or(size("32", "1M")), as "separate-from";
        /// Live bytes above which a collection splits a group.
        tunable group_bytes: u64 = "1048576", size("64K", "1G"), as "group-bytes";
        /// Whether values that were not updated between two collections of their group are stored
        /// separately (hotness awareness: HashKV, ATC 2018, section 3.4). Only for mode=hash.
        tunable hotness: bool = "on", switch(), as "hotness";
        /// Approximate bytes per second that background collections read and write; 0: no limit. A
        /// collection pauses at most ten seconds at a time, so long segments exceed a low rate. A
        /// flush without free space collects without a limit.
        tunable collect_rate: u64 = "0", zero_or(size("1M", "1T")), as "collect-rate";
        /// Whether reads and writes of the values file bypass the page cache (O_DIRECT).
        tunable direct: bool = "off", switch(), as "direct";
        /// Whether cached pages of the file are read through a mapping, which sets a SIGBUS handler
        /// in the process. No effect with direct=on.
        tunable mapped: bool = "on", switch(), as "mapped";
    }
}

#[cfg(feature = "lab")]
impl HashKvOptions {
    /// Returns whether values are in one circular log (`mode=vlog`).
    pub(crate) fn is_circular(&self) -> bool {
        self.mode == Mode::Vlog
    }

    /// Returns whether values go to the values file, if they are long enough. `mode=nosep`: no.
    fn separates(&self) -> bool {
        self.mode != Mode::Nosep
    }
}

#[cfg(not(feature = "lab"))]
impl HashKvOptions {
    /// Returns whether values are in one circular log: never in this build.
    pub(crate) fn is_circular(&self) -> bool {
        false
    }

    /// Returns whether values go to the values file, if they are long enough: always in this build.
    fn separates(&self) -> bool {
        true
    }
}

/// Returns the LSM's default options for this engine: memtables large enough for a share of each
/// group, and logs that are small compared with the values.
fn index_default() -> FluidOptions {
    let mut index = FluidOptions::default();
    for (name, text) in INDEX_DEFAULTS {
        let mut set = Options::new();
        set.set(*name, *text);
        // The test of the declaration reads them.
        let read = index.read_from(&set);
        debug_assert!(read.is_ok(), "{read:?}");
    }
    index
}

/// A memtable's log uses at most 1/256 of the capacity, or `MEMTABLE_MIN` bytes if that is more.
const MEMTABLE_CAPACITY_DIVISOR: u64 = 256;
const MEMTABLE_MIN: u64 = 64 * KIB;
/// Upper limit of a memtable's log: 1/32 of the capacity, which is FluidKV's own rule.
const MEMTABLE_CAPACITY_DIVISOR_MIN: u64 = 32;
/// LSM options with other defaults here: tables hold keys and pointers, and the bytes of logs go to
/// the file.
const INDEX_DEFAULTS: &[(&str, &str)] = &[("range-bytes", "4194304"), ("runs-max", "64"), ("buffer-percent", "100")];
/// LSM options that users of this engine cannot set: the LSM's value log gets the values that are
/// too long for a segment.
const OWN_OPTIONS: &[&str] = &["value-threshold"];

impl HashKvOptions {
    /// Returns the options by name, for `--set name=value`: the engine's, then the LSM's.
    pub fn specs() -> Vec<OptionSpec> {
        let index = FluidOptions::specs().iter().filter(|spec| !OWN_OPTIONS.contains(&spec.name));
        let index = index.map(|spec| {
            let own = INDEX_DEFAULTS.iter().find(|(name, _)| *name == spec.name);
            own.map_or(*spec, |(_, default)| OptionSpec { default, ..*spec })
        });
        Self::SPECS.iter().copied().chain(index).collect()
    }

    /// Returns options with `pool` and the named `options`.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] for an unknown name or an invalid value.
    pub fn from_options(pool: PoolOptions, options: &Options) -> Result<Self> {
        options.check_names(crate::ENGINE, &Self::specs())?;
        let mut read = Self::default();
        read.index.pool = pool;
        read.index.read_from(options)?;
        read.read_from(options)?;
        read.check()?;
        Ok(read)
    }

    /// Rejects values out of range.
    ///
    /// # Errors
    /// [`Error::InvalidOption`].
    pub fn check(&self) -> Result<()> {
        self.check_bounds()?;
        let levels = [Some(self.index.pool.durability), self.index.pool.raise];
        if let Some(asked) = levels.into_iter().flatten().find(|level| matches!(level, Durability::Interval(_))) {
            let instead = "use process or power, or engine fluidkv, which has interval".into();
            return Err(Error::DurabilityRefused { asked, medium: "any medium with hashkv".into(), instead });
        }
        self.index.check()
    }

    /// Returns the bytes of a segment of a new store.
    pub(crate) fn new_segment_bytes(&self) -> u64 {
        let capacity = self.index.pool.capacity;
        let least = (capacity / SEGMENTS_MAX).next_power_of_two().max(64 * KIB);
        let own = if self.segment_bytes == 0 { least } else { self.segment_bytes };
        // A small store still has some hundreds of segments.
        let most = (capacity / 256).next_power_of_two().max(16 * KIB);
        own.min(most).clamp(BlockFile::BLOCK, SEGMENT_BYTES_MAX.into())
    }

    /// Returns the LSM's options for a store of this capacity with segments of this length.
    pub(crate) fn index_options(&self, capacity: u64, segment_bytes: u64) -> FluidOptions {
        let mut index = self.index.clone();
        index.pool = self.pool();
        // Several memtables wait at a time, and values cannot use their space.
        let most =
            (capacity / MEMTABLE_CAPACITY_DIVISOR).max(MEMTABLE_MIN).min(capacity / MEMTABLE_CAPACITY_DIVISOR_MIN);
        index.memtable_bytes = index.memtable_bytes.min(most);
        // Values too long for a segment go to the LSM's own value log. Values too long for a table
        // go there as well: free space may consist of pieces of the length of a log segment.
        let log_segment = index.segment_bytes.min(index.memtable_bytes / 4);
        let longest = (segment_bytes - VALUE_OVERHEAD_BYTES).min(log_segment / 2);
        index.value_threshold = if self.separates() { longest } else { 0 };
        index
    }

    /// Rejects a threshold at which no value would go to the file: all values from `longest` bytes
    /// on go to the LSM's value log.
    ///
    /// # Errors
    /// [`Error::InvalidOption`].
    pub(crate) fn check_threshold(&self, longest: u64) -> Result<()> {
        if self.threshold() == 0 || (self.threshold() as u64) < longest {
            return Ok(());
        }
        let why = format!(
            "this store keeps values of {longest} bytes or more in the index's value log: use a smaller value, 0, or \
             a larger value-segment, segment-bytes or capacity"
        );
        Err(Error::InvalidOption { name: "separate-from".into(), value: self.value_threshold.to_string(), why })
    }

    /// Returns the pool's options. Regions are short compared with the capacity and the medium,
    /// because the values file shares the space.
    pub fn pool(&self) -> PoolOptions {
        let mut pool = self.index.pool.clone();
        let most = REGION_SHARE.limit(pool.capacity);
        pool.region_share = Some(REGION_SHARE);
        pool.region_bytes = pool.region_bytes.min(most) / PAGE_BYTES * PAGE_BYTES;
        pool.first_bytes = pool.first_bytes.map(|bytes| bytes.min(most) / PAGE_BYTES * PAGE_BYTES);
        pool
    }

    /// Returns whether values are in groups by the hash of their keys.
    pub(crate) fn has_groups(&self) -> bool {
        self.separates() && !self.is_circular()
    }

    /// Returns the bytes from which values are separated; 0: none.
    pub(crate) fn threshold(&self) -> usize {
        if self.separates() { self.value_threshold as usize } else { 0 }
    }

    /// Returns the maximum number of groups: a flush brings each group [`GROUP_FLUSH_BYTES_MIN`]
    /// bytes, and writes to the file stay large.
    pub(crate) fn groups_max(&self, memtable_bytes: u64) -> usize {
        if self.has_groups() { (memtable_bytes / GROUP_FLUSH_BYTES_MIN).clamp(4, 1 << 16) as usize } else { 1 }
    }

    pub(crate) fn blocks(&self) -> BlockOptions {
        // The pool accounts for the capacity.
        BlockOptions { direct: self.direct, mapped: self.mapped, ..BlockOptions::default() }
    }
}

impl HashkvSettings {
    /// Sets options of the LSM that holds keys. `value_threshold` cannot be set: the LSM's own
    /// value log has the values that are too long for a segment.
    pub fn index(mut self, index: FluidkvSettings) -> Self {
        self.set.set_all(index.options());
        self
    }
}

#[cfg(test)]
mod tests {
    use lodestore_contract::options::check_declaration;

    use super::*;

    const MIB: u64 = 1 << 20;
    use crate::layout::Superblock;

    /// Regression: stores were created with a segment length that an open refused as damage.
    #[test]
    fn segments_of_a_new_store_are_never_longer_than_an_open_accepts() {
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
            assert_eq!(options.new_segment_bytes(), wanted, "in {capacity}");
            let superblock = Superblock { segment_bytes: wanted as u32, freed_expiry_max: 0, opening: 1 };
            assert!(Superblock::decode(&superblock.encode()).is_ok(), "in {capacity}");
        }
    }

    #[test]
    fn each_option_accepts_its_default_and_bounds_and_refuses_values_outside() {
        assert_eq!(check_declaration::<HashKvOptions>(), Ok(()));
    }

    #[test]
    fn the_defaults_of_the_index_equal_the_documented_ones() {
        let index = index_default();
        for spec in HashKvOptions::specs() {
            let own = index.text_of(spec.name).filter(|_| spec.default != "cores");
            assert!(own.is_none_or(|own| own == spec.default), "{}", spec.name);
        }
        assert_eq!((index.range_bytes, index.runs_max, index.buffer_percent), (4 * MIB, 64, 100));
    }

    #[test]
    fn settings_of_the_index_are_read_with_those_of_the_engine() {
        let set = HashkvSettings::new().mode(Mode::Vlog).index(FluidkvSettings::new().workers(1).runs_max(3));
        let options = HashKvOptions::from_options(PoolOptions::default(), set.options()).expect("valid");
        assert_eq!((options.mode, options.index.workers, options.index.runs_max), (Mode::Vlog, 1, 3));
        let refused = HashkvSettings::new().index(FluidkvSettings::new().value_threshold(0));
        assert!(HashKvOptions::from_options(PoolOptions::default(), refused.options()).is_err());
    }
}
