//! The body of a seal: the checksums of the index's blocks, in extents of the pool.

use lodestore_contract::{Error, Result};
use lodestore_media::{ExtentKind, NvPtr, Pool, u32_at, u64_at};

use super::{HEAD_AT, HEAD_BYTES, KIND_ROOT, Seal, SealedExtent, damaged_index, sum};

const EXTENT_MAGIC: [u8; 8] = *b"LODESEA1";
const EXTENT_HEADER_BYTES: usize = 24;
/// Maximum bytes of one extent of the seal.
const EXTENT_BYTES_MAX: usize = 1 << 20;
/// Bytes per checksum.
const BLOCK_BYTES: u64 = 4096;
/// Number of blocks that one thread checks together.
const JOB_BLOCKS: u64 = 256;
const ITEM_HEADER_BYTES: usize = 24;

/// A sequence of blocks that one thread checks.
pub(super) struct Job {
    extent: SealedExtent,
    /// First block, counted from the extent's start.
    first: u64,
    /// Offset of the first block's checksum in the body.
    sums_at: usize,
    blocks: u64,
}

/// Appends an extent and the checksums of its blocks to the body.
pub(super) fn append_item(pool: &Pool, extent: SealedExtent, body: &mut Vec<u8>) -> Result<()> {
    let SealedExtent { at, bytes, kind } = extent;
    body.extend_from_slice(&at.raw().to_le_bytes());
    body.extend_from_slice(&bytes.to_le_bytes());
    body.extend_from_slice(&u64::from(kind.0).to_le_bytes());
    for offset in (0..bytes).step_by(BLOCK_BYTES as usize) {
        let block = at.add(offset);
        let Some(found) = pool.bytes(block, (bytes - offset).min(BLOCK_BYTES) as usize) else {
            return Err(Error::corrupt(format!("extent {at:?} of the index"), "the extent is outside the pool"));
        };
        body.extend_from_slice(&sum(pool, block, found).to_le_bytes());
    }
    body.resize(body.len().next_multiple_of(8), 0);
    Ok(())
}

/// Stores the body in extents of this kind and returns the position of the first.
pub(super) fn store_body(pool: &Pool, body: &[u8], kind: ExtentKind) -> Result<NvPtr> {
    let part_bytes_max =
        EXTENT_BYTES_MAX.min(pool.options().region_bytes as usize / 8).max(BLOCK_BYTES as usize) - EXTENT_HEADER_BYTES;
    let mut next = NvPtr::NULL;
    for part in body.chunks(part_bytes_max).rev() {
        let bytes = (EXTENT_HEADER_BYTES + part.len()) as u64;
        let at = match pool.allocator().alloc_extent(pool, bytes, kind) {
            Ok(at) => at,
            Err(error) => {
                pool.allocator().free_kind(pool, kind);
                return Err(error);
            }
        };
        let header = [EXTENT_MAGIC, next.raw().to_le_bytes(), (part.len() as u64).to_le_bytes()].concat();
        pool.store_and_flush(at, &[&header, part]);
        next = at;
    }
    Ok(next)
}

/// Reads the body that a valid head names.
pub(super) fn read_body(pool: &Pool) -> Result<Vec<u8>> {
    let place = "the seal of the last clean stop";
    let at = pool.root().add(HEAD_AT);
    let Some(head) = pool.bytes(at, HEAD_BYTES) else { return Err(damaged_index(place, "the root area is missing")) };
    let (first, len) = (NvPtr::from_raw(u64_at(head, 16)), u64_at(head, 24));
    let mut body = Vec::new();
    let mut next = first;
    while (body.len() as u64) < len {
        let extent = read_extent(pool, next).ok_or_else(|| damaged_index(place, "an extent of the seal is invalid"))?;
        next = extent.next;
        body.extend_from_slice(extent.bytes);
    }
    if body.len() as u64 != len || u64::from(sum(pool, first, &body)) != u64_at(head, 32) {
        return Err(damaged_index(place, "the checksum of the seal differs"));
    }
    Ok(body)
}

/// An extent of a seal.
struct BodyExtent<'a> {
    next: NvPtr,
    bytes: &'a [u8],
}

fn read_extent(pool: &Pool, at: NvPtr) -> Option<BodyExtent<'_>> {
    let header = pool.bytes(at, EXTENT_HEADER_BYTES)?;
    let len = usize::try_from(u64_at(header, 16)).ok()?;
    let is_valid = header[..8] == EXTENT_MAGIC && (1..=EXTENT_BYTES_MAX).contains(&len);
    let bytes = pool.bytes(at, EXTENT_HEADER_BYTES + len).filter(|_| is_valid)?;
    Some(BodyExtent { next: NvPtr::from_raw(u64_at(header, 8)), bytes: &bytes[EXTENT_HEADER_BYTES..] })
}

/// Splits the body into jobs. `None` if `save` cannot have written the body.
pub(super) fn jobs_of(body: &[u8]) -> Option<Vec<Job>> {
    let mut jobs = Vec::new();
    let mut at = 0;
    while at < body.len() {
        let header = body.get(at..at + ITEM_HEADER_BYTES)?;
        let extent = SealedExtent {
            at: NvPtr::from_raw(u64_at(header, 0)),
            bytes: u64_at(header, 8),
            kind: ExtentKind(u8::try_from(u64_at(header, 16)).ok()?),
        };
        let blocks = extent.bytes.div_ceil(BLOCK_BYTES);
        let sums_at = at + ITEM_HEADER_BYTES;
        at = sums_at + usize::try_from(blocks).ok()?.checked_mul(4)?.next_multiple_of(8);
        body.get(sums_at..at)?;
        for first in (0..blocks).step_by(JOB_BLOCKS as usize) {
            let blocks = (blocks - first).min(JOB_BLOCKS);
            jobs.push(Job { extent, first, sums_at: sums_at + first as usize * 4, blocks });
        }
    }
    (!jobs.is_empty()).then_some(jobs)
}

/// Compares the blocks of a job with their checksums.
pub(super) fn check_job(seal: &Seal, pool: &Pool, job: &Job, body: &[u8]) -> Result<()> {
    let SealedExtent { at, bytes, kind } = job.extent;
    let name = || format!("{} at {at:?}", if kind == KIND_ROOT { "root area" } else { (seal.name)(kind) });
    for index in 0..job.blocks {
        let offset = (job.first + index) * BLOCK_BYTES;
        let block = at.add(offset);
        let Some(found) = pool.bytes(block, (bytes - offset).min(BLOCK_BYTES) as usize) else {
            return Err(damaged_index(&name(), "the extent is outside the pool"));
        };
        if sum(pool, block, found) != u32_at(body, job.sums_at + index as usize * 4) {
            return Err(damaged_index(
                &name(),
                &format!("the block at offset {offset} changed since the last clean stop"),
            ));
        }
    }
    Ok(())
}
