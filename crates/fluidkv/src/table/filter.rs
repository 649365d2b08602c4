//! The filter: a Bloom filter in lines of 64 bytes, so that a question touches one cache line (F. Putze, P. Sanders, J. Singler,
//! "Cache-, hash- and space-efficient Bloom filters", WEA 2007).
//!
//! The high 32 bits of a key's hash name the line; up to seven numbers of 9 bits, from the product of the hash with an odd number, name bits
//! of it.

/// Bytes of a line.
pub(super) const LINE: usize = 64;
/// Most bits that are set for a key.
pub(super) const PROBES_MAX: u8 = 7;
/// 2^64 divided by the golden ratio, odd.
const MIX: u64 = 0x9E37_79B9_7F4A_7C15;

/// Lines of a filter of `bits` a key for `items` keys.
pub(super) fn lines_for(items: usize, bits: u8) -> usize {
    (items * usize::from(bits)).div_ceil(8 * LINE)
}

/// Bits to set for each key, of `bits` a key: about the logarithm of 2 of them, and a little less since lines fill unevenly.
pub(super) fn probes_for(bits: u8) -> u8 {
    ((u32::from(bits) * 66).div_ceil(100)).clamp(1, u32::from(PROBES_MAX)) as u8
}

/// The line of `hash` among `lines`.
#[inline]
pub(super) fn line_of(hash: u64, lines: u32) -> usize {
    (((hash >> 32) * u64::from(lines)) >> 32) as usize
}

/// The bits of a line that stand for `hash`, the first `probes` of which count.
#[inline]
fn bits(hash: u64, probes: u8) -> impl Iterator<Item = (usize, u8)> {
    let mut mixed = hash.wrapping_mul(MIX);
    (0..probes.min(PROBES_MAX)).map(move |_| {
        let bit = (mixed >> 55) as usize;
        mixed <<= 9;
        (bit / 8, 1 << (bit % 8))
    })
}

/// Puts `hash` into its line.
#[inline]
pub(super) fn set(line: &mut [u8; LINE], hash: u64, probes: u8) {
    bits(hash, probes).for_each(|(byte, mask)| line[byte] |= mask);
}

/// Whether `hash` may be in this line; if not, its key is not in the table.
#[inline]
pub(super) fn test(line: &[u8; LINE], hash: u64, probes: u8) -> bool {
    bits(hash, probes).fold(true, |all, (byte, mask)| all & (line[byte] & mask != 0))
}
