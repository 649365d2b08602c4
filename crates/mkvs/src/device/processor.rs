//! A device's processor: whoever takes commands from its queue and executes them, its own thread or a caller (`device.rs` has the invariants).

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{PoisonError, TryLockError};

use lodestore_contract::Error;

use super::Device;
use crate::apply::{apply, is_refusal};
use crate::command::{Command, Copied, Vote, WriteOp};
use crate::lock;
use crate::operation::Operation;
use crate::planted::Fault;

/// Commands that a caller executes of others' before it goes on with its own work.
const CALLERS_MOST: usize = 256;
/// Operations for which a member that is being filled may have no room, before it falls behind.
const HOLES_MOST: usize = 256;

/// The command that a processor is at.
struct InHand<'a> {
    device: &'a Device,
    command: Command,
    is_done: bool,
}

impl Drop for InHand<'_> {
    fn drop(&mut self) {
        if !self.is_done {
            // Nobody knows what its store has.
            self.device.fail("its processor panicked");
        }
        self.device.count_out(&self.command);
        if !self.is_done {
            self.command.drop_by(self.device.bit());
        }
        // Last: who finds this as before, and something to do, finds it at the same thing.
        self.device.progress.fetch_add(1, Ordering::AcqRel);
    }
}

impl Device {
    /// Has what is queued executed: by this thread where that is allowed and the processor is idle, else by who is the processor.
    pub(crate) fn kick(&self) {
        if self.is_inline || !self.has_thread.load(Ordering::Acquire) {
            self.run_if_idle();
        } else {
            self.rouse();
        }
    }

    /// Has what is queued executed by its own thread, if it has one: not by this one, which would hang with it.
    pub(crate) fn urge(&self) {
        if self.has_thread.load(Ordering::Acquire) {
            self.rouse();
        } else {
            self.run_if_idle();
        }
    }

    /// Wakes its own thread if that sleeps, which is a system call. What is in the queue was put there before: so it sees that, or sleeps by now.
    pub(super) fn rouse(&self) {
        if self.sleeps.load(Ordering::Acquire) {
            self.ready.notify_one();
        }
    }

    /// Executes what is queued, if nobody does; false where somebody does, who will do all of it. With a thread of the device's own, so much of it as a caller has to.
    pub(crate) fn run_if_idle(&self) -> bool {
        let most = if self.has_thread.load(Ordering::Acquire) { CALLERS_MOST } else { usize::MAX };
        self.run_some(most)
    }

    fn run_some(&self, most: usize) -> bool {
        let mut left = most;
        loop {
            let exec = match self.exec.try_lock() {
                Ok(exec) => exec,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                // Whoever holds it looks at the queue again when it has let it go.
                Err(TryLockError::WouldBlock) => return false,
            };
            left = self.run(left);
            drop(exec);
            if lock(&self.queue).is_empty() {
                return true;
            }
            if left == 0 {
                // The rest is the thread's.
                self.rouse();
                return true;
            }
        }
    }

    /// Its own thread runs.
    pub(crate) fn start(&self) {
        self.has_thread.store(true, Ordering::Release);
    }

    /// The device's own thread: executes until the device is stopped.
    pub(crate) fn work(&self) {
        loop {
            let queue = lock(&self.queue);
            let idle = |queue: &mut VecDeque<Command>| {
                let is_idle = queue.is_empty() && !self.stops.load(Ordering::Acquire);
                // Under the queue's lock: whoever puts something into it later knows.
                self.sleeps.store(is_idle, Ordering::Release);
                is_idle
            };
            drop(self.ready.wait_while(queue, idle).unwrap_or_else(PoisonError::into_inner));
            if self.stops.load(Ordering::Acquire) {
                return;
            }
            if !self.run_some(usize::MAX) {
                // Somebody else is at it: wait for its end instead of spinning.
                drop(self.hold());
            }
        }
    }

    /// Ends the device's own thread, behind what it executes already. What is queued then is left as it is.
    pub(crate) fn stop(&self) {
        // Under the queue's lock, so that no thread is between its look and its wait.
        let queue = lock(&self.queue);
        self.stops.store(true, Ordering::Release);
        drop(queue);
        self.ready.notify_all();
    }

    /// Executes what is queued, `most` commands of it; how many more it would have. One at a time is taken: when the device fails, the others are told at once.
    fn run(&self, most: usize) -> usize {
        for left in (0..most).rev() {
            let Some(command) = lock(&self.queue).pop_front() else { return left + 1 };
            let mut hand = InHand { device: self, command, is_done: false };
            // Who chooses between queues looks at it; where callers do the work, nobody does.
            if !self.is_inline {
                self.begun.store((self.made.elapsed().as_nanos() as u64).max(1), Ordering::Release);
            }
            self.execute(&hand.command);
            self.begun.store(0, Ordering::Release);
            hand.is_done = true;
        }
        0
    }

    fn execute(&self, command: &Command) {
        if !self.used().takes_commands() {
            return command.drop_by(self.bit());
        }
        match command {
            Command::Write(op) => {
                let vote = self.write(op);
                // Taken out of use meanwhile: nobody counts on it any more.
                let vote = if self.used().takes_commands() { vote } else { Vote::Failed };
                // What is being filled does not vote. What it has no room for is taken back, where nobody has, or missing when it is to join; so much of that can only be missing.
                let lacks_much = self.is_filling() && lock(&self.holes).len() > HOLES_MOST;
                if !op.vote(self.bit(), vote) || lacks_much {
                    self.fall_behind();
                }
                // Last: who finds it done finds what came of it.
                self.executed.store(op.operation.seq, Ordering::Release);
            }
            Command::Read(op) => op.answer(self),
            Command::Copy(copied) => self.take_copy(copied),
        }
    }

    fn take_copy(&self, copied: &Copied) {
        match apply(&*self.store, &copied.key, &copied.mutation, false) {
            Ok(_) => {}
            Err(error) if is_refusal(&error) => self.fall_behind(),
            Err(error) => self.fail(error.to_string()),
        }
    }

    fn write(&self, op: &WriteOp) -> Vote {
        let operation = &op.operation;
        let apply = || apply(&*self.store, &operation.key, &operation.mutation, op.is_new);
        let early = self.planted.is(Fault::OpLogBehindStore).then(apply);
        if let Some(log) = &self.log {
            match log.append(operation, self.applied()) {
                Ok(()) => {}
                Err(error) if is_refusal(&error) => return self.refuse(operation, error),
                Err(error) => return self.fail_by(&error),
            }
        }
        // What it takes back was never done here. Who had no room for it, fell behind and came back has done it since.
        if operation.aborts().is_some_and(|aborts| lock(&self.holes).remove(&aborts)) {
            self.pass(operation.seq);
            return Vote::Done(false);
        }
        match early.unwrap_or_else(apply) {
            Ok(was_there) => {
                self.pass(operation.seq);
                Vote::Done(was_there)
            }
            Err(error) if is_refusal(&error) => self.refuse(operation, error),
            Err(error) => self.fail_by(&error),
        }
    }

    fn fail_by(&self, error: &Error) -> Vote {
        self.fail(error.to_string());
        Vote::Failed
    }

    fn refuse(&self, operation: &Operation, error: Error) -> Vote {
        lock(&self.holes).insert(operation.seq);
        self.pass(operation.seq);
        Vote::Refused(error)
    }

    pub(super) fn pass(&self, seq: u64) {
        let to = lock(&self.holes).first().map_or(seq, |hole| hole - 1);
        self.applied.store(to, Ordering::Release);
    }
}
