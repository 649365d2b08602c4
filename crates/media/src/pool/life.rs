//! The life of an open pool: its marks in the header, its refusals, its syncs and its close. The
//! persist order is in `pool.rs`.

use std::path::Path;

use lodestore_contract::{Durability, Error, PoisonReason, Result};

use super::{Control, Pool};
use crate::header_writes::{raise_generation, write_header};
use crate::open_state::OpenState;
use crate::planted;
use crate::probe::MediumKind;
use crate::store_dir::StoreDir;

impl Pool {
    /// Marks the engine's own creation as finished in the header, durably. Call it when all data of
    /// the creation is durable. Idempotent; each later open reports the mark as
    /// [`OpenReport::engine_created`](crate::OpenReport::engine_created).
    ///
    /// # Errors
    /// [`Error::Poisoned`], [`Error::Closed`].
    pub fn mark_created(&self) -> Result<()> {
        let mut control = self.control();
        self.check()?;
        if !control.header.engine_created {
            control.header.engine_created = true;
            write_header(&self.memory, &mut control.header);
        }
        self.check()
    }

    /// Stores a number of the owner in both copies of the header, durably: two fences, and a sync
    /// of the header on a medium whose file system syncs files.
    ///
    /// # Errors
    /// [`Error::Poisoned`], [`Error::Closed`], [`Error::Io`].
    pub fn set_mark(&self, mark: u64) -> Result<()> {
        {
            let mut control = self.control();
            self.check()?;
            control.header.mark = mark;
            write_header(&self.memory, &mut control.header);
        }
        self.sync_header()?;
        self.check()
    }

    /// Marks the store as damaged, durably: from now on only a salvage opens it. A salvage open
    /// that leaves out unreadable data calls it before it serves anything.
    ///
    /// # Errors
    /// [`Error::Poisoned`], [`Error::Closed`], [`Error::Io`].
    pub fn mark_damaged(&self) -> Result<()> {
        {
            let mut control = self.control();
            self.check()?;
            if control.header.is_damaged || self.has_fault(planted::SALVAGE_FORGOTTEN) {
                return Ok(());
            }
            control.header.is_damaged = true;
            write_header(&self.memory, &mut control.header);
        }
        self.sync_header()?;
        self.check()
    }

    /// Makes the header durable on a medium whose file system syncs files.
    pub(super) fn sync_header(&self) -> Result<()> {
        if !matches!(self.medium.kind, MediumKind::File | MediumKind::Dax) {
            return Ok(());
        }
        let path = self.dir.as_deref().map_or(Path::new(""), StoreDir::path);
        self.memory.sync_header().map_err(|refused| Error::io("syncing the header of", path, refused))
    }

    /// Checks that the pool accepts writes. Call it at the start and the end of each write, and
    /// stop on an error.
    ///
    /// # Errors
    /// [`Error::Poisoned`] after a failed sync, [`Error::Closed`] after [`Self::close`],
    /// [`Error::ForeignProcess`] in a process that was forked from the one that opened it.
    #[inline]
    #[track_caller]
    pub fn check(&self) -> Result<()> {
        if self.memory.state.is_open() { Ok(()) } else { self.refusal() }
    }

    /// Refuses operations in a process that was forked from the one that opened the pool.
    ///
    /// # Errors
    /// [`Error::ForeignProcess`].
    pub fn check_process(&self) -> Result<()> {
        self.memory.state.check_process()
    }

    /// Returns whether another process opened the pool, and this one inherited it by a fork.
    pub fn is_foreign(&self) -> bool {
        self.memory.state.is_foreign()
    }

    /// Creates the state of a store on this pool: open until closed, or until a forked process
    /// checks it.
    #[must_use]
    pub fn new_state(&self) -> OpenState {
        self.memory.state.another()
    }

    /// Closes the lock's files in a process that was forked from the one that opened the pool. The
    /// lock still belongs to that process, and ends with it even if this one lives on. Does nothing
    /// in the process that opened the pool.
    pub fn close_inherited_lock(&self) {
        // A thread that does not exist here may have held the mutex at the fork.
        if self.is_foreign()
            && let Ok(mut control) = self.control.try_lock()
            && let Some(lock) = control.lock.take()
        {
            lock.close_inherited();
        }
    }

    #[cold]
    #[track_caller]
    fn refusal(&self) -> Result<()> {
        self.check_process()?;
        match self.memory.cause() {
            Some(_) if self.memory.is_unchecked(std::panic::Location::caller()) => Ok(()),
            Some(cause) => Err(Error::Poisoned { cause }),
            None => Err(Error::Closed),
        }
    }

    /// Makes the pool refuse writes from now on, for this reason (for example a panic during a
    /// write).
    pub fn poison(&self, reason: PoisonReason, cause: &str) {
        self.memory.poison(reason, cause);
    }

    /// Makes all stored data durable across power loss: `fsync` of all regions.
    ///
    /// # Errors
    /// [`Error::DurabilityRefused`] on shared memory, which cannot (unless it is treated as DAX);
    /// [`Error::Poisoned`], [`Error::Closed`]; [`Error::Io`], which also poisons the pool.
    pub fn sync(&self) -> Result<()> {
        self.check()?;
        let loses_syncs = self.medium.kind == MediumKind::Shm || self.medium.unsynced.is_some();
        if loses_syncs && !self.opts.emulate_dax {
            return Err(Error::DurabilityRefused {
                asked: Durability::Power,
                medium: self.medium.to_string(),
                instead: "its writes survive the process without a sync, and never a power failure; use a file or DAX"
                    .into(),
            });
        }
        self.sync_files()
    }

    fn sync_files(&self) -> Result<()> {
        if !matches!(self.medium.kind, MediumKind::File | MediumKind::Dax) {
            return Ok(());
        }
        for (index, mapping) in self.memory.regions.mappings().iter().enumerate() {
            let synced = mapping.file().map_or(Ok(()), |file| file.sync_all());
            if let Err(refused) = synced {
                self.memory.poison(PoisonReason::Sync, &format!("fsync of region {index}: {refused}"));
                let path = self.dir.as_deref().map_or(Path::new(""), StoreDir::path);
                return Err(Error::io("syncing a region of", path, refused));
            }
        }
        Ok(())
    }

    /// Ends the use of the store and lets others open it. With `clean`, everything is made durable
    /// as far as the medium can, then the header records a clean stop. Without it, the next open
    /// recovers as after a crash. Idempotent. The bytes stay readable until the pool is dropped;
    /// nothing may store to them any more.
    ///
    /// # Errors
    /// [`Error::Poisoned`] if a sync failed earlier, [`Error::Io`] if one fails now: the store is
    /// closed nevertheless, and stays unclean. [`Error::ForeignProcess`]: nothing is changed. If
    /// only the sync of the flag itself failed, the next open may find it set: everything it
    /// vouches for is durable by then.
    pub fn close(&self, clean: bool) -> Result<()> {
        self.check_process()?;
        let mut control = self.control();
        if control.closed {
            return Ok(());
        }
        control.closed = true;
        let result = if clean { self.mark_clean(&mut control) } else { Ok(()) };
        self.memory.state.close();
        // Waits for threads that are freeing extents before another process may own the store.
        // Later frees do nothing.
        self.alloc.wait_for_frees();
        if let Some(background) = &self.background {
            background.stop();
        }
        control.lock = None;
        result
    }

    fn mark_clean(&self, control: &mut Control) -> Result<()> {
        self.check()?;
        self.alloc.save_for_close(self);
        let seals = self.alloc.seal_tables(self);
        self.memory.fence();
        // The flag is set only if everything it vouches for is durable.
        self.check()?;
        raise_generation(&self.memory, &mut control.header, &control.stale, &seals);
        self.check()?;
        self.sync_files()?;
        self.check()?;
        control.header.clean = true;
        write_header(&self.memory, &mut control.header);
        self.sync_files()?;
        self.check()
    }

    /// Returns whether another process may own the store: it was closed, or inherited by a fork.
    pub(crate) fn is_closed(&self) -> bool {
        self.memory.state.is_closed()
    }
}
