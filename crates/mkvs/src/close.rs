//! Statistics of a matrix, and its clean stop.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use lodestore_contract::{EngineCounters, Result, Stats, Store};

use crate::ENGINE;
use crate::apply::is_refusal;
use crate::device::{Device, HANG_TIMEOUT};
use crate::factory::new_id;
use crate::group::Group;
use crate::inner::Inner;
use crate::layout::{CleanRecord, MemberState};
use crate::lock;
use crate::stats::MkvsStats;

/// Adds the statistics of a device that sum up over all devices.
fn add(total: &mut Stats, device: &Stats) {
    total.dram_bytes += device.dram_bytes;
    total.dram_fixed_bytes += device.dram_fixed_bytes;
    total.dram_budget_bytes += device.dram_budget_bytes;
    total.flushes += device.flushes;
    total.fences += device.fences;
    total.bytes_written += device.bytes_written;
}

impl Group {
    /// Waits until the calls in progress have ended. Gives up if the devices make no progress for
    /// the operation timeout.
    pub(crate) fn wait_calls(&self) {
        let progress = || self.devices().iter().map(|device| device.progress()).fold(0, u64::wrapping_add);
        let (mut seen, mut since) = (progress(), Instant::now());
        self.stripes.wait_free(|| {
            let now = progress();
            if now != seen {
                (seen, since) = (now, Instant::now());
            }
            since.elapsed() <= self.options.timeout
        });
    }
}

impl Inner {
    /// Applies `work` to every store of every member that has not failed, and to the host's.
    /// Returns the first error, after all stores were tried.
    pub(crate) fn for_each_store(&self, work: &dyn Fn(&dyn Store) -> Result<()>) -> Result<()> {
        let mut first = Ok(());
        for device in self.shape.groups().iter().flat_map(|group| group.devices()) {
            if device.state() == MemberState::Failed {
                continue;
            }
            let log = device.log().map(|log| Arc::clone(log.store()));
            for store in [Some(Arc::clone(device.store())), log].into_iter().flatten() {
                first = first.and(work(&*store));
            }
        }
        first.and(work(&**self.host.store()))
    }

    /// Does the work of the background threads, if there are none.
    pub(crate) fn run_maintenance(&self) {
        if self.options.threads {
            return;
        }
        // A group has one keeper.
        let _alone = lock(&self.keeper.inline_round);
        for group in self.shape.groups() {
            for device in group.active() {
                device.run_if_idle();
            }
            // A failed step is tried again the next time.
            self.keeper.run_round(&group, 0);
        }
        let _ = self.shape.rebalance(&self.host, self.seed, 0, &|| false);
    }

    /// Drains the queues of devices that do not hang, and records the others. No writer is left.
    pub(crate) fn drain(&self) -> Result<()> {
        let mut first = Ok(());
        for group in &self.shape.groups() {
            group.active().iter().for_each(|device| device.drain(self.options.timeout));
            first = first.and(group.remove_failed_members());
        }
        first
    }

    /// Stops cleanly after the queues are drained: writes the devices' records and the filters.
    /// Devices that hang are skipped.
    pub(crate) fn close(&self) -> Result<()> {
        let mut clean = CleanRecord { groups: Vec::new() };
        let mut filters = Vec::new();
        let mut first = Ok(());
        for group in &self.shape.groups() {
            for device in group.active() {
                if let Some(log) = device.log() {
                    first = first.and(log.set_record(|record| record.applied = device.applied().max(record.applied)));
                }
            }
            let raised = group.raised();
            let filter = group.stripes.read_any(|stripe| stripe.filter.clone()).flatten();
            let filter = filter.filter(|_| !group.is_filter_unreliable.load(Ordering::Acquire));
            let keys = filter.as_ref().map_or(0, |filter| filter.keys());
            let epoch = group.epoch();
            let last = if group.sole().is_some() { 0 } else { group.last() };
            clean.groups.push((epoch, last, keys, raised));
            filters.push(filter);
        }
        for device in self.shape.groups().iter().flat_map(|group| group.devices()) {
            let has_failed = device.state() == MemberState::Failed;
            if device.hangs(HANG_TIMEOUT) {
                continue;
            }
            let log = device.log().map(|log| Arc::clone(log.store()));
            for store in [Some(Arc::clone(device.store())), log].into_iter().flatten() {
                let closed = store.close();
                // The error of a failed device was reported when it failed.
                first = if has_failed { first } else { first.and(closed) };
            }
        }
        if first.is_ok() && !self.options.salvage {
            let devices: Vec<_> = self.shape.groups().iter().map(|group| group.devices()).collect();
            first = match self.host.note_openings(&devices) {
                // The numbers of the last open stay.
                Err(error) if is_refusal(&error) => Ok(()),
                noted => noted,
            };
        }
        for (group, clean) in self.shape.groups().iter().zip(&mut clean.groups) {
            // The filter is valid only if the store is unchanged since the stop; only this stamp
            // reveals an older copy.
            if let (true, [device]) = (first.is_ok() && group.sole().is_some() && clean.2 != 0, &group.devices()[..]) {
                match device.write_stamp(self.host.matrix().id, new_id()) {
                    Ok(stamp) => clean.1 = stamp,
                    Err(error) => first = Err(error),
                }
            }
        }
        if first.is_ok() {
            first = self.host.write_clean_stop(&clean, &filters);
        }
        first.and(self.host.store().close())
    }

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
