//! How a member of the model comes to have what it lacks; what a crash leaves, and how the group is opened again.

use crate::protocol::device::{Append, Device, Mutation, Set, State};
use crate::protocol::group::{Client, Group, Phase, Wrong};
use crate::protocol::history::CLIENTS;
use crate::protocol::rules::Rules;

/// What the keeper is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Catch {
    pub member: u8,
    donor: u8,
    stage: Stage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Stage {
    /// The log was cut to `common`; these keys come from the donor.
    Forget {
        common: u8,
        keys: u8,
    },
    /// The next key that comes from the donor.
    Copy(u8),
    Replay,
    /// With the sequencer not held: up to here it has everything.
    Joining(u8),
}

/// A member that may lead: its last operation with that one's epoch, and what it had no room for.
struct Able {
    index: u8,
    last: (u8, u8),
    refused: Vec<u8>,
}

/// Up to which operation a log whose last one is `last` of `epoch` says what the group's does.
fn common(epochs: &[(u8, u8)], epoch: u8, last: u8) -> u8 {
    epochs.iter().find(|(other, _)| *other > epoch).map_or(last, |(_, first)| last.min(first - 1))
}

impl Group {
    fn index(&self, member: u8) -> &Device {
        &self.devices[usize::from(member)]
    }

    /// The keeper begins with a member that is behind.
    pub fn catch_up(&mut self, rules: &Rules, member: u8) -> Option<()> {
        let device = self.index(member);
        if self.catching.is_some() || device.state != State::Behind || device.is_lost {
            return None;
        }
        if rules.processor_ends && device.busy.is_some() {
            return None;
        }
        if rules.settled_first {
            self.settle(rules)?;
        }
        let device = self.index(member);
        let is_fit = |donor: &&u8| !rules.settled_first || (**donor != member && self.index(**donor).is_active());
        let donor = *self.active.iter().filter(is_fit).max_by_key(|donor| self.index(**donor).applied)?;
        let (first, last) = (device.first, device.last());
        let common = common(&self.host.epochs, device.last_epoch(), last);
        let common = if rules.forks_by_last { common.min(self.last()) } else { common };
        let stage = if device.is_partial {
            Stage::Copy(0)
        } else if common == last || !rules.forks_forgotten {
            self.stage_behind(member, donor)
        } else if common + 1 < first {
            Stage::Copy(0)
        } else {
            let forked = (common + 1..=last).filter_map(|seq| device.read(seq));
            let keys = forked.fold(0, |keys, operation| keys | 1 << operation.key);
            Stage::Forget { common, keys }
        };
        let is_out =
            self.host.states[usize::from(member)] != State::Active || matches!(self.phase, Phase::Following { .. });
        let is_kept = rules.settled_first && !is_out && self.index(donor).applied < self.last();
        if is_kept && stage != Stage::Replay {
            return None;
        }
        self.begin(member, donor, stage);
        Some(())
    }

    /// Whether the donor's log has all that the member lacks.
    fn stage_behind(&self, member: u8, donor: u8) -> Stage {
        let (donor, next) = (self.index(donor), self.index(member).applied + 1);
        if donor.first <= next && next <= donor.last() + 1 { Stage::Replay } else { Stage::Copy(0) }
    }

    fn begin(&mut self, member: u8, donor: u8, stage: Stage) {
        let cut = self.index(donor).applied;
        let epoch = self.index(donor).read(cut).map_or(self.index(donor).saved_epoch, |operation| operation.epoch);
        let device = self.device(member);
        match stage {
            Stage::Forget { common, .. } => {
                device.is_partial = true;
                device.truncate(common);
            }
            Stage::Copy(_) => {
                device.is_partial = true;
                device.restart(cut, epoch);
                device.set_applied(cut);
            }
            Stage::Replay | Stage::Joining(_) => {}
        }
        self.catching = Some(Catch { member, donor, stage });
    }

    /// The keeper's next step.
    pub fn go_on(&mut self, rules: &Rules) -> Option<()> {
        let catch = self.catching?;
        let (member, donor) = (catch.member, catch.donor);
        match catch.stage {
            Stage::Forget { common, keys } => {
                for key in (0..self.stripes.len()).filter(|key| keys & (1 << key) != 0) {
                    let value = self.index(donor).store[key];
                    self.device(member).store[key] = value;
                }
                let device = self.device(member);
                let applied = device.applied.min(common);
                device.set_applied(applied);
                device.is_partial = false;
                let stage = self.stage_behind(member, donor);
                self.begin(member, donor, stage);
            }
            Stage::Copy(key) if usize::from(key) < self.stripes.len() => {
                let value = self.index(donor).store[usize::from(key)];
                self.device(member).store[usize::from(key)] = value;
                self.catching = Some(Catch { stage: Stage::Copy(key + 1), ..catch });
            }
            Stage::Copy(_) => self.catching = Some(Catch { stage: Stage::Replay, ..catch }),
            Stage::Replay => return self.replay(rules, catch),
            Stage::Joining(last) => self.join(rules, member, last),
        }
        Some(())
    }

    fn replay(&mut self, rules: &Rules, catch: Catch) -> Option<()> {
        let (member, donor) = (catch.member, catch.donor);
        let to = self.index(donor).applied;
        if self.index(member).applied < to {
            if !self.replay_one(rules, member, donor) {
                self.catching = None;
            }
        } else if to < self.last() {
            if self.index(donor).is_active() {
                return None;
            }
            self.catching = None;
        } else if rules.held_join {
            let last = self.last();
            self.join(rules, member, last);
        } else {
            self.catching = Some(Catch { stage: Stage::Joining(self.last()), ..catch });
        }
        Some(())
    }

    /// Does one operation of the donor's log; false where it cannot be done.
    fn replay_one(&mut self, rules: &Rules, member: u8, donor: u8) -> bool {
        let seq = self.index(member).applied + 1;
        let Some(operation) = self.index(donor).read(seq) else { return false };
        let is_aborted = self.index(donor).log.iter().any(|later| later.seq > seq && later.aborts() == Some(seq));
        let device = self.device(member);
        if seq > device.last() {
            match device.append(operation, seq - 1, rules.slots) {
                Append::Done => {}
                Append::Full => return false,
                Append::Gap => {
                    self.wrong = Some(Wrong::Gap);
                    return false;
                }
            }
        }
        let device = self.device(member);
        if !device.apply(&operation) && !is_aborted {
            return false;
        }
        device.set_applied(seq);
        true
    }

    /// The member is in use again.
    fn join(&mut self, rules: &Rules, member: u8, last: u8) {
        self.catching = None;
        let device = self.device(member);
        (device.saved, device.is_partial) = (last, false);
        device.set_applied(last);
        device.state = State::Active;
        self.active.push(member);
        self.active.sort_unstable();
        let is_open = !matches!(self.phase, Phase::Following { .. });
        self.note_members(rules.acks, is_open || rules.epoch_at_open);
        if is_open {
            self.check(rules);
        }
    }

    /// The host stops, and all that is volatile is gone.
    pub fn crash(&mut self) {
        self.devices.iter_mut().for_each(Device::crash);
        self.histories.iter_mut().for_each(|history| history.crash());
        self.phase = Phase::Stopped;
        (self.next, self.epoch) = (0, 0);
        self.active.clear();
        self.ops.clear();
        self.stripes.iter_mut().for_each(|last| *last = 0);
        self.clients = [Client::Idle; CLIENTS];
        self.catching = None;
    }

    /// The group is opened, without the device `lost`: what each log has is done again, and the leader is chosen.
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
                able.push(Able { index: index as u8, last: (device.last_epoch(), device.last()), refused });
            }
        }
        if able.len() < needed {
            if lost.is_some() {
                return None;
            }
            self.wrong = Some(Wrong::NotOpened);
            return Some(());
        }
        let absent = active - able.len();
        let (leader, refused) = match self.choose(rules, able, absent) {
            Some(chosen) => chosen,
            None if lost.is_some() => return None,
            None => {
                self.wrong = Some(Wrong::NotOpened);
                return Some(());
            }
        };
        let last = self.index(leader).last();
        (self.next, self.epoch) = (last + 1, self.host.epoch);
        self.stripes.iter_mut().for_each(|stripe| *stripe = last);
        let is_levelled = rules.levelled_open && !refused.is_empty();
        // Those that lack nothing but what is taken back are in use at once; who lacks more follows when that is done.
        let fits = |member: &u8| *member == leader || (is_levelled && self.index(*member).executed == last);
        self.active = (0..members as u8).filter(|member| fits(member) && !self.index(*member).is_lost).collect();
        for member in self.active.clone() {
            self.device(member).state = State::Active;
        }
        if !is_levelled {
            self.device(leader).set_applied(last);
        }
        let follows = |member: &u8| !self.active.contains(member) && !self.index(*member).is_lost;
        let follows = |member: &u8| !is_levelled && follows(member) && !self.index(*member).is_partial;
        let members = (0..members as u8).filter(follows).collect();
        self.phase = Phase::Following { members, refused };
        Some(())
    }

    /// The member that leads, and what is to be taken back.
    fn choose(&mut self, rules: &Rules, mut able: Vec<Able>, absent: usize) -> Option<(u8, Vec<(u8, Set)>)> {
        let newest = able.iter().map(|able| able.last).max()?;
        let fit = able.iter().filter(|able| able.last == newest || !rules.newest_leads);
        // Any may lead where the rule is left out: the one with the oldest.
        let source = if rules.newest_leads {
            fit.max_by_key(|able| able.refused.is_empty())
        } else {
            fit.min_by_key(|able| able.last)
        }?;
        if source.refused.is_empty() || !rules.levelled_open {
            return Some((source.index, source.refused.iter().map(|seq| (*seq, Set::MAX)).collect()));
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
        let is_fit = |able: &&Able| able.refused.iter().all(|seq| refused.contains(seq));
        let leader = able.iter().find(is_fit)?.index;
        for able in able.iter().filter(is_fit) {
            let device = self.device(able.index);
            device.holes = able.refused.iter().fold(0, |holes, seq| holes | 1 << seq);
            device.pass(last);
        }
        Some((leader, refused.iter().map(|seq| (*seq, lacks(*seq))).collect()))
    }

    /// The next step of an open.
    pub fn open_on(&mut self, rules: &Rules) -> Option<()> {
        match self.phase.clone() {
            Phase::Following { .. } if self.catching.is_some() => self.go_on(rules),
            Phase::Following { mut members, refused } if !members.is_empty() => {
                let member = members.remove(0);
                self.phase = Phase::Following { members, refused };
                self.catch_up(rules, member)
            }
            Phase::Following { refused, .. } => {
                self.note_members(rules.acks, rules.epoch_at_open);
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
                // A device that came to have no room meanwhile may be the reason.
                let was_refused = self.devices.iter().any(|device| device.state == State::Behind);
                let (key, mutation) = self.taking_back(rules, aborts, lacking)?;
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

    /// What takes back an operation that these members lack.
    fn taking_back(&self, rules: &Rules, aborts: u8, lacking: Set) -> Option<(u8, Mutation)> {
        if !rules.levelled_open {
            return Some((0, Mutation::Void { aborts }));
        }
        let is_keeper = |member: &&u8| lacking & (1 << **member) != 0 && self.index(**member).is_active();
        let keeper = self.index(*self.active.iter().find(is_keeper)?);
        let key = keeper.read(aborts)?.key;
        Some((key, Mutation::Restore { aborts, value: keeper.store[usize::from(key)] }))
    }

    /// When enough members are in use again, what they have must be what clients were told.
    fn check(&mut self, rules: &Rules) {
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

impl Catch {
    pub fn is_forgetting(&self) -> bool {
        matches!(self.stage, Stage::Forget { .. })
    }

    pub fn is_copying(&self) -> bool {
        matches!(self.stage, Stage::Copy(0))
    }
}
