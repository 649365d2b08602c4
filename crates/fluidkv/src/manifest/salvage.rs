//! What is left of a manifest some of whose records are damaged.
//!
//! Each whole record is made to happen, in their order, if it keeps the rules of the state as it is then; the others are left out. So what comes about
//! is a state that lacks changes. It shows older data where it should show newer; it never hides newer data that it has behind older:
//! * a flush adds on top of all there is, as it did then;
//! * a compaction happens only if all that it merged is there, and nothing older of the same keys stays above what it made (Rule 5 of the
//!   state) or beside it (Rule 3). What it merged hid nothing newer, so what it made does not either;
//! * splits and joins move no table above another one that has a key of it.

use lodestore_media::u64_at;

use super::Edit;
use super::codec::Kind;
use super::record::{Found, later};
use super::state::ManifestState;

/// See the module.
pub(crate) struct Kept {
    pub(crate) state: ManifestState,
    /// The newest generation that some whole record says was flushed, whether it could be made to happen or not: older logs may be older than tables.
    pub(crate) flushed: u64,
    /// The greatest sequence that one tells.
    pub(crate) last_sequence: u64,
    /// Records that are not whole, as far as they can be counted.
    pub(crate) damaged: u64,
    /// Whole ones that do not follow without those.
    pub(crate) refused: u64,
}

/// What the records at the start of `bytes` (behind the extent's header) come to; `None` where the checkpoint, the first, is not whole.
pub(crate) fn salvage(bytes: &[u8], nonce: u64) -> Option<Kept> {
    let first = Found::whole(bytes, nonce).filter(|first| first.kind() == Some(Kind::Checkpoint))?;
    let state = first.body().state()?;
    let (flushed, last_sequence) = (state.flushed_generation(), state.last_sequence());
    let mut kept = Kept { state, flushed, last_sequence, damaged: 0, refused: 0 };
    let (mut end, mut number) = (first.bytes.len(), first.number.wrapping_add(1));
    loop {
        let rest = &bytes[end..];
        let next = Found::whole(rest, nonce).filter(|found| found.number == number).map(|found| (0, found));
        let Some((at, found)) = next.or_else(|| later(rest, nonce, number)) else {
            // One that was cut off counts: it cannot be told from a damaged one.
            let begun = rest.len() >= 16 && u64_at(rest, 8) == number;
            kept.damaged += u64::from(begun);
            return Some(kept);
        };
        kept.damaged += found.number.wrapping_sub(number);
        kept.take(&found);
        (end, number) = (end + at + found.bytes.len(), found.number.wrapping_add(1));
    }
}

impl Kept {
    fn take(&mut self, found: &Found<'_>) {
        let edit = found.kind().and_then(|kind| found.body().edit(kind));
        if let Some(Edit::Flush { generation, last_sequence, .. }) = &edit {
            self.flushed = self.flushed.max(*generation);
            self.last_sequence = self.last_sequence.max(*last_sequence);
        }
        let done = edit.is_some_and(|edit| self.state.apply(&edit).is_ok());
        self.refused += u64::from(!done);
    }
}
