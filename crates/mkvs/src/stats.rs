//! Statistics of a matrix: those of its devices together, and the engine's own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lodestore_contract::{EngineCounters, Stats, engine_statistics};

use crate::ENGINE;
use crate::device::Device;
use crate::group::Group;
use crate::inner::Inner;
use crate::layout::MemberState;

engine_statistics! {
    /// Statistics of a `mkvs` store. The numbers of its devices are added up.
    pub struct MkvsStats {
        /// Reads of absent keys that the filter did not stop.
        Counter Count reads_false_positive,
        /// Reads of single keys.
        Counter Count reads,
        /// Reads that asked a second device.
        Counter Count reads_hedged,
        /// Reads that the second device answered first.
        Counter Count reads_hedges_won,
        /// Second requests that were not needed any more.
        Counter Count reads_hedges_spared,
        /// Reads that the filter answered without a device.
        Counter Count reads_filtered,
        /// Writes of single keys.
        Counter Count writes,
        /// Writes that too few devices executed, and that were undone.
        Counter Count writes_taken_back,
        /// Keys that were repaired from another device.
        Counter Count keys_repaired,
        /// Counts of the filters that may be too high.
        Counter Count filter_leaked,
        /// Keys that the filters count.
        Gauge Count filter_keys,
        /// Share of absent keys that the worst filter does not stop.
        Gauge PerMillion filter_false_per_million,
        /// Pairs that no device could read for a copy.
        Counter Count pairs_not_copied,
        /// Devices that caught up from the log of another device.
        Counter Count devices_caught_up,
        /// Devices that were filled by a full copy.
        Counter Count devices_copied,
        /// Times that a group without an active device chose a leader.
        Counter Count groups_revived,
        /// Changes of the membership of groups.
        Counter Count epoch_changes,
        /// Groups of devices.
        Gauge Count groups,
        /// Devices.
        Gauge Count devices,
        /// Devices that are active.
        Gauge Count devices_active,
        /// Devices that are being filled.
        Gauge Count devices_filling,
        /// Devices that lack writes and are not being filled yet.
        Gauge Count devices_behind,
    }
}

impl MkvsStats {
    /// Adds the numbers of a group.
    pub(crate) fn add_group(&mut self, group: &Group, devices: &[Arc<Device>]) {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counts = &group.counts;
        self.reads_false_positive += load(&counts.false_positives);
        self.reads += load(&counts.reads);
        self.reads_hedged += load(&counts.hedged);
        self.reads_hedges_won += load(&counts.hedges_won);
        self.reads_hedges_spared += group.allowance.refunded();
        self.reads_filtered += group.stripes.sum(|counts| &counts.filtered);
        self.writes += load(&counts.writes);
        self.writes_taken_back += load(&counts.restored);
        self.keys_repaired += load(&counts.repaired);
        self.filter_leaked += load(&counts.leaked);
        self.filter_keys += group.raised();
        self.pairs_not_copied += load(&counts.uncopied);
        self.devices_caught_up += load(&counts.caught_up);
        self.devices_copied += load(&counts.copied);
        self.groups_revived += load(&counts.reelections);
        self.epoch_changes += load(&counts.epochs);
        self.groups += 1;
        self.devices += group.width as u64;
        self.devices_active += devices.iter().filter(|device| device.is_active()).count() as u64;
        let filling = devices.iter().filter(|device| device.is_filling()).count();
        let behind = devices.iter().filter(|device| device.state() == MemberState::Behind).count();
        self.devices_filling += filling as u64;
        self.devices_behind += behind.saturating_sub(filling) as u64;
    }
}

impl Inner {
    /// Returns the statistics of all devices together.
    pub(crate) fn stats(&self) -> Stats {
        let mut total = Stats { engine: ENGINE, ..Stats::default() };
        if self.open.is_foreign() {
            return total;
        }
        total.recovery.done = true;
        total.recovery.share = 1.0;
        let mut own = MkvsStats::default();
        for group in &self.shape.groups() {
            self.add_group(&mut total, &mut own, group);
        }
        total.engine_counters = EngineCounters::new(own);
        total
    }

    fn add_group(&self, total: &mut Stats, own: &mut MkvsStats, group: &Group) {
        let devices = group.devices();
        // Members hold the same pairs. The last queried one represents all if it has applied as
        // much as any: the statistics then match earlier answers.
        let last_walked_id = group.last_walked.load(Ordering::Relaxed);
        let rank = |device: &&Arc<Device>| (device.is_active(), device.applied(), device.id == last_walked_id);
        let last_walked = devices.iter().max_by_key(rank).map(|device| device.id);
        for device in &devices {
            let stats = device.store().stats();
            add(total, &stats);
            if Some(device.id) == last_walked {
                total.keys += stats.keys;
                total.recovery.keys += stats.recovery.keys;
                if total.medium.is_empty() {
                    (total.medium, total.durability) = (stats.medium.clone(), stats.durability);
                }
                let (sum, space) = (&mut total.space, &stats.space);
                (sum.size, sum.capacity, sum.live) =
                    (sum.size + space.size, sum.capacity + space.capacity, sum.live + space.live);
                (sum.dead, sum.free) = (sum.dead + space.dead, sum.free + space.free);
            }
            let recovery = &mut total.recovery;
            recovery.done &= stats.recovery.done;
            recovery.share = recovery.share.min(stats.recovery.share);
            recovery.corrupt += stats.recovery.corrupt;
            recovery.left_out += stats.recovery.left_out;
            recovery.ready_after = recovery.ready_after.max(stats.recovery.ready_after);
            recovery.took = recovery.took.max(stats.recovery.took);
            if let Some(log) = device.log() {
                add(total, &log.store().stats());
            }
        }
        // The number of missing or outdated pairs is unknown.
        let may_lack = group.has_doubts();
        total.recovery.corrupt += u64::from(may_lack);
        total.recovery.left_out += u64::from(may_lack);
        own.add_group(group, &devices);
        add_filter(total, own, group);
    }
}

/// Adds the DRAM and the error rate of a group's filter.
fn add_filter(total: &mut Stats, own: &mut MkvsStats, group: &Group) {
    let filter = group.stripes.read_any(|stripe| stripe.filter.clone()).flatten();
    if let Some(filter) = filter {
        total.dram_bytes += filter.bytes();
        let per_million = (filter.false_positives() * 1e6) as u64;
        own.filter_false_per_million = per_million.max(own.filter_false_per_million);
    }
}

/// Adds the statistics of a device that sum up over all devices.
fn add(total: &mut Stats, device: &Stats) {
    total.dram_bytes += device.dram_bytes;
    total.dram_fixed_bytes += device.dram_fixed_bytes;
    total.dram_budget_bytes += device.dram_budget_bytes;
    total.flushes += device.flushes;
    total.fences += device.fences;
    total.bytes_written += device.bytes_written;
}
