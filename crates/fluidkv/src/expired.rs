//! Tables much of which has expired, in a store that has no room.
//!
//! A compaction leaves out what has expired, but a range without runs has none due. So where a write finds no room, its tables are looked at, each once while it stands and not if it was written with nothing that expires: from when on
//! an eighth of it has expired is kept in DRAM. Those whose time has come are merged anew, which gives at least that much back, and tells a separator.

use std::ops::{Bound, Range as Span};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use lodestore_contract::{Direction, Error, Expiry, Result};

use crate::cursor::{Merge, SortedCursor, Source};
use crate::inner::{Counts, Inner};
use crate::migrate::{Due, RECLAIM};
use crate::table::Reads;
use crate::tables::{Sorted, TableHandle};
use crate::value_log::record::Pointer;
use crate::view::{Known, Range};

/// The part of a table that has expired when it is worth a merge.
const WORTH_PART: u64 = 8;
/// Most tables of such a merge: what is written has to find room.
const TOGETHER: usize = 8;
/// Of a table that is never worth it.
pub(crate) const NEVER: u64 = u64::MAX;

/// From when on so much of a table has expired that it is worth a merge, in milliseconds since 1970.
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
    let mut gone = 0;
    let enough = expiring.into_iter().find(|(_, bytes)| {
        gone += bytes;
        gone >= all.div_ceil(WORTH_PART)
    });
    Ok(enough.map_or(NEVER, |(expiry, _)| expiry))
}

impl Range {
    /// Stable tables side by side that are known to be worth a merge for what has expired there; none while there are runs, whose compaction leaves it out.
    pub(crate) fn stale(&self) -> Option<Span<usize>> {
        if !self.runs.is_empty() {
            return None;
        }
        let is_stale = |table: &Arc<TableHandle>| {
            table.stale_from.get().is_some_and(|from| *from != NEVER && Expiry::at_millis(*from).is_past())
        };
        let tables = &self.stable.tables;
        let first = tables.iter().position(is_stale)?;
        let count = tables[first..].iter().take(TOGETHER).take_while(|table| is_stale(table)).count();
        Some(first..first + count)
    }
}

impl Inner {
    /// Looks at the tables that nobody has looked at, for so long at most; whether some are worth a merge for what has expired there. What cannot be read is left alone: its reads tell.
    pub(crate) fn find_stale(&self, limit: Duration) -> bool {
        let began = Instant::now();
        // What is replaced meanwhile comes free: nothing is held but the table at hand.
        let unseen: Vec<Weak<TableHandle>> = {
            let view = self.view.load();
            let tables = view.ranges.list.iter().flat_map(|range| &range.stable.tables);
            tables.filter(|table| table.stale_from.get().is_none()).map(Arc::downgrade).collect()
        };
        for table in unseen.iter().take_while(|_| began.elapsed() < limit).filter_map(Weak::upgrade) {
            table.stale_from.get_or_init(|| stale_from(&table).unwrap_or(NEVER));
        }
        self.view.load().ranges.list.iter().any(|range| range.stale().is_some())
    }

    /// Merges the tables much of which has expired, with all that waits for a flush. Returns
    /// whether there were any. Examines each table once.
    ///
    /// # Errors
    /// Those of [`Inner::settle`], except [`Error::Full`].
    pub(crate) fn merge_expired(&self) -> Result<bool> {
        if self.pool.is_telling() || !self.find_stale(RECLAIM) {
            return Ok(false);
        }
        match self.settle(Due::Scarce, RECLAIM) {
            Ok(_) | Err(Error::Full { .. }) => Ok(true),
            Err(other) => Err(other),
        }
    }

    /// Merges these tables of a range without runs anew.
    ///
    /// # Errors
    /// As [`Inner::compact`].
    pub(crate) fn merge_stale(&self, range: &Range, span: Span<usize>) -> Result<()> {
        let stale = Sorted::new(range.stable.tables[span].to_vec());
        let merged = self.merge(&[&stale], &range.cuts)?;
        Counts::add(&self.counts.stale, 1);
        self.publish_merged(range, merged)
    }
}
