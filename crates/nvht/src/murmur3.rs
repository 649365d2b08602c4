//! MurmurHash3 x64, 128 bits (Austin Appleby, public domain): the hash named by NVHT (JPDC 2018).
//! The table uses the first 64 bits. The constants and steps are the published algorithm's; the
//! test vectors are the public ones.

const C1_MULTIPLIER: u64 = 0x87c3_7b91_1142_53d5;
const C2_MULTIPLIER: u64 = 0x4cf5_ad43_2745_937f;

/// Returns eight bytes of `bytes` from `at` on, little-endian.
#[inline]
fn word(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

/// Returns up to eight bytes, padded with zeros.
#[inline]
fn partial(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
}

#[inline]
fn mix_first(k: u64) -> u64 {
    k.wrapping_mul(C1_MULTIPLIER).rotate_left(31).wrapping_mul(C2_MULTIPLIER)
}

#[inline]
fn mix_second(k: u64) -> u64 {
    k.wrapping_mul(C2_MULTIPLIER).rotate_left(33).wrapping_mul(C1_MULTIPLIER)
}

/// Spreads every bit over the whole word.
#[inline]
fn finish(mut k: u64) -> u64 {
    k = (k ^ k >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    k = (k ^ k >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    k ^ k >> 33
}

/// Returns both halves of the hash of `key`. The published function starts with a 32-bit seed. This
/// one has 64 bits, with equal results for seeds that fit 32 bits.
#[inline]
pub(crate) fn murmur3_x64_128(key: &[u8], seed: u64) -> (u64, u64) {
    let (mut h1, mut h2) = (seed, seed);
    let blocks = key.len() / 16;
    for block in 0..blocks {
        h1 ^= mix_first(word(key, block * 16));
        h1 = h1.rotate_left(27).wrapping_add(h2).wrapping_mul(5).wrapping_add(0x52dc_e729);
        h2 ^= mix_second(word(key, block * 16 + 8));
        h2 = h2.rotate_left(31).wrapping_add(h1).wrapping_mul(5).wrapping_add(0x3849_5ab5);
    }
    let tail = &key[blocks * 16..];
    if tail.len() > 8 {
        h2 ^= mix_second(partial(&tail[8..]));
    }
    if !tail.is_empty() {
        h1 ^= mix_first(partial(&tail[..tail.len().min(8)]));
    }
    h1 ^= key.len() as u64;
    h2 ^= key.len() as u64;
    h1 = h1.wrapping_add(h2);
    h2 = h2.wrapping_add(h1);
    (h1, h2) = (finish(h1), finish(h2));
    h1 = h1.wrapping_add(h2);
    (h1, h2.wrapping_add(h1))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The check of the reference implementation's own test program: the first four bytes of the
    /// hash of the hashes of keys {0}, {0, 1}, ... with seeds 256 - n.
    #[test]
    fn the_verification_value_of_the_reference_implementation_is_met() {
        let key: Vec<u8> = (0..=255).collect();
        let mut hashes = Vec::new();
        for len in 0..256usize {
            let (h1, h2) = murmur3_x64_128(&key[..len], 256 - len as u64);
            hashes.extend_from_slice(&h1.to_le_bytes());
            hashes.extend_from_slice(&h2.to_le_bytes());
        }
        let (h1, _) = murmur3_x64_128(&hashes, 0);
        assert_eq!(h1 as u32, 0x6384_ba69);
    }

    #[test]
    fn public_vectors_are_met() {
        assert_eq!(murmur3_x64_128(b"", 0), (0, 0));
        assert_eq!(
            murmur3_x64_128(b"The quick brown fox jumps over the lazy dog", 0),
            (0xe34b_bc7b_bc07_1b6c, 0x7a43_3ca9_c49a_9347)
        );
        assert_eq!(murmur3_x64_128(b"hello", 0), (0xcbd8_a7b3_41bd_9b02, 0x5b1e_906a_48ae_1d19));
    }
}
