//! Directories on the way to a store: the existing ones, and those that a creation makes. If the
//! creation fails, the ones that did not exist before are removed.

use std::fs;
#[cfg(feature = "mkvs")]
use std::io;
use std::path::{Path, PathBuf};

use lodestore_contract::Error;

/// Returns `path` if it is a directory, or the nearest one above it.
pub(crate) fn nearest_directory(path: &Path) -> PathBuf {
    let found = path.ancestors().find(|above| above.is_dir());
    // The last ancestor of a relative path is empty, which is the current directory.
    found.map_or_else(|| PathBuf::from("."), Path::to_path_buf)
}

/// Returns the missing directories on the way to `path`, and `path` if it is missing, the deepest
/// first.
pub(crate) fn missing_directories(path: &Path) -> Vec<PathBuf> {
    let named = path.ancestors().filter(|above| !above.as_os_str().is_empty());
    named.take_while(|above| above.symlink_metadata().is_err()).map(Path::to_path_buf).collect()
}

/// Removes the empty ones of these directories, the deepest first.
pub(crate) fn remove_empty(directories: impl IntoIterator<Item = impl AsRef<Path>>) {
    for directory in directories {
        // Another process put something into a directory that is not empty; a missing one was never
        // created.
        let _ = fs::remove_dir(directory);
    }
}

/// Removes the empty ones of these directories, unless another process creates a store there.
pub(crate) fn remove_empty_after(refused: &Error, directories: &[PathBuf]) {
    if !matches!(refused, Error::Locked { .. } | Error::Exists { .. }) {
        remove_empty(directories);
    }
}

/// Created stores, and the directories that were created for them.
#[cfg(feature = "mkvs")]
#[derive(Default)]
pub(crate) struct CreatedStores {
    stores: Vec<PathBuf>,
    directories: Vec<PathBuf>,
}

#[cfg(feature = "mkvs")]
impl CreatedStores {
    /// Adds the store created at `path`, with the new `directories`.
    pub(crate) fn add(&mut self, path: &Path, directories: Vec<PathBuf>) {
        self.stores.push(path.into());
        self.directories.extend(directories);
    }

    /// Returns whether the store at `path` was created here.
    pub(crate) fn contains(&self, path: &Path) -> bool {
        self.stores.iter().any(|store| store == path)
    }

    /// Removes the closed store at `path`, if it was created here, and the directories that were
    /// created for it. The last store in a shared directory removes the directory.
    ///
    /// # Errors
    ///
    /// The error of the system.
    pub(crate) fn remove_store(&mut self, path: &Path) -> io::Result<()> {
        let Some(at) = self.stores.iter().position(|store| store == path) else { return Ok(()) };
        self.stores.swap_remove(at);
        remove_contents(path)?;
        remove_empty(path.ancestors().filter(|above| self.directories.iter().any(|created| created == above)));
        Ok(())
    }
}

/// Removes the contents of a directory, but not the directory.
#[cfg(feature = "mkvs")]
fn remove_contents(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() { fs::remove_dir_all(entry.path())? } else { fs::remove_file(entry.path())? }
    }
    Ok(())
}
