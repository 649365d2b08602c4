//! The number of the opening of the pool that wrote to the values file last.
//!
//! The superblock of `values.0000` holds the number of the last opening. The pool's root area holds
//! two numbers: that of the last opening, and the file's number when this opening began. A file
//! with any other number belongs to another store, or is an older or newer copy of this one.
//!
//! Each number follows the one before by a random step, modulo 2^32, and is never 0. Two stores, or
//! two copies of one store that were opened separately, therefore have different numbers, except
//! with a probability of 1 in [`STEP_MAX`].
//!
//! The root area stores the numbers twice, at bytes 3328 and 3840, after the LSM's data. Each is
//! one word of 8 bytes with its own checksum (`layout::seal_opening`).
//!
//! Persist order of an open: the file is synced, if the root area has another file number; then the
//! root area, **fence**; then the new superblock, which the next sync of the values file makes
//! durable. At durability `process` nothing is synced: no power failure is survived.
//!
//! In a copy of the root area the file's number is stored first. A crash may leave the number of
//! the last opening old or new. In both cases the file's present number is one of the two.

use lodestore_contract::{Error, Result};
use lodestore_media::{BlockFile, NvPtr, Pool};

use crate::layout::{Superblock, seal_opening, unseal_opening};
use crate::superblock::write_superblock;

/// Offsets of the two copies in the root area, in different sectors.
const COPIES_AT: [u64; 2] = [3328, 3840];
/// Offset of the file's number in a copy.
const FILE_NUMBER_AT: u64 = 8;
/// The greatest step between the numbers of two openings. A power of two.
const STEP_MAX: u32 = 1 << 14;
/// The greatest number of a first opening. A power of two.
const FIRST_MAX: u32 = 1 << 30;
/// Advice for a pool that does not belong to the file.
const ADVICE: &str = "restore all files of the store from one copy, or open it with salvage and export the pairs of \
                      the index (`Builder::salvage(true)`, `Db::for_each`)";

/// The numbers in the root area.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Numbers {
    /// Number of the last opening.
    last: u32,
    /// Number of the values file when the last opening began.
    of_file: u32,
}

/// A copy of the numbers, each `None` if it is damaged.
#[derive(Debug, Clone, Copy)]
struct StoredCopy {
    last: Option<u32>,
    of_file: Option<u32>,
}

/// Returns whether a number was drawn after another one, in the same store.
fn is_after(number: u32, other: u32) -> bool {
    (number.wrapping_sub(other) as i32) > 0
}

/// Returns the number that follows `last` by `step`. 0 is no number, and is never returned.
fn number_after(last: u32, step: u32) -> u32 {
    last.wrapping_add(step).max(1)
}

impl Numbers {
    /// Reads the numbers of the pool's last opening.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if no copy is whole.
    fn read(pool: &Pool) -> Result<Self> {
        let number = |at: NvPtr| unseal_opening(pool.load_u64(at));
        let copy = |at: NvPtr| StoredCopy { last: number(at), of_file: number(at.add(FILE_NUMBER_AT)) };
        let newest = Self::newest(copies(pool).map(copy));
        newest
            .ok_or_else(|| Error::corrupt("root area", format!("the number of the last opening is damaged: {ADVICE}")))
    }

    /// Returns the numbers of the copy that was stored last. `None` if no copy has a valid `last`.
    fn newest(copies: [StoredCopy; 2]) -> Option<Self> {
        let [first, second] = copies;
        let later = match (first.last, second.last) {
            (None, None) => return None,
            (Some(_), None) => first,
            (None, Some(_)) => second,
            // The same opening: the other copy has the damaged number, too.
            (Some(one), Some(other)) if one == other => {
                StoredCopy { of_file: first.of_file.or(second.of_file), ..first }
            }
            (Some(one), Some(other)) if is_after(one, other) => first,
            (Some(_), Some(_)) => second,
        };
        later.last.map(|last| Self { last, of_file: later.of_file.unwrap_or(last) })
    }

    /// Stores the numbers, durably.
    fn store(self, pool: &Pool) {
        for at in copies(pool) {
            pool.publish_u64(at.add(FILE_NUMBER_AT), seal_opening(self.of_file));
            pool.publish_u64(at, seal_opening(self.last));
            pool.flush(at, FILE_NUMBER_AT as usize + size_of::<u64>());
        }
        pool.fence();
    }
}

fn copies(pool: &Pool) -> [NvPtr; 2] {
    COPIES_AT.map(|at| pool.root().add(at))
}

/// Numbers the first opening, of a new store. Returns the superblock's number.
///
/// # Errors
/// [`Error::Io`] if the system has no random numbers.
pub(crate) fn begin_first(pool: &Pool) -> Result<u32> {
    let first = 1 + pool.draw()? % FIRST_MAX;
    Numbers { last: first, of_file: first }.store(pool);
    Ok(first)
}

/// Numbers an opening, durably in the pool and then in the file, before anything else is written to
/// the file. Returns the new superblock.
///
/// # Errors
/// [`Error::Corrupt`] if the file is not the pool's file of its last opening, or the pool's numbers
/// are lost; then nothing is changed. [`Error::Io`], [`Error::Poisoned`].
pub(crate) fn begin_next(pool: &Pool, file: &BlockFile, superblock: Superblock) -> Result<Superblock> {
    let found = Numbers::read(pool)?;
    // A damaged superblock was repaired, and does not know its number.
    let is_known = superblock.opening != 0;
    if is_known && ![found.last, found.of_file].contains(&superblock.opening) {
        let what = format!(
            "opening {} wrote to the file, and opening {} is the last of the pool, so the pool or the file is a copy \
             of another time or store: {ADVICE}",
            superblock.opening, found.last
        );
        return Err(Error::corrupt("values.0000", what));
    }
    let of_file = if is_known { superblock.opening } else { found.of_file };
    if of_file != found.of_file {
        // The number must not fall back to that of an earlier opening.
        file.sync()?;
    }
    let step = 1 + pool.draw()? % STEP_MAX;
    let superblock = Superblock { opening: number_after(found.last, step), ..superblock };
    Numbers { last: superblock.opening, of_file }.store(pool);
    write_superblock(file, superblock)?;
    Ok(superblock)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copy(last: impl Into<Option<u32>>, of_file: impl Into<Option<u32>>) -> StoredCopy {
        StoredCopy { last: last.into(), of_file: of_file.into() }
    }

    fn newest(first: StoredCopy, second: StoredCopy) -> Option<(u32, u32)> {
        Numbers::newest([first, second]).map(|found| (found.last, found.of_file))
    }

    #[test]
    fn one_damaged_number_changes_nothing() {
        let whole = copy(9, 5);
        for damaged in [copy(None, 5), copy(9, None), copy(None, None)] {
            assert_eq!(newest(damaged, whole), Some((9, 5)), "{damaged:?}");
            assert_eq!(newest(whole, damaged), Some((9, 5)), "{damaged:?}");
        }
        assert_eq!(newest(copy(None, 5), copy(None, 5)), None);
    }

    #[test]
    fn the_copy_of_the_later_opening_counts() {
        assert_eq!(newest(copy(9, 5), copy(5, 5)), Some((9, 5)));
        assert_eq!(newest(copy(5, 5), copy(9, 5)), Some((9, 5)));
    }

    #[test]
    fn numbers_never_end_and_are_never_zero() {
        let last = u32::MAX - 2;
        for step in 1..=STEP_MAX {
            let next = number_after(last, step);
            assert_ne!(next, 0);
            assert!(is_after(next, last), "{step}");
            assert_eq!(newest(copy(last, last), copy(next, last)), Some((next, last)));
        }
    }
}
