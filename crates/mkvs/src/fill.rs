//! A full copy of a member, while the group is written to.
//!
//! The member is given the group's operations from a number on. Then a walk over another's keys puts what the group has of each behind them in its queue. A pair is read with its
//! key's stripe held, so no write of the key is under way: what is in the pair is not behind it in the queue, and what is not in it is. What is written meanwhile comes by the queue,
//! wherever the walk is; so the walk needs no second round.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use lodestore_contract::{Error, Result};

use crate::catchup::log_of;
use crate::command::{Command, Copied, Question};
use crate::device::Device;
use crate::group::Group;
use crate::operation::Mutation;
use crate::route::KeyHash;
use crate::walk::each_key;

/// Commands and bytes that may wait for a member before more of the copy is put behind them.
const WAITING: usize = 256;
const WAITING_BYTES: usize = 8 << 20;

/// Sleeps so that no more than so many bytes a second go by.
pub(crate) struct Pace {
    rate: u64,
    begun: Instant,
    bytes: u64,
}

impl Pace {
    /// Bytes a second; 0: as many as there are.
    pub(crate) fn new(rate: u64) -> Self {
        Self { rate, begun: Instant::now(), bytes: 0 }
    }

    /// So many bytes went by. Sleeps as long as is due, or until `stops`.
    pub(crate) fn pass(&mut self, bytes: usize, stops: &dyn Fn() -> bool) {
        self.bytes += bytes as u64;
        if self.rate == 0 {
            return;
        }
        let due = Duration::from_secs_f64(self.bytes as f64 / self.rate as f64);
        while let Some(left) = due.checked_sub(self.begun.elapsed()).filter(|_| !stops()) {
            std::thread::sleep(left.min(Duration::from_millis(50)));
        }
    }
}

impl Group {
    /// Makes `device` what the group is, and takes it into use. False where it is to be tried again.
    ///
    /// # Errors
    /// The devices'; it is behind then.
    pub(crate) fn copy(&self, device: &Arc<Device>) -> Result<bool> {
        let log = log_of(device)?;
        log.set_record(|record| record.is_partial = true)?;
        log.clear()?;
        let cut = {
            let mut held = device.hold();
            let mut sequencer = self.sequence();
            let last = sequencer.next - 1;
            log.begin(last, sequencer.epoch)?;
            held.set_executed(last, &[]);
            if !device.begin_filling() {
                return Ok(false);
            }
            sequencer.filling.retain(|other| other.id != device.id);
            sequencer.filling.push(Arc::clone(device));
            last
        };
        device.wake();
        let copied = self.copy_keys(device, cut);
        if !matches!(copied, Ok(true)) {
            device.fall_behind();
            return copied;
        }
        let is_back = self.join(device)?;
        if is_back {
            self.counts.copied.fetch_add(1, Ordering::Relaxed);
        }
        Ok(is_back)
    }

    /// Puts into the queue of `device` what the group has of each key: of its own first, which may have gone.
    fn copy_keys(&self, device: &Device, cut: u64) -> Result<bool> {
        let mut pace = Pace::new(self.options.copy_rate);
        if !self.copy_each(device, device, Question::There, &mut pace)? {
            return Ok(false);
        }
        let mut donors = self.stores_at_least(cut, device)?;
        loop {
            let Some(donor) = donors.pop() else { return Ok(false) };
            match self.copy_each(device, &donor, Question::Pair, &mut pace) {
                // Another one may be able to read all of its keys.
                Err(Error::Corrupt { .. }) if !donors.is_empty() => {}
                copied => return copied,
            }
        }
    }

    /// The members that have everything up to `cut`, those last whose recovery found the least damage.
    fn stores_at_least(&self, cut: u64, but: &Device) -> Result<Vec<Arc<Device>>> {
        self.store_at(cut)?;
        let mut donors = self.donors(but);
        donors.retain(|donor| donor.applied() >= cut);
        donors.sort_by_key(|donor| std::cmp::Reverse(donor.store().stats().recovery.corrupt));
        Ok(donors)
    }

    /// Puts into the queue of `device` what the group has of each key of `of`, or only which of them it has not. False where it fell behind, or the matrix is being stopped.
    fn copy_each(&self, device: &Device, of: &Device, question: Question, pace: &mut Pace) -> Result<bool> {
        let stops = || self.stops.load(Ordering::Acquire) || !device.is_filling();
        let mut is_whole = true;
        let mut value = Vec::new();
        each_key(&**of.store(), &mut |key| {
            while (device.depth() > WAITING || device.queued_bytes() > WAITING_BYTES) && !stops() {
                device.kick();
                std::thread::sleep(Duration::from_micros(50));
            }
            is_whole &= !stops();
            if !is_whole {
                return Ok(());
            }
            let stripe = self.stripes.share(KeyHash::of(key, self.seed));
            let found = self.compete(&stripe, key, question, &mut value)?;
            let mutation = match (found.is_there, question) {
                (false, _) => Mutation::Delete,
                (true, Question::Pair) => Mutation::Put { value: std::mem::take(&mut value), expiry: found.expiry },
                (true, _) => return Ok(()),
            };
            let copied = Copied { key: key.to_vec(), mutation };
            let bytes = copied.key.len() + copied.mutation.bytes();
            device.push(Command::Copy(Arc::new(copied)));
            drop(stripe);
            device.wake();
            pace.pass(bytes, &stops);
            Ok(())
        })?;
        device.kick();
        Ok(is_whole)
    }
}
