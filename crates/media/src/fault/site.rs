//! Faults at call sites: the recorder changes the steps of a statement of the source.
//!
//! A [`Site`] names a statement by its file and a piece of its text. [`source!`](crate::source)
//! includes the file, so the text is that of the compiled program. The line of a site is the line
//! that the compiler reports to `#[track_caller]` functions. In a chain of calls over several
//! lines, this is the line of the method's name.

use super::PlantedFault;

/// A source file. [`source!`](crate::source) makes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Source {
    /// The path from the manifest of the crate that includes the file.
    pub path: &'static str,
    /// The text of the file.
    pub text: &'static str,
}

/// Includes a source file for [`Site`]s; the path is relative to the manifest of the calling crate.
#[macro_export]
macro_rules! source {
    ($path:literal) => {
        $crate::sim::Source { path: $path, text: include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/", $path)) }
    };
}

/// Statements of a source file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Site {
    pub(crate) source: Source,
    place: Place,
    /// Text of the statement's line.
    text: &'static str,
}

/// The lines of a file that count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    /// The only line with the text.
    Only,
    /// The first line with the text after the only line with this one.
    After(&'static str),
    /// All lines with the text.
    Each,
}

impl Source {
    /// Returns the only line with this text.
    pub const fn line(self, text: &'static str) -> Site {
        Site { source: self, place: Place::Only, text }
    }

    /// Returns the first line with this text after the only line with the text `before`.
    pub const fn line_after(self, before: &'static str, text: &'static str) -> Site {
        Site { source: self, place: Place::After(before), text }
    }

    /// Returns all lines with this text.
    pub const fn lines(self, text: &'static str) -> Site {
        Site { source: self, place: Place::Each, text }
    }

    /// Returns the numbers of the lines with this text.
    fn lines_with(self, text: &str) -> Vec<u32> {
        (1..).zip(self.text.lines()).filter(|(_, line)| line.contains(text)).map(|(number, _)| number).collect()
    }
}

/// The change of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Effect {
    /// The flushes are lost.
    LostFlush,
    /// The fences and syncs are lost.
    LostFence,
    /// The stores are lost.
    LostStore,
    /// A check does not see that a sync has failed.
    Unchecked,
    /// Flushes take effect only at the thread's next fence with [`Effect::EndsDelay`].
    Delayed,
    /// Delayed flushes of the thread follow the fence, with a fence of their own.
    EndsDelay,
    /// The first word is zeroed before the store, durably. The words of a pair are stored one by
    /// one.
    ZeroedFirst,
}

/// A change of the steps of a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    pub(crate) site: Site,
    pub(crate) effect: Effect,
}

impl Site {
    const fn with(self, effect: Effect) -> Change {
        Change { site: self, effect }
    }

    /// Loses the flushes.
    pub const fn without_flush(self) -> Change {
        self.with(Effect::LostFlush)
    }

    /// Loses the fences, and the syncs of the values file.
    pub const fn without_fence(self) -> Change {
        self.with(Effect::LostFence)
    }

    /// Loses the stores: the medium never receives them.
    pub const fn without_store(self) -> Change {
        self.with(Effect::LostStore)
    }

    /// Lets checks of the pool pass after a failed sync.
    pub const fn without_check(self) -> Change {
        self.with(Effect::Unchecked)
    }

    /// Delays the flushes to the thread's next fence with [`Self::ends_delay`].
    pub const fn with_delayed_flush(self) -> Change {
        self.with(Effect::Delayed)
    }

    /// Lets the delayed flushes of the thread follow the fences, each time with one more fence.
    pub const fn ends_delay(self) -> Change {
        self.with(Effect::EndsDelay)
    }

    /// Zeroes the first word before each store, durably, and stores the words of a pair one by one.
    pub const fn with_zero_first(self) -> Change {
        self.with(Effect::ZeroedFirst)
    }

    /// Returns the numbers of the lines.
    ///
    /// # Errors
    /// The reason, if the file does not have exactly the expected lines.
    pub fn find(&self) -> Result<Vec<u32>, String> {
        let path = self.source.path;
        let only = |text: &str| match self.source.lines_with(text)[..] {
            [line] => Ok(line),
            [] => Err(format!("{path} has no line with {text:?}")),
            ref lines => Err(format!("{path} has {text:?} in the lines {lines:?}")),
        };
        match self.place {
            Place::Only => only(self.text).map(|line| vec![line]),
            Place::Each => match self.source.lines_with(self.text) {
                lines if lines.is_empty() => Err(format!("{path} has no line with {:?}", self.text)),
                lines => Ok(lines),
            },
            Place::After(before) => {
                let first = only(before)?;
                let next = self.source.lines_with(self.text).into_iter().find(|line| *line > first);
                let wrong = || format!("{path} has no line with {:?} after {before:?}", self.text);
                next.map(|line| vec![line]).ok_or_else(wrong)
            }
        }
    }
}

impl PlantedFault {
    /// Checks that each changed statement is in its file.
    ///
    /// # Errors
    /// The first one that is not, or not once.
    pub fn check_sites(self) -> Result<(), String> {
        self.changes().iter().try_for_each(|change| match change.site.find() {
            Ok(_) => Ok(()),
            Err(why) => Err(format!("{self:?}: {why}")),
        })
    }
}
