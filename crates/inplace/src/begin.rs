//! The first steps of an open: checks whether the store exists, and creates it otherwise.

use lodestore_contract::{Error, Result};
use lodestore_media::{Mutant, OpenReport, Pool};

/// Parameters that are fixed when a store is created, in the superblock of its engine.
pub trait Shape: Copy {
    /// Reads the superblock; `None` if it is not whole.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::NewerFormat`].
    fn load(pool: &Pool) -> Result<Option<Self>>;

    /// Writes and flushes the superblock; durable after the caller's fence.
    fn store(&self, pool: &Pool);

    /// Writes and flushes everything else of a new store with this shape.
    ///
    /// # Errors
    /// [`Error::Full`] and other errors of growing the pool.
    fn make(&self, pool: &Pool) -> Result<()>;

    /// Returns the error for an existing store without a valid superblock.
    fn lost() -> Error;
}

/// An existing store of which only the shape has been read.
pub struct Begun<S> {
    /// Its shape.
    pub shape: S,
    /// All words of the index are durable as they are read; otherwise the engine must make them
    /// durable.
    pub settled: bool,
    fresh: bool,
}

impl<S: Shape> Begun<S> {
    /// Reads the superblock. If there is none and the pool's header has no completed creation,
    /// creates the store with the shape `new`, the superblock last. An incomplete creation is
    /// repeated.
    ///
    /// # Errors
    /// As [`Shape`].
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
