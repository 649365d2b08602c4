//! Copies of the whole store during writes ([`lodestore_contract::copy`]).
//!
//! A write records its key under its stripe (`write.rs`, `batch.rs`). A split moves entries under
//! all stripes of its partition and changes no key, thus records nothing. The walk reads the
//! segments of one directory after the other. A key that exists throughout is in the segment that
//! covers its prefix, before a split and after it. The removal of an expired key records it, which
//! is harmless.

use lodestore_contract::copy::{Changes, FuzzySource};
use lodestore_contract::{Entry, Pair, Result, Visit};
use lodestore_inplace::HeldStripes;

use crate::inner::Inner;
use crate::stripe::Held;
use crate::table::walk_from;

/// Start of a part of the walk: a partition, and the first 32-bit prefix in it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Position {
    partition: usize,
    covered: u64,
}

impl FuzzySource for Inner {
    type Position = Position;
    type Held<'a> = HeldStripes<'a, Held<'a>>;

    fn changes(&self) -> &Changes {
        &self.changes
    }

    fn pass_stripes(&self) -> Result<()> {
        let _operation = self.enter()?;
        self.stripes.wait_for_holders();
        Ok(())
    }

    fn walk_part(&self, at: Position, visit: &mut dyn FnMut(Pair<'_>) -> Result<()>) -> Result<Option<Position>> {
        let Position { partition, covered } = at;
        if partition == self.table.shape.partitions as usize {
            return self.check_complete().map(|()| None);
        }
        let _operation = self.enter()?;
        let (mut next, mut wrong, mut visited) = (Position { partition: partition + 1, covered: 0 }, None, Ok(()));
        walk_from(&self.table, &self.pool, (partition, covered), |location, slots| {
            next = Position { partition, covered: (location.prefix + 1) << (32 - location.segment.depth) };
            self.visit_slots(location, slots, true, &mut wrong, &mut |pair| {
                visited = visit(pair);
                if visited.is_ok() { Visit::More } else { Visit::Stop }
            });
            Ok(false)
        })?;
        visited.and(wrong.map_or(Ok(Some(next)), Err))
    }

    fn hold_key(&self, key: &[u8]) -> Result<HeldStripes<'_, Held<'_>>> {
        let operation = self.enter()?;
        let target = self.target(key);
        Ok(HeldStripes::new(operation, [self.stripes.lock(target.stripe)]))
    }

    fn hold_all(&self) -> Result<HeldStripes<'_, Held<'_>>> {
        let operation = self.enter()?;
        Ok(HeldStripes::new(operation, self.stripes.lock_all()))
    }

    fn read_held(&self, _held: &Self::Held<'_>, key: &[u8]) -> Result<Option<Entry>> {
        let live = self.find_live(&self.target(key), true)?;
        Ok(live.map(|hit| Entry::of_pair(hit.record.pair())))
    }
}
