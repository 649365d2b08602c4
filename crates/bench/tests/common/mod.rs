//! What the tests of the program `bench` share.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::Value;

static NEXT: AtomicU64 = AtomicU64::new(0);

/// A directory that is gone at the end of its test, and which the bench must leave empty.
pub struct Dir(pub PathBuf);

impl Dir {
    pub fn new() -> Self {
        let shm = Path::new("/dev/shm");
        let parent = if shm.is_dir() { shm.to_path_buf() } else { std::env::temp_dir() };
        Self::in_parent(&parent)
    }

    /// One in `parent`.
    pub fn in_parent(parent: &Path) -> Self {
        let name = format!("lodestore-test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = parent.join(name);
        fs::create_dir(&path).expect("a directory");
        Self(path)
    }

    pub fn is_empty(&self) -> bool {
        fs::read_dir(&self.0).expect("the directory is there").next().is_none()
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs the program with these words, and with this directory.
pub fn bench(words: &str, dir: Option<&Dir>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bench"));
    command.args(words.split_whitespace()).stdin(Stdio::null());
    if let Some(dir) = dir {
        command.arg("--dir").arg(&dir.0);
    }
    command.output().expect("the bench starts")
}

/// The objects that a run printed, which ended well.
pub fn rows(output: &Output) -> Vec<Value> {
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    text.lines().map(|line| serde_json::from_str(line).expect("each line is JSON")).collect()
}
