//! Options of the engine.

use lodestore_contract::options::{OptionEdges, Whole, WordOr};
use lodestore_contract::{OptionKind, OptionSpec, OptionTable, Options, Result};
use lodestore_inplace::options::check_durability;
use lodestore_media::PoolOptions;

use crate::backend::{QUEUES_MAX, THREADS_MAX, WorkerCount};
use crate::hash::PARTITIONS_MAX;
use crate::layout::{BUCKET_BYTES, SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN};

/// How many threads update the tree after the writers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backends {
    /// The number given by the paper's equations, out of [`HiKvOptions::threads`], serving threads
    /// included (HiKV, ATC 2017, section 3.2).
    Auto,
    /// This number. With 0 there is no thread: the writer updates the tree itself, at once.
    Fixed(usize),
}

impl OptionKind<Backends> for WordOr<Whole> {
    fn read(&self, text: &str) -> Option<Backends> {
        let number: Option<usize> = OptionKind::<Option<usize>>::read(self, text)?;
        Some(number.map_or(Backends::Auto, Backends::Fixed))
    }

    fn write(&self, value: &Backends) -> String {
        let number = match value {
            Backends::Auto => None,
            Backends::Fixed(number) => Some(*number),
        };
        OptionKind::<Option<usize>>::write(self, &number)
    }

    fn edges(&self) -> OptionEdges {
        OptionKind::<Option<usize>>::edges(self)
    }
}

// The declared bounds are those that the code relies on.
const _: () = assert!(PARTITIONS_MAX == 256 && QUEUES_MAX == 64 && THREADS_MAX == 128);
const _: () = assert!(SEGMENT_BYTES_MIN == 512 && SEGMENT_BYTES_MAX == 1 << 20 && BUCKET_BYTES == 128);

lodestore_contract::options! {
    /// Options of a HiKV store. Fixed options are kept in the store; the others count for one open.
    #[derive(Clone)]
    pub struct HiKvOptions {
        /// The pool's options.
        pub pool: PoolOptions = PoolOptions::default(),
    }

    /// Options of a HiKV store that were set.
    pub settings HikvSettings {
        /// Partitions of the hash index.
        fixed partitions: u32 = "64", power_of_two(1, 256), as "partitions";
        /// Bytes of each segment of the hash index.
        fixed segment_bytes: u32 = "16384", size("512", "1M", multiple of "128"), as "segment";
        /// Seed of the key hash; random: chosen when the store is created.
        fixed hash_seed: Option<u64> = "random", word_or("random", number(0)), as "hash-seed";
        /// How the tree is updated: by a thread after the write (queued), or by the writer before
        /// it returns (sync; HiKV_sync of the paper, Figure 10).
        #[cfg(feature = "lab")]
        fixed sync_update: bool = "queued", one_of("queued" => false, "sync" => true), as "update";
        /// One tree for the store (global), or one tree for each partition, which scans merge
        /// (partitioned; HiKV_par of the paper, Figure 10).
        #[cfg(feature = "lab")]
        fixed partitioned_tree: bool = "global", one_of("global" => false, "partitioned" => true), as "tree";
        /// Whether a log record is persisted before each write, for comparison (HiKV_wal of the
        /// paper, Figure 10). An open without free space for the log works without it.
        #[cfg(feature = "lab")]
        fixed wal: bool = "off", switch(), as "wal";
        /// Number of queues of tree updates.
        tunable queues: usize = "8", number(1, 64), as "queues";
        /// Entries of each queue.
        tunable queue_len: usize = "4096", power_of_two(2, 65536), as "queue-length";
        /// Threads that update the tree: the number from the paper's equations (auto), or this
        /// number. With 0 the writer updates the tree.
        tunable backends: Backends = "auto", word_or("auto", number(0, 64)), as "backends";
        /// Total number of serving and backend threads, for backends=auto.
        tunable threads: usize = "cores", cores_or(number(2, 128)), as "threads";
        /// Whether a read verifies the record's checksum. Index entries are always compared with
        /// their records.
        tunable verify_reads: bool = "on", switch(), as "verify-reads";
        /// Threads that rebuild the tree after a crash. With 0 the opening thread rebuilds it
        /// before the open returns.
        tunable recovery_threads: usize = "cores", cores_or(number(0, 64)), as "recovery-threads";
        /// Milliseconds between sweeps of expired keys; 0: no sweeps. A separate thread sweeps,
        /// even with backends=0.
        tunable sweep_ms: u64 = "1000", number(0, 86400000), as "sweep-ms";
        /// MiB per second that a background thread verifies; 0: no background verification.
        tunable scrub_rate: u64 = "1", number(0, 1048576), as "scrub-rate";
        /// Maximum bytes of DRAM for the store's structures; above it new keys are refused. 0: no
        /// limit.
        tunable dram_budget: u64 = "0", size(), as "dram-budget";
    }
}

/// Advice if a segment cannot be split any more.
pub(crate) const INDEX_FULL: &str = "create a new store with a larger `Builder::set(\"segment\", ..)`, more \
                                     `Builder::set(\"partitions\", ..)` or another `Builder::set(\"hash-seed\", \
                                     ..)`, and import the data";

impl HiKvOptions {
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

    /// Rejects values out of range.
    ///
    /// # Errors
    /// [`Error::InvalidOption`](lodestore_contract::Error::InvalidOption);
    /// [`Error::Unsupported`](lodestore_contract::Error::Unsupported) for a durability that HiKV
    /// does not support.
    pub fn check(&self) -> Result<()> {
        self.check_bounds()?;
        check_durability(crate::layout::ENGINE, &self.pool)
    }

    /// Returns the setup of the threads that update the tree.
    pub(crate) fn worker_count(&self) -> WorkerCount {
        match self.backends {
            Backends::Auto => WorkerCount::Auto { threads: self.threads },
            Backends::Fixed(number) => WorkerCount::Fixed(number),
        }
    }
}

#[cfg(test)]
mod tests {
    use lodestore_contract::options::check_declaration;
    use lodestore_contract::{Durability, Error};
    use lodestore_inplace::testing::unknown_names;

    use super::*;
    use crate::layout::MODES_MASK;

    fn read(sets: &[&str]) -> Result<HiKvOptions> {
        let mut options = Options::new();
        for set in sets {
            options.set_text(set)?;
        }
        HiKvOptions::from_options(PoolOptions::default(), &options)
    }

    #[test]
    fn options_are_read_by_name() {
        let options =
            read(&["partitions=8", "backends=0", "wal=on", "tree=partitioned", "update=sync"]).expect("valid");
        assert_eq!((options.partitions, options.backends, options.modes()), (8, Backends::Fixed(0), MODES_MASK));
        let options = read(&["backends=auto", "threads=16"]).expect("valid");
        assert_eq!((options.backends, options.threads), (Backends::Auto, 16));
    }

    #[test]
    fn the_advice_for_a_full_index_names_existing_options() {
        assert_eq!(unknown_names(INDEX_FULL, HiKvOptions::SPECS), [""; 0]);
    }

    #[test]
    fn unknown_options_and_invalid_values_are_refused() {
        for set in [
            "nonsense=1",
            "partitions=3",
            "partitions=512",
            "segment=100",
            "queues=0",
            "queue-length=3",
            "backends=65",
            "queue-length=131072",
            "threads=1",
            "recovery-threads=65",
            "sweep-ms=86400001",
        ] {
            assert!(matches!(read(&[set]), Err(Error::InvalidOption { .. })), "{set} must be refused");
        }
    }

    #[test]
    fn a_refusal_names_the_value_that_was_given() {
        type Set = fn(&mut HiKvOptions);
        let cases: [(Set, &str, &str); 4] = [
            (|options| options.backends = Backends::Fixed(1000), "backends", "1000"),
            (|options| options.threads = 129, "threads", "129"),
            (|options| options.recovery_threads = 70, "recovery-threads", "70"),
            (|options| options.sweep_ms = u64::MAX, "sweep-ms", "18446744073709551615"),
        ];
        for (set, option, given) in cases {
            let mut options = HiKvOptions::default();
            set(&mut options);
            match options.check() {
                Err(Error::InvalidOption { name, value, .. }) => assert_eq!((&*name, &*value), (option, given)),
                other => panic!("{option}: {other:?}"),
            }
        }
    }

    #[test]
    fn each_option_accepts_its_default_and_bounds_and_refuses_values_just_outside() {
        assert_eq!(check_declaration::<HiKvOptions>(), Ok(()));
    }

    #[test]
    fn settings_are_read_as_they_were_set() {
        let set = HikvSettings::new().partitions(8).wal(true).backends(Backends::Fixed(2)).hash_seed(Some(7));
        let options = HiKvOptions::from_options(PoolOptions::default(), set.options()).expect("valid");
        assert_eq!((options.partitions, options.wal, options.backends), (8, true, Backends::Fixed(2)));
        assert_eq!(options.hash_seed, Some(7));
    }

    #[test]
    fn interval_durability_is_refused() {
        let pool = PoolOptions {
            durability: Durability::Interval(std::time::Duration::from_millis(10)),
            ..PoolOptions::default()
        };
        assert!(matches!(HiKvOptions::from_options(pool, &Options::new()), Err(Error::Unsupported { .. })));
    }
}
