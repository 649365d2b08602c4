//! Creates a pool, and removes the rest of a failed creation. The persist order is in `pool.rs`.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use lodestore_contract::{Error, Result};

use crate::background::Background;
use crate::boot;
use crate::file_names::{self, LOCK_FILE, VALUES_FILE};
use crate::files::{self, DirContent, MappedRegion, RegionCreator};
use crate::header::PoolHeader;
use crate::header_writes::{first_header, write_first_header};
use crate::lock::StoreLock;
use crate::open::{memory_for, read_header};
use crate::options::PoolOptions;
use crate::pool::{OpenReport, Pool, PoolParts};
use crate::probe;
use crate::store_dir::{self, Access, StoreDir};

/// Attempts to create the directory of a new store while other creations fail and remove it.
const CREATION_ATTEMPTS: u32 = 100;

impl Pool {
    /// Creates a pool in `dir`, which must not exist or be empty. An interrupted creation there is
    /// started over.
    ///
    /// # Errors
    /// [`Error::Exists`] if a store, or something else, is there; [`Error::InvalidOption`],
    /// [`Error::DurabilityRefused`], [`Error::Full`], [`Error::Locked`], [`Error::Io`]. After an
    /// error no pool of this creation exists.
    pub fn create(dir: &Path, engine: &str, engine_format: u32, opts: PoolOptions) -> Result<(Arc<Self>, OpenReport)> {
        opts.check(engine)?;
        let existed = files::classify(dir)?.0 != DirContent::Nothing;
        let created = Self::create_in(dir, engine, engine_format, opts);
        // Skips a pool that another process has created or is creating: examining it would need its
        // lock.
        let is_own = |refused: &Error| !matches!(refused, Error::Exists { .. } | Error::Locked { .. });
        if !existed && created.as_ref().is_err_and(is_own) {
            remove_pool(dir, |header| !header.engine_created);
        }
        created
    }

    fn create_in(
        dir: &Path,
        engine: &str,
        engine_format: u32,
        mut opts: PoolOptions,
    ) -> Result<(Arc<Self>, OpenReport)> {
        let known = store_dir::known_ancestor(dir);
        let (store_dir, mut lock) = lock_new_dir(dir)?;
        drop(files::remove_unfinished(&store_dir)?);
        opts.limit_first_region(store_dir.free_bytes());
        let creator = RegionCreator::new(&store_dir, None, &opts);
        let never = AtomicBool::new(false);
        let first = opts.first_region_bytes();
        let start = Instant::now();
        let MappedRegion { mapping, medium } = creator.create(0, first, &never)?.ok_or(Error::Closed)?;
        let took = start.elapsed();
        let mut is_named = false;
        let made = (|| {
            if let Some(file) = mapping.file() {
                lock.lock_region0(&store_dir, &file_names::unfinished_name(0), file)?;
            }
            let persist = probe::policy(&medium, opts.durability, opts.emulate_dax)?;
            let memory = memory_for(persist, &opts)?;
            let mapping = Arc::new(mapping);
            memory.regions.add(Arc::clone(&mapping));
            let pool_id = boot::random_id().map_err(|refused| Error::io("creating an id for", dir, refused))?;
            let header = first_header(engine, engine_format, &opts, (pool_id, memory.boot_id()));
            let header = write_first_header(&memory, header);
            if let (true, Some(file)) = (memory.persists(), mapping.file()) {
                file.sync_all().map_err(|refused| Error::io("syncing a region of", dir, refused))?;
            }
            creator.finish(0, &mapping)?;
            is_named = true;
            if memory.persists() {
                store_dir.sync()?;
                store_dir::sync_parents(dir, &known)?;
            }
            Ok((memory, header, mapping))
        })();
        let (memory, header, mapping) = made.inspect_err(|_| {
            // Before this region has the name, a file of the name is foreign.
            if is_named {
                files::remove_named_region(&store_dir, 0);
            } else {
                files::remove_unfinished_region(&store_dir, 0);
            }
        })?;
        lock.mark_store();
        let creator = RegionCreator { pool_medium: Some(medium.clone()), ..creator };
        let background = Background::new(creator, opts.usual_region_bytes(first));
        background.fill_rate().record_creation(first, took);
        let background = Some(background);
        let parts = PoolParts { memory, opts, medium, dir: Some(store_dir), background, header, lock: Some(lock) };
        let pool = Self::assemble(parts)?;
        pool.begin_new()?;
        pool.join_pages(&mapping);
        Ok((pool, OpenReport::of_new(engine, engine_format)))
    }

    /// Identifies this pool, which was just created in `dir`, for [`CreatedPool::remove`].
    pub fn created_in(&self, dir: &Path) -> CreatedPool {
        let control = self.control();
        CreatedPool { dir: dir.into(), pool_id: control.header.pool_id, generation: control.header.generation }
    }
}

/// A pool that this process created, for a creation that fails after [`Pool::create`].
#[derive(Debug, Clone)]
pub struct CreatedPool {
    dir: PathBuf,
    pool_id: [u8; 16],
    /// The pool's generation before it is closed or opened again.
    generation: u64,
}

impl CreatedPool {
    /// Removes the files of the pool, which is not open, and its directory if that is empty then. A
    /// pool that another process has created there or has opened meanwhile stays. Files that cannot
    /// be removed stay.
    pub fn remove(&self) {
        remove_pool(&self.dir, |header| header.pool_id == self.pool_id && header.generation == self.generation);
    }
}

/// Removes the rest of a creation: the files of the pool in `dir` if `accepts` accepts its header,
/// or if there is no pool. Then removes the directory if it is empty.
fn remove_pool(dir: &Path, accepts: impl Fn(&PoolHeader) -> bool) {
    let Ok(store_dir) = StoreDir::open(dir) else { return };
    match StoreLock::acquire(&store_dir) {
        Ok(mut lock) if holds_only(&store_dir, accepts) => {
            lock.clear_store_mark();
            remove_files(&store_dir);
        }
        Err(Error::Io { .. }) => {}
        _ => return,
    }
    // A directory that is not empty stays.
    let _ = std::fs::remove_dir(dir);
}

/// Returns whether a directory holds no pool, or one whose header fits.
fn holds_only(dir: &StoreDir, fits: impl Fn(&PoolHeader) -> bool) -> bool {
    match files::classify_dir(dir) {
        Ok(DirContent::Empty) => true,
        Ok(DirContent::Store) => {
            let path = dir.path_of(&file_names::region_name(0));
            let opened = files::open_region(dir, 0, Access::Read);
            opened.and_then(|(file, _)| read_header(&file, &path)).is_ok_and(|header| fits(&header))
        }
        _ => false,
    }
}

/// Removes the files of a pool whose lock this process holds.
fn remove_files(dir: &StoreDir) {
    // First: without a region it would be a foreign file that blocks the next creation.
    if dir.entry(VALUES_FILE).is_ok_and(|found| found.is_some_and(|found| found.is_file())) {
        let _ = dir.remove_file(VALUES_FILE);
    }
    // The first region last: a directory with later regions alone is refused to the next creation.
    let count =
        (0..=u16::MAX).take_while(|index| matches!(dir.entry(&file_names::region_name(*index)), Ok(Some(_)))).count();
    for index in (0..count as u16).rev() {
        let _ = dir.remove_file(&file_names::region_name(index));
    }
    // A process that opened the file before sees that the name is gone, and tries again.
    let _ = dir.remove_file(LOCK_FILE);
}

/// Creates the directory of a new store, if it does not exist, and acquires its lock. A creation
/// that fails in another process may remove the directory in between; it is then created again.
///
/// # Errors
/// [`Error::Exists`] if the directory holds anything; [`Error::Locked`]; [`Error::Io`].
fn lock_new_dir(dir: &Path) -> Result<(Arc<StoreDir>, StoreLock)> {
    let mut attempts = 0;
    loop {
        attempts += 1;
        let locked = files::create_dir(dir).and_then(|made| {
            let lock = StoreLock::acquire(&made)?;
            Ok((Arc::new(made), lock))
        });
        match locked {
            Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound && attempts < CREATION_ATTEMPTS => {}
            Err(refused) => return Err(refused),
            // Checked again under the lock: another process may have created a store meanwhile.
            Ok((made, lock)) => match files::classify_dir(&made)? {
                DirContent::Empty => return Ok((made, lock)),
                found => return Err(found.refusal_of_creation(dir)),
            },
        }
    }
}
