//! Re-election of a leader in a group without active members: devices are present, but each of them
//! lacks operations because it ran out of space. The new leader has every operation that may have
//! been acknowledged, as at an open. In-doubt operations are kept or rolled back on all members.

use std::sync::atomic::Ordering;
use std::time::Duration;

use lodestore_contract::Result;

use crate::catchup::log_of;
use crate::group::Group;
use crate::layout::MemberState;
use crate::leader::LeaderChoice;
use crate::lock;
use crate::recover::choose_leader;
use crate::salvage_doubts::Doubt;

/// Maximum wait for a device's processor. After that, the election is tried again later.
const PROCESSOR_TIMEOUT: Duration = Duration::from_millis(100);

impl Group {
    /// Chooses a leader if no member is active. Returns false if the election must be tried again.
    /// The other members catch up in the background.
    ///
    /// # Errors
    /// [`Error::TooFewDevices`](lodestore_contract::Error::TooFewDevices) if the remaining members
    /// may lack acknowledged writes; errors of the devices; errors of the host's store.
    pub(crate) fn reelect_leader(&self) -> Result<bool> {
        // No call is in progress, and none can begin.
        let mut stripes = self.stripes.lock_all();
        let devices: Vec<_> =
            self.devices().into_iter().filter(|device| device.state() == MemberState::Behind).collect();
        for device in &devices {
            device.fall_behind();
            if device.try_hold(PROCESSOR_TIMEOUT).is_none() {
                return Ok(false);
            }
            log_of(device)?.forget_lacking();
        }
        let refused = {
            let mut sequencer = self.sequence();
            if !self.active().is_empty() {
                return Ok(false);
            }
            let record = self.host.matrix().groups[self.index].clone();
            let LeaderChoice { last, active, refused, lacking } =
                choose_leader(&self.options, self.index, &record, &devices)?;
            // Before the epoch, whose write marks the group.
            lacking.into_iter().for_each(|what| lock(&self.doubts).add(Doubt::of_group(what)));
            self.acknowledged.store(last, Ordering::Release);
            for stripe in &mut stripes {
                stripe.last = last;
                stripe.in_doubt.clear();
                // The filter counts the keys of the former leaders. The new leader may again have a
                // key that they had removed.
                stripe.filter = None;
            }
            active.iter().for_each(|device| device.set_state(MemberState::Active));
            self.restart_after(&mut sequencer, last, active);
            refused
        };
        // Durable before any read: the stripes are still locked.
        let recorded = if refused.is_empty() { self.begin_epoch() } else { self.roll_back_incomplete(&refused) };
        if let Err(error) = recorded {
            // The next round chooses again.
            self.active().iter().for_each(|device| device.fall_behind());
            return Err(error);
        }
        self.counts.reelections.fetch_add(1, Ordering::Relaxed);
        Ok(true)
    }
}
