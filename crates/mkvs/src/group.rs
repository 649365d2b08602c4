//! A group: members that hold the same pairs, the sequence of their operations, and what is known of its keys.
//!
//! A write takes its key's stripe, exclusively, and gives it back when it is acknowledged; a read takes it shared. Under the stripe nothing of the key is on its way:
//! what a reader finds at a member that has applied the stripe's last operation is what was acknowledged, and stays so whatever device is lost.
//!
//! Invariants
//! 1. Numbers have no holes; an operation is queued at all active members or at none.
//! 2. Locks, in this order: `changes` of the matrix; stripes, those of a key's old group before those of its new one; the gate of walks (`shape.rs`), which a walk takes while it has
//!    no stripe; a processor that catching up holds; the sequencer; a device's queue; a write's votes, what a device lacks, a log, the host's description, each alone. Who revives
//!    a group (`revive.rs`) takes processors under the sequencer: nobody is active, and the one thread that holds processors of its members is itself (`keeper.rs`).
//!    The doubts of a salvage (`salvage.rs`) come directly before the description.
//! 3. Nobody waits for a device with the sequencer held, but who takes one in, for a moment (`HELD_MOST` of `catchup.rs`), who begins the log of one that is copied (`fill.rs`), and who
//!    revives a group, for as long as its members do their logs again: nobody is active then.
//! 4. A member that lacks an operation which is acknowledged, or may be, is not active; it may be filling: given operations, without a vote. Who is active stands in the description, durably, before anything is
//!    acknowledged that a member taken out does not have (`acks=all`), and before a member that came back counts.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, RwLock};
use std::time::{Duration, Instant};

use lodestore_contract::{Error, Expiry, Result, Store};

use crate::command::Question;
use crate::device::{Device, Failure};
use crate::filter::Filter;
use crate::host::Host;
use crate::layout::MemberState;
use crate::options::{Filtering, MkvsOptions};
use crate::planted::Fault;
use crate::route::KeyHash;
use crate::salvage::Doubts;
use crate::stripes::{Stripe, Stripes};
use crate::{lock, read};

/// Who is active, and the next number.
pub(crate) struct Sequencer {
    pub(crate) next: u64,
    pub(crate) epoch: u64,
    pub(crate) active: Vec<Arc<Device>>,
    /// Members that are given operations and have no vote: they are coming back.
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

/// Who keeps a group.
#[derive(Default)]
pub(crate) struct Kept {
    /// The number of the keeper that it has.
    pub(crate) by: u64,
    /// The member that this one has catch up.
    pub(crate) member: Option<u64>,
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
    /// Pairs that were left out of copies, since nobody could read them.
    pub(crate) uncopied: AtomicU64,
    /// Members that caught up from another's log, and by a full copy.
    pub(crate) caught_up: AtomicU64,
    pub(crate) copied: AtomicU64,
    /// Times that nobody was active, and a leader was chosen anew.
    pub(crate) revived: AtomicU64,
    /// Epochs that were begun since the open.
    pub(crate) epochs: AtomicU64,
}

/// The group.
pub(crate) struct Group {
    pub(crate) index: usize,
    pub(crate) options: Arc<MkvsOptions>,
    pub(crate) host: Arc<Host>,
    /// Of its keys' hashes.
    pub(crate) seed: u64,
    /// Those that could be opened, in their order: a device that was replaced gives its place to the new one.
    pub(crate) members: RwLock<Vec<Arc<Device>>>,
    /// Those that could not.
    pub(crate) lost: Mutex<Vec<Lost>>,
    /// Why a salvage may lack acknowledged writes.
    pub(crate) doubts: Mutex<Doubts>,
    /// Members that there are to be.
    pub(crate) width: usize,
    sequencer: Mutex<Sequencer>,
    /// The last number and the epoch, for those who only want to know.
    last: AtomicU64,
    epoch: AtomicU64,
    pub(crate) stripes: Stripes,
    pub(crate) counts: Counts,
    pub(crate) latency: crate::latency::Latency,
    /// Of reads that may ask another device.
    pub(crate) allowance: Arc<crate::latency::Allowance>,
    /// Whether it has a filter, or will have.
    pub(crate) has_filter: bool,
    /// Keys that the filter counted when it was set; the stripes count from there on.
    pub(crate) raised_before: AtomicU64,
    /// The member that was asked last for something about all keys.
    pub(crate) teller: AtomicU64,
    /// The last operation that was acknowledged. All before it are where it is, or were taken back there.
    pub(crate) acknowledged: AtomicU64,
    pub(crate) kept: Mutex<Kept>,
    /// The matrix is being stopped: long work ends.
    pub(crate) stops: AtomicBool,
    /// A key was removed that the filter had not counted: it is made anew.
    pub(crate) distrust: AtomicBool,
    /// The walk for a filter met what nobody can read: when it may be tried again.
    pub(crate) no_filter_before: Mutex<Option<Instant>>,
    /// Keys that a member could not read and another could.
    pub(crate) damaged: Mutex<BTreeSet<Vec<u8>>>,
    /// Keys of writes of which it is not known whether they stand.
    pub(crate) undecided: Mutex<BTreeSet<Vec<u8>>>,
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
            teller: AtomicU64::new(0),
            acknowledged: AtomicU64::new(last),
            kept: Mutex::default(),
            stops: AtomicBool::new(false),
            distrust: AtomicBool::new(false),
            no_filter_before: Mutex::default(),
            damaged: Mutex::default(),
            undecided: Mutex::default(),
            sole,
        }
    }

    /// A new group, all of whose members are active and empty.
    pub(crate) fn begin(index: usize, options: &Arc<MkvsOptions>, host: &Arc<Host>, devices: Vec<Arc<Device>>) -> Self {
        devices.iter().for_each(|device| device.set_state(MemberState::Active));
        let sequencer = Sequencer::new(1, 1, devices.clone());
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
        read(&self.members).iter().filter(|device| device.is_active()).cloned().collect()
    }

    /// Its epoch.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// The last number that was given.
    pub(crate) fn last(&self) -> u64 {
        self.last.load(Ordering::Acquire)
    }

    /// Has operations numbered by nobody else meanwhile.
    pub(crate) fn sequence(&self) -> MutexGuard<'_, Sequencer> {
        lock(&self.sequencer)
    }

    /// The next number is the one behind `last`, and these are active.
    pub(crate) fn go_on_behind(&self, sequencer: &mut Sequencer, last: u64, active: Vec<Arc<Device>>) {
        *sequencer = Sequencer::new(last + 1, sequencer.epoch, active);
        self.last.store(last, Ordering::Release);
    }

    /// The next number.
    pub(crate) fn number(&self, sequencer: &mut Sequencer) -> u64 {
        let seq = sequencer.next;
        sequencer.next += 1;
        self.last.store(seq, Ordering::Release);
        seq
    }

    pub(crate) fn too_few(&self, live: usize, needed: usize) -> Error {
        Error::too_few_devices(self.index, live, needed)
    }

    /// Takes members out that have failed, or fell behind. A vote of theirs may have counted for what others have in their queues only: first as many of the others
    /// as are needed do all of that: execute it, since what one of them has no room for is never applied there, and its votes decide on it. So what was acknowledged is at that many of those that the description calls active. The members that are waited for: none where it is done.
    ///
    /// # Errors
    /// The host's store's.
    pub(crate) fn drop_idle(&self, sequencer: &mut Sequencer) -> Result<Vec<Arc<Device>>> {
        while sequencer.active.iter().any(|device| !device.is_active()) {
            let last = sequencer.next - 1;
            let left: Vec<_> = sequencer.active.iter().filter(|device| device.is_active()).cloned().collect();
            let needed = self.options.acks.needed(self.width, left.len());
            let late: Vec<_> = left.iter().filter(|device| device.executed() < last).cloned().collect();
            // Asked behind what they executed: who had no room for what stands is not active any more.
            if left.iter().any(|device| !device.is_active()) {
                continue;
            }
            if left.len() >= needed && left.len() - late.len() < needed {
                return Ok(late);
            }
            let before = std::mem::replace(&mut sequencer.active, left);
            self.note_members(sequencer).inspect_err(|_| {
                // Not said: whoever comes next has to say it before anything is acknowledged.
                sequencer.active = before;
            })?;
        }
        Ok(Vec::new())
    }

    /// Whether an epoch may count a member that has everything beside those that are active. Members that left when the others were too few to say so may be all that have what was
    /// acknowledged: as many as a write takes have to have executed everything before the description counts without them.
    ///
    /// # Errors
    /// The host's store's.
    pub(crate) fn may_add(&self, sequencer: &mut Sequencer) -> Result<bool> {
        self.drop_idle(sequencer)?;
        let last = sequencer.next - 1;
        let matrix = self.host.matrix();
        let mut counted = matrix.groups[self.index].members.iter().filter(|member| member.state == MemberState::Active);
        let is_said = counted.all(|member| sequencer.active.iter().any(|device| device.id == member.id));
        let needed = self.options.acks.needed(self.width, sequencer.active.len() + 1);
        // In this order, as in `drop_idle`.
        let level =
            sequencer.active.iter().filter(|device| device.executed() >= last && device.is_active()).count() + 1;
        Ok(is_said || level >= needed || sequencer.active.len() + 1 < needed)
    }

    /// The sequencer, when who failed or fell behind is out of it, durably. Nobody holds it meanwhile: who is waited for may have much in its queue. It has failed only if it stands
    /// still for as long as an operation may take.
    ///
    /// # Errors
    /// The host's store's; [`Error::Closed`].
    pub(crate) fn sequence_noted(&self) -> Result<MutexGuard<'_, Sequencer>> {
        let mut watched: Vec<(u64, u64, Instant)> = Vec::new();
        loop {
            let mut sequencer = self.sequence();
            let late = self.drop_idle(&mut sequencer)?;
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
                    Some((.., since)) if since.elapsed() > self.options.timeout => device.fail(self.too_late()),
                    Some(_) => {}
                }
            }
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    pub(crate) fn too_late(&self) -> Failure {
        Failure::late(format!("it did not answer in {} ms", self.options.timeout.as_millis()))
    }

    /// Makes durable who is active, as a new epoch. Not where they are too few to acknowledge anything: then the epoch before has all that was, and says between whom.
    pub(crate) fn note_members(&self, sequencer: &mut Sequencer) -> Result<()> {
        if sequencer.active.len() < self.options.acks.needed(self.width, sequencer.active.len()) {
            return Ok(());
        }
        self.write_epoch(sequencer)
    }

    /// Makes durable, as a new epoch, that the sequencer's members are active and nobody else: those that were looked at, though one may have failed since. An epoch of nobody is not
    /// begun: such a group could never be opened again.
    pub(crate) fn write_epoch(&self, sequencer: &mut Sequencer) -> Result<()> {
        if self.options.planted.is(Fault::EpochNotBegun) || sequencer.active.is_empty() {
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
    /// As [`sequence_noted`](Self::sequence_noted).
    pub(crate) fn note_gone(&self) -> Result<()> {
        self.sequence_noted().map(drop)
    }

    /// Begins the epoch of an open, durably, however few are active: what the leader has is shown from now on, though others may lack it still. Not in salvage, which
    /// decides nothing.
    ///
    /// # Errors
    /// The host's store's.
    pub(crate) fn begin_epoch(&self) -> Result<()> {
        let mut sequencer = self.sequence();
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
}

/// A key's value and expiry in one store.
///
/// # Errors
/// The store's.
pub(crate) fn read_pair(store: &dyn Store, key: &[u8]) -> Result<Option<(Vec<u8>, Option<Expiry>)>> {
    let mut value = Vec::new();
    let found = Question::Pair.ask(store, key, &mut value)?;
    Ok(found.is_there.then_some((value, found.expiry)))
}
