//! The filter: a Bloom filter in lines of 64 bytes, so that a lookup reads one cache line (F.
//! Putze, P. Sanders, J. Singler, "Cache-, hash- and space-efficient Bloom filters", WEA 2007).
//!
//! The high 32 bits of a key's hash select the line. Up to seven numbers of 9 bits, from the
//! product of the hash with an odd number, select bits of it. The last 4 bytes of a line are its
//! check, a CRC32C of the others. A reader compares it if the line says that a key is absent.

use lodestore_media::crc32c_seeded;

/// Bytes of a line.
pub(super) const LINE_BYTES: usize = 64;
/// Bytes of a line that hold bits for keys.
const BIT_BYTES: usize = LINE_BYTES - 4;
/// Bits of a line, in sixteenths of the 512 that 9 bits can select.
const LINE_SIXTEENTHS_COUNT: u64 = 15;
const _: () = assert!(8 * BIT_BYTES as u64 == 32 * LINE_SIXTEENTHS_COUNT);
/// Maximum number of bits that are set for a key.
pub(super) const PROBES_MAX: u8 = 7;
/// 2^64 divided by the golden ratio, odd.
const HASH_MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;

/// Returns the lines of a filter with `bits` per key for `items` keys.
pub(super) fn lines_for(items: usize, bits: u8) -> usize {
    (items * usize::from(bits)).div_ceil(8 * BIT_BYTES)
}

/// Returns the bits to set for each key: about `bits` times the logarithm of 2, and a little less
/// since lines fill unevenly.
pub(super) fn probes_for(bits: u8) -> u8 {
    ((u32::from(bits) * 66).div_ceil(100)).clamp(1, u32::from(PROBES_MAX)) as u8
}

/// Returns the line of `hash` among `lines`.
#[inline]
pub(super) fn line_of(hash: u64, lines: u32) -> usize {
    (((hash >> 32) * u64::from(lines)) >> 32) as usize
}

/// Returns the bits of a line for `hash`, of which the first `probes` count.
#[inline]
fn bits(hash: u64, probes: u8) -> impl Iterator<Item = (usize, u8)> {
    let mut mixed = hash.wrapping_mul(HASH_MULTIPLIER);
    (0..probes.min(PROBES_MAX)).map(move |_| {
        let bit = (((mixed >> 55) * LINE_SIXTEENTHS_COUNT) >> 4) as usize;
        mixed <<= 9;
        (bit / 8, 1 << (bit % 8))
    })
}

/// Sets the bits of `hash` in its line.
#[inline]
pub(super) fn set(line: &mut [u8; LINE_BYTES], hash: u64, probes: u8) {
    bits(hash, probes).for_each(|(byte, mask)| line[byte] |= mask);
}

/// Returns the check of a line whose bits are set; `seed` is the line's own
/// ([`line_seed`](super::format::line_seed)).
#[inline]
fn check(line: &[u8; LINE_BYTES], seed: u32) -> u32 {
    crc32c_seeded(seed, &[&line[..BIT_BYTES]])
}

/// Stores the check of a line after its bits.
pub(super) fn seal(line: &mut [u8; LINE_BYTES], seed: u32) {
    let check = check(line, seed);
    line[BIT_BYTES..].copy_from_slice(&check.to_le_bytes());
}

/// Compares the check of a line with its bits.
#[inline]
pub(super) fn is_whole(line: &[u8; LINE_BYTES], seed: u32) -> bool {
    line[BIT_BYTES..] == check(line, seed).to_le_bytes()
}

/// Returns whether `hash` may be in this line; if not, its key is not in the table.
#[inline]
pub(super) fn test(line: &[u8; LINE_BYTES], hash: u64, probes: u8) -> bool {
    bits(hash, probes).fold(true, |all, (byte, mask)| all & (line[byte] & mask != 0))
}
