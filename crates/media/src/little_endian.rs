//! Numbers in bytes from a medium, which are little-endian everywhere.

/// Returns the four bytes at `at`; 0 if they are not all there.
#[inline]
pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    part(bytes, at).map_or(0, u32::from_le_bytes)
}

/// Returns the eight bytes at `at`; 0 if they are not all there.
#[inline]
pub fn u64_at(bytes: &[u8], at: usize) -> u64 {
    part(bytes, at).map_or(0, u64::from_le_bytes)
}

#[inline]
fn part<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_are_not_entirely_in_the_bytes_read_as_zero() {
        let bytes: Vec<u8> = (1..=12).collect();
        assert_eq!((u32_at(&bytes, 1), u64_at(&bytes, 4)), (0x0504_0302, 0x0c0b_0a09_0807_0605));
        assert_eq!((u32_at(&bytes, 9), u64_at(&bytes, 5), u64_at(&bytes, usize::MAX)), (0, 0, 0));
    }
}
