//! Options of the engine.

use lodestore_contract::{OptionSpec, OptionTable, Options, Result};
use lodestore_media::PoolOptions;

use crate::sst::Reads;

/// Maximum number of threads that flush and compact.
pub(crate) const WORKERS_MAX: usize = 64;
/// DRAM budget per worker, which builds a table.
const WORKER_BUDGET_BYTES: u64 = 1 << 20;
/// Smallest value for which a pointer of 16 bytes is worthwhile.
pub(crate) const THRESHOLD_MIN: u64 = 32;
/// Default bytes of a data block.
const BLOCK_BYTES_DEFAULT: u32 = 1 << 10;
/// Default bytes of a data block in a compressed table: enough to make compression worthwhile.
const COMPRESSED_BLOCK_BYTES_DEFAULT: u32 = 4 << 10;

/// Whether reads verify checksums. A flush, a compaction and `verify` always do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VerifyReads {
    /// Reads verify no checksum.
    Off,
    /// Each read verifies the checksums of all that its answer depends on. For a hit these are the
    /// item, the log record or the large value; for a miss the block or the filter line; for a scan
    /// each block.
    On,
}

impl VerifyReads {
    /// Returns how tables are read.
    pub(crate) fn reads(self) -> Reads {
        match self {
            Self::Off => Reads::Trusted,
            Self::On => Reads::Verified,
        }
    }
}

/// Whether blocks of stable tables are compressed. Evaluated when a table is written; each table
/// records its own format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Compression {
    /// The engine's choice: not compressed on any medium. Even on a disk, whose files the page
    /// cache holds, gets and scans are half as fast with compression (`docs/results/fluidkv.md`).
    #[default]
    Auto,
    /// LZ4, for blocks that shrink by an eighth or more.
    Lz4,
    /// Not compressed.
    None,
}

impl Compression {
    /// Returns whether compactions compress.
    pub(crate) fn is_on(self) -> bool {
        self == Self::Lz4
    }
}

lodestore_contract::options! {
    /// Options of a FluidKV store. None shapes the store: each open chooses again.
    #[derive(Clone)]
    pub struct FluidOptions {
        /// The pool's options.
        pub pool: PoolOptions = PoolOptions::default(),
    }

    /// Options of a FluidKV store that were set.
    pub settings FluidkvSettings {
        /// Maximum bytes of DRAM for the store's structures. Writers wait for flushes, and puts are
        /// refused if tables or snapshots use all of it. The budget also limits the workers (one
        /// per MiB) and the size of tables. A new store of a large capacity needs a larger budget.
        tunable dram_budget: u64 = "268435456", size("1M"), as "dram-budget";
        /// Bytes of log after which a memtable is flushed. A small store flushes earlier, at 16 MiB
        /// or an eighth of the bytes of its tables, so that the memtable's index stays in the
        /// processor's cache.
        tunable memtable_bytes: u64 = "67108864", size("64K", "64G"), as "memtable-bytes";
        /// Bytes of a thread's log segment; at most a quarter of a memtable's log, and less if many
        /// threads write.
        tunable segment_bytes: u64 = "262144", size("16K", "64M"), as "segment-bytes";
        /// Bytes of a sorted table, after which the next table begins.
        tunable table_bytes: u64 = "262144", size("16K", "64M"), as "table-bytes";
        /// Bytes of a data block. With the default, compressed tables have blocks of 4096 bytes.
        tunable block_bytes: u32 = "1024", size("512", "64K"), as "block-bytes";
        /// Compression of the tables that compactions write; auto: none.
        tunable compression: Compression = "auto", one_of(
            "auto" => Compression::Auto, "lz4" => Compression::Lz4, "none" => Compression::None
        ), as "compression";
        /// Bits of filter per key; 0: no filter.
        tunable filter_bits: u32 = "10", number(0, 20), as "filter-bits";
        /// Stable bytes above which a range is split.
        tunable range_bytes: u64 = "16777216", size("64K", "64G"), as "range-bytes";
        /// Maximum runs of a range before the range must be compacted.
        tunable runs_max: usize = "8", number(1, 64), as "runs-max";
        /// Buffered bytes of a range, in percent of its stable bytes, at which a compaction begins.
        tunable buffer_percent: u32 = "50", number(1, 1000), as "buffer-percent";
        /// Minimum bytes of a value in the value log, which flushes and compactions do not copy; 0:
        /// no value. If not 0, the value log also gets smaller values of a batch whose record is
        /// longer than any free extent.
        tunable value_threshold: u64 = "4096", zero_or(size("32", "1G")), as "value-threshold";
        /// Bytes of a segment of the value log. A much larger value gets a separate segment.
        tunable value_segment_bytes: u64 = "4194304", size("16K", "1G"), as "value-segment-bytes";
        /// Dead bytes of the value log, in percent of its bytes, above which segments are
        /// collected.
        tunable value_garbage: u32 = "30", number(1, 99), as "value-garbage";
        /// Threads that flush and compact, at most one per MiB of the budget. With 0 the writing
        /// threads flush and compact.
        tunable workers: usize = "cores", cores_or(number(0, 64)), as "workers";
        /// MiB per second that a background thread verifies; 0, or no workers: no background
        /// verification.
        tunable scrub_rate: u64 = "1", number(0, 1048576), as "scrub-rate";
        /// Whether a read verifies the checksums of all data that its result depends on.
        tunable verify_reads: VerifyReads = "on", one_of("on" => VerifyReads::On, "off" => VerifyReads::Off), as "verify-reads";
    }
}

// The declared bounds are those that the code relies on.
const _: () = assert!(WORKERS_MAX == 64 && THRESHOLD_MIN == 32);

impl FluidOptions {
    /// Returns all options of the engine.
    pub fn specs() -> &'static [OptionSpec] {
        Self::SPECS
    }

    /// Returns the options of `pool` with those named in `options`.
    ///
    /// # Errors
    /// [`Error::InvalidOption`](lodestore_contract::Error::InvalidOption) for an unknown name or an
    /// invalid value.
    pub fn from_options(pool: PoolOptions, options: &Options) -> Result<Self> {
        options.check_names(crate::ENGINE, Self::SPECS)?;
        let mut read = Self { pool, ..Self::default() };
        read.read_from(options)?;
        Ok(read)
    }

    /// Returns the options in effect: no more workers than the budget allows.
    pub(crate) fn within_budget(&self) -> Self {
        let most = usize::try_from(self.dram_budget / WORKER_BUDGET_BYTES).unwrap_or(WORKERS_MAX).max(1);
        Self { workers: self.workers.min(most), ..self.clone() }
    }

    /// Returns the bytes of a data block of a compressed table.
    pub(crate) fn compressed_block_bytes(&self) -> u32 {
        if self.block_bytes == BLOCK_BYTES_DEFAULT { COMPRESSED_BLOCK_BYTES_DEFAULT } else { self.block_bytes }
    }

    /// Rejects values out of range.
    ///
    /// # Errors
    /// [`Error::InvalidOption`](lodestore_contract::Error::InvalidOption).
    pub fn check(&self) -> Result<()> {
        self.check_bounds()
    }
}

#[cfg(test)]
mod tests {
    use lodestore_contract::options::check_declaration;

    use super::*;

    #[test]
    fn each_option_accepts_its_default_and_bounds_and_refuses_values_outside() {
        assert_eq!(check_declaration::<FluidOptions>(), Ok(()));
    }

    #[test]
    fn a_default_block_of_a_compressed_table_is_larger() {
        let options = FluidOptions::default();
        assert_eq!(
            (options.block_bytes, options.compressed_block_bytes()),
            (BLOCK_BYTES_DEFAULT, COMPRESSED_BLOCK_BYTES_DEFAULT)
        );
    }
}
