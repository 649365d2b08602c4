//! A write's way through a group.
//!
//! Commit path, where there are several members; the key's stripe is held alone all the while:
//! 1. under the sequencer the operation gets its number and is queued at every active member, so that all have the same order;
//! 2. each member logs it durably, applies it durably, and votes;
//! 3. when as many have voted as `acks` asks for, it is acknowledged; the others go on. Who has come back since, and caught up with it, counts in the place of who was taken out;
//! 4. its filter counters go by what the members say of the key, before the stripe is given back.
//!
//! Where too few can do it, for want of room, those that did take it back by a `Restore` of what the others have there: the write is refused, and no reader has seen it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use lodestore_contract::{Error, Expiry, Result};

use crate::apply::{apply, is_refusal};
use crate::command::{Command, Question, ReadOp, Vote, WriteOp};
use crate::device::Device;
use crate::group::{Group, Sequencer, read_pair};
use crate::operation::{Mutation, Operation};
use crate::options::Acks;
use crate::planted::Fault;
use crate::route::KeyHash;
use crate::stripes::Stripe;

/// Bytes of keys and values that may wait for a device.
const QUEUE_BYTES: usize = 64 << 20;

/// A value, and when it expires.
type Pair = (Vec<u8>, Option<Expiry>);

/// Why a write is not acknowledged.
enum Failure {
    /// No member has it: it got no number, or was taken back.
    NotDone(Error),
    /// Some have it, and too few to say that it stands.
    Undecided(Error),
}

/// What came of a write.
enum Outcome {
    /// It stands; whether the key was there.
    Stands(bool),
    /// Too many had no room for it, and the others have taken it back.
    TakenBack(Error),
}

/// How many members an operation takes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Enough {
    /// As many as `acks` says: what is acknowledged is at so many.
    ForAWrite,
    /// Those that are active, be they fewer: the epoch counts them alone, and what is done again tells nobody that it stands.
    AllThereAre,
}

/// An operation under way.
struct Given {
    op: Arc<WriteOp>,
    /// The members that have it in their queues.
    devices: Vec<Arc<Device>>,
    /// How many of them it takes.
    needed: usize,
}

/// Members have no room for something that stands, or may: they lack it.
fn fall_behind(devices: &[Arc<Device>], refused: u32) {
    devices.iter().filter(|device| refused & device.bit() != 0).for_each(|device| device.fall_behind());
}

impl Group {
    /// Does `mutation` to a key whose stripe is held, and counts it; whether the key was there.
    ///
    /// # Errors
    /// The devices'.
    pub(crate) fn change(&self, stripe: &mut Stripe, key: &[u8], hash: KeyHash, mutation: Mutation) -> Result<bool> {
        let adds = matches!(mutation, Mutation::Put { .. });
        let is_new = adds && stripe.filter.is_some() && !stripe.may_have(hash);
        let changed = match self.sole() {
            Some(store) => apply(store, key, &mutation, is_new).map_err(|error| match is_refusal(&error) {
                true => Failure::NotDone(error),
                false => Failure::Undecided(error),
            }),
            None => self.commit(stripe, key, mutation, is_new),
        };
        match &changed {
            // Nobody looks before the stripe is given back.
            Ok(false) if adds => self.raise(stripe, key, hash),
            Ok(true) if !adds => self.lower(stripe, key, hash),
            // Whether it is there is not known: counted, it is looked for.
            Err(Failure::Undecided(_)) if adds => {
                self.raise(stripe, key, hash);
                self.counts.leaked.fetch_add(1, Ordering::Relaxed);
            }
            _ => {}
        }
        changed.map_err(|failure| match failure {
            Failure::NotDone(error) => error,
            // The host's, which has no room to note who is active: a refusal would say that nobody has the write.
            Failure::Undecided(error) if is_refusal(&error) => {
                let source = io::Error::new(io::ErrorKind::StorageFull, error.to_string());
                Error::io("noting who is active in", "the matrix's description", source)
            }
            Failure::Undecided(Error::TooFewDevices { group, live, needed, .. }) => {
                Error::TooFewDevices { group, live, needed, may_stand: true }
            }
            Failure::Undecided(error) => error,
        })
    }

    /// Gives `mutation` the next number and queues it at every active member.
    ///
    /// # Errors
    /// The host's store's; [`Error::TooFewDevices`].
    fn submit(&self, key: &[u8], mutation: Mutation, is_new: bool, enough: Enough) -> Result<Given> {
        self.make_room(&self.sequence());
        let mut sequencer = self.sequence_noted()?;
        let active = sequencer.active.clone();
        let needed = match (self.options.acks.needed(self.width, active.len()), enough) {
            (needed, Enough::ForAWrite) => needed,
            (needed, Enough::AllThereAre) => needed.min(active.len()).max(1),
        };
        if active.len() < needed {
            return Err(self.too_few(active.len(), needed));
        }
        let needed = if self.options.planted.is(Fault::OpAckedByFewer) { needed.max(2) - 1 } else { needed };
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
        Ok(Given { op, devices: active, needed })
    }

    /// Whether more waits for a device than may.
    fn is_overdue(&self, device: &Device) -> bool {
        device.depth() as u64 >= self.options.hard_lag() || device.queued_bytes() >= QUEUE_BYTES
    }

    /// Who trails by more than may be is behind from now on, if the others are enough.
    fn make_room(&self, sequencer: &Sequencer) {
        // Who failed, or fell behind, may be among those still.
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

    /// Has `mutation` done by as many members as it takes; whether the key was there.
    ///
    /// The caller holds the key's stripe, whose `stripe` this is.
    ///
    /// # Errors
    /// Those of the devices; [`Error::TooFewDevices`].
    fn commit(&self, stripe: &mut Stripe, key: &[u8], mutation: Mutation, is_new: bool) -> Result<bool, Failure> {
        self.counts.writes.fetch_add(1, Ordering::Relaxed);
        self.wait_for_room().map_err(Failure::NotDone)?;
        let Given { op, devices, needed } =
            self.submit(key, mutation, is_new, Enough::ForAWrite).map_err(Failure::NotDone)?;
        stripe.last = op.operation.seq;
        match self.outcome(stripe, &op, &devices, needed) {
            Ok(Outcome::Stands(was_there)) => {
                self.acknowledged.fetch_max(op.operation.seq, Ordering::AcqRel);
                stripe.undecided.clear();
                Ok(was_there)
            }
            Ok(Outcome::TakenBack(refusal)) => Err(Failure::NotDone(refusal)),
            Err(error) => {
                // Nobody reads its key before a later operation is acknowledged, which all who have that have it before.
                stripe.undecided.push((key.to_vec(), stripe.last));
                self.note_undecided(key);
                Err(Failure::Undecided(error))
            }
        }
    }

    /// Waits for a write's votes, and does what they ask for.
    ///
    /// # Errors
    /// Where it is not known whether it stands: who had no room for it is behind.
    fn outcome(&self, stripe: &mut Stripe, op: &WriteOp, devices: &[Arc<Device>], needed: usize) -> Result<Outcome> {
        let mut restored = 0;
        let decided = match self.count_votes(op, devices, needed) {
            Ok(Some(was_there)) => return Ok(Outcome::Stands(was_there)),
            Ok(None) => self.take_back(stripe, op, devices, &mut restored),
            Err(error) => Err(error),
        };
        let (refused, refusal) = op.read(|votes| (votes.refused, votes.refusal.take()));
        if let Err(error) = decided {
            // Before anything else that may fail: it may stand, and these do not have it.
            fall_behind(devices, refused & !restored);
            self.note_gone()?;
            return Err(error);
        }
        Ok(Outcome::TakenBack(refusal.unwrap_or(Error::Full { needed: op.operation.key.len() as u64, capacity: 0 })))
    }

    /// Waits until enough members have a write: whether the key was there. `None` where they never will, since some had no room for it.
    ///
    /// # Errors
    /// The host's store's; [`Error::TooFewDevices`] where too few are left.
    fn count_votes(&self, op: &WriteOp, devices: &[Arc<Device>], needed: usize) -> Result<Option<bool>> {
        let is_all = self.options.acks == Acks::All;
        let mut wanted = needed;
        loop {
            self.drive(op, devices, wanted)?;
            let (done, refused, failed, pending, was_there) =
                op.read(|votes| (votes.done, votes.refused, votes.failed, votes.pending, votes.was_there));
            let is_known = done != 0;
            // Nobody is taken out between this and who falls behind by it.
            let mut sequencer = (refused != 0 || is_all).then(|| self.sequence());
            // The vote of one that was taken out since counts for nothing: an open may do without it.
            let active = devices.iter().filter(|device| device.is_active()).fold(0, |set, device| set | device.bit());
            let gone = failed | (done & !active);
            let done = (done & active).count_ones() as usize;
            // With `all` those count that are left, once the description says so.
            let needed = if is_all { needed.saturating_sub(gone.count_ones() as usize).max(1) } else { needed };
            if done >= needed {
                fall_behind(devices, refused);
                let late = match &mut sequencer {
                    Some(held) if is_all => self.drop_idle(held)?,
                    _ => Vec::new(),
                };
                if late.is_empty() {
                    return Ok(Some(was_there));
                }
                drop(sequencer);
                self.note_gone()?;
            } else if pending != 0 {
                // Another one may do it in the place of who was taken out.
                wanted += 1;
            } else if refused != 0 {
                return Ok(None);
            } else {
                drop(sequencer);
                let done = done + self.joined(op, devices);
                return if is_known && done >= needed { Ok(Some(was_there)) } else { Err(self.too_few(done, needed)) };
            }
        }
    }

    /// How many have a write though they were not given it: they have come back since, and caught up with it.
    fn joined(&self, op: &WriteOp, devices: &[Arc<Device>]) -> usize {
        // With the sequencer: the description calls those active that it has.
        let sequencer = self.sequence();
        let seq = op.operation.seq;
        let has = |device: &&Arc<Device>| device.is_active() && device.applied() >= seq && !device.lacks(seq);
        let was_given = |device: &Arc<Device>| devices.iter().any(|given| given.id == device.id);
        sequencer.active.iter().filter(|device| !was_given(device)).filter(has).count()
    }

    /// Where all of them are needed, a member whose queue is long is waited for.
    fn wait_for_room(&self) -> Result<()> {
        let begun = Instant::now();
        loop {
            let active = self.active();
            let needed = self.options.acks.needed(self.width, active.len());
            let roomy = active.iter().filter(|device| !self.is_overdue(device)).count();
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

    /// Has a queued write executed, and waits until it is decided. Who executes nothing for as long as an operation may take has failed.
    fn drive(&self, op: &WriteOp, devices: &[Arc<Device>], needed: usize) -> Result<()> {
        // Without threads, who is not needed does it when it is next asked.
        let first = if self.options.threads { 0 } else { turn(op.operation.seq, devices.len()) };
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
                    device.fail(self.too_late());
                    op.vote(device.bit(), Vote::Failed);
                }
                *seen = executed;
            }
        }
        if op.read(|votes| votes.failed) != 0 {
            self.note_gone()?;
        }
        Ok(())
    }

    /// Takes back a write that too many members had no room for. Those that have done that go to `by`.
    fn take_back(&self, stripe: &mut Stripe, op: &WriteOp, devices: &[Arc<Device>], by: &mut u32) -> Result<()> {
        self.counts.restored.fetch_add(1, Ordering::Relaxed);
        self.restore(&op.operation, devices, &mut stripe.last, by, Enough::ForAWrite)
    }

    /// Gives the key of an operation again what it has at a member that lacks the operation, by one whose number goes to `last`, and the members that have done it to `by`.
    ///
    /// # Errors
    /// As a write's; [`Error::TooFewDevices`] too where no member lacks it: nobody knows what was there.
    pub(crate) fn restore(
        &self,
        operation: &Operation,
        devices: &[Arc<Device>],
        last: &mut u64,
        by: &mut u32,
        enough: Enough,
    ) -> Result<()> {
        let aborts = operation.seq;
        let keepers = devices.iter().filter(|device| device.is_active() && device.lacks(aborts));
        // Who has come back since it was chosen has done the operation: it is asked behind its answer, too.
        let mut values =
            keepers.filter_map(|device| self.ask_one(device, &operation.key).filter(|_| device.lacks(aborts)));
        let Some(value) = values.next() else { return Err(self.too_few(0, 1)) };
        let mutation = Mutation::Restore { aborts, value: value? };
        let Given { op: restore, devices, needed } = self.submit(&operation.key, mutation, false, enough)?;
        *last = restore.operation.seq;
        let driven = self.drive(&restore, &devices, devices.len());
        let lacking = restore.read(|votes| {
            *by = votes.done;
            votes.refused
        });
        fall_behind(&devices, lacking);
        driven?;
        let live = || devices.iter().filter(|device| *by & device.bit() != 0 && device.is_active()).count();
        let needed = if self.options.acks == Acks::All {
            // Those that are left, once the description says so.
            self.note_gone()?;
            live().max(1)
        } else {
            needed
        };
        if live() < needed { Err(self.too_few(live(), needed)) } else { Ok(()) }
    }
}

impl Group {
    /// A key's value and expiry at this member. `None` where it is not in use all the while.
    fn ask_one(&self, device: &Arc<Device>, key: &[u8]) -> Option<Result<Option<Pair>>> {
        if device.is_inline() {
            return device.ask(|store| read_pair(store, key));
        }
        // Not by this thread, which would hang with it.
        let op = Arc::new(ReadOp::new(key, Question::Pair));
        let answer = self.ask_queued(&op, std::slice::from_ref(device), 1)?;
        Some(answer.found.map(|found| found.is_there.then_some((answer.value, found.expiry))))
    }
}

/// Which of so many devices has its turn first: another one for each two operations.
fn turn(seq: u64, devices: usize) -> usize {
    ((seq / 2).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % devices.max(1)
}
