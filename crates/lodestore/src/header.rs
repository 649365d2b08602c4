//! The header of the store at a path, also of a matrix of devices (engine `mkvs`).

use std::path::Path;

use lodestore_contract::{Error, Result};
use lodestore_media::{HeaderSummary, Pool};
#[cfg(feature = "mkvs")]
use lodestore_mkvs::{Part, explain_host};

#[cfg(not(feature = "mkvs"))]
use crate::built::MKVS;

/// The directory of a matrix with the matrix's own store.
#[cfg(not(feature = "mkvs"))]
const HOST_DIRECTORY: &str = "host";

/// Returns the header of the store at `path`; of a matrix, that of its host's store.
///
/// # Errors
///
/// As [`Pool::inspect`].
#[cfg(feature = "mkvs")]
pub(crate) fn inspect(path: &Path) -> Result<HeaderSummary> {
    match Pool::inspect(path) {
        Err(missing @ Error::Missing { .. }) => match Pool::inspect(&path.join(Part::Host.directory())) {
            Ok(host) => Ok(HeaderSummary { engine: lodestore_mkvs::ENGINE.into(), ..host }),
            // Leftovers of an interrupted creation do not block the next one.
            Err(Error::Missing { .. }) if lodestore_mkvs::may_create_in(path).unwrap_or(false) => {
                Err(lost_host_error(path).unwrap_or_else(|| Error::missing(path)))
            }
            Err(Error::Missing { .. }) => Err(lost_host_error(path).unwrap_or(missing)),
            Err(error) => Err(explain_host(path, error)),
        },
        found => found,
    }
}

/// Returns the error of a matrix whose host is missing while the store of its first device is here.
/// `None` if there is no such store, or a creation was interrupted.
#[cfg(feature = "mkvs")]
fn lost_host_error(path: &Path) -> Option<Error> {
    let device = lodestore_mkvs::first_device(path).join(Part::Device.directory());
    Pool::inspect(&device).ok()?;
    // The leftover of an interrupted creation is no matrix yet.
    if lodestore_mkvs::may_create_in(path).unwrap_or(false) {
        return None;
    }
    let host = path.join(Part::Host.directory());
    Some(explain_host(
        path,
        Error::corrupt(host.display().to_string(), "the matrix's own store is missing: restore its files"),
    ))
}

/// Returns the header of the store at `path`. Of a matrix it is the header of the matrix's own
/// store, under the name of the engine that this build lacks.
///
/// # Errors
/// As [`Pool::inspect`].
#[cfg(not(feature = "mkvs"))]
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
