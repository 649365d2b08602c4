//! Options of the engine.

use lodestore_contract::scrub::{SCRUB_RATE, SCRUB_RATE_DEFAULT, SCRUB_RATE_MAX};
use lodestore_contract::{OptionSpec, Options, Result};
use lodestore_inplace::options::{
    DRAM_BUDGET, HASH_SEED, RECOVERY_THREADS_MAX, VERIFY_READS, check_common, check_within, number, refuse, switch,
};
use lodestore_media::PoolOptions;

use crate::hash::PARTITIONS_MAX;
use crate::layout::{BUCKET, SEGMENT_MAX, SEGMENT_MIN};

/// Most updating queues.
pub(crate) const QUEUES_MAX: usize = 64;
/// Most entries of a queue.
pub(crate) const QUEUE_LEN_MAX: usize = 1 << 16;
/// Most backend threads.
pub(crate) const BACKENDS_MAX: usize = 64;
/// Most serving and backend threads together.
pub(crate) const THREADS_MAX: usize = 128;
/// How many threads update the tree behind the writers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backends {
    /// As many as the paper's equations say, out of a pool of this many threads, serving threads included
    /// (HiKV, ATC 2017, section 3.2).
    Auto {
        /// Serving and backend threads together.
        threads: usize,
    },
    /// This many, up to 64. With 0 there is no thread: the writer updates the tree itself, at once.
    Fixed(usize),
}

/// Options of a HiKV store. Shape and modes are fixed at creation and kept in the store; the rest counts for one open.
#[derive(Clone)]
pub struct HiKvOptions {
    /// The pool's options.
    pub pool: PoolOptions,
    /// Shape: partitions of the hash index; a power of two up to 256.
    pub partitions: u32,
    /// Shape: bytes of a segment of the hash index; a multiple of 128, 512 to 1 MiB.
    pub segment_bytes: u32,
    /// Shape: seed of the hash; `None` draws one at creation.
    pub hash_seed: Option<u64>,
    /// Mode: the writer updates the tree before it returns (the paper's HiKV_sync, Figure 10).
    pub sync_update: bool,
    /// Mode: one tree a partition in place of a global one (the paper's HiKV_par, Figure 10).
    pub partitioned_tree: bool,
    /// Mode: a log record is persisted before each write (the paper's HiKV_wal, Figure 10). An open that finds no room for
    /// the log goes without it.
    pub wal: bool,
    /// Updating queues, 1 to 64.
    pub queues: usize,
    /// Entries of a queue; a power of two from 2 to 65536 (the paper: 4096).
    pub queue_len: usize,
    /// Backend threads.
    pub backends: Backends,
    /// Whether a read compares the record's checksum.
    pub verify_reads: bool,
    /// Threads that rebuild the tree after a crash, up to 64; 0: the opening thread, before `open` returns.
    pub recovery_threads: usize,
    /// Milliseconds between sweeps of expired keys, up to 86400000, by a thread of their own whatever `backends` is; 0: none.
    pub sweep_ms: u64,
    /// MiB a second that a background thread verifies, up to 1048576; 0: there is no such thread.
    pub scrub_rate: u64,
    /// Most DRAM for the store's structures, in bytes; 0: no limit. A new key over it is refused as full.
    pub dram_budget: u64,
}

/// Modes that are kept in the store, as bits.
const MODE_SYNC: u32 = 1;
const MODE_PARTITIONED: u32 = 2;
const MODE_WAL: u32 = 4;
/// All modes known.
pub(crate) const MODES: u32 = MODE_SYNC | MODE_PARTITIONED | MODE_WAL;

impl Default for HiKvOptions {
    fn default() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            pool: PoolOptions::default(),
            partitions: 64,
            segment_bytes: 16 << 10,
            hash_seed: None,
            sync_update: false,
            partitioned_tree: false,
            wal: false,
            queues: 8,
            queue_len: 4096,
            backends: Backends::Auto { threads: threads.clamp(2, THREADS_MAX) },
            verify_reads: true,
            recovery_threads: threads.min(RECOVERY_THREADS_MAX),
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
        help: "partitions of the hash index, a power of two up to 256",
        fixed: true,
    },
    OptionSpec {
        name: "segment",
        default: "16384",
        help: "bytes of a hash segment, a multiple of 128 from 512 to 1048576",
        fixed: true,
    },
    HASH_SEED,
    OptionSpec {
        name: "update",
        default: "queued",
        help: "queued: the tree is updated behind the writer; sync: by the writer",
        fixed: true,
    },
    OptionSpec {
        name: "tree",
        default: "global",
        help: "global: one tree; partitioned: one a partition, merged by scans",
        fixed: true,
    },
    OptionSpec {
        name: "wal",
        default: "off",
        help: "on: a third persist before each write, for comparison; an open without room for the log does without",
        fixed: true,
    },
    OptionSpec { name: "queues", default: "8", help: "updating queues, 1 to 64", fixed: false },
    OptionSpec {
        name: "queue-length",
        default: "4096",
        help: "entries of a queue, a power of two from 2 to 65536",
        fixed: false,
    },
    OptionSpec {
        name: "backends",
        default: "auto",
        help: "threads that update the tree: auto by the paper's equations, or a fixed 0 to 64; 0: the writer does it",
        fixed: false,
    },
    OptionSpec {
        name: "threads",
        default: "cores",
        help: "serving and backend threads together, for backends=auto, 2 to 128",
        fixed: false,
    },
    VERIFY_READS,
    OptionSpec {
        name: "recovery-threads",
        default: "cores",
        help: "threads that rebuild the tree after a crash, 0 to 64",
        fixed: false,
    },
    OptionSpec {
        name: "sweep-ms",
        default: "1000",
        help: "milliseconds between sweeps of expired keys, up to 86400000, by a thread that they have with backends=0 too; 0 for none",
        fixed: false,
    },
    SCRUB_RATE,
    DRAM_BUDGET,
];

/// What to do where a segment cannot be split any more.
pub(crate) const INDEX_FULL: &str = "create a store with a larger --set segment=BYTES, more --set partitions=N or another --set hash-seed=N, and import into it";

impl HiKvOptions {
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
        let Backends::Auto { threads: cores } = base.backends else { unreachable!("the default is auto") };
        let threads = options.read("threads", cores, "a number from 2 to 128", within(2, THREADS_MAX))?;
        let read = Self {
            partitions: number(options, "partitions", base.partitions, "a power of two up to 256")?,
            segment_bytes: options.read_size("segment", base.segment_bytes)?,
            hash_seed: options.read("hash-seed", None, "a number", |text| text.parse().ok().map(Some))?,
            sync_update: options.read("update", false, "queued or sync", |text| match text {
                "queued" => Some(false),
                "sync" => Some(true),
                _ => None,
            })?,
            partitioned_tree: options.read("tree", false, "global or partitioned", |text| match text {
                "global" => Some(false),
                "partitioned" => Some(true),
                _ => None,
            })?,
            wal: options.read("wal", false, "on or off", switch)?,
            queues: options.read("queues", base.queues, "a number from 1 to 64", within(1, QUEUES_MAX))?,
            queue_len: options.read("queue-length", base.queue_len, "a power of two from 2 to 65536", |text| {
                within(2, QUEUE_LEN_MAX)(text).filter(|len| len.is_power_of_two())
            })?,
            backends: options.read(
                "backends",
                Backends::Auto { threads },
                "auto, or a number from 0 to 64",
                |text| {
                    if text == "auto" {
                        Some(Backends::Auto { threads })
                    } else {
                        within(0, BACKENDS_MAX)(text).map(Backends::Fixed)
                    }
                },
            )?,
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

    /// Refuses values out of range.
    ///
    /// # Errors
    /// [`Error::InvalidOption`](lodestore_contract::Error::InvalidOption); [`Error::Unsupported`](lodestore_contract::Error::Unsupported) for a durability that HiKV cannot give.
    pub fn check(&self) -> Result<()> {
        if !self.partitions.is_power_of_two() || self.partitions > PARTITIONS_MAX {
            return refuse("partitions", self.partitions, "it takes a power of two up to 256");
        }
        let segment = self.segment_bytes;
        if !(SEGMENT_MIN..=SEGMENT_MAX).contains(&segment) || !segment.is_multiple_of(BUCKET as u32) {
            return refuse("segment", segment, "it takes a multiple of 128 from 512 to 1048576");
        }
        check_within("queues", self.queues as u64, 1, QUEUES_MAX as u64)?;
        if !self.queue_len.is_power_of_two() || !(2..=QUEUE_LEN_MAX).contains(&self.queue_len) {
            let why = format!("it takes a power of two from 2 to {QUEUE_LEN_MAX}");
            return refuse("queue-length", self.queue_len, &why);
        }
        match self.backends {
            Backends::Fixed(number) => check_within("backends", number as u64, 0, BACKENDS_MAX as u64)?,
            Backends::Auto { threads } => check_within("threads", threads as u64, 2, THREADS_MAX as u64)?,
        }
        check_within("scrub-rate", self.scrub_rate, 0, SCRUB_RATE_MAX)?;
        check_common(crate::layout::ENGINE, &self.pool, self.recovery_threads, self.sweep_ms)
    }

    /// The modes to keep in the store.
    pub(crate) fn modes(&self) -> u32 {
        let bit = |on: bool, bit: u32| if on { bit } else { 0 };
        bit(self.sync_update, MODE_SYNC) | bit(self.partitioned_tree, MODE_PARTITIONED) | bit(self.wal, MODE_WAL)
    }

    /// Takes the modes that the store was created with.
    pub(crate) fn set_modes(&mut self, modes: u32) {
        self.sync_update = modes & MODE_SYNC != 0;
        self.partitioned_tree = modes & MODE_PARTITIONED != 0;
        self.wal = modes & MODE_WAL != 0;
    }
}

fn within(least: usize, most: usize) -> impl Fn(&str) -> Option<usize> {
    move |text| text.parse().ok().filter(|number| (least..=most).contains(number))
}

#[cfg(test)]
mod tests {
    use lodestore_contract::{Durability, Error};
    use lodestore_inplace::options::SWEEP_MS_MAX;
    use lodestore_inplace::testing::unknown_names;

    use super::*;

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
        assert_eq!((options.partitions, options.backends, options.modes()), (8, Backends::Fixed(0), MODES));
        assert_eq!(read(&["backends=auto", "threads=16"]).expect("valid").backends, Backends::Auto { threads: 16 });
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
            (|options| options.backends = Backends::Auto { threads: 129 }, "threads", "129"),
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
    fn the_help_names_the_bounds() {
        for (name, most) in [
            ("partitions", PARTITIONS_MAX as usize),
            ("segment", SEGMENT_MAX as usize),
            ("queues", QUEUES_MAX),
            ("queue-length", QUEUE_LEN_MAX),
            ("backends", BACKENDS_MAX),
            ("threads", THREADS_MAX),
            ("recovery-threads", RECOVERY_THREADS_MAX),
            ("sweep-ms", SWEEP_MS_MAX as usize),
        ] {
            let spec = SPECS.iter().find(|spec| spec.name == name).expect("an option");
            assert!(spec.help.contains(&most.to_string()), "{name}: {}", spec.help);
        }
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
