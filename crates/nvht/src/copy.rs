//! Copies of the whole store during writes ([`lodestore_contract::copy`]).
//!
//! A write records its key under its stripe (`write.rs`, `batch.rs`). Growth moves keys under their
//! stripes and changes none, thus records nothing. The walk copies each range of fractions under
//! the range's stripes: no key moves or changes while its range is copied (`walk.rs`). The removal
//! of an expired key records it, which is harmless.

use lodestore_contract::copy::{Changes, FuzzySource};
use lodestore_contract::{Entry, Pair, Result, Visit};
use lodestore_inplace::HeldStripes;

use crate::inner::Inner;
use crate::layout::CURSOR_MAX;
use crate::search::broken_seal;
use crate::stripe::Held;

/// Start of a range of the walk: a partition, and the first fraction in it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Position {
    partition: usize,
    fraction: u64,
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
        let Position { partition, fraction } = at;
        if partition == self.partitions.len() {
            return if self.is_seal_broken() { Err(broken_seal()) } else { Ok(None) };
        }
        let (mut wrong, mut visited) = (None, Ok(()));
        let next = self.visit_range(partition, fraction, &mut wrong, &mut |pair| {
            visited = visit(pair);
            if visited.is_ok() { Visit::More } else { Visit::Stop }
        })?;
        visited?;
        if let Some(error) = wrong {
            return Err(error);
        }
        let fraction = next.filter(|next| *next < CURSOR_MAX);
        let first_of_next = Position { partition: partition + 1, fraction: 0 };
        Ok(Some(fraction.map_or(first_of_next, |fraction| Position { partition, fraction })))
    }

    fn hold_key(&self, key: &[u8]) -> Result<HeldStripes<'_, Held<'_>>> {
        let operation = self.enter()?;
        let hashed = self.hasher.hash(key);
        Ok(HeldStripes::new(operation, [self.stripes.lock(hashed.stripe())]))
    }

    fn hold_all(&self) -> Result<HeldStripes<'_, Held<'_>>> {
        let operation = self.enter()?;
        Ok(HeldStripes::new(operation, self.stripes.lock_all()))
    }

    fn read_held(&self, _held: &Self::Held<'_>, key: &[u8]) -> Result<Option<Entry>> {
        let live = self.find_live(self.hasher.hash(key), key, true)?;
        Ok(live.map(|hit| Entry::of_pair(hit.record.pair())))
    }
}
