//! How a member that lacks something comes to have it: from another's operation log, or by a full copy.
//!
//! Invariants
//! 1. The member is behind while this goes on: nothing is queued at it, its processor has ended what it was at, and the description says that it is out, or the donor has
//!    everything. One thread at a time has it catch up.
//! 2. It is active again when, with the sequencer held, it has every operation that was given a number; the description says so, durably, before its votes count.
//! 3. What it has that the group has not (operations of an epoch that ended without them) is put right before anything is answered from it. While that is not done
//!    its record says *partial*, and a crash has it copied anew.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use lodestore_contract::{Error, Result};

use crate::device::{Device, apply, is_refusal};
use crate::group::{Group, read_pair};
use crate::layout::{EPOCHS_MAX, MemberState, Mutation, Operation};
use crate::lock;
use crate::oplog::OpLog;
use crate::planted::Fault;
use crate::walk::each_key;

/// Operations that may be left when the sequencer is held for the last of them.
const LAST_STEP: u64 = 64;
/// Rounds after which the last step is taken whatever is left.
const ROUNDS: u32 = 1000;

/// Sleeps so that so many bytes a second go by.
struct Pace {
    rate: u64,
    begun: Instant,
    bytes: u64,
}

impl Pace {
    fn new(rate: u64) -> Self {
        Self { rate, begun: Instant::now(), bytes: 0 }
    }

    fn pass(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
        if self.rate != 0 {
            let due = Duration::from_secs_f64(self.bytes as f64 / self.rate as f64);
            std::thread::sleep(due.saturating_sub(self.begun.elapsed()).min(Duration::from_millis(100)));
        }
    }
}

/// The log of a device of a group of several, which has one.
pub(crate) fn log_of(device: &Device) -> Result<&OpLog> {
    device.log().ok_or_else(|| Error::corrupt("mkvs", "a device of a group of several has no operation log"))
}

impl Group {
    /// Up to which operation a member's log says what the group's does, where its last one is `last` of `epoch`. `None` where nobody remembers.
    pub(crate) fn common(epochs: &[(u64, u64)], epoch: u64, last: u64) -> Option<u64> {
        let is_whole = epochs.len() < EPOCHS_MAX || epochs.first().is_some_and(|(oldest, _)| *oldest <= epoch);
        let later = epochs.iter().find(|(other, _)| *other > epoch).map(|(_, first)| first - 1);
        is_whole.then(|| later.map_or(last, |end| last.min(end)))
    }

    /// Has `device` catch up with the active members, and takes it into use. False where none is active, or it is to be tried again.
    ///
    /// # Errors
    /// The devices'; those of `device` leave it behind.
    pub(crate) fn catch_up(&self, device: &Arc<Device>) -> Result<bool> {
        // It is out before anything of it is changed, and its processor has ended what it was at.
        self.settle_members()?;
        device.wait_for_processor();
        log_of(device)?.forget_lacking();
        let donors = self.active().into_iter().filter(|donor| donor.is_active() && donor.id != device.id);
        let Some(donor) = donors.max_by_key(|donor| donor.applied()) else { return Ok(false) };
        if self.counts_still(device) && !self.has_all(&donor) {
            return Ok(false);
        }
        if self.needs_copy(device, &donor)? || !self.forget_forked(device, &donor)? {
            self.copy(device, &donor)?;
            self.counts.copied.fetch_add(1, Ordering::Relaxed);
        } else {
            self.counts.caught_up.fetch_add(1, Ordering::Relaxed);
        }
        for _ in 0..ROUNDS {
            let to = donor.applied();
            if to.saturating_sub(device.applied()) <= LAST_STEP {
                break;
            }
            if !self.replay(device, &donor, to)? {
                return Ok(false);
            }
        }
        self.join(device, &donor)
    }

    /// Whether the description says that a member is active: too few are left to say otherwise, and what it has may be what a write was acknowledged by.
    fn counts_still(&self, device: &Device) -> bool {
        let members = &self.host.matrix().groups[self.index].members;
        members.iter().any(|member| member.id == device.id && member.state == MemberState::Active)
    }

    /// Whether a member comes to have, in the time that a device may take, everything that has a number now.
    fn has_all(&self, donor: &Device) -> bool {
        let (last, begun) = (self.last(), Instant::now());
        while donor.applied() < last {
            donor.kick();
            if !donor.is_active() || begun.elapsed() > self.options.timeout {
                return false;
            }
            std::thread::sleep(Duration::from_micros(50));
        }
        true
    }

    /// Whether the logs do not tell all that `device` lacks, or has and the donor has not.
    pub(crate) fn needs_copy(&self, device: &Device, donor: &Device) -> Result<bool> {
        let log = log_of(device)?;
        let Some(common) = self.common_of(log)? else { return Ok(true) };
        let (first, last) = log_of(donor)?.held();
        let next = device.applied().min(common) + 1;
        Ok(log.record().is_partial || common + 1 < log.held().0 || next < first || next > last + 1)
    }

    /// Up to which operation a log says what the group's does. `None` where nobody remembers.
    fn common_of(&self, log: &OpLog) -> Result<Option<u64>> {
        let epochs = self.host.matrix().groups[self.index].epochs.clone();
        // An open begins its epoch when the others have caught up: what is behind the group's last operation is not in the epochs yet.
        Ok(Self::common(&epochs, last_epoch(log)?, log.held().1.min(self.last())))
    }

    /// The last step, with the sequencer held.
    fn join(&self, device: &Arc<Device>, donor: &Device) -> Result<bool> {
        let mut sequencer = lock(&self.sequencer);
        let last = sequencer.next - 1;
        let begun = Instant::now();
        while donor.applied() < last {
            donor.kick();
            if !donor.is_active() || begun.elapsed() > self.options.timeout {
                return Ok(false);
            }
            std::thread::sleep(Duration::from_micros(50));
        }
        if !self.replay(device, donor, last)? {
            return Ok(false);
        }
        log_of(device)?.set_record(|record| (record.applied, record.is_partial) = (last, false))?;
        device.set_applied(last);
        // One that was replaced meanwhile, or failed, does not come back.
        if !self.devices().iter().any(|member| Arc::ptr_eq(member, device)) || !device.come_back() {
            return Ok(false);
        }
        sequencer.active.push(Arc::clone(device));
        sequencer.active.sort_by_key(|device| device.index);
        let said =
            if self.options.planted.is(Fault::MemberBackUnsaid) { Ok(()) } else { self.note_members(&mut sequencer) };
        if let Err(error) = said {
            sequencer.active.retain(|active| active.id != device.id);
            device.set_state(MemberState::Behind);
            return Err(error);
        }
        Ok(true)
    }

    /// Does what `device` lacks up to `to`, by the donor's log. False where that does not reach so far back.
    fn replay(&self, device: &Device, donor: &Device, to: u64) -> Result<bool> {
        let (log, source) = (log_of(device)?, log_of(donor)?);
        let from = device.applied() + 1;
        let mut operations = Vec::new();
        for seq in from..=to {
            let Some(operation) = source.read(seq)? else { return Ok(false) };
            if operation.mutation == Mutation::Lacking && !is_aborted(source, seq)? {
                // The donor has it by a copy, and no log tells it.
                log.set_record(|record| record.is_partial = true)?;
                return Ok(false);
            }
            if self.stops.load(Ordering::Acquire) {
                return Ok(false);
            }
            operations.push(operation);
            if operations.len() == LAST_STEP as usize || seq == to {
                self.replay_some(device, log, &std::mem::take(&mut operations), source)?;
            }
        }
        Ok(true)
    }

    fn replay_some(&self, device: &Device, log: &OpLog, operations: &[Operation], source: &OpLog) -> Result<()> {
        for operation in operations {
            let (_, last) = log.held();
            if operation.seq > last {
                log.append(operation, operation.seq - 1)?;
            } else {
                log.fill(operation)?;
            }
            match apply(&**device.store(), &operation.key, &operation.mutation, false) {
                Ok(_) => {}
                // What found no room elsewhere either was taken back.
                Err(error) if is_refusal(&error) && is_aborted(source, operation.seq)? => {}
                Err(error) => return Err(error),
            }
            device.set_applied(operation.seq);
        }
        Ok(())
    }

    /// Takes out of `device` what the group does not have. False where that is not known.
    fn forget_forked(&self, device: &Device, donor: &Device) -> Result<bool> {
        let log = log_of(device)?;
        let (_, last) = log.held();
        let Some(common) = self.common_of(log)? else { return Ok(false) };
        if common == last {
            return Ok(true);
        }
        let mut keys = Vec::new();
        for seq in common + 1..=last {
            let Some(operation) = log.read(seq)? else { return Ok(false) };
            keys.push(operation.key);
        }
        log.set_record(|record| record.is_partial = !self.options.planted.is(Fault::ForkCutUnsaid))?;
        log.truncate(common)?;
        keys.iter().try_for_each(|key| copy_key(device, donor, key).map(drop))?;
        device.set_applied(device.applied().min(common));
        // What was copied is newer than `common`: the replay comes to the same. It stays partial until it has joined: another donor may lack what this one gave it.
        Ok(true)
    }

    /// Makes `device` what the donor is, key by key, from an operation on that the donor's log reaches back to.
    fn copy(&self, device: &Device, donor: &Device) -> Result<()> {
        let (log, source) = (log_of(device)?, log_of(donor)?);
        log.set_record(|record| record.is_partial = true)?;
        let cut = donor.applied();
        let epoch = source.read(cut)?.map_or_else(|| source.record().epoch, |operation| operation.epoch);
        log.restart(cut, epoch)?;
        device.set_applied(cut);
        let mut pace = Pace::new(self.options.copy_rate);
        let go_on = || if self.stops.load(Ordering::Acquire) { Err(Error::Closed) } else { Ok(()) };
        each_key(&**device.store(), &mut |key| {
            go_on()?;
            if !donor.store().contains(key)? {
                device.store().delete(key)?;
            }
            Ok(())
        })?;
        each_key(&**donor.store(), &mut |key| {
            go_on()?;
            pace.pass(copy_key(device, donor, key)?);
            Ok(())
        })
    }
}

/// Gives `device` what the donor has of a key; bytes that went over.
fn copy_key(device: &Device, donor: &Device, key: &[u8]) -> Result<usize> {
    let pair = read_pair(&**donor.store(), key)?;
    let bytes = key.len() + pair.as_ref().map_or(0, |(value, _)| value.len());
    let mutation = pair.map_or(Mutation::Delete, |(value, expiry)| Mutation::Put { value, expiry });
    apply(&**device.store(), key, &mutation, false)?;
    Ok(bytes)
}

/// The epoch of a log's last operation.
pub(crate) fn last_epoch(log: &OpLog) -> Result<u64> {
    let (_, last) = log.held();
    Ok(log.read(last)?.map_or(log.record().epoch, |operation| operation.epoch))
}

/// Whether a later operation of the log takes this one back.
pub(crate) fn is_aborted(log: &OpLog, seq: u64) -> Result<bool> {
    let (_, last) = log.held();
    for later in seq + 1..=last {
        if log.read(later)?.and_then(|operation| operation.aborts()) == Some(seq) {
            return Ok(true);
        }
    }
    Ok(false)
}

impl Device {
    /// Does again what its log has behind its record's `applied`, after a crash: of each key the last operation that it has room for, where its store has something else.
    /// The operations that found no room.
    ///
    /// # Errors
    /// The stores'.
    pub(crate) fn redo(&self) -> Result<Vec<u64>> {
        let log = log_of(self)?;
        let (first, last) = log.held();
        if self.planted_is(Fault::OpsNotRedone) {
            self.set_applied(last);
            return Ok(Vec::new());
        }
        let mut operations = Vec::new();
        for seq in first.max(log.record().applied + 1)..=last {
            let Some(operation) = log.read(seq)? else {
                return Err(Error::corrupt("operation log", format!("operation {seq} is missing")));
            };
            operations.push(operation);
        }
        let (mut seen, mut refused) = (HashSet::new(), Vec::new());
        for operation in operations.iter().rev() {
            if seen.contains(&operation.key) {
                continue;
            }
            if operation.mutation == Mutation::Lacking {
                refused.push(operation.seq);
                continue;
            }
            if !self.has(operation)? {
                match apply(&**self.store(), &operation.key, &operation.mutation, false) {
                    Ok(_) => {}
                    // What stood before on its key may be missing as well.
                    Err(error) if is_refusal(&error) => {
                        refused.push(operation.seq);
                        continue;
                    }
                    Err(error) => return Err(error),
                }
            }
            seen.insert(&operation.key);
        }
        self.set_applied(refused.iter().min().map_or(last, |first| first - 1));
        if refused.is_empty() {
            log.set_record(|record| record.applied = last)?;
        }
        Ok(refused)
    }

    /// Whether its store is as after `operation` already.
    fn has(&self, operation: &Operation) -> Result<bool> {
        let pair = match read_pair(&**self.store(), &operation.key) {
            // Damage is written over.
            Err(Error::Corrupt { .. }) => return Ok(false),
            pair => pair?,
        };
        Ok(match (&operation.mutation, pair) {
            (
                Mutation::Put { value, expiry } | Mutation::Restore { value: Some((value, expiry)), .. },
                Some((found, at)),
            ) => *value == found && *expiry == at,
            (Mutation::Delete | Mutation::Restore { value: None, .. }, None) => true,
            _ => false,
        })
    }
}
