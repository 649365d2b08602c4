//! A group of which nobody is active any more, though devices are there: all of them lack something, for want of room. Who has everything that may be acknowledged leads again, as
//! when the matrix is opened; what nobody was told of stands or is taken back, on all alike.

use std::sync::atomic::Ordering;
use std::time::Duration;

use lodestore_contract::Result;

use crate::catchup::log_of;
use crate::group::Group;
use crate::layout::MemberState;
use crate::lead::Lead;
use crate::lock;
use crate::recover::choose;
use crate::salvage::Doubt;

/// How long a device's processor may be at something, before it is tried again later.
const PATIENCE: Duration = Duration::from_millis(100);

impl Group {
    /// Chooses who leads, where nobody is active; false where it is to be tried again. The others catch up behind.
    ///
    /// # Errors
    /// [`Error::TooFewDevices`](lodestore_contract::Error::TooFewDevices) where those that are left need not have everything; the devices'; the host's store's.
    pub(crate) fn revive(&self) -> Result<bool> {
        // No call is under way, and none begins.
        let mut stripes = self.stripes.all();
        let devices: Vec<_> =
            self.devices().into_iter().filter(|device| device.state() == MemberState::Behind).collect();
        for device in &devices {
            device.fall_behind();
            if device.try_hold(PATIENCE).is_none() {
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
            let Lead { last, active, refused, lacking } = choose(&self.options, self.index, &record, &devices)?;
            // Before the epoch, which marks the group.
            lacking.into_iter().for_each(|what| lock(&self.doubts).add(Doubt::of_group(what)));
            self.acknowledged.store(last, Ordering::Release);
            for stripe in &mut stripes {
                stripe.last = last;
                stripe.undecided.clear();
                // Made of what those had who led before: who leads now may have a key again that they had removed.
                stripe.filter = None;
            }
            active.iter().for_each(|device| device.set_state(MemberState::Active));
            self.go_on_behind(&mut sequencer, last, active);
            refused
        };
        // Durable before anybody reads: the stripes are held still.
        let said = if refused.is_empty() { self.begin_epoch() } else { self.take_back_left(&refused) };
        if let Err(error) = said {
            // Chosen anew.
            self.active().iter().for_each(|device| device.fall_behind());
            return Err(error);
        }
        self.counts.revived.fetch_add(1, Ordering::Relaxed);
        Ok(true)
    }
}
