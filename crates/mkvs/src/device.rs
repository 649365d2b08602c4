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

mod hold;
mod processor;
#[cfg(test)]
mod tests;
mod usage;

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use lodestore_contract::{Error, Result, Store};
use lodestore_media::{PlantedFault, StoreDir};

use crate::command::{Command, Found, Query};
use crate::label::Label;
use crate::layout::Member;
use crate::lock;
use crate::oplog::OpLog;
use crate::planted::Planted;
use crate::walk::shows_all;

pub(crate) use hold::Held;
pub(crate) use usage::Failure;
use usage::Use;

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
    /// The store may have damaged pairs of deleted keys. Its count of keys may be too high, and its
    /// votes about their presence may be wrong.
    has_surplus: AtomicBool,
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
        let has_surplus = record.is_some_and(|record| record.has_surplus);
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
            has_surplus: AtomicBool::new(has_surplus),
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

    pub(crate) fn has_fault(&self, fault: PlantedFault) -> bool {
        self.planted.has_fault(fault)
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
                self.fail(format!("the device did not answer within {} ms", patience.as_millis()));
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

    /// Returns whether the store may have pairs that the group deleted.
    pub(crate) fn has_surplus(&self) -> bool {
        self.has_surplus.load(Ordering::Acquire)
    }

    /// Sets whether the copy may lack pairs. Call it while the device's record is changed likewise.
    pub(crate) fn set_gaps(&self, has_gaps: bool) {
        self.has_gaps.store(has_gaps, Ordering::Release);
    }

    /// Sets whether the store may have pairs that the group deleted. Call it while the device's
    /// record is changed likewise.
    pub(crate) fn set_surplus(&self, has_surplus: bool) {
        self.has_surplus.store(has_surplus, Ordering::Release);
    }

    /// Returns a number that each change of the device's use increases.
    pub(crate) fn use_changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Returns the store whose mark is the number of groups: the log's. A device without a log has
    /// no sequence to mark its pairs with.
    fn store_of_group_count(&self) -> &Arc<dyn Store> {
        self.log.as_ref().map_or(&self.store, OpLog::store)
    }

    /// Returns the number of groups that the device knows of.
    pub(crate) fn known_group_count(&self) -> u64 {
        self.store_of_group_count().mark().unwrap_or(0)
    }

    /// Stores the number of the matrix's groups in the device, durably, if the device knows of more
    /// or fewer. A description with fewer groups is then known to be an older copy.
    ///
    /// # Errors
    /// Errors of the store.
    pub(crate) fn set_group_count(&self, groups: usize) -> Result<()> {
        let groups = groups as u64;
        if self.known_group_count() == groups { Ok(()) } else { self.store_of_group_count().set_mark(groups) }
    }

    /// Returns the error for a key that the copy may lack.
    #[cold]
    pub(crate) fn gap_error(&self) -> Error {
        Error::corrupt(
            format!("device {}", self.index),
            "no device can tell whether this key exists, because the copy may lack pairs that no device could read: \
             put the key to give it a value (then it can be deleted), or verify the matrix while a device has all pairs",
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

    /// Notes that the store was opened after the host's store was last written: the host's store is
    /// an older copy, or a process was killed.
    pub(crate) fn set_newer(&self) {
        self.is_newer.store(true, Ordering::Release);
    }

    /// Returns whether the host's store is older than the device's store.
    pub(crate) fn is_newer(&self) -> bool {
        self.is_newer.load(Ordering::Acquire)
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
