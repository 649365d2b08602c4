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
//! 3. A device that is not active answers no vote and no read; what is in its queue then is failed.
//! 4. Nobody waits for `exec` while holding the queue.

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use lodestore_contract::{Change, Error, Expiry, Result, Store};

use crate::command::{Command, Vote, WriteOp};
use crate::layout::{MemberState, Mutation, Operation};
use crate::lock;
use crate::oplog::OpLog;
use crate::planted::{Fault, Planted};

/// Most commands that a processor takes at a time.
const BATCH: usize = 64;

/// The processor's own.
#[derive(Default)]
pub(crate) struct Exec {
    /// Operations that found no room, and may have to be done still.
    holes: BTreeSet<u64>,
}

/// The device.
pub(crate) struct Device {
    /// Its place in its group.
    pub(crate) index: usize,
    pub(crate) id: u64,
    store: Arc<dyn Store>,
    /// None where the group has one device: its store is the truth.
    log: Option<OpLog>,
    exec: Mutex<Exec>,
    queue: Mutex<VecDeque<Command>>,
    ready: Condvar,
    /// Commands that are queued or being executed.
    depth: AtomicUsize,
    applied: AtomicU64,
    /// The last operation that was looked at.
    executed: AtomicU64,
    state: AtomicU8,
    /// How often it was taken out of use, or into it.
    changes: AtomicU64,
    /// Callers may be its processor.
    is_inline: bool,
    is_memory: bool,
    /// It has a thread. While the matrix is being opened none does, and callers do its work.
    has_thread: AtomicBool,
    stops: AtomicBool,
    /// Why it failed.
    failure: Mutex<Option<String>>,
    /// The owner was told that it failed.
    is_told: AtomicBool,
    planted: Planted,
}

/// Whether this refuses one write and says nothing of the device.
pub(crate) fn is_refusal(error: &Error) -> bool {
    matches!(error, Error::Full { .. } | Error::DramBudget { .. } | Error::IndexFull { .. })
}

/// Gives `key` this value; whether it was there.
///
/// # Errors
/// The store's.
pub(crate) fn put_told(
    store: &dyn Store,
    key: &[u8],
    value: &[u8],
    expiry: Option<Expiry>,
    is_new: bool,
) -> Result<bool> {
    if expiry.is_some() {
        let mut was_there = false;
        store.update_with(key, &mut |old| {
            was_there = old.is_some();
            Change::Put(value.to_vec(), expiry)
        })?;
        return Ok(was_there);
    }
    if is_new && store.insert(key, value)? {
        return Ok(false);
    }
    // Nobody else writes this key, but what expires goes by itself.
    loop {
        if store.update(key, value)? {
            return Ok(true);
        }
        if store.insert(key, value)? {
            return Ok(false);
        }
    }
}

/// Does to `store` what `mutation` says; whether the key was there.
///
/// # Errors
/// The store's.
pub(crate) fn apply(store: &dyn Store, key: &[u8], mutation: &Mutation, is_new: bool) -> Result<bool> {
    match mutation {
        Mutation::Put { value, expiry } | Mutation::Restore { value: Some((value, expiry)), .. } => {
            put_told(store, key, value, *expiry, is_new)
        }
        Mutation::Delete | Mutation::Restore { value: None, .. } => store.delete(key),
        Mutation::Lacking => Ok(false),
    }
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
        let applied = log.as_ref().map_or(0, |log| log.record().applied);
        Self {
            index,
            id,
            store,
            log,
            exec: Mutex::default(),
            queue: Mutex::default(),
            ready: Condvar::new(),
            depth: AtomicUsize::new(0),
            applied: AtomicU64::new(applied),
            executed: AtomicU64::new(applied),
            changes: AtomicU64::new(0),
            state: AtomicU8::new(MemberState::Behind as u8),
            is_inline,
            is_memory,
            has_thread: AtomicBool::new(false),
            stops: AtomicBool::new(false),
            failure: Mutex::default(),
            is_told: AtomicBool::new(false),
            planted: Planted::default(),
        }
    }

    /// The same device with a fault.
    pub(crate) fn planted(self, planted: Planted) -> Self {
        Self { planted, ..self }
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
        lock(&self.exec).holes.contains(&seq)
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

    /// Waits until what its processor is at is done. Where the device is not active, nothing is executed after it.
    pub(crate) fn wait_for_processor(&self) {
        drop(lock(&self.exec));
    }

    /// Commands that are queued or being executed.
    #[inline]
    pub(crate) fn depth(&self) -> usize {
        self.depth.load(Ordering::Acquire)
    }

    #[inline]
    pub(crate) fn is_active(&self) -> bool {
        self.state.load(Ordering::Acquire) == MemberState::Active as u8
    }

    pub(crate) fn state(&self) -> MemberState {
        match self.state.load(Ordering::Acquire) {
            0 => MemberState::Active,
            1 => MemberState::Behind,
            _ => MemberState::Failed,
        }
    }

    /// Why it failed, if it did.
    pub(crate) fn failure(&self) -> Option<String> {
        lock(&self.failure).clone()
    }

    /// Why it failed, once: for the owner.
    pub(crate) fn news(&self) -> Option<String> {
        let failure = self.failure()?;
        (!self.is_told.swap(true, Ordering::AcqRel)).then_some(failure)
    }

    /// Takes it into use, or out of it. What is queued is failed where it is not active any more.
    pub(crate) fn set_state(&self, state: MemberState) {
        self.change_state(state, |_| true);
    }

    /// It lacks something: out of use until it has caught up. A device that failed stays so.
    pub(crate) fn fall_behind(&self) {
        self.change_state(MemberState::Behind, |state| state == MemberState::Active);
    }

    /// It has caught up. False where it failed meanwhile.
    pub(crate) fn come_back(&self) -> bool {
        self.change_state(MemberState::Active, |state| state == MemberState::Behind)
    }

    /// Changes the state, from one that `from` allows; whether it did. State and queue change together: what is queued is of one time of use.
    fn change_state(&self, state: MemberState, from: impl FnOnce(MemberState) -> bool) -> bool {
        let mut queue = lock(&self.queue);
        if !from(self.state()) {
            return false;
        }
        // Before the state, so that who finds the same count and it active again has seen one time of use.
        self.changes.fetch_add(1, Ordering::AcqRel);
        self.state.store(state as u8, Ordering::Release);
        let dropped = if state == MemberState::Active { VecDeque::new() } else { std::mem::take(&mut *queue) };
        self.depth.fetch_sub(dropped.len(), Ordering::AcqRel);
        drop(queue);
        dropped.iter().for_each(|command| command.vote(self.bit(), Vote::Failed(None)));
        true
    }

    /// Takes it out of use for good, and says why.
    pub(crate) fn fail(&self, why: impl Into<String>) {
        lock(&self.failure).get_or_insert_with(|| why.into());
        self.set_state(MemberState::Failed);
    }

    /// Queues a command. False where it is not active: then nothing is queued.
    pub(crate) fn push(&self, command: Command) -> bool {
        let mut queue = lock(&self.queue);
        if !self.is_active() {
            return false;
        }
        self.depth.fetch_add(1, Ordering::AcqRel);
        queue.push_back(command);
        true
    }

    /// Has what is queued executed: by this thread where that is allowed and the processor is idle, else by who is the processor.
    pub(crate) fn kick(&self) {
        if self.is_inline || !self.has_thread.load(Ordering::Acquire) {
            self.run_if_idle();
        } else {
            self.ready.notify_one();
        }
    }

    /// Executes what is queued, if nobody does; false where somebody does, who will do all of it.
    pub(crate) fn run_if_idle(&self) -> bool {
        loop {
            let mut exec = match self.exec.try_lock() {
                Ok(exec) => exec,
                Err(std::sync::TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                // Whoever holds it looks at the queue again when it has let it go.
                Err(std::sync::TryLockError::WouldBlock) => return false,
            };
            self.run(&mut exec);
            drop(exec);
            if lock(&self.queue).is_empty() {
                return true;
            }
        }
    }

    /// Its own thread is about to run.
    pub(crate) fn start(&self) {
        self.has_thread.store(true, Ordering::Release);
    }

    /// The device's own thread: executes until the device is stopped.
    pub(crate) fn work(&self) {
        loop {
            let queue = lock(&self.queue);
            let idle = |queue: &mut VecDeque<Command>| queue.is_empty() && !self.stops.load(Ordering::Acquire);
            drop(self.ready.wait_while(queue, idle).unwrap_or_else(PoisonError::into_inner));
            if self.stops.load(Ordering::Acquire) {
                return;
            }
            if !self.run_if_idle() {
                // A caller is at it: wait for its end instead of spinning.
                drop(lock(&self.exec));
            }
        }
    }

    /// Ends the device's own thread, and fails what is queued.
    pub(crate) fn stop(&self) {
        // Under the queue's lock, so that no thread is between its look and its wait.
        let queue = lock(&self.queue);
        self.stops.store(true, Ordering::Release);
        drop(queue);
        self.ready.notify_all();
    }

    fn run(&self, exec: &mut Exec) {
        loop {
            let batch: Vec<Command> = {
                let mut queue = lock(&self.queue);
                let most = queue.len().min(BATCH);
                queue.drain(..most).collect()
            };
            if batch.is_empty() {
                return;
            }
            for command in batch {
                self.execute(exec, &command);
                self.depth.fetch_sub(1, Ordering::AcqRel);
            }
        }
    }

    fn execute(&self, exec: &mut Exec, command: &Command) {
        if !self.is_active() {
            return command.vote(self.bit(), Vote::Failed(None));
        }
        match command {
            Command::Write(op) => {
                let vote = self.write(exec, op);
                if let Vote::Failed(Some(error)) = &vote {
                    self.fail(error.to_string());
                }
                // Taken out of use meanwhile: nobody counts on it any more.
                let vote = if self.is_active() { vote } else { Vote::Failed(None) };
                if !op.vote(self.bit(), vote) {
                    self.fall_behind();
                }
                // Last: who finds it done finds what came of it.
                self.executed.store(op.operation.seq, Ordering::Release);
            }
            Command::Read(op) => op.answer(|key, value| self.store.get_into(key, value)),
        }
    }

    fn write(&self, exec: &mut Exec, op: &WriteOp) -> Vote {
        let operation = &op.operation;
        let apply = || apply(&*self.store, &operation.key, &operation.mutation, op.is_new);
        let early = self.planted.is(Fault::OpLogBehindStore).then(apply);
        if let Some(log) = &self.log {
            match log.append(operation, self.applied()) {
                Ok(()) => {}
                Err(error) if is_refusal(&error) => return self.refuse(exec, operation, error),
                Err(error) => return Vote::Failed(Some(error)),
            }
        }
        // What it takes back was never done here. Who had no room for it, fell behind and came back has done it since.
        if operation.aborts().is_some_and(|aborts| exec.holes.remove(&aborts)) {
            self.pass(exec, operation.seq);
            return Vote::Done(false);
        }
        match early.unwrap_or_else(apply) {
            Ok(was_there) => {
                self.pass(exec, operation.seq);
                Vote::Done(was_there)
            }
            Err(error) if is_refusal(&error) => self.refuse(exec, operation, error),
            Err(error) => Vote::Failed(Some(error)),
        }
    }

    fn refuse(&self, exec: &mut Exec, operation: &Operation, error: Error) -> Vote {
        exec.holes.insert(operation.seq);
        self.pass(exec, operation.seq);
        Vote::Refused(error)
    }

    fn pass(&self, exec: &Exec, seq: u64) {
        let to = exec.holes.first().map_or(seq, |hole| hole - 1);
        self.applied.store(to, Ordering::Release);
    }

    /// Says that everything up to `applied` is in its store, and nothing is left to be done behind.
    pub(crate) fn set_applied(&self, applied: u64) {
        self.set_executed(applied, &[]);
    }

    /// Says that everything up to `seq` is in its store, but for these.
    pub(crate) fn set_executed(&self, seq: u64, lacking: &[u64]) {
        let mut exec = lock(&self.exec);
        exec.holes = lacking.iter().copied().collect();
        self.pass(&exec, seq);
        self.executed.store(seq, Ordering::Release);
    }
}
