//! Temporary directories for tests, and the time that a test waits for a background thread.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::{Builder, TempDir};

/// The time after which a test that waits for a background thread reports a hang.
///
/// A busy machine can delay a thread by tens of seconds. The limit only ends a test that hangs:
/// no test asserts how long an operation takes.
pub const HANG_TIMEOUT: Duration = Duration::from_secs(300);

/// The file system of a temporary directory that should be in memory.
const MEMORY_DIRECTORY: &str = "/dev/shm";

/// A temporary directory of one test. Dropping it removes the directory, also after a panic.
///
/// The name is random and the directory is created exclusively. Therefore neither another test,
/// another process nor the remains of a killed process can have the same directory.
#[derive(Debug)]
pub struct Scratch(TempDir);

impl Scratch {
    /// Creates a directory in memory if the machine has tmpfs at `/dev/shm`, else as
    /// [`Self::on_disk`].
    ///
    /// # Panics
    /// If no directory can be created.
    #[expect(clippy::new_without_default, reason = "it creates a directory")]
    pub fn new() -> Self {
        let memory = Path::new(MEMORY_DIRECTORY);
        if memory.is_dir() { Self::within(memory) } else { Self::on_disk() }
    }

    /// Creates a directory in the system's directory for temporary files.
    ///
    /// # Panics
    /// If no directory can be created.
    pub fn on_disk() -> Self {
        Self::within(&std::env::temp_dir())
    }

    /// Creates a directory in `parent`.
    ///
    /// # Panics
    /// If no directory can be created.
    pub fn within(parent: &Path) -> Self {
        let created = Builder::new().prefix("lodestore-test-").tempdir_in(parent);
        Self(created.unwrap_or_else(|error| panic!("no temporary directory in {}: {error}", parent.display())))
    }

    /// Returns the directory, which exists.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Returns a path in the directory at which nothing exists yet.
    pub fn store(&self) -> PathBuf {
        self.0.path().join("store")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_scratch_directory_is_new_and_is_removed_on_drop_and_on_panic() {
        let (one, two) = (Scratch::new(), Scratch::new());
        assert!(one.path().is_dir() && two.path().is_dir() && one.path() != two.path());
        std::fs::create_dir_all(two.store().join("below")).expect("directories");
        let paths = [one.path().to_path_buf(), two.path().to_path_buf()];
        drop(one);
        let panicked = std::thread::spawn(move || {
            let _two = two;
            std::panic::panic_any("as a failed assertion does");
        });
        assert!(panicked.join().is_err());
        assert!(paths.iter().all(|path| !path.exists()), "{paths:?}");
    }
}
