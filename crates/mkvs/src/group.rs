//! A group: members that hold the same pairs, the sequence of their operations, and what is known of its keys.
//!
//! A write takes its key's stripe, exclusively, and gives it back when it is acknowledged; a read takes it shared. Under the stripe nothing of the key is on its way:
//! what a reader finds at a member that has applied the stripe's last operation is what was acknowledged, and stays so whatever device is lost.
//!
//! Commit path of a write, where there are several members:
//! 1. its filter counters are raised, if it may add its key;
//! 2. under the sequencer it gets its number and is queued at every active member, so that all have the same order;
//! 3. each member logs it durably, applies it durably, and votes;
//! 4. when as many have voted as `acks` asks for, it is acknowledged; the others go on.
//!
//! Where too few can do it, for want of room, those that did take it back by a `Restore` of what the others have there: the write is refused, and no reader has seen it.
//!
//! Invariants
//! 1. Numbers have no holes; an operation is queued at all active members or at none.
//! 2. Locks: stripe, then sequencer, then a device's queue. The matrix's description is changed under the sequencer.
//! 3. A member that lacks an operation which is acknowledged, or may be, is not active. Who is active stands in the description, durably, before anything is
//!    acknowledged that a member taken out does not have (`acks=all`), and before a member that came back counts.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::time::{Duration, Instant};

use lodestore_contract::{Error, Expiry, Result, Store};

use crate::command::{Command, WriteOp};
use crate::device::{Device, is_refusal};
use crate::filter::Filter;
use crate::host::Host;
use crate::layout::{MemberState, Mutation, Operation};
use crate::options::{Acks, Filtering, MkvsOptions};
use crate::planted::Fault;
use crate::route::KeyHash;
use crate::stripes::{Stripe, Stripes};
use crate::{lock, read};

/// Who is active, and the next number.
pub(crate) struct Sequencer {
    pub(crate) next: u64,
    pub(crate) epoch: u64,
    pub(crate) active: Vec<Arc<Device>>,
}

/// A member that could not be opened.
pub(crate) struct Lost {
    pub(crate) index: usize,
    pub(crate) id: u64,
    pub(crate) why: String,
}

/// Counts of a group.
#[derive(Default)]
pub(crate) struct Counts {
    /// Reads that asked a device for a key that was absent, though there is a filter.
    pub(crate) false_positives: AtomicU64,
    pub(crate) reads: AtomicU64,
    pub(crate) hedged: AtomicU64,
    pub(crate) hedges_won: AtomicU64,
    pub(crate) writes: AtomicU64,
    pub(crate) restored: AtomicU64,
    pub(crate) repaired: AtomicU64,
    /// Keys that the filter counts and no device has: of writes whose end is not known.
    pub(crate) leaked: AtomicU64,
    /// Members that caught up from another's log, and by a full copy.
    pub(crate) caught_up: AtomicU64,
    pub(crate) copied: AtomicU64,
}

/// The group.
pub(crate) struct Group {
    pub(crate) index: usize,
    pub(crate) options: Arc<MkvsOptions>,
    pub(crate) host: Arc<Host>,
    /// Those that could be opened, in their order: a device that was replaced gives its place to the new one.
    pub(crate) members: RwLock<Vec<Arc<Device>>>,
    /// Those that could not.
    pub(crate) lost: Mutex<Vec<Lost>>,
    /// Members that there are to be.
    pub(crate) width: usize,
    pub(crate) sequencer: Mutex<Sequencer>,
    pub(crate) stripes: Stripes,
    pub(crate) counts: Counts,
    pub(crate) latency: crate::latency::Latency,
    /// Whether it has a filter, or will have.
    pub(crate) has_filter: bool,
    /// Keys that the filter counted when it was set; the stripes count from there on.
    pub(crate) raised_before: AtomicU64,
    /// The member that was asked last for something about all keys.
    pub(crate) teller: AtomicU64,
    /// The last operation that was acknowledged. All before it are where it is, or were taken back there.
    pub(crate) acknowledged: AtomicU64,
    /// The matrix is being stopped: long work ends.
    pub(crate) stops: AtomicBool,
    /// A key was removed that the filter had not counted: it is made anew.
    pub(crate) distrust: AtomicBool,
    /// Keys that a member could not read and another could.
    pub(crate) damaged: Mutex<Vec<Vec<u8>>>,
    /// One member alone: its store is asked and changed directly, and decides.
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
        let last = sequencer.next - 1;
        let is_quick = |device: &Arc<Device>| device.is_memory() && (width == 1 || device.is_inline());
        let has_filter = match options.filter {
            Filtering::On => true,
            Filtering::Off => false,
            Filtering::Auto => !members.iter().all(is_quick),
        };
        Self {
            index,
            options,
            host,
            width,
            lost: Mutex::default(),
            members: RwLock::new(members),
            sequencer: Mutex::new(sequencer),
            stripes: Stripes::new(sole.is_some(), last),
            counts: Counts::default(),
            latency: crate::latency::Latency::default(),
            has_filter,
            raised_before: AtomicU64::new(0),
            teller: AtomicU64::new(0),
            acknowledged: AtomicU64::new(last),
            stops: AtomicBool::new(false),
            distrust: AtomicBool::new(false),
            damaged: Mutex::default(),
            sole,
        }
    }

    /// A new group, all of whose members are active and empty.
    pub(crate) fn begin(index: usize, options: &Arc<MkvsOptions>, host: &Arc<Host>, devices: Vec<Arc<Device>>) -> Self {
        devices.iter().for_each(|device| device.set_state(MemberState::Active));
        let sequencer = Sequencer { next: 1, epoch: 1, active: devices.clone() };
        let width = devices.len();
        Self::new(index, Arc::clone(options), Arc::clone(host), devices, width, sequencer)
    }

    /// The store of its only member, which decides and needs no vote.
    #[inline]
    pub(crate) fn sole(&self) -> Option<&dyn Store> {
        self.sole.as_deref()
    }

    /// Counts a key that is about to be added.
    pub(crate) fn raise(&self, stripe: &Stripe, key: &[u8], hash: KeyHash) {
        if !self.has_filter {
            return;
        }
        stripe.counts.raised.fetch_add(1, Ordering::Relaxed);
        stripe.filter.as_ref().inspect(|filter| filter.raise(hash));
        stripe.building.as_ref().inspect(|building| building.raise(key, hash));
    }

    /// Counts a key that was removed.
    pub(crate) fn lower(&self, stripe: &Stripe, key: &[u8], hash: KeyHash) {
        if !self.has_filter {
            return;
        }
        stripe.counts.raised.fetch_sub(1, Ordering::Relaxed);
        let filter = stripe.filter.as_ref().is_none_or(|filter| filter.lower(hash));
        let building = stripe.building.as_ref().is_none_or(|building| building.lower(key, hash));
        if !(filter && building) {
            self.distrust.store(true, Ordering::Release);
        }
    }

    /// Keys that the filter counts.
    pub(crate) fn raised(&self) -> u64 {
        self.raised_before.load(Ordering::Relaxed).wrapping_add(self.stripes.sum(|counts| &counts.raised))
    }

    pub(crate) fn devices(&self) -> Vec<Arc<Device>> {
        read(&self.members).clone()
    }

    /// The members that are active.
    pub(crate) fn active(&self) -> Vec<Arc<Device>> {
        lock(&self.sequencer).active.clone()
    }

    /// Its epoch.
    pub(crate) fn epoch(&self) -> u64 {
        lock(&self.sequencer).epoch
    }

    /// The last number that was given.
    pub(crate) fn last(&self) -> u64 {
        lock(&self.sequencer).next - 1
    }

    fn too_few(&self, live: usize, needed: usize) -> Error {
        Error::TooFewDevices { group: self.index, live, needed }
    }

    /// Takes members out that have failed, or fell behind. A vote of theirs may have counted for what others have in their queues only: first as many of the others
    /// as are needed do all of that. So what was acknowledged is at that many of those that the description calls active.
    fn drop_idle(&self, sequencer: &mut Sequencer) -> Result<()> {
        if sequencer.active.iter().all(|device| device.is_active()) {
            return Ok(());
        }
        let (last, begun) = (sequencer.next - 1, Instant::now());
        let before = sequencer.active.clone();
        loop {
            sequencer.active.retain(|device| device.is_active());
            let active = &sequencer.active;
            let needed = self.options.acks.needed(self.width, active.len());
            let late: Vec<_> = active.iter().filter(|device| device.executed() < last).collect();
            // Asked behind what they executed: who had no room for what stands is not active any more.
            if active.iter().any(|device| !device.is_active()) {
                continue;
            }
            if active.len() < needed || active.len() - late.len() >= needed {
                let noted = self.note_members(sequencer);
                if noted.is_err() {
                    // Not said: whoever comes next has to say it before anything is acknowledged.
                    sequencer.active = before;
                }
                return noted;
            }
            if begun.elapsed() > self.options.timeout {
                late.iter().for_each(|device| device.fail(self.too_late()));
                continue;
            }
            late.iter().for_each(|device| device.kick());
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    fn too_late(&self) -> String {
        format!("it did not answer in {} ms", self.options.timeout.as_millis())
    }

    /// Makes durable who is active, as a new epoch. Not where they are too few to acknowledge anything: then the epoch before has all that was, and says between whom.
    pub(crate) fn note_members(&self, sequencer: &mut Sequencer) -> Result<()> {
        if sequencer.active.len() < self.options.acks.needed(self.width, sequencer.active.len()) {
            return Ok(());
        }
        self.write_epoch(sequencer)
    }

    fn write_epoch(&self, sequencer: &mut Sequencer) -> Result<()> {
        if self.options.planted.is(Fault::EpochNotBegun) {
            return Ok(());
        }
        let epoch = sequencer.epoch + 1;
        let lost = lock(&self.lost).iter().map(|lost| (lost.id, MemberState::Failed)).collect::<Vec<_>>();
        let states: Vec<_> = self.devices().iter().map(|device| (device.id, device.state())).chain(lost).collect();
        self.host.begin_epoch(self.index, epoch, sequencer.next, &states)?;
        sequencer.epoch = epoch;
        Ok(())
    }

    /// Refuses a read of a key of which it is not known whether its last write stands.
    ///
    /// # Errors
    /// [`Error::TooFewDevices`].
    #[inline]
    pub(crate) fn check_decided(&self, stripe: &Stripe, key: &[u8]) -> Result<()> {
        if stripe.undecided.is_empty() {
            return Ok(());
        }
        let acknowledged = self.acknowledged.load(Ordering::Acquire);
        let is_open = stripe.undecided.iter().any(|(other, seq)| *seq > acknowledged && other == key);
        if is_open { Err(self.too_few(0, 1)) } else { Ok(()) }
    }

    /// Takes out who failed, durably.
    ///
    /// # Errors
    /// The host's store's.
    pub(crate) fn settle_members(&self) -> Result<()> {
        self.drop_idle(&mut lock(&self.sequencer))
    }

    /// Begins the epoch of an open, durably, however few are active: what the leader has is shown from now on, though others may lack it still. Not in salvage, which
    /// decides nothing.
    ///
    /// # Errors
    /// The host's store's.
    pub(crate) fn begin_epoch(&self) -> Result<()> {
        let mut sequencer = lock(&self.sequencer);
        if self.options.salvage { self.note_members(&mut sequencer) } else { self.write_epoch(&mut sequencer) }
    }

    /// Has all stripes use this filter, which counts so many keys.
    pub(crate) fn set_filter(&self, filter: &Arc<Filter>, raised: u64) {
        let mut stripes = self.stripes.all();
        self.raised_before.store(raised, Ordering::Relaxed);
        for stripe in &mut stripes {
            stripe.counts.raised.store(0, Ordering::Relaxed);
            stripe.filter = Some(Arc::clone(filter));
        }
    }

    /// Gives `mutation` the next number and queues it at every active member.
    fn submit(&self, key: &[u8], mutation: Mutation, is_new: bool) -> Result<(Arc<WriteOp>, Vec<Arc<Device>>, usize)> {
        let mut sequencer = lock(&self.sequencer);
        self.make_room(&mut sequencer);
        self.drop_idle(&mut sequencer)?;
        let active = sequencer.active.clone();
        let needed = self.options.acks.needed(self.width, active.len());
        if active.len() < needed {
            return Err(self.too_few(active.len(), needed));
        }
        let needed = if self.options.planted.is(Fault::OpAckedByFewer) { needed.max(2) - 1 } else { needed };
        let operation = Operation { epoch: sequencer.epoch, seq: sequencer.next, key: key.to_vec(), mutation };
        sequencer.next += 1;
        let set = active.iter().fold(0, |set, device| set | device.bit());
        let op = Arc::new(WriteOp::new(operation, set, needed, is_new));
        for device in &active {
            if !device.push(Command::Write(Arc::clone(&op))) {
                op.vote(device.bit(), crate::command::Vote::Failed(None));
            }
        }
        Ok((op, active, needed))
    }

    /// Who trails by more than may be is behind from now on, if the others are enough.
    fn make_room(&self, sequencer: &mut Sequencer) {
        let needed = self.options.acks.needed(self.width, sequencer.active.len());
        let mut left = sequencer.active.len();
        for device in &sequencer.active {
            if device.depth() as u64 >= self.options.hard_lag && left > needed {
                device.fall_behind();
                left -= 1;
            }
        }
    }

    /// Has `mutation` done by as many members as it takes; whether the key was there.
    ///
    /// The caller holds the key's stripe, whose `stripe` this is.
    ///
    /// # Errors
    /// Those of the devices; [`Error::TooFewDevices`].
    pub(crate) fn commit(&self, stripe: &mut Stripe, key: &[u8], mutation: Mutation, is_new: bool) -> Result<bool> {
        self.counts.writes.fetch_add(1, Ordering::Relaxed);
        self.wait_for_room()?;
        let (op, devices, needed) = self.submit(key, mutation, is_new)?;
        stripe.last = op.operation.seq;
        let settled = self.settle_op(stripe, &op, &devices, needed);
        match &settled {
            Ok(_) => {
                self.acknowledged.fetch_max(op.operation.seq, Ordering::AcqRel);
                stripe.undecided.clear();
            }
            // It was taken back.
            Err(error) if is_refusal(error) => {}
            // Some have it, and too few to say that it stands: nobody reads its key before a later operation is acknowledged, which all who have that have it before.
            Err(_) => stripe.undecided.push((key.to_vec(), stripe.last)),
        }
        settled
    }

    /// Waits for a write's votes, and does what they ask for.
    fn settle_op(&self, stripe: &mut Stripe, op: &WriteOp, devices: &[Arc<Device>], needed: usize) -> Result<bool> {
        self.drive(op, devices, needed)?;
        let (done, refused, failed, was_there) =
            op.read(|votes| (votes.done, votes.refused, votes.failed.count_ones() as usize, votes.was_there));
        // The vote of one that was taken out since counts for nothing: an open may do without it. Nobody is taken out between this and who falls behind by it.
        let sequencer = (refused != 0).then(|| lock(&self.sequencer));
        let done = devices.iter().filter(|device| done & device.bit() != 0 && device.is_active()).count();
        // With `all` those count that are left, once the description says so.
        let needed = if self.options.acks == Acks::All { needed.saturating_sub(failed).max(1) } else { needed };
        if done >= needed {
            for device in devices.iter().filter(|device| refused & device.bit() != 0) {
                device.fall_behind();
            }
            return Ok(was_there);
        }
        drop(sequencer);
        if refused == 0 {
            let failure = op.read(|votes| votes.failure.take());
            return Err(failure.unwrap_or_else(|| self.too_few(done, needed)));
        }
        if let Err(error) = self.take_back(stripe, op, devices) {
            // It may stand, and these do not have it.
            devices.iter().filter(|device| refused & device.bit() != 0).for_each(|device| device.fall_behind());
            self.settle_members()?;
            return Err(error);
        }
        let refusal = op.read(|votes| votes.refusal.take());
        Err(refusal.unwrap_or(Error::Full { needed: op.operation.key.len() as u64, capacity: 0 }))
    }

    /// Where all of them are needed, a member whose queue is long is waited for.
    fn wait_for_room(&self) -> Result<()> {
        let begun = Instant::now();
        loop {
            let active = self.active();
            let needed = self.options.acks.needed(self.width, active.len());
            let roomy = active.iter().filter(|device| (device.depth() as u64) < self.options.hard_lag).count();
            if roomy >= needed || active.len() < needed {
                return Ok(());
            }
            if begun.elapsed() > self.options.timeout {
                return Err(Error::Unfinished {
                    doing: "waiting for devices",
                    after: self.options.timeout,
                    instead: "too many of a group's devices trail: see `stats`, and replace the slow ones",
                });
            }
            active.iter().for_each(|device| device.kick());
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    /// Has a queued write executed, and waits until it is decided. Who says nothing in time has failed.
    fn drive(&self, op: &WriteOp, devices: &[Arc<Device>], needed: usize) -> Result<()> {
        // Without threads, who is not needed does it when it is next asked.
        let first = if self.options.threads { 0 } else { turn(op.operation.seq, devices.len()) };
        for device in devices.iter().cycle().skip(first).take(devices.len()) {
            if self.options.threads || !op.is_decided(needed) {
                device.kick();
            }
        }
        let spins = devices.iter().any(|device| device.is_inline());
        loop {
            let late = op.wait(needed, self.options.timeout, spins);
            if late == 0 {
                break;
            }
            for device in devices.iter().filter(|device| late & device.bit() != 0) {
                device.fail(self.too_late());
                op.vote(device.bit(), crate::command::Vote::Failed(None));
            }
        }
        if op.read(|votes| votes.failed) != 0 {
            self.settle_members()?;
        }
        Ok(())
    }

    /// Takes back a write that too many members had no room for.
    fn take_back(&self, stripe: &mut Stripe, op: &WriteOp, devices: &[Arc<Device>]) -> Result<()> {
        self.counts.restored.fetch_add(1, Ordering::Relaxed);
        self.restore(&op.operation, devices, &mut stripe.last)
    }

    /// Gives the key of an operation again what it has at a member that lacks the operation, by one whose number goes to `last`.
    ///
    /// # Errors
    /// As [`commit`](Self::commit); [`Error::TooFewDevices`] too where no member lacks it: nobody knows what was there.
    pub(crate) fn restore(&self, operation: &Operation, devices: &[Arc<Device>], last: &mut u64) -> Result<()> {
        let aborts = operation.seq;
        let keepers = devices.iter().filter(|device| device.lacks(aborts));
        let Some(value) = keepers.flat_map(|device| device.ask(|store| read_pair(store, &operation.key))).next() else {
            return Err(self.too_few(0, 1));
        };
        let mutation = Mutation::Restore { aborts, value: value? };
        let (restore, devices, needed) = self.submit(&operation.key, mutation, false)?;
        *last = restore.operation.seq;
        self.drive(&restore, &devices, devices.len())?;
        let (done, lacking) = restore.read(|votes| (votes.done, votes.refused));
        devices.iter().filter(|device| lacking & device.bit() != 0).for_each(|device| device.fall_behind());
        let live = devices.iter().filter(|device| done & device.bit() != 0 && device.is_active()).count();
        if live < needed { Err(self.too_few(live, needed)) } else { Ok(()) }
    }
}

/// Which of so many devices has its turn first: another one for each two operations.
fn turn(seq: u64, devices: usize) -> usize {
    ((seq / 2).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % devices.max(1)
}

/// A key's value and expiry in one store.
///
/// # Errors
/// The store's.
pub(crate) fn read_pair(store: &dyn Store, key: &[u8]) -> Result<Option<(Vec<u8>, Option<Expiry>)>> {
    let Some(value) = store.get(key)? else { return Ok(None) };
    let expiry = if store.capabilities().expiry { store.expiry(key)?.flatten() } else { None };
    Ok(Some((value, expiry)))
}
