//! Support for tests: temporary directories, tests in separate processes, the maximum wait for a
//! background thread, and one event of each kind.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tempfile::{Builder, TempDir};

use crate::event::{Event, FoundBy, PoisonReason};

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
    /// Creates a directory in memory if the machine has tmpfs at `/dev/shm`, else calls
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

/// Set in a process that runs one test alone.
const ALONE: &str = "LODESTORE_TEST_ALONE";

/// Returns whether this process runs the test `name` alone. If not, runs the test in a new process,
/// and the caller returns. A test that measures its whole process needs this, because `cargo test`
/// by default runs several tests of a process at once.
///
/// `name` is the test's full path in its crate.
///
/// # Panics
/// If the test fails in its own process, or if it has another name.
pub fn runs_alone(name: &str) -> bool {
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let program = std::env::current_exe().expect("the path of this test program");
    let mut alone = Command::new(program);
    let output = alone.args(["--exact", name]).env(ALONE, "1").output().expect("a new process");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{name} alone: {text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("1 passed"), "no test is called {name}: {text}");
    false
}

/// Returns one event of each kind.
pub fn one_of_each_event() -> Vec<Event> {
    let first = Event::Opened { clean: true, ready_after: Duration::from_micros(1500) };
    std::iter::successors(Some(first), event_after).collect()
}

/// Returns an event of the next kind. A kind without an arm here does not compile.
fn event_after(event: &Event) -> Option<Event> {
    let (group, device) = (1, 2);
    Some(match event {
        Event::Opened { .. } => Event::Recovered { keys: 7, corrupt: 2, took: Duration::from_micros(1500) },
        Event::Recovered { .. } => Event::Grown { bytes: 99 },
        Event::Grown { .. } => {
            Event::Corruption { found_by: FoundBy::Read, place: "pool.0000".into(), what: "its checksum".into() }
        }
        Event::Corruption { .. } => Event::Full { needed: 5 },
        Event::Full { .. } => Event::Poisoned { reason: PoisonReason::Write, cause: "a failed write".into() },
        Event::Poisoned { .. } => Event::Swept { keys: 3 },
        Event::Swept { .. } => Event::DeviceFailed { group, device, is_late: false, cause: "a panic".into() },
        Event::DeviceFailed { .. } => Event::CopyIncomplete { group, device, pairs: 4 },
        Event::CopyIncomplete { .. } => return None,
    })
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

    #[test]
    #[should_panic(expected = "no test is called")]
    fn a_test_that_does_not_exist_cannot_run_alone() {
        runs_alone("testing::tests::no_such_test");
    }
}
