//! Commands for devices, and their outcomes.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lodestore_contract::{Error, Expiry, Result, Store};

use crate::latency::Allowance;
use crate::lock;
use crate::operation::{Mutation, Operation};

/// Checks of a write's votes before the caller sleeps (`SPIN_CHECKS_COUNT`), and spin-loop hints
/// between two checks (`SPIN_HINTS_COUNT`). Together they last some microseconds.
const SPIN_CHECKS_COUNT: u32 = 20;
const SPIN_HINTS_COUNT: u32 = 8;

/// A command for a device.
#[derive(Clone)]
pub(crate) enum Command {
    Write(Arc<WriteOp>),
    Read(Arc<ReadOp>),
    /// Another member's pair of a key, for a filling device.
    Copy(Arc<Copied>),
}

/// Another member's pair of a key.
pub(crate) struct Copied {
    pub(crate) key: Vec<u8>,
    pub(crate) mutation: Mutation,
}

impl Command {
    /// Drops the command at this member: it will not be executed there.
    pub(crate) fn drop_by(&self, member: u32) {
        match self {
            Self::Write(op) => {
                op.vote(member, Vote::Failed);
            }
            Self::Read(op) => op.give_up(),
            Self::Copy(_) => {}
        }
    }

    /// Returns the bytes of key and value that the command holds in memory.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Write(op) => op.operation.key.len() + op.operation.mutation.bytes(),
            Self::Read(op) => op.key.len(),
            Self::Copy(copied) => copied.key.len() + copied.mutation.bytes(),
        }
    }
}

/// A member's vote on a write.
pub(crate) enum Vote {
    /// The member has the write durably; contains whether the key existed.
    Done(bool),
    /// The member had no space for the write, and its store is unchanged.
    Refused(Error),
    /// The member is out of use.
    Failed,
}

/// The votes on a write, as sets of members.
#[derive(Default)]
pub(crate) struct Votes {
    pub(crate) pending: u32,
    pub(crate) done: u32,
    pub(crate) refused: u32,
    pub(crate) failed: u32,
    /// Whether the key existed, as reported by the members in `done`.
    pub(crate) was_present: bool,
    pub(crate) refusal: Option<Error>,
    /// A thread sleeps until the votes are decided. The flag avoids a needless system call to wake
    /// it.
    is_awaited: bool,
}

impl Votes {
    /// Returns whether `needed` members have the write, or never will.
    fn are_decided(&self, needed: usize) -> bool {
        let done = self.done.count_ones() as usize;
        // If `needed` cannot be reached, all votes are awaited: the members that applied the write
        // must roll it back.
        done >= needed || self.pending == 0
    }
}

/// A write that is in progress in a group.
pub(crate) struct WriteOp {
    pub(crate) operation: Operation,
    /// The filter says that the key is absent.
    pub(crate) is_new: bool,
    /// The number of members that must apply the write.
    needed: usize,
    votes: Mutex<Votes>,
    voted: Condvar,
}

impl WriteOp {
    pub(crate) fn new(operation: Operation, members: u32, needed: usize, is_new: bool) -> Self {
        let votes = Votes { pending: members, ..Votes::default() };
        Self { operation, is_new, needed, votes: Mutex::new(votes), voted: Condvar::new() }
    }

    /// Records a member's vote; only its first one counts. Returns false if the member refused a
    /// write that enough others already applied.
    pub(crate) fn vote(&self, member: u32, vote: Vote) -> bool {
        let mut votes = lock(&self.votes);
        let has_quorum = votes.done.count_ones() as usize >= self.needed;
        let refuses_acknowledged = has_quorum && matches!(vote, Vote::Refused(_));
        if votes.pending & member == 0 {
            return true;
        }
        votes.pending &= !member;
        match vote {
            Vote::Done(was_present) => {
                votes.done |= member;
                votes.was_present |= was_present;
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
        !refuses_acknowledged
    }

    /// Returns whether `needed` members have the write, or never will.
    pub(crate) fn is_decided(&self, needed: usize) -> bool {
        lock(&self.votes).are_decided(needed)
    }

    /// Waits, for at most `timeout`, until `needed` members have the write or never will. Returns
    /// the members that have not voted by then.
    pub(crate) fn wait(&self, needed: usize, timeout: Duration, spins: bool) -> u32 {
        // A caller that is executing the write now finishes before a thread could fall asleep.
        for _ in 0..if spins { SPIN_CHECKS_COUNT } else { 1 } {
            if lock(&self.votes).are_decided(needed) {
                return 0;
            }
            (0..SPIN_HINTS_COUNT).for_each(|_| std::hint::spin_loop());
        }
        let mut votes = lock(&self.votes);
        votes.is_awaited = true;
        let (votes, late) = self
            .voted
            .wait_timeout_while(votes, timeout, |votes| !votes.are_decided(needed))
            .unwrap_or_else(PoisonError::into_inner);
        if late.timed_out() { votes.pending } else { 0 }
    }

    /// Gives access to the votes so far.
    pub(crate) fn read<T>(&self, read: impl FnOnce(&mut Votes) -> T) -> T {
        read(&mut lock(&self.votes))
    }
}

/// A query for a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Query {
    /// Whether it exists.
    Presence,
    /// Its value.
    Value,
    /// Its expiry.
    Expiry,
    /// Its value and its expiry.
    Pair,
}

/// A store's answer about a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Found {
    pub(crate) is_present: bool,
    /// Set if the query asked for the expiry.
    pub(crate) expiry: Option<Expiry>,
}

impl Query {
    /// Queries a store. The value, if requested, replaces the contents of `value`.
    ///
    /// # Errors
    /// Errors of the store.
    #[inline]
    pub(crate) fn run(self, store: &dyn Store, key: &[u8], value: &mut Vec<u8>) -> Result<Found> {
        let is_present = match self {
            Self::Presence => store.contains(key)?,
            Self::Value | Self::Pair => store.get_into(key, value)?,
            Self::Expiry => {
                let expiry = store.expiry(key)?;
                return Ok(Found { is_present: expiry.is_some(), expiry: expiry.flatten() });
            }
        };
        if self != Self::Pair || !is_present || !store.capabilities().expiry {
            return Ok(Found { is_present, expiry: None });
        }
        // A pair that expired after its value was read counts as absent: without an expiry it would
        // stay for ever.
        let expiry = store.expiry(key)?;
        Ok(Found { is_present: expiry.is_some(), expiry: expiry.flatten() })
    }
}

/// The outcome of a read.
pub(crate) struct Answer {
    pub(crate) value: Vec<u8>,
    pub(crate) found: Result<Found>,
    /// The member that answered.
    pub(crate) by: u32,
}

/// A read queued at one or more members; the first answer counts.
pub(crate) struct ReadOp {
    key: Vec<u8>,
    query: Query,
    /// A member has answered: later members do nothing.
    is_answered: AtomicBool,
    /// Members that were asked because others took long (`hedged_members`), and the budget for
    /// them. A member that does no work is refunded.
    hedged_members: AtomicU32,
    allowance: Option<Arc<Allowance>>,
    state: Mutex<Reading>,
    answered: Condvar,
}

struct Reading {
    answer: Option<Answer>,
    /// Members that have the read queued and have not answered.
    pending: usize,
    /// A thread sleeps until the read is answered.
    is_awaited: bool,
    /// A member could not read the key.
    met_damage: bool,
}

impl ReadOp {
    pub(crate) fn new(key: &[u8], query: Query) -> Self {
        Self {
            key: key.to_vec(),
            query,
            is_answered: AtomicBool::new(false),
            hedged_members: AtomicU32::new(0),
            allowance: None,
            state: Mutex::new(Reading { answer: None, pending: 0, is_awaited: false, met_damage: false }),
            answered: Condvar::new(),
        }
    }

    /// Returns the read with a budget for additional members.
    pub(crate) fn with(self, allowance: &Arc<Allowance>) -> Self {
        Self { allowance: Some(Arc::clone(allowance)), ..self }
    }

    /// Records that this member is asked because others take long.
    pub(crate) fn mark_hedged(&self, member: u32) {
        self.hedged_members.fetch_or(member, Ordering::Relaxed);
    }

    /// Counts one more member that has the read queued.
    pub(crate) fn add_pending(&self) {
        lock(&self.state).pending += 1;
    }

    /// Answers the read for the member `by`, if no member has answered. `read` reads the key from
    /// the member's store.
    pub(crate) fn answer(&self, by: u32, read: impl FnOnce(Query, &[u8], &mut Vec<u8>) -> Result<Found>) {
        let answer = (!self.is_answered.load(Ordering::Acquire)).then(|| {
            let mut value = Vec::new();
            let found = read(self.query, &self.key, &mut value);
            Answer { value, found, by }
        });
        let mut state = lock(&self.state);
        state.pending -= 1;
        let Some(answer) = answer else {
            drop(state);
            if self.hedged_members.load(Ordering::Relaxed) & by != 0 {
                self.allowance.iter().for_each(|allowance| allowance.refund());
            }
            return;
        };
        state.met_damage |= matches!(answer.found, Err(Error::Corrupt { .. }));
        // An error counts only until a member has a better answer.
        if state.answer.as_ref().is_none_or(|known| known.found.is_err() && answer.found.is_ok()) {
            self.is_answered.store(answer.found.is_ok(), Ordering::Release);
            state.answer = Some(answer);
        }
        self.wake_waiter(state);
    }

    /// Wakes the waiting thread.
    fn wake_waiter(&self, state: MutexGuard<'_, Reading>) {
        let wakes = state.is_awaited;
        drop(state);
        if wakes {
            self.answered.notify_all();
        }
    }

    /// Records that a member will not answer.
    pub(crate) fn give_up(&self) {
        let mut state = lock(&self.state);
        state.pending -= 1;
        self.wake_waiter(state);
    }

    /// Returns the first answer, if one arrives by `until`. Returns `None` early if no member is
    /// left that could answer.
    pub(crate) fn wait(&self, until: Instant) -> Option<Answer> {
        let mut state = lock(&self.state);
        loop {
            let is_final = state.pending == 0 || state.answer.as_ref().is_some_and(|answer| answer.found.is_ok());
            if is_final {
                return state.answer.take();
            }
            let now = Instant::now();
            if now >= until {
                return None;
            }
            state.is_awaited = true;
            state = self.answered.wait_timeout(state, until - now).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Returns whether a member that was asked could not read the key.
    pub(crate) fn met_damage(&self) -> bool {
        lock(&self.state).met_damage
    }

    /// Returns whether a member still has the read queued.
    pub(crate) fn is_pending(&self) -> bool {
        lock(&self.state).pending != 0
    }
}
