//! The sorted run of a clean stop: the positions in the tree, in key order. HiKV, section 3.5,
//! stores the tree itself; a run is smaller and loads in bulk.
//!
//! ```text
//! an extent of the run
//!  0      4       8         16        24
//! | LRUN | crc32c | next    | count   | position * count
//! ```
//! `next` names the next extent or is 0; `crc32c` covers all bytes after it. The run word in the
//! root area names the first extent. The word after it holds two checksums. The low half covers all
//! extents' checksums, which rejects a run of an earlier stop. The high half covers all records'
//! checksums with their positions, which rejects older records at these positions. A run is valid
//! only if the pool's clean flag is set: any later write could have changed its records.
//!
//! Persist order: all extents, fence, both words, flush, fence; then the seal, and the pool's
//! clean flag.

use lodestore_contract::{Error, Result};
use lodestore_inplace::share_out;
use lodestore_media::{NvPtr, Pool, crc32c, u32_at, u64_at};

use crate::layout::{KIND_RUN, run_word};
use crate::record::Record;
use crate::table::{PREFETCH_BYTES, PREFETCH_RECORDS};

const MAGIC: [u8; 4] = *b"LRUN";
const HEADER_BYTES: usize = 24;
/// Maximum positions of one extent: 1 MiB.
const EXTENT_POSITIONS_MAX: usize = 128 << 10;
/// Records that one task of a thread reads.
const TASK_RECORDS: usize = 4096;
/// Spreads the bits of a position and a checksum.
const RUN_HASH_MULTIPLIER: u64 = 0xd6e8_feb8_6659_fd93;

/// Stores a run and names it in the root area.
///
/// # Errors
/// [`Error::Full`]; then no run is named, and the next open walks the index instead.
pub(crate) fn store(pool: &Pool, positions: &[u64]) -> Result<()> {
    let extent_positions = EXTENT_POSITIONS_MAX.min(pool.options().region_bytes as usize / 64).max(8);
    let mut next = NvPtr::NULL;
    let (mut stored, mut sums) = (Vec::new(), Vec::new());
    for chunk in positions.chunks(extent_positions).rev() {
        let mut bytes = Vec::with_capacity(HEADER_BYTES + chunk.len() * 8);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&next.raw().to_le_bytes());
        bytes.extend_from_slice(&(chunk.len() as u64).to_le_bytes());
        for position in chunk {
            bytes.extend_from_slice(&position.to_le_bytes());
        }
        let crc = crc32c(&[&bytes[8..]]);
        bytes[4..8].copy_from_slice(&crc.to_le_bytes());
        sums.splice(0..0, crc.to_le_bytes());
        let at = match pool.allocator().alloc_extent(pool, bytes.len() as u64, KIND_RUN) {
            Ok(at) => at,
            Err(error) => {
                free(pool, &stored);
                return Err(error);
            }
        };
        pool.store_and_flush(at, &[&bytes]);
        stored.push(at);
        next = at;
    }
    pool.fence();
    set_root(pool, next, run_sum(&sums) | u64::from(records_sum(pool, positions, 1)?) << 32);
    Ok(())
}

/// Returns a checksum over the positions and the checksums of their records, independent of their
/// order.
///
/// # Errors
/// [`Error::Corrupt`] if a position has no record.
fn records_sum(pool: &Pool, positions: &[u64], threads: usize) -> Result<u32> {
    let tasks = positions.chunks(TASK_RECORDS).collect::<Vec<_>>();
    let sum_task = |task: usize, sum: &mut u64| {
        for (index, position) in tasks[task].iter().enumerate() {
            if let Some(next) = tasks[task].get(index + PREFETCH_RECORDS) {
                pool.prefetch(NvPtr::from_raw(*next).untagged(), PREFETCH_BYTES);
            }
            let binding = u64::from(Record::read(pool, NvPtr::from_raw(*position))?.binding());
            let mixed = (position ^ binding << 32 ^ binding).wrapping_mul(RUN_HASH_MULTIPLIER);
            *sum = sum.wrapping_add((mixed ^ mixed >> 32).wrapping_mul(RUN_HASH_MULTIPLIER));
        }
        Ok(())
    };
    let sums = share_out(
        tasks.len().max(1),
        threads,
        |task, sum| if task < tasks.len() { sum_task(task, sum) } else { Ok(()) },
        |_| {},
    )?;
    Ok((sums.into_iter().fold(0, u64::wrapping_add) >> 32) as u32)
}

/// Makes the root area name no run; durable when this returns.
pub(crate) fn clear_root(pool: &Pool) {
    set_root(pool, NvPtr::NULL, 0);
}

/// Makes the root area name this extent as the run's first; durable when this returns.
fn set_root(pool: &Pool, first: NvPtr, sum: u64) {
    let word = run_word(pool);
    pool.publish_u64(word.add(8), sum);
    pool.publish_u64(word, first.raw());
    pool.flush(word, 16);
    pool.fence();
}

/// Returns the checksum of the extents' checksums, first to last.
fn run_sum(sums: &[u8]) -> u64 {
    u64::from(crc32c(&[sums]))
}

/// Returns the run that the root area names: its positions, and its extents. `None` if there is
/// none.
///
/// # Errors
/// [`Error::Corrupt`].
pub(crate) fn load(pool: &Pool, threads: usize) -> Result<Option<(Vec<u64>, Vec<NvPtr>)>> {
    let mut at = NvPtr::from_raw(pool.load_u64(run_word(pool)));
    if at.is_null() {
        return Ok(None);
    }
    let wrong = |at: NvPtr, what: &str| Error::corrupt(format!("sorted run at {at:?}"), what);
    let first = at;
    let (mut positions, mut sums) = (Vec::new(), Vec::new());
    let mut extents = Vec::new();
    while !at.is_null() {
        let Some(header) = pool.bytes(at, HEADER_BYTES) else {
            return Err(wrong(at, "the position is outside the pool"));
        };
        let count = u64_at(header, 16);
        let len = usize::try_from(count).ok().and_then(|count| count.checked_mul(8)?.checked_add(HEADER_BYTES));
        let Some(bytes) = len.and_then(|len| pool.bytes(at, len)) else {
            return Err(wrong(at, "the length is out of range"));
        };
        if bytes[..4] != MAGIC || crc32c(&[&bytes[8..]]) != u32_at(bytes, 4) {
            return Err(wrong(at, "the magic or the checksum differs"));
        }
        sums.extend_from_slice(&bytes[4..8]);
        positions.extend(bytes[HEADER_BYTES..].chunks_exact(8).map(|bytes| u64_at(bytes, 0)));
        extents.push(at);
        if extents.len() as u64 > pool.options().capacity / 64 {
            return Err(wrong(at, "the chain of extents is circular"));
        }
        at = NvPtr::from_raw(u64_at(bytes, 8));
    }
    let stored = pool.load_u64(run_word(pool).add(8));
    if stored & u64::from(u32::MAX) != run_sum(&sums) {
        return Err(wrong(first, "the run is not from the last clean stop"));
    }
    if stored >> 32 != u64::from(records_sum(pool, &positions, threads)?) {
        return Err(wrong(first, "a record of the run was changed later"));
    }
    Ok(Some((positions, extents)))
}

/// Frees extents of a run that no root word names any more.
pub(crate) fn free(pool: &Pool, extents: &[NvPtr]) {
    for at in extents {
        pool.allocator().free_extent(pool, *at);
    }
}
