//! The competition of a group's devices for a read (MKVS, Micromachines 2019, section 3.3): who is asked, and whose answer counts.
//!
//! Invariants
//! 1. The caller holds the key's stripe, shared: no write of its key is under way. A member may answer that has applied the stripe's last operation, or that gets the read
//!    behind it in its queue: so whoever answers first says what was acknowledged last.
//! 2. An error answers only where no member has anything better. What one cannot read and another can is put right behind (`keeper.rs`).

//! 3. Nobody waits for the sequencer to read. A device that executes nothing for as long as an operation may take, while somebody waits for it, has failed.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use lodestore_contract::{Error, Expiry, Result};

use crate::command::{Answer, Command, Found, Question, ReadOp};
use crate::device::Device;
use crate::group::Group;
use crate::options::Reads;
use crate::stripes::Stripe;
use crate::{lock, read};

/// Reads between two looks at how often a second device was asked.
const PER_CENT: u64 = 100;

/// Devices that were given a read, with what each had executed then.
type Given<'a> = Vec<(&'a Arc<Device>, u64)>;

/// Gives the caller a value in his own buffer.
fn give(value: &mut Vec<u8>, answered: &[u8]) {
    value.clear();
    value.extend_from_slice(answered);
}

impl Group {
    /// Whether `key` is there.
    ///
    /// # Errors
    /// As [`find`](Self::find).
    pub(crate) fn contains(&self, stripe: &Stripe, key: &[u8]) -> Result<bool> {
        self.find(stripe, key, Question::There, &mut Vec::new()).map(|found| found.is_there)
    }

    /// The value of `key`.
    ///
    /// # Errors
    /// As [`find`](Self::find).
    pub(crate) fn get(&self, stripe: &Stripe, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.pair_by(stripe, key, Question::Value)?.map(|(value, _)| value))
    }

    /// The value of `key`, and when it expires.
    ///
    /// # Errors
    /// As [`find`](Self::find).
    pub(crate) fn pair(&self, stripe: &Stripe, key: &[u8]) -> Result<Option<(Vec<u8>, Option<Expiry>)>> {
        self.pair_by(stripe, key, Question::Pair)
    }

    fn pair_by(&self, stripe: &Stripe, key: &[u8], question: Question) -> Result<Option<(Vec<u8>, Option<Expiry>)>> {
        let mut value = Vec::new();
        let found = self.find(stripe, key, question, &mut value)?;
        Ok(found.is_there.then_some((value, found.expiry)))
    }

    /// What is asked about `key`, by whoever is to be asked.
    ///
    /// # Errors
    /// The devices'; [`Error::TooFewDevices`] where none can answer, or it is not known whether the key's last write stands.
    #[inline]
    pub(crate) fn find(&self, stripe: &Stripe, key: &[u8], question: Question, value: &mut Vec<u8>) -> Result<Found> {
        if let Some(store) = self.sole() {
            return question.ask(store, key, value);
        }
        self.check_decided(stripe, key)?;
        self.compete(stripe, key, question, value)
    }

    /// As [`find`](Self::find), of a key whose last write need not be decided: what the members have that are in use.
    ///
    /// # Errors
    /// The devices'; [`Error::TooFewDevices`].
    pub(crate) fn compete(
        &self,
        stripe: &Stripe,
        key: &[u8],
        question: Question,
        value: &mut Vec<u8>,
    ) -> Result<Found> {
        let reads = self.counts.reads.fetch_add(1, Ordering::Relaxed);
        if let Some(device) = self.idle(stripe, reads as usize)
            && let Some(found) = device.ask(|store| question.ask(store, key, value))
        {
            return found.or_else(|error| self.ask_each(stripe, key, question, value, Some(error)));
        }
        let members = self.in_use();
        let op = Arc::new(ReadOp::new(key, question));
        let begun = Instant::now();
        let answer = match self.options.reads {
            Reads::Single => self.ask_queued(&op, &mut members.iter(), 1, None),
            Reads::RaceAll => self.ask_queued(&op, &mut members.iter(), usize::MAX, None),
            Reads::Hedged => self.hedge(&op, &members, begun, reads),
        };
        self.latency.note(begun.elapsed());
        if op.met_damage() {
            self.note_damage(key);
        }
        match answer {
            Some(Answer { found: Ok(found), value: answered, .. }) => {
                give(value, &answered);
                Ok(found)
            }
            Some(Answer { found: Err(error), .. }) => self.ask_each(stripe, key, question, value, Some(error)),
            None => self.ask_each(stripe, key, question, value, None),
        }
    }

    /// Asks every member that may answer, one after the other, when `first` came of one that was asked. What one cannot read and another can is put right.
    fn ask_each(
        &self,
        stripe: &Stripe,
        key: &[u8],
        question: Question,
        value: &mut Vec<u8>,
        mut first: Option<Error>,
    ) -> Result<Found> {
        for device in &self.in_use() {
            let found = if device.is_inline() && device.applied() >= stripe.last {
                device.ask(|store| question.ask(store, key, value))
            } else {
                let answer =
                    self.ask_queued(&Arc::new(ReadOp::new(key, question)), &mut std::iter::once(device), 1, None);
                answer.map(|answer| {
                    give(value, &answer.value);
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
        Err(first.unwrap_or(Error::TooFewDevices { group: self.index, live: 0, needed: 1 }))
    }

    /// The members that are active, the shortest queue first; those that trail by more than may be are not among them, unless there are no others.
    pub(crate) fn in_use(&self) -> Vec<Arc<Device>> {
        let mut members = read(&self.members).clone();
        members.retain(|device| device.is_active());
        members.sort_by_cached_key(|device| device.depth());
        let near = members.partition_point(|device| (device.depth() as u64) < self.options.soft_lag);
        if near != 0 {
            members.truncate(near);
        }
        members
    }

    /// A member whose store this thread may read: with nothing in its queue, and everything of the stripe.
    fn idle(&self, stripe: &Stripe, spread: usize) -> Option<Arc<Device>> {
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

    /// Queues the read at `most` more of `members`, and waits: until then, or until one has answered or none of them will.
    fn ask_queued<'a>(
        &self,
        op: &Arc<ReadOp>,
        members: &mut impl Iterator<Item = &'a Arc<Device>>,
        most: usize,
        until: Option<Instant>,
    ) -> Option<Answer> {
        let mut given = Given::new();
        for device in members {
            let progress = device.progress();
            op.open();
            // What hangs is given no more than writers may queue.
            if (device.depth() as u64) < self.options.hard_lag && device.push(Command::Read(Arc::clone(op))) {
                given.push((device, progress));
            } else {
                op.give_up();
            }
            if given.len() == most {
                break;
            }
        }
        given.iter().for_each(|(device, _)| device.kick());
        match until {
            Some(until) => op.wait(until),
            None => self.await_answer(op, given),
        }
    }

    /// Waits for one of these devices, which fail where they execute nothing in time.
    fn await_answer(&self, op: &ReadOp, mut given: Given<'_>) -> Option<Answer> {
        while !given.is_empty() {
            let answer = op.wait(Instant::now() + self.options.timeout);
            if answer.is_some() || !op.is_open() {
                return answer;
            }
            for (device, seen) in &mut given {
                let progress = device.progress();
                if progress == *seen && device.depth() != 0 {
                    device.fail(self.too_late());
                }
                *seen = progress;
            }
            // What hangs in this very read does not give it up.
            given.retain(|(device, _)| device.is_active());
        }
        None
    }

    /// The shortest queue first; another one where that takes longer than 95 of 100 reads, unless too many were asked twice already.
    fn hedge(&self, op: &Arc<ReadOp>, members: &[Arc<Device>], begun: Instant, reads: u64) -> Option<Answer> {
        let progress: Vec<u64> = members.iter().map(|device| device.progress()).collect();
        let given = || members.iter().zip(progress.iter().copied()).collect::<Given<'_>>();
        let mut others = members.iter();
        let first = self.ask_queued(op, &mut others, 1, Some(begun + self.latency.p95()));
        if first.is_some() || !op.is_open() {
            return first;
        }
        let asked = members.len() - others.len();
        let hedged = self.counts.hedged.load(Ordering::Relaxed);
        let is_allowed = hedged * PER_CENT < (reads + PER_CENT) * u64::from(self.options.hedge_percent);
        if !is_allowed || others.len() == 0 {
            return self.await_answer(op, given().into_iter().take(asked).collect());
        }
        self.counts.hedged.fetch_add(1, Ordering::Relaxed);
        let first = others.as_slice()[0].bit();
        // No wait here: both are waited for below.
        let answer = self.ask_queued(op, &mut others, 1, Some(Instant::now()));
        let asked = members.len() - others.len();
        let answer = answer.or_else(|| self.await_answer(op, given().into_iter().take(asked).collect()));
        if answer.as_ref().is_some_and(|answer| answer.by == first) {
            self.counts.hedges_won.fetch_add(1, Ordering::Relaxed);
        }
        answer
    }

    /// A member cannot read this key, and another can.
    pub(crate) fn note_damage(&self, key: &[u8]) {
        let mut damaged = lock(&self.damaged);
        if damaged.len() < crate::keeper::DAMAGED_MAX {
            damaged.push(key.to_vec());
        }
    }
}
