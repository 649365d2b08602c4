//! The effect of a crash, and the next open of the group of the model.

use crate::protocol::device::{Append, Device, Mutation, Set, State};
use crate::protocol::group::{Client, Group, Phase, Wrong};
use crate::protocol::history::CLIENTS;
use crate::protocol::rules::{Acks, Rules};

/// A member that may lead: its last operation with that operation's epoch, and the operations that
/// it refused.
struct Candidate {
    index: u8,
    last: (u8, u8),
    refused: Vec<u8>,
}

/// Members that have everything except operations to be rolled back; and these operations, with the
/// members that lack them.
type Chosen = (Vec<u8>, Vec<(u8, Set)>);

impl Group {
    /// The host stops, and all volatile state is lost.
    pub fn crash(&mut self) {
        let failed = (0..self.devices.len()).filter(|member| self.devices[*member].state == State::Failed);
        self.broken = failed.fold(0, |set, member| set | 1 << member);
        self.devices.iter_mut().for_each(Device::crash);
        self.histories.iter_mut().for_each(|history| history.crash());
        self.phase = Phase::Stopped;
        (self.next, self.epoch) = (0, 0);
        self.active.clear();
        self.ops.clear();
        self.stripes.iter_mut().for_each(|last| *last = 0);
        self.undecided.iter_mut().for_each(|undecided| *undecided = 0);
        self.acknowledged = 0;
        self.clients = [Client::Idle; CLIENTS];
        self.catching = None;
    }

    /// The group is opened, without the device `lost`: each log is replayed, and the leader is
    /// chosen.
    pub fn open(&mut self, rules: &Rules, lost: Option<u8>) -> Option<()> {
        let members = self.devices.len();
        for (index, device) in self.devices.iter_mut().enumerate() {
            device.is_lost = lost == Some(index as u8);
            device.state = if device.is_lost { State::Failed } else { State::Behind };
        }
        let states = self.host.states.clone();
        let active = states.iter().filter(|state| **state == State::Active).count();
        let needed = (active + 1).saturating_sub(rules.acks.needed(members, active)).max(1);
        let mut able = Vec::new();
        for (index, device) in self.devices.iter_mut().enumerate() {
            if states[index] == State::Active && !device.is_lost && !device.is_partial {
                let refused = device.redo(rules.levelled_open);
                able.push(Candidate { index: index as u8, last: (device.last_epoch(), device.last()), refused });
            }
        }
        if able.len() < needed {
            if lost.is_some_and(|lost| !self.bears(rules, lost)) {
                return None;
            }
            self.wrong = Some(Wrong::NotOpened);
            return Some(());
        }
        let absent = active - able.len();
        let (fit, refused) = match self.choose(rules, able, absent) {
            Some(chosen) => chosen,
            None if lost.is_some() => return None,
            None => {
                self.wrong = Some(Wrong::NotOpened);
                return Some(());
            }
        };
        let last = self.index(fit[0]).last();
        (self.next, self.epoch) = (last + 1, self.host.epoch);
        self.stripes.iter_mut().for_each(|stripe| *stripe = last);
        let is_levelled = rules.levelled_open && !refused.is_empty();
        // Members that lack only operations to be rolled back are in use at once. Members that lack
        // more follow after the rollback.
        for member in &fit {
            self.device(*member).state = State::Active;
        }
        if !rules.levelled_open {
            self.device(fit[0]).set_applied(last);
        }
        self.active = fit;
        let follows = |member: &u8| !self.active.contains(member) && !self.index(*member).is_lost;
        let follows = |member: &u8| !is_levelled && follows(member);
        let members = (0..members as u8).filter(follows).collect();
        self.phase = Phase::Following { members, refused };
        self.broken = 0;
        Some(())
    }

    /// Returns whether the group must open without this device: it alone had failed before, and the
    /// others are enough.
    fn bears(&self, rules: &Rules, lost: u8) -> bool {
        rules.acks == Acks::Majority && self.devices.len() > 2 && self.broken == 1 << lost
    }

    /// Returns the members that have everything except operations to be rolled back, and these
    /// operations.
    fn choose(&mut self, rules: &Rules, mut able: Vec<Candidate>, absent: usize) -> Option<Chosen> {
        let newest = able.iter().map(|able| able.last).max()?;
        let fit = able.iter().filter(|able| able.last == newest || !rules.newest_leads);
        // If the rule is left out, any member may lead: the one with the oldest operation.
        let source = if rules.newest_leads {
            fit.max_by_key(|able| able.refused.is_empty())
        } else {
            fit.min_by_key(|able| able.last)
        }?;
        if source.refused.is_empty() || !rules.levelled_open {
            return Some((vec![source.index], source.refused.iter().map(|seq| (*seq, Set::MAX)).collect()));
        }
        let source = source.index;
        let last = self.index(source).last();
        for able in &mut able {
            for seq in self.index(able.index).last() + 1..=last {
                let operation = self.index(source).read(seq)?;
                let device = self.device(able.index);
                let applied = device.applied;
                if device.append(operation, applied, rules.slots) != Append::Done {
                    return None;
                }
            }
            able.refused = self.device(able.index).redo(true);
        }
        let lacks = |seq: u8| {
            able.iter().filter(|able| able.refused.contains(&seq)).fold(0, |set: Set, able| set | 1 << able.index)
        };
        let mut refused: Vec<_> = able.iter().flat_map(|able| able.refused.clone()).collect();
        refused.sort_unstable();
        refused.dedup();
        let needed = rules.acks.needed(self.devices.len(), able.len() + absent);
        let holders = |seq: &u8| able.len() - lacks(*seq).count_ones() as usize + absent;
        refused.retain(|seq| holders(seq) < needed);
        let is_fit = |able: &&Candidate| able.refused.iter().all(|seq| refused.contains(seq));
        let fit: Vec<u8> = able.iter().filter(is_fit).map(|able| able.index).collect();
        for able in able.iter().filter(is_fit) {
            let device = self.device(able.index);
            device.holes = able.refused.iter().fold(0, |holes, seq| holes | 1 << seq);
            device.advance_applied(last);
        }
        let refused = refused.iter().map(|seq| (*seq, lacks(*seq))).collect();
        (!fit.is_empty()).then_some((fit, refused))
    }

    /// The next step of an open.
    pub fn open_on(&mut self, rules: &Rules) -> Option<()> {
        match self.phase.clone() {
            Phase::Following { .. } if self.catching.is_some() => self.continue_catch_up(rules),
            Phase::Following { mut members, refused } if !members.is_empty() => {
                let member = members.remove(0);
                self.phase = Phase::Following { members, refused };
                // A member that needs a copy, or cannot be caught up now, is left to the keeper.
                let _ = self.catch_up(rules, member);
                Some(())
            }
            Phase::Following { refused, .. } => {
                self.record_members(rules, rules.epoch_at_open);
                self.phase = Phase::Voiding { refused, seq: None };
                Some(())
            }
            Phase::Voiding { refused, .. } if refused.is_empty() => {
                self.phase = Phase::Serving;
                self.is_unchecked = true;
                self.check(rules);
                Some(())
            }
            Phase::Voiding { refused, seq: None } => {
                let (aborts, lacking) = refused[0];
                // A device that ran out of space meanwhile may be the reason.
                let was_refused = self.devices.iter().any(|device| device.state == State::Behind);
                let (key, mutation) = self.restore_of(rules, aborts, lacking)?;
                match self.submit(rules, key, mutation, lacking)? {
                    Some(seq) => self.phase = Phase::Voiding { refused, seq: Some(seq) },
                    None => self.close_again(was_refused),
                }
                Some(())
            }
            Phase::Voiding { mut refused, seq: Some(seq) } => {
                let op = self.ops.get(&seq)?.clone();
                if !op.is_decided(if rules.levelled_open { usize::MAX } else { op.needed }) {
                    return None;
                }
                if rules.levelled_open {
                    self.set_behind(op.refused);
                }
                refused.remove(0);
                self.phase = Phase::Voiding { refused, seq: None };
                Some(())
            }
            Phase::Serving | Phase::Stopped => None,
        }
    }

    /// The open ends with an error.
    fn close_again(&mut self, was_refused: bool) {
        let is_whole = self.devices.iter().all(|device| !device.is_lost);
        self.crash();
        if is_whole && !was_refused {
            self.wrong = Some(Wrong::NotOpened);
        }
    }

    /// Returns the rollback of an operation that these members lack.
    fn restore_of(&self, rules: &Rules, aborts: u8, lacking: Set) -> Option<(u8, Mutation)> {
        if !rules.levelled_open {
            return Some((0, Mutation::Void { aborts }));
        }
        let is_keeper = |member: &&u8| lacking & (1 << **member) != 0 && self.index(**member).is_active();
        let keeper = self.index(*self.active.iter().find(is_keeper)?);
        let key = keeper.read(aborts)?.key;
        Some((key, Mutation::Restore { aborts, value: keeper.store[usize::from(key)] }))
    }

    /// Once enough members are in use again, their pairs must match the clients' answers.
    pub fn check(&mut self, rules: &Rules) {
        if !self.is_unchecked || !self.is_enough(rules) {
            return;
        }
        self.is_unchecked = false;
        let Some(leader) = self.active.iter().copied().max_by_key(|member| self.index(*member).applied) else { return };
        for key in 0..self.stripes.len() {
            let value = self.index(leader).store[key];
            let found = self.histories[key].recover(value);
            self.note(found, Wrong::Lost);
        }
    }
}
