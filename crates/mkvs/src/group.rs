//! A group: members that hold the same pairs, the sequence of their operations, and the state of
//! its keys.
//!
//! A write locks its key's stripe exclusively until it is acknowledged; a read shares the stripe.
//! While a read holds the stripe, no write of the key is in flight. A member that has applied the
//! stripe's last operation therefore returns the acknowledged value. This value survives the
//! loss of devices that `Acks` promises.
//!
//! Invariants
//! 1. Sequence numbers have no holes; an operation is queued at all active members or at none.
//! 2. Lock order: `changes` of the matrix; stripes, first of a key's old group, then of its new
//!    one; the gate of walks (`topology.rs`), which a walk acquires while it holds no stripe; a
//!    processor held by catch-up; the sequencer; a device's queue; then one of: a write's votes, a
//!    device's holes, a log, the host's description. Exception: `reelection.rs` acquires processors
//!    under the sequencer. No member is active then, and the only thread that holds processors of
//!    the group's members is the same thread (`keeper.rs`). The doubts of a salvage (`salvage.rs`)
//!    come directly before the description.
//! 3. No thread waits for a device while it holds the sequencer, with three exceptions: admitting a
//!    member, for at most `SEQUENCER_HOLD_MAX` (`catchup.rs`); starting the log of a copied member
//!    (`state_transfer.rs`); and re-electing a leader while the members replay their logs. No
//!    member is active in the last case.
//! 4. A member that lacks an operation which is or may be acknowledged is not active. A `filling`
//!    member receives operations and has no vote. The description names the active members
//!    durably before two events: the acknowledgement of a write that a removed member lacks
//!    (`acks=all`), and the first vote of a member that came back.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, RwLock};
use std::time::{Duration, Instant};

use lodestore_contract::{Error, Expiry, Result, Store};

use crate::command::Query;
use crate::device::{Device, Failure};
use crate::filter::Filter;
use crate::host::Host;
use crate::layout::MemberState;
use crate::options::{Filtering, MkvsOptions};
use crate::planted;
use crate::route::KeyHash;
use crate::salvage_doubts::Doubts;
use crate::stripes::{Stripe, Stripes};
use crate::{lock, read};

/// The active members and the next sequence number.
pub(crate) struct Sequencer {
    pub(crate) next: u64,
    pub(crate) epoch: u64,
    pub(crate) active: Vec<Arc<Device>>,
    /// Members that receive operations and have no vote, because they are catching up.
    pub(crate) filling: Vec<Arc<Device>>,
}

impl Sequencer {
    pub(crate) fn new(next: u64, epoch: u64, active: Vec<Arc<Device>>) -> Self {
        Self { next, epoch, active, filling: Vec::new() }
    }
}

/// A member that could not be opened.
pub(crate) struct Lost {
    pub(crate) index: usize,
    pub(crate) id: u64,
    pub(crate) why: String,
}

/// The keeper of a group.
#[derive(Default)]
pub(crate) struct CurrentKeeper {
    /// The number of the group's current keeper.
    pub(crate) number: u64,
    /// The member that the keeper is catching up.
    pub(crate) member: Option<u64>,
}

/// Counts of a group.
#[derive(Default)]
pub(crate) struct Counts {
    /// Reads that asked a device for an absent key although the group has a filter.
    pub(crate) false_positives: AtomicU64,
    pub(crate) reads: AtomicU64,
    pub(crate) hedged: AtomicU64,
    pub(crate) hedges_won: AtomicU64,
    pub(crate) writes: AtomicU64,
    pub(crate) restored: AtomicU64,
    pub(crate) repaired: AtomicU64,
    /// Counts of the filter that may be too high: writes in doubt, and writes of keys whose
    /// presence no device could tell.
    pub(crate) leaked: AtomicU64,
    /// Pairs left out of copies because no member could read them.
    pub(crate) uncopied: AtomicU64,
    /// Members that caught up from another member's log (`caught_up`) and by a full copy
    /// (`copied`).
    pub(crate) caught_up: AtomicU64,
    pub(crate) copied: AtomicU64,
    /// Times that no member was active and a leader was chosen again.
    pub(crate) reelections: AtomicU64,
    /// Epochs begun since the open.
    pub(crate) epochs: AtomicU64,
}

/// The group.
pub(crate) struct Group {
    pub(crate) index: usize,
    pub(crate) options: Arc<MkvsOptions>,
    pub(crate) host: Arc<Host>,
    /// Seed of the hashes of the group's keys.
    pub(crate) seed: u64,
    /// The members that could be opened, in index order. A replacement has the index of the device
    /// that it replaces.
    pub(crate) members: RwLock<Vec<Arc<Device>>>,
    /// The members that could not be opened.
    pub(crate) lost: Mutex<Vec<Lost>>,
    /// Reasons why a salvage may lack acknowledged writes.
    pub(crate) doubts: Mutex<Doubts>,
    /// The configured number of members.
    pub(crate) width: usize,
    sequencer: Mutex<Sequencer>,
    /// Copies of the last sequence number and the epoch, readable without the sequencer's lock.
    last: AtomicU64,
    epoch: AtomicU64,
    pub(crate) stripes: Stripes,
    pub(crate) counts: Counts,
    pub(crate) latency: crate::latency::Latency,
    /// Limits the reads that may ask another device.
    pub(crate) allowance: Arc<crate::latency::Allowance>,
    /// Whether the group has a filter or will have one.
    pub(crate) has_filter: bool,
    /// Keys that the filter counted when it was installed. The stripes count later changes.
    pub(crate) raised_before: AtomicU64,
    /// The member that answered the last query about all keys.
    pub(crate) last_walked: AtomicU64,
    /// The last acknowledged operation. A member that has it also has all earlier operations, or
    /// rolled them back.
    pub(crate) acknowledged: AtomicU64,
    pub(crate) keeper: Mutex<CurrentKeeper>,
    /// The matrix is closing: long tasks end.
    pub(crate) stops: AtomicBool,
    /// The open of the matrix may still be refused.
    pub(crate) is_opening: AtomicBool,
    /// A key was removed that the filter had not counted: the filter is rebuilt.
    pub(crate) is_filter_unreliable: AtomicBool,
    /// The walk for a filter met a pair that no member can read: the earliest time of the next
    /// attempt.
    pub(crate) no_filter_before: Mutex<Option<Instant>>,
    /// Keys that one member could not read and another one could.
    pub(crate) damaged: Mutex<BTreeSet<Vec<u8>>>,
    /// Keys of in-doubt writes.
    pub(crate) in_doubt: Mutex<BTreeSet<Vec<u8>>>,
    /// The store of the only member. Reads and writes use it directly, without votes.
    sole: Option<Arc<dyn Store>>,
}

impl Group {
    pub(crate) fn new(
        index: usize,
        options: Arc<MkvsOptions>,
        host: Arc<Host>,
        members: Vec<Arc<Device>>,
        width: usize,
        sequencer: Sequencer,
    ) -> Self {
        let sole = (width == 1).then(|| Arc::clone(members[0].store()));
        let (last, epoch) = (sequencer.next - 1, sequencer.epoch);
        let is_quick = |device: &Arc<Device>| device.is_memory() && (width == 1 || device.is_inline());
        let has_filter = match options.filter {
            Filtering::On => true,
            Filtering::Off => false,
            Filtering::Auto => !members.iter().all(is_quick),
        };
        Self {
            index,
            seed: host.matrix().seed,
            options,
            host,
            width,
            lost: Mutex::default(),
            doubts: Mutex::default(),
            members: RwLock::new(members),
            sequencer: Mutex::new(sequencer),
            last: AtomicU64::new(last),
            epoch: AtomicU64::new(epoch),
            stripes: Stripes::new(sole.is_some(), last),
            counts: Counts::default(),
            latency: crate::latency::Latency::default(),
            allowance: Arc::default(),
            has_filter,
            raised_before: AtomicU64::new(0),
            last_walked: AtomicU64::new(0),
            acknowledged: AtomicU64::new(last),
            keeper: Mutex::default(),
            stops: AtomicBool::new(false),
            is_opening: AtomicBool::new(false),
            is_filter_unreliable: AtomicBool::new(false),
            no_filter_before: Mutex::default(),
            damaged: Mutex::default(),
            in_doubt: Mutex::default(),
            sole,
        }
    }

    /// Creates a new group. All members are active and empty.
    pub(crate) fn begin(index: usize, options: &Arc<MkvsOptions>, host: &Arc<Host>, devices: Vec<Arc<Device>>) -> Self {
        devices.iter().for_each(|device| device.set_state(MemberState::Active));
        let sequencer = Sequencer::new(1, 1, devices.clone());
        let width = devices.len();
        Self::new(index, Arc::clone(options), Arc::clone(host), devices, width, sequencer)
    }

    /// Returns the store of the only member, which needs no vote.
    #[inline]
    pub(crate) fn sole(&self) -> Option<&dyn Store> {
        self.sole.as_deref()
    }

    /// Counts a key in the filter before it is added.
    pub(crate) fn raise(&self, stripe: &Stripe, key: &[u8], hash: KeyHash) {
        if !self.has_filter {
            return;
        }
        stripe.counts.raised.fetch_add(1, Ordering::Relaxed);
        stripe.filter.as_ref().inspect(|filter| filter.raise(hash));
        stripe.building.as_ref().inspect(|building| building.raise(key, hash));
    }

    /// Removes a deleted key from the filter's count.
    pub(crate) fn lower(&self, stripe: &Stripe, key: &[u8], hash: KeyHash) {
        if !self.has_filter {
            return;
        }
        stripe.counts.raised.fetch_sub(1, Ordering::Relaxed);
        let filter = stripe.filter.as_ref().is_none_or(|filter| filter.lower(hash));
        let building = stripe.building.as_ref().is_none_or(|building| building.lower(key, hash));
        if !(filter && building) {
            self.is_filter_unreliable.store(true, Ordering::Release);
        }
    }

    /// Returns the number of keys that the filter counts.
    pub(crate) fn raised(&self) -> u64 {
        self.raised_before.load(Ordering::Relaxed).wrapping_add(self.stripes.sum(|counts| &counts.raised))
    }

    pub(crate) fn devices(&self) -> Vec<Arc<Device>> {
        read(&self.members).clone()
    }

    /// Returns the active members.
    pub(crate) fn active(&self) -> Vec<Arc<Device>> {
        read(&self.members).iter().filter(|device| device.is_active()).cloned().collect()
    }

    /// Returns the group's epoch.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Returns the last sequence number that was assigned.
    pub(crate) fn last(&self) -> u64 {
        self.last.load(Ordering::Acquire)
    }

    /// Locks the sequencer: no other thread numbers an operation meanwhile.
    pub(crate) fn sequence(&self) -> MutexGuard<'_, Sequencer> {
        lock(&self.sequencer)
    }

    /// Sets the active members and the next sequence number, `last` + 1.
    pub(crate) fn restart_after(&self, sequencer: &mut Sequencer, last: u64, active: Vec<Arc<Device>>) {
        *sequencer = Sequencer::new(last + 1, sequencer.epoch, active);
        self.last.store(last, Ordering::Release);
    }

    /// Assigns the next sequence number.
    pub(crate) fn number(&self, sequencer: &mut Sequencer) -> u64 {
        let seq = sequencer.next;
        sequencer.next += 1;
        self.last.store(seq, Ordering::Release);
        seq
    }

    pub(crate) fn too_few_error(&self, live: usize, needed: usize) -> Error {
        Error::too_few_devices(self.index, live, needed)
    }

    /// Removes members that failed or fell behind from the active members, and returns the members
    /// to wait for first. An empty result means that the removal is complete.
    ///
    /// A vote of a removed member may have counted for a write that other members only have in
    /// their queues. Therefore as many remaining members as a write needs must first execute
    /// everything. Execution suffices: a member without space for an operation never applies it,
    /// and its refusal decides the vote. An acknowledged write is then stored on that many of the
    /// members that the description calls active.
    ///
    /// # Errors
    /// Errors of the host's store.
    pub(crate) fn remove_inactive_members(&self, sequencer: &mut Sequencer) -> Result<Vec<Arc<Device>>> {
        while sequencer.active.iter().any(|device| !device.is_active()) {
            let last = sequencer.next - 1;
            let left: Vec<_> = sequencer.active.iter().filter(|device| device.is_active()).cloned().collect();
            let needed = self.options.acks.needed(self.width, left.len());
            let late: Vec<_> = left.iter().filter(|device| device.executed() < last).cloned().collect();
            // Checked after `executed`: a member that refused an acknowledged operation is no
            // longer active.
            if left.iter().any(|device| !device.is_active()) {
                continue;
            }
            if left.len() >= needed && left.len() - late.len() < needed {
                return Ok(late);
            }
            let before = std::mem::replace(&mut sequencer.active, left);
            self.record_members(sequencer).inspect_err(|_| {
                // Not durable: the next caller must write the epoch before any acknowledgement.
                sequencer.active = before;
            })?;
        }
        Ok(Vec::new())
    }

    /// Returns whether the next epoch may count one more member that has all operations. Members
    /// may have left while the others were too few to record it, and may be the only ones with some
    /// acknowledged writes. The description counts them until as many members as a write needs have
    /// executed all operations.
    ///
    /// # Errors
    /// Errors of the host's store.
    pub(crate) fn may_add_member(&self, sequencer: &mut Sequencer) -> Result<bool> {
        self.remove_inactive_members(sequencer)?;
        let last = sequencer.next - 1;
        let matrix = self.host.matrix();
        let mut counted = matrix.groups[self.index].members.iter().filter(|member| member.state == MemberState::Active);
        let is_recorded = counted.all(|member| sequencer.active.iter().any(|device| device.id == member.id));
        let needed = self.options.acks.needed(self.width, sequencer.active.len() + 1);
        // Load order as in `remove_inactive_members`: `executed` before `is_active`.
        let level =
            sequencer.active.iter().filter(|device| device.executed() >= last && device.is_active()).count() + 1;
        Ok(is_recorded || level >= needed || sequencer.active.len() + 1 < needed)
    }

    /// Returns the locked sequencer after all failed and lagging members are removed from it
    /// durably. The lock is free during the wait, because a member may have a long queue. A member
    /// fails only if it makes no progress for the operation timeout.
    ///
    /// # Errors
    /// Errors of the host's store; [`Error::Closed`].
    pub(crate) fn sequence_after_removals(&self) -> Result<MutexGuard<'_, Sequencer>> {
        let mut watched: Vec<(u64, u64, Instant)> = Vec::new();
        loop {
            let mut sequencer = self.sequence();
            let late = self.remove_inactive_members(&mut sequencer)?;
            if late.is_empty() {
                return Ok(sequencer);
            }
            drop(sequencer);
            if self.stops.load(Ordering::Acquire) {
                return Err(Error::Closed);
            }
            for device in &late {
                device.kick();
                let progress = device.progress();
                match watched.iter_mut().find(|(id, ..)| *id == device.id) {
                    None => watched.push((device.id, progress, Instant::now())),
                    Some((_, seen, since)) if *seen != progress => (*seen, *since) = (progress, Instant::now()),
                    Some((.., since)) if since.elapsed() > self.options.timeout => device.fail(self.late_failure()),
                    Some(_) => {}
                }
            }
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    pub(crate) fn late_failure(&self) -> Failure {
        Failure::late(format!("the device did not answer within {} ms", self.options.timeout.as_millis()))
    }

    /// Writes the active members durably as a new epoch, if they are enough to acknowledge a write.
    /// Otherwise the previous epoch still describes every acknowledged write and its members.
    pub(crate) fn record_members(&self, sequencer: &mut Sequencer) -> Result<()> {
        if sequencer.active.len() < self.options.acks.needed(self.width, sequencer.active.len()) {
            return Ok(());
        }
        self.write_epoch(sequencer)
    }

    /// Writes a new epoch with exactly the sequencer's members as active, even if one of them
    /// failed since. An epoch without members is not written: such a group could never be opened
    /// again.
    pub(crate) fn write_epoch(&self, sequencer: &mut Sequencer) -> Result<()> {
        if self.options.planted.has_fault(planted::EPOCH_NOT_BEGUN) || sequencer.active.is_empty() {
            return Ok(());
        }
        self.mark_given_up()?;
        let state = |device: &Arc<Device>| match device.state() {
            _ if sequencer.active.iter().any(|active| active.id == device.id) => MemberState::Active,
            MemberState::Active => MemberState::Behind,
            state => state,
        };
        let epoch = sequencer.epoch + 1;
        let lost = lock(&self.lost).iter().map(|lost| (lost.id, MemberState::Failed)).collect::<Vec<_>>();
        let states: Vec<_> = self.devices().iter().map(|device| (device.id, state(device))).chain(lost).collect();
        self.host.begin_epoch(self.index, epoch, sequencer.next, &states)?;
        sequencer.epoch = epoch;
        self.epoch.store(epoch, Ordering::Release);
        self.counts.epochs.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Refuses a read of a key whose last write is in doubt.
    ///
    /// # Errors
    /// [`Error::TooFewDevices`].
    #[inline]
    pub(crate) fn check_not_in_doubt(&self, stripe: &Stripe, key: &[u8]) -> Result<()> {
        if stripe.in_doubt.is_empty() {
            return Ok(());
        }
        let acknowledged = self.acknowledged.load(Ordering::Acquire);
        let is_open = stripe.in_doubt.iter().any(|(other, seq)| *seq > acknowledged && other == key);
        if is_open { Err(self.too_few_error(0, 1)) } else { Ok(()) }
    }

    /// Removes failed members durably.
    ///
    /// # Errors
    /// As [`sequence_after_removals`](Self::sequence_after_removals).
    pub(crate) fn remove_failed_members(&self) -> Result<()> {
        self.sequence_after_removals().map(drop)
    }

    /// Begins the epoch of an open, durably, with any number of active members. Reads show the
    /// leader's pairs from then on, even if the others still lack them. A salvage decides nothing
    /// and writes the epoch only with enough members.
    ///
    /// # Errors
    /// Errors of the host's store.
    pub(crate) fn begin_epoch(&self) -> Result<()> {
        let mut sequencer = self.sequence();
        if self.options.salvage { self.record_members(&mut sequencer) } else { self.write_epoch(&mut sequencer) }
    }

    /// Installs `filter`, which counts `raised` keys, in all stripes.
    pub(crate) fn set_filter(&self, filter: &Arc<Filter>, raised: u64) {
        let mut stripes = self.stripes.lock_all();
        self.raised_before.store(raised, Ordering::Relaxed);
        for stripe in &mut stripes {
            stripe.counts.raised.store(0, Ordering::Relaxed);
            stripe.filter = Some(Arc::clone(filter));
        }
    }
}

/// Returns a key's value and expiry in one store.
///
/// # Errors
/// Errors of the store.
pub(crate) fn read_pair(store: &dyn Store, key: &[u8]) -> Result<Option<(Vec<u8>, Option<Expiry>)>> {
    let mut value = Vec::new();
    let found = Query::Pair.run(store, key, &mut value)?;
    Ok(found.is_present.then_some((value, found.expiry)))
}
