//! Failures of the host's store at the moment when a write must record the active members.

use crate::protocol::group::{Client, Group};
use crate::protocol::rules::Rules;

impl Group {
    /// A client's write is decided and a member failed, but this cannot be recorded: the write is
    /// in doubt.
    pub fn fail_note(&mut self, rules: &Rules, client: usize) -> Option<()> {
        let Client::Writing { key, seq, restore, .. } = self.clients[client] else { return None };
        let op = self.ops.get(&restore.unwrap_or(seq))?.clone();
        let is_decided = op.is_decided(if restore.is_some() { usize::MAX } else { op.needed });
        let mut noted = self.clone();
        noted.settle(rules)?;
        if !is_decided || op.failed == 0 || noted.host == self.host {
            return None;
        }
        if rules.refused_are_behind {
            let refused = self.ops.get(&seq)?.refused;
            self.set_behind(op.refused | (refused & !if restore.is_some() { op.done } else { 0 }));
        }
        self.undecided[usize::from(key)] = self.stripes[usize::from(key)];
        self.clients[client] = Client::Idle;
        Some(())
    }

    /// A write is acknowledged: members that have it also have all earlier ones, or rolled them
    /// back.
    pub fn decide(&mut self, seq: u8) {
        if self.left.unnoted != 0 || self.undecided.iter().any(|undecided| *undecided != 0) {
            self.acknowledged = self.acknowledged.max(seq);
        }
    }

    /// Returns whether the outcome of a key's last write is known.
    pub fn is_known(&self, rules: &Rules, key: u8) -> bool {
        !rules.undecided_unread || self.undecided[usize::from(key)] <= self.acknowledged
    }
}
