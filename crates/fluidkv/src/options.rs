//! Options of the engine.

use lodestore_contract::scrub::{SCRUB_RATE, SCRUB_RATE_DEFAULT, SCRUB_RATE_MAX};
use lodestore_contract::{Error, OptionSpec, Options, Result};
use lodestore_media::PoolOptions;

use crate::table::Reads;

/// Most threads that flush and compact.
pub(crate) const WORKERS_MAX: usize = 64;
/// Smallest DRAM budget: `dram.rs` says what must fit.
pub(crate) const BUDGET_MIN: u64 = 1 << 20;
/// DRAM budget for each worker, which builds a table.
const BUDGET_WORKER: u64 = 1 << 20;
/// Smallest value that is worth a pointer of 16 bytes.
pub(crate) const THRESHOLD_MIN: u64 = 32;
/// Bytes of a data block where nobody says how many.
const BLOCK: u32 = 1 << 10;
/// The same of a compressed table: what makes a block worth compressing.
const BLOCK_COMPRESSED: u32 = 4 << 10;
const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// Whether reads compare checksums. A flush, a compaction and `verify` always do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VerifyReads {
    /// No read does.
    Off,
    /// Each read compares the checksum of all that its answer depends on: the item, the log record
    /// or the large value of a hit, the block or the line of the filter behind a miss, each block
    /// of a scan.
    On,
}

impl VerifyReads {
    fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "off" => Self::Off,
            "on" => Self::On,
            _ => return None,
        })
    }

    /// How tables are read.
    pub(crate) fn reads(self) -> Reads {
        match self {
            Self::Off => Reads::Trusted,
            Self::On => Reads::Verified,
        }
    }
}

/// Whether blocks of stable tables are compressed. It is asked when a table is written; each table says for itself what it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compression {
    /// As the engine thinks best: they are not, on any medium. On a disk too, whose files the page cache holds, gets and scans are half as
    /// fast with compression (`docs/results/fluidkv.md`).
    #[default]
    Auto,
    /// With LZ4, where a block shrinks by an eighth or more.
    Lz4,
    /// They are not.
    None,
}

impl Compression {
    /// Whether compactions compress.
    pub(crate) fn is_on(self) -> bool {
        self == Self::Lz4
    }

    fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "auto" => Self::Auto,
            "lz4" => Self::Lz4,
            "none" => Self::None,
            _ => return None,
        })
    }
}

/// Options of a FluidKV store. None shapes the store: each open chooses anew.
#[derive(Clone)]
pub struct FluidOptions {
    /// The pool's options.
    pub pool: PoolOptions,
    /// Most DRAM for the store's structures, in bytes, from 1 MiB; a new store of a large capacity wants more. It bounds the workers (one a MiB) and the size of tables,
    /// too. Where tables, or what snapshots hold, leave nothing for memtables, writes but deletes are refused.
    pub dram_budget: u64,
    /// Bytes of log after which a memtable is frozen and flushed, whatever DRAM it takes; 64 KiB to 64 GiB. Where an eighth of what the tables hold is less, it is that, or
    /// 16 MiB: as little is rewritten then, and the memtable's index stays in the processor's cache.
    pub memtable_bytes: u64,
    /// Bytes of a thread's log segment; 16 KiB to 64 MiB. It is at most a quarter of its memtable's log, and where many threads write a part of that, down to 64 KiB.
    pub segment_bytes: u64,
    /// Bytes at which a table is cut; 16 KiB to 64 MiB.
    pub table_bytes: u64,
    /// Bytes of a data block, 512 to 65536. At its default, 1024, compressed tables have blocks of 4096.
    pub block_bytes: u32,
    /// Whether the blocks of tables that compactions write are compressed.
    pub compression: Compression,
    /// Bits of filter a key; 0 for none, up to 20.
    pub filter_bits: u32,
    /// Stable bytes over which a range is split; 64 KiB to 64 GiB.
    pub range_bytes: u64,
    /// Runs that a range may buffer before it must be compacted; 1 to 64.
    pub runs_max: usize,
    /// Buffered bytes of a range, in hundredths of its stable bytes, at which it is worth a compaction; 1 to 1000.
    pub buffer_percent: u32,
    /// Values of this many bytes or more are kept in the value log, where flushes and compactions do not copy them; 0 for none, else 32 to 2^30. Unless it is 0,
    /// smaller ones of a batch are as well where no free extent is as long as the batch's record.
    pub value_threshold: u64,
    /// Bytes of a segment of the value log; 16 KiB to 1 GiB. A much larger value has one of its own.
    pub value_segment_bytes: u64,
    /// Bytes of overwritten and deleted values, in hundredths of the value log's, over which segments are collected; 1 to 99.
    pub value_garbage: u32,
    /// Threads that flush and compact, up to 64; as many as there are cores by default, and no more than the budget has MiB. 0: the writing thread does it (for the
    /// simulator).
    pub workers: usize,
    /// MiB a second that a background thread verifies, up to [`SCRUB_RATE_MAX`]; 0: there is no
    /// such thread. Without `workers` there is none either.
    pub scrub_rate: u64,
    /// Whether reads compare the checksums of what they read.
    pub verify_reads: VerifyReads,
}

impl Default for FluidOptions {
    fn default() -> Self {
        Self {
            pool: PoolOptions::default(),
            dram_budget: 256 * MIB,
            memtable_bytes: 64 * MIB,
            segment_bytes: 256 * KIB,
            table_bytes: 256 * KIB,
            block_bytes: BLOCK,
            compression: Compression::Auto,
            filter_bits: 10,
            range_bytes: 16 * MIB,
            runs_max: 8,
            buffer_percent: 50,
            value_threshold: 4 * KIB,
            value_segment_bytes: 4 * MIB,
            value_garbage: 30,
            workers: std::thread::available_parallelism().map_or(1, usize::from).min(WORKERS_MAX),
            scrub_rate: SCRUB_RATE_DEFAULT,
            verify_reads: VerifyReads::On,
        }
    }
}

macro_rules! spec {
    ($name:literal, $default:literal, $help:literal) => {
        OptionSpec { name: $name, default: $default, help: $help, fixed: false }
    };
}

/// The options by name, for `--set name=value`.
const SPECS: &[OptionSpec] = &[
    spec!(
        "dram-budget",
        "268435456",
        "most bytes of DRAM, from 1048576; writers wait for flushes, and puts are refused where tables use it up"
    ),
    spec!(
        "memtable-bytes",
        "67108864",
        "bytes of log after which a memtable is flushed, 65536 to 68719476736; sooner, at 16 MiB or an eighth of what the tables hold, in a small store"
    ),
    spec!(
        "segment-bytes",
        "262144",
        "bytes of a thread's log segment, 16384 to 67108864; at most a quarter of a memtable's log, and less where many threads write"
    ),
    spec!("table-bytes", "262144", "bytes at which a table is cut, 16384 to 67108864"),
    spec!("block-bytes", "1024", "bytes of a data block, 512 to 65536; at 1024 compressed tables have blocks of 4096"),
    spec!("compression", "auto", "how tables are compressed that compactions write: lz4, none, or auto, which is none"),
    spec!("filter-bits", "10", "bits of filter a key, 0 to 20; 0 for none"),
    spec!("range-bytes", "16777216", "stable bytes over which a range is split, 65536 to 68719476736"),
    spec!("runs-max", "8", "runs that a range buffers at most, 1 to 64"),
    spec!("buffer-percent", "50", "buffered bytes in hundredths of the stable ones that begin a compaction, 1 to 1000"),
    spec!(
        "value-threshold",
        "4096",
        "bytes from which a value is kept apart, in the value log: 32 to 1073741824; 0: none is"
    ),
    spec!("value-segment-bytes", "4194304", "bytes of a segment of the value log, 16384 to 1073741824"),
    spec!("value-garbage", "30", "dead bytes in hundredths of the value log's over which it is collected, 1 to 99"),
    spec!("workers", "cores", "threads that flush and compact, 0 to 64; 0: the writers do it"),
    SCRUB_RATE,
    spec!("verify-reads", "on", "whether a read compares the checksums of all that its answer depends on: on or off"),
];

impl FluidOptions {
    /// The options there are.
    pub fn specs() -> &'static [OptionSpec] {
        SPECS
    }

    /// Options of `pool` and those named in `options`.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] for a name or value that is none.
    pub fn from_options(pool: PoolOptions, options: &Options) -> Result<Self> {
        options.check_names(SPECS)?;
        let base = Self { pool, ..Self::default() };
        let read = Self {
            dram_budget: options.read_size("dram-budget", base.dram_budget)?,
            memtable_bytes: options.read_size("memtable-bytes", base.memtable_bytes)?,
            segment_bytes: options.read_size("segment-bytes", base.segment_bytes)?,
            table_bytes: options.read_size("table-bytes", base.table_bytes)?,
            block_bytes: options.read_size("block-bytes", base.block_bytes)?,
            compression: options.read("compression", base.compression, "auto, lz4 or none", Compression::parse)?,
            filter_bits: options.read("filter-bits", base.filter_bits, "0 to 20", |text| text.parse().ok())?,
            range_bytes: options.read_size("range-bytes", base.range_bytes)?,
            runs_max: options.read("runs-max", base.runs_max, "1 to 64", |text| text.parse().ok())?,
            buffer_percent: options
                .read("buffer-percent", base.buffer_percent, "1 to 1000", |text| text.parse().ok())?,
            value_threshold: options.read_size("value-threshold", base.value_threshold)?,
            value_segment_bytes: options.read_size("value-segment-bytes", base.value_segment_bytes)?,
            value_garbage: options.read("value-garbage", base.value_garbage, "1 to 99", |text| text.parse().ok())?,
            workers: options.read("workers", base.workers, "0 to 64", |text| text.parse().ok())?,
            scrub_rate: options.read("scrub-rate", base.scrub_rate, "0 to 1048576", |text| text.parse().ok())?,
            verify_reads: options.read("verify-reads", base.verify_reads, "on or off", VerifyReads::parse)?,
            pool: base.pool,
        };
        read.check()?;
        Ok(read)
    }

    /// As they are used: no more workers than the budget has room for.
    pub(crate) fn within_budget(&self) -> Self {
        let most = usize::try_from(self.dram_budget / BUDGET_WORKER).unwrap_or(WORKERS_MAX).max(1);
        Self { workers: self.workers.min(most), ..self.clone() }
    }

    /// Bytes of a data block of a compressed table.
    pub(crate) fn compressed_block_bytes(&self) -> u32 {
        if self.block_bytes == BLOCK { BLOCK_COMPRESSED } else { self.block_bytes }
    }

    /// Refuses values out of range.
    ///
    /// # Errors
    /// [`Error::InvalidOption`].
    pub fn check(&self) -> Result<()> {
        let threshold = if self.value_threshold == 0 { THRESHOLD_MIN } else { self.value_threshold };
        let bounds: [(&str, u64, u64, u64); 14] = [
            ("dram-budget", self.dram_budget, BUDGET_MIN, u64::MAX),
            ("memtable-bytes", self.memtable_bytes, 64 * KIB, 64 << 30),
            ("segment-bytes", self.segment_bytes, 16 * KIB, 64 * MIB),
            ("table-bytes", self.table_bytes, 16 * KIB, 64 * MIB),
            ("block-bytes", self.block_bytes.into(), 512, 64 * KIB),
            ("filter-bits", self.filter_bits.into(), 0, 20),
            ("range-bytes", self.range_bytes, 64 * KIB, 64 << 30),
            ("runs-max", self.runs_max as u64, 1, 64),
            ("buffer-percent", self.buffer_percent.into(), 1, 1000),
            ("value-threshold", threshold, THRESHOLD_MIN, 1 << 30),
            ("value-segment-bytes", self.value_segment_bytes, 16 * KIB, 1 << 30),
            ("value-garbage", self.value_garbage.into(), 1, 99),
            ("workers", self.workers as u64, 0, WORKERS_MAX as u64),
            ("scrub-rate", self.scrub_rate, 0, SCRUB_RATE_MAX),
        ];
        for (name, value, low, high) in bounds {
            if !(low..=high).contains(&value) {
                let why = format!("it takes {low} to {high}");
                return Err(Error::InvalidOption { name: name.into(), value: value.to_string(), why });
            }
        }
        Ok(())
    }
}
