//! Keys as numbers: heads of 4 and 8 bytes that sort as the key bytes do.
//!
//! A head is padded with zeros, so a key may share its head with a longer key that continues with
//! zeros. If `a < b`, then `head(a) <= head(b)`. Only equal heads require a comparison of the keys.

/// Returns the first eight bytes of `key` as a number that sorts as the bytes do. Shorter keys are
/// padded with zeros.
#[must_use]
#[inline]
pub fn key_head(key: &[u8]) -> u64 {
    match key.first_chunk::<8>() {
        Some(bytes) => u64::from_le_bytes(*bytes).swap_bytes(),
        None => {
            let mut bytes = [0u8; 8];
            bytes[..key.len()].copy_from_slice(key);
            u64::from_le_bytes(bytes).swap_bytes()
        }
    }
}

/// Returns the four bytes of `key` from `at` on as a number that sorts as the bytes do, padded with
/// zeros.
#[inline]
pub(crate) fn head_at(key: &[u8], at: usize) -> u32 {
    match key.get(at..).and_then(|rest| rest.first_chunk::<4>()) {
        Some(bytes) => u32::from_le_bytes(*bytes).swap_bytes(),
        None => {
            let rest = key.get(at..).unwrap_or_default();
            let mut bytes = [0u8; 4];
            bytes[..rest.len()].copy_from_slice(rest);
            u32::from_le_bytes(bytes).swap_bytes()
        }
    }
}

/// Returns the bytes of a head.
#[inline]
pub(crate) fn head_bytes(head: u32) -> [u8; 4] {
    head.swap_bytes().to_le_bytes()
}

/// Returns the bytes of an 8-byte head.
#[inline]
pub(crate) fn word_bytes(word: u64) -> [u8; 8] {
    word.swap_bytes().to_le_bytes()
}

/// Returns the length of the longest common prefix.
pub(crate) fn common(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(x, y)| x == y).count()
}

/// Returns the shortest key that is greater than `left` and at most `right`. Requires `left <
/// right`.
pub(crate) fn separator(left: &[u8], right: &[u8]) -> Vec<u8> {
    debug_assert!(left < right);
    let shared = common(left, right);
    right[..(shared + 1).min(right.len())].to_vec()
}

/// Returns a key's head after its leaf's prefix, `prefix[..old]`, was cut to `prefix[..new]`.
pub(crate) fn head_after_cut(prefix: &[u8], new: usize, head: u32) -> u32 {
    let old = prefix.len();
    debug_assert!(new <= old);
    let removed = &prefix[new..];
    match removed.len() {
        0 => head,
        1..=3 => (head_at(removed, 0)) | (head >> (8 * removed.len())),
        _ => head_at(removed, 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_sort_as_keys_and_are_padded_with_zeros() {
        assert_eq!(key_head(b"a"), 0x6100_0000_0000_0000);
        assert_eq!(key_head(b"abcdefghi"), 0x6162_6364_6566_6768);
        assert_eq!(head_at(b"abcdef", 2), 0x6364_6566);
        assert_eq!(head_at(b"abcdef", 4), 0x6566_0000);
        assert_eq!(head_at(b"abc", 7), 0);
        assert_eq!(head_bytes(head_at(b"wxyz", 0)), *b"wxyz");
        assert_eq!(word_bytes(key_head(b"abcdefgh")), *b"abcdefgh");
    }

    #[test]
    fn heads_after_a_prefix_cut_equal_the_heads_of_the_keys() {
        let key = b"0123456789abcdef";
        for old in 0..key.len() {
            for new in 0..=old {
                assert_eq!(head_after_cut(&key[..old], new, head_at(key, old)), head_at(key, new), "{old} to {new}");
            }
        }
    }

    #[test]
    fn separators_are_short_and_between_their_keys() {
        for (left, right, want) in [
            (&b"abc"[..], &b"abd"[..], &b"abd"[..]),
            (b"", b"xyz", b"x"),
            (b"ab", b"ab\0\0", b"ab\0"),
            (b"a", b"ac", b"ac"),
        ] {
            let made = separator(left, right);
            assert_eq!(made, want);
            assert!(left < made.as_slice() && made.as_slice() <= right);
        }
    }
}
