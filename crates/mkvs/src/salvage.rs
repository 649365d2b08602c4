//! The writes that a salvage may give up, and the durable mark of the loss.
//!
//! A strict open relies on devices that it can read. A salvage continues without some of them, or
//! uses stores that a strict open refuses. Each such reason is a *doubt* of the group: acknowledged
//! writes may be missing or outdated. Doubts arise at the open, and when a leader is chosen again.
//!
//! Invariants
//! 1. In a group with a doubt, the description has the mark `given up` before the salvage changes
//!    anything that a later open relies on: members of the description, and the pairs and logs of
//!    members that follow others.
//! 2. A strict open of a marked matrix is refused. Only `replace` in salvage removes the mark, and
//!    returns its text.

use std::path::Path;

use lodestore_contract::{Error, Result};

use crate::group::Group;
use crate::layout::{GroupRecord, Matrix, Member};
use crate::lock;
use crate::planted;
use crate::salvage_doubts::Doubt;

impl Group {
    /// Returns the reasons for which a strict open is refused. Empty unless the open is a salvage.
    pub(crate) fn doubts(&self) -> Vec<Doubt> {
        lock(&self.doubts).all().to_vec()
    }

    /// Returns whether acknowledged writes may be missing.
    pub(crate) fn has_doubts(&self) -> bool {
        lock(&self.doubts).has_losses()
    }

    /// Marks the group durably as one that gave up acknowledged writes, if a doubt exists. Must be
    /// called before any change that a later open relies on.
    ///
    /// # Errors
    /// Errors of the host's store.
    pub(crate) fn mark_given_up(&self) -> Result<()> {
        if !self.options.salvage || self.options.planted.has_fault(planted::GIVEN_UP_UNMARKED) {
            return Ok(());
        }
        let doubts = lock(&self.doubts);
        let Some(text) = doubts.text().filter(|_| !doubts.is_accepted()) else { return Ok(()) };
        self.host.change(|matrix| {
            matrix.groups[self.index].given_up.get_or_insert(text);
        })
    }

    /// Writes `member` into the description at the position `device`. In a salvage the same change
    /// removes the mark. Returns what is given up.
    ///
    /// # Errors
    /// Errors of the host's store. Nothing is changed then.
    pub(crate) fn describe_replaced(&self, device: usize, member: Member) -> Result<Option<String>> {
        let mut doubts = lock(&self.doubts);
        let gave_up = doubts.text();
        self.host.change(|matrix| {
            let record = &mut matrix.groups[self.index];
            record.members[device] = member;
            if gave_up.is_some() {
                record.given_up = None;
            }
        })?;
        doubts.end_by_replacement(device, gave_up.is_some());
        Ok(gave_up)
    }
}

/// Refuses a strict open of a matrix in which an earlier salvage gave up acknowledged writes.
///
/// # Errors
/// [`Error::Corrupt`].
pub(crate) fn check_given_up(root: &Path, matrix: &Matrix) -> Result<()> {
    let marked = |(index, group): (usize, &GroupRecord)| Some((index, group.given_up.clone()?));
    let Some((index, what)) = matrix.groups.iter().enumerate().find_map(marked) else { return Ok(()) };
    let path = root.display();
    Err(Error::corrupt(
        format!("{path}, group {index}"),
        format!(
            "an earlier salvage gave up unreadable data ({what}): export the readable pairs \
             (`Db::builder(\"{path}\").salvage(true)`) and import them into a new matrix, or continue with \
             `Builder::salvage(true)`; `Matrix::replace` opened with `OpenOptions::salvage(true)` of a device of \
             this group accepts the loss"
        ),
    ))
}
