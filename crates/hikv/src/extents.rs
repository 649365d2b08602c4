//! Checks that the extent table has the extents of directories and segments.
//!
//! The extent table cannot distinguish a word that damage zeroed from one that was never written.
//! Its space would be allocated again, over the index. The index names its extents itself: each
//! open compares both, at 8 bytes read per segment.

use lodestore_contract::PoisonReason;
use lodestore_media::{ExtentKind, NvPtr, Pool};

use crate::layout::{KIND_DIRECTORY, KIND_SEGMENT};
use crate::split::directory_bytes;
use crate::table::{Segment, Table};

/// Makes the store refuse writes if the extent table lacks an extent of this partition. Existing
/// data stays readable. Must be called before any allocation.
pub(crate) fn check(table: &Table, pool: &Pool, partition: usize, segments: &[(Segment, u64)]) {
    let has = |at: NvPtr, bytes: u64, kind: ExtentKind| pool.allocator().holds_extent(pool, at, bytes, kind);
    let directory = table.roots.load(partition);
    if !has(directory.at, directory_bytes(directory.depth), KIND_DIRECTORY) {
        lost(pool, "directory", directory.at);
    }
    for (segment, _) in segments {
        if !has(segment.at, u64::from(table.shape.segment_bytes), KIND_SEGMENT) {
            return lost(pool, "segment", segment.at);
        }
    }
}

#[cold]
fn lost(pool: &Pool, what: &str, at: NvPtr) {
    pool.poison(PoisonReason::Damage, &format!(
        "the extent table lacks the {what} at {at:?}, whose space would be used twice: export the store, and import \
         the export into a new store"
    ));
}
