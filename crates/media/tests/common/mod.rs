//! Directories for tests, removed afterwards, and pools in them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use lodestore_contract::testing::Scratch;
use lodestore_media::{MediumKind, OpenReport, Pool, PoolOptions};

/// A temporary directory of one test.
pub struct TestDir(Scratch);

impl TestDir {
    /// Creates a directory in shared memory, or with the build outputs if the machine has none.
    pub fn shm() -> Self {
        let shm = Path::new("/dev/shm");
        let there = lodestore_media::probe(shm).is_ok_and(|found| found.medium == MediumKind::Shm);
        if there { Self(Scratch::within(shm)) } else { Self::disk() }
    }

    /// Returns whether the directory is in shared memory.
    pub fn is_shm(&self) -> bool {
        lodestore_media::probe(self.0.path()).is_ok_and(|found| found.medium == MediumKind::Shm)
    }

    /// Creates a directory on a regular file system (the build's own target directory).
    pub fn disk() -> Self {
        Self(Scratch::within(Path::new(env!("CARGO_TARGET_TMPDIR"))))
    }

    /// Returns the path for the store: it does not exist yet.
    pub fn store(&self) -> PathBuf {
        self.0.store()
    }
}

/// Returns options with small regions, 4 MiB in all.
pub fn small() -> PoolOptions {
    PoolOptions { capacity: 4 << 20, region_bytes: 1 << 20, chunk_bytes: 512, ..PoolOptions::default() }
}

/// Creates a store of engine `test`, format 3.
pub fn create(dir: &TestDir, opts: PoolOptions) -> Arc<Pool> {
    Pool::create(&dir.store(), "test", 3, opts).expect("a new store").0
}

/// Opens the same store.
pub fn open(dir: &TestDir, opts: PoolOptions) -> (Arc<Pool>, OpenReport) {
    Pool::open(&dir.store(), "test", 3, opts).expect("the store opens")
}
