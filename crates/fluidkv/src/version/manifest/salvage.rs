//! Reads a manifest with damaged records.
//!
//! Each whole record is applied, in order, if the change keeps the rules of the state at that
//! point. The others are skipped. The result is a state that lacks changes. Older data may show in
//! place of newer data. Newer data that the state has is never hidden by older data:
//! * A flush adds its tables on top of all others, as it originally did.
//! * A compaction is applied only if all merged tables exist. No older table with the same keys may
//!   stay above its result (Rule 5 of the state) or next to it (Rule 3). The merged tables hid
//!   no newer data, so the compaction's result hides none.
//! * Splits and joins move no table above another one that shares a key with it.

use lodestore_media::u64_at;

use super::Edit;
use super::codec::Kind;
use super::record::{Found, later};
use super::state::ManifestState;

/// The result of a salvage. See the module.
pub(crate) struct Kept {
    pub(crate) state: ManifestState,
    /// The newest flushed generation in a whole record, whether the record was applied or not:
    /// older logs may be older than tables.
    pub(crate) flushed: u64,
    /// The greatest sequence number in a whole record.
    pub(crate) last_sequence: u64,
    /// Records that are not whole, as far as they can be counted.
    pub(crate) damaged: u64,
    /// Whole records that do not follow without the damaged ones.
    pub(crate) refused: u64,
}

/// Salvages the records at the start of `bytes` (after the extent's header). Returns `None` if the
/// checkpoint, the first record, is not whole.
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
            // A record that was cut off counts: it looks like a damaged one.
            let begun = rest.len() >= 16 && u64_at(rest, 8) == number;
            kept.damaged += u64::from(begun);
            return Some(kept);
        };
        kept.damaged += found.number.wrapping_sub(number);
        kept.apply_record(&found);
        (end, number) = (end + at + found.bytes.len(), found.number.wrapping_add(1));
    }
}

impl Kept {
    fn apply_record(&mut self, found: &Found<'_>) {
        let edit = found.kind().and_then(|kind| found.body().edit(kind));
        if let Some(Edit::Flush { generation, last_sequence, .. }) = &edit {
            self.flushed = self.flushed.max(*generation);
            self.last_sequence = self.last_sequence.max(*last_sequence);
        }
        let done = edit.is_some_and(|edit| self.state.apply(&edit).is_ok());
        self.refused += u64::from(!done);
    }
}
