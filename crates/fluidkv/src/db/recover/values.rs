//! The value log at an open.
//!
//! A pointer in a table refers to bytes before `written`, as the manifest has it. A pointer in a
//! log refers to bytes before the end found by the records' headers, or something is damaged. A
//! segment that ends earlier is not collected, so that nothing in it can be lost.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use lodestore_contract::{Error, Result};
use lodestore_media::Pool;

use crate::values::record::{Records, SEGMENT_HEADER_BYTES, check_segment, name_of};
use crate::values::segment::ValueSegment;
use crate::values::{PointerEnds, ValueChange, ValueUse};
use crate::version::manifest::state::ManifestState;

/// Returns the segments that the manifest names, each sealed at the end of its records. The next
/// flush records the seals: the manifest may still be the old one. If the open is not settled, the
/// found records are flushed, since the end in the state must hold.
///
/// # Errors
/// [`Error::NewerFormat`], [`Error::Poisoned`]; [`Error::Corrupt`] for an impossible id.
pub(super) fn open(pool: &Pool, state: &mut ManifestState, settled: bool) -> Result<Vec<Arc<ValueSegment>>> {
    let unsealed: Vec<_> =
        state.values().iter().filter(|(_, used)| !used.sealed).map(|(id, used)| (*id, *used)).collect();
    for (id, used) in &unsealed {
        let (id, written) = (*id, end_of(pool, number(*id)?, used));
        let from = used.written.max(SEGMENT_HEADER_BYTES);
        if !settled && written > from {
            pool.flush(used.at.add(from), (written - from) as usize);
            pool.fence();
            pool.check()?;
        }
        state.note_values(&[ValueChange { id, dead: 0, written, sealed: true }]);
    }
    let segment = |id: u64, used: &ValueUse| {
        let segment = ValueSegment::new(number(id)?, used);
        let told = unsealed.binary_search_by_key(&id, |(id, _)| *id).is_err();
        segment.is_end_recorded.store(told, Ordering::Release);
        Ok(Arc::new(segment))
    };
    state.values().iter().map(|(id, used)| segment(*id, used)).collect()
}

fn number(id: u64) -> Result<u32> {
    u32::try_from(id).map_err(|_| Error::corrupt("manifest", "the number of a value segment is invalid"))
}

/// Returns the end of the records of a segment that may be longer than the manifest knows.
fn end_of(pool: &Pool, id: u32, used: &ValueUse) -> u64 {
    let bytes = usize::try_from(used.bytes).ok().and_then(|len| pool.bytes(used.at, len)).unwrap_or_default();
    let mut records = Records::new(bytes, id, used.written, used.bytes);
    records.by_ref().for_each(drop);
    records.at.min(used.bytes)
}

/// Returns the damage: headers, and segments that end before a record to which logs point. Such
/// segments are not collected.
pub(super) fn check(pool: &Pool, segments: &[Arc<ValueSegment>], pointer_ends: &PointerEnds) -> Vec<Error> {
    let mut damage = Vec::new();
    for segment in segments {
        let len = usize::try_from(segment.bytes).unwrap_or(usize::MAX);
        let head = pool.bytes(segment.at, len).map(|bytes| &bytes[..bytes.len().min(SEGMENT_HEADER_BYTES as usize)]);
        if let Err(error) = check_segment(head.unwrap_or_default(), segment.id, segment.bytes) {
            damage.push(error);
        }
        if pointer_ends.get(&segment.id).is_some_and(|end| *end > segment.written()) {
            segment.damaged.store(true, Ordering::Release);
            let place = format!("{}, byte {}", name_of(segment.id), segment.written());
            damage.push(Error::corrupt(place, "records that logs name are missing"));
        }
    }
    damage
}
