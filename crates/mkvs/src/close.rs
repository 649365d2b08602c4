//! The clean stop of a matrix, and the work of the background threads for a matrix without any.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use lodestore_contract::{Result, Store};

use crate::apply::is_refusal;
use crate::device::HANG_TIMEOUT;
use crate::factory::new_id;
use crate::group::Group;
use crate::inner::Inner;
use crate::layout::{CleanRecord, MemberState};
use crate::lock;

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
}
