//! What the tests share: stores in a directory that goes away.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use lodestore_contract::Durability;
use lodestore_media::PoolOptions;
use lodestore_nvht::NvhtOptions;

/// A directory of this test's own, removed when it is dropped.
pub struct Scratch(PathBuf);

impl Scratch {
    /// On tmpfs where there is one.
    pub fn new() -> Self {
        let shm = Path::new("/dev/shm");
        if shm.is_dir() { Self::within(shm) } else { Self::within(&std::env::temp_dir()) }
    }

    /// In this directory.
    pub fn within(base: &Path) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let dir = base.join(format!("lodestore-test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)));
        std::fs::create_dir_all(&dir).expect("a scratch directory can be made");
        Self(dir)
    }

    /// A path in it where nothing is yet.
    pub fn store(&self) -> PathBuf {
        self.0.join("store")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A small store without threads, whose flushes and fences are executed.
pub fn small_dax() -> NvhtOptions {
    NvhtOptions {
        pool: PoolOptions {
            capacity: 64 << 20,
            region_bytes: 16 << 20,
            durability: Durability::Power,
            emulate_dax: true,
            ..PoolOptions::default()
        },
        partitions: 4,
        initial_capacity: 64,
        recovery_threads: 0,
        sweep_ms: 0,
        ..NvhtOptions::default()
    }
}
