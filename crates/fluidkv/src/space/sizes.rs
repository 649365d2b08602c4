//! Sizes of a store's parts: from the options, limited by the capacity and the DRAM budget.

use crate::options::FluidOptions;
use crate::sst::{Reads, TableOptions};

/// Most memtables of a store: one is active, the others wait for their flush. `rotate_or` enforces
/// this.
pub(crate) const MEMTABLES_MAX: u64 = 4;
/// Divisor: a memtable's log reaches at most this share of the bytes of the tables, or
/// `SMALL_MEMTABLE_LOG_BYTES` bytes if that is more. An index of some 8 MiB covers that many bytes
/// of small records.
const MEMTABLE_LOG_DIVISOR: u64 = 8;
const SMALL_MEMTABLE_LOG_BYTES: u64 = 16 << 20;
/// Tables are not made smaller than this for lack of DRAM, in bytes.
const TABLE_BYTES_MIN: u64 = 16 << 10;
/// Divisor of the capacity: the largest log of one memtable. A range may have twice that.
const MEMTABLE_CAPACITY_DIVISOR: u64 = 32;
/// DRAM of a table's handle and of its entry in the manifest's state, approximately.
pub(crate) const TABLE_HANDLE_BYTES: u64 = 448;
/// DRAM of a table being built, as a multiple of its bytes: the table, and the data for its index
/// and filter.
pub(crate) const TABLE_BUILD_FACTOR: u64 = 2;

/// Sizes in use: from the options, limited by the capacity.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sizes {
    pub(crate) memtable: u64,
    pub(crate) segment: u64,
    pub(crate) range: u64,
    /// Values of this many bytes or more go to the value log.
    pub(crate) value_threshold: usize,
    /// Bytes of a value segment.
    pub(crate) value_segment: u64,
    /// Table options of flushes, and of compactions.
    pub(crate) table: TableOptions,
    pub(crate) stable: TableOptions,
    /// Whether reads compare checksums.
    pub(crate) reads: Reads,
}

impl Sizes {
    pub(crate) fn of(options: &FluidOptions, capacity: u64) -> Self {
        let part = (capacity / MEMTABLE_CAPACITY_DIVISOR).max(4 << 10);
        let range = options.range_bytes.min(2 * part);
        let workers = options.workers.max(1) as u64;
        // All tables being built at a time use a quarter of the budget.
        let built = options.dram_budget / 4 / TABLE_BUILD_FACTOR / workers;
        let table_bytes = options.table_bytes.min((range / 2).max(4 << 10)).min(built.max(TABLE_BYTES_MIN));
        // While a range is compacted, its tables exist twice.
        let most = (options.dram_budget / 16 / TABLE_HANDLE_BYTES / workers).max(8) * table_bytes;
        let (range, table_bytes) = (range.min(most), table_bytes as usize);
        let memtable = options.memtable_bytes.min(part).min(most / 4);
        let segment = options.segment_bytes.min((memtable / 4).max(1 << 10));
        let block_bytes = |wanted: u32| (wanted as usize).min(table_bytes / 4).max(256);
        let table = TableOptions {
            block_bytes: block_bytes(options.block_bytes),
            table_bytes,
            filter_bits: options.filter_bits as u8,
            compress: false,
        };
        let compress = options.compression.is_on();
        let stable = match options.compressed_block_bytes() {
            wanted if compress => TableOptions { block_bytes: block_bytes(wanted), compress, ..table },
            _ => table,
        };
        Self {
            memtable,
            segment,
            range,
            value_threshold: if options.value_threshold == 0 { usize::MAX } else { options.value_threshold as usize },
            value_segment: options.value_segment_bytes.min(part),
            table,
            stable,
            reads: options.verify_reads.reads(),
        }
    }

    /// Returns the bytes of log of the next memtable, given the bytes of the tables. Compactions
    /// follow the ratio of buffered to stable bytes (`background/mod.rs`). As long as several
    /// memtables are needed to trigger one, the size of a memtable costs no extra writes. The index
    /// of a small memtable also stays in the processor's cache.
    pub(crate) fn memtable_log_bytes(&self, tables: u64) -> u64 {
        self.memtable.min((tables / MEMTABLE_LOG_DIVISOR).max(SMALL_MEMTABLE_LOG_BYTES))
    }

    /// Returns the maximum DRAM of background work with this many workers. Each needs a table being
    /// built, and the handles of a range's new tables in addition to its old ones.
    pub(crate) fn background_dram(&self, workers: usize) -> u64 {
        (TABLE_BUILD_FACTOR * self.table.table_bytes as u64 + self.handle_bytes(2 * self.range)) * workers.max(1) as u64
    }

    /// Returns the DRAM of the handles of tables with this many bytes together.
    pub(crate) fn handle_bytes(&self, bytes: u64) -> u64 {
        (bytes / self.table.table_bytes as u64 + 1) * TABLE_HANDLE_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn the_log_of_a_memtable_grows_with_the_tables() {
        let sizes = Sizes::of(&FluidOptions::default(), 64 << 30);
        let of = |mib: u64| sizes.memtable_log_bytes(mib * MIB) / MIB;
        assert_eq!([0, 64, 128, 256, 512, 1 << 20].map(of), [16, 16, 16, 32, 64, 64]);
        let small = Sizes::of(&FluidOptions { memtable_bytes: MIB, ..FluidOptions::default() }, 64 << 30);
        assert_eq!([0, 1 << 20].map(|mib| small.memtable_log_bytes(mib * MIB)), [MIB; 2]);
    }
}
