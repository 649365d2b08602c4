//! A pool: the regions of one store, its header, and the verbs on them.
//!
//! ## Persist order of the header
//! Every change goes to both copies, one after the other: store, flush, fence; store, flush, fence. So at any moment one
//! copy is whole, and a copy that goes bad later is covered by its twin.
//! * create: both copies without their magic, persist; magic of A, persist; magic of B, persist; only then the file takes its name.
//! * open: the tables are read; then the generation is raised in all headers, `clean` is cleared;
//!   then anything else is stored.
//! * growth: region file, persist, its name, persist; both region header copies, persist; then the
//!   header with the new number of regions; only then the allocator hears of the region, so no
//!   pointer into it can be published earlier.
//! * end of the engine's creation: what the engine made, persist, by the engine; then `engine_created`.
//! * close: everything else durable first; then the generation in all headers, with the seals of
//!   the extent tables; then `clean`.
//!
//! ## Who may call what
//! All methods may be called from any thread. The header is written under the `control` lock only. Verbs take no lock.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use lodestore_contract::{Durability, Error, Event, Finding, FoundBy, MediumUse, Options, PoisonReason, Result};

use crate::ahead::Ahead;
use crate::alloc::Allocator;
use crate::epoch::Epochs;
use crate::events;
use crate::header::{HEADER_USED, PoolHeader};
use crate::little_endian::u64_at;
use crate::lock::StoreLock;
use crate::memory::Memory;
use crate::mutant::Mutant;
use crate::mutex::lock;
use crate::nvptr::NvPtr;
use crate::open_state::OpenState;
use crate::options::{PoolOptions, Prefault};
use crate::probe::{Medium, MediumKind};
use crate::region::{MAX_REGIONS, Mapping};
use crate::region_header::{REGION_HEADER_USED, RegionHeader, raise_generation};
use crate::region_layout::{HEADER_BYTES, PAGE_BYTES, REGION_BYTES_MIN, ROOT_BYTES, ROOT_OFFSET, RegionLayout};
use crate::store_dir::StoreDir;

/// A region is made ahead if it is at most this part of what the medium has free.
const AHEAD_MEDIUM_PART: u64 = 8;
/// Divisor of the usual length: least length of a region where the medium has no space for more.
const SHORT_PART: u64 = 8;

/// What an open found.
#[derive(Debug, Clone)]
pub struct OpenReport {
    /// The engine that made the store.
    pub engine: String,
    /// The engine's format on the medium.
    pub engine_format: u32,
    /// The last stop was clean.
    pub clean: bool,
    /// Machine boot is the same as at the last open.
    pub same_boot: bool,
    /// The store was made by this call.
    pub created: bool,
    /// The engine said, at an earlier opening, that its own creation was finished ([`Pool::mark_created`]). Where it was, an
    /// engine that finds nothing of its own has met damage, and must not begin anew.
    pub engine_created: bool,
    /// What the open found is durable. Where it is not, a process was killed between a store and its flush: power that fails now may
    /// take back what this open reads. The engine makes durable what it answers from and what it builds on.
    pub settled: bool,
    /// An earlier salvage open left out what it could not read ([`Pool::mark_damaged`]).
    pub is_marked_damaged: bool,
}

/// What only one thread at a time may change.
pub(crate) struct Control {
    pub(crate) header: PoolHeader,
    pub(crate) lock: Option<StoreLock>,
    pub(crate) closed: bool,
    /// Regions that a salvage found to be of another generation: their headers stay as they are.
    pub(crate) stale: Vec<u16>,
}

/// What an open found before it changes anything.
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

/// The regions of one store, mapped, with everything that is done to them. See the module.
pub struct Pool {
    pub(crate) memory: Memory,
    pub(crate) opts: PoolOptions,
    pub(crate) medium: Medium,
    /// The store's directory; none for a simulated pool.
    pub(crate) dir: Option<Arc<StoreDir>>,
    pub(crate) ahead: Option<Ahead>,
    pub(crate) control: Mutex<Control>,
    identity: u64,
    /// The generation of this session.
    generation: AtomicU64,
    /// The generation that the open found.
    found_generation: u64,
    /// Bytes of the capacity that are taken beside the regions ([`Self::take_beside`]); changes under `control`.
    beside: AtomicU64,
    alloc: Allocator,
    epochs: Epochs,
}

/// All that a pool is put together from.
pub(crate) struct Parts {
    pub(crate) memory: Memory,
    pub(crate) opts: PoolOptions,
    pub(crate) medium: Medium,
    pub(crate) dir: Option<Arc<StoreDir>>,
    pub(crate) ahead: Option<Ahead>,
    pub(crate) header: PoolHeader,
    pub(crate) lock: Option<StoreLock>,
}

impl Pool {
    /// Bytes of the engine's root area.
    pub const ROOT_BYTES: u64 = ROOT_BYTES;

    /// Puts a pool together. Reads and changes nothing: [`Self::begin_new`] or
    /// [`Self::begin_opened`] does.
    pub(crate) fn assemble(parts: Parts) -> Result<Arc<Self>> {
        let alloc = new_allocator(&parts)?;
        let epochs = Epochs::new(parts.opts.capacity);
        let identity = mix_pool_id(parts.header.pool_id);
        let found_generation = parts.header.generation;
        Ok(Arc::new(Self {
            memory: parts.memory,
            opts: parts.opts,
            medium: parts.medium,
            dir: parts.dir,
            ahead: parts.ahead,
            control: Mutex::new(Control { header: parts.header, lock: parts.lock, closed: false, stale: Vec::new() }),
            identity,
            generation: AtomicU64::new(found_generation),
            found_generation,
            beside: AtomicU64::new(0),
            alloc,
            epochs,
        }))
    }

    /// Begins the use of a pool that was just made.
    ///
    /// # Errors
    /// Those of reading the tables.
    pub(crate) fn begin_new(&self) -> Result<()> {
        self.expect_next_region();
        let tables = self.alloc.read_tables(self, None)?;
        self.alloc.open(self, tables, true)
    }

    /// Begins the use of a pool that was made earlier: reads the extent tables, then marks the pool
    /// open under a new generation, then lets the allocator free what a crash left. On an error of
    /// the first step nothing was changed.
    ///
    /// # Errors
    /// [`Error::Corrupt`] where an extent table is damaged beyond repair, unless the open is a
    /// salvage; [`Error::Io`].
    pub(crate) fn begin_opened(&self, opening: Opening) -> Result<()> {
        self.expect_next_region();
        let sealed = opening.clean && opening.stale.is_empty();
        let mut tables = self.alloc.read_tables(self, sealed.then_some(&opening.seals[..]))?;
        tables.add_findings(opening.findings);
        {
            let mut control = self.control();
            if !opening.stale.is_empty() {
                // The generation that is raised now is one that no stale region has.
                control.header.generation = control.header.generation.max(opening.newest_generation);
                control.header.is_raising = false;
            }
            control.stale = opening.stale;
            control.header.is_damaged |= tables.is_damaged;
            let control = &mut *control;
            crate::open::mark_open(&self.memory, &mut control.header, (self.opts.durability, &control.stale));
            self.generation.store(control.header.generation, Ordering::Release);
        }
        self.sync_header()?;
        tables.findings().iter().for_each(|found| {
            let (place, what) = (found.place.clone(), found.what.clone());
            self.tell(&Event::Corruption { found_by: FoundBy::Open, place, what });
        });
        self.alloc.open(self, tables, opening.clean)
    }

    /// Returns a random number. A simulated pool answers 0, so that a run can be repeated.
    ///
    /// # Errors
    /// [`Error::Io`] if the system has no random numbers.
    pub fn draw(&self) -> Result<u32> {
        if self.medium.kind == MediumKind::Sim {
            return Ok(0);
        }
        let path = self.dir.as_deref().map_or(Path::new(""), StoreDir::path);
        let bytes = crate::boot::random_id().map_err(|refused| Error::io("drawing a number for", path, refused))?;
        let [first, second, third, fourth, ..] = bytes;
        Ok(u32::from_le_bytes([first, second, third, fourth]))
    }

    /// Returns the generation of this session.
    pub(crate) fn generation_of_session(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Returns the generation that the open found.
    pub(crate) fn generation_found(&self) -> u64 {
        self.found_generation
    }

    /// The engine's root area: [`Self::ROOT_BYTES`] bytes, zeroed at creation, 64-aligned.
    pub fn root(&self) -> NvPtr {
        NvPtr::new(0, ROOT_OFFSET)
    }

    /// Returns a number of this pool that never changes, for seeding checksums: bytes of another
    /// pool fail a checksum that it seeds.
    #[inline]
    pub fn identity(&self) -> u64 {
        self.identity
    }

    /// Returns the seed of a checksum of bytes at `at`. Positions that differ in one bit have
    /// different seeds, and so have pools.
    #[inline]
    pub fn position_seed(&self, at: NvPtr) -> u32 {
        ((at.raw() ^ self.identity).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32
    }

    /// Returns how many damaged places the open found in the headers and extent tables of the pool.
    /// `verify` names them.
    pub fn damage_at_open(&self) -> u64 {
        self.alloc.findings_at_open()
    }

    /// The options in force: those given, with what the store keeps of its own.
    pub fn options(&self) -> &PoolOptions {
        &self.opts
    }

    /// Returns the options of this pool that shape a store, by their names as text.
    pub fn creation_options(&self) -> Options {
        let mut options = Options::new();
        options.set("region", self.opts.region_bytes.to_string());
        options.set("chunk", self.opts.chunk_bytes.to_string());
        options
    }

    /// The medium found.
    pub fn medium(&self) -> MediumKind {
        self.medium.kind
    }

    /// The medium with its particulars, as in `shm (tmpfs)`.
    pub fn medium_name(&self) -> String {
        let emulated = if self.opts.emulate_dax { ", emulating dax" } else { "" };
        let Medium { kind, name, .. } = &self.medium;
        if name.is_empty() { format!("{kind}{emulated}") } else { format!("{kind} ({name}{emulated})") }
    }

    /// The durability that is really given.
    pub fn durability(&self) -> Durability {
        self.opts.durability
    }

    /// Whether flush and fence do anything (a reader that meets an unpersisted entry must persist it).
    #[inline]
    pub fn persists(&self) -> bool {
        self.memory.persists()
    }

    /// Whether a fence is a request to the system, which writes pages: then one fence for many writers is worth some waiting.
    pub fn syncs_pages(&self) -> bool {
        self.memory.syncs_pages()
    }

    /// The allocator of this pool's space.
    #[inline]
    pub fn allocator(&self) -> &Allocator {
        &self.alloc
    }

    /// The epochs that guard the reuse of this pool's space.
    #[inline]
    pub fn epochs(&self) -> &Epochs {
        &self.epochs
    }

    /// Number of regions.
    pub fn regions(&self) -> u16 {
        self.memory.regions.count() as u16
    }

    /// The layout of a region; `None` where there is none of this index.
    pub fn layout(&self, index: u16) -> Option<RegionLayout> {
        RegionLayout::new(index, self.memory.regions.len_of(index), self.opts.chunk_bytes)
    }

    /// Whether this fault is planted (feature `sim`, simulated pools); otherwise a constant false.
    #[inline]
    pub fn mutant(&self, mutant: Mutant) -> bool {
        #[cfg(feature = "sim")]
        return self.memory.recorder.as_ref().is_some_and(|recorder| recorder.mutant(mutant));
        #[cfg(not(feature = "sim"))]
        {
            let _ = mutant;
            false
        }
    }

    /// The recorder of a simulated pool.
    #[cfg(feature = "sim")]
    pub fn recorder(&self) -> Option<&crate::sim::Recorder> {
        self.memory.recorder.as_ref()
    }

    // ---- growth ----

    /// Adds a region in which an extent of `min_bytes` bytes fits; its index. Regions that are there never move.
    ///
    /// # Errors
    /// [`Error::Full`] where the capacity or the medium does not allow it, [`Error::Io`], [`Error::Poisoned`],
    /// [`Error::Closed`].
    pub fn grow(&self, min_bytes: u64) -> Result<u16> {
        self.grow_from(self.regions(), min_bytes)
    }

    /// As [`Self::grow`], but does nothing where there are more than `seen` regions by now, since another thread grew the
    /// pool meanwhile; the index of the newest region then.
    ///
    /// # Errors
    /// As [`Self::grow`].
    pub fn grow_from(&self, seen: u16, min_bytes: u64) -> Result<u16> {
        let mut control = self.control();
        self.check()?;
        let index = self.regions();
        if index > seen {
            return Ok(index - 1);
        }
        let (len, mapping) = match self.new_region_within(index, min_bytes, self.room()) {
            Err(full @ Error::Full { .. }) => self.new_short_region(index, min_bytes, full)?,
            made => made?,
        };
        self.memory.regions.add(mapping);
        self.expect_next_region();
        let header = RegionHeader {
            pool_id: control.header.pool_id,
            index,
            chunk_bytes: self.opts.chunk_bytes,
            bytes: len,
            generation: control.header.generation,
            table_seal: 0,
        };
        // A crash may tear both copies: the pool header does not count the region yet.
        for copy in self.layout(index).iter().flat_map(RegionLayout::header_copies) {
            self.memory.store(copy, &header.encode());
            self.memory.flush(copy, REGION_HEADER_USED);
        }
        self.memory.fence();
        // The header must name no region whose own is not durable.
        self.check()?;
        if !self.mutant(Mutant::RegionNotInHeader) {
            control.header.regions = u32::from(index) + 1;
            write_header(&self.memory, &mut control.header);
        }
        self.check()?;
        self.alloc.adopt(self, index)?;
        drop(control);
        self.tell(&Event::Grown { bytes: self.memory.regions.total_bytes() });
        Ok(index)
    }

    /// Bytes of the capacity that neither regions nor anything beside them have taken.
    pub fn room(&self) -> u64 {
        let beside = self.beside.load(Ordering::Acquire);
        self.opts.capacity.saturating_sub(self.memory.regions.total_bytes()).saturating_sub(beside)
    }

    /// As [`Self::room`], or what the medium has yet, where that is less: a capacity may be larger than what it lies on, or others may fill that.
    pub fn room_on_medium(&self) -> u64 {
        self.room().min(self.medium_room())
    }

    /// Returns the bytes that the store can come to: its capacity, or less if the medium is
    /// smaller.
    pub fn reachable_bytes(&self) -> u64 {
        let room = self.room();
        self.opts.capacity.saturating_sub(room).saturating_add(room.min(self.medium_room()))
    }

    /// Bytes that the medium has yet.
    fn medium_room(&self) -> u64 {
        #[cfg(feature = "sim")]
        if let Some(recorder) = &self.memory.recorder {
            let taken = self.memory.regions.total_bytes() + self.beside.load(Ordering::Acquire);
            return recorder.medium_bytes().saturating_sub(taken);
        }
        self.dir.as_deref().map_or(u64::MAX, StoreDir::free_bytes)
    }

    /// Takes bytes of the capacity for what stands beside the regions, a values file, where so many and `leave` more are left, on the medium as well; whether they were. Regions
    /// that are added later have what is left then.
    pub fn take_beside(&self, bytes: u64, leave: u64) -> bool {
        let _control = self.control();
        let has_room = bytes.checked_add(leave).is_some_and(|needed| needed <= self.room_on_medium());
        if has_room {
            self.beside.fetch_add(bytes, Ordering::AcqRel);
        }
        has_room
    }

    /// Gives back bytes of what [`Self::take_beside`] took.
    ///
    /// # Panics
    /// If it took less.
    pub fn give_beside(&self, bytes: u64) {
        let _control = self.control();
        let before = self.beside.fetch_sub(bytes, Ordering::AcqRel);
        assert!(before >= bytes, "{bytes} bytes are given back of {before} that were taken");
    }

    /// Says how many bytes of the capacity are taken beside the regions: at an open, whose engine has looked at what there is.
    pub fn set_beside(&self, bytes: u64) {
        let _control = self.control();
        self.beside.store(bytes, Ordering::Release);
    }

    /// A new region in so much room, and its bytes.
    fn new_region_within(&self, index: u16, min_bytes: u64, room: u64) -> Result<(u64, Arc<Mapping>)> {
        let len = self.next_region_bytes(index, min_bytes, room)?;
        self.new_region(index, len).map(|mapping| (len, mapping))
    }

    /// Makes a region shorter than the one that the medium refused with `full`, and at least
    /// 1/[`SHORT_PART`] as long as usual, since the number of regions is limited.
    ///
    /// The medium may refuse a region of exactly the length that it reports as free. After each
    /// refusal this tries a shorter region.
    fn new_short_region(&self, index: u16, min_bytes: u64, full: Error) -> Result<(u64, Arc<Mapping>)> {
        let Ok(refused) = self.next_region_bytes(index, min_bytes, self.room()) else { return Err(full) };
        let least = self.usual_region_bytes() / SHORT_PART;
        let left = self.room_on_medium();
        let mut limit = if left < refused { left } else { refused - refused / SHORT_PART };
        while limit >= least {
            match self.new_region_within(index, min_bytes, limit) {
                Err(Error::Full { .. }) => limit /= 2,
                made => return made,
            }
        }
        Err(full)
    }

    /// Bytes of the next region: the usual length at this size, less where the room ends, more where an extent needs it.
    fn next_region_bytes(&self, index: u16, min_bytes: u64, room: u64) -> Result<u64> {
        let full = || Error::Full { needed: min_bytes, capacity: self.opts.capacity };
        if usize::from(index) >= MAX_REGIONS {
            return Err(full());
        }
        let room = room / PAGE_BYTES * PAGE_BYTES;
        let needed = RegionLayout::length_for(index, min_bytes, self.opts.chunk_bytes).ok_or_else(full)?;
        let usual = self.usual_region_bytes().min(room);
        let fits =
            |len| RegionLayout::new(index, len, self.opts.chunk_bytes).is_some_and(|l| l.usable_bytes() >= min_bytes);
        let len = if usual >= REGION_BYTES_MIN && fits(usual) { usual } else { needed };
        if len <= room { Ok(len) } else { Err(full()) }
    }

    /// Returns the length of the next region, if the room and the first extent do not change it.
    fn usual_region_bytes(&self) -> u64 {
        let usual = self.opts.usual_region_bytes(self.memory.regions.total_bytes());
        match self.opts.region_share {
            Some(_) => usual.min(self.opts.region_limit(self.reachable_bytes())),
            None => usual,
        }
    }

    /// Notes the length of the next region, which decides when it is made ahead.
    fn expect_next_region(&self) {
        if let Some(ahead) = &self.ahead {
            ahead.pace().grown(self.usual_region_bytes());
        }
    }

    fn new_region(&self, index: u16, len: u64) -> Result<Arc<Mapping>> {
        let (Some(ahead), Some(dir)) = (&self.ahead, &self.dir) else {
            return self.new_simulated_region(index, len);
        };
        let made = ahead.take_or_make(index, len)?;
        // The file takes its name when it is durable; until then any open removes it. A file of that name that is somebody else's stays.
        self.sync_new(index, &made.mapping, dir).inspect_err(|_| crate::files::remove_unfinished_made(dir, index))?;
        ahead.maker().finish(index, &made.mapping)?;
        if self.persists()
            && let Err(refused) = dir.sync()
        {
            self.memory
                .poison(PoisonReason::Sync, &format!("fsync of the directory after making region {index}: {refused}"));
            crate::files::remove_made(dir, index);
            return Err(refused);
        }
        // Its pages were made huge where they can be: to look at them again would make writers wait (`Ahead`).
        Ok(Arc::new(made.mapping))
    }

    /// Makes the file of a new region durable, where anything is.
    fn sync_new(&self, index: u16, mapping: &Mapping, dir: &StoreDir) -> Result<()> {
        let Some(file) = mapping.file().filter(|_| self.persists()) else { return Ok(()) };
        file.sync_all().map_err(|refused| {
            self.memory.poison(PoisonReason::Sync, &format!("fsync of new region {index}: {refused}"));
            Error::io("syncing a region of", dir.path(), refused)
        })
    }

    #[cfg(not(feature = "sim"))]
    fn new_simulated_region(&self, _index: u16, len: u64) -> Result<Arc<Mapping>> {
        Err(Error::Full { needed: len, capacity: self.opts.capacity })
    }

    #[cfg(feature = "sim")]
    fn new_simulated_region(&self, index: u16, len: u64) -> Result<Arc<Mapping>> {
        let full = Error::Full { needed: len, capacity: self.opts.capacity };
        if len > self.medium_room() {
            return Err(full);
        }
        let mapping = Mapping::of_heap(len, None).ok_or(full)?;
        if let Some(recorder) = &self.memory.recorder {
            recorder.region_added(index, len);
        }
        Ok(Arc::new(mapping))
    }

    /// Has small pages joined to huge ones behind, where the system does not make them huge by itself.
    pub(crate) fn join_pages(&self, mapping: &Arc<Mapping>) {
        let wanted =
            self.opts.huge_pages && self.opts.prefault == Prefault::Ahead && self.medium.kind == MediumKind::Shm;
        if let (true, Some(ahead)) = (wanted && !crate::probe::shmem_huge_by_advice(), &self.ahead) {
            ahead.join(Arc::clone(mapping));
        }
    }

    /// The allocator says how many bytes are free in all regions, each time it takes an extent: below half of the next region, or earlier where
    /// the pool fills fast, the next one is made ahead. Cheap.
    #[inline]
    pub fn hint_free(&self, free_bytes: u64) {
        if let Some(ahead) = &self.ahead
            && ahead.pace().is_due(free_bytes)
        {
            self.want_region();
        }
    }

    #[cold]
    fn want_region(&self) {
        let Some(ahead) = &self.ahead else { return };
        if self.opts.prefault == Prefault::None || ahead.has_asked() || self.check().is_err() {
            return;
        }
        let index = self.regions();
        // On a small medium a region that is not used yet would keep others from the space.
        let most = self.medium_room() / AHEAD_MEDIUM_PART;
        if let Ok(len) = self.next_region_bytes(index, u64::from(self.opts.chunk_bytes), self.room())
            && len <= most
        {
            ahead.want(index, len);
        }
    }

    // ---- life ----

    /// How often the store was opened or made, as the header has it: raised durably before anything else, so that no two processes that
    /// wrote to the store ever had the same.
    pub fn opening(&self) -> u64 {
        self.control().header.sequence
    }

    pub(crate) fn control(&self) -> MutexGuard<'_, Control> {
        lock(&self.control)
    }

    /// Tells the owner's event sink, at once, or where the thread is [`Quiet`](crate::Quiet), behind that.
    pub fn tell(&self, event: &Event) {
        if let Some(sink) = &self.opts.events {
            events::tell(sink, event);
        }
    }

    /// Says in the header, durably, that the engine's own creation is finished; to be called when all that it made is
    /// durable. Idempotent; each later open reports it as [`OpenReport::engine_created`].
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
    fn sync_header(&self) -> Result<()> {
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

    /// The first failure that made the pool refuse writes, if there was one.
    pub fn poisoned(&self) -> Option<String> {
        self.memory.cause()
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

    /// Use of the medium by the regions; the capacity is what is not taken beside them. `live`, `dead` and `free` are the allocator's.
    pub fn space(&self) -> MediumUse {
        let (size, capacity) = (self.memory.regions.total_bytes(), self.opts.capacity);
        let capacity = capacity.saturating_sub(self.beside.load(Ordering::Acquire)).max(size.min(capacity));
        MediumUse { size, capacity, ..self.alloc.space(self) }
    }

    /// Lines made durable (or pages, on files), non-temporal ones included, since the open.
    pub fn flushes(&self) -> u64 {
        self.memory.counters.flushes()
    }

    /// Fences (or syncs) executed since the open.
    pub fn fences(&self) -> u64 {
        self.memory.counters.fences()
    }

    /// Bytes stored since the open.
    pub fn bytes_written(&self) -> u64 {
        self.memory.counters.bytes()
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if !self.is_foreign() {
            return;
        }
        self.close_inherited_lock();
        // Its thread does not exist here, and its spare region is the parent's.
        std::mem::forget(self.ahead.take());
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("dir", &self.dir).field("medium", &self.medium).finish_non_exhaustive()
    }
}

/// Mixes both halves of the pool id (a random number) into [`Pool::identity`].
pub(crate) fn mix_pool_id(pool_id: [u8; 16]) -> u64 {
    let (low, high) = (u64_at(&pool_id, 0), u64_at(&pool_id, 8));
    let mixed = (low ^ high.rotate_left(32)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed ^ mixed >> 31).wrapping_mul(0x94d0_49bb_1331_11eb)
}

fn new_allocator(parts: &Parts) -> Result<Allocator> {
    let first = RegionLayout::new(0, parts.header.region0_bytes, parts.opts.chunk_bytes);
    let first = first.ok_or_else(|| Error::corrupt("region 0", "its length or chunk size cannot be"))?;
    // None is shorter than the shortest, so no more fit the capacity.
    let most = usize::try_from(parts.opts.capacity / REGION_BYTES_MIN).unwrap_or(MAX_REGIONS).min(MAX_REGIONS);
    Ok(Allocator::new(&first, most.max(usize::from(parts.memory.regions.count() as u16)), parts.opts.wear_aware))
}

/// Writes both header copies, each with the next sequence number, each durable before the next. The newest copy is
/// never overwritten first.
pub(crate) fn write_header(memory: &Memory, header: &mut PoolHeader) {
    let at = |header: &PoolHeader| NvPtr::new(0, header.sequence % 2 * HEADER_BYTES);
    #[cfg(feature = "sim")]
    if memory.recorder.as_ref().is_some_and(|recorder| recorder.mutant(Mutant::HeaderInPlace)) {
        // The planted fault: both copies at once.
        for _copy in 0..2 {
            header.sequence += 1;
            memory.store(at(header), &header.encode());
            memory.flush(at(header), HEADER_USED);
        }
        return memory.fence();
    }
    for _copy in 0..2 {
        header.sequence += 1;
        memory.store(at(header), &header.encode());
        memory.flush(at(header), HEADER_USED);
        memory.fence();
        if memory.is_poisoned() {
            // Nobody knows what stands in this copy now: the other one stays as it is.
            return;
        }
    }
}
