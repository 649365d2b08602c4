//! The verbs: all reads and writes of a medium go through this module.
//!
//! Persist policies, chosen once at the open:
//! * `Nothing`: stores survive the process by themselves; flush and fence execute nothing (x86
//!   keeps stores in order).
//! * `Lines`: flush writes cache lines back, a fence orders them; records bypass the cache.
//! * `Caches`: the platform's caches persist, so only the fence is executed.
//! * `Pages`: flush notes pages in a list of the thread's slot; a fence has the kernel write them
//!   (`msync`). At `power` records are written through the file. At `interval` they are not: no put
//!   waits for a sync, so a call per record would cost more than it saves.
//!
//! Invariants
//! * Plain stores go only to ranges that no other thread can reach (Inv 3). Published bytes never
//!   change (Inv 4). Data that several threads change is accessed by the atomic verbs only (Inv 5).
//! * A fence covers only flushes that the calling thread made before it.
//!
//! ## Store instructions of a durable record
//! Measured with the example `record_cost`: 2-vCPU Zen 5 VM, busy (load 14), tmpfs, 1 GiB, random
//! offsets. Values are CPU ns per record with its fence, medians of nine runs of 200,000. A
//! non-temporal store avoids reading the line. But an edge line costs more next to non-temporal
//! lines than among written-back ones, and the parts must be gathered first.
//!
//! | bytes | 16-aligned: non-temporal | write-back | 64-aligned: non-temporal | write-back |
//! |---|---|---|---|---|
//! | 64 | 262-311 | 214-240 | 195 | 175 |
//! | 256 | 317-357 | 279-306 | 222 | 268 |
//! | 296 | 327-332 | 305-315 | 286 | 308 |
//! | 320 | 372-379 | 315-318 | 230 | 290 |
//! | 512 | 357-377 | 372-377 | 248 | 341 |
//! | 1024 | 406-436 | 458-477 | 307 | 458 |
//! | 4096 | 609-614 | 1222-1280 | 476 | 1278 |
//!
//! Hence [`prefers_non_temporal`]: at least 4 whole lines without an edge, 6 with one edge, 8 with
//! two.

use std::panic::Location;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, compiler_fence};
use std::sync::{Mutex, OnceLock};

use lodestore_contract::{Durability, Error, Event, EventSink, PoisonReason, Result};

use crate::boot;
use crate::counters::Counters;
use crate::events;
use crate::fault::PlantedFault;
use crate::gather::Gather;
use crate::latency::Latency;
use crate::mutex::lock;
use crate::nvptr::NvPtr;
use crate::open_state::OpenState;
use crate::region::Regions;
use crate::region_layout::{HEADER_BYTES, PAGE_BYTES};
use crate::simulated::Observer;
use crate::slot::{SHARED_SLOT_INDEX, SLOTS, thread_slot};
use crate::x86::{self, FlushInstruction};

/// Bytes of a block of the emulated medium, for latency per block.
const BLOCK_BYTES: u64 = 256;
/// Maximum lines of one prefetch.
const PREFETCH_LINES: usize = 8;

/// Implementation of flush and fence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Persist {
    Nothing,
    Lines(FlushInstruction),
    Caches,
    Pages,
}

/// Pages flushed and not yet fenced, by thread slot: region, first byte, end.
type PageList = Mutex<Vec<(u16, u64, u64)>>;

/// The regions of a pool and all state of the verbs.
pub(crate) struct Memory {
    pub(crate) regions: Regions,
    persist: Persist,
    /// Records are written through the file, because each is synced before its write is
    /// acknowledged.
    through_file: bool,
    atomic_load16: bool,
    pub(crate) counters: Counters,
    latency: Latency,
    pages: Box<[PageList]>,
    /// Read by [`Pool::check`](crate::Pool::check): one word for open, poisoned, closed and
    /// foreign.
    pub(crate) state: OpenState,
    failed: AtomicBool,
    cause: OnceLock<String>,
    events: Option<EventSink>,
    /// Gets each step of a simulated pool.
    pub(crate) observer: Observer,
}

impl Memory {
    /// # Errors
    /// [`Error::Unsupported`] on a processor without cmpxchg16b; [`Error::Io`].
    pub(crate) fn new(
        persist: Persist,
        durability: Durability,
        latency: Latency,
        events: Option<EventSink>,
    ) -> Result<Self> {
        if !x86::has_cmpxchg16b() {
            return Err(Error::Unsupported {
                engine: "media",
                what: "this processor, which has no 16-byte compare-and-swap".into(),
                instead: "run it on an x86-64 processor with cmpxchg16b (any since about 2006)",
            });
        }
        let lists = if persist == Persist::Pages { SLOTS } else { 0 };
        Ok(Self {
            regions: Regions::new(),
            persist,
            through_file: persist == Persist::Pages && durability == Durability::Power,
            atomic_load16: x86::has_atomic_load16(),
            counters: Counters::new(),
            latency,
            pages: std::iter::repeat_with(PageList::default).take(lists).collect(),
            state: OpenState::new()?,
            failed: AtomicBool::new(false),
            cause: OnceLock::new(),
            events,
            observer: Observer::none(),
        })
    }

    #[inline]
    pub(crate) fn persists(&self) -> bool {
        self.persist != Persist::Nothing
    }

    /// Returns whether this fault is planted (feature `sim`).
    #[inline]
    pub(crate) fn has_fault(&self, fault: PlantedFault) -> bool {
        self.observer.has_fault(fault)
    }

    /// Returns whether a planted fault lets the checks of this statement pass.
    pub(crate) fn is_unchecked(&self, site: &Location<'_>) -> bool {
        self.observer.is_unchecked(site)
    }

    /// Makes all bytes durable if the system can do this with one request per region that writes
    /// only dirty data. Returns whether all bytes are durable.
    pub(crate) fn sync_all(&self) -> bool {
        match self.persist {
            Persist::Nothing | Persist::Caches => return true,
            Persist::Lines(_) => return false,
            Persist::Pages => {}
        }
        for (index, mapping) in self.regions.mappings().iter().enumerate() {
            self.flush(NvPtr::new(index as u16, 0), mapping.len() as usize);
        }
        self.fence();
        true
    }

    /// Syncs both copies of the pool's header at every durability. Stores at `process` reach the
    /// medium at the kernel's discretion, and a header that says *clean* must not outlive them
    /// there.
    pub(crate) fn sync_header(&self) -> std::io::Result<()> {
        let bytes = 2 * HEADER_BYTES;
        self.counters.flushed(bytes / PAGE_BYTES, bytes / BLOCK_BYTES);
        self.regions.mapping(0).map_or(Ok(()), |mapping| mapping.sync_range(0, bytes))
    }

    /// Returns the address of a range that the caller has from the allocator or from a checked
    /// read.
    ///
    /// # Panics
    /// If the range is not inside a region.
    #[inline]
    pub(crate) fn address(&self, at: NvPtr, len: usize) -> *mut u8 {
        match self.regions.address(at, len) {
            Some(address) => address,
            None => panic_outside(at, len),
        }
    }

    #[inline]
    fn word(&self, at: NvPtr) -> &AtomicU64 {
        assert!(at.offset().is_multiple_of(8), "a word at an 8-aligned place");
        let address = self.address(at, 8).cast::<u64>();
        // SAFETY: in a region (Inv 2), 8-aligned since regions are page-aligned, touched by atomics
        // only (Inv 5).
        unsafe { AtomicU64::from_ptr(address) }
    }

    #[inline]
    #[track_caller]
    pub(crate) fn store(&self, at: NvPtr, bytes: &[u8]) {
        let address = self.address(at, bytes.len());
        // SAFETY: the range is in a region (Inv 2) and private to the caller (Inv 3).
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), address, bytes.len()) };
        self.counters.stored(bytes.len());
        self.observer.record_store(at, bytes);
    }

    /// Returns whether flushed data is written by pages: one fence then costs about the same for
    /// many stores as for one.
    pub(crate) fn syncs_pages(&self) -> bool {
        match self.observer.persists_sectors() {
            Some(persists_sectors) => self.persists() && persists_sectors,
            None => self.persist == Persist::Pages,
        }
    }

    #[inline]
    #[track_caller]
    pub(crate) fn store_parts(&self, at: NvPtr, parts: &[&[u8]]) {
        let len = parts.iter().map(|part| part.len()).sum();
        let mut address = self.address(at, len);
        if self.through_file && self.write_parts(at, parts) {
            return self.counters.stored(len);
        }
        for part in parts {
            // SAFETY: the parts together are `len` bytes, in a region (Inv 2) and private (Inv 3).
            unsafe {
                std::ptr::copy_nonoverlapping(part.as_ptr(), address, part.len());
                address = address.add(part.len());
            }
        }
        self.counters.stored(len);
        self.observer.record_parts(at, parts);
    }

    #[inline]
    #[track_caller]
    pub(crate) fn store_and_flush(&self, at: NvPtr, parts: &[&[u8]]) {
        let len = parts.iter().map(|part| part.len()).sum();
        let address = self.address(at, len);
        if let Persist::Lines(instruction) = self.persist
            && prefers_non_temporal(at.offset(), len)
            && !self.observer.is_simulated()
        {
            // SAFETY: the range is in a region (Inv 2) and private to the caller (Inv 3).
            let lines = unsafe { Gather::write(address, parts, instruction) };
            self.counters.stored(len);
            self.counters.flushed(lines, blocks(at.offset(), len));
            return;
        }
        self.store_parts(at, parts);
        self.flush(at, len);
    }

    #[inline]
    #[track_caller]
    pub(crate) fn zero(&self, at: NvPtr, len: usize) {
        let address = self.address(at, len);
        // SAFETY: the range is in a region (Inv 2) and private to the caller (Inv 3).
        unsafe { std::ptr::write_bytes(address, 0, len) };
        self.counters.stored(len);
        self.observer.record_zeros(at, len);
    }

    #[inline]
    #[track_caller]
    pub(crate) fn flush(&self, at: NvPtr, len: usize) {
        if self.persist == Persist::Nothing || len == 0 {
            return;
        }
        let address = self.address(at, len);
        if let Some(lines) = self.observer.flush(at, len) {
            return self.counters.flushed(lines, blocks(at.offset(), len));
        }
        match self.persist {
            Persist::Lines(instruction) => {
                // SAFETY: the range is mapped (Inv 2).
                let lines = unsafe { x86::flush_lines(instruction, address, len) };
                self.counters.flushed(lines, blocks(at.offset(), len));
            }
            Persist::Caches => self.counters.flushed(0, blocks(at.offset(), len)),
            Persist::Pages => self.note_pages(at, len),
            Persist::Nothing => {}
        }
    }

    #[inline]
    #[track_caller]
    pub(crate) fn fence(&self) {
        match self.persist {
            Persist::Nothing => {
                compiler_fence(Ordering::SeqCst);
                return;
            }
            Persist::Lines(_) | Persist::Caches => x86::store_fence(),
            Persist::Pages => self.sync_noted_pages(),
        }
        if !self.observer.fence() {
            self.poison(PoisonReason::Sync, "a sync that was to fail");
        }
        self.latency.persisted(self.counters.fenced());
    }

    #[inline]
    pub(crate) fn load_u64(&self, at: NvPtr) -> u64 {
        self.word(at).load(Ordering::Acquire)
    }

    #[inline]
    #[track_caller]
    pub(crate) fn publish_u64(&self, at: NvPtr, value: u64) {
        let word = self.word(at);
        self.counters.stored(8);
        self.observer.change_word(at, value, || {
            word.store(value, Ordering::Release);
            true
        });
    }

    #[inline]
    #[track_caller]
    pub(crate) fn cas_u64(&self, at: NvPtr, old: u64, new: u64) -> Result<(), u64> {
        let word = self.word(at);
        let mut swapped = Ok(());
        self.observer.change_word(at, new, || {
            swapped = word.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire).map(drop);
            swapped.is_ok()
        });
        if swapped.is_ok() {
            self.counters.stored(8);
        }
        swapped
    }

    #[inline]
    pub(crate) fn load_u128(&self, at: NvPtr) -> (u64, u64) {
        assert!(at.offset().is_multiple_of(16), "a pair at a 16-aligned place");
        let address = self.address(at, 16);
        // SAFETY: in a region (Inv 2), 16-aligned, touched by atomics only (Inv 5); cmpxchg16b was
        // checked in `new`.
        unsafe { x86::load16(address, self.atomic_load16) }
    }

    #[inline]
    #[track_caller]
    pub(crate) fn cas_u128(&self, at: NvPtr, old: (u64, u64), new: (u64, u64)) -> Result<(), (u64, u64)> {
        assert!(at.offset().is_multiple_of(16), "a pair at a 16-aligned place");
        let address = self.address(at, 16);
        let mut swapped = Ok(());
        self.observer.change_pair(at, new, || {
            // SAFETY: in a region (Inv 2), 16-aligned, touched by atomics only (Inv 5); cmpxchg16b
            // was checked in `new`.
            swapped = unsafe { x86::cas16(address, old, new) };
            swapped.is_ok()
        });
        if swapped.is_ok() {
            self.counters.stored(16);
        }
        swapped
    }

    #[inline]
    pub(crate) fn bytes(&self, at: NvPtr, len: usize) -> Option<&[u8]> {
        if at.is_null() {
            return None;
        }
        let address = self.regions.address(at, len)?;
        // SAFETY: in a region, mapped as long as self (Inv 2), and published bytes do not change
        // (Inv 4).
        Some(unsafe { std::slice::from_raw_parts(address, len) })
    }

    #[inline]
    pub(crate) fn bytes_first_read(&self, at: NvPtr, len: usize) -> Option<&[u8]> {
        let bytes = self.bytes(at, len);
        self.latency.first_read();
        bytes
    }

    #[inline]
    pub(crate) fn prefetch(&self, at: NvPtr, len: usize) {
        if let Some(address) = self.regions.address(at, len) {
            let lead = address as usize & (x86::LINE_BYTES - 1);
            let lines = (lead + len).div_ceil(x86::LINE_BYTES).min(PREFETCH_LINES);
            for line in 0..lines {
                x86::prefetch_line(address.wrapping_sub(lead).wrapping_add(line * x86::LINE_BYTES));
            }
        }
    }

    /// Prefetches the lines of a record that will be stored there, unless its stores bypass the
    /// cache.
    #[inline]
    pub(crate) fn prefetch_write(&self, at: NvPtr, len: usize) {
        if matches!(self.persist, Persist::Lines(_)) && prefers_non_temporal(at.offset(), len) {
            return;
        }
        if let Some(address) = self.regions.address(at, len) {
            let lead = address as usize & (x86::LINE_BYTES - 1);
            let lines = (lead + len).div_ceil(x86::LINE_BYTES).min(PREFETCH_LINES);
            for line in 0..lines {
                x86::prefetch_line_to_write(address.wrapping_sub(lead).wrapping_add(line * x86::LINE_BYTES));
            }
        }
    }

    /// Returns the ID of the boot in which the pool is open. A simulated pool has a fixed ID, so
    /// that a seed gives the same images on every machine.
    pub(crate) fn boot_id(&self) -> [u8; 16] {
        if self.observer.is_simulated() { boot::SIMULATED } else { boot::boot_id() }
    }

    // ---- pages ----

    /// Writes a record through the file under the mapping. Returns false if there is no file, or if
    /// the write failed and poisoned the pool; the caller then stores through the mapping.
    ///
    /// The first write to a page through the mapping faults. On ext4 its sync then also commits the
    /// file's times to the journal. Measured: a sync of 2.4 KB took 255 us after such a store, and
    /// 94 us after a write. On blocks never written before, whose sync commits in both cases, it
    /// took 132 and 124 us.
    #[cold]
    fn write_parts(&self, at: NvPtr, parts: &[&[u8]]) -> bool {
        let Some(mapping) = self.regions.mapping(at.region()) else { return false };
        match mapping.write_parts(at.offset(), parts) {
            Ok(written) => written,
            Err(refused) => {
                self.poison(PoisonReason::Write, &format!("a write to the store's file failed: {refused}"));
                false
            }
        }
    }

    #[cold]
    fn note_pages(&self, at: NvPtr, len: usize) {
        let first = at.offset() / PAGE_BYTES * PAGE_BYTES;
        let end = (at.offset() + len as u64).next_multiple_of(PAGE_BYTES).min(self.regions.len_of(at.region()));
        let mut list = lock(&self.pages[thread_slot()]);
        match list.last_mut() {
            Some((region, from, to)) if *region == at.region() && first <= *to && end >= *from => {
                (*from, *to) = ((*from).min(first), (*to).max(end));
            }
            _ => list.push((at.region(), first, end)),
        }
    }

    #[cold]
    fn sync_noted_pages(&self) {
        let slot = thread_slot();
        let mut list = lock(&self.pages[slot]);
        let mut noted = std::mem::take(&mut *list);
        // A shared list stays locked to the end: another of its threads may have noted some of
        // these pages. The fence of that thread must not return before they are durable.
        let _held = (slot == SHARED_SLOT_INDEX).then_some(list);
        for (region, from, to) in coalesce(&mut noted) {
            let synced = match self.regions.mapping(region) {
                Some(mapping) => mapping.sync_range(from, to - from),
                None => unreachable!("only ranges inside regions are noted"),
            };
            if let Err(refused) = synced {
                let cause = format!("msync of region {region}, {} bytes at {from:#x}: {refused}", to - from);
                self.poison(PoisonReason::Sync, &cause);
            }
            let pages = (to - from) / PAGE_BYTES;
            self.counters.flushed(pages, pages * (PAGE_BYTES / BLOCK_BYTES));
        }
    }

    // ---- failures ----

    /// Records the first failure and refuses further writes.
    #[cold]
    pub(crate) fn poison(&self, reason: PoisonReason, cause: &str) {
        let is_first = self.cause.set(cause.into()).is_ok();
        // Set before the event is reported: a write made because of the event is refused.
        self.failed.store(true, Ordering::Release);
        self.state.poison();
        if let Some(sink) = self.events.as_ref().filter(|_| is_first) {
            events::report(sink, &Event::Poisoned { reason, cause: cause.into() });
        }
    }

    #[inline]
    pub(crate) fn is_poisoned(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    pub(crate) fn cause(&self) -> Option<String> {
        if self.is_poisoned() { self.cause.get().cloned() } else { None }
    }
}

/// Returns whether a record bypasses the cache; the module's documentation has the measurements.
#[inline]
fn prefers_non_temporal(offset: u64, len: usize) -> bool {
    let line = x86::LINE_BYTES as u64;
    let end = offset + len as u64;
    let whole = (end / line).saturating_sub(offset.div_ceil(line));
    let edges = u64::from(!offset.is_multiple_of(line)) + u64::from(!end.is_multiple_of(line));
    whole >= 4 + 2 * edges
}

#[cold]
#[inline(never)]
fn panic_outside(at: NvPtr, len: usize) -> ! {
    panic!("{len} bytes at {at:?} are in no region of the pool")
}

/// Counts the 256-byte blocks that the range touches.
#[inline]
fn blocks(offset: u64, len: usize) -> u64 {
    if len == 0 { 0 } else { (offset + len as u64 - 1) / BLOCK_BYTES - offset / BLOCK_BYTES + 1 }
}

/// Joins ranges that touch or overlap.
fn coalesce(noted: &mut Vec<(u16, u64, u64)>) -> Vec<(u16, u64, u64)> {
    noted.sort_unstable();
    let mut joined: Vec<(u16, u64, u64)> = Vec::with_capacity(noted.len());
    for (region, from, to) in noted.drain(..) {
        match joined.last_mut() {
            Some(last) if last.0 == region && from <= last.2 => last.2 = last.2.max(to),
            _ => joined.push((region, from, to)),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_bypass_the_cache_where_measured_to_be_cheaper() {
        for (offset, len, expected) in [
            (0, 0, false),
            (0, 64, false),
            (0, 255, false),
            (0, 256, true),
            (0, 320, true),
            (16, 296, false),
            (0, 400, true),
            (0, 383, false),
            (16, 512, false),
            (16, 640, true),
            (48, 4096, true),
        ] {
            assert_eq!(prefers_non_temporal(offset, len), expected, "{offset}+{len}");
        }
    }

    #[test]
    fn ranges_that_touch_become_one_sync() {
        let mut noted =
            vec![(1, 0, 4096), (0, 8192, 12288), (0, 0, 4096), (0, 4096, 8192), (0, 20480, 24576), (0, 0, 8192)];
        assert_eq!(coalesce(&mut noted), [(0, 0, 12288), (0, 20480, 24576), (1, 0, 4096)]);
        assert!(noted.is_empty() && coalesce(&mut noted).is_empty());
    }

    #[test]
    fn blocks_are_counted_by_their_offsets() {
        assert_eq!(
            [blocks(0, 0), blocks(0, 256), blocks(255, 2), blocks(16, 296), blocks(512, 4096)],
            [0, 1, 2, 2, 16]
        );
    }
}
