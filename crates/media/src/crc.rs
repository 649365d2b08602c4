//! CRC32C (Castagnoli, RFC 3720 appendix B.4), fast for the few hundred bytes of a record.
//!
//! A record's checksum is part of every read, so the cost of one call on 20 to 1000 bytes matters
//! more than the rate on megabytes. Three implementations return the same sums:
//!
//! * [`update`]: the processor's CRC32 instruction on three interleaved runs. The instruction has a
//!   latency of three cycles, and one can begin in each. A carry-less multiplication joins the runs
//!   (V. Gopal et al., "Fast CRC computation for iSCSI polynomial using CRC32 instruction", Intel
//!   2011).
//! * [`wide`]: parts above [`INLINE_BYTES_MAX`] bytes, on processors with AVX-512. Carry-less
//!   multiplications fold each 256 bytes into the next (V. Gopal et al., "Fast CRC computation for
//!   generic polynomials using PCLMULQDQ instruction", Intel 2009).
//! * [`portable`]: a table, for processors without the CRC32 instruction.

use std::arch::is_x86_feature_detected;
use std::arch::x86_64 as arch;

/// The polynomial, reflected.
const POLYNOMIAL: u32 = 0x82F6_3B78;
/// Maximum part for one pass of [`update`], in bytes.
const PASS_BYTES_MAX: usize = 2048;
/// Maximum part that is summed inline, in bytes. Above it, [`wide`] needs half the time.
const INLINE_BYTES_MAX: usize = 1024;
/// Bytes of a word.
const WORD_BYTES: usize = 8;
/// Maximum words of each of the three runs.
const RUN_WORDS_MAX: usize = PASS_BYTES_MAX / (3 * WORD_BYTES);
/// Minimum words of a run that are worth joining.
const RUN_WORDS_MIN: usize = 4;

/// For runs of `n` words, the factors that shift a sum over one run and over two. Each is x to the
/// power of the run's bits, less 33 for the multiplication's own shift, modulo the polynomial.
static SHIFTS: [[u32; 2]; RUN_WORDS_MAX + 1] = shifts();

const fn shifts() -> [[u32; 2]; RUN_WORDS_MAX + 1] {
    let mut powers = [0; 2 * RUN_WORDS_MAX + 1];
    let mut power = 1 << 31;
    let mut exponent = 0;
    let mut at = 1;
    while at <= 2 * RUN_WORDS_MAX {
        while exponent < at * WORD_BYTES * 8 - 33 {
            power = (power >> 1) ^ if power & 1 == 0 { 0 } else { POLYNOMIAL };
            exponent += 1;
        }
        powers[at] = power;
        at += 1;
    }
    let mut all = [[0; 2]; RUN_WORDS_MAX + 1];
    let mut run = 1;
    while run <= RUN_WORDS_MAX {
        all[run] = [powers[run], powers[2 * run]];
        run += 1;
    }
    all
}

/// Returns the CRC32C (Castagnoli) of the concatenated parts.
#[inline]
pub fn crc32c(parts: &[&[u8]]) -> u32 {
    let short = parts.iter().all(|part| part.len() <= INLINE_BYTES_MAX);
    if short && is_x86_feature_detected!("sse4.2") && is_x86_feature_detected!("pclmulqdq") {
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
    let short = parts.iter().all(|part| part.len() <= INLINE_BYTES_MAX);
    if short && is_x86_feature_detected!("sse4.2") && is_x86_feature_detected!("pclmulqdq") {
        let (first, rest) = parts.split_first().map_or((&[][..], parts), |(first, rest)| (*first, rest));
        // SAFETY: the processor has both (Inv 6).
        return unsafe { rest.iter().fold(update_seeded(seed, first), |sum, part| update(sum, part)) } ^ !0;
    }
    any_length_seeded(seed, parts)
}

#[cold]
#[inline(never)]
fn any_length_seeded(seed: u32, parts: &[&[u8]]) -> u32 {
    parts.iter().fold(any_update(!0, &seed.to_le_bytes()), |sum, part| any_update(sum, part)) ^ !0
}

#[cold]
#[inline(never)]
fn any_length(parts: &[&[u8]]) -> u32 {
    parts.iter().fold(!0, |sum, part| any_update(sum, part)) ^ !0
}

/// Continues `sum`, which is not inverted, over a part of any length, on any processor.
fn any_update(sum: u32, part: &[u8]) -> u32 {
    if !is_x86_feature_detected!("sse4.2") || !is_x86_feature_detected!("pclmulqdq") {
        return portable(sum, part);
    }
    if part.len() > INLINE_BYTES_MAX && is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("vpclmulqdq") {
        // SAFETY: the processor has all four (Inv 6).
        return unsafe { wide(sum, part) };
    }
    // SAFETY: the processor has both (Inv 6).
    part.chunks(PASS_BYTES_MAX).fold(sum, |sum, part| unsafe { update(sum, part) })
}

/// The sums of single bytes.
static BYTES: [u32; 256] = bytes();

const fn bytes() -> [u32; 256] {
    let mut sums = [0; 256];
    let mut at = 0;
    while at < sums.len() {
        let mut sum = at as u32;
        let mut bit = 0;
        while bit < 8 {
            sum = (sum >> 1) ^ if sum & 1 == 0 { 0 } else { POLYNOMIAL };
            bit += 1;
        }
        sums[at] = sum;
        at += 1;
    }
    sums
}

/// Continues `sum`, which is not inverted, by a table.
fn portable(sum: u32, part: &[u8]) -> u32 {
    part.iter().fold(sum, |sum, byte| BYTES[usize::from(sum as u8 ^ byte)] ^ (sum >> 8))
}

/// Bytes of a register of [`wide`].
const LINE_BYTES: usize = 64;
/// Bytes of one step of [`wide`].
const STEP_BYTES: usize = 4 * LINE_BYTES;
/// Factors that move the halves of 16 bytes over 1, 2, 3 and 4 lines.
static FOLDS: [[i64; 2]; 4] = [fold(LINE_BYTES), fold(2 * LINE_BYTES), fold(3 * LINE_BYTES), fold(4 * LINE_BYTES)];

/// Returns the factors that move the low and the high half of 16 bytes over `bytes` bytes.
///
/// The halves end 32 bits after and before the position where the 32 bits of a sum belong.
const fn fold(bytes: usize) -> [i64; 2] {
    [fold_factor(8 * bytes + 32), fold_factor(8 * bytes - 32)]
}

/// Returns x to the power `exponent`, modulo the polynomial, reflected, shifted for the product.
const fn fold_factor(exponent: usize) -> i64 {
    let mut power: u32 = 1 << 31;
    let mut at = 0;
    while at < exponent {
        power = (power >> 1) ^ if power & 1 == 0 { 0 } else { POLYNOMIAL };
        at += 1;
    }
    (power as i64) << 1
}

/// Continues `sum`, which is not inverted, over `part` of any length, with 512-bit registers.
#[target_feature(enable = "sse4.2,pclmulqdq,avx512f,vpclmulqdq")]
fn wide(sum: u32, part: &[u8]) -> u32 {
    let (steps, rest) = part.as_chunks::<STEP_BYTES>();
    let Some((first, steps)) = steps.split_first() else { return update(sum, rest) };
    let mut lines = load(first);
    lines[0] = arch::_mm512_xor_si512(lines[0], arch::_mm512_zextsi128_si512(arch::_mm_cvtsi32_si128(sum as i32)));
    for step in steps {
        let next = load(step);
        for (line, next) in lines.iter_mut().zip(next) {
            *line = folded(*line, 4, next);
        }
    }
    let [first, second, third, fourth] = lines;
    let line = folded(first, 3, folded(second, 2, folded(third, 1, fourth)));
    // The folded line has the sum of all bytes before it.
    let mut bytes = [0; LINE_BYTES];
    // SAFETY: the array has the 64 bytes that are written, and needs no alignment (Inv 6).
    unsafe { arch::_mm512_storeu_si512(bytes.as_mut_ptr().cast(), line) };
    update(update(0, &bytes), rest)
}

/// Returns `line`, moved over `lines` lines, joined with the line there.
#[target_feature(enable = "avx512f,vpclmulqdq")]
#[inline]
fn folded(line: arch::__m512i, lines: usize, next_line: arch::__m512i) -> arch::__m512i {
    let [low, high] = FOLDS[lines - 1];
    let factors = arch::_mm512_broadcast_i32x4(arch::_mm_set_epi64x(high, low));
    let low = arch::_mm512_clmulepi64_epi128::<0x00>(line, factors);
    let high = arch::_mm512_clmulepi64_epi128::<0x11>(line, factors);
    // The exclusive or of all three.
    arch::_mm512_ternarylogic_epi64::<0x96>(low, high, next_line)
}

/// Returns the bytes of a step.
#[target_feature(enable = "avx512f")]
#[inline]
fn load(step: &[u8; STEP_BYTES]) -> [arch::__m512i; 4] {
    let (lines, _) = step.as_chunks::<LINE_BYTES>();
    // SAFETY: each line has the 64 bytes that are read, and needs no alignment (Inv 6).
    std::array::from_fn(|at| unsafe { arch::_mm512_loadu_si512(lines[at].as_ptr().cast()) })
}

/// Returns the sum of a seed's 4 bytes and of `part`, of at most [`PASS_BYTES_MAX`] bytes, not
/// inverted.
#[target_feature(enable = "sse4.2,pclmulqdq")]
fn update_seeded(seed: u32, part: &[u8]) -> u32 {
    update(arch::_mm_crc32_u32(!0, seed), part)
}

/// Continues `sum`, inverted neither before nor after, over `part`, of at most [`PASS_BYTES_MAX`]
/// bytes.
#[target_feature(enable = "sse4.2,pclmulqdq")]
fn update(sum: u32, part: &[u8]) -> u32 {
    let (words, rest) = part.as_chunks::<WORD_BYTES>();
    let word = |word: &[u8; WORD_BYTES]| u64::from_le_bytes(*word);
    let mut sum = u64::from(sum);
    let run = words.len() / 3;
    let tail = if run >= RUN_WORDS_MIN {
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

/// Returns the carry-less product, of at most 63 bits.
#[target_feature(enable = "sse4.2,pclmulqdq")]
#[inline]
fn product(sum: u64, shift: u32) -> u64 {
    let wide = |number: u64| arch::_mm_cvtsi64_si128(number as i64);
    arch::_mm_cvtsi128_si64(arch::_mm_clmulepi64_si128::<0>(wide(sum), wide(u64::from(shift)))) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computes the sum bit by bit, from the definition.
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
    fn the_examples_of_rfc_3720_give_their_sums() {
        let ascending: Vec<u8> = (0..32).collect();
        assert_eq!(crc32c(&[b"123456789"]), 0xE306_9283);
        assert_eq!(crc32c(&[&[0; 32]]), 0x8A91_36AA);
        assert_eq!(crc32c(&[&[0xFF; 32]]), 0x62A8_AB43);
        assert_eq!(crc32c(&[&ascending]), 0x46DD_794E);
        assert_eq!(crc32c(&[]), 0);
    }

    #[test]
    fn every_length_agrees_with_the_definition_and_the_other_path() {
        let bytes = noise(PASS_BYTES_MAX + 64);
        for len in (0..=PASS_BYTES_MAX + 64).filter(|len| *len < 700 || len % 13 == 0 || *len > PASS_BYTES_MAX - 20) {
            let part = &bytes[..len];
            let right = slow(part);
            assert_eq!(crc32c(&[part]), right, "{len} bytes");
            assert_eq!(any_length(&[part]), right, "{len} bytes, the other path");
            assert_eq!(!portable(!0, part), right, "{len} bytes, by the table");
        }
    }

    #[test]
    fn long_parts_agree_with_the_definition_at_every_rest() {
        let bytes = noise(8 * PASS_BYTES_MAX);
        let lengths = (INLINE_BYTES_MAX..INLINE_BYTES_MAX + 2 * STEP_BYTES)
            .chain(PASS_BYTES_MAX - 9..PASS_BYTES_MAX + 9)
            .chain([4096, 4097, 10_007, 8 * PASS_BYTES_MAX - 1, 8 * PASS_BYTES_MAX]);
        let slow_sums: Vec<u32> = bytes
            .iter()
            .scan(!0, |sum, byte| {
                *sum = portable(*sum, &[*byte]);
                Some(!*sum)
            })
            .collect();
        for len in lengths {
            assert_eq!(crc32c(&[&bytes[..len]]), slow_sums[len - 1], "{len} bytes");
            // A continued sum, and an unaligned start.
            assert_eq!(crc32c(&[&bytes[..3], &bytes[3..len]]), slow_sums[len - 1], "{len} bytes in two parts");
        }
        assert_eq!(crc32c(&[&bytes]), slow(&bytes));
    }

    #[test]
    fn a_seed_counts_as_four_bytes_before_the_parts() {
        let bytes = noise(PASS_BYTES_MAX + 64);
        for seed in [0, 1, 0x8000_0000, 0x1234_5678, u32::MAX] {
            for len in [0, 1, 20, 100, 1000, PASS_BYTES_MAX, PASS_BYTES_MAX + 64] {
                let right = slow(&[&seed.to_le_bytes()[..], &bytes[..len]].concat());
                assert_eq!(crc32c_seeded(seed, &[&bytes[..len]]), right, "{len} bytes");
                assert_eq!(any_length_seeded(seed, &[&bytes[..len]]), right, "{len} bytes, the other path");
            }
        }
    }

    #[test]
    fn the_sum_of_parts_does_not_depend_on_where_they_are_cut() {
        let bytes = noise(3 * PASS_BYTES_MAX);
        let whole = slow(&bytes);
        for cut in [0, 1, 3, 8, 20, 36, 97, 1000, PASS_BYTES_MAX] {
            let (head, rest) = bytes.split_at(cut);
            let (middle, end) = rest.split_at(PASS_BYTES_MAX);
            assert_eq!(crc32c(&[head, middle, end]), whole, "cut at {cut}");
            let (a, b) = bytes[..PASS_BYTES_MAX].split_at(cut);
            assert_eq!(crc32c(&[a, &[], b]), slow(&bytes[..PASS_BYTES_MAX]), "cut at {cut}");
        }
    }
}
