//! Writes the superblock of the values file, and rebuilds a damaged one.

use lodestore_contract::{Error, Result, now_millis};
use lodestore_media::{BlockFile, Blocks};

use crate::layout::{SEGMENT_BYTES_MIN, SEGMENT_HEADER_BYTES, Superblock, segment_bytes_of};

/// Maximum offsets probed for a header if the superblock is damaged.
const HEADER_PROBES_MAX: u64 = 1 << 16;

/// Writes the superblock, durable after the next sync of the file.
pub(crate) fn write_superblock(file: &BlockFile, superblock: Superblock) -> Result<()> {
    let mut block = Blocks::new();
    block.extend_from_slice(&superblock.encode());
    block.resize(BlockFile::BLOCK as usize);
    file.write(0, &block)
}

/// Rebuilds the damaged superblock in `block`. Each segment's header holds the segment's number.
/// The number and the position yield the length of a segment.
///
/// # Errors
/// `refused` if no header yields a length or the version differs; [`Error::Io`],
/// [`Error::Poisoned`].
pub(crate) fn rebuild_superblock(file: &BlockFile, block: &[u8], refused: Error) -> Result<Superblock> {
    if !matches!(refused, Error::Corrupt { .. }) {
        return Err(refused);
    }
    let mut votes = [0u32; u32::BITS as usize];
    let steps = (file.len().saturating_sub(BlockFile::BLOCK) / u64::from(SEGMENT_BYTES_MIN)).min(HEADER_PROBES_MAX);
    for step in 1..steps {
        let behind = step * u64::from(SEGMENT_BYTES_MIN);
        let mut header = [0; SEGMENT_HEADER_BYTES];
        if file.read(BlockFile::BLOCK + behind, &mut header).is_err() {
            continue;
        }
        // A value may look like a header: the majority of headers decides.
        if let Some(segment_bytes) = segment_bytes_of(&header, behind) {
            votes[segment_bytes.trailing_zeros() as usize] += 1;
        }
    }
    let most = votes.iter().copied().max().unwrap_or(0);
    let power = votes.iter().position(|votes| *votes == most && most > 0).ok_or(refused)?;
    // The damage destroyed the last time at which space was freed. The current time is not earlier.
    let opening = Superblock::opening_in(block);
    let superblock = Superblock { segment_bytes: 1 << power, freed_expiry_max: now_millis(), opening };
    write_superblock(file, superblock)?;
    file.sync_now()?;
    Ok(superblock)
}
