//! Checks of options that all in-place engines have.

use lodestore_contract::{Durability, Error, Result};
use lodestore_media::PoolOptions;

/// Rejects durability by intervals, which no in-place engine supports.
///
/// # Errors
/// [`Error::Unsupported`].
pub fn check_durability(engine: &'static str, pool: &PoolOptions) -> Result<()> {
    if [Some(pool.durability), pool.raise].iter().any(|level| matches!(level, Some(Durability::Interval(_)))) {
        return Err(Error::Unsupported {
            engine,
            what: "durability interval, because it changes data in place".into(),
            instead: "use process or power",
        });
    }
    Ok(())
}
