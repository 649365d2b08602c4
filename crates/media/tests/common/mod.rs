//! Directories for tests, removed afterwards, and pools in them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use lodestore_media::{MediumKind, OpenReport, Pool, PoolOptions};

/// A directory of one test's own.
pub struct TestDir(PathBuf);

impl TestDir {
    /// In shared memory, or where the machine has none, with the builds.
    pub fn shm() -> Self {
        let shm = Path::new("/dev/shm");
        let there = lodestore_media::probe(shm).is_ok_and(|found| found.medium == MediumKind::Shm);
        if there { Self::under(shm) } else { Self::disk() }
    }

    /// Whether it is in shared memory.
    pub fn is_shm(&self) -> bool {
        lodestore_media::probe(&self.0).is_ok_and(|found| found.medium == MediumKind::Shm)
    }

    /// On an ordinary file system (the build's own target directory).
    pub fn disk() -> Self {
        Self::under(Path::new(env!("CARGO_TARGET_TMPDIR")))
    }

    fn under(parent: &Path) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("lodestore-test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = parent.join(name);
        std::fs::create_dir_all(&path).expect("a directory for the test");
        Self(path)
    }

    /// Where the store shall be: nothing is there yet.
    pub fn store(&self) -> PathBuf {
        self.0.join("store")
    }
}

impl Drop for TestDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Small regions, 4 MiB in all.
pub fn small() -> PoolOptions {
    PoolOptions { capacity: 4 << 20, region_bytes: 1 << 20, chunk_bytes: 512, ..PoolOptions::default() }
}

/// A new store of engine `test`, format 3.
pub fn create(dir: &TestDir, opts: PoolOptions) -> Arc<Pool> {
    Pool::create(&dir.store(), "test", 3, opts).expect("a new store").0
}

/// The same store opened.
pub fn open(dir: &TestDir, opts: PoolOptions) -> (Arc<Pool>, OpenReport) {
    Pool::open(&dir.store(), "test", 3, opts).expect("the store opens")
}
