//! Which opening of the pool wrote to the values file last.
//!
//! The pool's root area and the superblock of `values.0000` hold the number of the last opening.
//! In the root area it stands twice, at bytes 3328 and 3840, behind what the LSM has there. Each is
//! one word of 8 bytes with its own checksum (`layout::seal_opening`).
//!
//! Persist order of an open: the root area, **fence**; then the superblock, which the next sync of
//! the values file makes durable. So the pool never has a lower number than the file. A pool with a
//! lower one is an older copy, and the values that it names may have been replaced.

use lodestore_contract::{Error, Result};
use lodestore_media::{BlockFile, NvPtr, Pool};

use crate::begin::write_superblock;
use crate::layout::{Superblock, seal_opening, unseal_opening};

/// Offsets of the two copies in the root area, in different sectors.
const COPIES_AT: [u64; 2] = [3328, 3840];
/// What to do about a pool that is older than the file.
const ADVICE: &str = "restore all files of one copy, or open it with salvage and export what the older index names \
                      (`lodestore export --salvage`)";

fn copies(pool: &Pool) -> [NvPtr; 2] {
    COPIES_AT.map(|at| pool.root().add(at))
}

/// Reads the number of the pool's last opening.
///
/// # Errors
/// [`Error::Corrupt`] if no copy is whole.
fn last_opening(pool: &Pool) -> Result<u32> {
    let newest = copies(pool).into_iter().filter_map(|at| unseal_opening(pool.load_u64(at))).max();
    newest.ok_or_else(|| Error::corrupt("root area", format!("the number of the last opening is lost: {ADVICE}")))
}

/// Stores the number of an opening in the pool, durably.
fn store_opening(pool: &Pool, opening: u32) {
    for at in copies(pool) {
        pool.publish_u64(at, seal_opening(opening));
        pool.flush(at, size_of::<u64>());
    }
    pool.fence();
}

/// Numbers the first opening, of a new store. Returns the superblock's number.
pub(crate) fn begin_first(pool: &Pool) -> u32 {
    store_opening(pool, 1);
    1
}

/// Numbers an opening in the pool, durably, and then in the file, before anything else is written
/// to the file. Returns the new superblock.
///
/// # Errors
/// [`Error::Corrupt`] if the pool is older than the file or cannot tell; then nothing is changed.
/// [`Error::Io`], [`Error::Poisoned`].
pub(crate) fn begin_next(pool: &Pool, file: &BlockFile, superblock: Superblock) -> Result<Superblock> {
    let last = last_opening(pool)?;
    if last < superblock.opening {
        let what =
            format!("opening {} wrote to it, and opening {last} is the pool's last: {ADVICE}", superblock.opening);
        return Err(Error::corrupt("values.0000", what));
    }
    let superblock = Superblock { opening: last.saturating_add(1), ..superblock };
    store_opening(pool, superblock.opening);
    write_superblock(file, superblock)?;
    Ok(superblock)
}
