//! Options of the engine.

use lodestore_contract::scrub::{SCRUB_RATE, SCRUB_RATE_DEFAULT, SCRUB_RATE_MAX};
use lodestore_contract::{OptionSpec, Options, Result};
use lodestore_inplace::options::{
    DRAM_BUDGET, HASH_SEED, RECOVERY_THREADS_MAX, VERIFY_READS, check_common, check_within, number, refuse, switch,
};
use lodestore_media::PoolOptions;

use crate::hash::{HashKind, PARTITIONS_MAX};
use crate::layout::{FIRST_SLOTS_MAX, LINE_SLOTS, LOAD_MAX, LOAD_MIN, PROBE_LINES_MAX};

/// Options of an NVHT store. Shape is fixed at creation and kept in the store; the rest counts for one open.
#[derive(Clone)]
pub struct NvhtOptions {
    /// The pool's options.
    pub pool: PoolOptions,
    /// Shape: partitions of the table, each of which grows on its own; a power of two up to 64.
    pub partitions: u32,
    /// Shape: slots that a new store has, about; 1 to 2^30 (NVHT, JPDC 2018: initial capacity, 8192).
    pub initial_capacity: u32,
    /// Shape: keys for each hundred slots over which a table is doubled; 10 to 95 (the paper's maximum load factor, 0.8).
    pub load_percent: u32,
    /// Shape: slots that are probed for a key, a multiple of 7 up to 448 (the paper's maximum probing length, 128 slots).
    pub probe_length: u32,
    /// Shape: the hash function.
    pub hash: HashKind,
    /// Shape: seed of the hash; `None` draws one at creation.
    pub hash_seed: Option<u64>,
    /// Whether a read compares the record's checksum.
    pub verify_reads: bool,
    /// Threads that walk the tables after a crash, up to 64; 0: the opening thread, before `open` returns.
    pub recovery_threads: usize,
    /// Milliseconds between sweeps of expired keys, up to 86400000; 0: none.
    pub sweep_ms: u64,
    /// MiB a second that a background thread verifies, up to 1048576; 0: there is no such thread.
    pub scrub_rate: u64,
    /// Most DRAM for the store's structures, in bytes; 0: no limit. A new key over it is refused.
    pub dram_budget: u64,
}

impl Default for NvhtOptions {
    fn default() -> Self {
        Self {
            pool: PoolOptions::default(),
            partitions: 64,
            initial_capacity: 8192,
            load_percent: 80,
            probe_length: 224,
            hash: HashKind::Murmur3,
            hash_seed: None,
            verify_reads: true,
            recovery_threads: std::thread::available_parallelism().map_or(1, usize::from).min(RECOVERY_THREADS_MAX),
            sweep_ms: 1000,
            scrub_rate: SCRUB_RATE_DEFAULT,
            dram_budget: 0,
        }
    }
}

/// The options by name, for `--set name=value`.
const SPECS: &[OptionSpec] = &[
    OptionSpec {
        name: "partitions",
        default: "64",
        help: "partitions of the table, a power of two up to 64",
        fixed: true,
    },
    OptionSpec {
        name: "initial-capacity",
        default: "8192",
        help: "slots of a new store, about, 1 to 1073741824",
        fixed: true,
    },
    OptionSpec {
        name: "load-factor",
        default: "0.8",
        help: "keys for each slot over which a table is doubled, 0.1 to 0.95",
        fixed: true,
    },
    OptionSpec {
        name: "probe-length",
        default: "224",
        help: "slots that are probed for a key, a multiple of 7 up to 448",
        fixed: true,
    },
    OptionSpec { name: "hash", default: "murmur3", help: "hash function: murmur3 or xxh3", fixed: true },
    HASH_SEED,
    VERIFY_READS,
    OptionSpec {
        name: "recovery-threads",
        default: "cores",
        help: "threads that walk the tables after a crash, 0 to 64",
        fixed: false,
    },
    OptionSpec {
        name: "sweep-ms",
        default: "1000",
        help: "milliseconds between sweeps of expired keys, up to 86400000; 0 for none",
        fixed: false,
    },
    SCRUB_RATE,
    DRAM_BUDGET,
];

/// What to do where a table takes no more keys of the same hash bits. All of it is fixed at creation.
pub(crate) const INDEX_FULL: &str = "create a store with a longer --set probe-length=N, more --set partitions=N or another --set hash-seed=N, and import into it";

impl NvhtOptions {
    /// The options there are.
    pub fn specs() -> &'static [OptionSpec] {
        SPECS
    }

    /// Options of `pool` and those named in `options`.
    ///
    /// # Errors
    /// [`Error::InvalidOption`](lodestore_contract::Error::InvalidOption) for a name or value that is none.
    pub fn from_options(pool: PoolOptions, options: &Options) -> Result<Self> {
        options.check_names(SPECS)?;
        let base = Self { pool, ..Self::default() };
        let read = Self {
            partitions: number(options, "partitions", base.partitions, "a power of two up to 64")?,
            initial_capacity: number(options, "initial-capacity", base.initial_capacity, "a number of slots")?,
            load_percent: options.read("load-factor", base.load_percent, "a number from 0.1 to 0.95", percent)?,
            probe_length: number(options, "probe-length", base.probe_length, "a number of slots")?,
            hash: options.read("hash", base.hash, "murmur3 or xxh3", |text| match text {
                "murmur3" => Some(HashKind::Murmur3),
                "xxh3" => Some(HashKind::Xxh3),
                _ => None,
            })?,
            hash_seed: options.read("hash-seed", None, "a number", |text| text.parse().ok().map(Some))?,
            verify_reads: options.read("verify-reads", base.verify_reads, "on or off", switch)?,
            recovery_threads: number(options, "recovery-threads", base.recovery_threads, "a number from 0 to 64")?,
            sweep_ms: number(options, "sweep-ms", base.sweep_ms, "milliseconds, from 0 to 86400000")?,
            scrub_rate: number(options, "scrub-rate", base.scrub_rate, "MiB a second, from 0 to 1048576")?,
            dram_budget: options.read_size("dram-budget", base.dram_budget)?,
            pool: base.pool,
        };
        read.check()?;
        Ok(read)
    }

    /// Lines that are probed for a key.
    pub(crate) fn probe_lines(&self) -> u32 {
        self.probe_length / LINE_SLOTS as u32
    }

    /// Refuses values out of range.
    ///
    /// # Errors
    /// [`Error::InvalidOption`](lodestore_contract::Error::InvalidOption); [`Error::Unsupported`](lodestore_contract::Error::Unsupported) for a durability that NVHT cannot give.
    pub fn check(&self) -> Result<()> {
        if !self.partitions.is_power_of_two() || self.partitions > PARTITIONS_MAX {
            return refuse("partitions", self.partitions, "it takes a power of two up to 64");
        }
        if !(1..=FIRST_SLOTS_MAX).contains(&self.initial_capacity) {
            return refuse("initial-capacity", self.initial_capacity, "it takes 1 to 1073741824");
        }
        if !(LOAD_MIN..=LOAD_MAX).contains(&self.load_percent) {
            return refuse("load-factor", f64::from(self.load_percent) / 100.0, "it takes 0.1 to 0.95");
        }
        let line = LINE_SLOTS as u32;
        if !self.probe_length.is_multiple_of(line) || !(1..=PROBE_LINES_MAX).contains(&self.probe_lines()) {
            return refuse("probe-length", self.probe_length, "it takes a multiple of 7 from 7 to 448");
        }
        check_within("scrub-rate", self.scrub_rate, 0, SCRUB_RATE_MAX)?;
        check_common(crate::layout::ENGINE, &self.pool, self.recovery_threads, self.sweep_ms)
    }
}

/// A share of one as hundredths.
fn percent(text: &str) -> Option<u32> {
    let share: f64 = text.parse().ok()?;
    (0.0..=1.0).contains(&share).then(|| (share * 100.0).round() as u32)
}

#[cfg(test)]
mod tests {
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
    fn what_to_do_about_a_full_index_names_options_that_there_are() {
        assert_eq!(unknown_names(INDEX_FULL, SPECS), [""; 0]);
    }

    #[test]
    fn what_is_no_option_or_no_value_is_refused() {
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
    fn the_defaults_are_those_of_the_help() {
        let sets: Vec<String> = SPECS
            .iter()
            .filter(|spec| !["random", "cores"].contains(&spec.default))
            .map(|spec| format!("{}={}", spec.name, spec.default))
            .collect();
        let (said, base) =
            (read(&sets.iter().map(String::as_str).collect::<Vec<_>>()).expect("valid"), NvhtOptions::default());
        assert_eq!((said.partitions, said.initial_capacity), (base.partitions, base.initial_capacity));
        assert_eq!(
            (said.load_percent, said.probe_length, said.hash),
            (base.load_percent, base.probe_length, base.hash)
        );
        assert_eq!((said.verify_reads, said.sweep_ms, said.dram_budget), (base.verify_reads, base.sweep_ms, 0));
    }
}
