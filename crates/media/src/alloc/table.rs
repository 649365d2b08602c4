//! Words of the extent table: what the medium says of an extent, in eight bytes at its first chunk.
//!
//! ```text
//! bit   0        8                  24                                56       64
//!       | kind   | class            | length in chunks                | check  |      little-endian; free = all zero
//! ```
//! The check covers the other bytes and the word's place, so that a word cannot stand in for another one.

use super::ExtentKind;

/// An extent as its word tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Word {
    /// What it is used for; never `FREE`.
    pub(super) kind: ExtentKind,
    /// The size class of a slab, otherwise 0.
    pub(super) class: u16,
    /// Its length, in chunks.
    pub(super) chunks: u32,
}

/// What a word on the medium turned out to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// No extent begins here.
    Free,
    /// An extent begins here.
    Extent(Word),
    /// Not what was ever written here.
    Bad,
}

const BODY: u64 = (1 << 56) - 1;

fn check(body: u64, region: u16, chunk: u32) -> u64 {
    let place = (u64::from(region) << 32 | u64::from(chunk)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (body ^ place ^ place >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed ^ mixed >> 31).wrapping_mul(0x94d0_49bb_1331_11eb) >> 56
}

/// The word of an extent that begins at this chunk.
pub(super) fn encode(word: Word, region: u16, chunk: u32) -> u64 {
    assert!(word.kind != ExtentKind::FREE && word.chunks > 0);
    let body = u64::from(word.kind.0) | u64::from(word.class) << 8 | u64::from(word.chunks) << 24;
    body | check(body, region, chunk) << 56
}

/// Reads a word; `region_chunks` bounds the extent.
pub(super) fn decode(raw: u64, region: u16, chunk: u32, region_chunks: u32) -> Found {
    if raw == 0 {
        return Found::Free;
    }
    let body = raw & BODY;
    #[expect(clippy::cast_possible_truncation, reason = "each field is cut to its bits")]
    let word = Word { kind: ExtentKind(raw as u8), class: (raw >> 8) as u16, chunks: (body >> 24) as u32 };
    let fits = word.chunks > 0 && chunk.checked_add(word.chunks).is_some_and(|end| end <= region_chunks);
    if word.kind == ExtentKind::FREE || !fits || raw >> 56 != check(body, region, chunk) {
        return Found::Bad;
    }
    Found::Extent(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_round_trip_and_know_their_place() {
        let mut strangers = 0;
        for chunk in 0..1000 {
            let word = Word { kind: ExtentKind(1 + (chunk % 200) as u8), class: chunk as u16, chunks: chunk + 1 };
            let raw = encode(word, 3, chunk);
            assert_eq!(decode(raw, 3, chunk, 5000), Found::Extent(word));
            assert_eq!(decode(raw, 3, chunk, 2 * chunk), Found::Bad, "longer than its region");
            strangers += usize::from(decode(raw, 3, chunk + 1, 5000) != Found::Bad);
            strangers += usize::from(decode(raw, 2, chunk, 5000) != Found::Bad);
        }
        assert!(strangers < 2000 / 64, "an 8-bit check lets one in 256 pass: {strangers}");
    }

    #[test]
    fn every_flipped_bit_is_seen() {
        let raw = encode(Word { kind: ExtentKind::SLAB, class: 17, chunks: 16 }, 0, 32);
        let unseen = (0..64).filter(|bit| decode(raw ^ 1 << bit, 0, 32, 65536) != Found::Bad).count();
        assert!(unseen <= 1, "{unseen}");
        assert_eq!(decode(0, 0, 32, 65536), Found::Free);
    }
}
