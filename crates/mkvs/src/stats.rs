//! The engine's own statistics.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lodestore_contract::engine_statistics;

use crate::device::Device;
use crate::group::Group;
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
        /// Keys that the filter counts and no device has.
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
