//! Replaces `matrix.rs` in a build without the engine `mkvs`.

use std::path::Path;

use lodestore_contract::{Error, Options, Result};
use lodestore_media::{HeaderSummary, Pool};

use crate::built::MKVS;

/// The directory of a matrix with the matrix's own store.
const HOST_DIRECTORY: &str = "host";

/// Returns false: no engine of this build has devices.
pub(crate) fn is_device_option(_name: &str) -> bool {
    false
}

/// Returns false: no engine of this build has devices.
pub(crate) fn keeps_order(_set: &Options) -> bool {
    false
}

/// Returns the header of the store at `path`. Of a matrix it is the header of the matrix's own
/// store, under the name of the engine that this build lacks.
///
/// # Errors
/// As [`Pool::inspect`].
pub(crate) fn inspect(path: &Path) -> Result<HeaderSummary> {
    match Pool::inspect(path) {
        Err(missing @ Error::Missing { .. }) => match Pool::inspect(&path.join(HOST_DIRECTORY)) {
            Ok(host) => Ok(HeaderSummary { engine: MKVS.into(), ..host }),
            Err(Error::Missing { .. }) => Err(missing),
            Err(error) => Err(error),
        },
        found => found,
    }
}
