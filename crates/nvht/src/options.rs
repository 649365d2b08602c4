//! Options of the engine.

use lodestore_contract::{OptionSpec, OptionTable, Options, Result};
use lodestore_inplace::options::check_durability;
use lodestore_media::PoolOptions;

use crate::hash::{HashKind, PARTITIONS_MAX};
use crate::layout::{FIRST_SLOTS_MAX, LINE_SLOTS, LOAD_PERCENT_MAX, LOAD_PERCENT_MIN, PROBE_LINES_MAX};

// The declared bounds are those that the code relies on.
const _: () =
    assert!(PARTITIONS_MAX == 64 && FIRST_SLOTS_MAX == 1073741824 && LOAD_PERCENT_MIN == 10 && LOAD_PERCENT_MAX == 95);
const _: () = assert!(LINE_SLOTS == 7 && LINE_SLOTS as u32 * PROBE_LINES_MAX == 448);

lodestore_contract::options! {
    /// Options of an NVHT store. Fixed options are kept in the store; the others count for one
    /// open.
    #[derive(Clone)]
    pub struct NvhtOptions {
        /// The pool's options.
        pub pool: PoolOptions = PoolOptions::default(),
    }

    /// Options of an NVHT store that were set.
    pub settings NvhtSettings {
        /// Partitions of the table, which grow independently.
        fixed partitions: u32 = "64", power_of_two(1, 64), as "partitions";
        /// Approximate number of slots of a new store (NVHT, JPDC 2018: initial capacity).
        fixed initial_capacity: u32 = "8192", number(1, 1073741824), as "initial-capacity";
        /// Keys per slot above which a table is doubled (the paper's maximum load factor); the
        /// field is in percent.
        fixed load_percent: u32 = "0.8", share(0.1, 0.95), as "load-factor";
        /// Maximum number of slots that are probed for a key (the paper's maximum probing length,
        /// 128 slots).
        fixed probe_length: u32 = "224", number(7, 448, multiple of 7), as "probe-length";
        /// The hash function.
        fixed hash: HashKind = "murmur3", one_of("murmur3" => HashKind::Murmur3, "xxh3" => HashKind::Xxh3), as "hash";
        /// Seed of the key hash; random: chosen when the store is created.
        fixed hash_seed: Option<u64> = "random", word_or("random", number(0)), as "hash-seed";
        /// Whether a read verifies the record's checksum. Index entries are always compared with
        /// their records.
        tunable verify_reads: bool = "on", switch(), as "verify-reads";
        /// Threads that walk the tables after a crash. With 0 the opening thread walks them before
        /// the open returns.
        tunable recovery_threads: usize = "cores", cores_or(number(0, 64)), as "recovery-threads";
        /// Milliseconds between sweeps of expired keys; 0: no sweeps.
        tunable sweep_ms: u64 = "1000", number(0, 86400000), as "sweep-ms";
        /// MiB per second that a background thread verifies; 0: no background verification.
        tunable scrub_rate: u64 = "1", number(0, 1048576), as "scrub-rate";
        /// Maximum bytes of DRAM for the store's structures; above it new keys are refused. 0: no
        /// limit.
        tunable dram_budget: u64 = "0", size(), as "dram-budget";
    }
}

/// Advice if a table accepts no more keys with the same hash bits. All options in it are fixed at
/// creation.
pub(crate) const INDEX_FULL: &str = "create a new store with a longer `Builder::set(\"probe-length\", ..)`, more \
                                     `Builder::set(\"partitions\", ..)` or another `Builder::set(\"hash-seed\", \
                                     ..)`, and import the data";

impl NvhtOptions {
    /// Returns the specifications of the options.
    pub fn specs() -> &'static [OptionSpec] {
        Self::SPECS
    }

    /// Returns options with `pool` and the named `options`.
    ///
    /// # Errors
    /// [`Error::InvalidOption`](lodestore_contract::Error::InvalidOption) for an unknown name or an
    /// invalid value.
    pub fn from_options(pool: PoolOptions, options: &Options) -> Result<Self> {
        options.check_names(crate::ENGINE, Self::SPECS)?;
        let mut read = Self { pool, ..Self::default() };
        read.read_from(options)?;
        read.check()?;
        Ok(read)
    }

    /// Returns the number of lines that are probed for a key.
    pub(crate) fn probe_lines(&self) -> u32 {
        self.probe_length / LINE_SLOTS as u32
    }

    /// Rejects values out of range.
    ///
    /// # Errors
    /// [`Error::InvalidOption`](lodestore_contract::Error::InvalidOption);
    /// [`Error::Unsupported`](lodestore_contract::Error::Unsupported) for a durability that NVHT
    /// does not support.
    pub fn check(&self) -> Result<()> {
        self.check_bounds()?;
        check_durability(crate::layout::ENGINE, &self.pool)
    }
}

#[cfg(test)]
mod tests {
    use lodestore_contract::options::check_declaration;
    use lodestore_contract::{Durability, Error};
    use lodestore_inplace::testing::unknown_names;

    use super::*;

    fn read(sets: &[&str]) -> Result<NvhtOptions> {
        let mut options = Options::new();
        for set in sets {
            options.set_text(set)?;
        }
        NvhtOptions::from_options(PoolOptions::default(), &options)
    }

    #[test]
    fn options_are_read_by_name() {
        let options =
            read(&["partitions=8", "load-factor=0.65", "probe-length=56", "hash=xxh3", "initial-capacity=100"])
                .expect("valid");
        assert_eq!((options.partitions, options.load_percent, options.probe_lines()), (8, 65, 8));
        assert_eq!((options.hash, options.initial_capacity), (HashKind::Xxh3, 100));
    }

    #[test]
    fn the_advice_for_a_full_index_names_existing_options() {
        assert_eq!(unknown_names(INDEX_FULL, NvhtOptions::SPECS), [""; 0]);
    }

    #[test]
    fn unknown_options_and_invalid_values_are_refused() {
        for set in [
            "nonsense=1",
            "partitions=3",
            "partitions=128",
            "initial-capacity=0",
            "initial-capacity=1073741825",
            "load-factor=0.05",
            "load-factor=0.96",
            "load-factor=80",
            "load-factor=NaN",
            "probe-length=0",
            "probe-length=8",
            "probe-length=455",
            "hash=md5",
            "recovery-threads=65",
            "sweep-ms=86400001",
        ] {
            assert!(matches!(read(&[set]), Err(Error::InvalidOption { .. })), "{set} must be refused");
        }
    }

    #[test]
    fn interval_durability_is_refused() {
        let pool = PoolOptions {
            durability: Durability::Interval(std::time::Duration::from_millis(10)),
            ..PoolOptions::default()
        };
        assert!(matches!(NvhtOptions::from_options(pool, &Options::new()), Err(Error::Unsupported { .. })));
    }

    #[test]
    fn each_option_accepts_its_default_and_bounds_and_refuses_values_just_outside() {
        assert_eq!(check_declaration::<NvhtOptions>(), Ok(()));
    }

    #[test]
    fn settings_are_read_as_they_were_set() {
        let set = NvhtSettings::new().load_percent(65).hash(HashKind::Xxh3).probe_length(56);
        let options = NvhtOptions::from_options(PoolOptions::default(), set.options()).expect("valid");
        assert_eq!((options.load_percent, options.hash, options.probe_lines()), (65, HashKind::Xxh3, 8));
    }
}
