//! A device: a store of its own, an operation log, a queue of commands, and the processor that executes them.
//!
//! The processor is whoever holds `exec`: the device's own thread, or a caller who finds it idle. It takes commands in the order of the queue.
//!
//! Persist order of a write: the log's entry, durable; then the device's store, durable; then `applied`, and the vote.
//!
//! Invariants
//! 1. Operations are executed in the order of their sequences, each once; a command is executed behind all that were queued before it. So a read sees every write
//!    that was queued before it.
//! 2. `applied` is the sequence up to which all is in the store. It never passes an operation that found no room while it is not known to be taken back (`holes`).
//! 3. A device that is not active answers no vote and no read; what is in its queue then is failed. One that is being filled is given operations, whose votes count for
//!    nothing, and what others have of each key in between.
//! 4. Nobody waits for `exec` while holding the queue. Who holds it looks at the queue when it has let it go.

mod processor;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

use lodestore_contract::{Error, Result, Store};
use lodestore_media::StoreDir;

use crate::command::{Command, Found, Question};
use crate::label::Label;
use crate::layout::{Member, MemberState};
use crate::lock;
use crate::oplog::OpLog;
use crate::planted::{Fault, Planted};
use crate::walk::shows_all;

/// What a device is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    /// It answers, and its votes count.
    Active,
    /// Nothing: it lacks something.
    Behind,
    /// Nothing, for good, or until it answers again.
    Failed,
    /// It lacks something still, and is given the group's operations already.
    Filling,
}

impl Use {
    fn of(byte: u8) -> Self {
        [Self::Active, Self::Behind, Self::Filling].into_iter().find(|used| *used as u8 == byte).unwrap_or(Self::Failed)
    }

    fn takes_commands(self) -> bool {
        matches!(self, Self::Active | Self::Filling)
    }
}

/// Why a device failed.
pub(crate) struct Failure {
    why: String,
    /// Since when it has not answered; none where it says itself that it cannot go on.
    late: Option<Instant>,
}

impl Failure {
    /// It did not answer in time: it may later.
    pub(crate) fn late(why: String) -> Self {
        Self { why, late: Some(Instant::now()) }
    }
}

impl<T: Into<String>> From<T> for Failure {
    fn from(why: T) -> Self {
        Self { why: why.into(), late: None }
    }
}

/// Most doublings of the time after which a device that failed for being late is used again.
const DOUBLINGS_MAX: u32 = 10;

/// The device.
pub(crate) struct Device {
    /// Its place in its group.
    pub(crate) index: usize,
    pub(crate) id: u64,
    store: Arc<dyn Store>,
    /// None where the group has one device: its store is the truth.
    log: Option<OpLog>,
    /// Held by the processor.
    exec: Mutex<()>,
    /// Operations that found no room, and may have to be done still.
    holes: Mutex<BTreeSet<u64>>,
    queue: Mutex<VecDeque<Command>>,
    ready: Condvar,
    /// Its own thread waits for something to do.
    sleeps: AtomicBool,
    /// Commands that are queued or being executed, and their bytes.
    depth: AtomicUsize,
    bytes: AtomicUsize,
    /// Commands that were executed, and what else its processor did meanwhile.
    progress: AtomicU64,
    /// When its own thread began with the command that it is at, in nanoseconds since it was made; 0 where it is at none.
    begun: AtomicU64,
    made: Instant,
    applied: AtomicU64,
    /// The last operation that was looked at.
    executed: AtomicU64,
    used: AtomicU8,
    /// How often it was taken out of use, or into it.
    changes: AtomicU64,
    /// Callers may be its processor.
    is_inline: bool,
    is_memory: bool,
    /// Its copy may lack pairs that no device could read: it cannot tell that a key is absent.
    has_gaps: AtomicBool,
    /// Its store was replaced by an older copy.
    is_older: AtomicBool,
    /// Its store was opened since the host's store was written.
    is_newer: AtomicBool,
    /// It has a thread. While the matrix is being opened none does, and callers do its work.
    has_thread: AtomicBool,
    stops: AtomicBool,
    /// Why it failed.
    failure: Mutex<Option<Failure>>,
    /// Another one is to take its place; changed under `failure`.
    is_replaced: AtomicBool,
    /// How often it was used again after it had failed for being late.
    recalls: AtomicU32,
    /// The owner was told that it failed.
    is_told: AtomicBool,
    planted: Planted,
    /// The open directory of its label. The path may name another device's directory by now.
    label: Option<StoreDir>,
    /// The stamp of the clean stop that the label named at the open; 0 for none.
    stamp: u64,
}

impl Device {
    /// A device at rest, of this state, whose store has all operations up to `applied`.
    pub(crate) fn new(
        index: usize,
        id: u64,
        store: Arc<dyn Store>,
        log: Option<OpLog>,
        is_inline: bool,
        is_memory: bool,
    ) -> Self {
        let record = log.as_ref().map(OpLog::record);
        let applied = record.map_or(0, |record| record.applied);
        let has_gaps = record.is_some_and(|record| record.has_gaps);
        Self {
            index,
            id,
            store,
            log,
            exec: Mutex::default(),
            holes: Mutex::default(),
            queue: Mutex::default(),
            ready: Condvar::new(),
            sleeps: AtomicBool::new(false),
            depth: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            progress: AtomicU64::new(0),
            begun: AtomicU64::new(0),
            made: Instant::now(),
            applied: AtomicU64::new(applied),
            executed: AtomicU64::new(applied),
            changes: AtomicU64::new(0),
            used: AtomicU8::new(Use::Behind as u8),
            is_inline,
            is_memory,
            has_gaps: AtomicBool::new(has_gaps),
            is_older: AtomicBool::new(false),
            is_newer: AtomicBool::new(false),
            has_thread: AtomicBool::new(false),
            stops: AtomicBool::new(false),
            failure: Mutex::default(),
            is_replaced: AtomicBool::new(false),
            recalls: AtomicU32::new(0),
            is_told: AtomicBool::new(false),
            planted: Planted::default(),
            label: None,
            stamp: 0,
        }
    }

    /// The same device with a fault.
    pub(crate) fn planted(self, planted: Planted) -> Self {
        Self { planted, ..self }
    }

    /// Returns the device with the directory of its label, which names this clean stop.
    pub(crate) fn labelled(self, label: Option<StoreDir>, stamp: u64) -> Self {
        Self { label, stamp, ..self }
    }

    /// The stamp of the clean stop that its label told of when it was opened; 0 of none.
    pub(crate) fn stamp(&self) -> u64 {
        self.stamp
    }

    /// Leaves a label of a clean stop, if there are labels; the stamp of it, else 0. Its store is closed.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn leave_stamp(&self, matrix: u64, stamp: u64) -> Result<u64> {
        let Some(directory) = &self.label else { return Ok(0) };
        Label { matrix, id: self.id, stamp, is_coming: false }.leave_in(directory).map(|()| stamp)
    }

    pub(crate) fn planted_is(&self, fault: Fault) -> bool {
        self.planted.is(fault)
    }

    /// Its bit in sets of members.
    pub(crate) fn bit(&self) -> u32 {
        1 << self.index
    }

    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Live keys: where it is active and at nothing exactly, else as its account has them, which may trail: who hangs is not asked.
    pub(crate) fn keys(&self) -> u64 {
        let exact = (self.is_active() && self.depth() == 0).then(|| self.store.len().ok()).flatten();
        exact.unwrap_or_else(|| self.store.stats().keys)
    }

    pub(crate) fn log(&self) -> Option<&OpLog> {
        self.log.as_ref()
    }

    pub(crate) fn is_inline(&self) -> bool {
        self.is_inline
    }

    /// Its medium answers in less time than waking a thread takes.
    pub(crate) fn is_memory(&self) -> bool {
        self.is_memory
    }

    /// Up to here everything is in its store.
    #[inline]
    pub(crate) fn applied(&self) -> u64 {
        self.applied.load(Ordering::Acquire)
    }

    /// It has looked at everything up to here.
    pub(crate) fn executed(&self) -> u64 {
        self.executed.load(Ordering::Acquire)
    }

    /// Whether it has looked at this operation, found no room for it, and it was neither taken back nor done since.
    pub(crate) fn lacks(&self, seq: u64) -> bool {
        lock(&self.holes).contains(&seq)
    }

    /// Keeps its processor from executing anything.
    pub(crate) fn hold(&self) -> Held<'_> {
        Held::new(self, lock(&self.exec))
    }

    /// Keeps its processor from executing anything. `None` where it is at something for longer than this.
    pub(crate) fn try_hold(&self, patience: Duration) -> Option<Held<'_>> {
        let begun = Instant::now();
        loop {
            match self.exec.try_lock() {
                Ok(exec) => return Some(Held::new(self, exec)),
                Err(TryLockError::Poisoned(poisoned)) => return Some(Held::new(self, poisoned.into_inner())),
                Err(TryLockError::WouldBlock) if begun.elapsed() >= patience => return None,
                Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_micros(50)),
            }
        }
    }

    /// Whether its processor is at one thing for longer than this.
    pub(crate) fn hangs(&self, patience: Duration) -> bool {
        loop {
            let progress = self.progress();
            if self.try_hold(patience).is_some() {
                return false;
            }
            if self.progress() == progress {
                return true;
            }
        }
    }

    /// Waits until nothing is queued at it. It fails where its processor is at one thing for longer than this.
    pub(crate) fn drain(&self, patience: Duration) {
        let (mut seen, mut since) = (self.progress(), Instant::now());
        while self.is_active() && self.depth() != 0 {
            self.urge();
            if self.has_thread.load(Ordering::Acquire) {
                std::thread::sleep(Duration::from_micros(50));
            }
            if self.progress() != seen {
                (seen, since) = (self.progress(), Instant::now());
            } else if since.elapsed() > patience {
                self.fail(format!("it did not answer in {} ms", patience.as_millis()));
            }
        }
    }

    /// Asks it about a key. `None` where it was not in use all the while.
    #[inline]
    pub(crate) fn ask_key(&self, question: Question, key: &[u8], value: &mut Vec<u8>) -> Option<Result<Found>> {
        self.ask(|_| self.answer(question, key, value))
    }

    /// Asks its store. `None` where it was not in use all the while: what was found may be that of a member that catches up.
    pub(crate) fn ask<T>(&self, ask: impl FnOnce(&dyn Store) -> T) -> Option<T> {
        let changes = self.changes.load(Ordering::Acquire);
        if !self.is_active() {
            return None;
        }
        let answer = ask(&*self.store);
        (self.is_active() && self.changes.load(Ordering::Acquire) == changes).then_some(answer)
    }

    /// Asks its store about a key. The caller makes sure that the device may answer.
    ///
    /// # Errors
    /// The store's; [`Error::Corrupt`] if the key is absent and the device cannot tell so.
    #[inline]
    pub(crate) fn answer(&self, question: Question, key: &[u8], value: &mut Vec<u8>) -> Result<Found> {
        let found = question.ask(&*self.store, key, value);
        let is_absent = matches!(&found, Ok(found) if !found.is_there);
        if is_absent && self.has_gaps() { Err(self.gap()) } else { found }
    }

    /// Whether its copy may lack pairs that no device could read.
    #[inline]
    pub(crate) fn has_gaps(&self) -> bool {
        self.has_gaps.load(Ordering::Acquire)
    }

    /// Says whether its copy may lack pairs. Its record says so already.
    pub(crate) fn set_gaps(&self, has_gaps: bool) {
        self.has_gaps.store(has_gaps, Ordering::Release);
    }

    /// The error of a key that its copy may lack.
    #[cold]
    pub(crate) fn gap(&self) -> Error {
        Error::corrupt(
            format!("device {}", self.index),
            "pairs that no device could read may be missing in its copy, this key's among them",
        )
    }

    /// Whether a walk over its store shows all of the group's pairs, except those that it reports
    /// as damaged.
    pub(crate) fn shows_all(&self) -> bool {
        !self.has_gaps() && shows_all(&*self.store)
    }

    /// Has the description name the store of its pairs.
    pub(crate) fn name_store(&self, member: &mut Member) {
        (member.store, member.opening) = (self.store.identity().unwrap_or(0), self.store.opening());
    }

    /// Notes that its store was replaced by an older copy, which a salvage takes.
    pub(crate) fn set_older(&self) {
        self.is_older.store(true, Ordering::Release);
    }

    /// Notes that its store was opened since the host's store was written: the host's is an older
    /// copy, or a process was killed.
    pub(crate) fn set_newer(&self) {
        self.is_newer.store(true, Ordering::Release);
    }

    /// Whether the host's store is older than its store.
    pub(crate) fn is_newer(&self) -> bool {
        self.is_newer.load(Ordering::Acquire)
    }

    /// Whether its store was replaced by an older copy.
    pub(crate) fn is_older(&self) -> bool {
        self.is_older.load(Ordering::Acquire)
    }

    /// Commands that are queued or being executed.
    #[inline]
    pub(crate) fn depth(&self) -> usize {
        self.depth.load(Ordering::Acquire)
    }

    /// Bytes of keys and values that wait for it.
    pub(crate) fn queued_bytes(&self) -> usize {
        self.bytes.load(Ordering::Acquire)
    }

    /// Goes on while it executes commands, or is held by who does something for it: where others wait and this stands still, it hangs.
    pub(crate) fn progress(&self) -> u64 {
        self.progress.load(Ordering::Acquire)
    }

    /// Whether its own thread has been at one command for longer than this.
    pub(crate) fn is_at_it_for(&self, patience: Duration) -> bool {
        let begun = self.begun.load(Ordering::Acquire);
        begun != 0 && self.made.elapsed().saturating_sub(Duration::from_nanos(begun)) > patience
    }

    fn used(&self) -> Use {
        Use::of(self.used.load(Ordering::Acquire))
    }

    #[inline]
    pub(crate) fn is_active(&self) -> bool {
        self.used.load(Ordering::Acquire) == Use::Active as u8
    }

    /// It is given operations though it lacks others.
    pub(crate) fn is_filling(&self) -> bool {
        self.used() == Use::Filling
    }

    pub(crate) fn state(&self) -> MemberState {
        match self.used() {
            Use::Active => MemberState::Active,
            Use::Behind | Use::Filling => MemberState::Behind,
            Use::Failed => MemberState::Failed,
        }
    }

    /// Whether it is in use, or may be by itself: when it has caught up, or answers again.
    pub(crate) fn may_serve(&self) -> bool {
        self.used() != Use::Failed || lock(&self.failure).as_ref().is_some_and(|failure| failure.late.is_some())
    }

    /// Why it failed, if it did.
    pub(crate) fn failure(&self) -> Option<String> {
        let failure = lock(&self.failure);
        let is_replaced = self.is_replaced.load(Ordering::Acquire);
        failure.as_ref().map(|failure| failure.why.clone()).or(is_replaced.then(|| "it is being replaced".into()))
    }

    /// Returns once why the device failed: whether it is only late, and the failure in words.
    pub(crate) fn news(&self) -> Option<(bool, String)> {
        let failure = lock(&self.failure).as_ref().map(|failure| (failure.late.is_some(), failure.why.clone()))?;
        (!self.is_told.swap(true, Ordering::AcqRel)).then_some(failure)
    }

    /// Takes it into use, or out of it, when a matrix is made or opened.
    pub(crate) fn set_state(&self, state: MemberState) {
        let to = match state {
            MemberState::Active => Use::Active,
            MemberState::Behind => Use::Behind,
            MemberState::Failed => Use::Failed,
        };
        self.change_use(to, |_| true);
    }

    /// It lacks something: out of use until it has caught up. A device that failed stays so.
    pub(crate) fn fall_behind(&self) {
        self.change_use(Use::Behind, Use::takes_commands);
    }

    /// It is given operations from now on, while it is given what came before them. False where it is not behind.
    pub(crate) fn begin_filling(&self) -> bool {
        self.change_use(Use::Filling, |used| used == Use::Behind)
    }

    /// It has caught up. False where it fell behind again or failed meanwhile.
    pub(crate) fn come_back(&self) -> bool {
        self.change_use(Use::Active, |used| used == Use::Filling)
    }

    /// Changes its use, from one that `from` allows; whether it did. Use and queue change together: what is queued is of one time of use.
    fn change_use(&self, to: Use, from: impl FnOnce(Use) -> bool) -> bool {
        let mut queue = lock(&self.queue);
        if !from(self.used()) {
            return false;
        }
        // Before the use, so that who finds the same count and it active again has seen one time of use.
        self.changes.fetch_add(1, Ordering::AcqRel);
        self.used.store(to as u8, Ordering::Release);
        let dropped = if to.takes_commands() { VecDeque::new() } else { std::mem::take(&mut *queue) };
        dropped.iter().for_each(|command| self.count_out(command));
        drop(queue);
        dropped.iter().for_each(|command| command.drop_by(self.bit()));
        true
    }

    /// Takes it out of use, and says why: for good, unless it was only late.
    pub(crate) fn fail(&self, why: impl Into<Failure>) {
        let why = why.into();
        let is_late = why.late.is_some();
        let mut kept = lock(&self.failure);
        let failure = kept.get_or_insert(why);
        failure.late = failure.late.filter(|_| is_late);
        // With the reason held: nobody recalls it in between, and leaves it failed without one.
        self.change_use(Use::Failed, |_| true);
    }

    /// Takes it out of use, since another one is to take its place.
    pub(crate) fn retire(&self) {
        let _failure = lock(&self.failure);
        self.is_replaced.store(true, Ordering::Release);
        self.change_use(Use::Failed, |_| true);
    }

    /// None takes its place: it catches up, unless it had failed.
    pub(crate) fn stay(&self) {
        let failure = lock(&self.failure);
        if self.is_replaced.swap(false, Ordering::AcqRel) && failure.is_none() {
            self.change_use(Use::Behind, |used| used == Use::Failed);
        }
    }

    /// Has it catch up, where it failed for being late and its processor has ended what it was at: after this time, and after twice as long each time that it happens again.
    pub(crate) fn recall(&self, after: Duration) {
        let mut failure = lock(&self.failure);
        let Some(late) = failure.as_ref().and_then(|failure| failure.late) else { return };
        let recalls = self.recalls.load(Ordering::Acquire);
        let is_due = !self.is_replaced.load(Ordering::Acquire)
            && late.elapsed() >= after.saturating_mul(1 << recalls.min(DOUBLINGS_MAX));
        // Who fails it for good waits for this, and is heard.
        if is_due && self.try_hold(Duration::ZERO).is_some() && self.change_use(Use::Behind, |used| used == Use::Failed)
        {
            *failure = None;
            self.is_told.store(false, Ordering::Release);
            self.recalls.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Queues a command. False where it is not in use: then nothing is queued.
    pub(crate) fn push(&self, command: Command) -> bool {
        let mut queue = lock(&self.queue);
        let is_given = match self.used() {
            Use::Active => true,
            Use::Filling => !matches!(command, Command::Read(_)),
            Use::Behind | Use::Failed => false,
        };
        if is_given {
            self.depth.fetch_add(1, Ordering::AcqRel);
            self.bytes.fetch_add(command.bytes(), Ordering::AcqRel);
            queue.push_back(command);
        }
        is_given
    }

    fn count_out(&self, command: &Command) {
        self.depth.fetch_sub(1, Ordering::AcqRel);
        self.bytes.fetch_sub(command.bytes(), Ordering::AcqRel);
    }

    /// Wakes its own thread, if it has one.
    pub(crate) fn wake(&self) {
        if self.has_thread.load(Ordering::Acquire) {
            self.rouse();
        }
    }

    /// Says that everything up to `applied` is in its store, and nothing is left to be done behind.
    pub(crate) fn set_applied(&self, applied: u64) {
        self.hold().set_executed(applied, &[]);
    }

    /// Says that everything up to `seq` is in its store, but for these.
    pub(crate) fn set_executed(&self, seq: u64, lacking: &[u64]) {
        self.hold().set_executed(seq, lacking);
    }
}

/// A device whose processor is kept from executing.
pub(crate) struct Held<'a> {
    _exec: MutexGuard<'a, ()>,
    /// Behind `exec`, so that it is dropped when that is free.
    rest: Rest<'a>,
}

/// Has done what was queued while its device was held.
struct Rest<'a>(&'a Device);

impl Drop for Rest<'_> {
    fn drop(&mut self) {
        if !lock(&self.0.queue).is_empty() {
            self.0.kick();
        }
    }
}

impl<'a> Held<'a> {
    fn new(device: &'a Device, exec: MutexGuard<'a, ()>) -> Self {
        Self { _exec: exec, rest: Rest(device) }
    }

    /// Says that what is queued waits for something else than the device.
    pub(crate) fn go_on(&self) {
        self.rest.0.progress.fetch_add(1, Ordering::AcqRel);
    }

    /// Says that everything up to `seq` is in its store, but for these.
    pub(crate) fn set_executed(&mut self, seq: u64, lacking: &[u64]) {
        self.go_on();
        *lock(&self.rest.0.holes) = lacking.iter().copied().collect();
        self.rest.0.pass(seq);
        self.rest.0.executed.store(seq, Ordering::Release);
    }
}
