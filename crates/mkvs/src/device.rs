//! A device: a store of its own, an operation log, a queue of commands, and the processor that
//! executes them.
//!
//! The processor is the thread that holds `exec`: the device's own thread, or a caller that finds
//! the device idle. Commands are executed in queue order.
//!
//! Persist order of a write: the log entry, durable; then the device's store, durable; then
//! `applied`, and the vote.
//!
//! Invariants
//! 1. Operations are executed in the order of their sequence numbers, each once. A command is
//!    executed after all commands queued before it, therefore a read sees every write queued before
//!    it.
//! 2. `applied` is the sequence number up to which the store has everything. `applied` never passes
//!    an operation refused for lack of space (`holes`) until that operation is known to be rolled
//!    back.
//! 3. A device that is not active answers no vote and no read; its queued commands fail. A filling
//!    device receives operations, whose votes do not count, and copied pairs between them.
//! 4. No thread waits for `exec` while it holds the queue. The holder of `exec` checks the queue
//!    after it has released `exec`.

mod processor;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

use lodestore_contract::{Error, Result, Store};
use lodestore_media::StoreDir;

use crate::command::{Command, Found, Query};
use crate::label::Label;
use crate::layout::{Member, MemberState};
use crate::lock;
use crate::oplog::OpLog;
use crate::planted::{Fault, Planted};
use crate::walk::shows_all;

/// How a device is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    /// The device answers, and its votes count.
    Active,
    /// Unused, because it lacks operations.
    Behind,
    /// Unused for good, or until it answers again.
    Failed,
    /// The device still lacks operations, and already receives the group's new ones.
    Filling,
}

impl Use {
    fn of(byte: u8) -> Self {
        [Self::Active, Self::Behind, Self::Filling].into_iter().find(|used| *used as u8 == byte).unwrap_or(Self::Failed)
    }

    fn accepts_commands(self) -> bool {
        matches!(self, Self::Active | Self::Filling)
    }
}

/// Why a device failed.
pub(crate) struct Failure {
    why: String,
    /// When the device last failed to answer. `None` if the device itself reported that it cannot
    /// continue.
    late: Option<Instant>,
}

impl Failure {
    /// A failure to answer in time: the device may recover.
    pub(crate) fn late(why: String) -> Self {
        Self { why, late: Some(Instant::now()) }
    }
}

impl<T: Into<String>> From<T> for Failure {
    fn from(why: T) -> Self {
        Self { why: why.into(), late: None }
    }
}

/// Maximum doublings of the wait before a device that failed for being late is used again.
const DOUBLINGS_MAX: u32 = 10;

/// Time that a failed device's processor has to end its command. After that, the device is skipped.
pub(crate) const HANG_TIMEOUT: Duration = Duration::from_millis(100);

/// The device.
pub(crate) struct Device {
    /// The device's position in its group.
    pub(crate) index: usize,
    pub(crate) id: u64,
    store: Arc<dyn Store>,
    /// The operation log. `None` in a group of one device: its store is authoritative.
    log: Option<OpLog>,
    /// Held by the processor.
    exec: Mutex<()>,
    /// Operations refused for lack of space that may still have to be applied.
    holes: Mutex<BTreeSet<u64>>,
    queue: Mutex<VecDeque<Command>>,
    ready: Condvar,
    /// The device's own thread waits for a command.
    is_sleeping: AtomicBool,
    /// Commands that are queued or being executed, and their bytes (`bytes`).
    depth: AtomicUsize,
    bytes: AtomicUsize,
    /// Counts executed commands and other work of the processor.
    progress: AtomicU64,
    /// When the processor began its current command, in nanoseconds since `created`; 0 for none.
    /// Inline devices do not record it.
    begun: AtomicU64,
    created: Instant,
    applied: AtomicU64,
    /// The last operation that the processor executed, applied or refused.
    executed: AtomicU64,
    used: AtomicU8,
    /// Counts changes of `used`.
    changes: AtomicU64,
    /// Callers may execute the device's commands.
    is_inline: bool,
    is_memory: bool,
    /// The copy may lack pairs that no device could read: the device cannot confirm that a key is
    /// absent.
    has_gaps: AtomicBool,
    /// The store was replaced by an older copy.
    is_older: AtomicBool,
    /// The store was opened after the host's store was last written.
    is_newer: AtomicBool,
    /// The device has a thread. During the open of a matrix no device has one, and callers do the
    /// work.
    has_thread: AtomicBool,
    is_stopping: AtomicBool,
    /// Why the device failed.
    failure: Mutex<Option<Failure>>,
    /// Another device is to replace this one; changed under `failure`.
    is_being_replaced: AtomicBool,
    /// How often the device was used again after it had failed for being late.
    recalls: AtomicU32,
    /// The owner has received the event of the failure.
    is_failure_reported: AtomicBool,
    planted: Planted,
    /// The open directory of the label. The path may name another device's directory by now.
    label: Option<StoreDir>,
    /// The stamp of the clean stop that the label named at the open; 0 for none.
    stamp: u64,
}

impl Device {
    /// Creates an idle device in the state `behind`. `applied` comes from the log's record.
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
            is_sleeping: AtomicBool::new(false),
            depth: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            progress: AtomicU64::new(0),
            begun: AtomicU64::new(0),
            created: Instant::now(),
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
            is_stopping: AtomicBool::new(false),
            failure: Mutex::default(),
            is_being_replaced: AtomicBool::new(false),
            recalls: AtomicU32::new(0),
            is_failure_reported: AtomicBool::new(false),
            planted: Planted::default(),
            label: None,
            stamp: 0,
        }
    }

    /// Returns the device with a planted fault.
    pub(crate) fn planted(self, planted: Planted) -> Self {
        Self { planted, ..self }
    }

    /// Returns the device with the directory of its label, which names this clean stop.
    pub(crate) fn with_label(self, label: Option<StoreDir>, stamp: u64) -> Self {
        Self { label, stamp, ..self }
    }

    /// Returns the stamp of the clean stop that the label named at the open; 0 for none.
    pub(crate) fn stamp(&self) -> u64 {
        self.stamp
    }

    /// Writes a label of a clean stop, if labels are used. Returns its stamp, or 0 without a label.
    /// The store is closed already.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn write_stamp(&self, matrix: u64, stamp: u64) -> Result<u64> {
        let Some(directory) = &self.label else { return Ok(0) };
        Label { matrix, id: self.id, stamp, is_pending: false }.write_in(directory).map(|()| stamp)
    }

    pub(crate) fn planted_is(&self, fault: Fault) -> bool {
        self.planted.is(fault)
    }

    /// Returns the device's bit in sets of members.
    pub(crate) fn bit(&self) -> u32 {
        1 << self.index
    }

    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Returns the number of live keys: exact if the device is active and idle, else from its
    /// statistics, which may lag. A device that hangs is not asked.
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

    /// Returns whether the medium answers in less time than waking a thread needs.
    pub(crate) fn is_memory(&self) -> bool {
        self.is_memory
    }

    /// Returns the sequence number up to which the store has everything.
    #[inline]
    pub(crate) fn applied(&self) -> u64 {
        self.applied.load(Ordering::Acquire)
    }

    /// Returns the last operation that was executed, applied or refused.
    pub(crate) fn executed(&self) -> u64 {
        self.executed.load(Ordering::Acquire)
    }

    /// Returns whether the device refused this operation for lack of space, and the operation was
    /// neither rolled back nor applied since.
    pub(crate) fn lacks(&self, seq: u64) -> bool {
        lock(&self.holes).contains(&seq)
    }

    /// Keeps the processor from executing anything.
    pub(crate) fn hold(&self) -> Held<'_> {
        Held::new(self, lock(&self.exec))
    }

    /// Keeps the processor from executing anything. Returns `None` if the processor is busy for
    /// longer than `patience`.
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

    /// Returns whether the processor spends longer than `patience` on one command.
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

    /// Waits until the queue is empty. Fails the device if its processor makes no progress for
    /// `patience`.
    pub(crate) fn drain(&self, patience: Duration) {
        let (mut seen, mut since) = (self.progress(), Instant::now());
        while self.is_active() && self.depth() != 0 {
            self.kick_thread();
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

    /// Reads a key. Returns `None` if the device was not active throughout.
    #[inline]
    pub(crate) fn query_key(&self, query: Query, key: &[u8], value: &mut Vec<u8>) -> Option<Result<Found>> {
        self.query(|_| self.answer(query, key, value))
    }

    /// Queries the store. Returns `None` if the device was not active throughout: the answer may
    /// come from a member that is catching up.
    pub(crate) fn query<T>(&self, run: impl FnOnce(&dyn Store) -> T) -> Option<T> {
        let changes = self.changes.load(Ordering::Acquire);
        if !self.is_active() {
            return None;
        }
        let answer = run(&*self.store);
        (self.is_active() && self.changes.load(Ordering::Acquire) == changes).then_some(answer)
    }

    /// Reads a key from the store. The caller ensures that the device may answer.
    ///
    /// # Errors
    /// Errors of the store; [`Error::Corrupt`] if the key is absent and the device cannot confirm
    /// this.
    #[inline]
    pub(crate) fn answer(&self, query: Query, key: &[u8], value: &mut Vec<u8>) -> Result<Found> {
        let found = query.run(&*self.store, key, value);
        let is_absent = matches!(&found, Ok(found) if !found.is_present);
        if is_absent && self.has_gaps() { Err(self.gap_error()) } else { found }
    }

    /// Returns whether the copy may lack pairs that no device could read.
    #[inline]
    pub(crate) fn has_gaps(&self) -> bool {
        self.has_gaps.load(Ordering::Acquire)
    }

    /// Sets whether the copy may lack pairs. The device's record has the same value already.
    pub(crate) fn set_gaps(&self, has_gaps: bool) {
        self.has_gaps.store(has_gaps, Ordering::Release);
    }

    /// Returns the error for a key that the copy may lack.
    #[cold]
    pub(crate) fn gap_error(&self) -> Error {
        Error::corrupt(
            format!("device {}", self.index),
            "pairs that no device could read may be missing in its copy, this key's among them",
        )
    }

    /// Returns whether a walk over its store shows all of the group's pairs, except pairs that it
    /// reports as damaged.
    pub(crate) fn shows_all(&self) -> bool {
        !self.has_gaps() && shows_all(&*self.store)
    }

    /// Writes the identity of the store of pairs into the description's entry.
    pub(crate) fn record_store_identity(&self, member: &mut Member) {
        (member.store, member.opening) = (self.store.identity().unwrap_or(0), self.store.opening());
    }

    /// Notes that the store was replaced by an older copy, which a salvage uses.
    pub(crate) fn set_older(&self) {
        self.is_older.store(true, Ordering::Release);
    }

    /// Notes that the store was opened after the host's store was last written: the host's store is
    /// an older copy, or a process was killed.
    pub(crate) fn set_newer(&self) {
        self.is_newer.store(true, Ordering::Release);
    }

    /// Returns whether the host's store is older than the device's store.
    pub(crate) fn is_newer(&self) -> bool {
        self.is_newer.load(Ordering::Acquire)
    }

    /// Returns whether the store was replaced by an older copy.
    pub(crate) fn is_older(&self) -> bool {
        self.is_older.load(Ordering::Acquire)
    }

    /// Returns the number of commands that are queued or being executed.
    #[inline]
    pub(crate) fn depth(&self) -> usize {
        self.depth.load(Ordering::Acquire)
    }

    /// Returns the bytes of keys and values in the queue.
    pub(crate) fn queued_bytes(&self) -> usize {
        self.bytes.load(Ordering::Acquire)
    }

    /// Returns a counter that grows while the device executes commands, or while its holder works
    /// for it. If others wait and the counter does not grow, the device hangs.
    pub(crate) fn progress(&self) -> u64 {
        self.progress.load(Ordering::Acquire)
    }

    /// Returns whether the processor has spent longer than `patience` on its current command.
    pub(crate) fn is_busy_for(&self, patience: Duration) -> bool {
        let begun = self.begun.load(Ordering::Acquire);
        begun != 0 && self.created.elapsed().saturating_sub(Duration::from_nanos(begun)) > patience
    }

    fn used(&self) -> Use {
        Use::of(self.used.load(Ordering::Acquire))
    }

    #[inline]
    pub(crate) fn is_active(&self) -> bool {
        self.used.load(Ordering::Acquire) == Use::Active as u8
    }

    /// Returns whether the device receives operations although it lacks earlier ones.
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

    /// Returns whether the device is in use, or may return without help: after catch-up, or when it
    /// answers again.
    pub(crate) fn may_serve(&self) -> bool {
        self.used() != Use::Failed || lock(&self.failure).as_ref().is_some_and(|failure| failure.late.is_some())
    }

    /// Returns why the device failed, if it did.
    pub(crate) fn failure(&self) -> Option<String> {
        let failure = lock(&self.failure);
        let is_being_replaced = self.is_being_replaced.load(Ordering::Acquire);
        failure.as_ref().map(|failure| failure.why.clone()).or(is_being_replaced.then(|| "it is being replaced".into()))
    }

    /// Returns once why the device failed: whether it is only late, and the failure in words.
    pub(crate) fn take_failure_report(&self) -> Option<(bool, String)> {
        let failure = lock(&self.failure).as_ref().map(|failure| (failure.late.is_some(), failure.why.clone()))?;
        (!self.is_failure_reported.swap(true, Ordering::AcqRel)).then_some(failure)
    }

    /// Sets the state when a matrix is created or opened.
    pub(crate) fn set_state(&self, state: MemberState) {
        let to = match state {
            MemberState::Active => Use::Active,
            MemberState::Behind => Use::Behind,
            MemberState::Failed => Use::Failed,
        };
        self.change_use(to, |_| true);
    }

    /// Marks the device as behind until it has caught up. A failed device stays failed.
    pub(crate) fn fall_behind(&self) {
        self.change_use(Use::Behind, Use::accepts_commands);
    }

    /// Starts to accept new operations while earlier ones are still missing. Returns false if the
    /// device is not behind.
    pub(crate) fn begin_filling(&self) -> bool {
        self.change_use(Use::Filling, |used| used == Use::Behind)
    }

    /// Makes the device active after catch-up. Returns false if it fell behind again or failed
    /// meanwhile.
    pub(crate) fn become_active(&self) -> bool {
        self.change_use(Use::Active, |used| used == Use::Filling)
    }

    /// Changes the use if `from` allows the current one, and returns whether it did. Use and queue
    /// change together: all queued commands belong to one period of use.
    fn change_use(&self, to: Use, from: impl FnOnce(Use) -> bool) -> bool {
        let mut queue = lock(&self.queue);
        if !from(self.used()) {
            return false;
        }
        // Before the use: a reader that sees the same count and an active device has seen one
        // period of use.
        self.changes.fetch_add(1, Ordering::AcqRel);
        self.used.store(to as u8, Ordering::Release);
        let dropped = if to.accepts_commands() { VecDeque::new() } else { std::mem::take(&mut *queue) };
        dropped.iter().for_each(|command| self.uncount(command));
        drop(queue);
        dropped.iter().for_each(|command| command.drop_by(self.bit()));
        true
    }

    /// Takes the device out of use and records the reason. The failure is final unless the device
    /// was only late.
    pub(crate) fn fail(&self, why: impl Into<Failure>) {
        let why = why.into();
        let is_late = why.late.is_some();
        let mut kept = lock(&self.failure);
        let failure = kept.get_or_insert(why);
        failure.late = failure.late.filter(|_| is_late);
        // `failure` stays locked: no `recall` can clear the reason before the use changes.
        self.change_use(Use::Failed, |_| true);
    }

    /// Takes the device out of use because a replacement is starting.
    pub(crate) fn begin_replacement(&self) {
        let _failure = lock(&self.failure);
        self.is_being_replaced.store(true, Ordering::Release);
        self.change_use(Use::Failed, |_| true);
    }

    /// Cancels a replacement: the device catches up, unless it had failed.
    pub(crate) fn cancel_replacement(&self) {
        let failure = lock(&self.failure);
        if self.is_being_replaced.swap(false, Ordering::AcqRel) && failure.is_none() {
            self.change_use(Use::Behind, |used| used == Use::Failed);
        }
    }

    /// Lets a device that failed for being late catch up, once its processor is idle. The first
    /// wait is `after`; each repetition doubles it.
    pub(crate) fn recall(&self, after: Duration) {
        let mut failure = lock(&self.failure);
        let Some(late) = failure.as_ref().and_then(|failure| failure.late) else { return };
        let recalls = self.recalls.load(Ordering::Acquire);
        let is_due = !self.is_being_replaced.load(Ordering::Acquire)
            && late.elapsed() >= after.saturating_mul(1 << recalls.min(DOUBLINGS_MAX));
        // A concurrent permanent failure waits for this lock and then takes effect.
        if is_due && self.try_hold(Duration::ZERO).is_some() && self.change_use(Use::Behind, |used| used == Use::Failed)
        {
            *failure = None;
            self.is_failure_reported.store(false, Ordering::Release);
            self.recalls.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Queues a command. Returns false, without queueing, if the device is not in use.
    pub(crate) fn push(&self, command: Command) -> bool {
        let mut queue = lock(&self.queue);
        let is_accepted = match self.used() {
            Use::Active => true,
            Use::Filling => !matches!(command, Command::Read(_)),
            Use::Behind | Use::Failed => false,
        };
        if is_accepted {
            self.depth.fetch_add(1, Ordering::AcqRel);
            self.bytes.fetch_add(command.bytes(), Ordering::AcqRel);
            queue.push_back(command);
        }
        is_accepted
    }

    fn uncount(&self, command: &Command) {
        self.depth.fetch_sub(1, Ordering::AcqRel);
        self.bytes.fetch_sub(command.bytes(), Ordering::AcqRel);
    }

    /// Wakes the device's own thread, if it has one.
    pub(crate) fn wake(&self) {
        if self.has_thread.load(Ordering::Acquire) {
            self.notify_thread();
        }
    }

    /// Sets `applied`: the store has everything up to this sequence number, without holes.
    pub(crate) fn set_applied(&self, applied: u64) {
        self.hold().set_executed(applied, &[]);
    }

    /// Sets `executed` to `seq`: the store has everything up to `seq` except `lacking`.
    pub(crate) fn set_executed(&self, seq: u64, lacking: &[u64]) {
        self.hold().set_executed(seq, lacking);
    }
}

/// A device whose processor is kept from executing.
pub(crate) struct Held<'a> {
    _exec: MutexGuard<'a, ()>,
    /// Declared after `_exec`, and therefore dropped after `exec` is released.
    device: KickOnDrop<'a>,
}

/// Executes the commands queued while the device was held.
struct KickOnDrop<'a>(&'a Device);

impl Drop for KickOnDrop<'_> {
    fn drop(&mut self) {
        if !lock(&self.0.queue).is_empty() {
            self.0.kick();
        }
    }
}

impl<'a> Held<'a> {
    fn new(device: &'a Device, exec: MutexGuard<'a, ()>) -> Self {
        Self { _exec: exec, device: KickOnDrop(device) }
    }

    /// Reports progress: queued commands wait for another task, not for the device.
    pub(crate) fn report_progress(&self) {
        self.device.0.progress.fetch_add(1, Ordering::AcqRel);
    }

    /// Sets `executed` to `seq`: the store has everything up to `seq` except `lacking`.
    pub(crate) fn set_executed(&mut self, seq: u64, lacking: &[u64]) {
        self.report_progress();
        *lock(&self.device.0.holes) = lacking.iter().copied().collect();
        self.device.0.advance_applied(seq);
        self.device.0.executed.store(seq, Ordering::Release);
    }
}
