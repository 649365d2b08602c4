//! The first steps of an open: whether the store was made, making it where it was not.

use lodestore_contract::{Error, Result};
use lodestore_media::{Mutant, OpenReport, Pool};

/// What is fixed when a store is created, in the superblock of its engine.
pub trait Shape: Copy {
    /// Reads it; `None` where it is not whole.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::NewerFormat`].
    fn load(pool: &Pool) -> Result<Option<Self>>;

    /// Writes it and flushes; durable after the caller's fence.
    fn store(&self, pool: &Pool);

    /// Writes and flushes all that a new store of this shape has besides.
    ///
    /// # Errors
    /// [`Error::Full`] and what else keeps the pool from growing.
    fn make(&self, pool: &Pool) -> Result<()>;

    /// The refusal of a store that was made and has no superblock any more.
    fn lost() -> Error;
}

/// A store that is there, and nothing of it read yet but its shape.
pub struct Begun<S> {
    /// Its shape.
    pub shape: S,
    /// Whether all words of the index are durable as they are read; else the engine is to settle
    /// them.
    pub settled: bool,
    fresh: bool,
}

impl<S: Shape> Begun<S> {
    /// Reads the superblock. Where there is none, and the pool's header does not say that the
    /// creation came to its end, the store is made, or made again, of the shape `new`: the
    /// superblock last.
    ///
    /// # Errors
    /// Those of [`Shape`].
    pub fn begin(pool: &Pool, report: &OpenReport, new: impl FnOnce() -> S) -> Result<Self> {
        let (shape, fresh) = match S::load(pool)? {
            Some(shape) => (shape, false),
            None if report.engine_created || (report.clean && !report.created) => return Err(S::lost()),
            None => (new(), true),
        };
        if fresh {
            if pool.mutant(Mutant::CreatedEarly) {
                pool.mark_created()?;
            }
            if pool.mutant(Mutant::RootEarly) {
                shape.store(pool);
                pool.fence();
            }
            shape.make(pool)?;
            pool.fence_checked()?;
            shape.store(pool);
            pool.fence_checked()?;
        }
        Ok(Self { shape, settled: report.settled || pool.mutant(Mutant::EntriesNotSettled), fresh })
    }

    /// As [`Base::unsettled`](crate::Base::unsettled).
    pub fn is_unsettled(&self) -> bool {
        !self.settled && !self.fresh
    }
}
