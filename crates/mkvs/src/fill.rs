//! A full copy of a member, while the group is written to.
//!
//! The member is given the group's operations from a number on. Then a walk over another's keys puts what the group has of each behind them in its queue. A pair is read with its
//! key's stripe held, so no write of the key is under way: what is in the pair is not behind it in the queue, and what is not in it is. What is written meanwhile comes by the queue,
//! wherever the walk is; so the walk needs no second round.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use lodestore_contract::{Error, Event, Result, Store};

use crate::catchup::log_of;
use crate::command::{Command, Copied, Question};
use crate::device::Device;
use crate::group::Group;
use crate::keeper::Beside;
use crate::operation::Mutation;
use crate::route::KeyHash;

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
    pub(crate) fn pass(&mut self, bytes: usize, stops: &mut dyn FnMut() -> bool) {
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

    /// Puts into the queue of `device` what the group has of each key: of its own first, which may have gone. What nobody can read is left out, and told: without that no device could ever
    /// take the place of another.
    fn copy_keys(&self, device: &Device, cut: u64) -> Result<bool> {
        let mut pace = Pace::new(self.options.copy_rate);
        let (mut unread, mut is_whole) = (0, true);
        let own = [Arc::clone(device.store())];
        self.copy_each(device, &own, Question::There, &mut pace, &mut unread, &mut is_whole)?;
        if is_whole {
            let donors = self.stores_at(cut)?;
            unread = 0;
            let damage = self.copy_each(device, &donors, Question::Pair, &mut pace, &mut unread, &mut is_whole)?;
            unread = unread.max(u64::from(damage.is_some()));
        }
        if is_whole && unread != 0 {
            self.counts.uncopied.fetch_add(unread, Ordering::Relaxed);
            let place = format!("group {} device {}", self.index, device.index);
            let what = format!("pairs that no other device can read may be missing in its copy, {unread} or more");
            self.options.relay.as_ref().inspect(|relay| relay.keep(Event::Corruption { place, what }));
        }
        Ok(is_whole)
    }

    /// Puts into the queue of `device` what the group has of each key of these stores, or only which of them it has not; how many nobody can read goes to `unread`. What stood in the way of
    /// knowing all keys. Not `is_whole` where the device fell behind, or the matrix is being stopped.
    fn copy_each(
        &self,
        device: &Device,
        of: &[Arc<dyn Store>],
        question: Question,
        pace: &mut Pace,
        unread: &mut u64,
        is_whole: &mut bool,
    ) -> Result<Option<Error>> {
        let mut beside = Beside::new(self, device);
        // Asked at least each 50 ms, also while it waits.
        let mut stops = || {
            beside.turn();
            self.stops.load(Ordering::Acquire) || !device.is_filling()
        };
        let mut value = Vec::new();
        let walked = self.each_key_of(of, &mut |key| {
            while (device.depth() > WAITING || device.queued_bytes() > WAITING_BYTES) && !stops() {
                device.kick();
                std::thread::sleep(Duration::from_micros(50));
            }
            *is_whole &= !stops();
            if !*is_whole {
                return Err(Error::Closed);
            }
            let stripe = self.stripes.share(KeyHash::of(key, self.seed));
            let found = match self.compete(&stripe, key, question, &mut value) {
                Err(Error::Corrupt { .. }) => {
                    *unread += 1;
                    return Ok(());
                }
                found => found?,
            };
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
            pace.pass(bytes, &mut stops);
            Ok(())
        });
        device.kick();
        if *is_whole { walked } else { Ok(None) }
    }
}
