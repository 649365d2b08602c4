//! Regions that a pool adds, and the capacity that it shares with its engine's values file. The
//! persist order is in `pool.rs`.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use lodestore_contract::{Error, Event, PoisonReason, Result};

use super::Pool;
use crate::header_writes::write_header;
use crate::options::Prefault;
use crate::planted;
use crate::probe::MediumKind;
use crate::region::Mapping;
use crate::region_header::{REGION_HEADER_USED_BYTES, RegionHeader};
use crate::region_layout::{MAX_REGIONS, PAGE_BYTES, REGION_BYTES_MIN, RegionLayout};
use crate::store_dir::StoreDir;

/// A region is created ahead only if it has at most this share of the free bytes of the medium.
const SPARE_REGION_DIVISOR: u64 = 8;
/// A shortened region has at least this share of the usual length.
const SHORT_REGION_DIVISOR: u64 = 8;

impl Pool {
    /// Adds a region that fits an extent of `min_bytes` bytes and returns its index. Existing
    /// regions never move.
    ///
    /// # Errors
    /// [`Error::Full`] if the capacity or the medium does not allow it, [`Error::Io`],
    /// [`Error::Poisoned`], [`Error::Closed`].
    pub fn grow(&self, min_bytes: u64) -> Result<u16> {
        self.grow_from(self.regions(), min_bytes)
    }

    /// Like [`Self::grow`], but does nothing if the pool has more than `seen` regions by now,
    /// because another thread grew it. Returns the index of the newest region then.
    ///
    /// # Errors
    /// Like [`Self::grow`].
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
            self.memory.flush(copy, REGION_HEADER_USED_BYTES);
        }
        self.memory.fence();
        // The header must not name a region whose own header is not durable.
        self.check()?;
        if !self.has_fault(planted::REGION_NOT_IN_HEADER) {
            control.header.regions = u32::from(index) + 1;
            write_header(&self.memory, &mut control.header);
        }
        self.check()?;
        self.alloc.add_new_regions(self, index)?;
        drop(control);
        self.report_event(&Event::Grown { bytes: self.memory.regions.total_bytes() });
        Ok(index)
    }

    /// Returns the bytes of the capacity used neither by regions nor next to them.
    pub fn room(&self) -> u64 {
        let reserved_bytes = self.reserved_bytes.load(Ordering::Acquire);
        self.opts.capacity.saturating_sub(self.memory.regions.total_bytes()).saturating_sub(reserved_bytes)
    }

    /// Returns [`Self::room`], or the medium's free bytes if less: the capacity may exceed the
    /// medium, or others may fill it.
    pub fn room_on_medium(&self) -> u64 {
        self.room().min(self.medium_free_bytes())
    }

    /// Returns the bytes that the store can grow to: its capacity, or less if the medium is
    /// smaller.
    pub fn reachable_bytes(&self) -> u64 {
        let free_bytes = self.room();
        self.opts.capacity.saturating_sub(free_bytes).saturating_add(free_bytes.min(self.medium_free_bytes()))
    }

    fn medium_free_bytes(&self) -> u64 {
        if let Some(medium_bytes) = self.memory.observer.medium_bytes() {
            let taken = self.memory.regions.total_bytes() + self.reserved_bytes.load(Ordering::Acquire);
            return medium_bytes.saturating_sub(taken);
        }
        self.dir.as_deref().map_or(u64::MAX, StoreDir::free_bytes)
    }

    /// Reserves `bytes` of the capacity for data next to the regions (a values file). Succeeds if
    /// these bytes and `leave` more are free, on the medium as well. Returns whether it did.
    /// Regions added later share the remaining capacity.
    pub fn take_beside(&self, bytes: u64, leave: u64) -> bool {
        let _control = self.control();
        let fits = bytes.checked_add(leave).is_some_and(|needed| needed <= self.room_on_medium());
        if fits {
            self.reserved_bytes.fetch_add(bytes, Ordering::AcqRel);
        }
        fits
    }

    /// Frees bytes reserved by [`Self::take_beside`].
    ///
    /// # Panics
    /// If fewer were reserved.
    pub fn give_beside(&self, bytes: u64) {
        let _control = self.control();
        let before = self.reserved_bytes.fetch_sub(bytes, Ordering::AcqRel);
        assert!(before >= bytes, "{bytes} bytes are given back of {before} that were taken");
    }

    /// Sets the bytes of the capacity reserved next to the regions, as an engine found them at an
    /// open.
    pub fn set_beside(&self, bytes: u64) {
        let _control = self.control();
        self.reserved_bytes.store(bytes, Ordering::Release);
    }

    /// Creates a region within `free_bytes`; returns its length and mapping.
    fn new_region_within(&self, index: u16, min_bytes: u64, free_bytes: u64) -> Result<(u64, Arc<Mapping>)> {
        let len = self.next_region_bytes(index, min_bytes, free_bytes)?;
        self.new_region(index, len).map(|mapping| (len, mapping))
    }

    /// Creates a region shorter than the one that the medium refused with `full`. The minimum is
    /// 1/[`SHORT_REGION_DIVISOR`] of the usual length, since the number of regions is limited.
    ///
    /// The medium may refuse a region of exactly the length that it reports as free. After each
    /// refusal this tries a shorter region.
    fn new_short_region(&self, index: u16, min_bytes: u64, full: Error) -> Result<(u64, Arc<Mapping>)> {
        let Ok(refused) = self.next_region_bytes(index, min_bytes, self.room()) else { return Err(full) };
        let len_min = self.usual_region_bytes() / SHORT_REGION_DIVISOR;
        let left = self.room_on_medium();
        let mut limit = if left < refused { left } else { refused - refused / SHORT_REGION_DIVISOR };
        while limit >= len_min {
            match self.new_region_within(index, min_bytes, limit) {
                Err(Error::Full { .. }) => limit /= 2,
                made => return made,
            }
        }
        Err(full)
    }

    /// Returns the length of the next region: the usual length, less at the end of the capacity,
    /// more if an extent needs it.
    fn next_region_bytes(&self, index: u16, min_bytes: u64, free_bytes: u64) -> Result<u64> {
        let full = || Error::Full { needed: min_bytes, capacity: self.opts.capacity };
        if usize::from(index) >= MAX_REGIONS {
            return Err(full());
        }
        let free_bytes = free_bytes / PAGE_BYTES * PAGE_BYTES;
        let needed = RegionLayout::length_for(index, min_bytes, self.opts.chunk_bytes).ok_or_else(full)?;
        let usual = self.usual_region_bytes().min(free_bytes);
        let fits =
            |len| RegionLayout::new(index, len, self.opts.chunk_bytes).is_some_and(|l| l.usable_bytes() >= min_bytes);
        let len = if usual >= REGION_BYTES_MIN && fits(usual) { usual } else { needed };
        if len <= free_bytes { Ok(len) } else { Err(full()) }
    }

    /// Returns the length of the next region, unless the capacity or the first extent changes it.
    fn usual_region_bytes(&self) -> u64 {
        let usual = self.opts.usual_region_bytes(self.memory.regions.total_bytes());
        match self.opts.region_share {
            Some(_) => usual.min(self.opts.region_limit(self.reachable_bytes())),
            None => usual,
        }
    }

    /// Notes the length of the next region, which decides when it is created ahead.
    pub(super) fn expect_next_region(&self) {
        if let Some(background) = &self.background {
            background.fill_rate().set_next_bytes(self.usual_region_bytes());
        }
    }

    fn new_region(&self, index: u16, len: u64) -> Result<Arc<Mapping>> {
        let (Some(background), Some(dir)) = (&self.background, &self.dir) else {
            return self.new_simulated_region(index, len);
        };
        let made = background.acquire_region(index, len)?;
        // The file gets its name once it is durable; before that any open removes it. A foreign
        // file of that name stays.
        self.sync_new_region(index, &made.mapping, dir)
            .inspect_err(|_| crate::files::remove_unfinished_region(dir, index))?;
        background.creator().finish(index, &made.mapping)?;
        if self.persists()
            && let Err(refused) = dir.sync()
        {
            self.memory.poison(
                PoisonReason::Sync,
                &format!("fsync of the directory after the creation of region {index}: {refused}"),
            );
            crate::files::remove_named_region(dir, index);
            return Err(refused);
        }
        // The pages were made huge if possible: joining them again would make writers wait
        // (`background.rs`).
        Ok(Arc::new(made.mapping))
    }

    /// Makes the file of a new region durable, if the pool persists.
    fn sync_new_region(&self, index: u16, mapping: &Mapping, dir: &StoreDir) -> Result<()> {
        let Some(file) = mapping.file().filter(|_| self.persists()) else { return Ok(()) };
        file.sync_all().map_err(|refused| {
            self.memory.poison(PoisonReason::Sync, &format!("fsync of new region {index}: {refused}"));
            Error::io("syncing a region of", dir.path(), refused)
        })
    }

    fn new_simulated_region(&self, index: u16, len: u64) -> Result<Arc<Mapping>> {
        let full = Error::Full { needed: len, capacity: self.opts.capacity };
        if len > self.medium_free_bytes() {
            return Err(full);
        }
        let mapping = Mapping::of_heap(len, None).ok_or(full)?;
        self.memory.observer.record_region(index, len);
        Ok(Arc::new(mapping))
    }

    /// Lets the background thread join small pages to huge ones, if the system does not do so
    /// itself.
    pub(crate) fn join_pages(&self, mapping: &Arc<Mapping>) {
        let wanted =
            self.opts.huge_pages && self.opts.prefault == Prefault::Ahead && self.medium.kind == MediumKind::Shm;
        if let (true, Some(background)) = (wanted && !crate::probe::shmem_huge_by_advice(), &self.background) {
            background.join(Arc::clone(mapping));
        }
    }

    /// Receives the free bytes of all regions from the allocator, each time it allocates an extent.
    /// Below half of the next region, or earlier if the pool fills fast, the next region is created
    /// ahead. Cheap.
    #[inline]
    pub fn hint_free(&self, free_bytes: u64) {
        if let Some(background) = &self.background
            && background.fill_rate().is_due(free_bytes)
        {
            self.request_region();
        }
    }

    #[cold]
    fn request_region(&self) {
        let Some(background) = &self.background else { return };
        if self.opts.prefault == Prefault::None || background.is_region_requested() || self.check().is_err() {
            return;
        }
        let index = self.regions();
        // On a small medium an unused region would deny others the space.
        let len_max = self.medium_free_bytes() / SPARE_REGION_DIVISOR;
        if let Ok(len) = self.next_region_bytes(index, u64::from(self.opts.chunk_bytes), self.room())
            && len <= len_max
        {
            background.request_region(index, len);
        }
    }
}
