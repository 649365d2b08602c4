//! Catch-up of a member of the model.

use crate::protocol::device::{Append, Command, Device, State};
use crate::protocol::group::{Client, Group, Phase, Wrong};
use crate::protocol::history::ABSENT;
use crate::protocol::rules::Rules;

/// The keeper's present task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Catch {
    pub member: u8,
    donor: u8,
    stage: Stage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Stage {
    /// The log was cut to `common`; these keys come from the donor.
    Forget { common: u8, keys: u8 },
    /// The member is to receive operations from the next one on.
    Replay,
    /// The member is filling, and its processor held: it replays the donor's log up to here.
    Last(u8),
    /// The member needs a copy, and the description calls it active.
    Counted,
    /// The member is filling: the next key of the walk over a member that has everything up to
    /// `cut`.
    Copy { key: u8, cut: u8 },
    /// The rest of its copy is in its queue.
    Copied,
    /// The member has everything from before its queue.
    Joining,
    /// With the sequencer held: its record says that it is whole up to here.
    Taking(u8),
}

/// Returns the last operation at which a log equals the group's history. The log ends at operation
/// `last` of `epoch`.
fn common(epochs: &[(u8, u8)], epoch: u8, last: u8) -> u8 {
    epochs.iter().find(|(other, _)| *other > epoch).map_or(last, |(_, first)| last.min(first - 1))
}

impl Catch {
    pub fn is_forgetting(&self) -> bool {
        matches!(self.stage, Stage::Forget { .. })
    }

    pub fn is_copying(&self) -> bool {
        matches!(self.stage, Stage::Copy { key: 0, .. })
    }

    pub fn is_counted(&self) -> bool {
        self.stage == Stage::Counted
    }
}

impl Group {
    pub fn index(&self, member: u8) -> &Device {
        &self.devices[usize::from(member)]
    }

    /// Returns whether the sequencer is held across steps.
    pub fn is_held(&self, rules: &Rules) -> bool {
        rules.held_join && self.catching.is_some_and(|catch| matches!(catch.stage, Stage::Taking(_)))
    }

    /// Returns whether a member's processor is held.
    pub fn is_resting(&self, rules: &Rules, member: u8) -> bool {
        let is_held = |catch: Catch| catch.member == member && matches!(catch.stage, Stage::Last(_));
        rules.processor_held && self.catching.is_some_and(is_held)
    }

    /// Returns whether all active members have everything.
    fn have_all_applied(&self) -> bool {
        self.live_members().all(|member| self.index(member).applied >= self.last())
    }

    /// The keeper starts with a member that is behind.
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
        let is_fit = |donor: &&u8| !rules.settled_first || (**donor != member && self.index(**donor).is_active());
        let donor = *self.active.iter().filter(is_fit).max_by_key(|donor| self.index(**donor).applied)?;
        let still_counts = self.host.states[usize::from(member)] == State::Active;
        if rules.settled_first && still_counts && !self.have_all_applied() {
            return None;
        }
        let (device, source) = (self.index(member), self.index(donor));
        let last = device.last();
        let common = common(&self.host.epochs, device.last_epoch(), last);
        let common = if rules.forks_by_last { common.min(self.last()) } else { common };
        let common = if rules.forks_forgotten { common } else { last };
        let next = device.applied.min(common) + 1;
        let is_told = common + 1 >= device.first && source.first <= next && next <= source.last() + 1;
        if device.is_partial || !is_told {
            return self.begin_copy(rules, member, donor, still_counts);
        }
        let stage = if common == last {
            Stage::Replay
        } else {
            let forked = (common + 1..=last).filter_map(|seq| device.read(seq));
            let keys = forked.fold(0, |keys, operation| keys | 1 << operation.key);
            let device = self.device(member);
            device.is_partial = rules.fork_cut_said;
            device.truncate(common);
            Stage::Forget { common, keys }
        };
        self.catching = Some(Catch { member, donor, stage });
        Some(())
    }

    /// An open does not wait for copies. The description must not count a partial member.
    fn begin_copy(&mut self, rules: &Rules, member: u8, donor: u8, still_counts: bool) -> Option<()> {
        if matches!(self.phase, Phase::Following { .. }) {
            return None;
        }
        self.catching = Some(Catch { member, donor, stage: Stage::Counted });
        if !still_counts || !rules.left_out_first {
            self.empty(rules, member);
        }
        Some(())
    }

    /// The member drops its data, and receives operations.
    fn empty(&mut self, rules: &Rules, member: u8) {
        let (cut, epoch) = (self.last(), self.epoch);
        let device = self.device(member);
        if device.state != State::Behind {
            self.catching = None;
            return;
        }
        device.is_partial = rules.partial_until_whole;
        device.restart(cut, epoch);
        device.set_applied(cut);
        device.state = State::Filling;
        self.set_stage(Stage::Copy { key: 0, cut });
    }

    fn set_stage(&mut self, stage: Stage) {
        self.catching = self.catching.map(|catch| Catch { stage, ..catch });
    }

    /// The member must be tried again; if it was filling, it falls behind.
    fn end_catch_up(&mut self, member: u8) {
        self.catching = None;
        if self.index(member).state == State::Filling {
            self.set_out(member, State::Behind);
        }
    }

    /// The keeper's next step.
    pub fn continue_catch_up(&mut self, rules: &Rules) -> Option<()> {
        let Catch { member, donor, stage } = self.catching?;
        let is_due = match stage {
            Stage::Forget { .. } | Stage::Replay | Stage::Counted => State::Behind,
            Stage::Last(_) | Stage::Copy { .. } | Stage::Copied | Stage::Joining | Stage::Taking(_) => State::Filling,
        };
        if self.index(member).state != is_due {
            if stage == Stage::Copied && !rules.whole_if_filling {
                self.end_copy(rules, member);
            }
            self.end_catch_up(member);
            return Some(());
        }
        match stage {
            Stage::Forget { common, keys } => self.forget(rules, member, donor, common, keys),
            Stage::Replay => {
                self.device(member).state = State::Filling;
                self.set_stage(Stage::Last(self.last()));
            }
            Stage::Last(last) => return self.replay(rules, member, donor, last),
            Stage::Counted => {
                if self.write_epoch(rules, true) {
                    self.empty(rules, member);
                } else {
                    self.end_catch_up(member);
                }
            }
            Stage::Copy { key, cut } => return self.copy(rules, member, key, cut),
            Stage::Copied => return self.end_copy(rules, member),
            Stage::Joining => return self.join(rules, member),
            Stage::Taking(_) => self.activate(rules, member),
        }
        Some(())
    }

    /// The member replaces the pairs of its forked operations by the donor's.
    fn forget(&mut self, rules: &Rules, member: u8, donor: u8, common: u8, keys: u8) {
        for key in (0..self.stripes.len()).filter(|key| keys & (1 << key) != 0) {
            let value = self.index(donor).store[key];
            self.device(member).store[key] = value;
        }
        let device = self.device(member);
        let applied = device.applied.min(common);
        device.set_applied(applied);
        device.is_partial &= rules.fork_said_until_joined;
        self.set_stage(Stage::Replay);
    }

    /// Replays one more operation up to `last` from the donor's log.
    fn replay(&mut self, rules: &Rules, member: u8, donor: u8, last: u8) -> Option<()> {
        if self.index(donor).applied < last {
            if self.index(donor).is_active() {
                return None;
            }
            self.end_catch_up(member);
            return Some(());
        }
        if self.index(member).applied < last && !self.replay_one(rules, member, donor) {
            self.end_catch_up(member);
        } else if self.index(member).applied >= last {
            self.set_stage(Stage::Joining);
        }
        Some(())
    }

    /// Replays one operation of the donor's log. Returns false if this is impossible.
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

    /// The walk reaches a key that no client is writing.
    fn copy(&mut self, rules: &Rules, member: u8, key: u8, cut: u8) -> Option<()> {
        let at = usize::from(key);
        if self.live_members().count() == 0 {
            self.end_catch_up(member);
            return Some(());
        }
        let has_cut = |walked: &u8| !rules.copy_of_whole || self.index(*walked).applied >= cut;
        let walked = self.live_members().filter(has_cut).min_by_key(|walked| self.index(*walked).applied)?;
        if self.index(member).store[at] != ABSENT || self.index(walked).store[at] != ABSENT {
            let is_written = |client: &Client| matches!(client, Client::Writing { key: other, .. } if *other == key);
            if rules.copy_by_stripe && self.clients.iter().any(is_written) {
                return None;
            }
            let has_last = |other: &u8| !rules.copy_by_stripe || self.index(*other).applied >= self.stripes[at];
            let teller = self.live_members().find(has_last)?;
            let value = self.index(teller).store[at];
            if rules.copy_by_queue {
                self.device(member).queue.push(Command::Copy { key, value });
            } else {
                self.device(member).store[at] = value;
            }
        }
        let is_last = at + 1 == self.stripes.len();
        self.set_stage(if is_last { Stage::Copied } else { Stage::Copy { key: key + 1, cut } });
        Some(())
    }

    /// The member has all of the copy. If it falls behind now, its own and another log contain what
    /// it lacks.
    fn end_copy(&mut self, rules: &Rules, member: u8) -> Option<()> {
        let device = self.device(member);
        if rules.copied_before_whole && device.queue.iter().any(|queued| matches!(queued, Command::Copy { .. })) {
            return None;
        }
        (device.saved, device.is_partial) = (device.applied, false);
        self.set_stage(Stage::Joining);
        Some(())
    }

    /// The sequencer is locked when the member has every numbered operation.
    fn join(&mut self, rules: &Rules, member: u8) -> Option<()> {
        let last = self.last();
        let device = self.index(member);
        let is_copied =
            !rules.joins_copied || !device.queue.iter().any(|queued| matches!(queued, Command::Copy { .. }));
        if rules.joins_whole && !(device.executed == last && device.busy.is_none() && is_copied) {
            return None;
        }
        if rules.joins_whole && rules.joins_without_holes && device.applied != last {
            self.end_catch_up(member);
            return Some(());
        }
        let device = self.device(member);
        (device.saved, device.is_partial) = (last, false);
        self.set_stage(Stage::Taking(last));
        Some(())
    }

    /// The member is in use again.
    fn activate(&mut self, rules: &Rules, member: u8) {
        self.catching = None;
        self.device(member).state = State::Active;
        self.active.push(member);
        self.active.sort_unstable();
        let is_open = !matches!(self.phase, Phase::Following { .. });
        if rules.joins_said {
            self.record_members(rules, is_open || rules.epoch_at_open);
        }
        if is_open {
            self.check(rules);
        }
    }
}
