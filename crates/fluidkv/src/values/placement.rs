//! Where the value of an operation is stored.

use crate::wal::entry::{Op, POINTER_BYTES};

/// The place of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Placement {
    /// In the entry of its key in a log, then in the item of its key in a table.
    Inline,
    /// In the value log. Entry and item have a pointer to it.
    Log,
}

impl Placement {
    /// Returns the place of the value of an operation. Values of at least `threshold` bytes go to
    /// the value log.
    #[inline]
    pub(crate) fn of(op: &Op<'_>, threshold: usize) -> Self {
        if op.payload.bytes().len() >= threshold { Self::Log } else { Self::Inline }
    }
}

/// Returns the bytes that an operation adds to a log of entries.
#[inline]
pub(crate) fn logged_len(op: &Op<'_>, threshold: usize) -> usize {
    match Placement::of(op, threshold) {
        Placement::Inline => op.entry_len(),
        Placement::Log => op.entry_len() - op.payload.bytes().len() + POINTER_BYTES,
    }
}
