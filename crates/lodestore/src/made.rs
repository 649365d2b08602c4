//! Directories on the way to a store that is being made: where nothing comes of it those go that were not there before.

use std::fs;
#[cfg(feature = "mkvs")]
use std::io;
use std::path::{Path, PathBuf};

use lodestore_contract::Error;

/// The directories that are not there on the way to `path`, and `path` if it is not, the deepest first.
pub(crate) fn missing(path: &Path) -> Vec<PathBuf> {
    let named = path.ancestors().filter(|above| !above.as_os_str().is_empty());
    named.take_while(|above| above.symlink_metadata().is_err()).map(Path::to_path_buf).collect()
}

/// Removes those of these directories that are empty, the deepest first.
pub(crate) fn remove_empty(directories: impl IntoIterator<Item = impl AsRef<Path>>) {
    for directory in directories {
        // One that is not empty holds what somebody else put there; one that is not there was never made.
        let _ = fs::remove_dir(directory);
    }
}

/// Removes those of these directories that are empty, unless another process creates a store there.
pub(crate) fn remove_after(refused: &Error, directories: &[PathBuf]) {
    if !matches!(refused, Error::Locked { .. } | Error::Exists { .. }) {
        remove_empty(directories);
    }
}

/// Stores that were made, and the directories that were made for them.
#[cfg(feature = "mkvs")]
#[derive(Default)]
pub(crate) struct Made {
    stores: Vec<PathBuf>,
    directories: Vec<PathBuf>,
}

#[cfg(feature = "mkvs")]
impl Made {
    /// The store at `path` was made, and `directories`, which were not there.
    pub(crate) fn note(&mut self, path: &Path, directories: Vec<PathBuf>) {
        self.stores.push(path.into());
        self.directories.extend(directories);
    }

    /// Returns whether the store at `path` was made here.
    pub(crate) fn has(&self, path: &Path) -> bool {
        self.stores.iter().any(|store| store == path)
    }

    /// Takes away the store at `path`, if it was made, and directories that were made for it: the last of those who are in one takes it away. It is not open.
    ///
    /// # Errors
    /// The system's word.
    pub(crate) fn take_back(&mut self, path: &Path) -> io::Result<()> {
        let Some(at) = self.stores.iter().position(|store| store == path) else { return Ok(()) };
        self.stores.swap_remove(at);
        clear(path)?;
        remove_empty(path.ancestors().filter(|above| self.directories.iter().any(|made| made == above)));
        Ok(())
    }
}

/// Removes all that is in a directory, not the directory.
#[cfg(feature = "mkvs")]
fn clear(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() { fs::remove_dir_all(entry.path())? } else { fs::remove_file(entry.path())? }
    }
    Ok(())
}
