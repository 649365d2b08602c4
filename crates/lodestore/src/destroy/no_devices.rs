//! Replaces `devices.rs` in a build without the engine `mkvs`.

use std::path::{Path, PathBuf};

use lodestore_contract::{Error, Result};
use lodestore_media::StoreFile;

use super::Destroyed;
use crate::{built, header};

/// Returns the directory itself: no matrix is opened by this build.
pub(super) fn host_dir(root: &Path) -> PathBuf {
    root.into()
}

/// # Errors
/// [`Error::EngineNotBuilt`].
pub(super) fn matrix_files(_root: &Path) -> Result<Vec<StoreFile>> {
    Err(not_built())
}

/// # Errors
/// [`Error::EngineNotBuilt`] if a matrix is there; [`Error::Missing`] and others if not.
pub(super) fn destroy_matrix(root: &Path, _removes_devices_elsewhere: bool) -> Result<Destroyed> {
    header::inspect(root)?;
    Err(not_built())
}

fn not_built() -> Error {
    Error::EngineNotBuilt { engine: built::MKVS.into(), feature: built::MKVS }
}
