//! A device's processor: the thread that executes commands from its queue, the device's own thread
//! or a caller. The invariants are in `device.rs`.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{PoisonError, TryLockError};

use lodestore_contract::Error;

use super::Device;
use crate::apply::{apply, is_refusal};
use crate::command::{Command, Copied, Vote, WriteOp};
use crate::lock;
use crate::operation::Operation;
use crate::planted;

/// Maximum number of other callers' commands that a caller executes before it continues its own
/// work.
const CALLER_COMMANDS_MAX: usize = 256;
/// A filling member falls behind when it has refused more than this many operations for lack of
/// space.
const HOLES_MAX: usize = 256;

/// The command that a processor is executing.
struct Executing<'a> {
    device: &'a Device,
    command: Command,
    is_done: bool,
}

impl Drop for Executing<'_> {
    fn drop(&mut self) {
        if !self.is_done {
            // The contents of the store are unknown.
            self.device.fail("the thread of the device panicked");
        }
        self.device.uncount(&self.command);
        if !self.is_done {
            self.command.drop_by(self.device.bit());
        }
        // Last: an observer that sees an unchanged counter and pending work sees one command still
        // in execution.
        self.device.progress.fetch_add(1, Ordering::AcqRel);
    }
}

impl Device {
    /// Has queued commands executed: by this thread if that is allowed and the processor is idle,
    /// else by the current processor.
    pub(crate) fn kick(&self) {
        if self.is_inline || !self.has_thread.load(Ordering::Acquire) {
            self.run_if_idle();
        } else {
            self.notify_thread();
        }
    }

    /// Has queued commands executed by the device's own thread, if it has one. The calling thread
    /// must not hang with the device.
    pub(crate) fn kick_thread(&self) {
        if self.has_thread.load(Ordering::Acquire) {
            self.notify_thread();
        } else {
            self.run_if_idle();
        }
    }

    /// Wakes the device's thread if it sleeps (a system call). The caller has queued its command
    /// before. The thread therefore sees the command, or sleeps already.
    pub(super) fn notify_thread(&self) {
        if self.is_sleeping.load(Ordering::Acquire) {
            self.ready.notify_one();
        }
    }

    /// Executes queued commands if no other thread does. Returns false if another thread does; it
    /// then executes all of them. If the device has a thread, the caller executes at most
    /// `CALLER_COMMANDS_MAX` commands.
    pub(crate) fn run_if_idle(&self) -> bool {
        let max = if self.has_thread.load(Ordering::Acquire) { CALLER_COMMANDS_MAX } else { usize::MAX };
        self.run_some(max)
    }

    fn run_some(&self, max: usize) -> bool {
        let mut left = max;
        loop {
            let exec = match self.exec.try_lock() {
                Ok(exec) => exec,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                // The holder checks the queue again after it has released `exec`.
                Err(TryLockError::WouldBlock) => return false,
            };
            left = self.run(left);
            drop(exec);
            if lock(&self.queue).is_empty() {
                return true;
            }
            if left == 0 {
                // The device's thread executes the rest.
                self.notify_thread();
                return true;
            }
        }
    }

    /// Records that the device's own thread runs.
    pub(crate) fn start(&self) {
        self.has_thread.store(true, Ordering::Release);
    }

    /// The device's own thread: executes commands until the device is stopped.
    pub(crate) fn work(&self) {
        loop {
            let queue = lock(&self.queue);
            let idle = |queue: &mut VecDeque<Command>| {
                let is_idle = queue.is_empty() && !self.is_stopping.load(Ordering::Acquire);
                // Set under the queue's lock: any later `push` is followed by a check of this flag.
                self.is_sleeping.store(is_idle, Ordering::Release);
                is_idle
            };
            drop(self.ready.wait_while(queue, idle).unwrap_or_else(PoisonError::into_inner));
            if self.is_stopping.load(Ordering::Acquire) {
                return;
            }
            if !self.run_some(usize::MAX) {
                // Another thread is the processor: wait for it instead of spinning.
                drop(self.hold());
            }
        }
    }

    /// Ends the device's own thread after its current commands. Later commands stay in the queue.
    pub(crate) fn stop(&self) {
        // Under the queue's lock, because the thread must not be between its check and its wait.
        let queue = lock(&self.queue);
        self.is_stopping.store(true, Ordering::Release);
        drop(queue);
        self.ready.notify_all();
    }

    /// Executes at most `max` queued commands and returns how many of `max` are left. Commands
    /// leave the queue one at a time: if the device fails, the rest fails at once.
    fn run(&self, max: usize) -> usize {
        for left in (0..max).rev() {
            let Some(command) = lock(&self.queue).pop_front() else { return left + 1 };
            let mut executing = Executing { device: self, command, is_done: false };
            // Used to choose between queues. If callers do the work, nothing reads it.
            if !self.is_inline {
                self.begun.store((self.created.elapsed().as_nanos() as u64).max(1), Ordering::Release);
            }
            self.execute(&executing.command);
            self.begun.store(0, Ordering::Release);
            executing.is_done = true;
        }
        0
    }

    fn execute(&self, command: &Command) {
        if !self.used().accepts_commands() {
            return command.drop_by(self.bit());
        }
        match command {
            Command::Write(op) => {
                let vote = self.write(op);
                // The device was taken out of use meanwhile: its vote does not count.
                let vote = if self.used().accepts_commands() { vote } else { Vote::Failed };
                // A filling member does not vote. Each refused operation is later rolled back, or
                // is missing when the member wants to join. More than `HOLES_MAX` holes mean
                // missing operations.
                let has_too_many_holes = self.is_filling() && lock(&self.holes).len() > HOLES_MAX;
                if !op.vote(self.bit(), vote) || has_too_many_holes {
                    self.fall_behind();
                }
                // Last: a thread that sees the operation executed must see its result.
                self.executed.store(op.operation.seq, Ordering::Release);
            }
            Command::Read(op) => op.answer(self.bit(), |query, key, value| self.answer(query, key, value)),
            Command::Copy(copied) => self.apply_copy(copied),
        }
    }

    fn apply_copy(&self, copied: &Copied) {
        match apply(&*self.store, &copied.key, &copied.mutation, false) {
            Ok(_) => {}
            Err(error) if is_refusal(&error) => self.fall_behind(),
            Err(error) => self.fail(error.to_string()),
        }
    }

    fn write(&self, op: &WriteOp) -> Vote {
        let operation = &op.operation;
        let apply = || apply(&*self.store, &operation.key, &operation.mutation, op.is_new);
        let early = self.planted.has_fault(planted::OP_LOG_BEHIND_STORE).then(apply);
        if let Some(log) = &self.log {
            match log.append(operation, self.applied()) {
                Ok(()) => {}
                Err(error) if is_refusal(&error) => return self.record_refusal(operation, error),
                Err(error) => return self.fail_with(&error),
            }
        }
        // The operation to roll back was never applied here. A member that refused it, fell behind
        // and came back has applied it since.
        if operation.aborts().is_some_and(|aborts| lock(&self.holes).remove(&aborts)) {
            self.advance_applied(operation.seq);
            return Vote::Done(false);
        }
        match early.unwrap_or_else(apply) {
            Ok(was_present) => {
                self.advance_applied(operation.seq);
                Vote::Done(was_present)
            }
            Err(error) if is_refusal(&error) => self.record_refusal(operation, error),
            Err(error) => self.fail_with(&error),
        }
    }

    fn fail_with(&self, error: &Error) -> Vote {
        self.fail(error.to_string());
        Vote::Failed
    }

    fn record_refusal(&self, operation: &Operation, error: Error) -> Vote {
        lock(&self.holes).insert(operation.seq);
        self.advance_applied(operation.seq);
        Vote::Refused(error)
    }

    pub(super) fn advance_applied(&self, seq: u64) {
        let to = lock(&self.holes).first().map_or(seq, |hole| hole - 1);
        self.applied.store(to, Ordering::Release);
    }
}
