//! Opens a pool. The persist order is in `pool.rs`; creation is in `create.rs`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use lodestore_contract::{Durability, Error, Finding, Result};

use crate::background::Background;
use crate::boot;
use crate::file_names;
use crate::files::{self, DirContent, MappedRegion, RegionCreator};
use crate::header::PoolHeader;
use crate::latency::Latency;
use crate::lock::StoreLock;
use crate::memory::{Memory, Persist};
use crate::options::{PoolOptions, Prefault};
use crate::pool::{OpenReport, Opening, Pool, PoolParts};
use crate::probe::{self, Medium, MediumKind};
use crate::region_header::{CheckedRegion, HeaderCopies, REGION_HEADER_USED_BYTES, RegionHeader};
use crate::region_layout::HEADER_BYTES;
use crate::store_dir::{self, Access, StoreDir};

/// The header of a store, read without opening it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderSummary {
    /// The engine that created the store.
    pub engine: String,
    /// The engine's format on the medium.
    pub engine_format: u32,
    /// The last stop was clean (false while the store is open).
    pub clean: bool,
    /// The machine has not been rebooted since the last open.
    pub same_boot: bool,
    /// Maximum bytes of the store.
    pub capacity: u64,
    /// Maximum bytes of one region. The first regions may be shorter.
    pub region_bytes: u64,
    /// Bytes of a chunk.
    pub chunk_bytes: u32,
    /// Number of regions.
    pub regions: u32,
    /// The durability of the store.
    pub durability: Durability,
    /// Whether the store treats its mapping as DAX.
    pub emulate_dax: bool,
    /// [`Pool::opening`] at the last change of the header.
    pub opening: u64,
}

impl HeaderSummary {
    fn of(header: &PoolHeader) -> Self {
        Self {
            engine: header.engine.clone(),
            engine_format: header.engine_format,
            clean: header.clean,
            same_boot: header.boot_id == boot::boot_id(),
            capacity: header.capacity,
            region_bytes: header.region_bytes,
            chunk_bytes: header.chunk_bytes,
            regions: header.regions,
            durability: header.durability,
            emulate_dax: header.emulate_dax,
            opening: header.sequence,
        }
    }
}

impl Pool {
    /// Opens the store in `dir`. The documentation of [`PoolOptions`]'s module says which options
    /// count. After an unclean stop the report says so, and the engine recovers.
    ///
    /// # Errors
    /// [`Error::Missing`], [`Error::Locked`], [`Error::Corrupt`] (headers, missing or shortened
    /// regions), [`Error::NewerFormat`], [`Error::WrongEngine`], [`Error::DurabilityRefused`],
    /// [`Error::InvalidOption`] for a durability that the store cannot be raised to,
    /// [`Error::MachineRestarted`] (unless `salvage`), [`Error::Io`]. On an error nothing is
    /// changed, except by a failed sync of the header.
    pub fn open(dir: &Path, engine: &str, engine_format: u32, opts: PoolOptions) -> Result<(Arc<Self>, OpenReport)> {
        let store_dir = match files::classify(dir)? {
            (DirContent::Store, Some(store_dir)) => Arc::new(store_dir),
            (found, _) => return Err(found.refusal(dir)),
        };
        let mut lock = match StoreLock::acquire(&store_dir) {
            Err(Error::Io { .. }) if store_dir.is_removed() => return Err(Error::missing(dir)),
            taken => taken?,
        };
        // Checked again under the lock: a failed creation may have removed its files meanwhile.
        if files::classify_dir(&store_dir)? != DirContent::Store {
            return Err(Error::missing(dir));
        }
        let path = store_dir.path_of(&file_names::region_name(0));
        let (file, len) = files::open_region(&store_dir, 0, Access::ReadWrite)?;
        lock.lock_region0(&store_dir, &file_names::region_name(0), &file)?;
        lock.mark_store();
        let header = read_header(&file, &path)?;
        check_engine(&header, engine, engine_format)?;
        let opts = options_in_force(opts, &header)?;
        let report = report_of(&header, boot::boot_id());
        // On shared memory nothing survives a restart: a store there with another boot ID was
        // copied. The copy may be torn in the same way.
        let only_process = header.durability == Durability::Process || header.emulate_dax;
        if !report.clean && !report.same_boot && !opts.salvage && only_process {
            return Err(Error::MachineRestarted { path: dir.into() });
        }
        if len != header.region0_bytes {
            let what = format!(
                "the file has {len} bytes, and it was created with {}: restore all files from one copy",
                header.region0_bytes
            );
            return Err(Error::corrupt(path.display().to_string(), what));
        }
        let MappedRegion { mapping, medium } = files::map_region(&path, file, len, &opts)?;
        let memory = memory_for(probe::policy(&medium, opts.durability, opts.emulate_dax)?, &opts)?;
        memory.regions.add(Arc::new(mapping));
        let mut opening = Opening::of(&header, &path.display().to_string(), &opts)?;
        for index in 1..header.regions as u16 {
            let (mapping, checked) = open_later_region(&store_dir, index, &header, &medium, &opts)?;
            opening.add_region(checked, &opts)?;
            memory.regions.add(Arc::new(mapping));
        }
        let report = OpenReport { settled: report.clean || memory.sync_all(), ..report };
        let removed = files::remove_unfinished(&store_dir)?;
        remove_unnamed_region(&store_dir, &header)?;
        if opts.durability != header.durability {
            sync_for_raise(&memory, &store_dir)?;
        }
        let creator = RegionCreator::new(&store_dir, Some(medium.clone()), &opts);
        let background = Background::new(creator, opts.usual_region_bytes(memory.regions.total_bytes()));
        background.close_files(removed);
        let background = Some(background);
        let parts = PoolParts { memory, opts, medium, dir: Some(store_dir), background, header, lock: Some(lock) };
        let pool = Self::assemble(parts)?;
        pool.begin_opened(opening)?;
        pool.check()?;
        pool.fill_in_background();
        Ok((pool, report))
    }

    /// Reads the header of the store in `dir`, without its lock: for choosing the engine.
    ///
    /// # Errors
    /// [`Error::Missing`], [`Error::Corrupt`], [`Error::NewerFormat`], [`Error::Io`].
    pub fn inspect(dir: &Path) -> Result<HeaderSummary> {
        let dir = match files::classify(dir)? {
            (DirContent::Store, Some(store_dir)) => store_dir,
            (found, _) => return Err(found.refusal(dir)),
        };
        // The header may be changing concurrently; a moment later it is whole.
        let path = dir.path_of(&file_names::region_name(0));
        let (file, _) = match files::open_region(&dir, 0, Access::Read) {
            // A failed creation has removed its files in between.
            Err(_) if files::classify_dir(&dir)? != DirContent::Store => {
                return Err(Error::missing(dir.path()));
            }
            opened => opened?,
        };
        let mut found = read_header(&file, &path);
        for _attempt in 0..3 {
            if !matches!(found, Err(Error::Corrupt { .. })) {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(2));
            found = read_header(&file, &path);
        }
        found.map(|header| HeaderSummary::of(&header))
    }

    /// Fills the page tables of an opened store in the background, if its bytes are in memory or
    /// fit there.
    fn fill_in_background(&self) {
        let Some(background) = &self.background else { return };
        if self.opts.prefault == Prefault::None {
            return;
        }
        let total = self.memory.regions.total_bytes();
        if self.medium.kind == MediumKind::File && total > available_memory() / 2 {
            return;
        }
        for mapping in self.memory.regions.mappings() {
            background.fill(Arc::clone(&mapping));
            self.join_pages(&mapping);
        }
    }
}

/// Returns the report of a pool that is opened in the boot `boot_id`.
fn report_of(header: &PoolHeader, boot_id: [u8; 16]) -> OpenReport {
    OpenReport {
        engine: header.engine.clone(),
        engine_format: header.engine_format,
        clean: header.clean,
        same_boot: header.boot_id == boot_id,
        created: false,
        engine_created: header.engine_created,
        settled: true,
        is_marked_damaged: header.is_damaged,
    }
}

pub(crate) fn memory_for(persist: Persist, opts: &PoolOptions) -> Result<Memory> {
    opts.check_latency()?;
    Memory::new(persist, opts.durability, Latency::of(opts), opts.events.clone())
}

/// Makes everything in a store durable whose durability is raised. The store may be an unsynced
/// copy of a store that needed no syncs, and its files' names are not synced either.
fn sync_for_raise(memory: &Memory, dir: &StoreDir) -> Result<()> {
    for mapping in memory.regions.mappings() {
        let synced = mapping.file().map_or(Ok(()), |file| file.sync_all());
        synced.map_err(|refused| Error::io("syncing a region of", dir.path(), refused))?;
    }
    dir.sync()?;
    store_dir::sync_parents(dir.path(), Path::new("/"))
}

impl Opening {
    /// Begins the opening of a pool with this header; its other regions are still to be added.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if an earlier salvage found damage, unless this open is a salvage.
    fn of(header: &PoolHeader, place: &str, opts: &PoolOptions) -> Result<Self> {
        let mut opening = Self { clean: header.clean, seals: vec![header.table_seal], ..Self::default() };
        if header.is_damaged {
            let what = "an earlier salvage left out unreadable data: export the readable pairs \
                        (`Builder::salvage(true)`, `Db::for_each`), and import the export into a new store";
            if !opts.salvage {
                return Err(Error::corrupt(place, what));
            }
            opening.findings.push(Finding { place: place.into(), what: what.into() });
        }
        Ok(opening)
    }

    /// Adds the next region.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the region is of another generation, unless this open is a salvage.
    fn add_region(&mut self, checked: CheckedRegion, opts: &PoolOptions) -> Result<()> {
        if let Some(stale) = &checked.stale {
            if !opts.salvage {
                return Err(Error::corrupt(stale.place.clone(), stale.what.clone()));
            }
            self.stale.push(checked.header.index);
        }
        self.newest_generation = self.newest_generation.max(checked.header.generation);
        self.seals.push(checked.header.table_seal);
        self.findings.extend(checked.repaired.into_iter().chain(checked.stale));
        Ok(())
    }
}

/// Returns the given options, with the store's own where those count.
///
/// # Errors
/// [`Error::InvalidOption`] for a durability that the store cannot be raised to.
fn options_in_force(opts: PoolOptions, header: &PoolHeader) -> Result<PoolOptions> {
    Ok(PoolOptions {
        capacity: header.capacity,
        region_bytes: header.region_bytes,
        chunk_bytes: header.chunk_bytes,
        durability: durability_in_force(opts.raise, header)?,
        emulate_dax: header.emulate_dax,
        ..opts
    })
}

/// Returns the store's durability, or the one that it is raised to. After a clean stop every byte
/// is known and is synced before the header claims more ([`sync_for_raise`]). The higher durability
/// therefore holds for the existing data. The durability is never lowered: data stored without
/// syncs may reach the medium before the header that records it.
fn durability_in_force(raise: Option<Durability>, header: &PoolHeader) -> Result<Durability> {
    let own = header.durability;
    let refuse = |why: String| {
        let value = raise.map_or_else(String::new, |level| level.to_string());
        Err(Error::InvalidOption { name: "durability".into(), value, why })
    };
    match raise {
        Some(level) if level == own => Ok(own),
        Some(level) if !level.covers(own) => refuse(format!(
            "the store has durability {own}, which cannot be lowered: open it without this option, or create a new \
             store"
        )),
        Some(_) if !header.clean => refuse(format!(
            "the store has durability {own}, and its last stop was not clean: first open it without this option, and \
             close it"
        )),
        Some(level) => Ok(level),
        None => Ok(own),
    }
}

fn check_engine(header: &PoolHeader, engine: &str, engine_format: u32) -> Result<()> {
    if header.engine != engine {
        return Err(Error::WrongEngine { found: header.engine.clone(), asked: engine.into() });
    }
    if header.engine_format > engine_format {
        return Err(Error::NewerFormat { part: engine.into(), found: header.engine_format, known: engine_format });
    }
    Ok(())
}

pub(crate) fn read_header(file: &std::fs::File, path: &Path) -> Result<PoolHeader> {
    let bytes = files::read_start(file, path, 2 * HEADER_BYTES as usize)?;
    PoolHeader::newest(&bytes, &path.display().to_string(), false)
}

/// Opens and maps a region after the first one, whose medium is `pool_medium`.
fn open_later_region(
    dir: &StoreDir,
    index: u16,
    pool: &PoolHeader,
    pool_medium: &Medium,
    opts: &PoolOptions,
) -> Result<(crate::region::Mapping, CheckedRegion)> {
    let path = dir.path_of(&file_names::region_name(index));
    let (file, len) = files::open_region(dir, index, Access::ReadWrite)?;
    let first = files::read_start(&file, &path, REGION_HEADER_USED_BYTES)?;
    let last =
        files::read_at(&file, &path, len.saturating_sub(REGION_HEADER_USED_BYTES as u64), REGION_HEADER_USED_BYTES)?;
    let copies = HeaderCopies { first: &first, last: &last };
    let checked = RegionHeader::check(copies, &path.display().to_string(), pool, index, len)?;
    let made = files::map_region(&path, file, len, opts)?;
    probe::check_as_strong(&path, &made.medium, pool_medium)?;
    Ok((made.mapping, checked))
}

/// Removes a region whose growth was interrupted before the header named it. Both header copies
/// name a region before any pointer into it exists. An unnamed region therefore holds at most (part
/// of) its own header. A file with other content is foreign.
///
/// # Errors
/// [`Error::Corrupt`] if the pool header is older than the region. [`Error::Foreign`].
/// [`Error::Io`].
fn remove_unnamed_region(dir: &StoreDir, header: &PoolHeader) -> Result<()> {
    let index = header.regions as u16;
    let name = file_names::region_name(index);
    if dir.entry(&name)?.is_none() {
        return Ok(());
    }
    let (bytes, len) = files::examine_file(dir, &name)?;
    let place = dir.path_of(&file_names::region_name(0)).display().to_string();
    check_unnamed_region(header, &bytes, len, &place, dir.path_of(&name))?;
    dir.remove_file(&name).map_err(|refused| Error::io("removing", dir.path_of(&name), refused))?;
    // The file must not reappear under a header of a later generation.
    dir.sync()
}

/// Checks that a region that the header does not count is only an interrupted growth. `bytes` are
/// its first ones.
///
/// Its generation may be an earlier one: a power failure can undo the removal of the file.
///
/// # Errors
/// [`Error::Corrupt`] if the pool header is older than the region. [`Error::Foreign`].
fn check_unnamed_region(header: &PoolHeader, bytes: &[u8], len: u64, place: &str, region: PathBuf) -> Result<()> {
    let index = header.regions as u16;
    let found = RegionHeader::generation_in_pool(bytes, header.pool_id);
    let own = RegionHeader {
        pool_id: header.pool_id,
        index,
        chunk_bytes: header.chunk_bytes,
        bytes: len,
        generation: header.generation,
        table_seal: 0,
    };
    let is_newer = found.is_some_and(|generation| generation > header.generation);
    if !is_newer && own.is_all_but_generation_of(bytes) {
        return Ok(());
    }
    let name = region.file_name().map_or_else(String::new, |name| name.display().to_string());
    if found.is_some() {
        return Err(older_header(place.into(), header, &name));
    }
    let what = format!("the store has {index} regions, and the file is not a region whose creation was interrupted");
    Err(Error::Foreign { path: region, what })
}

/// Returns the error of a pool header that does not count a later region of the same pool.
fn older_header(place: String, header: &PoolHeader, later: &str) -> Error {
    let what = format!(
        "the header counts {} regions, and {later} is another region of this store: the header is an older copy; \
         restore all files from one copy",
        header.regions
    );
    Error::corrupt(place, what)
}

/// Returns the bytes of available memory (`MemAvailable`).
fn available_memory() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) * 1024
}

#[cfg(feature = "sim")]
mod simulated;
