//! Background work, by one thread per pool. The thread creates and touches the next region, and
//! fills the mapping of an opened store. It joins small pages to huge ones, and frees the space of
//! removed files.
//!
//! Invariants
//! * The thread never reads or writes a byte of a region; it creates mappings and advises the
//!   kernel about them.
//! * At most one region is being created or kept as spare, unfinished (`files.rs`) until a grower
//!   acquires it.
//! * From a grower's acquisition until the pool has the region, no other thread creates one of that
//!   index (`Work::acquired_end`). Both would have the same unfinished name, and the later one
//!   would remove the file under the earlier one's mapping.
//! * The thread holds no reference to the pool; the pool joins it before it is dropped
//!   (`Background::stop`).
//! * Joining pages blocks threads that touch them for milliseconds, so the thread rests three times
//!   as long after each.

use std::collections::VecDeque;
use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use lodestore_contract::threads::start_thread;
use lodestore_contract::{Error, Result};

use crate::files::{MappedRegion, RegionCreator};
use crate::fill_rate::FillRate;
use crate::mutex::lock;
use crate::region::{Advice, HUGE_PAGE_BYTES, Mapping};

/// Bytes filled between two checks for other work.
const FILL_SLICE_BYTES: u64 = 32 << 20;

#[derive(Default)]
struct Work {
    /// The region to create next: index and length.
    requested_region: Option<(u16, u64)>,
    /// The region being created.
    creating: Option<(u16, u64)>,
    /// The finished spare region.
    spare: Option<(u16, MappedRegion)>,
    /// Growers have acquired regions below this index: a request for one comes from a thread with
    /// an old count.
    acquired_end: u16,
    /// Removed files whose space is to be freed.
    removed_files: Vec<File>,
    closing_files: bool,
    /// Mappings to be filled by reading, each with its progress.
    fill: VecDeque<(Arc<Mapping>, u64)>,
    /// Mappings whose pages are to be joined, each with its progress.
    join: VecDeque<(Arc<Mapping>, u64)>,
}

struct Shared {
    creator: RegionCreator,
    work: Mutex<Work>,
    changed: Condvar,
    stop: AtomicBool,
    fill_rate: FillRate,
}

/// The background thread, started with its first work.
pub(crate) struct Background {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// A spare is requested or ready: saves the hot path the lock.
    requested: AtomicBool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Work> {
        lock(&self.work)
    }
}

impl Background {
    /// Creates the state for a pool whose next region has `next_bytes` bytes.
    pub(crate) fn new(creator: RegionCreator, next_bytes: u64) -> Self {
        let shared = Shared {
            creator,
            work: Mutex::new(Work::default()),
            changed: Condvar::new(),
            stop: AtomicBool::new(false),
            fill_rate: FillRate::new(next_bytes),
        };
        Self { shared: Arc::new(shared), thread: Mutex::new(None), requested: AtomicBool::new(false) }
    }

    pub(crate) fn creator(&self) -> &RegionCreator {
        &self.shared.creator
    }

    /// Returns the fill rate of the pool.
    #[inline]
    pub(crate) fn fill_rate(&self) -> &FillRate {
        &self.shared.fill_rate
    }

    fn submit(&self, change: impl FnOnce(&mut Work)) {
        change(&mut self.shared.lock());
        self.shared.changed.notify_all();
        let mut thread = lock(&self.thread);
        if thread.is_none() && !self.shared.stop.load(Ordering::Acquire) {
            let shared = Arc::clone(&self.shared);
            // Without the thread everything works, only later; a failure to start it is therefore
            // no error.
            *thread = start_thread("lodestore-ahead", move || run(&shared)).ok();
        }
    }

    /// Requests a spare region; cheap if it was already requested.
    pub(crate) fn request_region(&self, index: u16, len: u64) {
        if !self.requested.swap(true, Ordering::Relaxed) {
            self.submit(|work| match index < work.acquired_end {
                true => self.requested.store(false, Ordering::Relaxed),
                false => work.requested_region = Some((index, len)),
            });
        }
    }

    /// Returns whether a spare was requested and not yet acquired.
    #[inline]
    pub(crate) fn is_region_requested(&self) -> bool {
        self.requested.load(Ordering::Relaxed)
    }

    /// Closes removed files in the background.
    pub(crate) fn close_files(&self, files: Vec<File>) {
        if !files.is_empty() {
            self.submit(|work| work.removed_files.extend(files));
        }
    }

    /// Fills this mapping's page table in the background.
    pub(crate) fn fill(&self, mapping: Arc<Mapping>) {
        self.submit(|work| work.fill.push_back((mapping, 0)));
    }

    /// Joins this mapping's small pages to huge ones in the background.
    pub(crate) fn join(&self, mapping: Arc<Mapping>) {
        if mapping.len() >= HUGE_PAGE_BYTES {
            self.submit(|work| work.join.push_back((mapping, 0)));
        }
    }

    /// Returns region `index` of `len` bytes: the spare if it matches (waits while it is being
    /// created), or a new one. One thread at a time (the pool's growth lock).
    ///
    /// # Errors
    /// Like [`RegionCreator::create`].
    pub(crate) fn acquire_region(&self, index: u16, len: u64) -> Result<MappedRegion> {
        let mut work = self.shared.lock();
        while work.creating.is_some() || work.closing_files {
            work = self.shared.changed.wait(work).unwrap_or_else(PoisonError::into_inner);
        }
        // The region may need their space.
        work.removed_files.clear();
        work.requested_region = None;
        work.acquired_end = index + 1;
        let spare = work.spare.take();
        self.requested.store(false, Ordering::Relaxed);
        drop(work);
        if let Some((found, made)) = spare {
            if found == index && made.mapping.len() == len {
                return Ok(made);
            }
            crate::files::remove_unfinished_region(&self.shared.creator.dir, found);
        }
        let never = AtomicBool::new(false);
        let made = self.shared.creator.create(index, len, &never).and_then(|made| made.ok_or(Error::Closed));
        if made.is_err() {
            self.shared.lock().acquired_end = index;
        }
        made
    }

    /// Ends the thread and removes an unused spare. Idempotent.
    pub(crate) fn stop(&self) {
        self.shared.stop.store(true, Ordering::Release);
        drop(self.shared.lock());
        self.shared.changed.notify_all();
        let thread = lock(&self.thread).take();
        if let Some(thread) = thread {
            // A panic there is a defect; the store does not depend on the thread.
            let _ = thread.join();
        }
        let mut work = self.shared.lock();
        if let Some((index, _)) = work.spare.take() {
            crate::files::remove_unfinished_region(&self.shared.creator.dir, index);
        }
        *work = Work::default();
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The thread's main loop.
fn run(shared: &Shared) {
    let mut work = shared.lock();
    while !shared.stop.load(Ordering::Acquire) {
        if !work.removed_files.is_empty() {
            let removed_files = std::mem::take(&mut work.removed_files);
            work.closing_files = true;
            drop(work);
            drop(removed_files);
            work = shared.lock();
            work.closing_files = false;
            shared.changed.notify_all();
        } else if let Some((index, len)) = work.requested_region.take() {
            work.creating = Some((index, len));
            drop(work);
            let start = Instant::now();
            let made = shared.creator.create(index, len, &shared.stop);
            shared.fill_rate.record_creation(len, start.elapsed());
            work = shared.lock();
            work.creating = None;
            // A medium that is full now may have space when the region is needed. The creation is
            // repeated then, and its error is returned.
            work.spare = made.ok().flatten().map(|made| (index, made));
            shared.changed.notify_all();
        } else if let Some((mapping, at)) = work.fill.pop_front() {
            drop(work);
            let slice = FILL_SLICE_BYTES.min(mapping.len() - at);
            let done = mapping.advise(at, slice, Advice::PopulateRead).is_err() || at + slice == mapping.len();
            work = shared.lock();
            if !done {
                work.fill.push_front((mapping, at + slice));
            }
        } else if let Some((mapping, at)) = work.join.pop_front() {
            drop(work);
            let start = Instant::now();
            // Busy pages stay small; a kernel or file system that joins none fails at once.
            let joined = match mapping.advise(at, HUGE_PAGE_BYTES, Advice::Collapse) {
                Ok(()) => true,
                Err(refused) => refused.raw_os_error() != Some(libc::EINVAL),
            };
            let spent = start.elapsed();
            work = shared.lock();
            if joined && at + 2 * HUGE_PAGE_BYTES <= mapping.len() {
                work.join.push_front((mapping, at + HUGE_PAGE_BYTES));
            }
            if !shared.stop.load(Ordering::Acquire) && work.requested_region.is_none() {
                work = shared.changed.wait_timeout(work, 3 * spent).unwrap_or_else(PoisonError::into_inner).0;
            }
        } else {
            work = shared.changed.wait(work).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;
    use std::path::{Path, PathBuf};
    use std::time::Duration;

    use super::*;
    use crate::options::PoolOptions;
    use crate::pool::Pool;
    use crate::probe::{Medium, MediumKind};
    use crate::store_dir::StoreDir;

    const REGION_BYTES: u64 = 1 << 20;

    fn background(dir: &Path) -> Background {
        let dir = Arc::new(StoreDir::open(dir).expect("a directory"));
        Background::new(RegionCreator::new(&dir, None, &PoolOptions::default()), REGION_BYTES)
    }

    fn unfinished_path(dir: &Path, index: u16) -> PathBuf {
        dir.join(crate::file_names::unfinished_name(index))
    }

    fn region_path(dir: &Path, index: u16) -> PathBuf {
        dir.join(crate::file_names::region_name(index))
    }

    fn inode(path: &Path) -> Option<u64> {
        path.metadata().ok().map(|found| found.ino())
    }

    /// Regression: a thread with a count from before a growth requested the region that the grower
    /// was just naming. Its file was replaced, and data stored in the region was lost with the
    /// process.
    #[test]
    fn a_late_request_does_not_replace_an_acquired_region() {
        let dir = lodestore_contract::testing::Scratch::on_disk();
        let background = background(dir.path());
        let made = background.acquire_region(1, REGION_BYTES).expect("room for a region");
        let own = made.mapping.file().expect("a file").metadata().expect("its data").ino();
        background.request_region(1, REGION_BYTES);
        let unfinished = unfinished_path(dir.path(), 1);
        for _ in 0..30 {
            assert_eq!(inode(&unfinished), Some(own), "the file under the mapping");
            std::thread::sleep(Duration::from_millis(10));
        }
        background.creator().finish(1, &made.mapping).expect("a name");
        assert_eq!(inode(&region_path(dir.path(), 1)), Some(own));
        // The next one is created ahead as usual, and acquired.
        background.request_region(2, REGION_BYTES);
        drop(background.acquire_region(2, REGION_BYTES).expect("room for a region"));
        assert!(!background.is_region_requested());
    }

    /// A spare of another index or length is removed with its file.
    #[test]
    fn a_spare_that_does_not_fit_leaves_no_file() {
        let dir = lodestore_contract::testing::Scratch::on_disk();
        let background = background(dir.path());
        background.request_region(3, REGION_BYTES);
        while background.shared.lock().spare.is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(background.acquire_region(1, REGION_BYTES).expect("room for a region"));
        assert_eq!(inode(&unfinished_path(dir.path(), 3)), None);
        assert!(inode(&unfinished_path(dir.path(), 1)).is_some());
    }

    /// The rest of an interrupted creation is removed by name at once, and its space in the
    /// background, before a region is created.
    #[test]
    fn the_space_of_removed_files_is_freed_before_a_region_is_created() {
        let dir = lodestore_contract::testing::Scratch::on_disk();
        let path = unfinished_path(dir.path(), 4);
        let file = File::create(&path).expect("a file");
        file.set_len(REGION_BYTES).expect("made long");
        let removed = crate::files::remove_unfinished(&StoreDir::open(dir.path()).expect("a directory"))
            .expect("it is a leftover");
        assert_eq!(removed.len(), 1);
        assert_eq!(inode(&path), None);
        let background = background(dir.path());
        background.close_files(removed);
        drop(background.acquire_region(1, REGION_BYTES).expect("room for a region"));
        let work = background.shared.lock();
        assert!(work.removed_files.is_empty() && !work.closing_files, "given back");
        assert_eq!(file.metadata().expect("still open here").nlink(), 0);
    }

    /// If another process replaced the unfinished file, the region does not get its name.
    #[test]
    fn a_file_other_than_the_mapped_one_is_not_renamed() {
        let dir = lodestore_contract::testing::Scratch::on_disk();
        let background = background(dir.path());
        let made = background.acquire_region(1, REGION_BYTES).expect("room for a region");
        let unfinished = unfinished_path(dir.path(), 1);
        std::fs::remove_file(&unfinished).expect("removed");
        std::fs::write(&unfinished, vec![0; REGION_BYTES as usize]).expect("written");
        let refused = background.creator().finish(1, &made.mapping);
        assert!(matches!(refused, Err(Error::Foreign { .. })), "{refused:?}");
        assert_eq!(inode(&region_path(dir.path(), 1)), None);
    }

    /// The directory of a pool on DAX has lost its DAX attribute: later files are in the page
    /// cache.
    #[test]
    fn a_growth_on_a_weaker_medium_than_the_pools_is_refused_and_the_store_continues() {
        let parent = lodestore_contract::testing::Scratch::on_disk();
        let dir = parent.path().join("store");
        let opts = PoolOptions { capacity: 8 << 20, region_bytes: 1 << 20, ..PoolOptions::default() };
        let (mut pool, _) = Pool::create(&dir, "test", 1, opts.clone()).expect("a pool");
        let dax = Medium { kind: MediumKind::Dax, name: "ext4".into(), unsynced: None };
        let store_dir = Arc::new(StoreDir::open(&dir).expect("a directory"));
        Arc::get_mut(&mut pool).expect("no other handle").background =
            Some(Background::new(RegionCreator::new(&store_dir, Some(dax), &opts), REGION_BYTES));
        for _ in 0..2 {
            let refused = pool.grow(4096).expect_err("no DAX");
            assert!(matches!(refused, Error::WeakerMedium { .. }), "{refused}");
            assert!(refused.to_string().contains("pool.0001"), "{refused}");
        }
        assert!(inode(&unfinished_path(&dir, 1)).is_none() && inode(&region_path(&dir, 1)).is_none());
        pool.check().expect("it goes on");
        pool.close(true).expect("closed");
        let (pool, report) = Pool::open(&dir, "test", 1, opts).expect("it opens");
        assert!(report.clean);
        pool.grow(4096).expect("on its own medium it grows");
    }
}
