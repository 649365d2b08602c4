//! The medium and durabilities of a store at some path, without creating one.

use std::path::{Path, PathBuf};

use lodestore_contract::{Error, Result};
use lodestore_media::{HeaderSummary, MediumReport, has_cmpxchg16b, probe};

use crate::header;
use crate::made::nearest_directory;

/// The findings of [`doctor`].
#[derive(Debug)]
#[non_exhaustive]
pub struct Diagnosis {
    /// The probed directory: the given path, or its nearest existing parent.
    pub probed: PathBuf,
    /// The medium there.
    pub medium: MediumReport,
    /// Whether the processor has 16-byte compare-and-swap (`cmpxchg16b`), which the engines need.
    pub cmpxchg16b: bool,
    /// The header of the store at the path, if there is one, read without opening it.
    pub store: Option<Result<HeaderSummary>>,
    /// Bytes of all files of that store, if they can be listed.
    pub store_bytes: Option<u64>,
}

/// Probes the medium under `path`, which need not exist, by a small file that is removed at once.
///
/// # Errors
///
/// [`Error::Io`] if nothing can be written there.
pub fn doctor(path: impl AsRef<Path>) -> Result<Diagnosis> {
    let path = path.as_ref();
    let probed = nearest_directory(path);
    let store = match header::inspect(path) {
        Err(Error::Missing { .. }) => None,
        found => Some(found),
    };
    let store_bytes = match &store {
        Some(Ok(_)) => crate::destroy::info(path).ok().map(|info| info.files.iter().map(|file| file.bytes).sum()),
        _ => None,
    };
    Ok(Diagnosis { medium: probe(&probed)?, probed, cmpxchg16b: has_cmpxchg16b(), store, store_bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_directory_is_probed() {
        let scratch = lodestore_contract::testing::Scratch::on_disk();
        let file = scratch.path().join("file");
        std::fs::write(&file, "").expect("a file");
        for path in [scratch.path().to_path_buf(), scratch.path().join("a/b/c"), file.clone(), file.join("below")] {
            assert_eq!(nearest_directory(&path), scratch.path());
        }
        assert_eq!(nearest_directory(Path::new("surely/not/here")), Path::new("."));
        assert_eq!(doctor(scratch.path().join("a/b")).expect("a diagnosis").probed, scratch.path());
    }
}
