//! A medium in heap memory. Flushed and fenced words survive a crash; each other word may or may
//! not.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, RwLock};

use lodestore_contract::{Error, Result};

use crate::alloc::{Allocator, MediumAccess};
use crate::nvptr::NvPtr;
use crate::region_layout::RegionLayout;

struct Memory {
    layout: RegionLayout,
    now: Box<[AtomicU64]>,
    durable: Box<[AtomicU64]>,
}

#[derive(Default)]
struct Pending {
    stored: BTreeSet<NvPtr>,
    flushed: BTreeSet<NvPtr>,
    flushes: u64,
    fences: u64,
}

pub(super) struct Heap {
    regions: RwLock<Vec<Memory>>,
    region_bytes: u64,
    capacity: u64,
    chunk_bytes: u32,
    pending: Mutex<Pending>,
    growing: Mutex<()>,
    pub(super) wear_aware: bool,
    /// A planted fault: flushes have no effect.
    pub(super) loses_flushes: bool,
    /// Whether an open continues after damage.
    pub(super) salvage: bool,
    stamp: AtomicU64,
    /// Whether the next fence fails.
    pub(super) fence_fails: AtomicBool,
    has_failed: AtomicBool,
}

fn words(layout: &RegionLayout) -> Box<[AtomicU64]> {
    // The allocator stores only saved bitmaps in chunks. The whole region is allocated, so that
    // they fit.
    (0..layout.region_bytes / 8).map(|_| AtomicU64::new(0)).collect()
}

impl Heap {
    pub(super) fn new(region_bytes: u64, capacity: u64, chunk_bytes: u32) -> Self {
        let heap = Self {
            regions: RwLock::default(),
            region_bytes,
            capacity,
            chunk_bytes,
            pending: Mutex::default(),
            growing: Mutex::default(),
            wear_aware: true,
            loses_flushes: false,
            salvage: false,
            stamp: AtomicU64::new(250),
            fence_fails: AtomicBool::new(false),
            has_failed: AtomicBool::new(false),
        };
        heap.add(region_bytes);
        heap
    }

    fn add(&self, bytes: u64) {
        let mut regions = self.regions.write().expect("no panic");
        let layout = RegionLayout::new(regions.len() as u16, bytes, self.chunk_bytes).expect("a layout");
        regions.push(Memory { layout, now: words(&layout), durable: words(&layout) });
    }

    /// Opens a new allocator on the present content.
    pub(super) fn open(&self, clean: bool) -> Allocator {
        let first = self.layout(0).expect("region 0");
        let alloc = Allocator::new(&first, 256, self.wear_aware);
        let tables = alloc.read_tables(self, None).expect("no damage beyond repair");
        alloc.open(self, tables, clean).expect("opens");
        alloc
    }

    /// Opens with the seals of a clean stop.
    pub(super) fn open_sealed(&self, seals: &[u32]) -> Result<Allocator> {
        let alloc = Allocator::new(&self.layout(0).expect("region 0"), 256, self.wear_aware);
        let tables = alloc.read_tables(self, Some(seals))?;
        alloc.open(self, tables, true)?;
        Ok(alloc)
    }

    /// Opens after a kill.
    pub(super) fn try_open(&self) -> Result<Allocator> {
        let alloc = Allocator::new(&self.layout(0).expect("region 0"), 256, self.wear_aware);
        let tables = alloc.read_tables(self, None)?;
        alloc.open(self, tables, false)?;
        Ok(alloc)
    }

    /// Returns the flushes and fences so far.
    pub(super) fn persists(&self) -> (u64, u64) {
        let pending = self.pending.lock().expect("no panic");
        (pending.flushes, pending.fences)
    }

    /// Cuts the power: `keep` decides for each word that was not flushed and fenced whether it
    /// survives.
    pub(super) fn crash(&self, mut keep: impl FnMut() -> bool) {
        let mut pending = self.pending.lock().expect("no panic");
        let stored = std::mem::take(&mut pending.stored);
        pending.flushed.clear();
        for at in stored {
            self.with(at, |now, durable| {
                if keep() {
                    durable.store(now.load(Ordering::Relaxed), Ordering::Relaxed);
                } else {
                    now.store(durable.load(Ordering::Relaxed), Ordering::Relaxed);
                }
            });
        }
    }

    /// Raises the generation, as each open of a pool does.
    pub(super) fn raise_stamp(&self) {
        self.stamp.fetch_add(1, Ordering::Relaxed);
    }

    /// Damages a word of the medium.
    pub(super) fn damage(&self, at: NvPtr, word: u64) {
        self.with(at, |now, durable| {
            now.store(word, Ordering::Relaxed);
            durable.store(word, Ordering::Relaxed);
        });
    }

    fn with<T>(&self, at: NvPtr, act: impl FnOnce(&AtomicU64, &AtomicU64) -> T) -> T {
        let regions = self.regions.read().expect("no panic");
        let memory = &regions[usize::from(at.region())];
        assert_eq!(at.offset() % 8, 0);
        let index = at.offset() as usize / 8;
        act(&memory.now[index], &memory.durable[index])
    }
}

impl MediumAccess for Heap {
    fn regions(&self) -> usize {
        self.regions.read().expect("no panic").len()
    }

    fn layout(&self, region: u16) -> Option<RegionLayout> {
        self.regions.read().expect("no panic").get(usize::from(region)).map(|memory| memory.layout)
    }

    fn capacity(&self) -> u64 {
        self.capacity
    }

    fn load(&self, at: NvPtr) -> u64 {
        self.with(at, |now, _| now.load(Ordering::Acquire))
    }

    fn put(&self, at: NvPtr, word: u64) {
        self.with(at, |now, _| now.store(word, Ordering::Release));
        let mut pending = self.pending.lock().expect("no panic");
        pending.flushed.remove(&at);
        pending.stored.insert(at);
    }

    fn store(&self, at: NvPtr, bytes: &[u8]) {
        for (index, word) in bytes.chunks(8).enumerate() {
            let mut whole = [0; 8];
            whole[..word.len()].copy_from_slice(word);
            self.put(at.add(index as u64 * 8), u64::from_le_bytes(whole));
        }
    }

    fn flush(&self, at: NvPtr, len: usize) {
        let mut pending = self.pending.lock().expect("no panic");
        pending.flushes += 1;
        if self.loses_flushes {
            return;
        }
        let (low, high) =
            (NvPtr::from_raw(at.raw() & !63), NvPtr::from_raw((at.raw() + len as u64).next_multiple_of(64)));
        let words: Vec<NvPtr> = pending.stored.range(low..high).copied().collect();
        pending.flushed.extend(words);
    }

    fn fence(&self) {
        let mut pending = self.pending.lock().expect("no panic");
        pending.fences += 1;
        if self.fence_fails.swap(false, Ordering::Relaxed) {
            // The device loses the flushed words, as after a failed sync.
            pending.flushed.clear();
            self.has_failed.store(true, Ordering::Relaxed);
            return;
        }
        for at in std::mem::take(&mut pending.flushed) {
            pending.stored.remove(&at);
            self.with(at, |now, durable| durable.store(now.load(Ordering::Relaxed), Ordering::Relaxed));
        }
    }

    fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }

    fn grow(&self, seen: usize, bytes: u64) -> Result<u16> {
        let _one = self.growing.lock().expect("no panic");
        let index = self.regions() as u16;
        if usize::from(index) > seen {
            return Ok(index - 1);
        }
        let length = RegionLayout::length_for(index, bytes, self.chunk_bytes).unwrap_or(u64::MAX);
        let length = if bytes > self.region_bytes / 2 { length } else { self.region_bytes };
        let size: u64 = self.regions.read().expect("no panic").iter().map(|memory| memory.layout.region_bytes).sum();
        if length > self.capacity - size {
            return Err(Error::Full { needed: bytes, capacity: self.capacity });
        }
        self.add(length);
        Ok(index)
    }

    fn reclaim(&self) {}

    fn stamp(&self) -> u8 {
        self.stamp.load(Ordering::Relaxed) as u8
    }

    fn tolerates_damage(&self) -> bool {
        self.salvage
    }
}
