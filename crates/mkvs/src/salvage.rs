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
use crate::planted::Fault;

/// Maximum bytes of a mark's text.
const GIVEN_UP_BYTES_MAX: usize = 512;

/// Why acknowledged writes may be missing in a group, or another reason for which a strict open is
/// refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Doubt {
    /// The position in its group of the device concerned; `None` for the whole group.
    pub(crate) device: Option<usize>,
    pub(crate) what: String,
    /// Whether acknowledged writes may be missing or outdated. If not, `verify` reports the doubt,
    /// and the group has no mark.
    pub(crate) may_lack: bool,
}

impl Doubt {
    /// Acknowledged writes of a whole group may be missing.
    pub(crate) fn of_group(what: String) -> Self {
        Self { device: None, what, may_lack: true }
    }
}

/// The doubts of a group. Empty unless the open is a salvage.
#[derive(Debug, Default)]
pub(crate) struct Doubts {
    all: Vec<Doubt>,
    /// The owner replaced a device in this salvage, and thereby accepted the loss.
    is_accepted: bool,
}

impl Doubts {
    /// Returns the doubts found by an open. `given_up` is the mark of an earlier salvage.
    pub(crate) fn of(found: Vec<Doubt>, given_up: Option<&str>) -> Self {
        let earlier =
            given_up.map(|what| Doubt::of_group(format!("an earlier salvage gave up what it could not read ({what})")));
        Self { all: earlier.into_iter().chain(found).collect(), is_accepted: false }
    }

    /// Adds a doubt that arises after the open. No earlier replacement accepted it.
    pub(crate) fn add(&mut self, doubt: Doubt) {
        if !self.all.contains(&doubt) {
            self.all.push(doubt);
        }
        self.is_accepted = false;
    }

    /// Returns the doubts that mean missing or outdated acknowledged writes.
    fn losses(&self) -> impl Iterator<Item = &Doubt> {
        self.all.iter().filter(|doubt| doubt.may_lack)
    }

    /// Returns the text of a mark; `None` without a doubt.
    fn text(&self) -> Option<String> {
        let texts = self.losses().map(|doubt| match doubt.device {
            Some(device) => format!("device {device}: {}", doubt.what),
            None => doubt.what.clone(),
        });
        let mut text = texts.collect::<Vec<_>>().join("; ");
        let ends = text.char_indices().map(|(at, char)| at + char.len_utf8());
        let end = ends.take_while(|end| *end <= GIVEN_UP_BYTES_MAX).last().unwrap_or(0);
        text.truncate(end);
        (!text.is_empty()).then_some(text)
    }
}

impl Group {
    /// Returns the reasons for which a strict open is refused. Empty unless the open is a salvage.
    pub(crate) fn doubts(&self) -> Vec<Doubt> {
        lock(&self.doubts).all.clone()
    }

    /// Returns whether acknowledged writes may be missing.
    pub(crate) fn has_doubts(&self) -> bool {
        lock(&self.doubts).losses().next().is_some()
    }

    /// Marks the group durably as one that gave up acknowledged writes, if a doubt exists. Must be
    /// called before any change that a later open relies on.
    ///
    /// # Errors
    /// Errors of the host's store.
    pub(crate) fn mark_given_up(&self) -> Result<()> {
        if !self.options.salvage || self.options.planted.is(Fault::GivenUpUnmarked) {
            return Ok(());
        }
        let doubts = lock(&self.doubts);
        let Some(text) = doubts.text().filter(|_| !doubts.is_accepted) else { return Ok(()) };
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
        // Other devices keep their doubts, and their own stores refuse the next strict open.
        doubts.all.retain(|doubt| doubt.device.is_some_and(|of| of != device));
        doubts.is_accepted = gave_up.is_some();
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
            "an earlier salvage gave up what it could not read ({what}): export what is left \
             (`Db::builder(\"{path}\").salvage(true)`) and import it into a new matrix, or go on with \
             `Builder::salvage(true)`; `Matrix::replace` opened with `OpenOptions::salvage(true)` of a device of this group accepts the loss"
        ),
    ))
}
