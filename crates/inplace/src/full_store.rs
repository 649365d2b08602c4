//! What a write does when the medium is full: it frees the space that waits, and tries once more.

use lodestore_contract::{Error, Event, Result};
use lodestore_media::Quiet;

use crate::base::BoxedResult;
use crate::engine::Engine;

/// Tries a write once more if the store seemed full and space waited to be freed. The caller holds
/// no stripe and no guard.
///
/// # Errors
/// The error of the first attempt, or of the second.
#[cold]
pub(crate) fn retry_after_reclaim<E: Engine, T>(
    engine: &E,
    error: Error,
    attempt: impl FnOnce() -> BoxedResult<T>,
) -> Result<T> {
    if !matches!(error, Error::Full { .. }) || !reclaim(engine) {
        return Err(error);
    }
    attempt().map_err(|error| {
        if let Error::Full { needed, .. } = &*error {
            engine.report(&Event::Full { needed: *needed });
        }
        *error
    })
}

/// Frees space that waits for recovery's sweep, for queued operations, or for the end of readers.
/// Returns whether a second attempt may succeed.
#[cold]
fn reclaim<E: Engine>(engine: &E) -> bool {
    // Inside another operation of this store, or a call of its sink, it would deadlock.
    if engine.pool.is_engaged() || engine.recovery.wait_done().is_err() || engine.drain().is_err() {
        return false;
    }
    if Quiet::is_now() {
        // Inside an operation of another store: a holder of a guard here may wait for that store,
        // thus guards must not be waited for.
        engine.pool.epochs().reclaim_patiently(&engine.pool);
        return true;
    }
    engine.pool.epochs().synchronize();
    engine.pool.epochs().reclaim(&engine.pool);
    true
}
