//! The store's account of itself.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use lodestore_contract::{MediumUse, Stats};

use super::FluidKv;
use crate::inner::{Inner, lock};
use crate::layout::ENGINE;
use crate::value_log::segment::ValueSegment;

impl FluidKv {
    /// Counters of the engine's own, by name.
    fn counters(&self) -> BTreeMap<&'static str, u64> {
        let inner = &self.running.inner;
        let view = inner.view.load();
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let counts = &inner.counts;
        let rates = inner.migration.governor.rates();
        let runs = view.ranges.list.iter().map(|range| range.runs.len() as u64);
        let values = inner.values.all();
        let of_values = |each: fn(&ValueSegment) -> u64| values.iter().map(|segment| each(segment)).sum::<u64>();
        let sorted = || view.ranges.list.iter().flat_map(|range| range.sorted());
        let (manifest_kept, manifest_extents, manifest_bytes) = lock(&inner.publisher).manifest();
        let compressed = || sorted().flat_map(|sorted| &sorted.tables).filter_map(|table| table.compressed());
        let mut counters = BTreeMap::from([
            ("memtables", 1 + view.frozen.len() as u64),
            ("memtable_dram_bytes", view.memtables().map(|memtable| memtable.dram_bytes()).sum()),
            ("log_bytes", view.memtables().map(|memtable| memtable.log_bytes()).sum()),
            ("ranges", view.ranges.list.len() as u64),
            ("runs_most", runs.max().unwrap_or(0)),
            ("buffered_bytes", view.ranges.list.iter().map(|range| range.run_bytes()).sum()),
            ("stable_bytes", view.ranges.list.iter().map(|range| range.stable.bytes).sum()),
            ("compressed_tables", compressed().count() as u64),
            ("compressed_bytes", compressed().map(|(stored, _)| stored).sum()),
            ("compressed_plain_bytes", compressed().map(|(_, plain)| plain).sum()),
            ("tables", sorted().map(|sorted| sorted.tables.len() as u64).sum()),
            ("flushes", load(&counts.flushes)),
            ("flushed_bytes", load(&counts.flushed_bytes)),
            ("compactions", load(&counts.compactions)),
            ("compacted_bytes", load(&counts.compacted_bytes)),
            ("moved_tables", load(&counts.moved_tables)),
            ("range_splits", load(&counts.splits)),
            ("range_joins", load(&counts.joins)),
            ("small_merges", load(&counts.crowds)),
            ("expired_merges", load(&counts.stale)),
            ("reads", load(&counts.reads)),
            ("reads_absent_per_mille", inner.absent_per_mille()),
            ("writers_slowed", load(&counts.slowed)),
            ("writers_slowed_ns", load(&counts.slowed_ns)),
            ("writers_stopped", load(&counts.stopped)),
            ("writers_stopped_ns", load(&counts.stopped_ns)),
            ("group_commits", load(&counts.commits)),
            ("value_segments", values.len() as u64),
            ("value_bytes", of_values(|segment| segment.bytes)),
            ("value_written_bytes", of_values(ValueSegment::written)),
            ("value_dead_bytes", of_values(|segment| segment.dead.load(Ordering::Relaxed))),
            ("value_collected_segments", load(&inner.values.collected)),
            ("value_moved_bytes", load(&inner.values.moved_bytes)),
            ("reclaims", load(&counts.reclaimed)),
            ("reserve_needed_bytes", inner.reserve.needed_bytes()),
            ("reserve_held_bytes", inner.reserve.held_bytes()),
            ("range_largest_bytes", inner.reserve.largest_range()),
            ("manifest_bytes", manifest_bytes),
            ("workers_allowed", inner.migration.governor.allowed() as u64),
            ("compaction_trigger_percent", (inner.migration.governor.trigger() * 100.0) as u64),
            ("log_bytes_per_s", rates[0]),
            ("flush_bytes_per_s", rates[1]),
            ("compaction_bytes_per_s", rates[2]),
            ("writes_per_mille", rates[3]),
            ("compacted_per_log_percent", rates[4]),
            ("manifest_kept", manifest_kept.into()),
            ("manifest_extents", manifest_extents),
            ("snapshots", inner.order.snapshots() as u64),
        ]);
        counters.extend(inner.scrub.counters());
        counters
    }

    /// What [`lodestore_contract::Store::stats`] gives.
    pub(super) fn account(&self) -> Stats {
        let inner = &self.running.inner;
        if inner.open.is_foreign() {
            return Stats { engine: ENGINE, ..Stats::default() };
        }
        let (dram_bytes, dram_fixed_bytes) = inner.dram();
        let view = inner.view.load();
        let items = view.ranges.list.iter().flat_map(|range| range.sorted()).flat_map(|sorted| &sorted.tables);
        let in_tables: u64 =
            items.map(|table| table.descriptor.items.saturating_sub(2 * table.descriptor.tombstones)).sum();
        Stats {
            engine: ENGINE,
            medium: inner.pool.medium_name(),
            durability: inner.pool.durability(),
            keys: in_tables + view.memtables().map(|memtable| memtable.tree.len() as u64).sum::<u64>(),
            dram_bytes,
            dram_fixed_bytes,
            dram_budget_bytes: inner.options.dram_budget,
            space: space_of(inner),
            flushes: inner.pool.flushes(),
            fences: inner.pool.fences(),
            bytes_written: inner.pool.bytes_written(),
            wear: inner.pool.allocator().wear(&inner.pool),
            recovery: inner.recovery.state(),
            engine_counters: self.counters(),
        }
    }
}

/// Use of the medium; what is held in reserve is free.
fn space_of(inner: &Inner) -> MediumUse {
    let (space, held) = (inner.pool.space(), inner.reserve.held_bytes());
    MediumUse { live: space.live.saturating_sub(held), free: space.free + held, ..space }
}
