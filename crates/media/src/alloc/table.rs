//! Words of the extent table: each describes an extent in eight bytes at its first chunk.
//!
//! ```text
//! bit   0        8        16       24                     54       64
//!       | kind   | class  | stamp  | length in chunks     | check  |      little-endian
//! ```
//! A free word is all zero.
//! The stamp is the pool's generation modulo 256 when the extent was allocated. The check is a CRC
//! of 10 bits over the other bits, mixed with the word's position. The check detects every change
//! of up to three bits, and a word of another position except for one in 1024.
//!
//! Each word has two copies ([`RegionLayout::extent_words`](crate::RegionLayout::extent_words)).
//! [`Pair::resolve`] decides which of them counts.

use super::ExtentKind;

/// An extent as described by its word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Word {
    /// The purpose of the extent; never `FREE`.
    pub(super) kind: ExtentKind,
    /// The size class of a slab, otherwise 0; below 256.
    pub(super) class: u16,
    /// The length in chunks; at most [`CHUNKS_MAX`].
    pub(super) chunks: u32,
}

/// A decoded word of the medium.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// No extent begins here.
    Free,
    /// An extent begins here.
    Extent(Word),
    /// A value that was never written here.
    Bad,
}

/// Maximum extent, in chunks.
pub(super) const CHUNKS_MAX: u32 = (1 << 30) - 1;

const CHECK_SHIFT: u32 = 54;
const BODY_MASK: u64 = (1 << CHECK_SHIFT) - 1;
/// Maximum set bits of a bad word that is read as a free word with flipped bits, if the other copy
/// is free.
const FLIPPED_BITS_MAX: u32 = 2;

/// CRC-10 (x^10 + x^9 + x^5 + x^4 + x + 1): Hamming distance 4 up to 501 bits.
const CRC10_POLYNOMIAL: u16 = 0x233;
const CRC10: [u16; 256] = crc10_table();

const fn crc10_table() -> [u16; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = (byte as u16) << 2;
        let mut bit = 0;
        while bit < 8 {
            let carry = crc & 0x200 != 0;
            crc = crc << 1 & 0x3ff;
            if carry {
                crc ^= CRC10_POLYNOMIAL;
            }
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
}

fn check(body: u64, region: u16, chunk: u32) -> u64 {
    let crc = body.to_le_bytes()[..7]
        .iter()
        .fold(0u16, |crc, byte| (crc << 8 & 0x3ff) ^ CRC10[usize::from((crc >> 2) as u8 ^ byte)]);
    let position = u64::from(region) << 32 | u64::from(chunk);
    let mixed = (position ^ 0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 31).wrapping_mul(0x94d0_49bb_1331_11eb);
    u64::from(crc) ^ mixed >> CHECK_SHIFT
}

/// Encodes the word of an extent that begins at this chunk, allocated under `stamp`.
pub(super) fn encode(word: Word, stamp: u8, region: u16, chunk: u32) -> u64 {
    assert!(word.kind != ExtentKind::FREE && (1..=CHUNKS_MAX).contains(&word.chunks) && word.class < 256);
    let body =
        u64::from(word.kind.0) | u64::from(word.class) << 8 | u64::from(stamp) << 16 | u64::from(word.chunks) << 24;
    body | check(body, region, chunk) << CHECK_SHIFT
}

/// Decodes a word; `region_chunks` bounds the extent.
pub(super) fn decode(raw: u64, region: u16, chunk: u32, region_chunks: u32) -> Found {
    if raw == 0 {
        return Found::Free;
    }
    let body = raw & BODY_MASK;
    #[expect(clippy::cast_possible_truncation, reason = "each field is cut to its bits")]
    let word = Word { kind: ExtentKind(raw as u8), class: u16::from((raw >> 8) as u8), chunks: (body >> 24) as u32 };
    let fits = word.chunks > 0 && chunk.checked_add(word.chunks).is_some_and(|end| end <= region_chunks);
    if word.kind == ExtentKind::FREE || !fits || raw >> CHECK_SHIFT != check(body, region, chunk) {
        return Found::Bad;
    }
    Found::Extent(word)
}

/// Returns the stamp of a valid word.
#[expect(clippy::cast_possible_truncation, reason = "the field is cut to its bits")]
pub(super) fn stamp_of(raw: u64) -> u8 {
    (raw >> 16) as u8
}

/// Both copies of a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pair {
    pub(super) raw: [u64; 2],
    pub(super) found: [Found; 2],
}

/// The content of a [`Pair`] that counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Resolved {
    pub(super) found: Found,
    /// The raw word that counts; 0 unless `found` is an extent.
    pub(super) raw: u64,
    /// Copies that hold this raw word.
    pub(super) copies: u8,
}

impl Pair {
    /// Decides which content counts. `docs/crash.md`, "The pool", explains the cases. `now` is the
    /// pool's generation modulo 256.
    pub(super) fn resolve(&self, now: u8) -> Resolved {
        let one = |index: usize| Resolved { found: self.found[index], raw: self.raw[index], copies: 1 };
        let free = Resolved { found: Found::Free, raw: 0, copies: 2 };
        let bad = Resolved { found: Found::Bad, raw: 0, copies: 0 };
        match self.found {
            _ if self.raw[0] == self.raw[1] => match self.found[0] {
                Found::Bad => bad,
                Found::Free => free,
                Found::Extent(_) => Resolved { copies: 2, ..one(0) },
            },
            [Found::Extent(_), Found::Extent(_)] => {
                let age = |index: usize| now.wrapping_sub(stamp_of(self.raw[index]));
                one(usize::from(age(1) < age(0)))
            }
            [Found::Extent(_), _] => one(0),
            [_, Found::Extent(_)] => one(1),
            [Found::Bad, Found::Free] | [Found::Free, Found::Bad] => {
                let set_bits = (self.raw[0] | self.raw[1]).count_ones();
                if set_bits <= FLIPPED_BITS_MAX { Resolved { copies: 1, ..free } } else { bad }
            }
            [Found::Free | Found::Bad, Found::Free | Found::Bad] => bad,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_round_trip_and_are_tied_to_their_position() {
        let mut strangers = 0;
        for chunk in 0..1000 {
            let word = Word { kind: ExtentKind(1 + (chunk % 200) as u8), class: chunk as u16 % 256, chunks: chunk + 1 };
            let raw = encode(word, chunk as u8, 3, chunk);
            assert_eq!(decode(raw, 3, chunk, 5000), Found::Extent(word));
            assert_eq!(stamp_of(raw), chunk as u8);
            assert_eq!(decode(raw, 3, chunk, 2 * chunk), Found::Bad, "longer than its region");
            strangers += usize::from(decode(raw, 3, chunk + 1, 5000) != Found::Bad);
            strangers += usize::from(decode(raw, 2, chunk, 5000) != Found::Bad);
        }
        assert!(strangers < 2000 / 256, "a 10-bit check lets one in 1024 pass: {strangers}");
    }

    #[test]
    fn every_change_of_up_to_three_bits_is_detected() {
        let raw = encode(Word { kind: ExtentKind::SLAB, class: 17, chunks: 16 }, 7, 0, 32);
        for a in 0..64u32 {
            for b in a..64 {
                for c in b..64 {
                    let flips = 1u64 << a ^ if b == a { 0 } else { 1 << b } ^ if c == b { 0 } else { 1 << c };
                    assert_eq!(decode(raw ^ flips, 0, 32, 65536), Found::Bad, "bits {a} {b} {c}");
                }
            }
        }
        assert_eq!(decode(0, 0, 32, 65536), Found::Free);
    }

    fn pair(raw: [u64; 2]) -> Pair {
        Pair { raw, found: raw.map(|raw| decode(raw, 0, 8, 4096)) }
    }

    #[test]
    fn one_whole_copy_of_a_word_is_enough() {
        let word = Word { kind: ExtentKind(20), class: 0, chunks: 4 };
        let raw = encode(word, 5, 0, 8);
        for other in [0, raw ^ 1, raw ^ (1 << 60), !0] {
            for raws in [[raw, other], [other, raw]] {
                let resolved = pair(raws).resolve(5);
                assert_eq!(resolved, Resolved { found: Found::Extent(word), raw, copies: 1 }, "{raws:x?}");
            }
        }
        assert_eq!(pair([raw, raw]).resolve(5).copies, 2);
        assert_eq!(pair([0, 1 << 40]).resolve(5).found, Found::Free, "a flipped bit of a free word");
        assert_eq!(pair([0, raw ^ 1]).resolve(5).found, Found::Bad, "an extent may have been here");
        assert_eq!(pair([raw ^ 1, raw ^ 2]).resolve(5).found, Found::Bad);
        assert_eq!(pair([raw ^ 1, raw ^ 1]).resolve(5).found, Found::Bad);
    }

    #[test]
    fn of_two_whole_copies_the_one_of_the_later_generation_counts() {
        let old = encode(Word { kind: ExtentKind(20), class: 0, chunks: 4 }, 250, 0, 8);
        let new = encode(Word { kind: ExtentKind(21), class: 0, chunks: 2 }, 3, 0, 8);
        for raws in [[old, new], [new, old]] {
            assert_eq!(pair(raws).resolve(4).raw, new);
        }
    }
}
