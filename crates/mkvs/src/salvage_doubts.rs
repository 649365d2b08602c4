//! The doubts of a group in a salvage: reasons why acknowledged writes may be missing or outdated.
//! How a salvage treats them is in `salvage.rs`.

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
            given_up.map(|what| Doubt::of_group(format!("an earlier salvage gave up unreadable data ({what})")));
        Self { all: earlier.into_iter().chain(found).collect(), is_accepted: false }
    }

    /// Adds a doubt that arises after the open. No earlier replacement accepted it.
    pub(crate) fn add(&mut self, doubt: Doubt) {
        if !self.all.contains(&doubt) {
            self.all.push(doubt);
        }
        self.is_accepted = false;
    }

    /// Returns all doubts.
    pub(crate) fn all(&self) -> &[Doubt] {
        &self.all
    }

    /// Returns whether acknowledged writes may be missing.
    pub(crate) fn has_losses(&self) -> bool {
        self.losses().next().is_some()
    }

    /// Returns whether the owner accepted the loss.
    pub(crate) fn is_accepted(&self) -> bool {
        self.is_accepted
    }

    /// Removes the doubts that end when the device at this position is replaced. `is_accepted`: the
    /// replacement accepts the loss.
    pub(crate) fn end_by_replacement(&mut self, device: usize, is_accepted: bool) {
        // Other devices keep their doubts, and their own stores refuse the next strict open.
        self.all.retain(|doubt| doubt.device.is_some_and(|of| of != device));
        self.is_accepted = is_accepted;
    }

    /// Returns the doubts that mean missing or outdated acknowledged writes.
    fn losses(&self) -> impl Iterator<Item = &Doubt> {
        self.all.iter().filter(|doubt| doubt.may_lack)
    }

    /// Returns the text of a mark; `None` without a doubt.
    pub(crate) fn text(&self) -> Option<String> {
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
