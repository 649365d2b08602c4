//! The allocator of media space: extents from buddy trees (PFBA of NVHT, JPDC 2018), records from
//! slabs of size classes.
//!
//! Occupancy is kept in DRAM only, except for one word per extent (`table`). Allocating and freeing
//! a record persists nothing; allocating a slab persists one line. After a crash the engine marks
//! everything reachable and the rest is free (`recover`). After a clean stop the bitmaps are read
//! back (`occupancy`).
//!
//! Any thread may call anything, with these duties of the caller:
//! * A record or extent is freed once, when no reader can see it any more and the store that
//!   unlinked it is durable ([`Epochs::retire`](crate::Epochs::retire) handles the readers).
//! * While recovering, a marking thread holds an epoch guard from before it read the pointer until
//!   the mark is made.
//! * `open` comes first, before any other thread; `save` last, after every other thread.
//!
//! Deletes need no space: an engine that deletes by clearing an entry (HiKV) can always continue
//! when the store is full. The allocator therefore has no reserve.
//!
//! Modules:
//! * `classes`: sizes
//! * `table`: words on the medium; `table_copies`: their two copies
//! * `buddy`: the tree; `space`: extents and wear
//! * `slab`, `region`, `shard`: records; `records`: the operations
//! * `recover`, `occupancy`: opening
//! * `wear`: counts of writes; `verify`: checks

mod buddy;
mod classes;
mod medium_access;
mod occupancy;
mod records;
mod recover;
mod region;
mod shard;
mod slab;
mod space;
mod table;
mod table_copies;
#[cfg(test)]
mod tests;
mod verify;
mod wear;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};

use lodestore_contract::{Error, Finding, Result};

use classes::{Class, Classes, SLAB_BYTES_MAX};
use recover::Recovery;
use region::Region;
use shard::{SHARD_COUNT, Shard};
use slab::NO_CLASS_ID;
use space::{Ranges, Space};

pub(crate) use medium_access::MediumAccess;
pub(crate) use records::Freed;
pub(crate) use space::Ends;

use crate::mutex::lock;
use crate::nvptr::NvPtr;
use crate::region_layout::RegionLayout;

/// Attempts to lock a shard before the thread sleeps: about 20 microseconds.
const SHARD_LOCK_ATTEMPTS: u32 = 400;

/// Chunks of a slab in a large region.
const SLAB_CHUNKS: u32 = 16;

/// The purpose of an extent; engines choose 16..=255.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExtentKind(pub u8);

impl ExtentKind {
    /// No extent.
    pub const FREE: Self = Self(0);
    /// Records of one size class.
    pub const SLAB: Self = Self(1);
    /// One record.
    pub const LARGE: Self = Self(2);
    /// The allocator's own: bitmaps of all slabs, written by a clean stop.
    pub const OCCUPANCY: Self = Self(3);
    /// The first of the engine's own kinds.
    pub const ENGINE: Self = Self(16);
}

/// Result of the end of recovery.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SweepReport {
    /// Records in use.
    pub records: u64,
    /// Bytes of records and engine extents in use, rounding included.
    pub live_bytes: u64,
    /// Unmarked extents, freed by this sweep.
    pub freed_extents: u64,
}

/// Division of the medium's bytes by the allocator.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AllocatorUse {
    /// Bytes of records and engine extents, rounding included; includes records that wait for
    /// readers.
    pub live: u64,
    /// Not in use and not yet allocatable: extents still to be marked, ends of slabs, chunks under
    /// damaged words.
    pub dead: u64,
    /// Free chunks and free slots.
    pub free: u64,
}

/// The position of an extent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct ChunkPosition {
    region: u16,
    chunk: u32,
}

/// Aligned to a pair of lines (the processor fetches lines in pairs).
#[repr(align(128))]
#[derive(Default)]
struct Padded<T>(T);

/// The allocator of one pool.
pub struct Allocator {
    classes: Classes,
    slab_chunks: u32,
    regions: Box<[OnceLock<Box<Region>>]>,
    shards: Box<[Padded<Mutex<Shard>>]>,
    space: Mutex<Space>,
    recovering: AtomicBool,
    recovery: Mutex<Option<Recovery>>,
    /// Bytes of extents in use that are not slabs.
    extent_bytes: AtomicU64,
    /// Records that have an extent of their own.
    large_records: AtomicU64,
    /// Frees of space that was already free: a defect of the engine, reported by `verify`.
    misfrees: AtomicU64,
    /// Damage that the open found in the extent tables and region headers, repaired or not.
    findings: Mutex<Vec<Finding>>,
}

impl Allocator {
    /// Creates the volatile part for a pool whose region 0 is `first`, with at most `max_regions`
    /// regions. Does not access the medium: [`Self::open`] does.
    pub(crate) fn new(first: &RegionLayout, max_regions: usize, wear_aware: bool) -> Self {
        let by_bytes = (SLAB_BYTES_MAX / first.chunk_bytes).max(1);
        // In a small region a slab is a share of it that leaves space for many classes; a power of
        // two.
        let by_share = 1 << (first.chunks / 32).clamp(4, SLAB_CHUNKS).ilog2();
        let slab_chunks = if first.chunks < 16 { 1 } else { by_share.min(by_bytes) };
        Self {
            classes: Classes::new(slab_chunks * first.chunk_bytes),
            slab_chunks,
            regions: (0..max_regions).map(|_| OnceLock::new()).collect(),
            shards: (0..=SHARD_COUNT).map(|_| Padded::default()).collect(),
            space: Mutex::new(Space { wear_aware, ..Space::default() }),
            recovering: AtomicBool::new(false),
            recovery: Mutex::new(None),
            extent_bytes: AtomicU64::new(0),
            large_records: AtomicU64::new(0),
            misfrees: AtomicU64::new(0),
            findings: Mutex::default(),
        }
    }

    /// Returns the bytes that a record of `len` bytes uses.
    pub fn rounded(&self, len: usize) -> u64 {
        match self.classes.of(len).and_then(|class| self.classes.get(class)) {
            Some(class) => u64::from(class.size),
            None => u64::from(self.chunks_of(len as u64).unwrap_or(u32::MAX)) * self.chunk_bytes(),
        }
    }

    /// Returns whether the marking after a crash is in progress.
    #[inline]
    pub fn is_recovering(&self) -> bool {
        self.recovering.load(Ordering::Acquire)
    }

    /// Returns the bytes of the medium in use, dead and free. Exact while nothing else runs.
    pub fn usage(&self) -> AllocatorUse {
        let mut sum = AllocatorUse { live: self.extent_bytes.load(Ordering::Relaxed), ..AllocatorUse::default() };
        let free_chunks = lock(&self.space).free_bytes();
        let mut all = 0;
        for region in self.known_regions() {
            all += region.layout.usable_bytes();
            for (_, slab) in region.slabs() {
                let number = slab.class();
                let Some(class) = self.classes.get(number).filter(|_| number != NO_CLASS_ID) else { continue };
                let taken = slab.used_slots(class);
                sum.live += u64::from(taken) * u64::from(class.size);
                if !slab.has_flag(slab::OLD_FLAG) {
                    sum.free += u64::from(class.slots - taken) * u64::from(class.size);
                }
            }
        }
        sum.free += free_chunks;
        sum.dead = all.saturating_sub(sum.live + sum.free);
        sum
    }

    /// Returns the records in use. Exact while nothing else runs.
    pub fn live_records(&self) -> u64 {
        let in_slabs: u64 = self.known_slabs().map(|(class, slab)| u64::from(slab.used_slots(class))).sum();
        in_slabs + self.large_records.load(Ordering::Relaxed)
    }

    /// Returns the bytes of records and engine extents in use, rounding included.
    pub fn live_bytes(&self) -> u64 {
        self.usage().live
    }

    /// Returns the bytes in chunks that belong to no extent.
    #[cfg(test)]
    pub(crate) fn free_chunk_bytes(&self) -> u64 {
        lock(&self.space).free_bytes()
    }

    /// Returns the DRAM of the allocator, in bytes.
    pub fn dram_bytes(&self) -> u64 {
        let regions: usize = self.known_regions().map(Region::dram_bytes).sum();
        let shards: usize = self.shards.iter().map(|shard| lock(&shard.0).dram_bytes()).sum();
        let trees: usize = lock(&self.space).regions.iter().map(|ranges| ranges.tree.dram_bytes()).sum();
        let fixed =
            size_of::<Self>() + self.classes.dram_bytes() + size_of_val(&*self.regions) + size_of_val(&*self.shards);
        (regions + shards + trees + fixed) as u64
    }

    #[inline]
    fn region(&self, region: u16) -> Option<&Region> {
        self.regions.get(usize::from(region))?.get().map(|region| &**region)
    }

    fn known_regions(&self) -> impl Iterator<Item = &Region> {
        self.regions.iter().map_while(OnceLock::get).map(|region| &**region)
    }

    fn known_slabs(&self) -> impl Iterator<Item = (Class, &slab::Slab)> {
        self.known_regions()
            .flat_map(Region::slabs)
            .filter_map(|(_, slab)| Some((self.classes.get(slab.class())?, slab)))
    }

    /// Adds the regions up to `newest` that were created since the open: entirely free, their
    /// tables zero. The pool's header must already name them durably. Does nothing for known
    /// regions.
    ///
    /// # Errors
    /// [`Error::Full`] if a region exceeds this allocator's maximum.
    pub(crate) fn add_new_regions<G: MediumAccess>(&self, medium: &G, newest: u16) -> Result<()> {
        let mut space = lock(&self.space);
        while space.regions.len() <= usize::from(newest) {
            let index = space.regions.len();
            let layout = u16::try_from(index).ok().and_then(|index| medium.layout(index));
            let created = layout
                .filter(|_| index < self.regions.len())
                .and_then(|layout| Some((layout, self.tree(&layout, std::iter::empty())?)));
            let (layout, tree) =
                created.ok_or_else(|| Self::full(medium, u64::from(self.slab_chunks) * self.chunk_bytes()))?;
            self.add_region(&mut space, layout, tree, Vec::new());
        }
        Ok(())
    }

    fn tree(&self, layout: &RegionLayout, taken: impl Iterator<Item = (u32, u32)>) -> Option<buddy::Buddy> {
        buddy::Buddy::new(layout.chunks, Ranges::block_order(layout), self.slab_chunks.ilog2(), taken)
    }

    fn add_region(&self, space: &mut Space, layout: RegionLayout, tree: buddy::Buddy, quarantine: Vec<(u32, u32)>) {
        let index = space.regions.len();
        space.regions.push(Ranges { layout, tree, quarantine });
        self.regions[index].get_or_init(|| Box::new(Region::new(layout, self.slab_chunks)));
    }

    /// Locks a shard. The lock is held for some hundred nanoseconds; sleeping and waking costs a
    /// hundred times that. Therefore spins before it sleeps.
    #[inline]
    fn shard(&self, index: usize) -> MutexGuard<'_, Shard> {
        let shard = &self.shards[index].0;
        if let Ok(held) = shard.try_lock() { held } else { Self::wait_for(shard) }
    }

    #[cold]
    fn wait_for(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
        for _ in 0..SHARD_LOCK_ATTEMPTS {
            std::hint::spin_loop();
            if let Ok(held) = shard.try_lock() {
                return held;
            }
        }
        lock(shard)
    }

    fn chunk_bytes(&self) -> u64 {
        self.known_regions().next().map_or(4096, |region| u64::from(region.layout.chunk_bytes))
    }

    fn slab_bytes(&self) -> u32 {
        self.known_regions().next().map_or(0, Region::slab_bytes)
    }

    fn chunks_of(&self, bytes: u64) -> Option<u32> {
        u32::try_from(bytes.max(1).div_ceil(self.chunk_bytes())).ok().filter(|chunks| *chunks <= table::CHUNKS_MAX)
    }

    fn full<G: MediumAccess>(medium: &G, needed: u64) -> Error {
        Error::Full { needed, capacity: medium.capacity() }
    }

    /// Allocates an extent, and grows the pool if it does not fit. Returns `Ok(None)` if the store
    /// is full.
    fn alloc_or_grow<G: MediumAccess>(
        &self,
        medium: &G,
        alloc_extent: impl Fn(&mut Space) -> Option<ChunkPosition>,
        bytes: u64,
    ) -> Result<Option<ChunkPosition>> {
        loop {
            let (position, seen, free) = {
                let mut space = lock(&self.space);
                (alloc_extent(&mut space), space.regions.len(), space.free_bytes())
            };
            if position.is_some() {
                medium.hint_free(free);
                return Ok(position);
            }
            match medium.grow(seen, bytes) {
                Ok(newest) => self.add_new_regions(medium, newest)?,
                Err(Error::Full { .. }) => return Ok(None),
                Err(other) => return Err(other),
            }
            if lock(&self.space).regions.len() == seen {
                return Ok(None);
            }
        }
    }
}

/// Encodes a word of the extent table.
#[cfg(feature = "sim")]
pub(crate) fn extent_word(kind: u8, class: u16, chunks: u32, region: u16, chunk: u32) -> u64 {
    table::encode(table::Word { kind: ExtentKind(kind), class, chunks }, 0, region, chunk)
}

/// Describes the position for errors and findings.
fn position_name(at: NvPtr) -> String {
    format!("region {} offset {:#x}", at.region(), at.offset())
}
