//! The recorder of a simulated pool.
//!
//! Invariants: the order of the log is the order in which the steps took effect in memory. A verb
//! whose effect other threads can see at once (a publishing store, a swap) therefore applies its
//! effect inside [`Recorder::locked`]. Any thread may call any method.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::fault::PlantedFault;
use crate::mutex::lock;
use crate::sim::changes::Changes;
use crate::sim::event::{Event, Trace, Verb, What};
use crate::sim::file::{BrokenPlace, FailingCall, VALUES};
use crate::sim::image::SimSpec;
use crate::sim::rng::Rng;

/// Records every store, flush and fence of one simulated pool, or of several. The regions of
/// several pools follow each other, each pool's from its first index on, and one trace has the
/// steps of all in order ([`Recorder::at`]).
#[derive(Debug)]
pub struct Recorder {
    /// The index of the pool's region 0 in events and images.
    first: u16,
    shared: Arc<Shared>,
}

/// State that the pools of one recorder share.
#[derive(Debug)]
struct Shared {
    recording: AtomicBool,
    /// On average one in this many steps yields the processor; 0: none.
    jitter: AtomicU32,
    fault: Option<PlantedFault>,
    grain: u32,
    /// Fences until one fails, that one included; 0: none will.
    fails_in: AtomicU64,
    has_failed: AtomicBool,
    failing_call: Mutex<Option<FailingCall>>,
    broken: Mutex<Option<BrokenPlace>>,
    watch: Mutex<Option<Watch>>,
    /// Bytes of the medium.
    medium_bytes: AtomicU64,
    log: Mutex<Log>,
}

/// A callback for fences: see [`Recorder::watch_fences`].
#[derive(Clone)]
pub struct Watch(pub Arc<dyn Fn(&'static Location<'static>) + Send + Sync>);

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watch")
    }
}

/// The recorder's log, held by one thread.
#[derive(Debug)]
pub struct Log {
    recording: bool,
    /// The first region index of the pool whose recorder holds the log.
    first: u16,
    changes: Changes,
    /// Flushes that wait for a later fence of their thread.
    delayed: Vec<(u16, What)>,
    events: Vec<Event>,
    sites: BTreeMap<(Verb, &'static str, u32), u64>,
    /// The bytes of the values file (`file.rs`).
    pub(super) values: Vec<u8>,
}

/// Returns a small number for the calling thread, the same in all recorders.
fn thread_number() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    thread_local!(static MINE: u16 = NEXT.fetch_add(1, Ordering::Relaxed));
    MINE.with(|mine| *mine)
}

impl Recorder {
    /// Creates the recorder of a pool with this behaviour.
    pub fn new(spec: &SimSpec) -> Self {
        let log = Log {
            recording: spec.record,
            first: 0,
            changes: Changes::of(spec),
            delayed: Vec::new(),
            events: Vec::new(),
            sites: BTreeMap::new(),
            values: Vec::new(),
        };
        let shared = Shared {
            recording: AtomicBool::new(spec.record),
            jitter: AtomicU32::new(0),
            fault: spec.mutant,
            grain: spec.grain,
            fails_in: AtomicU64::new(spec.failing_fence),
            has_failed: AtomicBool::new(false),
            failing_call: Mutex::new(spec.failing_call),
            broken: Mutex::new(None),
            watch: Mutex::new(None),
            medium_bytes: AtomicU64::new(u64::MAX),
            log: Mutex::new(log),
        };
        Self { first: 0, shared: Arc::new(shared) }
    }

    /// Returns the same recorder for another pool, whose regions begin at `first`. The first
    /// regions must be created in the order of these numbers. A pool must not grow into the next
    /// one's indexes; a pool whose capacity is its first region does not. There is one values file,
    /// so at most one of the pools may have it.
    pub fn at(&self, first: u16) -> Self {
        Self { first, shared: Arc::clone(&self.shared) }
    }

    /// Returns the index of the pool's region 0.
    pub fn first(&self) -> u16 {
        self.first
    }

    /// Limits the medium to `bytes`, for regions and values file together; the default is no limit.
    pub fn set_medium_bytes(&self, bytes: u64) {
        self.shared.medium_bytes.store(bytes, Ordering::Relaxed);
    }

    pub(crate) fn medium_bytes(&self) -> u64 {
        self.shared.medium_bytes.load(Ordering::Relaxed)
    }

    /// Returns the bytes that persist independently of others.
    pub fn grain(&self) -> u32 {
        self.shared.grain
    }

    /// Returns whether this fault is planted.
    #[inline]
    pub fn has_fault(&self, fault: PlantedFault) -> bool {
        self.shared.fault == Some(fault)
    }

    /// Returns whether a planted fault lets the checks of this statement pass after a failed sync.
    pub(crate) fn is_unchecked(&self, site: &Location<'_>) -> bool {
        self.lock().changes.is_unchecked(site)
    }

    pub(super) fn failing_call(&self) -> MutexGuard<'_, Option<FailingCall>> {
        lock(&self.shared.failing_call)
    }

    pub(super) fn broken(&self) -> MutexGuard<'_, Option<BrokenPlace>> {
        lock(&self.shared.broken)
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Log> {
        let mut log = lock(&self.shared.log);
        log.first = self.first;
        log
    }

    /// Returns whether steps are recorded at present.
    #[inline]
    pub fn is_recording(&self) -> bool {
        self.shared.recording.load(Ordering::Relaxed)
    }

    /// Switches recording on or off.
    pub fn set_recording(&self, on: bool) {
        self.shared.recording.store(on, Ordering::Relaxed);
        self.lock().recording = on;
    }

    /// Lets one in `n` steps on average yield to another thread, so that rare interleavings occur.
    /// 0: none.
    pub fn set_jitter(&self, n: u32) {
        self.shared.jitter.store(n, Ordering::Relaxed);
    }

    pub(super) fn jitter(&self) {
        let n = self.shared.jitter.load(Ordering::Relaxed);
        if n > 0 {
            thread_local!(static RNG: RefCell<Rng> = RefCell::new(Rng::new(u64::from(thread_number()))));
            if RNG.with_borrow_mut(|rng| rng.one_in(n.into())) {
                std::thread::yield_now();
            }
        }
    }

    /// Runs `effect` with the log held: its memory effect and its log entry are one step for all
    /// other threads.
    pub fn locked<R>(&self, effect: impl FnOnce(&mut Log) -> R) -> R {
        self.jitter();
        let result = effect(&mut self.lock());
        self.jitter();
        result
    }

    /// Records a store of bytes. More than one word is a bulk store, which is unordered within a
    /// line.
    #[inline]
    #[track_caller]
    pub fn store(&self, region: u16, offset: u64, bytes: &[u8]) {
        if self.is_recording() {
            self.jitter();
            self.lock().store(region, offset, bytes);
        }
    }

    /// Records a store of zeros.
    #[inline]
    #[track_caller]
    pub fn store_zeros(&self, region: u16, offset: u64, len: u64) {
        if self.is_recording() {
            self.lock().store(region, offset, &vec![0; len as usize]);
        }
    }

    /// Records the flush of a range.
    #[inline]
    #[track_caller]
    pub fn flush(&self, region: u16, offset: u64, len: u64) {
        if self.is_recording() {
            self.jitter();
            self.lock().flush(region, offset, len);
        }
    }

    /// Records a fence of the calling thread; returns whether it succeeds. A failed fence makes
    /// nothing durable.
    #[inline]
    #[track_caller]
    pub fn fence(&self) -> bool {
        self.call_watch(Location::caller());
        let holds = !self.count_fence();
        if self.is_recording() {
            self.jitter();
            self.lock().fence(holds);
        }
        holds
    }

    /// Calls the watcher of fences, if there is one; call it under no lock.
    pub(super) fn call_watch(&self, site: &'static Location<'static>) {
        let watch = lock(&self.shared.watch).clone();
        if let Some(Watch(watch)) = watch {
            watch(site);
        }
    }

    /// Calls `watch` for each fence, and for each sync of the values file, from now on, with its
    /// call site. The call is on the thread that makes it, before the fence takes effect, and under
    /// no lock of the recorder. A test can therefore delay a sync, or act during it. `None` ends
    /// this.
    pub fn watch_fences(&self, watch: Option<Watch>) {
        *lock(&self.shared.watch) = watch;
    }

    /// Lets the `nth` fence from now on fail, the next one being the first, as a sync of a regular
    /// file may; later ones succeed. 0: none.
    pub fn fail_fence(&self, nth: u64) {
        self.shared.fails_in.store(nth, Ordering::Relaxed);
    }

    /// Returns whether a fence has failed.
    pub fn has_failed(&self) -> bool {
        self.shared.has_failed.load(Ordering::Relaxed)
    }

    /// Counts a fence; returns whether it fails.
    fn count_fence(&self) -> bool {
        let left = self.shared.fails_in.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        let fails = left == Ok(1);
        if fails {
            self.shared.has_failed.store(true, Ordering::Relaxed);
        }
        fails
    }

    /// Records that a region of zeros exists, durably, from now on; call it before the first store
    /// to it.
    #[track_caller]
    pub fn region_added(&self, region: u16, len: u64) {
        if self.is_recording() {
            let mut log = self.lock();
            let region = log.global_region(region);
            log.push(What::Region { region, len }, Location::caller());
        }
    }

    /// Adds a label to the log.
    #[track_caller]
    pub fn mark(&self, label: u64) {
        if self.is_recording() {
            self.lock().push(What::Mark(label), Location::caller());
        }
    }

    /// Returns the steps recorded since the last call.
    pub fn take(&self) -> Trace {
        Trace { events: std::mem::take(&mut self.lock().events) }
    }

    /// Returns the number of steps recorded and not yet taken.
    pub fn pending(&self) -> usize {
        self.lock().events.len()
    }

    /// Returns how often each call site flushed or fenced, lost steps included.
    pub fn sites(&self) -> BTreeMap<(Verb, &'static str, u32), u64> {
        self.lock().sites.clone()
    }
}

impl Log {
    /// Returns the index of a region of the pool among those of all pools.
    fn global_region(&self, region: u16) -> u16 {
        if region == VALUES { VALUES } else { self.first + region }
    }

    pub(super) fn push(&mut self, what: What, site: &'static Location<'static>) {
        if self.recording {
            self.events.push(Event { what, site });
        }
    }

    /// Returns the calling thread's number for this pool: its fences cover only its flushes of this
    /// pool.
    fn thread(&self) -> u16 {
        thread_number().wrapping_add(self.first << 8)
    }

    /// Like [`Recorder::store`].
    #[track_caller]
    pub fn store(&mut self, region: u16, offset: u64, bytes: &[u8]) {
        self.store_from(Location::caller(), region, offset, bytes);
    }

    /// Like [`Recorder::store`], by this statement.
    pub(crate) fn store_from(&mut self, site: &'static Location<'static>, region: u16, offset: u64, bytes: &[u8]) {
        if self.changes.loses(Verb::Store, site) {
            return;
        }
        if self.changes.zeroes_first(site) {
            return self.store_zero_first(site, region, offset, bytes);
        }
        self.push_words(site, region, offset, bytes);
    }

    /// Records the words of a store.
    fn push_words(&mut self, site: &'static Location<'static>, region: u16, offset: u64, bytes: &[u8]) {
        let region = self.global_region(region);
        let end = offset + bytes.len() as u64;
        let mut at = offset;
        while at < end {
            let word = at & !7;
            let stop = end.min(word + 8);
            let mut value = [0u8; 8];
            let (low, high) = ((at - word) as usize, (stop - word) as usize);
            value[low..high].copy_from_slice(&bytes[(at - offset) as usize..(stop - offset) as usize]);
            let mask = (low..high).fold(0u8, |mask, byte| mask | 1 << byte);
            let what = What::Word { region, offset: word, value: u64::from_le_bytes(value), mask, bulk: at > offset };
            self.push(what, site);
            at = stop;
        }
    }

    /// Records a store, by words that a planted fault stores one by one: a zero in place of the
    /// first, durably, then the others, then the first.
    fn store_zero_first(&mut self, site: &'static Location<'static>, region: u16, offset: u64, bytes: &[u8]) {
        self.push_words(site, region, offset, &[0; 8]);
        let thread = self.thread();
        self.push(What::Flush { region: self.global_region(region), offset, len: 8, thread }, site);
        self.push(What::Fence { thread }, site);
        let (first, others) = bytes.split_at(8);
        self.push_words(site, region, offset + 8, others);
        self.push_words(site, region, offset, first);
    }

    /// Records a 16-byte swap of two words by this statement: they may tear, either one first.
    pub(crate) fn store_pair_from(
        &mut self,
        site: &'static Location<'static>,
        region: u16,
        offset: u64,
        pair: (u64, u64),
    ) {
        assert!(offset.is_multiple_of(16), "a 16-byte swap at {offset:#x}");
        let mut bytes = [0u8; 16];
        bytes[..8].copy_from_slice(&pair.0.to_le_bytes());
        bytes[8..].copy_from_slice(&pair.1.to_le_bytes());
        self.store_from(site, region, offset, &bytes);
    }

    /// Like [`Recorder::flush`].
    #[track_caller]
    pub fn flush(&mut self, region: u16, offset: u64, len: u64) {
        let (site, region) = (Location::caller(), self.global_region(region));
        if self.is_lost(Verb::Flush, site) {
            return;
        }
        let (thread, is_delayed) = (self.thread(), self.changes.delays(site));
        let flush = What::Flush { region, offset, len, thread };
        if is_delayed { self.delayed.push((thread, flush)) } else { self.push(flush, site) }
    }

    /// Like [`Recorder::fence`].
    #[track_caller]
    pub fn fence(&mut self, holds: bool) {
        let (site, thread) = (Location::caller(), self.thread());
        if self.is_lost(Verb::Fence, site) {
            return;
        }
        let fence = if holds { What::Fence { thread } } else { What::FailedFence { thread } };
        self.push(fence, site);
        if self.changes.ends_delay(site) {
            let (own, others) = self.delayed.drain(..).partition::<Vec<_>, _>(|(by, _)| *by == thread);
            self.delayed = others;
            own.into_iter().for_each(|(_, flush)| self.push(flush, site));
            self.push(fence, site);
        }
    }

    /// Counts the call site; returns whether its steps are lost.
    pub(super) fn is_lost(&mut self, verb: Verb, site: &'static Location<'static>) -> bool {
        if self.recording {
            *self.sites.entry((verb, site.file(), site.line())).or_default() += 1;
        }
        self.changes.loses(verb, site)
    }
}
