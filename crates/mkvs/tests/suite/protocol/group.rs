//! The group of the model: the host's description, the sequencer, writes in progress, and the
//! clients.

use std::collections::BTreeMap;

use crate::protocol::catchup::Catch;
use crate::protocol::device::{Append, Busy, Command, Device, Mutation, Operation, Set, State};
use crate::protocol::history::{ABSENT, CLIENTS, Fault, History};
use crate::protocol::rules::{Acks, Bounds, Rules};

/// Violations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Wrong {
    /// A client received an answer that no order of effects explains.
    Stale,
    /// A deleted key existed again.
    CameBack,
    /// A refused write was seen.
    RefusedSeen,
    /// An acknowledged write is missing when the group is open again.
    Lost,
    /// An operation was to be logged that is not the next one.
    Gap,
    /// All devices were available, and the group could not be opened.
    NotOpened,
}

/// Votes on a write, as sets of members.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct WriteOp {
    pub operation: Operation,
    pub needed: usize,
    pub done_by: Set,
    pub pending: Set,
    pub done: Set,
    pub refused: Set,
    pub failed: Set,
}

impl WriteOp {
    pub fn is_decided(&self, needed: usize) -> bool {
        self.done.count_ones() as usize >= needed || self.pending == 0
    }
}

/// A member's vote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Vote {
    Done,
    Refused,
    Failed,
}

/// The present action of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Client {
    Idle,
    /// `seq` is the sequence number of its write; `restore` the one of its rollback.
    Writing {
        key: u8,
        write: u8,
        seq: u8,
        restore: Option<u8>,
    },
    /// The client reads the store of `direct` itself, or waits for a member that has its read
    /// queued.
    Reading {
        key: u8,
        direct: Option<u8>,
    },
}

/// The description of the group, durable in the host.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Host {
    pub epoch: u8,
    /// Epochs with their first sequence numbers.
    pub epochs: Vec<(u8, u8)>,
    pub states: Vec<State>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Phase {
    Serving,
    Stopped,
    /// Members that still have to follow the leader; operations to be rolled back, with the members
    /// that lack them.
    Following {
        members: Vec<u8>,
        refused: Vec<(u8, Set)>,
    },
    /// The operation that rolls back the first of `refused`, once it has a number.
    Voiding {
        refused: Vec<(u8, Set)>,
        seq: Option<u8>,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Group {
    pub devices: Vec<Device>,
    pub host: Host,
    pub phase: Phase,
    // The sequencer.
    pub next: u8,
    pub epoch: u8,
    pub active: Vec<u8>,
    pub ops: BTreeMap<u8, WriteOp>,
    /// The last operation of each key's stripe.
    pub stripes: Vec<u8>,
    /// Each key's last in-doubt write (`undecided`), and the last acknowledged operation
    /// (`acknowledged`).
    pub undecided: Vec<u8>,
    pub acknowledged: u8,
    pub clients: [Client; CLIENTS],
    pub catching: Option<Catch>,
    // Observations, and events that may still happen.
    pub histories: Vec<History>,
    pub wrong: Option<Wrong>,
    pub written: u8,
    pub left: Bounds,
    /// The device that may be lost while the host is stopped.
    pub unlucky: Option<u8>,
    /// Devices that had failed when the host stopped.
    pub broken: Set,
    /// The pairs were not compared with the clients' answers since the open.
    pub is_unchecked: bool,
}

impl Group {
    pub fn new(devices: usize, keys: usize, left: Bounds) -> Self {
        Self {
            devices: (0..devices).map(|_| Device::new(keys)).collect(),
            host: Host { epoch: 1, epochs: vec![(1, 1)], states: vec![State::Active; devices] },
            phase: Phase::Serving,
            next: 1,
            epoch: 1,
            active: (0..devices as u8).collect(),
            ops: BTreeMap::new(),
            stripes: vec![0; keys],
            undecided: vec![0; keys],
            acknowledged: 0,
            clients: [Client::Idle; CLIENTS],
            catching: None,
            histories: vec![History::new(); keys],
            wrong: None,
            written: 0,
            left,
            unlucky: None,
            broken: 0,
            is_unchecked: false,
        }
    }

    pub fn last(&self) -> u8 {
        self.next - 1
    }

    pub fn device(&mut self, index: u8) -> &mut Device {
        &mut self.devices[usize::from(index)]
    }

    pub fn note(&mut self, found: Result<(), Fault>, lost: Wrong) {
        match found {
            Ok(()) => {}
            Err(Fault::CameBack) => self.wrong = Some(Wrong::CameBack),
            Err(Fault::Stale) => self.wrong = Some(lost),
        }
    }

    /// Records a member's vote. Returns false if the member refused a write that enough others have
    /// applied.
    pub fn vote(&mut self, seq: u8, member: u8, vote: Vote) -> bool {
        let Some(op) = self.ops.get_mut(&seq) else { return true };
        let bit = 1 << member;
        let stands = op.done.count_ones() as usize >= op.needed;
        if op.pending & bit == 0 {
            return true;
        }
        op.pending &= !bit;
        match vote {
            Vote::Done => op.done |= bit,
            Vote::Refused => op.refused |= bit,
            Vote::Failed => op.failed |= bit,
        }
        !(stands && vote == Vote::Refused)
    }

    /// Takes a member out of use: its queued commands fail.
    pub fn set_out(&mut self, member: u8, state: State) {
        self.device(member).state = state;
        for command in std::mem::take(&mut self.device(member).queue) {
            if let Command::Write(seq) = command {
                self.vote(seq, member, Vote::Failed);
            }
        }
    }

    /// Makes the active members durable as a new epoch, if they are enough.
    pub fn record_members(&mut self, rules: &Rules, is_new: bool) {
        if self.is_enough(rules) {
            self.write_epoch(rules, is_new);
        }
    }

    /// Makes any number of active members durable as a new epoch. Returns false if there are none.
    pub fn write_epoch(&mut self, rules: &Rules, is_new: bool) -> bool {
        if rules.said_by_sequencer && self.active.is_empty() {
            return false;
        }
        let said = |member: u8| match self.index(member).state {
            // A member that failed or fell behind since is removed once the others have everything.
            _ if rules.said_by_sequencer && self.active.contains(&member) => State::Active,
            State::Filling => State::Behind,
            state => state,
        };
        self.host.states = (0..self.devices.len() as u8).map(said).collect();
        if is_new {
            self.epoch += 1;
            let next = self.next;
            self.host.epoch = self.epoch;
            self.host.epochs.retain(|(_, first)| *first < next);
            self.host.epochs.push((self.epoch, next));
        }
        true
    }

    /// As [`remove_inactive_members`](Self::remove_inactive_members), if the sequencer is free.
    pub fn settle(&mut self, rules: &Rules) -> Option<()> {
        if self.is_held(rules) { None } else { self.remove_inactive_members(rules) }
    }

    /// Removes members that failed or fell behind. `None` if the removal has to wait.
    pub fn remove_inactive_members(&mut self, rules: &Rules) -> Option<()> {
        if self.active.iter().all(|member| self.devices[usize::from(*member)].is_active()) {
            return Some(());
        }
        let left: Vec<u8> =
            self.active.iter().copied().filter(|member| self.devices[usize::from(*member)].is_active()).collect();
        let needed = rules.acks.needed(self.devices.len(), left.len());
        let last = self.last();
        let whole = left.iter().filter(|member| self.devices[usize::from(**member)].executed >= last).count();
        if rules.whole_before_out && left.len() >= needed && whole < needed {
            return None;
        }
        self.active = left;
        self.record_members(rules, true);
        Some(())
    }

    /// Gives a mutation the next number and queues it. Outer `None`: it has to wait; inner: too few
    /// members.
    pub fn submit(&mut self, rules: &Rules, key: u8, mutation: Mutation, done_by: Set) -> Option<Option<u8>> {
        self.settle(rules)?;
        let needed = rules.acks.needed(self.devices.len(), self.active.len());
        if self.active.len() < needed {
            return Some(None);
        }
        let seq = self.next;
        self.next += 1;
        let operation = Operation { epoch: self.epoch, seq, key, mutation };
        let is_filling = |member: &u8| self.index(*member).state == State::Filling;
        let filling: Vec<u8> = (0..self.devices.len() as u8).filter(is_filling).collect();
        let voters = self.active.iter().chain(filling.iter().filter(|_| !rules.filling_mute));
        let pending = voters.fold(0, |set, member| set | 1 << member);
        self.ops.insert(seq, WriteOp { operation, needed, done_by, pending, done: 0, refused: 0, failed: 0 });
        for member in self.active.clone() {
            if self.devices[usize::from(member)].is_active() {
                self.device(member).queue.push(Command::Write(seq));
            } else {
                self.vote(seq, member, Vote::Failed);
            }
        }
        for member in filling.into_iter().filter(|_| rules.filling_fed) {
            self.device(member).queue.push(Command::Write(seq));
        }
        Some(Some(seq))
    }

    /// A client's write: its key's stripe, its number, the queues.
    pub fn write(&mut self, rules: &Rules, client: usize, key: u8, is_delete: bool) -> Option<()> {
        self.settle(rules)?;
        self.written += 1;
        let write = self.written;
        let seq = self.submit(rules, key, Mutation::Set(if is_delete { ABSENT } else { write }), 0)??;
        self.histories[usize::from(key)].write(write, is_delete);
        self.stripes[usize::from(key)] = seq;
        self.clients[client] = Client::Writing { key, write, seq, restore: None };
        Some(())
    }

    /// The client's step after its write, or the rollback, is decided.
    pub fn finish(&mut self, rules: &Rules, client: usize) -> Option<()> {
        let Client::Writing { key, write, seq, restore } = self.clients[client] else { return None };
        let op = self.ops.get(&restore.unwrap_or(seq))?.clone();
        if !op.is_decided(if restore.is_some() { usize::MAX } else { op.needed }) {
            return None;
        }
        if op.failed != 0 {
            self.settle(rules)?;
        }
        if restore.is_some() {
            return self.finish_restore(rules, client, key, write, &op);
        }
        // No member is removed between a refusal and the marking of the refusing members.
        if op.refused != 0 && self.is_held(rules) {
            return None;
        }
        let failed = op.failed.count_ones() as usize;
        let needed = if rules.acks == Acks::All { op.needed.saturating_sub(failed).max(1) } else { op.needed };
        let done = if rules.live_votes { op.done & self.live() } else { op.done };
        if done.count_ones() as usize + self.count_rejoined(rules, &op) >= needed {
            self.set_behind(op.refused);
            self.histories[usize::from(key)].acknowledge(write);
            self.decide(seq);
        } else if op.pending != 0 && rules.waits_for_pending {
            // Another member may apply it in place of the removed one.
            return Some(());
        } else if op.refused != 0 {
            return self.roll_back(rules, client, &op);
        }
        self.clients[client] = Client::Idle;
        Some(())
    }

    /// Returns how many members have a write that was not queued at them, after all votes: they
    /// have come back since.
    fn count_rejoined(&self, rules: &Rules, op: &WriteOp) -> usize {
        if op.done == 0 || op.pending != 0 || op.refused != 0 {
            return 0;
        }
        let seq = op.operation.seq;
        let submitted = op.done | op.failed;
        let has = |member: &u8| {
            let device = self.index(*member);
            device.applied >= seq && device.holes & (1 << seq) == 0
        };
        let is_in = |member: &u8| {
            let is_filling = !rules.joined_is_in && self.index(*member).state == State::Filling;
            is_filling || self.live() & (1 << member) != 0
        };
        let others = (0..self.devices.len() as u8).filter(|member| submitted & (1 << member) == 0);
        others.filter(is_in).filter(has).count()
    }

    /// Returns whether enough members are in use for a write.
    pub fn is_enough(&self, rules: &Rules) -> bool {
        self.active.len() >= rules.acks.needed(self.devices.len(), self.active.len())
    }

    /// Returns the members in use.
    pub fn live_members(&self) -> impl Iterator<Item = u8> {
        self.active.iter().copied().filter(|member| self.index(*member).is_active())
    }

    fn live(&self) -> Set {
        self.live_members().fold(0, |set, member| set | 1 << member)
    }

    pub fn set_behind(&mut self, members: Set) {
        for member in (0..self.devices.len() as u8).filter(|member| members & (1 << member) != 0) {
            if self.devices[usize::from(member)].state != State::Failed {
                self.set_out(member, State::Behind);
            }
        }
    }

    /// Rolls back a write that too many members had no space for.
    fn roll_back(&mut self, rules: &Rules, client: usize, op: &WriteOp) -> Option<()> {
        let Client::Writing { key, write, seq, .. } = self.clients[client] else { return None };
        let is_keeper = |member: &usize| {
            let device = &self.devices[*member];
            let lacks = !rules.holes_decide || device.holes & (1 << seq) != 0;
            op.refused & (1 << member) != 0 && device.is_active() && lacks
        };
        let keeper = (0..self.devices.len()).find(is_keeper);
        let mutation = match keeper {
            Some(keeper) if op.done != 0 || rules.restores_always => {
                Mutation::Restore { aborts: seq, value: self.devices[keeper].store[usize::from(key)] }
            }
            None if (op.done != 0 || rules.restores_always) && rules.keeper_needed => {
                self.set_behind(op.refused);
                self.settle(rules)?;
                self.clients[client] = Client::Idle;
                return Some(());
            }
            _ => Mutation::Void { aborts: seq },
        };
        let submitted = self.submit(rules, key, mutation, if op.done == 0 { Set::MAX } else { op.refused })?;
        let Some(restore) = submitted else {
            if rules.refused_are_behind {
                self.set_behind(op.refused);
                self.settle(rules)?;
            }
            self.clients[client] = Client::Idle;
            return Some(());
        };
        self.stripes[usize::from(key)] = restore;
        self.clients[client] = Client::Writing { key, write, seq, restore: Some(restore) };
        Some(())
    }

    fn finish_restore(&mut self, rules: &Rules, client: usize, key: u8, write: u8, op: &WriteOp) -> Option<()> {
        self.set_behind(op.refused);
        let all = op.done | op.refused | op.failed;
        let live = (all.count_ones() - op.refused.count_ones()) as usize;
        let live = if rules.live_votes { (op.done & self.live()).count_ones() as usize } else { live };
        if live >= op.needed {
            let found = self.histories[usize::from(key)].refuse(write);
            self.note(found, Wrong::RefusedSeen);
        }
        self.clients[client] = Client::Idle;
        Some(())
    }

    /// A step of a device's processor: the next command, its log entry, or its effect and the
    /// vote.
    pub fn step(&mut self, rules: &Rules, member: u8) -> Option<()> {
        if self.is_resting(rules, member) {
            return None;
        }
        let device = self.device(member);
        let Some(busy) = device.busy else {
            if !device.accepts_commands() || device.queue.is_empty() {
                return None;
            }
            match device.queue.remove(0) {
                Command::Write(seq) => device.busy = Some(Busy { seq, is_logged: false }),
                Command::Read(client) => self.answer(usize::from(client), member),
                Command::Copy { key, value } => {
                    if !device.set(key, value) {
                        self.set_out(member, State::Behind);
                    }
                }
            }
            if !rules.slow_takes && self.devices[usize::from(member)].busy.is_some() {
                return self.step(rules, member);
            }
            return Some(());
        };
        let op = self.ops.get(&busy.seq)?.clone();
        if !busy.is_logged {
            let device = self.device(member);
            let applied = device.applied;
            match device.append(op.operation, applied, rules.slots) {
                Append::Done => device.busy = Some(Busy { is_logged: true, ..busy }),
                Append::Full => self.refuse(rules, member, busy.seq),
                Append::Gap => self.wrong = Some(Wrong::Gap),
            }
            return Some(());
        }
        let device = self.device(member);
        let lacks = op.operation.aborts().is_some_and(|aborts| device.holes & (1 << aborts) != 0);
        let is_done = if rules.holes_decide { lacks } else { op.done_by & (1 << member) != 0 };
        if is_done {
            if let Some(aborts) = op.operation.aborts() {
                device.holes &= !(1 << aborts);
            }
        } else if !device.apply(&op.operation) {
            self.refuse(rules, member, busy.seq);
            return Some(());
        }
        self.device(member).advance_applied(busy.seq);
        self.end(rules, member, busy.seq, Vote::Done);
        Some(())
    }

    fn refuse(&mut self, rules: &Rules, member: u8, seq: u8) {
        let device = self.device(member);
        device.holes |= 1 << seq;
        device.advance_applied(seq);
        self.end(rules, member, seq, Vote::Refused);
    }

    fn end(&mut self, rules: &Rules, member: u8, seq: u8, vote: Vote) {
        self.device(member).busy = None;
        let is_used = self.index(member).accepts_commands();
        let is_filling = self.index(member).state == State::Filling;
        // A filling member does not vote: operations that it refused are missing.
        let is_missing = rules.refusal_ends_filling && is_filling && vote == Vote::Refused;
        let is_missed = !self.vote(seq, member, if is_used { vote } else { Vote::Failed });
        if is_used && (is_missing || is_missed) {
            self.set_out(member, State::Behind);
        }
    }

    /// A member answers a client's read.
    pub fn answer(&mut self, client: usize, member: u8) {
        let Client::Reading { key, .. } = self.clients[client] else { return };
        let value = self.devices[usize::from(member)].store[usize::from(key)];
        self.clients[client] = Client::Idle;
        let read = Command::Read(client as u8);
        self.devices.iter_mut().for_each(|device| device.queue.retain(|command| *command != read));
        let found = self.histories[usize::from(key)].answer(client, value);
        self.note(found, Wrong::Stale);
    }

    /// Forgets writes whose outcome is known to all.
    pub fn tidy(&mut self) {
        let waits = |client: &Client, of: u8| matches!(client, Client::Writing { seq, restore, .. } if *seq == of || *restore == Some(of));
        let voided = if let Phase::Voiding { seq, .. } = self.phase { seq } else { None };
        let clients = self.clients;
        let busy: Vec<_> = self.devices.iter().filter_map(|device| device.busy.map(|busy| busy.seq)).collect();
        let is_queued = |seq| self.devices.iter().any(|device| device.queue.contains(&Command::Write(seq)));
        self.ops.retain(|seq, op| {
            op.pending != 0
                || voided == Some(*seq)
                || busy.contains(seq)
                || is_queued(*seq)
                || clients.iter().any(|client| waits(client, *seq))
        });
    }
}
