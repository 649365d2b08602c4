//! A full copy of a member, while the group is written to.
//!
//! The member is given the group's operations from a number on. Then a walk over another's keys puts what the group has of each behind them in its queue. A pair is read with its
//! key's stripe held, so no write of the key is under way: what is in the pair is not behind it in the queue, and what is not in it is. What is written meanwhile comes by the queue,
//! wherever the walk is; so the walk needs no second round. When the last pair of it is in the member's store, its record says that it is whole: every operation that is in a pair is in its
//! log, or stood before the copy began, so what it lacks from then on is told by logs, if it trails before it has joined.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use lodestore_contract::{Error, Event, Expiry, Result};

use crate::catchup::log_of;
use crate::command::{Command, Copied, Question};
use crate::device::Device;
use crate::group::{Group, read_pair};
use crate::keeper::Beside;
use crate::layout::MemberState;
use crate::operation::Mutation;
use crate::route::KeyHash;
use crate::scan::Source;

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

/// A copy's way over keys.
struct Walk {
    pace: Pace,
    /// What was queued last.
    last: Option<Arc<Copied>>,
    /// Pairs that nobody can read.
    unread: u64,
    /// Neither did the device fall behind nor is the matrix being stopped.
    is_whole: bool,
}

impl Group {
    /// Makes `device` what the group is, and takes it into use. False where it is to be tried again.
    ///
    /// # Errors
    /// The devices'; it is behind then.
    pub(crate) fn copy(&self, device: &Arc<Device>) -> Result<bool> {
        if device.state() != MemberState::Behind {
            return Ok(false);
        }
        self.mark_given_up()?;
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
        let mut walk = Walk { pace: Pace::new(self.options.copy_rate), last: None, unread: 0, is_whole: true };
        let copied = self
            .copy_keys(device, cut, &mut walk)
            .and_then(|is_walked| Ok(is_walked && self.end_copy(device, walk.last.take(), walk.unread != 0)?));
        if !matches!(copied, Ok(true)) {
            device.fall_behind();
            return copied;
        }
        self.counts.copied.fetch_add(1, Ordering::Relaxed);
        self.join(device)
    }

    /// Waits until `device` has all of its copy, and has its record say so: if it falls behind from now on, the logs tell what it lacks. False where it fell behind before.
    /// `has_gaps`: pairs that nobody could read may be missing in the copy.
    fn end_copy(&self, device: &Device, last: Option<Arc<Copied>>, has_gaps: bool) -> Result<bool> {
        let (mut seen, mut since) = (device.progress(), Instant::now());
        // Its queue lets it go when it is done.
        while last.as_ref().is_some_and(|last| Arc::strong_count(last) > 1) && device.is_filling() {
            if self.stops.load(Ordering::Acquire) {
                return Ok(false);
            }
            device.kick();
            if device.progress() != seen {
                (seen, since) = (device.progress(), Instant::now());
            } else if since.elapsed() > self.options.timeout {
                device.fail(self.too_late());
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        let applied = device.applied();
        if !device.is_filling() {
            return Ok(false);
        }
        log_of(device)?.set_record(|record| {
            (record.applied, record.is_partial) = (applied.max(record.applied), false);
            record.has_gaps = has_gaps;
        })?;
        device.set_gaps(has_gaps);
        Ok(true)
    }

    /// Puts into the queue of `device` what the group has of each key: of its own first, which may have gone or be older. What nobody can read is left out, or taken out, and told: without that no
    /// device could ever take the place of another.
    fn copy_keys(&self, device: &Device, cut: u64, walk: &mut Walk) -> Result<bool> {
        let own = [Source { store: Arc::clone(device.store()), has_gaps: false }];
        self.copy_each(device, &own, true, walk)?;
        if walk.is_whole {
            let donors = self.stores_at(cut)?;
            // Some of them are met again.
            let unread = std::mem::take(&mut walk.unread);
            let damage = self.copy_each(device, &donors, false, walk)?;
            walk.unread = walk.unread.max(unread).max(u64::from(damage.is_some()));
        }
        if walk.is_whole && walk.unread != 0 {
            self.counts.uncopied.fetch_add(walk.unread, Ordering::Relaxed);
            let (group, device, pairs) = (self.index, device.index, walk.unread);
            let event = Event::CopyIncomplete { group, device, pairs };
            self.options.relay.as_ref().inspect(|relay| relay.keep(event));
        }
        Ok(walk.is_whole)
    }

    /// Puts into the queue of `device` what the group has of each key of these stores; where they are its own only what is another there. What stood in the way of knowing all keys.
    fn copy_each(&self, device: &Device, of: &[Source], is_own: bool, walk: &mut Walk) -> Result<Option<Error>> {
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
            walk.is_whole &= !stops();
            if !walk.is_whole {
                return Err(Error::Closed);
            }
            let stripe = self.stripes.share(KeyHash::of(key, self.seed));
            let found = match self.compete(&stripe, key, Question::Pair, &mut value) {
                Err(Error::Corrupt { .. }) => {
                    walk.unread += 1;
                    None
                }
                found => Some(found?).filter(|found| found.is_there),
            };
            let mutation = match found {
                // What it has of a key that nobody can read may be older than what was acknowledged, and nobody could tell.
                None => Mutation::Delete,
                // As it is in the group: whatever becomes of the others' records, nothing older stays.
                Some(found) if is_own && has_same(device, key, &value, found.expiry) => {
                    drop(stripe);
                    walk.pace.pass(key.len() + value.len(), &mut stops);
                    return Ok(());
                }
                Some(found) => Mutation::Put { value: std::mem::take(&mut value), expiry: found.expiry },
            };
            let copied = Arc::new(Copied { key: key.to_vec(), mutation });
            let bytes = copied.key.len() + copied.mutation.bytes();
            device.push(Command::Copy(Arc::clone(&copied)));
            walk.last = Some(copied);
            drop(stripe);
            device.wake();
            walk.pace.pass(bytes, &mut stops);
            Ok(())
        });
        device.kick();
        if walk.is_whole { walked } else { Ok(None) }
    }
}

/// Whether a member's store has this value of a key.
fn has_same(device: &Device, key: &[u8], value: &[u8], expiry: Option<Expiry>) -> bool {
    let own = read_pair(&**device.store(), key);
    matches!(own, Ok(Some((own, expires))) if own == value && expires == expiry)
}
