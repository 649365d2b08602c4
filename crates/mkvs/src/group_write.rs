//! The commit path of a write in a group.
//!
//! Steps in a group of several members, with the key's stripe locked exclusively throughout:
//! 1. Under the sequencer the operation gets its sequence number and is queued at every active
//!    member. All members therefore have the same order.
//! 2. Each member logs it durably, applies it durably, and votes.
//! 3. The write is acknowledged when as many members have voted as `acks` requires; the others
//!    continue. A member that came back since and has caught up with the write counts in place of a
//!    removed one.
//! 4. The members' answers about the key update the filter's counters before the stripe is
//!    released. If a member has gaps or a surplus, the key is read before step 1, and this answer
//!    counts.
//!
//! If too few members have space for the write, the members that applied it roll it back. A
//! `Restore` writes the value that the others still have. The write is refused, and no reader has
//! seen it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use lodestore_contract::{Error, Expiry, Result};

use crate::apply::{apply, is_refusal};
use crate::command::{Command, Query, ReadOp, Vote, WriteOp};
use crate::device::Device;
use crate::group::{Group, Sequencer, read_pair};
use crate::operation::{Mutation, Operation};
use crate::options::Acks;
use crate::planted;
use crate::route::KeyHash;
use crate::stripes::Stripe;

/// Maximum bytes of keys and values queued at a device.
const QUEUE_BYTES: usize = 64 << 20;

/// A value and its expiry.
type Pair = (Vec<u8>, Option<Expiry>);

/// Why a write is not acknowledged.
enum Failure {
    /// No member has it: it got no number, or it was rolled back.
    NotDone(Error),
    /// In doubt: some members have it, but too few to acknowledge it.
    Undecided(Error),
}

/// The outcome of a write.
enum Outcome {
    /// The write is acknowledged; contains whether the key existed.
    Acknowledged(bool),
    /// Too many members had no space for it, and the others have rolled it back.
    RolledBack(Error),
}

/// How the presence of a key before a change is known.
#[derive(Clone, Copy, PartialEq, Eq)]
enum KnownPresence {
    /// The members' votes are reliable.
    ByVotes,
    /// A read found the key present or absent, because the votes may be wrong.
    Known(bool),
    /// No member can tell it.
    Unknown,
}

/// How many members must apply an operation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Required {
    /// As many as `acks` requires; an acknowledged write is on that many members.
    WriteQuorum,
    /// The active members, even if fewer. The epoch counts only these members, and repeated
    /// operations acknowledge nothing to a caller.
    ActiveMembers,
}

/// A submitted operation.
struct Submitted {
    op: Arc<WriteOp>,
    /// The members that have it in their queues.
    devices: Vec<Arc<Device>>,
    /// How many of these members must apply it.
    needed: usize,
}

/// Marks members as behind that refused an operation which is or may be acknowledged.
fn fall_behind(devices: &[Arc<Device>], refused: u32) {
    devices.iter().filter(|device| refused & device.bit() != 0).for_each(|device| device.fall_behind());
}

impl Group {
    /// Applies `mutation` to a key whose stripe is locked, and updates the filter. Returns whether
    /// the key existed; for a put of a key that no device can read, the devices' votes tell it.
    ///
    /// # Errors
    /// Errors of the devices; [`Error::Corrupt`] for a delete if no device can tell whether the key
    /// exists: nothing is changed then.
    pub(crate) fn change(&self, stripe: &mut Stripe, key: &[u8], hash: KeyHash, mutation: Mutation) -> Result<bool> {
        let presence = match self.presence_before(stripe, key) {
            Err(Error::Corrupt { .. }) if matches!(mutation, Mutation::Put { .. }) => KnownPresence::Unknown,
            presence => presence?,
        };
        self.change_known(stripe, key, hash, mutation, presence)
    }

    /// Deletes a key that no device may be able to read.
    ///
    /// # Errors
    /// Errors of the devices.
    pub(crate) fn delete_unread(&self, stripe: &mut Stripe, key: &[u8], hash: KeyHash) -> Result<()> {
        self.change_known(stripe, key, hash, Mutation::Delete, KnownPresence::Unknown).map(drop)
    }

    /// Returns whether a key exists, if the members' votes on a change of it may be wrong: a member
    /// with gaps may lack it, and a member with a surplus may have it although it was deleted.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if no device can tell; other errors of the devices.
    fn presence_before(&self, stripe: &Stripe, key: &[u8]) -> Result<KnownPresence> {
        if self.sole().is_some() || !self.has_doubtful_votes() {
            return Ok(KnownPresence::ByVotes);
        }
        let found = self.compete(stripe, key, Query::Presence, &mut Vec::new())?;
        Ok(KnownPresence::Known(found.is_present))
    }

    /// As [`change`](Self::change), with what is known about the key.
    fn change_known(
        &self,
        stripe: &mut Stripe,
        key: &[u8],
        hash: KeyHash,
        mutation: Mutation,
        presence: KnownPresence,
    ) -> Result<bool> {
        let adds = matches!(mutation, Mutation::Put { .. });
        let is_new = adds && stripe.filter.is_some() && !stripe.may_have(hash);
        let changed = match self.sole() {
            Some(store) => apply(store, key, &mutation, is_new).map_err(|error| match is_refusal(&error) {
                true => Failure::NotDone(error),
                false => Failure::Undecided(error),
            }),
            None => self.commit(stripe, key, mutation, is_new),
        };
        // `None`: unknown. Too high a count costs a lookup, and too low a count hides keys.
        let existed = match (&changed, presence) {
            (Ok(_), KnownPresence::Known(known)) => Some(known),
            (Ok(voted), KnownPresence::ByVotes) => Some(*voted),
            _ => None,
        };
        // No reader checks the filter before the stripe is released.
        match (&changed, existed) {
            (Ok(_), Some(false)) if adds => self.raise(stripe, key, hash),
            (Ok(_), Some(true)) if !adds => self.lower(stripe, key, hash),
            (Ok(_) | Err(Failure::Undecided(_)), None) if adds => {
                self.raise(stripe, key, hash);
                self.counts.leaked.fetch_add(1, Ordering::Relaxed);
            }
            (Ok(true), None) => drop(self.counts.leaked.fetch_add(1, Ordering::Relaxed)),
            _ => {}
        }
        let changed = changed.map(|voted| existed.unwrap_or(voted));
        changed.map_err(|failure| match failure {
            Failure::NotDone(error) => error,
            // This error comes from the host's store, which has no space to record the active
            // members. A refusal would mean that no member has the write.
            Failure::Undecided(error) if is_refusal(&error) => {
                let source = io::Error::new(io::ErrorKind::StorageFull, error.to_string());
                Error::io("recording the active devices in", "the matrix's description", source)
            }
            Failure::Undecided(Error::TooFewDevices { group, live, needed, .. }) => {
                Error::TooFewDevices { group, live, needed, may_stand: true }
            }
            Failure::Undecided(error) => error,
        })
    }

    /// Gives `mutation` the next sequence number and queues it at every active member.
    ///
    /// # Errors
    /// Errors of the host's store; [`Error::TooFewDevices`].
    fn submit(&self, key: &[u8], mutation: Mutation, is_new: bool, required: Required) -> Result<Submitted> {
        self.mark_overdue_members(&self.sequence());
        let mut sequencer = self.sequence_after_removals()?;
        let active = sequencer.active.clone();
        let needed = match (self.options.acks.needed(self.width, active.len()), required) {
            (needed, Required::WriteQuorum) => needed,
            (needed, Required::ActiveMembers) => needed.min(active.len()).max(1),
        };
        if active.len() < needed {
            return Err(self.too_few_error(active.len(), needed));
        }
        let needed =
            if self.options.planted.has_fault(planted::OP_ACKED_BY_FEWER) { needed.max(2) - 1 } else { needed };
        let (epoch, seq) = (sequencer.epoch, self.number(&mut sequencer));
        let operation = Operation { epoch, seq, key: key.to_vec(), mutation };
        let set = active.iter().fold(0, |set, device| set | device.bit());
        let op = Arc::new(WriteOp::new(operation, set, needed, is_new));
        for device in &active {
            if !device.push(Command::Write(Arc::clone(&op))) {
                op.vote(device.bit(), Vote::Failed);
            }
        }
        sequencer.filling.retain(|device| device.is_filling() && device.push(Command::Write(Arc::clone(&op))));
        sequencer.filling.iter().for_each(|device| device.wake());
        Ok(Submitted { op, devices: active, needed })
    }

    /// Returns whether a device's queue exceeds its limits.
    fn is_overdue(&self, device: &Device) -> bool {
        device.depth() as u64 >= self.options.hard_lag() || device.queued_bytes() >= QUEUE_BYTES
    }

    /// Marks members over their limits as behind, if enough others are left.
    fn mark_overdue_members(&self, sequencer: &Sequencer) {
        // The list may still contain members that failed or fell behind.
        let mut left = sequencer.active.iter().filter(|device| device.is_active()).count();
        let needed = self.options.acks.needed(self.width, left);
        for device in &sequencer.active {
            if left > needed && device.is_active() && self.is_overdue(device) {
                device.fall_behind();
                left -= 1;
            }
        }
        sequencer.filling.iter().filter(|device| self.is_overdue(device)).for_each(|device| device.fall_behind());
    }

    /// Has `mutation` applied by as many members as needed. Returns whether the key existed.
    ///
    /// The caller holds the key's stripe, `stripe`.
    ///
    /// # Errors
    /// Errors of the devices; [`Error::TooFewDevices`].
    fn commit(&self, stripe: &mut Stripe, key: &[u8], mutation: Mutation, is_new: bool) -> Result<bool, Failure> {
        self.counts.writes.fetch_add(1, Ordering::Relaxed);
        self.wait_for_queues().map_err(Failure::NotDone)?;
        let Submitted { op, devices, needed } =
            self.submit(key, mutation, is_new, Required::WriteQuorum).map_err(Failure::NotDone)?;
        stripe.last = op.operation.seq;
        match self.outcome(stripe, &op, &devices, needed) {
            Ok(Outcome::Acknowledged(was_present)) => {
                self.acknowledged.fetch_max(op.operation.seq, Ordering::AcqRel);
                stripe.in_doubt.clear();
                Ok(was_present)
            }
            Ok(Outcome::RolledBack(refusal)) => Err(Failure::NotDone(refusal)),
            Err(error) => {
                // The key is unreadable until a later operation of the group is acknowledged. Each
                // member with the later operation has this one before it.
                stripe.in_doubt.push((key.to_vec(), stripe.last));
                self.note_in_doubt(key);
                Err(Failure::Undecided(error))
            }
        }
    }

    /// Waits for a write's votes and acts on them.
    ///
    /// # Errors
    /// Returned if the write is in doubt. Members that refused it for lack of space are then
    /// behind.
    fn outcome(&self, stripe: &mut Stripe, op: &WriteOp, devices: &[Arc<Device>], needed: usize) -> Result<Outcome> {
        let mut restored = 0;
        let decided = match self.count_votes(op, devices, needed) {
            Ok(Some(was_present)) => return Ok(Outcome::Acknowledged(was_present)),
            Ok(None) => self.roll_back(stripe, op, devices, &mut restored),
            Err(error) => Err(error),
        };
        let (refused, refusal) = op.read(|votes| (votes.refused, votes.refusal.take()));
        if let Err(error) = decided {
            // Before any other step that may fail: the write may be committed, and these members
            // lack it.
            fall_behind(devices, refused & !restored);
            self.remove_failed_members()?;
            return Err(error);
        }
        Ok(Outcome::RolledBack(refusal.unwrap_or(Error::Full { needed: op.operation.key.len() as u64, capacity: 0 })))
    }

    /// Waits until enough members have a write. Returns whether the key existed, or `None` if too
    /// few members can have it because some had no space.
    ///
    /// # Errors
    /// Errors of the host's store; [`Error::TooFewDevices`] if too few members are left.
    fn count_votes(&self, op: &WriteOp, devices: &[Arc<Device>], needed: usize) -> Result<Option<bool>> {
        let is_all = self.options.acks == Acks::All;
        let mut wanted = needed;
        loop {
            self.execute_and_wait(op, devices, wanted)?;
            let (done, refused, failed, pending, was_present) =
                op.read(|votes| (votes.done, votes.refused, votes.failed, votes.pending, votes.was_present));
            let is_known = done != 0;
            // Locked: no member is removed between this point and the marking of the refusing
            // members.
            let mut sequencer = (refused != 0 || is_all).then(|| self.sequence());
            // The vote of a member that was removed since does not count: an open may proceed
            // without it.
            let active = devices.iter().filter(|device| device.is_active()).fold(0, |set, device| set | device.bit());
            let missing = failed | (done & !active);
            let done = (done & active).count_ones() as usize;
            // With `all`, the remaining members suffice once the description names them.
            let needed = if is_all { needed.saturating_sub(missing.count_ones() as usize).max(1) } else { needed };
            if done >= needed {
                fall_behind(devices, refused);
                let late = match &mut sequencer {
                    Some(held) if is_all => self.remove_inactive_members(held)?,
                    _ => Vec::new(),
                };
                if late.is_empty() {
                    return Ok(Some(was_present));
                }
                drop(sequencer);
                self.remove_failed_members()?;
            } else if pending != 0 {
                // Another member may apply it in place of the removed one.
                wanted += 1;
            } else if refused != 0 {
                return Ok(None);
            } else {
                drop(sequencer);
                let done = done + self.count_rejoined(op, devices);
                return if is_known && done >= needed {
                    Ok(Some(was_present))
                } else {
                    Err(self.too_few_error(done, needed))
                };
            }
        }
    }

    /// Returns how many members have a write that was not queued at them: they came back since and
    /// caught up with it.
    fn count_rejoined(&self, op: &WriteOp, devices: &[Arc<Device>]) -> usize {
        // Under the sequencer: the description names its members as active.
        let sequencer = self.sequence();
        let seq = op.operation.seq;
        let has = |device: &&Arc<Device>| device.is_active() && device.applied() >= seq && !device.lacks(seq);
        let was_submitted = |device: &Arc<Device>| devices.iter().any(|submitted| submitted.id == device.id);
        sequencer.active.iter().filter(|device| !was_submitted(device)).filter(has).count()
    }

    /// Waits for members with long queues if a write needs all of them.
    fn wait_for_queues(&self) -> Result<()> {
        let begun = Instant::now();
        loop {
            let active = self.active();
            let needed = self.options.acks.needed(self.width, active.len());
            let within_limits = active.iter().filter(|device| !self.is_overdue(device)).count();
            if within_limits >= needed || active.len() < needed {
                return Ok(());
            }
            if begun.elapsed() > self.options.timeout {
                return Err(Error::Unfinished {
                    doing: "waiting for devices",
                    after: self.options.timeout,
                    instead: "too many devices of a group are behind: check the statistics, and replace slow devices",
                });
            }
            active.iter().for_each(|device| device.kick());
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    /// Has a queued write executed and waits until it is decided. A member that makes no progress
    /// for the operation timeout fails.
    fn execute_and_wait(&self, op: &WriteOp, devices: &[Arc<Device>], needed: usize) -> Result<()> {
        // Without threads, a member that is not needed executes the write when it is next used.
        let first = if self.options.threads { 0 } else { first_device(op.operation.seq, devices.len()) };
        for device in devices.iter().cycle().skip(first).take(devices.len()) {
            if self.options.threads || !op.is_decided(needed) {
                device.kick();
            }
        }
        let spins = devices.iter().any(|device| device.is_inline());
        let mut progress: Vec<u64> = devices.iter().map(|device| device.progress()).collect();
        loop {
            let late = op.wait(needed, self.options.timeout, spins);
            if late == 0 {
                break;
            }
            for (device, seen) in devices.iter().zip(&mut progress).filter(|(device, _)| late & device.bit() != 0) {
                let executed = device.progress();
                if executed == *seen {
                    device.fail(self.late_failure());
                    op.vote(device.bit(), Vote::Failed);
                }
                *seen = executed;
            }
        }
        if op.read(|votes| votes.failed) != 0 {
            self.remove_failed_members()?;
        }
        Ok(())
    }

    /// Rolls back a write that too many members had no space for. `by` receives the members that
    /// have rolled it back.
    fn roll_back(&self, stripe: &mut Stripe, op: &WriteOp, devices: &[Arc<Device>], by: &mut u32) -> Result<()> {
        self.counts.restored.fetch_add(1, Ordering::Relaxed);
        self.restore(&op.operation, devices, &mut stripe.last, by, Required::WriteQuorum)
    }

    /// Rolls an operation back: writes the key's pair again as a member has it that lacks the
    /// operation. `last` receives the sequence number of the `Restore`, `by` the members that
    /// applied it.
    ///
    /// # Errors
    /// As for a write; also [`Error::TooFewDevices`] if no member lacks the operation: the previous
    /// pair is unknown.
    pub(crate) fn restore(
        &self,
        operation: &Operation,
        devices: &[Arc<Device>],
        last: &mut u64,
        by: &mut u32,
        required: Required,
    ) -> Result<()> {
        let aborts = operation.seq;
        let keepers = devices.iter().filter(|device| device.is_active() && device.lacks(aborts));
        // A member that came back since it was chosen has applied the operation: `lacks` is checked
        // again after its answer.
        let mut values =
            keepers.filter_map(|device| self.query_member(device, &operation.key).filter(|_| device.lacks(aborts)));
        let Some(value) = values.next() else { return Err(self.too_few_error(0, 1)) };
        let mutation = Mutation::Restore { aborts, value: value? };
        let Submitted { op: restore, devices, needed } = self.submit(&operation.key, mutation, false, required)?;
        *last = restore.operation.seq;
        let executed = self.execute_and_wait(&restore, &devices, devices.len());
        let lacking = restore.read(|votes| {
            *by = votes.done;
            votes.refused
        });
        fall_behind(&devices, lacking);
        executed?;
        let live = || devices.iter().filter(|device| *by & device.bit() != 0 && device.is_active()).count();
        let needed = if self.options.acks == Acks::All {
            // With `all`, the remaining members suffice once the description names them.
            self.remove_failed_members()?;
            live().max(1)
        } else {
            needed
        };
        if live() < needed { Err(self.too_few_error(live(), needed)) } else { Ok(()) }
    }
}

impl Group {
    /// Returns a key's value and expiry at this member. `None` if it is not in use throughout.
    fn query_member(&self, device: &Arc<Device>, key: &[u8]) -> Option<Result<Option<Pair>>> {
        if device.is_inline() {
            return device.query(|store| read_pair(store, key));
        }
        // Through the queue: this thread must not hang with the device.
        let op = Arc::new(ReadOp::new(key, Query::Pair));
        let answer = self.query_queued(&op, std::slice::from_ref(device), 1)?;
        Some(answer.found.map(|found| found.is_present.then_some((answer.value, found.expiry))))
    }
}

/// Returns the index of the device that is kicked first: another one every two operations.
fn first_device(seq: u64, devices: usize) -> usize {
    ((seq / 2).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % devices.max(1)
}
