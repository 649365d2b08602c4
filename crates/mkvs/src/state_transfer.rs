//! A full copy of a member, while the group accepts writes.
//!
//! The member receives the group's operations from a sequence number on. A walk over another
//! member's keys then queues the group's pair of each key after these operations. A pair is read
//! under its key's stripe, therefore no write of the key is in progress. Operations included in the
//! pair precede it in the queue; all others follow it. Concurrent writes arrive through the queue,
//! wherever the walk is, therefore one walk suffices. After the last pair is in the member's store,
//! its record says that the member is whole. Every operation included in a pair is in its log, or
//! precedes the copy. If the member falls behind before it has joined, logs contain what it lacks
//! from then on.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use lodestore_contract::{Error, Event, Expiry, Result};

use crate::catchup::log_of;
use crate::command::{Command, Copied, Query};
use crate::device::Device;
use crate::group::{Group, read_pair};
use crate::layout::MemberState;
use crate::operation::Mutation;
use crate::rate_limit::RateLimit;
use crate::route::KeyHash;
use crate::source::Source;

/// The copy waits while a member has more than this many commands (`QUEUED_COMMANDS_MAX`) or bytes
/// queued.
const QUEUED_COMMANDS_MAX: usize = 256;
const QUEUED_BYTES_MAX: usize = 8 << 20;

/// The state of a copy's walk over keys.
struct Walk {
    rate_limit: RateLimit,
    /// The pair that was queued last.
    last: Option<Arc<Copied>>,
    /// Pairs that no member can read.
    unread: u64,
    /// The device's own store has damage, which may hide keys that the group deleted.
    is_own_damaged: bool,
    /// False if the device fell behind or the matrix is closing.
    is_whole: bool,
}

impl Group {
    /// Copies the group's pairs to `device` and makes it active. Calls `maintain` at least every
    /// 50 ms. Returns false if the copy must be tried again.
    ///
    /// # Errors
    /// Errors of the devices; `device` is behind then.
    pub(crate) fn copy(&self, device: &Arc<Device>, maintain: &mut dyn FnMut()) -> Result<bool> {
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
        let mut walk = Walk {
            rate_limit: RateLimit::new(self.options.copy_rate),
            last: None,
            unread: 0,
            is_own_damaged: false,
            is_whole: true,
        };
        let copied = self.copy_keys(device, cut, &mut walk, maintain).and_then(|is_walked| {
            let last = walk.last.take();
            Ok(is_walked && self.end_copy(device, last, &walk)?)
        });
        if !matches!(copied, Ok(true)) {
            device.fall_behind();
            return copied;
        }
        self.counts.copied.fetch_add(1, Ordering::Relaxed);
        self.join(device)
    }

    /// Waits until `device` has all copied pairs, `last` being the last one, and writes that to its
    /// record. If it falls behind later, logs contain the operations that it lacks. Returns false
    /// if it fell behind before.
    fn end_copy(&self, device: &Device, last: Option<Arc<Copied>>, walk: &Walk) -> Result<bool> {
        let (mut seen, mut since) = (device.progress(), Instant::now());
        // The queue drops its reference when the pair is applied.
        while last.as_ref().is_some_and(|last| Arc::strong_count(last) > 1) && device.is_filling() {
            if self.stops.load(Ordering::Acquire) {
                return Ok(false);
            }
            device.kick();
            if device.progress() != seen {
                (seen, since) = (device.progress(), Instant::now());
            } else if since.elapsed() > self.options.timeout {
                device.fail(self.late_failure());
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        let applied = device.applied();
        if !device.is_filling() {
            return Ok(false);
        }
        log_of(device)?.set_record(|record| {
            (record.applied, record.is_partial) = (applied.max(record.applied), false);
            (record.has_gaps, record.has_surplus) = (walk.unread != 0, walk.is_own_damaged);
            device.set_gaps(record.has_gaps);
            device.set_surplus(record.has_surplus);
        })?;
        Ok(true)
    }

    /// Queues the group's pair of each key at `device`. Its own keys come first, because they may
    /// be deleted or outdated. Pairs that no member can read are omitted or removed, and reported:
    /// otherwise no device could ever replace another one.
    fn copy_keys(&self, device: &Device, cut: u64, walk: &mut Walk, maintain: &mut dyn FnMut()) -> Result<bool> {
        let own = [Source { store: Arc::clone(device.store()), has_gaps: false, has_surplus: false }];
        walk.is_own_damaged = self.copy_each(device, &own, true, walk, maintain)?.is_some();
        if walk.is_whole {
            let donors = self.stores_at(cut)?;
            // Some unreadable pairs are met in both walks.
            let unread = std::mem::take(&mut walk.unread);
            let damage = self.copy_each(device, &donors, false, walk, maintain)?;
            walk.unread = walk.unread.max(unread).max(u64::from(damage.is_some()));
        }
        if walk.is_whole && walk.unread != 0 {
            self.counts.uncopied.fetch_add(walk.unread, Ordering::Relaxed);
            let (group, device, pairs) = (self.index, device.index, walk.unread);
            let event = Event::CopyIncomplete { group, device, pairs };
            self.options.relay.as_ref().inspect(|relay| relay.push(event));
        }
        Ok(walk.is_whole)
    }

    /// Queues the group's pair of each key of these stores at `device`. For its own store, equal
    /// pairs are skipped. Returns the error that prevented the walk from listing all keys.
    fn copy_each(
        &self,
        device: &Device,
        of: &[Source],
        is_own: bool,
        walk: &mut Walk,
        maintain: &mut dyn FnMut(),
    ) -> Result<Option<Error>> {
        // Called at least every 50 ms, also while the copy waits.
        let mut stops = || {
            maintain();
            self.stops.load(Ordering::Acquire) || !device.is_filling()
        };
        let mut value = Vec::new();
        let walked = self.each_key_of(of, &mut |key| {
            while (device.depth() > QUEUED_COMMANDS_MAX || device.queued_bytes() > QUEUED_BYTES_MAX) && !stops() {
                device.kick();
                std::thread::sleep(Duration::from_micros(50));
            }
            walk.is_whole &= !stops();
            if !walk.is_whole {
                return Err(Error::Closed);
            }
            let stripe = self.stripes.lock_shared(KeyHash::of(key, self.seed));
            let found = match self.compete(&stripe, key, Query::Pair, &mut value) {
                Err(Error::Corrupt { .. }) => {
                    walk.unread += 1;
                    None
                }
                found => Some(found?).filter(|found| found.is_present),
            };
            let mutation = match found {
                // The device's own pair of a key that no member can read may be older than the
                // acknowledged one. No check could detect this.
                None => Mutation::Delete,
                // Equal to the group's pair: no older pair remains, whatever happens to the others'
                // records.
                Some(found) if is_own && has_same_pair(device, key, &value, found.expiry) => {
                    drop(stripe);
                    walk.rate_limit.throttle(key.len() + value.len(), &mut stops);
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
            walk.rate_limit.throttle(bytes, &mut stops);
            Ok(())
        });
        device.kick();
        if walk.is_whole { walked } else { Ok(None) }
    }
}

/// Returns whether a member's store has this value of a key.
fn has_same_pair(device: &Device, key: &[u8], value: &[u8], expiry: Option<Expiry>) -> bool {
    let own = read_pair(&**device.store(), key);
    matches!(own, Ok(Some((own, expires))) if own == value && expires == expiry)
}
