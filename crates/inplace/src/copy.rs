//! Copies of the whole store during writes ([`lodestore_contract::copy`]).
//!
//! A write records its key under its stripe (`write.rs`, `batch.rs`). Neither a split nor growth
//! changes a key, thus they record nothing. A walk shows a key that exists throughout, wherever its
//! entry moves meanwhile. The removal of an expired key records it, which is harmless.

use lodestore_contract::copy::{Changes, FuzzySource};
use lodestore_contract::{Entry, Pair, Result, Visit};

use crate::base::Operation;
use crate::index::{Index, WALK_POSITION_COUNT};
use crate::stripe::Held;

/// A store as the source of a copy.
pub(crate) struct CopySource<'e, E>(pub(crate) &'e E);

/// Start of a part of the walk: a partition, and the position in it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct WalkPosition {
    partition: usize,
    from: u64,
}

/// Stripes that an operation of the copier holds.
pub(crate) struct HeldStripes<'a, E: Index> {
    // Freed before the operation ends.
    _stripes: Vec<Held<'a, E::Stripe>>,
    _operation: Operation<'a>,
}

impl<E: Index> FuzzySource for CopySource<'_, E> {
    type Position = WalkPosition;
    type Held<'a>
        = HeldStripes<'a, E>
    where
        Self: 'a;

    fn changes(&self) -> &Changes {
        &self.0.changes
    }

    fn pass_stripes(&self) -> Result<()> {
        let _operation = self.0.enter()?;
        self.0.stripes().wait_for_holders();
        Ok(())
    }

    fn walk_part(
        &self,
        at: WalkPosition,
        visit: &mut dyn FnMut(Pair<'_>) -> Result<()>,
    ) -> Result<Option<WalkPosition>> {
        let WalkPosition { partition, from } = at;
        if partition == self.0.partition_count() {
            return self.0.check_complete().map(|()| None);
        }
        let (mut wrong, mut visited) = (None, Ok(()));
        let next = self.0.visit_piece(partition, from, true, &mut wrong, &mut |pair| {
            visited = visit(pair);
            if visited.is_ok() { Visit::More } else { Visit::Stop }
        })?;
        visited?;
        if let Some(error) = wrong {
            return Err(error);
        }
        let first_of_next = WalkPosition { partition: partition + 1, from: 0 };
        let next = next.filter(|next| *next < WALK_POSITION_COUNT);
        Ok(Some(next.map_or(first_of_next, |from| WalkPosition { partition, from })))
    }

    fn hold_key(&self, key: &[u8]) -> Result<HeldStripes<'_, E>> {
        let operation = self.0.enter()?;
        let stripe = self.0.stripes().lock(E::stripe_of(self.0.hash_key(key)));
        Ok(HeldStripes { _stripes: vec![stripe], _operation: operation })
    }

    fn hold_all(&self) -> Result<HeldStripes<'_, E>> {
        let operation = self.0.enter()?;
        Ok(HeldStripes { _stripes: self.0.stripes().lock_all(), _operation: operation })
    }

    fn read_held(&self, _held: &HeldStripes<'_, E>, key: &[u8]) -> Result<Option<Entry>> {
        let live = self.0.find_live(self.0.target(key), true)?;
        Ok(live.map(|record| Entry::of_pair(record.pair())))
    }
}
