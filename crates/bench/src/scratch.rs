//! The directory of one run, and the process that works in it, with its control group. All are gone when the run ends:
//! at its end, on an error, and on SIGINT or SIGTERM.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lodestore_contract::{Error, Result};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};

use crate::memory::Group;

static NEXT: AtomicU64 = AtomicU64::new(0);

/// What must go when the run ends.
struct Held {
    path: Option<PathBuf>,
    child: Option<Child>,
    /// The control group of the child.
    group: Option<Group>,
    keep: bool,
}

impl Held {
    fn end_child(&mut self) {
        if let Some(mut child) = self.child.take() {
            // Both fail only where it has ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    fn release(&mut self) {
        self.end_child();
        self.group = None;
        if let Some(path) = self.path.take().filter(|_| !self.keep) {
            // What cannot be removed is seen by whoever owns the directory; there is no more to do here.
            let _ = fs::remove_dir_all(path);
        }
    }
}

/// A fresh directory, or none where no store needs one.
pub(crate) struct Scratch {
    held: Arc<Mutex<Held>>,
    signals: Option<Handle>,
    path: PathBuf,
}

impl Scratch {
    /// Makes a directory of a new name in `parent`.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn new(parent: Option<&Path>, keep: bool) -> Result<Self> {
        let path = parent.map(|parent| {
            let name = format!("lodestore-bench-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
            parent.join(name)
        });
        // Watched before there is a directory, so that no signal finds one and leaves it.
        let held = Arc::new(Mutex::new(Held { path: None, child: None, group: None, keep }));
        let signals = watch(&held);
        if let Some(path) = &path {
            let mut held = held.lock().unwrap_or_else(PoisonError::into_inner);
            fs::create_dir(path).map_err(|source| Error::io("making directory", path, source))?;
            held.path = Some(path.clone());
        }
        Ok(Self { held, signals, path: path.unwrap_or_default() })
    }

    /// The directory; empty where there is none.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Takes charge of the control group of the next child.
    pub(crate) fn hold_group(&self, group: Option<Group>) {
        self.held().group = group;
    }

    /// Kills the child held, if it lives, and removes its control group; the error of a child that the kernel ended there.
    pub(crate) fn leave_group(&self) -> Option<Error> {
        let mut held = self.held();
        held.end_child();
        held.group.take().and_then(|group| group.overrun())
    }

    /// Takes charge of `child`.
    pub(crate) fn hold_child(&self, child: Child) {
        self.held().child = Some(child);
    }

    /// Waits until the child held has ended; whether it ended well.
    pub(crate) fn wait_child(&self) -> bool {
        self.wait_status().is_some_and(|status| status.success())
    }

    /// Waits until the child held has ended; how it did.
    pub(crate) fn wait_status(&self) -> Option<ExitStatus> {
        self.held().child.take().and_then(|mut child| child.wait().ok())
    }

    /// Kills the child held (SIGKILL) and waits until it has ended.
    pub(crate) fn kill_child(&self) {
        self.held().end_child();
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Releases what is held when a signal asks the process to end, and ends it as a shell expects.
fn watch(held: &Arc<Mutex<Held>>) -> Option<Handle> {
    let held = Arc::clone(held);
    let mut signals = Signals::new([SIGINT, SIGTERM]).ok()?;
    let handle = signals.handle();
    std::thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            // Held until the end, so that the main thread does not report the child's death as an error.
            let mut held = held.lock().unwrap_or_else(PoisonError::into_inner);
            held.release();
            std::process::exit(128 + signal);
        }
    });
    Some(handle)
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Some(signals) = &self.signals {
            signals.close();
        }
        self.held().release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directory_goes_with_its_owner_unless_kept() {
        let parent = std::env::temp_dir();
        let path = {
            let scratch = Scratch::new(Some(&parent), false).expect("a directory");
            fs::write(scratch.path().join("file"), "x").expect("a file");
            scratch.path().to_path_buf()
        };
        assert!(!path.exists());
        let kept = Scratch::new(Some(&parent), true).expect("a directory").path().to_path_buf();
        assert!(kept.exists());
        fs::remove_dir_all(kept).expect("removed");
    }
}
