//! A device of the model: its durable state, its queue and its processor.

use crate::protocol::history::ABSENT;

/// Members, as bits.
pub type Set = u8;

/// The state of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    Active,
    Behind,
    Failed,
    /// The member receives operations, and has no vote.
    Filling,
}

/// The effect of an operation on its key; values are numbers of writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mutation {
    Set(u8),
    Restore { aborts: u8, value: u8 },
    Void { aborts: u8 },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Operation {
    pub epoch: u8,
    pub seq: u8,
    pub key: u8,
    pub mutation: Mutation,
}

impl Operation {
    pub fn aborts(&self) -> Option<u8> {
        match self.mutation {
            Mutation::Set(_) => None,
            Mutation::Restore { aborts, .. } | Mutation::Void { aborts } => Some(aborts),
        }
    }

    /// The key's value after the operation.
    pub fn value(&self) -> Option<u8> {
        match self.mutation {
            Mutation::Set(value) | Mutation::Restore { value, .. } => Some(value),
            Mutation::Void { .. } => None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Command {
    Write(u8),
    Read(u8),
    /// Another member's value of a key.
    Copy {
        key: u8,
        value: u8,
    },
}

/// A write that the processor has dequeued.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Busy {
    pub seq: u8,
    pub is_logged: bool,
}

/// The result of an append.
#[derive(Debug, PartialEq, Eq)]
pub enum Append {
    Done,
    Full,
    /// The operation is not the next one.
    Gap,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Device {
    // Durable state.
    pub log: Vec<Operation>,
    /// Sequence number of the oldest entry in the log.
    pub first: u8,
    pub store: Vec<u8>,
    /// The device's record: applied, the epoch of an empty log, whether it is partial.
    pub saved: u8,
    pub saved_epoch: u8,
    pub is_partial: bool,
    /// There is no space for more values.
    pub is_full: bool,
    // Volatile state.
    pub is_lost: bool,
    pub state: State,
    pub applied: u8,
    pub executed: u8,
    /// Operations refused for lack of space, as bits.
    pub holes: u32,
    pub queue: Vec<Command>,
    pub busy: Option<Busy>,
}

impl Device {
    pub fn new(keys: usize) -> Self {
        Self {
            log: Vec::new(),
            first: 1,
            store: vec![ABSENT; keys],
            saved: 0,
            saved_epoch: 0,
            is_partial: false,
            is_full: false,
            is_lost: false,
            state: State::Active,
            applied: 0,
            executed: 0,
            holes: 0,
            queue: Vec::new(),
            busy: None,
        }
    }

    pub fn is_active(&self) -> bool {
        self.state == State::Active
    }

    /// Returns whether the device executes queued commands.
    pub fn accepts_commands(&self) -> bool {
        matches!(self.state, State::Active | State::Filling)
    }

    pub fn last(&self) -> u8 {
        self.first + self.log.len() as u8 - 1
    }

    pub fn read(&self, seq: u8) -> Option<Operation> {
        let at = seq.checked_sub(self.first)?;
        self.log.get(usize::from(at)).copied()
    }

    /// Returns the epoch of its last operation.
    pub fn last_epoch(&self) -> u8 {
        self.log.last().map_or(self.saved_epoch, |operation| operation.epoch)
    }

    /// Returns whether its queue and its processor are empty.
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.busy.is_none()
    }

    /// Appends an operation, durably, to a log of `slots` slots.
    pub fn append(&mut self, operation: Operation, applied: u8, slots: usize) -> Append {
        if operation.seq != self.last() + 1 {
            return Append::Gap;
        }
        while self.log.len() >= slots {
            if self.first > self.saved {
                if self.first > applied {
                    return Append::Full;
                }
                self.saved = applied;
            }
            self.log.remove(0);
            self.first += 1;
        }
        self.log.push(operation);
        Append::Done
    }

    /// Applies the operation to the store. Returns false if there is no space.
    pub fn apply(&mut self, operation: &Operation) -> bool {
        operation.value().is_none_or(|value| self.set(operation.key, value))
    }

    /// Sets the value of a key. Returns false if there is no space.
    pub fn set(&mut self, key: u8, value: u8) -> bool {
        let has_room = !self.is_full || value == ABSENT;
        if has_room {
            self.store[usize::from(key)] = value;
        }
        has_room
    }

    /// Records that operations up to `seq` were executed.
    pub fn advance_applied(&mut self, seq: u8) {
        self.executed = seq;
        self.applied = if self.holes == 0 { seq } else { self.holes.trailing_zeros() as u8 - 1 };
    }

    pub fn set_applied(&mut self, seq: u8) {
        self.holes = 0;
        self.advance_applied(seq);
    }

    /// Removes all operations after `last`.
    pub fn truncate(&mut self, last: u8) {
        self.saved = self.saved.min(last);
        while self.last() > last && self.log.pop().is_some() {}
    }

    /// Empties the log; the store is as of `applied`.
    pub fn restart(&mut self, applied: u8, epoch: u8) {
        self.log.clear();
        (self.first, self.saved, self.saved_epoch) = (applied + 1, applied, epoch);
    }

    /// Drops the volatile state.
    pub fn crash(&mut self) {
        self.state = State::Behind;
        self.queue.clear();
        self.busy = None;
        let saved = self.saved;
        self.set_applied(saved);
    }

    /// Replays the log entries after the record's `applied`. Returns the operations that did not
    /// fit.
    pub fn redo(&mut self, is_deep: bool) -> Vec<u8> {
        let (mut seen, mut refused) = (Vec::new(), Vec::new());
        let operations: Vec<_> = self.log.iter().filter(|operation| operation.seq > self.saved).copied().collect();
        let is_void =
            |seq| operations.iter().any(|later| matches!(later.mutation, Mutation::Void { aborts } if aborts == seq));
        for operation in operations.iter().rev() {
            let Some(value) = operation.value() else { continue };
            if is_void(operation.seq) || seen.contains(&operation.key) {
                continue;
            }
            if self.store[usize::from(operation.key)] != value && !self.apply(operation) {
                refused.push(operation.seq);
                if is_deep {
                    continue;
                }
            }
            seen.push(operation.key);
        }
        let last = self.last();
        self.set_applied(refused.iter().min().map_or(last, |first| first - 1));
        if refused.is_empty() {
            self.saved = last;
        }
        refused
    }
}
