//! Heads: the eight bytes of a key after the shared prefix of its table, as a number with the order
//! of the bytes; and the search among the heads of a table's blocks.
//!
//! If `a < b` then `head(a) <= head(b)`; only equal heads need the keys themselves.
//!
//! The builder chooses the better of two searches. A *line* through the first and the last head
//! predicts the position of a head. The builder stores its maximum error, which is a few blocks for
//! evenly spread keys, so that a search reads one or two cache lines. Otherwise the *tops*, every
//! 32nd head, lead to the 32 heads to read.

use lodestore_index::key_head;

/// Heads per top.
pub(super) const HEADS_PER_TOP_COUNT: usize = 32;
/// Maximum number of heads read around the predicted position.
const WINDOW_HEADS_MAX: usize = 32;

/// Returns the head of `key` in a table whose keys share `prefix` bytes.
#[inline]
pub(super) fn head_of(key: &[u8], prefix: usize) -> u64 {
    let rest = key.get(prefix..).unwrap_or_default();
    if let Some(bytes) = rest.first_chunk::<8>() {
        return u64::from_le_bytes(*bytes).swap_bytes();
    }
    match key.last_chunk::<8>() {
        Some(_) if rest.is_empty() => 0,
        Some(bytes) => u64::from_le_bytes(*bytes).swap_bytes() << (64 - 8 * rest.len()),
        None => key_head(rest),
    }
}

/// Returns head `at` of heads in bytes; 0 if there are fewer.
#[inline]
pub(super) fn head_in(heads: &[u8], at: usize) -> u64 {
    heads.as_chunks::<8>().0.get(at).map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// Returns how many of these ascending heads are not above `head`.
#[inline]
pub(super) fn not_above(heads: &[u8], head: u64) -> usize {
    let mut heads = heads.as_chunks::<8>().0;
    let mut below = 0;
    while heads.len() > HEADS_PER_TOP_COUNT {
        let (left, right) = heads.split_at(heads.len() / 2);
        if right.first().is_some_and(|first| u64::from_le_bytes(*first) <= head) {
            below += left.len();
            heads = right;
        } else {
            heads = left;
        }
    }
    below + heads.iter().map(|bytes| usize::from(u64::from_le_bytes(*bytes) <= head)).sum::<usize>()
}

/// The line from a table's first to its last head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Line {
    /// Head of the first block.
    pub first: u64,
    /// Blocks per 2^64 of heads; 0 if no line is good enough.
    pub scale: u64,
    /// Maximum number of blocks that a head is below the line's prediction.
    pub below: u8,
    /// Maximum number of blocks that a head is above it.
    pub above: u8,
}

impl Line {
    /// Returns the line through these heads of blocks, of which the last ends at `last`.
    pub(super) fn through(heads: &[u64], last: u64) -> Self {
        let first = heads.first().copied().unwrap_or_default();
        let none = Self { first, scale: 0, below: 0, above: 0 };
        let span = u128::from(last.saturating_sub(first)) + 1;
        let Ok(scale) = u64::try_from(((heads.len() as u128) << 64) / span) else { return none };
        let mut line = Self { scale, ..none };
        let (mut below, mut above) = (0, 0);
        for (at, head) in heads.iter().enumerate() {
            // Every head of this block is between these two, and so is its prediction.
            let least = line.predict(*head, heads.len());
            let most = line.predict(heads.get(at + 1).copied().unwrap_or(last), heads.len());
            above = above.max(at.saturating_sub(least));
            below = below.max(most.saturating_sub(at));
        }
        if below + above >= WINDOW_HEADS_MAX {
            return none;
        }
        (line.below, line.above) = (below as u8, above as u8);
        line
    }

    /// Returns the predicted position of `head` among `blocks`, which is at least 1.
    #[inline]
    fn predict(&self, head: u64, blocks: usize) -> usize {
        let blocks_before = (u128::from(head.saturating_sub(self.first)) * u128::from(self.scale)) >> 64;
        (blocks_before as usize).min(blocks - 1)
    }

    /// Returns the heads among which the search for `head` ends; `None` if there is no line.
    #[inline]
    pub(super) fn window(&self, head: u64, blocks: usize) -> Option<(usize, usize)> {
        if self.scale == 0 || blocks == 0 {
            return None;
        }
        let position = self.predict(head, blocks);
        let from = position.saturating_sub(usize::from(self.below));
        Some((from, (position + usize::from(self.above) + 1).min(blocks)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_order_like_keys_after_the_prefix() {
        for prefix in [0, 1, 3, 9] {
            let mut keys: Vec<Vec<u8>> = Vec::new();
            for tail in [&b""[..], b"\0", b"a", b"a\0", b"ab", b"abcdefg", b"abcdefgh", b"abcdefghi", b"b", b"\xff\xff"]
            {
                keys.push([&b"pppppppppp"[..prefix], tail].concat());
            }
            for pair in keys.windows(2) {
                assert!(head_of(&pair[0], prefix) <= head_of(&pair[1], prefix), "{pair:?} behind {prefix}");
                assert_eq!(head_of(&pair[1], prefix), key_head(&pair[1][prefix..]), "{pair:?} behind {prefix}");
            }
        }
        assert_eq!(head_of(b"short", 9), 0);
    }

    #[test]
    fn a_search_counts_the_heads_that_are_not_above() {
        let heads: Vec<u64> = (0..200).map(|at| at / 3 * 10).collect();
        let bytes: Vec<u8> = heads.iter().flat_map(|head| head.to_le_bytes()).collect();
        for head in 0..700 {
            let right = heads.iter().filter(|other| **other <= head).count();
            assert_eq!(not_above(&bytes, head), right, "{head}");
        }
    }

    #[test]
    fn the_line_leads_to_every_head_or_there_is_none() {
        let even: Vec<u64> = (0..1000).map(|at| at * 1_000_003 + 77).collect();
        let skewed: Vec<u64> = (0..1000).map(|at: u64| at * at * at).collect();
        let dense: Vec<u64> = (0..1000).map(|at| at * 500).collect();
        let tied: Vec<u64> = (0..1000).map(|at| at / 5 * 1000).collect();
        for (heads, has_line) in [(even, true), (skewed, false), (dense, true), (tied, true)] {
            let last = heads.last().unwrap() + 500;
            let line = Line::through(&heads, last);
            for probe in heads.iter().flat_map(|head| [head.saturating_sub(1), *head, head + 1]).chain([last, u64::MAX])
            {
                let right = heads.iter().filter(|head| **head <= probe).count();
                match line.window(probe, heads.len()) {
                    Some((from, to)) => {
                        assert!(has_line);
                        let found = from + heads[from..to].iter().filter(|head| **head <= probe).count();
                        assert_eq!(found, right, "{probe} in {from}..{to}");
                    }
                    None => assert!(!has_line),
                }
            }
        }
        assert_eq!(Line::through(&[5, 5, 5], 5).scale, 0);
    }
}
