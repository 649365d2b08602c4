//! The seal of a clean stop: a checksum for each block of the index.
//!
//! A clean stop stores the seal, and the next open checks the whole index against it before it
//! serves any request. The head determines whether the seal is in force, not the pool's clean flag.
//! An open that is killed before it has compared everything leaves the seal to the next open.
//!
//! ```text
//! head, the last line of the root area
//! 0          8       16               24         32           40       48        56
//! | LODESEAL | state | first position | body len | body crc   | extents | head crc | 0       |
//!
//! an extent of the seal
//! 0          8      16      24
//! | LODESEA1 | next | bytes | part of the body ...
//!
//! body, for each extent of the index and for the root area
//! 0          8       16     20  24
//! | position | bytes | kind | 0 | crc32c of each block of 4096 bytes: 4 bytes each, padded to 8 |
//! ```
//! Each checksum starts from a seed of the pool's identity and its block's position. `state` is 1
//! (no seal: the store was too full for one), 2 (sealed) or 3 (in use: an open has compared the
//! seal). All other fields of a head in use are 0. After a clean stop, an invalid head or a head in
//! use is damage. After an unclean stop such a head means that no seal is in force.
//!
//! A salvage open marks the store as damaged when the seal does not match, before it serves any
//! request (`Pool::mark_damaged`). No later open therefore takes the index for whole.
//!
//! Persist order of a stop: the extents; fence; the head; flush; fence; then the pool's clean flag.
//! Persist order of an open: the comparison; the head in use; flush; fence; then the first store to
//! the index. A valid head with state 2 therefore belongs to an unchanged index, regardless of the
//! clean flag. A head that a crash tears is invalid: its checksum covers all fields.

mod body;

use std::sync::atomic::{AtomicU64, Ordering};

use lodestore_contract::{Durability, Error, Event, FoundBy, Result};
use lodestore_media::{ExtentKind, NvPtr, OpenReport, Pool, crc32c_seeded, u64_at};

use body::{append_item, check_job, jobs_of, read_body, store_body};

use crate::planted;
use crate::recovery_progress::share_out;

/// Offset of the head in the root area.
const HEAD_AT: u64 = Pool::ROOT_BYTES - 64;
const HEAD_BYTES: usize = 56;
const HEAD_CRC_AT: usize = 48;
const HEAD_MAGIC: [u8; 8] = *b"LODESEAL";
const NO_SEAL_STATE_ID: u64 = 1;
const SEALED_STATE_ID: u64 = 2;
const IN_USE_STATE_ID: u64 = 3;
/// Kind of the root area in the body.
const KIND_ROOT: ExtentKind = ExtentKind::FREE;

/// An extent of the index that a seal covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SealedExtent {
    /// Its start.
    pub at: NvPtr,
    /// Bytes of it that the index uses.
    pub bytes: u64,
    /// Its kind.
    pub kind: ExtentKind,
}

/// The state of the index, determined before an open reads the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SealCheck {
    /// A seal is in force and the whole index matches it. Also the result for a new store.
    Whole,
    /// No seal is in force: after a crash, or a clean stop of a store that was too full for a
    /// seal.
    Absent,
    /// Parts of the index are damaged. Only a salvage open gets this result.
    Damaged,
}

/// Stores and checks the seal of one engine.
#[derive(Debug, Clone, Copy)]
pub struct Seal {
    /// Kind of the seal's own extents.
    pub kind: ExtentKind,
    /// Names a kind of extent in error messages.
    pub name: fn(ExtentKind) -> &'static str,
}

impl Seal {
    /// Bytes of the root area that an engine can use; the seal's head is after them.
    pub const ROOT_BYTES: u64 = HEAD_AT;

    /// Checks the index against the seal of the last clean stop, with at most `threads` threads.
    /// Then marks the seal's head as in use, and frees the seal's extents. Must be called before
    /// any part of the index is used or changed.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the seal does not match or an earlier salvage found damage, unless the
    /// open is a salvage. The store is left as it was found. [`Error::Poisoned`] if the head cannot
    /// be made durable.
    pub fn check(&self, pool: &Pool, report: &OpenReport, threads: usize) -> Result<SealCheck> {
        if report.created {
            return Ok(SealCheck::Whole);
        }
        let outcome = if report.is_marked_damaged {
            Err(damaged_index("the store's index", "an earlier salvage open found damage"))
        } else {
            self.compare_in_force(pool, report, threads)
        };
        match outcome {
            Err(error) if pool.options().salvage => {
                report_corrupt(pool, &error);
                pool.mark_damaged()?;
                self.free_extents(pool);
                Ok(SealCheck::Damaged)
            }
            Err(error) => {
                // The index was not changed: the next open checks it against the same seal.
                if report.clean {
                    let _ = pool.close(true);
                }
                Err(error)
            }
            Ok(found) => {
                set_in_use(pool, report)?;
                self.free_extents(pool);
                Ok(found)
            }
        }
    }

    /// Compares the index with the seal, if one is in force.
    fn compare_in_force(&self, pool: &Pool, report: &OpenReport, threads: usize) -> Result<SealCheck> {
        if pool.has_fault(planted::SEAL_IGNORED) || !report.clean && !is_ordered(pool, report) {
            return Ok(SealCheck::Absent);
        }
        let place = "the seal of the last clean stop";
        match HeadState::load(pool) {
            HeadState::Sealed => self.compare(pool, threads),
            HeadState::NoSeal => Ok(SealCheck::Absent),
            HeadState::InUse | HeadState::Invalid if !report.clean => Ok(SealCheck::Absent),
            HeadState::InUse => Err(damaged_index(place, "the head of the seal is older than the stop")),
            HeadState::Invalid => Err(damaged_index(place, "the head of the seal is damaged")),
        }
    }

    fn free_extents(&self, pool: &Pool) {
        // A recovering allocator frees all unmarked space.
        if !pool.allocator().is_recovering() {
            pool.allocator().free_kind(pool, self.kind);
        }
    }

    /// Stores the seal of these extents and of the root area. They must not change before the pool
    /// is closed. In a store without free space for the seal, stores a head with state 1.
    ///
    /// # Errors
    /// [`Error::Poisoned`], [`Error::Io`]; the caller must not stop cleanly then.
    pub fn save(&self, pool: &Pool, extents: &[SealedExtent]) -> Result<()> {
        let root = SealedExtent { at: pool.root(), bytes: HEAD_AT, kind: KIND_ROOT };
        let mut body = Vec::new();
        for extent in [root].iter().chain(extents) {
            append_item(pool, *extent, &mut body)?;
        }
        let stored = match store_body(pool, &body, self.kind) {
            Ok(first) => Some(first),
            Err(Error::Full { .. }) => None,
            Err(error) => return Err(error),
        };
        pool.fence_checked()?;
        let mut head = new_head(if stored.is_some() { SEALED_STATE_ID } else { NO_SEAL_STATE_ID });
        if let Some(first) = stored {
            head[16..24].copy_from_slice(&first.raw().to_le_bytes());
            head[24..32].copy_from_slice(&(body.len() as u64).to_le_bytes());
            head[32..40].copy_from_slice(&u64::from(sum(pool, first, &body)).to_le_bytes());
            head[40..48].copy_from_slice(&(extents.len() as u64).to_le_bytes());
        }
        store_head(pool, head)
    }

    /// Reads the seal and compares each block with its checksum.
    fn compare(&self, pool: &Pool, threads: usize) -> Result<SealCheck> {
        let body = read_body(pool)?;
        let jobs = jobs_of(&body)
            .ok_or_else(|| damaged_index("the seal of the last clean stop", "the body of the seal is damaged"))?;
        let (body, found) = (&body, AtomicU64::new(0));
        let work = |index: usize, damage: &mut Vec<Error>| {
            if let Err(error) = check_job(self, pool, &jobs[index], body)
                && found.fetch_add(1, Ordering::Relaxed) < 64
            {
                damage.push(error);
            }
            Ok(())
        };
        let shares = share_out(jobs.len(), threads, work, |_: &mut Vec<Error>| ())?;
        let mut damage = shares.into_iter().flatten();
        match damage.next() {
            None => Ok(SealCheck::Whole),
            Some(first) => {
                damage.for_each(|error| report_corrupt(pool, &error));
                Err(first)
            }
        }
    }
}

/// State of the seal's head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HeadState {
    Sealed,
    /// The store was too full for a seal.
    NoSeal,
    /// An open has compared the seal, and may have changed the index since.
    InUse,
    /// No head, or one changed by a crash or damage.
    Invalid,
}

impl HeadState {
    fn load(pool: &Pool) -> Self {
        let at = pool.root().add(HEAD_AT);
        let Some(head) = pool.bytes(at, HEAD_BYTES) else { return Self::Invalid };
        let crc = u64::from(sum(pool, at, &head[..HEAD_CRC_AT]));
        if head[..8] != HEAD_MAGIC || u64_at(head, HEAD_CRC_AT) != crc {
            return Self::Invalid;
        }
        match u64_at(head, 8) {
            NO_SEAL_STATE_ID => Self::NoSeal,
            SEALED_STATE_ID => Self::Sealed,
            IN_USE_STATE_ID => Self::InUse,
            _ => Self::Invalid,
        }
    }
}

/// Returns a head in this state without its checksum, all other fields 0.
fn new_head(state: u64) -> [u8; HEAD_BYTES] {
    let mut head = [0; HEAD_BYTES];
    head[..8].copy_from_slice(&HEAD_MAGIC);
    head[8..16].copy_from_slice(&state.to_le_bytes());
    head
}

/// Stores the head with its checksum, durably.
fn store_head(pool: &Pool, mut head: [u8; HEAD_BYTES]) -> Result<()> {
    let at = pool.root().add(HEAD_AT);
    let crc = u64::from(sum(pool, at, &head[..HEAD_CRC_AT]));
    head[HEAD_CRC_AT..].copy_from_slice(&crc.to_le_bytes());
    pool.store(at, &head);
    pool.flush(at, HEAD_BYTES);
    pool.fence_checked()
}

/// Marks the head, durably, as in use: the index may differ from its seal.
fn set_in_use(pool: &Pool, report: &OpenReport) -> Result<()> {
    if pool.has_fault(planted::SEAL_HEAD_KEPT) {
        return Ok(());
    }
    if HeadState::load(pool) != HeadState::InUse {
        return store_head(pool, new_head(IN_USE_STATE_ID));
    }
    if report.settled {
        return Ok(());
    }
    // A killed process may have stored the head without flushing it.
    pool.flush(pool.root().add(HEAD_AT), HEAD_BYTES);
    pool.fence_checked()
}

/// Returns whether an unclean stop preserved the order of stores. After a restart of the machine a
/// store of durability `process` did not: the index may be newer than the head.
fn is_ordered(pool: &Pool, report: &OpenReport) -> bool {
    report.same_boot || pool.durability() != Durability::Process && !pool.options().emulate_dax
}

/// Returns the checksum of bytes at a position of this pool.
fn sum(pool: &Pool, at: NvPtr, bytes: &[u8]) -> u32 {
    crc32c_seeded(pool.position_seed(at), &[bytes])
}

/// Reports damage to the owner's event sink.
#[cold]
fn report_corrupt(pool: &Pool, error: &Error) {
    if let Error::Corrupt { place, what, .. } = error {
        pool.report_event(&Event::Corruption { found_by: FoundBy::Open, place: place.clone(), what: what.clone() });
    }
}

/// Returns the error for a store whose index is damaged.
#[cold]
fn damaged_index(place: &str, what: &str) -> Error {
    Error::corrupt(
        place,
        format!(
            "{what}: restore the store from a backup, or open it with salvage and export the readable pairs \
             (`Builder::salvage(true)`, `Db::for_each`)"
        ),
    )
}

#[cfg(test)]
mod tests;
