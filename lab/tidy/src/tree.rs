//! The tracked text files of the workspace.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A tracked text file.
#[derive(Debug, Clone)]
pub struct File {
    /// Path relative to the workspace, with `/`.
    pub path: String,
    /// The file's content.
    pub text: String,
}

impl File {
    /// Returns whether the file is Rust source.
    pub fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }
}

/// Endings of the checked files.
const ENDINGS: [&str; 5] = [".rs", ".md", ".toml", ".sh", ".py"];
/// Folders whose files are results or generated data.
const LEFT_OUT: [&str; 2] = ["docs/results/runs/", "target/"];

/// Returns the root of the workspace.
pub fn workspace_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Reads the files that git tracks, or all files of the tree where git or its data is missing.
///
/// # Errors
/// A file or folder cannot be read.
pub fn read_files(root: &Path) -> io::Result<Vec<File>> {
    let mut paths = tracked_paths(root).map_or_else(|| walked_paths(root), Ok)?;
    paths.retain(|path| {
        ENDINGS.iter().any(|ending| path.ends_with(ending)) && !LEFT_OUT.iter().any(|folder| path.starts_with(folder))
    });
    paths.sort();
    let mut files = Vec::new();
    for path in paths {
        match fs::read_to_string(root.join(&path)) {
            Ok(text) => files.push(File { path, text }),
            // A tracked file that was removed and not committed yet.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(files)
}

/// Returns the paths that git tracks.
fn tracked_paths(root: &Path) -> Option<Vec<String>> {
    let output = Command::new("git").args(["ls-files", "-z"]).current_dir(root).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let paths: Vec<String> = text.split('\0').filter(|path| !path.is_empty()).map(str::to_owned).collect();
    (output.status.success() && !paths.is_empty()).then_some(paths)
}

/// Returns the paths of all files below the root, without hidden folders and build directories.
fn walked_paths(root: &Path) -> io::Result<Vec<String>> {
    let mut paths = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root.join(&folder))? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = folder.join(&name);
            if name.starts_with('.') || name == "target" {
                continue;
            }
            if entry.file_type()?.is_dir() {
                folders.push(path);
            } else {
                paths.push(path.to_string_lossy().into_owned());
            }
        }
    }
    Ok(paths)
}
