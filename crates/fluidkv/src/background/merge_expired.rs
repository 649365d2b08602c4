//! Merges of tables with many expired pairs, in a store that is short of space.
//!
//! A compaction drops expired pairs, but a range without runs has no compaction due. When a write
//! does not fit, the stable tables are therefore examined: each table once, and none that was
//! written without expiring pairs. The time from which on an eighth of a table has expired is kept
//! in DRAM. Tables whose time has come are merged again. The merge frees at least that share, and
//! reports the dropped pairs to a separator.

use std::ops::{Bound, Range as Span};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use lodestore_contract::{Direction, Error, Expiry, Result};

use crate::background::RECLAIM_TIMEOUT;
use crate::background::scheduler::Background;
use crate::background::scheduler::Due;
use crate::sst::Reads;
use crate::tree::counts::Counts;
use crate::values::record::Pointer;
use crate::version::cursor::{Merge, SortedCursor, Source};
use crate::version::known::Known;
use crate::version::range::Range;
use crate::version::tables::{NEVER_STALE_MILLIS, Sorted, TableHandle};

/// Divisor: a table is merged once this share of it has expired.
const EXPIRED_SHARE_DIVISOR: u64 = 8;
/// Most tables of one such merge: its output has to fit into free space.
const MERGED_TABLES_MAX: usize = 8;

/// Returns from when on enough of a table has expired for a merge, in milliseconds since 1970.
fn stale_from(table: &Arc<TableHandle>) -> Result<u64> {
    let list = Sorted::new(vec![Arc::clone(table)]);
    let cursor = SortedCursor::new(&list, Bound::Unbounded, Direction::Forward, Reads::Verified)?;
    let mut merge = Merge::new(Direction::Forward, vec![Source::Sorted(cursor)])?;
    let (mut all, mut expiring) = (0, Vec::new());
    while let Some(pair) = merge.next()? {
        let bytes = pair.key.len() as u64
            + match pair.known {
                Known::Value(value, _) => value.len() as u64,
                Known::Pointer(pointer, _) => u64::from(Pointer::decode(pointer).len),
                Known::Deleted => 0,
            };
        all += bytes;
        expiring.extend(pair.known.expiry().map(|expiry| (expiry, bytes)));
    }
    expiring.sort_unstable();
    let mut expired_bytes = 0;
    let enough = expiring.into_iter().find(|(_, bytes)| {
        expired_bytes += bytes;
        expired_bytes >= all.div_ceil(EXPIRED_SHARE_DIVISOR)
    });
    Ok(enough.map_or(NEVER_STALE_MILLIS, |(expiry, _)| expiry))
}

impl Range {
    /// Returns adjacent stable tables that are known to have enough expired pairs for a merge.
    /// Returns `None` while the range has runs: their compaction drops these pairs.
    pub(crate) fn stale(&self) -> Option<Span<usize>> {
        if !self.runs.is_empty() {
            return None;
        }
        let is_stale = |table: &Arc<TableHandle>| {
            table.stale_from.get().is_some_and(|from| *from != NEVER_STALE_MILLIS && Expiry::at_millis(*from).is_past())
        };
        let tables = &self.stable.tables;
        let first = tables.iter().position(is_stale)?;
        let count = tables[first..].iter().take(MERGED_TABLES_MAX).take_while(|table| is_stale(table)).count();
        Some(first..first + count)
    }
}

impl Background {
    /// Examines tables that have not been examined, for at most `limit`. Returns whether some
    /// tables have enough expired pairs for a merge. Unreadable tables are left alone: their reads
    /// report the damage.
    pub(crate) fn find_stale(&self, limit: Duration) -> bool {
        let began = Instant::now();
        // Only the current table is held, so that tables replaced meanwhile are freed.
        let unseen: Vec<Weak<TableHandle>> = {
            let view = self.view.load();
            let tables = view.ranges.list.iter().flat_map(|range| &range.stable.tables);
            tables.filter(|table| table.stale_from.get().is_none()).map(Arc::downgrade).collect()
        };
        for table in unseen.iter().take_while(|_| began.elapsed() < limit).filter_map(Weak::upgrade) {
            table.stale_from.get_or_init(|| stale_from(&table).unwrap_or(NEVER_STALE_MILLIS));
        }
        self.view.load().ranges.list.iter().any(|range| range.stale().is_some())
    }

    /// Merges the tables with many expired pairs, together with all pending flushes. Returns
    /// whether there were such tables. Examines each table once.
    ///
    /// # Errors
    /// Same as [`Background::run_all_due`], except [`Error::Full`].
    pub(crate) fn merge_expired(&self) -> Result<bool> {
        if self.pool.is_reporting() || !self.find_stale(RECLAIM_TIMEOUT) {
            return Ok(false);
        }
        match self.run_all_due(Due::Scarce, RECLAIM_TIMEOUT) {
            Ok(_) | Err(Error::Full { .. }) => Ok(true),
            Err(other) => Err(other),
        }
    }

    /// Merges these tables of a range without runs.
    ///
    /// # Errors
    /// Same as [`Background::compact`].
    pub(crate) fn merge_stale(&self, range: &Range, span: Span<usize>) -> Result<()> {
        let stale = Sorted::new(range.stable.tables[span].to_vec());
        let merged = self.merge(&[&stale], &range.cuts)?;
        Counts::add(&self.counts.expired_merges, 1);
        self.publish_merged(range, merged)
    }
}
