//! How a member that lacks something comes to have it: from another's operation log, or by a full copy (`fill.rs`).
//!
//! 1. What its log tells that the group has not (operations of an epoch that ended without them) is put right. While that is not done its record says *partial*, and a crash has it
//!    copied anew.
//! 2. It does again what it lacks by another's log, until little is left; or it is marked partial, and its log emptied.
//! 3. Under the sequencer it is *filling* from then on: it is given every operation that gets a number, and has no vote. Its processor is held until it has what came before
//!    by the log; a copy comes through its queue, each pair under its key's stripe, so behind the operations that the pair has in it, and before all later ones.
//! 4. When it has everything, it becomes active under the sequencer; the description says so, durably, before its votes count.
//!
//! Invariants
//! 1. While a member is behind nothing is queued at it, its processor rests, and the description says that it is out, or the others have everything. Its group's keeper alone
//!    has it catch up (`keeper.rs`), beside the copy of another one as well.
//! 2. Writers wait for none of this but the moments in which the sequencer is held (`HELD_MOST`, and a copy's beginning of its log); however many they are, a copy ends: it is a walk over the keys.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use lodestore_contract::{Error, Result};

use crate::apply::{apply, is_refusal};
use crate::device::{Device, Held};
use crate::group::{Group, Sequencer, read_pair};
use crate::layout::{EPOCHS_MAX, MemberState};
use crate::operation::{Mutation, Operation};
use crate::oplog::OpLog;
use crate::planted::Fault;

/// Operations that may be left when the member is given the next ones: its queue keeps those meanwhile.
const LAST_STEP: u64 = 64;
/// Rounds after which the last step is taken whatever is left.
const ROUNDS: u32 = 16;
/// How long the sequencer is held for a member to end what is queued.
const HELD_MOST: Duration = Duration::from_millis(100);
/// How long a member's processor may be at something, before it is tried again later.
const PROCESSOR_PATIENCE: Duration = Duration::from_millis(100);

/// What came of a member's catching up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CaughtUp {
    /// It is active.
    Active,
    /// None is active that it could follow, or it fell behind again: it is to be tried again.
    Later,
    /// The logs do not tell what it lacks: it takes a copy. The description does not count on it.
    LacksMore,
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

    /// Has `device` catch up with the active members by their logs, and takes it into use.
    ///
    /// # Errors
    /// The devices'; those of `device` leave it behind.
    pub(crate) fn catch_up(&self, device: &Arc<Device>) -> Result<CaughtUp> {
        // It is out before anything of it is changed, and its processor has ended what it was at.
        self.note_gone()?;
        let Some(held) = device.try_hold(PROCESSOR_PATIENCE) else { return Ok(CaughtUp::Later) };
        log_of(device)?.forget_lacking();
        let reaches = |donor: &Arc<Device>| self.needs_copy(device, donor).is_ok_and(|needs_copy| !needs_copy);
        let donors = self.donors(device).into_iter();
        let Some(donor) = donors.max_by_key(|donor| (reaches(donor), donor.applied())) else {
            return Ok(CaughtUp::Later);
        };
        self.mark_given_up()?;
        let still_counts = self.counts_still(device);
        if still_counts && !self.have_all() {
            return Ok(CaughtUp::Later);
        }
        drop(held);
        let becomes_partial = self.needs_copy(device, &donor)? || self.has_forked(device)?;
        if becomes_partial && still_counts && !self.count_alone(&mut self.sequence())? {
            return Ok(CaughtUp::Later);
        }
        if self.needs_copy(device, &donor)? || !self.forget_forked(device, &donor)? {
            return Ok(CaughtUp::LacksMore);
        }
        for _ in 0..ROUNDS {
            let to = donor.applied();
            if to.saturating_sub(device.applied()) <= LAST_STEP {
                break;
            }
            if !self.replay(device, &mut device.hold(), &donor, to)? {
                return Ok(CaughtUp::Later);
            }
        }
        let is_back = self.replay_last(device, &donor)? && self.join(device)?;
        if !is_back {
            return Ok(CaughtUp::Later);
        }
        self.counts.caught_up.fetch_add(1, Ordering::Relaxed);
        Ok(CaughtUp::Active)
    }

    /// The members that are active, but for this one.
    pub(crate) fn donors(&self, device: &Device) -> Vec<Arc<Device>> {
        self.active().into_iter().filter(|donor| donor.id != device.id).collect()
    }

    /// Whether the description says that a member is active: too few are left to say otherwise, and what it has may be what a write was acknowledged by.
    fn counts_still(&self, device: &Device) -> bool {
        let members = &self.host.matrix().groups[self.index].members;
        members.iter().any(|member| member.id == device.id && member.state == MemberState::Active)
    }

    /// Whether all active members come to have, in the time that a device may take, everything that has a number now.
    fn have_all(&self) -> bool {
        let (last, begun) = (self.last(), Instant::now());
        while let Some(late) = self.active().iter().find(|device| device.applied() < last) {
            if begun.elapsed() > self.options.timeout || self.stops.load(Ordering::Acquire) {
                return false;
            }
            late.kick();
            std::thread::sleep(Duration::from_micros(50));
        }
        true
    }

    /// Has the description count those that are active alone, though they are too few for a write: what is to be partial must not be counted on. False where they lack something.
    pub(crate) fn count_alone(&self, sequencer: &mut Sequencer) -> Result<bool> {
        sequencer.active.retain(|device| device.is_active());
        let last = sequencer.next - 1;
        if sequencer.active.is_empty() || sequencer.active.iter().any(|device| device.applied() < last) {
            return Ok(false);
        }
        self.write_epoch(sequencer).map(|()| true)
    }

    /// Whether its log has operations that the group's has not, or nobody knows.
    fn has_forked(&self, device: &Device) -> Result<bool> {
        let log = log_of(device)?;
        Ok(self.common_of(log)? != Some(log.held().1))
    }

    /// Whether the logs do not tell all that `device` lacks, or has and the donor has not.
    pub(crate) fn needs_copy(&self, device: &Device, donor: &Device) -> Result<bool> {
        let log = log_of(device)?;
        // Its log is not asked: it may be damaged.
        if log.record().is_partial {
            return Ok(true);
        }
        let Some(common) = self.common_of(log)? else { return Ok(true) };
        let (first, last) = log_of(donor)?.held();
        let next = device.applied().min(common) + 1;
        Ok(common + 1 < log.held().0 || next < first || next > last + 1)
    }

    /// Up to which operation a log says what the group's does. `None` where nobody remembers.
    fn common_of(&self, log: &OpLog) -> Result<Option<u64>> {
        let epochs = self.host.matrix().groups[self.index].epochs.clone();
        // An open begins its epoch when the others have caught up: what is behind the group's last operation is not in the epochs yet.
        Ok(Self::common(&epochs, last_epoch(log)?, log.held().1.min(self.last())))
    }

    /// The last step of a replay: the member is given what gets a number from now on, which waits until it has what came before. False where it is to be tried again.
    fn replay_last(&self, device: &Arc<Device>, donor: &Device) -> Result<bool> {
        let mut held = device.hold();
        let last = {
            let mut sequencer = self.sequence();
            if !device.begin_filling() {
                return Ok(false);
            }
            sequencer.filling.retain(|other| other.id != device.id);
            sequencer.filling.push(Arc::clone(device));
            sequencer.next - 1
        };
        let replayed = if self.await_applied(donor, last, &held) {
            self.replay(device, &mut held, donor, last)
        } else {
            Ok(false)
        };
        if !matches!(replayed, Ok(true)) {
            device.fall_behind();
        }
        replayed
    }

    /// Waits until a member has everything up to `seq`, for the one that is held. False where it does not come to that in time.
    fn await_applied(&self, donor: &Device, seq: u64, held: &Held<'_>) -> bool {
        let begun = Instant::now();
        while donor.applied() < seq {
            held.go_on();
            if !donor.is_active() || begun.elapsed() > self.options.timeout || self.stops.load(Ordering::Acquire) {
                return false;
            }
            donor.kick();
            std::thread::sleep(Duration::from_micros(50));
        }
        true
    }

    /// Takes a member that is filling into use when it has everything. False where it fell behind again.
    ///
    /// # Errors
    /// Its log's; the host's store's. It is behind then.
    pub(crate) fn join(&self, device: &Arc<Device>) -> Result<bool> {
        let joined = self.try_join(device);
        if !matches!(joined, Ok(true)) {
            device.fall_behind();
        }
        joined
    }

    fn try_join(&self, device: &Arc<Device>) -> Result<bool> {
        // It has all that came before it was given operations; what is queued the logs tell. Its log is written before the sequencer is taken: if it hangs, nobody waits for it.
        let applied = device.applied();
        log_of(device)?
            .set_record(|record| (record.applied, record.is_partial) = (applied.max(record.applied), false))?;
        let (mut seen, mut since) = (device.progress(), Instant::now());
        while device.is_filling() && !self.stops.load(Ordering::Acquire) {
            device.urge();
            if device.depth() as u64 <= LAST_STEP {
                let mut sequencer = self.sequence();
                let last = sequencer.next - 1;
                let held = Instant::now();
                // Copies behind the last operation as well: who walks over its store asks for no more than what is applied.
                while device.depth() != 0 && device.is_filling() && held.elapsed() < HELD_MOST {
                    device.urge();
                    std::thread::sleep(Duration::from_micros(20));
                }
                if device.depth() == 0 && device.executed() == last {
                    // Behind `last` where it had no room for something.
                    return if device.applied() == last { self.take_in(device, &mut sequencer) } else { Ok(false) };
                }
            }
            if device.progress() != seen {
                (seen, since) = (device.progress(), Instant::now());
            } else if since.elapsed() > self.options.timeout {
                device.fail(self.too_late());
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        Ok(false)
    }

    /// It has everything that has a number: it is active from now on, and the description says so. False where it is to be tried again.
    fn take_in(&self, device: &Arc<Device>, sequencer: &mut Sequencer) -> Result<bool> {
        if !self.may_add(sequencer)? {
            return Ok(false);
        }
        // One that was replaced meanwhile, or failed, does not come back.
        if !self.devices().iter().any(|member| Arc::ptr_eq(member, device)) || !device.come_back() {
            return Ok(false);
        }
        sequencer.filling.retain(|filling| filling.id != device.id);
        sequencer.active.retain(|active| active.id != device.id);
        sequencer.active.push(Arc::clone(device));
        sequencer.active.sort_by_key(|device| device.index);
        let said = if self.options.planted.is(Fault::MemberBackUnsaid) { Ok(()) } else { self.note_members(sequencer) };
        if let Err(error) = said {
            sequencer.active.retain(|active| active.id != device.id);
            device.fall_behind();
            return Err(error);
        }
        Ok(true)
    }

    /// Does what `device` lacks up to `to`, by the donor's log. False where that does not reach so far back.
    fn replay(&self, device: &Device, held: &mut Held<'_>, donor: &Device, to: u64) -> Result<bool> {
        let (log, source) = (log_of(device)?, log_of(donor)?);
        let mut aborts = Aborts::new(source, device.applied());
        for seq in device.applied() + 1..=to {
            let Some(operation) = source.read(seq)? else { return Ok(false) };
            if operation.mutation == Mutation::Lacking && !aborts.have(seq)? {
                // The donor has it by a copy, and no log tells it.
                log.set_record(|record| record.is_partial = true)?;
                return Ok(false);
            }
            // Or it was replaced.
            if self.stops.load(Ordering::Acquire) || device.state() == MemberState::Failed {
                return Ok(false);
            }
            replay_one(device, log, &operation, &mut aborts)?;
            held.set_executed(seq, &[]);
        }
        Ok(true)
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
        keys.iter().try_for_each(|key| copy_key(device, donor, key))?;
        device.set_applied(device.applied().min(common));
        // What was copied is newer than `common`: the replay comes to the same. It stays partial until that is done: another donor may lack what this one gave it.
        Ok(true)
    }
}

/// Does an operation at a member, in its log and in its store.
fn replay_one(device: &Device, log: &OpLog, operation: &Operation, aborts: &mut Aborts<'_>) -> Result<()> {
    let (_, last) = log.held();
    if operation.seq > last {
        log.append(operation, operation.seq - 1)?;
    } else {
        log.fill(operation)?;
    }
    match apply(&**device.store(), &operation.key, &operation.mutation, false) {
        Ok(_) => Ok(()),
        // What found no room elsewhere either was taken back.
        Err(error) if is_refusal(&error) && aborts.have(operation.seq)? => Ok(()),
        Err(error) => Err(error),
    }
}

/// Gives `device` what the donor has of a key.
fn copy_key(device: &Device, donor: &Device, key: &[u8]) -> Result<()> {
    let pair = read_pair(&**donor.store(), key)?;
    let mutation = pair.map_or(Mutation::Delete, |(value, expiry)| Mutation::Put { value, expiry });
    apply(&**device.store(), key, &mutation, false).map(drop)
}

/// The epoch of a log's last operation.
pub(crate) fn last_epoch(log: &OpLog) -> Result<u64> {
    let (_, last) = log.held();
    Ok(log.read(last)?.map_or(log.record().epoch, |operation| operation.epoch))
}

/// Which operations of a log later ones take back. What was read for one answer is not read again for the next, which is of a later operation.
struct Aborts<'a> {
    log: &'a OpLog,
    read: u64,
    found: HashSet<u64>,
}

impl<'a> Aborts<'a> {
    /// Of the operations behind this one.
    fn new(log: &'a OpLog, behind: u64) -> Self {
        Self { log, read: behind, found: HashSet::new() }
    }

    /// Whether a later operation takes this one back, of those that the log has now.
    fn have(&mut self, seq: u64) -> Result<bool> {
        let (_, last) = self.log.held();
        while !self.found.contains(&seq) && self.read < last {
            self.found.extend(self.log.read(self.read + 1)?.and_then(|operation| operation.aborts()));
            self.read += 1;
        }
        Ok(self.found.contains(&seq))
    }
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
            match log.set_record(|record| record.applied = last) {
                // It is done again the next time.
                Err(error) if is_refusal(&error) => {}
                said => said?,
            }
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

#[cfg(test)]
mod tests {
    use lodestore_media::PoolOptions;
    use lodestore_nvht::{Nvht, NvhtOptions};

    use super::*;
    use crate::layout::DeviceRecord;

    #[test]
    fn what_is_taken_back_is_known_also_when_that_came_later_and_each_operation_is_read_once() {
        let dir = lodestore_contract::testing::Scratch::on_disk();
        let pool = PoolOptions { region_bytes: 4 << 20, ..PoolOptions::default() };
        let options = NvhtOptions { pool, partitions: 1, ..NvhtOptions::default() };
        let store = Arc::new(Nvht::create(&dir.path().join("log"), &options).expect("create"));
        let record = DeviceRecord { matrix: 1, id: 1, applied: 0, epoch: 1, is_partial: false, has_gaps: false };
        let log = OpLog::create(store, 1024, 1 << 20, record).expect("a log");
        let append = |seq, mutation| {
            let operation = Operation { epoch: 1, seq, key: b"key".to_vec(), mutation };
            log.append(&operation, 0).expect("room");
        };
        (1..=10).for_each(|seq| append(seq, Mutation::Lacking));
        (11..=15).for_each(|seq| append(seq, Mutation::Restore { aborts: seq - 10, value: None }));
        let mut aborts = Aborts::new(&log, 0);
        assert!(aborts.have(1).expect("a log that can be read"));
        assert_eq!(aborts.read, 11, "as far as it takes");
        assert!((2..=5).all(|seq| aborts.have(seq).expect("a log that can be read")));
        assert!((6..=10).all(|seq| !aborts.have(seq).expect("a log that can be read")));
        assert_eq!(aborts.read, 15);
        append(16, Mutation::Restore { aborts: 9, value: None });
        assert!(aborts.have(9).expect("a log that can be read"));
        assert!(!aborts.have(10).expect("a log that can be read"));
    }
}
