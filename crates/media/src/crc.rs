//! CRC32C (Castagnoli, RFC 3720 appendix B.4), fast for the few hundred bytes of a record.
//!
//! A record's checksum is part of every read, so what counts is one call on 20 to 1000 bytes, not the rate on megabytes.
//! Up to [`SHORT`] bytes the processor's CRC32 instruction is used directly: three runs side by side, because it takes
//! three cycles and one can begin in each, joined by a carry-less multiplication (V. Gopal et al., "Fast CRC
//! computation for iSCSI polynomial using CRC32 instruction", Intel 2011). Longer parts, and processors without the
//! instruction, go to `crc-fast`.

use std::arch::x86_64 as arch;

/// The polynomial, reflected.
const POLYNOMIAL: u32 = 0x82F6_3B78;
/// Longest part that is done here, in bytes; beyond it wider registers win.
const SHORT: usize = 2048;
/// Bytes of a word.
const WORD: usize = 8;
/// Most words of each of the three runs.
const RUN: usize = SHORT / (3 * WORD);
/// Fewest words of a run that are worth joining.
const RUN_LEAST: usize = 4;

/// For runs of `n` words, what shifts a sum over one run and over two: x to the power of the run's bits, less 33 for the
/// multiplication's own shift, modulo the polynomial.
static SHIFTS: [[u32; 2]; RUN + 1] = shifts();

const fn shifts() -> [[u32; 2]; RUN + 1] {
    let mut powers = [0; 2 * RUN + 1];
    let mut power = 1 << 31;
    let mut exponent = 0;
    let mut at = 1;
    while at <= 2 * RUN {
        while exponent < at * WORD * 8 - 33 {
            power = (power >> 1) ^ if power & 1 == 0 { 0 } else { POLYNOMIAL };
            exponent += 1;
        }
        powers[at] = power;
        at += 1;
    }
    let mut all = [[0; 2]; RUN + 1];
    let mut run = 1;
    while run <= RUN {
        all[run] = [powers[run], powers[2 * run]];
        run += 1;
    }
    all
}

/// CRC32C (Castagnoli) of the parts, one behind the other.
#[inline]
pub fn crc32c(parts: &[&[u8]]) -> u32 {
    let short = parts.iter().all(|part| part.len() <= SHORT);
    if short && std::arch::is_x86_feature_detected!("sse4.2") && std::arch::is_x86_feature_detected!("pclmulqdq") {
        // SAFETY: the processor has both (Inv 6).
        return unsafe { parts.iter().fold(!0, |sum, part| update(sum, part)) } ^ !0;
    }
    any_length(parts)
}

/// Returns the CRC32C of the 4 little-endian bytes of `seed`, followed by the parts.
///
/// Different seeds give different sums for the same parts.
#[inline]
pub fn crc32c_seeded(seed: u32, parts: &[&[u8]]) -> u32 {
    let short = parts.iter().all(|part| part.len() <= SHORT);
    if short && std::arch::is_x86_feature_detected!("sse4.2") && std::arch::is_x86_feature_detected!("pclmulqdq") {
        let (first, rest) = parts.split_first().map_or((&[][..], parts), |(first, rest)| (*first, rest));
        // SAFETY: the processor has both (Inv 6).
        return unsafe { rest.iter().fold(update_seeded(seed, first), |sum, part| update(sum, part)) } ^ !0;
    }
    any_length_seeded(seed, parts)
}

#[cold]
#[inline(never)]
fn any_length_seeded(seed: u32, parts: &[&[u8]]) -> u32 {
    any_length_after(&seed.to_le_bytes(), parts)
}

#[cold]
#[inline(never)]
fn any_length(parts: &[&[u8]]) -> u32 {
    any_length_after(&[], parts)
}

fn any_length_after(first: &[u8], parts: &[&[u8]]) -> u32 {
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    digest.update(first);
    for part in parts {
        digest.update(part);
    }
    digest.finalize() as u32
}

/// The sum of a seed's 4 bytes and of `part`, of at most [`SHORT`] bytes, not inverted.
#[target_feature(enable = "sse4.2,pclmulqdq")]
fn update_seeded(seed: u32, part: &[u8]) -> u32 {
    update(arch::_mm_crc32_u32(!0, seed), part)
}

/// The sum `sum`, neither inverted before nor after, gone on over `part`, of at most [`SHORT`] bytes.
#[target_feature(enable = "sse4.2,pclmulqdq")]
fn update(sum: u32, part: &[u8]) -> u32 {
    let (words, rest) = part.as_chunks::<WORD>();
    let word = |word: &[u8; WORD]| u64::from_le_bytes(*word);
    let mut sum = u64::from(sum);
    let run = words.len() / 3;
    let tail = if run >= RUN_LEAST {
        let (first, others) = words.split_at(run);
        let (second, others) = others.split_at(run);
        let (third, tail) = others.split_at(run);
        let (mut b, mut c) = (0, 0);
        for ((x, y), z) in first.iter().zip(second).zip(third) {
            sum = arch::_mm_crc32_u64(sum, word(x));
            b = arch::_mm_crc32_u64(b, word(y));
            c = arch::_mm_crc32_u64(c, word(z));
        }
        let [over_one, over_two] = SHIFTS[run];
        sum = arch::_mm_crc32_u64(0, product(sum, over_two) ^ product(b, over_one)) ^ c;
        tail
    } else {
        words
    };
    for each in tail {
        sum = arch::_mm_crc32_u64(sum, word(each));
    }
    let mut sum = sum as u32;
    let (half, bytes) = rest.as_chunks::<4>();
    for half in half {
        sum = arch::_mm_crc32_u32(sum, u32::from_le_bytes(*half));
    }
    for byte in bytes {
        sum = arch::_mm_crc32_u8(sum, *byte);
    }
    sum
}

/// The product without carries, of at most 63 bits.
#[target_feature(enable = "sse4.2,pclmulqdq")]
#[inline]
fn product(sum: u64, shift: u32) -> u64 {
    let wide = |number: u64| arch::_mm_cvtsi64_si128(number as i64);
    arch::_mm_cvtsi128_si64(arch::_mm_clmulepi64_si128::<0>(wide(sum), wide(u64::from(shift)))) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bit by bit, from the definition.
    fn slow(bytes: &[u8]) -> u32 {
        !bytes.iter().fold(!0, |sum, byte| {
            (0..8).fold(sum ^ u32::from(*byte), |sum, _| (sum >> 1) ^ if sum & 1 == 0 { 0 } else { POLYNOMIAL })
        })
    }

    fn noise(len: usize) -> Vec<u8> {
        let mut state = 0x9E37_79B9_7F4A_7C15_u64;
        let mut next = || {
            state = state.wrapping_mul(0xD129_42BA_56E7_7A85).wrapping_add(1);
            (state >> 56) as u8
        };
        (0..len).map(|_| next()).collect()
    }

    #[test]
    fn the_examples_of_rfc_3720_come_out() {
        let ascending: Vec<u8> = (0..32).collect();
        assert_eq!(crc32c(&[b"123456789"]), 0xE306_9283);
        assert_eq!(crc32c(&[&[0; 32]]), 0x8A91_36AA);
        assert_eq!(crc32c(&[&[0xFF; 32]]), 0x62A8_AB43);
        assert_eq!(crc32c(&[&ascending]), 0x46DD_794E);
        assert_eq!(crc32c(&[]), 0);
    }

    #[test]
    fn every_length_agrees_with_the_definition_and_the_other_path() {
        let bytes = noise(SHORT + 64);
        for len in (0..=SHORT + 64).filter(|len| *len < 700 || len % 13 == 0 || *len > SHORT - 20) {
            let part = &bytes[..len];
            let right = slow(part);
            assert_eq!(crc32c(&[part]), right, "{len} bytes");
            assert_eq!(any_length(&[part]), right, "{len} bytes, the other path");
        }
    }

    #[test]
    fn a_seed_counts_as_four_bytes_before_the_parts() {
        let bytes = noise(SHORT + 64);
        for seed in [0, 1, 0x8000_0000, 0x1234_5678, u32::MAX] {
            for len in [0, 1, 20, 100, 1000, SHORT, SHORT + 64] {
                let right = slow(&[&seed.to_le_bytes()[..], &bytes[..len]].concat());
                assert_eq!(crc32c_seeded(seed, &[&bytes[..len]]), right, "{len} bytes");
                assert_eq!(any_length_seeded(seed, &[&bytes[..len]]), right, "{len} bytes, the other path");
            }
        }
    }

    #[test]
    fn parts_are_one_behind_the_other_wherever_they_are_cut() {
        let bytes = noise(3 * SHORT);
        let whole = slow(&bytes);
        for cut in [0, 1, 3, 8, 20, 36, 97, 1000, SHORT] {
            let (head, rest) = bytes.split_at(cut);
            let (middle, end) = rest.split_at(SHORT);
            assert_eq!(crc32c(&[head, middle, end]), whole, "cut at {cut}");
            let (a, b) = bytes[..SHORT].split_at(cut);
            assert_eq!(crc32c(&[a, &[], b]), slow(&bytes[..SHORT]), "cut at {cut}");
        }
    }
}
