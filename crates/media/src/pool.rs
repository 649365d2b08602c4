//! A pool: the regions of one store, its header, and the verbs on them.
//!
//! ## Persist order of the header
//! Every change goes to both copies, one after the other: store, flush, fence; store, flush, fence.
//! One copy is therefore whole at any moment, and the other copy covers later damage to it.
//! * create: both copies without their magic, persist; magic of A, persist; magic of B, persist;
//!   only then the file gets its name.
//! * open: the tables are read; then the generation is raised in all headers and `clean` is
//!   cleared; only then anything else is stored.
//! * growth: region file, persist, its name, persist; both region header copies, persist; then the
//!   header with the new number of regions. Only then does the allocator receive the region, so
//!   that no pointer into it can be published earlier.
//! * end of the engine's creation: the engine persists its own data; then `engine_created` is set.
//! * close: everything else durable first; then the generation in all headers, with the seals of
//!   the extent tables; then `clean`.
//!
//! ## Thread safety
//! All methods may be called from any thread. The header is written under the `control` lock only.
//! Verbs acquire no lock.

mod allocator;
mod epochs;
mod growth;
mod life;

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use lodestore_contract::{Durability, Error, Event, Finding, FoundBy, MediumUse, Options, Result};

use crate::alloc::Allocator;
use crate::background::Background;
use crate::epoch::Epochs;
use crate::events;
use crate::fault::PlantedFault;
use crate::header::PoolHeader;
use crate::header_writes::mark_open;
use crate::little_endian::u64_at;
use crate::lock::StoreLock;
use crate::memory::Memory;
use crate::mutex::lock;
use crate::nvptr::NvPtr;
use crate::options::PoolOptions;
use crate::probe::{Medium, MediumKind};
use crate::region_layout::{MAX_REGIONS, REGION_BYTES_MIN, ROOT_BYTES, ROOT_OFFSET, RegionLayout};
use crate::store_dir::StoreDir;

/// The state of the store that an open found.
#[derive(Debug, Clone)]
pub struct OpenReport {
    /// The engine that created the store.
    pub engine: String,
    /// The engine's format on the medium.
    pub engine_format: u32,
    /// The last stop was clean.
    pub clean: bool,
    /// The machine has not been rebooted since the last open.
    pub same_boot: bool,
    /// This call created the store.
    pub created: bool,
    /// The engine finished its own creation at an earlier open ([`Pool::mark_created`]). If true,
    /// an engine that finds no data of its own has found damage, and must not create a new store.
    pub engine_created: bool,
    /// The data that the open found is durable. If not, a process was killed between a store and
    /// its flush, and a power failure may take back data that this open reads. The engine must make
    /// durable the data that it serves and builds on.
    pub settled: bool,
    /// An earlier salvage open left out unreadable data ([`Pool::mark_damaged`]).
    pub is_marked_damaged: bool,
}

impl OpenReport {
    /// Returns the report of a new pool.
    pub(crate) fn of_new(engine: &str, engine_format: u32) -> Self {
        Self {
            engine: engine.into(),
            engine_format,
            clean: true,
            same_boot: true,
            created: true,
            engine_created: false,
            settled: true,
            is_marked_damaged: false,
        }
    }
}

/// State that only one thread at a time may change.
pub(crate) struct Control {
    pub(crate) header: PoolHeader,
    pub(crate) lock: Option<StoreLock>,
    pub(crate) closed: bool,
    /// Regions that a salvage found to be of another generation: their headers stay as they are.
    pub(crate) stale: Vec<u16>,
}

/// Findings of an open before it changes anything.
#[derive(Debug, Clone, Default)]
pub(crate) struct Opening {
    /// The last stop was clean.
    pub(crate) clean: bool,
    /// The seals of the extent tables, by region.
    pub(crate) seals: Vec<u32>,
    /// Regions of another generation. Empty unless the open is a salvage.
    pub(crate) stale: Vec<u16>,
    /// The highest generation of a region.
    pub(crate) newest_generation: u64,
    /// Damage of headers.
    pub(crate) findings: Vec<Finding>,
}

/// The mapped regions of one store and all operations on them. See the module.
pub struct Pool {
    pub(crate) memory: Memory,
    pub(crate) opts: PoolOptions,
    pub(crate) medium: Medium,
    /// The store's directory; `None` for a simulated pool.
    pub(crate) dir: Option<Arc<StoreDir>>,
    pub(crate) background: Option<Background>,
    pub(crate) control: Mutex<Control>,
    identity: u64,
    /// The generation of this session.
    generation: AtomicU64,
    /// The generation that the open found.
    found_generation: u64,
    /// Bytes of the capacity reserved next to the regions ([`Self::take_beside`]); changes under
    /// `control`.
    reserved_bytes: AtomicU64,
    alloc: Allocator,
    epochs: Epochs,
}

/// The parts that a pool is assembled from.
pub(crate) struct PoolParts {
    pub(crate) memory: Memory,
    pub(crate) opts: PoolOptions,
    pub(crate) medium: Medium,
    pub(crate) dir: Option<Arc<StoreDir>>,
    pub(crate) background: Option<Background>,
    pub(crate) header: PoolHeader,
    pub(crate) lock: Option<StoreLock>,
}

impl Pool {
    /// Bytes of the engine's root area.
    pub const ROOT_BYTES: u64 = ROOT_BYTES;

    /// Assembles a pool. Reads and changes nothing: [`Self::begin_new`] or [`Self::begin_opened`]
    /// does.
    pub(crate) fn assemble(parts: PoolParts) -> Result<Arc<Self>> {
        let alloc = new_allocator(&parts)?;
        let epochs = Epochs::new(parts.opts.capacity);
        let identity = mix_pool_id(parts.header.pool_id);
        let found_generation = parts.header.generation;
        Ok(Arc::new(Self {
            memory: parts.memory,
            opts: parts.opts,
            medium: parts.medium,
            dir: parts.dir,
            background: parts.background,
            control: Mutex::new(Control { header: parts.header, lock: parts.lock, closed: false, stale: Vec::new() }),
            identity,
            generation: AtomicU64::new(found_generation),
            found_generation,
            reserved_bytes: AtomicU64::new(0),
            alloc,
            epochs,
        }))
    }

    /// Begins the use of a new pool.
    ///
    /// # Errors
    /// Errors of reading the tables.
    pub(crate) fn begin_new(&self) -> Result<()> {
        self.expect_next_region();
        let tables = self.alloc.read_tables(self, None)?;
        self.alloc.open(self, tables, true)
    }

    /// Begins the use of an existing pool: reads the extent tables, then marks the pool open under
    /// a new generation. Then the allocator frees the extents that a crash left. An error in the
    /// first step leaves the pool unchanged.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if an extent table is damaged beyond repair, unless the open is a
    /// salvage; [`Error::Io`].
    pub(crate) fn begin_opened(&self, opening: Opening) -> Result<()> {
        self.expect_next_region();
        let sealed = opening.clean && opening.stale.is_empty();
        let mut tables = self.alloc.read_tables(self, sealed.then_some(&opening.seals[..]))?;
        tables.add_findings(opening.findings);
        {
            let mut control = self.control();
            if !opening.stale.is_empty() {
                // The raised generation must differ from that of every stale region.
                control.header.generation = control.header.generation.max(opening.newest_generation);
                control.header.is_raising = false;
            }
            control.stale = opening.stale;
            control.header.is_damaged |= tables.is_damaged;
            let control = &mut *control;
            mark_open(&self.memory, &mut control.header, (self.opts.durability, &control.stale));
            self.generation.store(control.header.generation, Ordering::Release);
        }
        self.sync_header()?;
        tables.findings().iter().for_each(|found| {
            let (place, what) = (found.place.clone(), found.what.clone());
            self.report_event(&Event::Corruption { found_by: FoundBy::Open, place, what });
        });
        self.alloc.open(self, tables, opening.clean)
    }

    /// Returns a random number. A simulated pool returns 0, so that a run can be repeated.
    ///
    /// # Errors
    /// [`Error::Io`] if the system has no random numbers.
    pub fn draw(&self) -> Result<u32> {
        if self.medium.kind == MediumKind::Sim {
            return Ok(0);
        }
        let path = self.dir.as_deref().map_or(Path::new(""), StoreDir::path);
        let bytes =
            crate::boot::random_id().map_err(|refused| Error::io("generating a random number for", path, refused))?;
        let [first, second, third, fourth, ..] = bytes;
        Ok(u32::from_le_bytes([first, second, third, fourth]))
    }

    pub(crate) fn generation_of_session(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    pub(crate) fn generation_found(&self) -> u64 {
        self.found_generation
    }

    /// Returns the engine's root area: [`Self::ROOT_BYTES`] bytes, zeroed at creation, 64-aligned.
    pub fn root(&self) -> NvPtr {
        NvPtr::new(0, ROOT_OFFSET)
    }

    /// Returns a number of this pool that never changes, for seeding checksums: bytes of another
    /// pool fail a checksum seeded with it.
    #[inline]
    pub fn identity(&self) -> u64 {
        self.identity
    }

    /// Returns the seed of a checksum of bytes at `at`. Positions that differ in one bit have
    /// different seeds, as do different pools.
    #[inline]
    pub fn position_seed(&self, at: NvPtr) -> u32 {
        ((at.raw() ^ self.identity).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32
    }

    /// Returns the number of damaged places that the open found in the pool's headers and extent
    /// tables. `verify` lists them.
    pub fn damage_at_open(&self) -> u64 {
        self.alloc.findings_at_open()
    }

    /// Returns the options in force: the given ones, with the store's own where those count.
    pub fn options(&self) -> &PoolOptions {
        &self.opts
    }

    /// Returns the options of this pool that are fixed at creation, as text by name.
    pub fn creation_options(&self) -> Options {
        let mut options = Options::new();
        options.set("region", self.opts.region_bytes.to_string());
        options.set("chunk", self.opts.chunk_bytes.to_string());
        options
    }

    /// Returns the detected medium.
    pub fn medium(&self) -> MediumKind {
        self.medium.kind
    }

    /// Returns the medium with details, for example `shm (tmpfs)`.
    pub fn medium_name(&self) -> String {
        let emulated = if self.opts.emulate_dax { ", emulating dax" } else { "" };
        let Medium { kind, name, .. } = &self.medium;
        if name.is_empty() { format!("{kind}{emulated}") } else { format!("{kind} ({name}{emulated})") }
    }

    /// Returns the durability in force.
    pub fn durability(&self) -> Durability {
        self.opts.durability
    }

    /// Returns whether flush and fence have an effect (a reader that finds an unpersisted entry
    /// must persist it).
    #[inline]
    pub fn persists(&self) -> bool {
        self.memory.persists()
    }

    /// Returns whether a fence is a system request that writes pages: sharing one fence among
    /// writers is then worth some waiting.
    pub fn syncs_pages(&self) -> bool {
        self.memory.syncs_pages()
    }

    /// Returns the allocator of this pool's space.
    #[inline]
    pub fn allocator(&self) -> &Allocator {
        &self.alloc
    }

    /// Returns the epochs that guard the reuse of this pool's space.
    #[inline]
    pub fn epochs(&self) -> &Epochs {
        &self.epochs
    }

    /// Returns the number of regions.
    pub fn regions(&self) -> u16 {
        self.memory.regions.count() as u16
    }

    /// Returns the layout of a region; `None` if it does not exist.
    pub fn layout(&self, index: u16) -> Option<RegionLayout> {
        RegionLayout::new(index, self.memory.regions.len_of(index), self.opts.chunk_bytes)
    }

    /// Returns whether this fault is planted (feature `sim`, simulated pools); otherwise a constant
    /// false.
    #[inline]
    pub fn has_fault(&self, fault: PlantedFault) -> bool {
        self.memory.has_fault(fault)
    }

    /// Returns the recorder of a simulated pool.
    #[cfg(feature = "sim")]
    pub fn recorder(&self) -> Option<&crate::sim::Recorder> {
        self.memory.observer.recorder()
    }

    /// Returns the sequence number of the header. Each open and creation raises it durably before
    /// anything else, so no two processes that wrote to the store ever had the same one.
    pub fn opening(&self) -> u64 {
        self.control().header.sequence
    }

    /// Returns the mark that [`set_mark`](Self::set_mark) stored last; 0 in a new pool.
    pub fn mark(&self) -> u64 {
        self.control().header.mark
    }

    pub(crate) fn control(&self) -> MutexGuard<'_, Control> {
        lock(&self.control)
    }

    /// Reports an event to the owner's event sink: at once, or after the thread's
    /// [`Quiet`](crate::Quiet) scope.
    pub fn report_event(&self, event: &Event) {
        if let Some(sink) = &self.opts.events {
            events::report(sink, event);
        }
    }

    /// Returns whether the calling thread is in an operation on this pool, or in a call of its
    /// owner's sink. Such a thread must not wait for other users of the pool.
    pub fn is_engaged(&self) -> bool {
        self.epochs().is_pinned() || self.is_reporting()
    }

    /// Returns whether the calling thread is in a call of its owner's sink.
    pub fn is_reporting(&self) -> bool {
        self.opts.events.as_ref().is_some_and(events::is_in_call_of)
    }

    /// Returns the medium use of the regions. The capacity excludes bytes reserved next to them.
    /// `live`, `dead` and `free` are the allocator's.
    pub fn space(&self) -> MediumUse {
        let (size, capacity) = (self.memory.regions.total_bytes(), self.opts.capacity);
        let capacity = capacity.saturating_sub(self.reserved_bytes.load(Ordering::Acquire)).max(size.min(capacity));
        MediumUse { size, capacity, ..self.alloc.space(self) }
    }

    /// Returns the lines made durable (or pages, on files) since the open, non-temporal ones
    /// included.
    pub fn flushes(&self) -> u64 {
        self.memory.counters.flushes()
    }

    /// Returns the fences (or syncs) executed since the open.
    pub fn fences(&self) -> u64 {
        self.memory.counters.fences()
    }

    /// Returns the bytes stored since the open.
    pub fn bytes_written(&self) -> u64 {
        self.memory.counters.bytes()
    }

    /// Returns the first failure that made the pool refuse writes, if any.
    pub fn poisoned(&self) -> Option<String> {
        self.memory.cause()
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if !self.is_foreign() {
            return;
        }
        self.close_inherited_lock();
        // The thread does not exist in this process, and the spare region belongs to the parent.
        std::mem::forget(self.background.take());
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("dir", &self.dir).field("medium", &self.medium).finish_non_exhaustive()
    }
}

/// Mixes both halves of the pool ID (a random number) into [`Pool::identity`].
pub(crate) fn mix_pool_id(pool_id: [u8; 16]) -> u64 {
    let (low, high) = (u64_at(&pool_id, 0), u64_at(&pool_id, 8));
    let mixed = (low ^ high.rotate_left(32)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed ^ mixed >> 31).wrapping_mul(0x94d0_49bb_1331_11eb)
}

fn new_allocator(parts: &PoolParts) -> Result<Allocator> {
    let first = RegionLayout::new(0, parts.header.region0_bytes, parts.opts.chunk_bytes);
    let first = first.ok_or_else(|| Error::corrupt("region 0", "its length or chunk size is invalid"))?;
    // No region is shorter than the minimum, so no more fit the capacity.
    let regions_max = usize::try_from(parts.opts.capacity / REGION_BYTES_MIN).unwrap_or(MAX_REGIONS).min(MAX_REGIONS);
    Ok(Allocator::new(&first, regions_max.max(usize::from(parts.memory.regions.count() as u16)), parts.opts.wear_aware))
}
