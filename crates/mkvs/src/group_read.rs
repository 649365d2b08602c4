//! The competition of a group's devices for a read (MKVS, Micromachines 2019, section 4.3): which
//! devices are queried, and whose answer counts.
//!
//! Invariants
//! 1. The caller holds the key's stripe, shared or exclusively: no other write of the key is in
//!    progress. A member may answer if it has applied the stripe's last operation, or if the read
//!    is queued after this operation. The first answer is therefore the acknowledged value.
//! 2. An error is returned only if no member has a better answer. If one member cannot read a key
//!    and another can, the keeper repairs it (`keeper.rs`).
//! 3. No read waits for the sequencer. A device with waiting commands that makes no progress for
//!    the operation timeout fails.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use lodestore_contract::{Error, Expiry, Result};

use crate::command::{Answer, Command, Found, Query, ReadOp};
use crate::device::Device;
use crate::group::Group;
use crate::options::Reads;
use crate::stripes::Stripe;
use crate::{lock, read};

/// Devices that have a read queued, with their progress counters at that time.
type Queued = Vec<(Arc<Device>, u64)>;

/// Copies an answer into the caller's buffer.
fn copy_answer(value: &mut Vec<u8>, answered: &[u8]) {
    value.clear();
    value.extend_from_slice(answered);
}

impl Group {
    /// Returns whether `key` exists.
    ///
    /// # Errors
    /// As [`find`](Self::find).
    pub(crate) fn contains(&self, stripe: &Stripe, key: &[u8]) -> Result<bool> {
        self.find(stripe, key, Query::Presence, &mut Vec::new()).map(|found| found.is_present)
    }

    /// Returns the value of `key`.
    ///
    /// # Errors
    /// As [`find`](Self::find).
    pub(crate) fn get(&self, stripe: &Stripe, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.pair_by(stripe, key, Query::Value)?.map(|(value, _)| value))
    }

    /// Returns the value and the expiry of `key`.
    ///
    /// # Errors
    /// As [`find`](Self::find).
    pub(crate) fn pair(&self, stripe: &Stripe, key: &[u8]) -> Result<Option<(Vec<u8>, Option<Expiry>)>> {
        self.pair_by(stripe, key, Query::Pair)
    }

    fn pair_by(&self, stripe: &Stripe, key: &[u8], query: Query) -> Result<Option<(Vec<u8>, Option<Expiry>)>> {
        let mut value = Vec::new();
        let found = self.find(stripe, key, query, &mut value)?;
        Ok(found.is_present.then_some((value, found.expiry)))
    }

    /// Answers `query` about `key`, from the members that the read mode selects.
    ///
    /// # Errors
    /// Errors of the devices; [`Error::TooFewDevices`] if no member can answer, or the key's last
    /// write is in doubt.
    #[inline]
    pub(crate) fn find(&self, stripe: &Stripe, key: &[u8], query: Query, value: &mut Vec<u8>) -> Result<Found> {
        if let Some(store) = self.sole() {
            return query.run(store, key, value);
        }
        self.check_not_in_doubt(stripe, key)?;
        self.compete(stripe, key, query, value)
    }

    /// As [`find`](Self::find), also for a key whose last write is in doubt: returns the pair of
    /// the active members.
    ///
    /// # Errors
    /// Errors of the devices; [`Error::TooFewDevices`].
    pub(crate) fn compete(&self, stripe: &Stripe, key: &[u8], query: Query, value: &mut Vec<u8>) -> Result<Found> {
        let reads = self.counts.reads.fetch_add(1, Ordering::Relaxed);
        if let Some(device) = self.find_idle(stripe, reads as usize)
            && let Some(found) = device.query_key(query, key, value)
        {
            return found.or_else(|error| self.query_each(stripe, key, query, value, Some(error)));
        }
        let op = Arc::new(ReadOp::new(key, query).with(&self.allowance));
        let begun = Instant::now();
        let answer = match self.options.reads {
            Reads::Single => self.query_queued(&op, &self.active_by_queue(), 1),
            Reads::RaceAll => self.query_queued(&op, &self.active_by_queue(), usize::MAX),
            Reads::Hedged => self.hedge(&op, begun),
        };
        self.latency.record(begun.elapsed());
        if op.met_damage() {
            self.note_damage(key);
        }
        match answer {
            Some(Answer { found: Ok(found), value: answered, .. }) => {
                copy_answer(value, &answered);
                Ok(found)
            }
            Some(Answer { found: Err(error), .. }) => self.query_each(stripe, key, query, value, Some(error)),
            None => self.query_each(stripe, key, query, value, None),
        }
    }

    /// Returns whether the votes of an active member about the presence of a key may be wrong.
    pub(crate) fn has_doubtful_votes(&self) -> bool {
        let is_doubtful = |device: &Device| device.has_gaps() || device.has_surplus();
        read(&self.members).iter().any(|device| device.is_active() && is_doubtful(device))
    }

    /// Queries every member that may answer, one after the other. `first` is the error of an
    /// earlier query. A key that one member cannot read and another can is queued for repair.
    fn query_each(
        &self,
        stripe: &Stripe,
        key: &[u8],
        query: Query,
        value: &mut Vec<u8>,
        mut first: Option<Error>,
    ) -> Result<Found> {
        for device in &self.active_by_queue() {
            let found = if device.is_inline() && device.applied() >= stripe.last {
                device.query_key(query, key, value)
            } else {
                let op = Arc::new(ReadOp::new(key, query));
                self.query_queued(&op, std::slice::from_ref(device), 1).map(|answer| {
                    copy_answer(value, &answer.value);
                    answer.found
                })
            };
            match found {
                None => {}
                Some(Ok(found)) => {
                    if matches!(first, Some(Error::Corrupt { .. })) {
                        self.note_damage(key);
                    }
                    return Ok(found);
                }
                Some(Err(error)) => first = first.or(Some(error)),
            }
        }
        Err(first.unwrap_or(self.too_few_error(0, 1)))
    }

    /// Returns the active members, the shortest queue first. Members over the soft lag are included
    /// only if there are no others.
    pub(crate) fn active_by_queue(&self) -> Vec<Arc<Device>> {
        let mut members = read(&self.members).clone();
        members.retain(|device| device.is_active());
        members.sort_by_cached_key(|device| device.depth());
        let near = members.partition_point(|device| (device.depth() as u64) < self.options.soft_lag());
        if near != 0 {
            members.truncate(near);
        }
        members
    }

    /// Returns a member whose store this thread may read: its queue is empty, and it has applied
    /// the stripe's last operation.
    fn find_idle(&self, stripe: &Stripe, spread: usize) -> Option<Arc<Device>> {
        if self.options.reads == Reads::RaceAll {
            return None;
        }
        let members = read(&self.members);
        let count = members.len();
        let is_idle = |device: &Device| {
            device.is_inline() && device.is_active() && device.depth() == 0 && device.applied() >= stripe.last
        };
        (0..count).map(|at| &members[(at + spread) % count]).find(|device| is_idle(device)).cloned()
    }

    /// Queues the read at `max` of `members`, and waits until one has answered or none of them
    /// will.
    pub(crate) fn query_queued(&self, op: &Arc<ReadOp>, members: &[Arc<Device>], max: usize) -> Option<Answer> {
        let mut queued = Queued::new();
        for device in members {
            self.queue_at(op, device, &mut queued);
            if queued.len() == max {
                break;
            }
        }
        queued.iter().for_each(|(device, _)| device.kick());
        self.await_answer(op, queued)
    }

    /// Queues the read at `device`, unless it is out of use or its queue is at the hard lag.
    fn queue_at(&self, op: &Arc<ReadOp>, device: &Arc<Device>, queued: &mut Queued) {
        let progress = device.progress();
        op.add_pending();
        if (device.depth() as u64) < self.options.hard_lag() && device.push(Command::Read(Arc::clone(op))) {
            queued.push((Arc::clone(device), progress));
        } else {
            op.give_up();
        }
    }

    /// Waits for an answer from these devices. A device that makes no progress in time fails.
    fn await_answer(&self, op: &ReadOp, queued: Queued) -> Option<Answer> {
        let mut queued: Vec<_> = queued.into_iter().map(|(device, progress)| (device, Some(progress))).collect();
        while !queued.is_empty() {
            let answer = op.wait(Instant::now() + self.options.timeout);
            if answer.is_some() || !op.is_pending() {
                return answer;
            }
            for (device, seen) in &mut queued {
                let progress = Some(device.progress());
                // An idle device may have received its present command just now.
                let is_idle = device.depth() == 0;
                if !is_idle && progress == *seen {
                    device.fail(self.late_failure());
                }
                *seen = progress.filter(|_| !is_idle);
            }
            // A device that hangs in this read does not give it up.
            queued.retain(|(device, _)| device.is_active());
        }
        None
    }

    /// Queries the device likely to answer first. Each time the wait exceeds the 95th percentile of
    /// reads, the next one is queried, if the allowance permits.
    fn hedge(&self, op: &Arc<ReadOp>, begun: Instant) -> Option<Answer> {
        self.allowance.earn(self.options.hedge_percent);
        let p95 = self.latency.p95();
        let (mut queued, mut tried, mut until, mut patience) = (Queued::new(), 0, begun, p95);
        while let Some(device) = self.next_best(tried, p95) {
            let is_first = queued.is_empty();
            if is_first || self.allowance.spend() {
                tried |= device.bit();
                if !is_first {
                    op.mark_hedged(device.bit());
                    self.counts.hedged.fetch_add(1, Ordering::Relaxed);
                }
                self.queue_at(op, &device, &mut queued);
                device.kick();
            } else if patience > self.options.timeout / 4 {
                // Reads without another device to ask detect devices that hang.
                break;
            } else {
                // Other reads may have added to the allowance by then.
                patience *= 2;
            }
            until += patience;
            let answer = op.wait(until);
            if answer.is_some() {
                return self.count_win(answer, &queued);
            }
        }
        let answer = self.await_answer(op, queued.clone());
        self.count_win(answer, &queued)
    }

    /// Returns the untried member with the shortest queue. A member that has spent longer than
    /// `patience` on a command comes last, whatever its queue.
    fn next_best(&self, tried: u32, patience: Duration) -> Option<Arc<Device>> {
        let others = self.active_by_queue().into_iter().filter(|device| tried & device.bit() == 0);
        others.min_by_key(|device| (device.is_busy_for(patience), device.depth()))
    }

    /// Counts an answer that did not come from the first device.
    fn count_win(&self, answer: Option<Answer>, queued: &Queued) -> Option<Answer> {
        let is_first = |answer: &Answer| queued.first().is_some_and(|(first, _)| first.bit() == answer.by);
        if answer.as_ref().is_some_and(|answer| !is_first(answer)) {
            self.counts.hedges_won.fetch_add(1, Ordering::Relaxed);
        }
        answer
    }

    /// Queues a key for repair: one member cannot read it, another can.
    pub(crate) fn note_damage(&self, key: &[u8]) {
        let mut damaged = lock(&self.damaged);
        if damaged.len() < crate::keeper::DAMAGED_MAX {
            damaged.insert(key.to_vec());
        }
    }
}
