//! Commands that devices are given, and what comes of them.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lodestore_contract::{Error, Expiry, Result, Store};

use crate::device::Device;
use crate::latency::Allowance;
use crate::lock;
use crate::operation::{Mutation, Operation};

/// Looks at a write's votes before its caller sleeps, and what passes between two: some microseconds in all.
const SPINS: u32 = 20;
const SPIN: u32 = 8;

/// What a device is given to do.
#[derive(Clone)]
pub(crate) enum Command {
    Write(Arc<WriteOp>),
    Read(Arc<ReadOp>),
    /// What others have of a key, for a device that is being filled.
    Copy(Arc<Copied>),
}

/// What others have of a key.
pub(crate) struct Copied {
    pub(crate) key: Vec<u8>,
    pub(crate) mutation: Mutation,
}

impl Command {
    /// Has no part in the command any more: it is not executed by this member.
    pub(crate) fn drop_by(&self, member: u32) {
        match self {
            Self::Write(op) => {
                op.vote(member, Vote::Failed);
            }
            Self::Read(op) => op.give_up(),
            Self::Copy(_) => {}
        }
    }

    /// Bytes of key and value that it holds in memory.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Write(op) => op.operation.key.len() + op.operation.mutation.bytes(),
            Self::Read(op) => op.key.len(),
            Self::Copy(copied) => copied.key.len() + copied.mutation.bytes(),
        }
    }
}

/// A member's verdict on a write.
pub(crate) enum Vote {
    /// It has it, durably; whether the key was there.
    Done(bool),
    /// It has no room for it, and its store is as before.
    Refused(Error),
    /// It is out of use.
    Failed,
}

/// Verdicts on a write, as sets of members.
#[derive(Default)]
pub(crate) struct Votes {
    pub(crate) pending: u32,
    pub(crate) done: u32,
    pub(crate) refused: u32,
    pub(crate) failed: u32,
    /// The key was there, by those who have done it.
    pub(crate) was_there: bool,
    pub(crate) refusal: Option<Error>,
    /// Somebody sleeps until they are decided: waking is a system call.
    is_awaited: bool,
}

impl Votes {
    /// Whether `needed` members have it, or never will.
    fn are_decided(&self, needed: usize) -> bool {
        let done = self.done.count_ones() as usize;
        // Where it cannot be had any more, all are waited for: what some have done is to be taken back.
        done >= needed || self.pending == 0
    }
}

/// A write on its way through a group.
pub(crate) struct WriteOp {
    pub(crate) operation: Operation,
    /// The key is absent, as far as the filter knows.
    pub(crate) is_new: bool,
    /// Members that it takes.
    needed: usize,
    votes: Mutex<Votes>,
    voted: Condvar,
}

impl WriteOp {
    pub(crate) fn new(operation: Operation, members: u32, needed: usize, is_new: bool) -> Self {
        let votes = Votes { pending: members, ..Votes::default() };
        Self { operation, is_new, needed, votes: Mutex::new(votes), voted: Condvar::new() }
    }

    /// Takes a member's verdict; the first one counts. False where the member has no room for what stands already, done by enough others.
    pub(crate) fn vote(&self, member: u32, vote: Vote) -> bool {
        let mut votes = lock(&self.votes);
        let stands = votes.done.count_ones() as usize >= self.needed;
        let is_missed = stands && matches!(vote, Vote::Refused(_));
        if votes.pending & member == 0 {
            return true;
        }
        votes.pending &= !member;
        match vote {
            Vote::Done(was_there) => {
                votes.done |= member;
                votes.was_there |= was_there;
            }
            Vote::Refused(error) => {
                votes.refused |= member;
                votes.refusal.get_or_insert(error);
            }
            Vote::Failed => votes.failed |= member,
        }
        let wakes = votes.is_awaited && votes.are_decided(self.needed);
        drop(votes);
        if wakes {
            self.voted.notify_all();
        }
        !is_missed
    }

    /// Whether `needed` members have it, or never will.
    pub(crate) fn is_decided(&self, needed: usize) -> bool {
        lock(&self.votes).are_decided(needed)
    }

    /// Waits until `needed` members have it or it is sure that they never will, for so long at most; the members that have said nothing then.
    pub(crate) fn wait(&self, needed: usize, timeout: Duration, spins: bool) -> u32 {
        // A caller that is at it now is done before a thread would be asleep.
        for _ in 0..if spins { SPINS } else { 1 } {
            if lock(&self.votes).are_decided(needed) {
                return 0;
            }
            (0..SPIN).for_each(|_| std::hint::spin_loop());
        }
        let mut votes = lock(&self.votes);
        votes.is_awaited = true;
        let (votes, late) = self
            .voted
            .wait_timeout_while(votes, timeout, |votes| !votes.are_decided(needed))
            .unwrap_or_else(PoisonError::into_inner);
        if late.timed_out() { votes.pending } else { 0 }
    }

    /// Reads the verdicts so far.
    pub(crate) fn read<T>(&self, read: impl FnOnce(&mut Votes) -> T) -> T {
        read(&mut lock(&self.votes))
    }
}

/// What is asked about a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Question {
    /// Whether it is there.
    There,
    /// Its value.
    Value,
    /// When it expires.
    Expiry,
    /// Its value, and when it expires.
    Pair,
}

/// What a store says of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Found {
    pub(crate) is_there: bool,
    /// Where it was asked for.
    pub(crate) expiry: Option<Expiry>,
}

impl Question {
    /// Asks a store. A value that is asked for goes to `value`, which is cleared before.
    ///
    /// # Errors
    /// The store's.
    #[inline]
    pub(crate) fn ask(self, store: &dyn Store, key: &[u8], value: &mut Vec<u8>) -> Result<Found> {
        let is_there = match self {
            Self::There => store.contains(key)?,
            Self::Value | Self::Pair => store.get_into(key, value)?,
            Self::Expiry => {
                let expiry = store.expiry(key)?;
                return Ok(Found { is_there: expiry.is_some(), expiry: expiry.flatten() });
            }
        };
        if self != Self::Pair || !is_there || !store.capabilities().expiry {
            return Ok(Found { is_there, expiry: None });
        }
        // One that has expired since its value was read is not there: without an expiry it would stay for ever.
        let expiry = store.expiry(key)?;
        Ok(Found { is_there: expiry.is_some(), expiry: expiry.flatten() })
    }
}

/// How a read came out.
pub(crate) struct Answer {
    pub(crate) value: Vec<u8>,
    pub(crate) found: Result<Found>,
    /// The member that says so.
    pub(crate) by: u32,
}

/// A read that one or several members were given; the first answer counts.
pub(crate) struct ReadOp {
    key: Vec<u8>,
    question: Question,
    /// Somebody has answered: who comes later does nothing.
    is_answered: AtomicBool,
    /// Members that were asked because others took long, and what they are paid from: who comes too late to do anything costs nothing.
    again: AtomicU32,
    allowance: Option<Arc<Allowance>>,
    state: Mutex<Reading>,
    told: Condvar,
}

struct Reading {
    answer: Option<Answer>,
    /// Members that have it and have not answered.
    open: usize,
    /// Somebody sleeps until it is answered.
    is_awaited: bool,
    /// A member could not read it.
    met_damage: bool,
}

impl ReadOp {
    pub(crate) fn new(key: &[u8], question: Question) -> Self {
        Self {
            key: key.to_vec(),
            question,
            is_answered: AtomicBool::new(false),
            again: AtomicU32::new(0),
            allowance: None,
            state: Mutex::new(Reading { answer: None, open: 0, is_awaited: false, met_damage: false }),
            told: Condvar::new(),
        }
    }

    /// One whose further members are paid from this.
    pub(crate) fn with(self, allowance: &Arc<Allowance>) -> Self {
        Self { allowance: Some(Arc::clone(allowance)), ..self }
    }

    /// This member is asked because others take long.
    pub(crate) fn ask_again(&self, member: u32) {
        self.again.fetch_or(member, Ordering::Relaxed);
    }

    /// One more member has it.
    pub(crate) fn open(&self) {
        lock(&self.state).open += 1;
    }

    /// Answers it by the store of a member, if nobody has.
    pub(crate) fn answer(&self, member: &Device) {
        let by = member.bit();
        let answer = (!self.is_answered.load(Ordering::Acquire)).then(|| {
            let mut value = Vec::new();
            let found = member.answer(self.question, &self.key, &mut value);
            Answer { value, found, by }
        });
        let mut state = lock(&self.state);
        state.open -= 1;
        let Some(answer) = answer else {
            drop(state);
            if self.again.load(Ordering::Relaxed) & by != 0 {
                self.allowance.iter().for_each(|allowance| allowance.give_back());
            }
            return;
        };
        state.met_damage |= matches!(answer.found, Err(Error::Corrupt { .. }));
        // An error counts where nobody has anything better.
        if state.answer.as_ref().is_none_or(|known| known.found.is_err() && answer.found.is_ok()) {
            self.is_answered.store(answer.found.is_ok(), Ordering::Release);
            state.answer = Some(answer);
        }
        self.tell(state);
    }

    /// Wakes who waits.
    fn tell(&self, state: MutexGuard<'_, Reading>) {
        let wakes = state.is_awaited;
        drop(state);
        if wakes {
            self.told.notify_all();
        }
    }

    /// A member that had it will not answer.
    pub(crate) fn give_up(&self) {
        let mut state = lock(&self.state);
        state.open -= 1;
        self.tell(state);
    }

    /// The first answer, if there is one by `until`; or none, where no member is left that could give one.
    pub(crate) fn wait(&self, until: Instant) -> Option<Answer> {
        let mut state = lock(&self.state);
        loop {
            let is_final = state.open == 0 || state.answer.as_ref().is_some_and(|answer| answer.found.is_ok());
            if is_final {
                return state.answer.take();
            }
            let now = Instant::now();
            if now >= until {
                return None;
            }
            state.is_awaited = true;
            state = self.told.wait_timeout(state, until - now).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Whether a member that was asked could not read it.
    pub(crate) fn met_damage(&self) -> bool {
        lock(&self.state).met_damage
    }

    /// Whether a member has it still.
    pub(crate) fn is_open(&self) -> bool {
        lock(&self.state).open != 0
    }
}
