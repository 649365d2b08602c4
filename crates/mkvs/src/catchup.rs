//! Catch-up of a member that lacks operations: from another member's operation log, or by a full
//! copy (`state_transfer.rs`).
//!
//! 1. Operations in its log that the group does not have are removed (operations of an epoch that
//!    ended without them). Until this is complete, its record says *partial*; after a crash, a
//!    partial member is copied again.
//! 2. The member replays the operations that it lacks from another member's log until few are left.
//!    Otherwise it is marked partial and its log is emptied.
//! 3. Under the sequencer the member becomes *filling*: it receives every new operation and has no
//!    vote. With catch-up by log, its processor is held until it has the earlier operations. With a
//!    copy, pairs arrive through its queue, each under its key's stripe: after the operations that
//!    the pair includes, before all later ones.
//! 4. When the member has everything, it becomes active under the sequencer. The description says
//!    so durably before its votes count.
//!
//! Invariants
//! 1. While a member is behind, its queue is empty and its processor rests. The description says
//!    that it is out, or the other members have everything. Only the group's keeper catches it up
//!    (`keeper.rs`), also during the copy of another member.
//! 2. Writers wait only while the sequencer is held: for `SEQUENCER_HOLD_MAX`, and while a copy
//!    starts its log. A copy walks over the keys once, therefore it ends under any write load.

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
use crate::planted;

/// Catch-up starts the last step when at most this many operations are left. Meanwhile the member's
/// queue holds the new ones.
const LAST_STEP_OPS: u64 = 64;
/// After this many rounds the last step starts with any number of operations left.
const ROUNDS_MAX: u32 = 16;
/// Maximum time to hold the sequencer while a member empties its queue.
const SEQUENCER_HOLD_MAX: Duration = Duration::from_millis(100);
/// Maximum wait for a member's processor. After that, catch-up is tried again later.
const PROCESSOR_TIMEOUT: Duration = Duration::from_millis(100);

/// The outcome of a member's catch-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CaughtUp {
    /// The member is active.
    Active,
    /// No active member could serve as donor, or the member fell behind again: try again later.
    Later,
    /// The logs do not reach back far enough: the member needs a copy. The description does not
    /// count it.
    LacksMore,
}

/// Returns the log of a device. Every device of a group of several members has one.
pub(crate) fn log_of(device: &Device) -> Result<&OpLog> {
    device.log().ok_or_else(|| Error::corrupt("mkvs", "a device of a group of several devices has no operation log"))
}

impl Group {
    /// Returns the last operation at which a member's log equals the group's history. The member's
    /// log ends at operation `last` of `epoch`. `None` if the recorded epochs do not reach back far
    /// enough.
    pub(crate) fn common(epochs: &[(u64, u64)], epoch: u64, last: u64) -> Option<u64> {
        let is_whole = epochs.len() < EPOCHS_MAX || epochs.first().is_some_and(|(oldest, _)| *oldest <= epoch);
        let later = epochs.iter().find(|(other, _)| *other > epoch).map(|(_, first)| first - 1);
        is_whole.then(|| later.map_or(last, |end| last.min(end)))
    }

    /// Catches `device` up from the active members' logs, and makes it active.
    ///
    /// # Errors
    /// Errors of the devices. After an error of `device` it stays behind.
    pub(crate) fn catch_up(&self, device: &Arc<Device>) -> Result<CaughtUp> {
        // The description excludes the device and its processor is idle before anything of it is
        // changed.
        self.remove_failed_members()?;
        let Some(held) = device.try_hold(PROCESSOR_TIMEOUT) else { return Ok(CaughtUp::Later) };
        log_of(device)?.forget_lacking();
        let reaches = |donor: &Arc<Device>| self.needs_copy(device, donor).is_ok_and(|needs_copy| !needs_copy);
        let donors = self.donors(device).into_iter();
        let Some(donor) = donors.max_by_key(|donor| (reaches(donor), donor.applied())) else {
            return Ok(CaughtUp::Later);
        };
        self.mark_given_up()?;
        let still_counts = self.is_still_counted(device);
        if still_counts && !self.wait_until_all_applied() {
            return Ok(CaughtUp::Later);
        }
        drop(held);
        let becomes_partial = self.needs_copy(device, &donor)? || self.has_forked(device)?;
        if becomes_partial && still_counts && !self.count_only_active(&mut self.sequence())? {
            return Ok(CaughtUp::Later);
        }
        if self.needs_copy(device, &donor)? || !self.remove_forked(device, &donor)? {
            return Ok(CaughtUp::LacksMore);
        }
        for _ in 0..ROUNDS_MAX {
            let to = donor.applied();
            if to.saturating_sub(device.applied()) <= LAST_STEP_OPS {
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

    /// Returns the active members except this one.
    pub(crate) fn donors(&self, device: &Device) -> Vec<Arc<Device>> {
        self.active().into_iter().filter(|donor| donor.id != device.id).collect()
    }

    /// Returns whether the description says that the member is active. Too few members are left to
    /// record otherwise, and acknowledged writes may depend on the member's data.
    fn is_still_counted(&self, device: &Device) -> bool {
        let members = &self.host.matrix().groups[self.index].members;
        members.iter().any(|member| member.id == device.id && member.state == MemberState::Active)
    }

    /// Waits until all active members applied everything numbered so far. Returns false after the
    /// operation timeout.
    fn wait_until_all_applied(&self) -> bool {
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

    /// Makes the description count only the active members, even if they are too few for a write:
    /// no acknowledgement may depend on a member that becomes partial. Returns false if an active
    /// member lacks operations.
    pub(crate) fn count_only_active(&self, sequencer: &mut Sequencer) -> Result<bool> {
        sequencer.active.retain(|device| device.is_active());
        let last = sequencer.next - 1;
        if sequencer.active.is_empty() || sequencer.active.iter().any(|device| device.applied() < last) {
            return Ok(false);
        }
        self.write_epoch(sequencer).map(|()| true)
    }

    /// Returns whether the device's log has operations that the group does not have, or may have
    /// some.
    fn has_forked(&self, device: &Device) -> Result<bool> {
        let log = log_of(device)?;
        Ok(self.common_of(log)? != Some(log.bounds().1))
    }

    /// Returns whether `device` needs a full copy: the logs do not contain all operations that it
    /// lacks, or has in excess of the donor.
    pub(crate) fn needs_copy(&self, device: &Device, donor: &Device) -> Result<bool> {
        let log = log_of(device)?;
        // The device's log is not read: it may be damaged.
        if log.record().is_partial {
            return Ok(true);
        }
        let Some(common) = self.common_of(log)? else { return Ok(true) };
        let (first, last) = log_of(donor)?.bounds();
        let next = device.applied().min(common) + 1;
        Ok(common + 1 < log.bounds().0 || next < first || next > last + 1)
    }

    /// Returns the last operation at which a log equals the group's history. `None` if the recorded
    /// epochs do not reach back far enough.
    fn common_of(&self, log: &OpLog) -> Result<Option<u64>> {
        let epochs = self.host.matrix().groups[self.index].epochs.clone();
        // An open writes its epoch after the others caught up. Operations after the group's last
        // one are therefore in no epoch yet.
        Ok(Self::common(&epochs, last_epoch(log)?, log.bounds().1.min(self.last())))
    }

    /// The last step of a replay. The member receives new operations from now on. They stay in its
    /// queue until it has the earlier ones. Returns false if the step must be tried again.
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
        let replayed = if self.wait_until_applied(donor, last, &held) {
            self.replay(device, &mut held, donor, last)
        } else {
            Ok(false)
        };
        if !matches!(replayed, Ok(true)) {
            device.fall_behind();
        }
        replayed
    }

    /// Waits until the donor applied everything up to `seq`, while `held` is held. Returns false on
    /// timeout.
    fn wait_until_applied(&self, donor: &Device, seq: u64, held: &Held<'_>) -> bool {
        let begun = Instant::now();
        while donor.applied() < seq {
            held.report_progress();
            if !donor.is_active() || begun.elapsed() > self.options.timeout || self.stops.load(Ordering::Acquire) {
                return false;
            }
            donor.kick();
            std::thread::sleep(Duration::from_micros(50));
        }
        true
    }

    /// Makes a `filling` member active when it has everything. Returns false if it fell behind
    /// again.
    ///
    /// # Errors
    /// Errors of its log and of the host's store. The member is behind then.
    pub(crate) fn join(&self, device: &Arc<Device>) -> Result<bool> {
        let joined = self.try_join(device);
        if !matches!(joined, Ok(true)) {
            device.fall_behind();
        }
        joined
    }

    fn try_join(&self, device: &Arc<Device>) -> Result<bool> {
        let groups = self.host.matrix().groups.len();
        // In a salvage with doubts, or before the open is granted, the description may be an older
        // copy.
        if !self.has_doubts() && !self.is_opening.load(Ordering::Acquire) {
            // May lower the number: the owner may have given up groups while the member was away.
            device.set_group_count(groups)?;
        }
        // The member has everything from before it was filling; later operations are in the logs.
        // Its log is written before the sequencer is locked: if the write hangs, no other thread
        // waits for it.
        let applied = device.applied();
        log_of(device)?
            .set_record(|record| (record.applied, record.is_partial) = (applied.max(record.applied), false))?;
        let (mut seen, mut since) = (device.progress(), Instant::now());
        while device.is_filling() && !self.stops.load(Ordering::Acquire) {
            device.kick_thread();
            if device.depth() as u64 <= LAST_STEP_OPS {
                let mut sequencer = self.sequence();
                let last = sequencer.next - 1;
                let held = Instant::now();
                // Also waits for copies queued after the last operation: a walk over the store
                // checks only `applied`.
                while device.depth() != 0 && device.is_filling() && held.elapsed() < SEQUENCER_HOLD_MAX {
                    device.kick_thread();
                    std::thread::sleep(Duration::from_micros(20));
                }
                if device.depth() == 0 && device.executed() == last {
                    // `applied` is less than `last` if the member had no space for an operation.
                    let is_active = device.applied() == last && self.activate(device, &mut sequencer)?;
                    // A group that was added meanwhile is stored in active devices only: the caller
                    // tries again.
                    return Ok(is_active && self.host.matrix().groups.len() == groups);
                }
            }
            if device.progress() != seen {
                (seen, since) = (device.progress(), Instant::now());
            } else if since.elapsed() > self.options.timeout {
                device.fail(self.late_failure());
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        Ok(false)
    }

    /// Makes a member that has every numbered operation active, and writes that to the description.
    /// Returns false if it must be tried again.
    fn activate(&self, device: &Arc<Device>, sequencer: &mut Sequencer) -> Result<bool> {
        if !self.may_add_member(sequencer)? {
            return Ok(false);
        }
        // A member that was replaced or failed meanwhile does not come back.
        if !self.devices().iter().any(|member| Arc::ptr_eq(member, device)) || !device.become_active() {
            return Ok(false);
        }
        sequencer.filling.retain(|filling| filling.id != device.id);
        sequencer.active.retain(|active| active.id != device.id);
        sequencer.active.push(Arc::clone(device));
        sequencer.active.sort_by_key(|device| device.index);
        let recorded = if self.options.planted.has_fault(planted::MEMBER_BACK_UNSAID) {
            Ok(())
        } else {
            self.record_members(sequencer)
        };
        if let Err(error) = recorded {
            sequencer.active.retain(|active| active.id != device.id);
            device.fall_behind();
            return Err(error);
        }
        Ok(true)
    }

    /// Replays the operations that `device` lacks up to `to` from the donor's log. Returns false if
    /// that log does not reach back far enough.
    fn replay(&self, device: &Device, held: &mut Held<'_>, donor: &Device, to: u64) -> Result<bool> {
        let (log, source) = (log_of(device)?, log_of(donor)?);
        let mut aborts = Aborts::new(source, device.applied());
        for seq in device.applied() + 1..=to {
            let Some(operation) = source.read(seq)? else { return Ok(false) };
            if operation.mutation == Mutation::Lacking && !aborts.contains(seq)? {
                // The donor has this operation by a copy, and no log contains it.
                log.set_record(|record| record.is_partial = true)?;
                return Ok(false);
            }
            // `Failed` also if the device was replaced.
            if self.stops.load(Ordering::Acquire) || device.state() == MemberState::Failed {
                return Ok(false);
            }
            replay_one(device, log, &operation, &mut aborts)?;
            held.set_executed(seq, &[]);
        }
        Ok(true)
    }

    /// Removes operations from `device` that the group does not have. Returns false if the logs do
    /// not contain them.
    fn remove_forked(&self, device: &Device, donor: &Device) -> Result<bool> {
        let log = log_of(device)?;
        let (_, last) = log.bounds();
        let Some(common) = self.common_of(log)? else { return Ok(false) };
        if common == last {
            return Ok(true);
        }
        let mut keys = Vec::new();
        for seq in common + 1..=last {
            let Some(operation) = log.read(seq)? else { return Ok(false) };
            keys.push(operation.key);
        }
        log.set_record(|record| record.is_partial = !self.options.planted.has_fault(planted::FORK_CUT_UNSAID))?;
        log.truncate(common)?;
        keys.iter().try_for_each(|key| copy_key(device, donor, key))?;
        device.set_applied(device.applied().min(common));
        // The copied pairs are newer than `common`; the replay ends with the same pairs. The member
        // stays partial until then: another donor may lack the pairs of this one.
        Ok(true)
    }
}

/// Applies an operation to a member's log and store.
fn replay_one(device: &Device, log: &OpLog, operation: &Operation, aborts: &mut Aborts<'_>) -> Result<()> {
    let (_, last) = log.bounds();
    if operation.seq > last {
        log.append(operation, operation.seq - 1)?;
    } else {
        log.fill(operation)?;
    }
    match apply(&**device.store(), &operation.key, &operation.mutation, false) {
        Ok(_) => Ok(()),
        // An operation that the others had no space for either was rolled back.
        Err(error) if is_refusal(&error) && aborts.contains(operation.seq)? => Ok(()),
        Err(error) => Err(error),
    }
}

/// Copies the donor's pair of a key to `device`.
fn copy_key(device: &Device, donor: &Device, key: &[u8]) -> Result<()> {
    let pair = read_pair(&**donor.store(), key)?;
    let mutation = pair.map_or(Mutation::Delete, |(value, expiry)| Mutation::Put { value, expiry });
    apply(&**device.store(), key, &mutation, false).map(drop)
}

/// Returns the epoch of a log's last operation.
pub(crate) fn last_epoch(log: &OpLog) -> Result<u64> {
    let (_, last) = log.bounds();
    Ok(log.read(last)?.map_or(log.record().epoch, |operation| operation.epoch))
}

/// The operations of a log that later ones roll back. Each log entry is read once: the queries are
/// in ascending order.
struct Aborts<'a> {
    log: &'a OpLog,
    read: u64,
    found: HashSet<u64>,
}

impl<'a> Aborts<'a> {
    /// Starts with the operations after `behind`.
    fn new(log: &'a OpLog, behind: u64) -> Self {
        Self { log, read: behind, found: HashSet::new() }
    }

    /// Returns whether a later operation that is in the log now rolls this one back.
    fn contains(&mut self, seq: u64) -> Result<bool> {
        let (_, last) = self.log.bounds();
        while !self.found.contains(&seq) && self.read < last {
            self.found.extend(self.log.read(self.read + 1)?.and_then(|operation| operation.aborts()));
            self.read += 1;
        }
        Ok(self.found.contains(&seq))
    }
}

#[cfg(test)]
mod tests {
    use lodestore_media::PoolOptions;
    use lodestore_nvht::{Nvht, NvhtOptions};

    use super::*;
    use crate::layout::DeviceRecord;
    use crate::oplog::LogLimits;

    #[test]
    fn later_rollbacks_are_found_and_each_operation_is_read_once() {
        let dir = lodestore_contract::testing::Scratch::on_disk();
        let pool = PoolOptions { region_bytes: 4 << 20, ..PoolOptions::default() };
        let options = NvhtOptions { pool, partitions: 1, ..NvhtOptions::default() };
        let store = Arc::new(Nvht::create(&dir.path().join("log"), &options).expect("create"));
        let pairs = Arc::new(Nvht::create(&dir.path().join("pairs"), &options).expect("create"));
        let limits = LogLimits { ops: 1024, bytes: 1 << 20 };
        let log = OpLog::create(store, pairs, limits, DeviceRecord::of_new(1, 1)).expect("a log");
        let append = |seq, mutation| {
            let operation = Operation { epoch: 1, seq, key: b"key".to_vec(), mutation };
            log.append(&operation, 0).expect("room");
        };
        (1..=10).for_each(|seq| append(seq, Mutation::Lacking));
        (11..=15).for_each(|seq| append(seq, Mutation::Restore { aborts: seq - 10, value: None }));
        let mut aborts = Aborts::new(&log, 0);
        assert!(aborts.contains(1).expect("a log that can be read"));
        assert_eq!(aborts.read, 11, "as far as it takes");
        assert!((2..=5).all(|seq| aborts.contains(seq).expect("a log that can be read")));
        assert!((6..=10).all(|seq| !aborts.contains(seq).expect("a log that can be read")));
        assert_eq!(aborts.read, 15);
        append(16, Mutation::Restore { aborts: 9, value: None });
        assert!(aborts.contains(9).expect("a log that can be read"));
        assert!(!aborts.contains(10).expect("a log that can be read"));
    }
}
