//! The life of an open pool: its marks in the header, its refusals, its syncs and its close. The
//! persist order is in `pool.rs`.

use std::path::Path;

use lodestore_contract::{Durability, Error, PoisonReason, Result};

use super::{Control, Pool, write_header};
use crate::mutant::Mutant;
use crate::open_state::OpenState;
use crate::probe::MediumKind;
use crate::region_header::raise_generation;
use crate::store_dir::StoreDir;

impl Pool {
    /// Says in the header, durably, that the engine's own creation is finished; to be called when all that it made is
    /// durable. Idempotent; each later open reports it as [`OpenReport::engine_created`](crate::OpenReport::engine_created).
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

    /// Marks the store as damaged, durably: from now on only a salvage opens it. To be called by a
    /// salvage open that leaves out what it cannot read, before it serves anything.
    ///
    /// # Errors
    /// [`Error::Poisoned`], [`Error::Closed`], [`Error::Io`].
    pub fn mark_damaged(&self) -> Result<()> {
        {
            let mut control = self.control();
            self.check()?;
            if control.header.is_damaged || self.mutant(Mutant::SalvageForgotten) {
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

    /// Writes must go no further where this fails: call it at the end (and the start) of each.
    ///
    /// # Errors
    /// [`Error::Poisoned`] after a failed sync, [`Error::Closed`] after [`Self::close`],
    /// [`Error::ForeignProcess`] in a process that was forked from the one that opened it.
    #[inline]
    pub fn check(&self) -> Result<()> {
        if self.memory.state.is_open() { Ok(()) } else { self.refusal() }
    }

    /// Refuses what a process that was forked from the one that opened the pool cannot do.
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

    /// Returns the state of a store on this pool: open, until it is closed or a forked process
    /// asks.
    #[must_use]
    pub fn new_state(&self) -> OpenState {
        self.memory.state.another()
    }

    /// Closes the lock's files in a process that was forked from the one that opened the pool. The
    /// lock stays that process's, and ends with it although this one lives on. Does nothing in the
    /// process that opened the pool.
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
    fn refusal(&self) -> Result<()> {
        self.check_process()?;
        match self.memory.cause() {
            Some(cause) => Err(Error::Poisoned { cause }),
            None => Err(Error::Closed),
        }
    }

    /// Makes the pool refuse writes from now on, for this reason: a panic in the middle of a write, for example.
    pub fn poison(&self, reason: PoisonReason, cause: &str) {
        self.memory.poison(reason, cause);
    }

    /// Makes everything stored so far survive power loss: `fsync` of all regions.
    ///
    /// # Errors
    /// [`Error::DurabilityRefused`] on shared memory (unless it is treated as DAX), which cannot; [`Error::Poisoned`], [`Error::Closed`]; [`Error::Io`], and
    /// the pool is poisoned then.
    pub fn sync(&self) -> Result<()> {
        self.check()?;
        let loses_syncs = self.medium.kind == MediumKind::Shm || self.medium.unsynced.is_some();
        if loses_syncs && !self.opts.emulate_dax {
            return Err(Error::DurabilityRefused {
                asked: Durability::Power,
                medium: self.medium.to_string(),
                instead:
                    "what is written there survives the process without a sync, and never power; use a file or DAX"
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

    /// Ends the use of the store and lets others open it. With `clean`, everything is made durable as far as the medium
    /// can, then the header says that the stop was clean; without, the next open recovers as after a crash.
    /// Idempotent. The bytes stay readable until the pool is dropped; nobody may store to it any more.
    ///
    /// # Errors
    /// [`Error::Poisoned`] where a sync failed earlier, and [`Error::Io`] where it fails now: then
    /// the store is closed all the same, and stays unclean. [`Error::ForeignProcess`]: nothing is
    /// changed. But where only the sync of the flag itself failed, the next open may find it set:
    /// what it vouches for is durable by then.
    pub fn close(&self, clean: bool) -> Result<()> {
        self.check_process()?;
        let mut control = self.control();
        if control.closed {
            return Ok(());
        }
        control.closed = true;
        let result = if clean { self.mark_clean(&mut control) } else { Ok(()) };
        self.memory.state.close();
        // Who was giving back an extent ends before another may have it; who comes later gives back nothing.
        self.alloc.await_givers();
        if let Some(ahead) = &self.ahead {
            ahead.stop();
        }
        control.lock = None;
        result
    }

    fn mark_clean(&self, control: &mut Control) -> Result<()> {
        self.check()?;
        self.alloc.save_for_close(self);
        let seals = self.alloc.seal_tables(self);
        self.memory.fence();
        // What the flag vouches for is durable, or the flag is not set.
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

    /// Returns whether another process may have the store: it was closed, or inherited by a fork.
    pub(crate) fn is_closed(&self) -> bool {
        self.memory.state.is_closed()
    }
}
