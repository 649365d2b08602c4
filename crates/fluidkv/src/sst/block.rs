//! Data blocks. A *fixed* block has only items of one key length and one value length, each key
//! before its value and each value before its check. A *general* block holds any items:
//!
//! ```text
//! | count: u32 | tags: 1 byte each | places: u16 each | items ... |
//! item: | word: LEB128 of (key length - 1) * 8 + expires * 4 + kind | [expiry: 8] | key | value |
//! check: u32 |
//! ```
//!
//! The last 4 bytes of each item are its check: a CRC32C of the item's other bytes, seeded with the
//! table's identity ([`item_seed`](super::format::item_seed)). A get compares the check of the item
//! that it returns. Keys are unique within a table, and no two tables have one identity. An item
//! with the key and a right check is therefore the item that was written, whatever led to it.
//!
//! A place is counted from the first item; an item ends where the next one begins. A tag is bits 8
//! to 15 of the key's hash, so that a get nearly always compares one key only. The index, not the
//! block, has the encoding of a block.

use std::cmp::Ordering;
use std::ops::Range;

use lodestore_media::crc32c_seeded;

use super::index::head_of;
use super::{Item, ItemKind};

/// Bytes of a general block before the tags.
pub(super) const COUNT_BYTES: usize = 4;
/// Bytes of a general block per item, in addition to the item.
pub(super) const ITEM_BYTES: usize = 3;
/// Bytes of the check that ends each item.
pub(super) const CHECK_BYTES: usize = 4;
/// Items that are compared one by one from the expected position of a key.
const LINEAR_SEARCH_MAX: usize = 8;

/// Lengths of the items of a fixed block; a key length of 0 means a general one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Shape {
    pub key: u16,
    pub value: u16,
}

impl Shape {
    /// The shape of a general block.
    pub(super) const GENERAL: Self = Self { key: 0, value: 0 };

    /// Returns the shape of a fixed block that could hold `item`.
    #[inline]
    pub(super) fn of(item: &Item<'_>) -> Self {
        let plain = item.kind == ItemKind::Value && item.expiry.is_none();
        match (u16::try_from(item.key.len()), u16::try_from(item.value.len())) {
            (Ok(key), Ok(value)) if plain => Self { key, value },
            _ => Self::GENERAL,
        }
    }

    /// Returns the bytes of an item in a fixed block; 0 for a general one.
    #[inline]
    pub(super) fn stride(self) -> usize {
        if self.key == 0 { 0 } else { usize::from(self.key) + usize::from(self.value) + CHECK_BYTES }
    }

    #[inline]
    pub(super) fn is_fixed(self) -> bool {
        self.key != 0
    }
}

#[inline]
pub(super) fn tag_of(hash: u64) -> u8 {
    (hash >> 8) as u8
}

/// Appends the check of the item whose bytes begin at `from`.
pub(super) fn push_check(out: &mut Vec<u8>, from: usize, seed: u32) {
    let check = crc32c_seeded(seed, &[&out[from..]]);
    out.extend_from_slice(&check.to_le_bytes());
}

/// Appends `item` in the encoding of a general block. `seed` is that of the table's items in
/// general blocks.
pub(super) fn encode(item: &Item<'_>, seed: u32, out: &mut Vec<u8>) {
    let from = out.len();
    let kind = match item.kind {
        ItemKind::Value => 0,
        ItemKind::Tombstone => 1,
        ItemKind::Pointer => 2,
    };
    let mut word = (item.key.len() - 1) * 8 + usize::from(item.expiry.is_some()) * 4 + kind;
    while word > 0x7f {
        out.push(word as u8 | 0x80);
        word >>= 7;
    }
    out.push(word as u8);
    if let Some(expiry) = item.expiry {
        out.extend_from_slice(&expiry.to_le_bytes());
    }
    out.extend_from_slice(item.key);
    out.extend_from_slice(item.value);
    push_check(out, from, seed);
}

/// Returns the bytes that [`encode`] would append.
pub(super) fn encoded_len(item: &Item<'_>) -> usize {
    let word = match item.key.len() {
        0..=16 => 1,
        17..=2048 => 2,
        _ => 3,
    };
    word + 8 * usize::from(item.expiry.is_some()) + item.key.len() + item.value.len() + CHECK_BYTES
}

/// Decodes an item with its check; `None` if the bytes are no item.
#[inline]
fn decode(bytes: &[u8]) -> Option<Item<'_>> {
    let (body, _) = bytes.split_last_chunk::<CHECK_BYTES>()?;
    let (first, mut rest) = body.split_first()?;
    let mut word = usize::from(first & 0x7f);
    if first & 0x80 != 0 {
        let (second, after) = rest.split_first()?;
        (word, rest) = (word | usize::from(second & 0x7f) << 7, after);
        if second & 0x80 != 0 {
            let (third, after) = rest.split_first()?;
            (word, rest) = (word | usize::from(*third) << 14, after);
        }
    }
    let kind = match word & 3 {
        0 => ItemKind::Value,
        1 => ItemKind::Tombstone,
        2 => ItemKind::Pointer,
        _ => return None,
    };
    let mut expiry = None;
    if word & 4 != 0 {
        let (bytes, after) = rest.split_first_chunk::<8>()?;
        (expiry, rest) = (Some(u64::from_le_bytes(*bytes)), after);
    }
    let (key, value) = rest.split_at_checked((word >> 3) + 1)?;
    Some(Item { key, kind, expiry, value })
}

/// An item as a block stores it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Found<'a> {
    pub item: Item<'a>,
    /// Its bytes with the check.
    stored: &'a [u8],
}

impl Found<'_> {
    /// Compares the check with the item's bytes.
    #[inline]
    pub(super) fn is_whole(&self, seed: u32) -> bool {
        let parts = self.stored.split_last_chunk::<CHECK_BYTES>();
        parts.is_some_and(|(body, check)| crc32c_seeded(seed, &[body]) == u32::from_le_bytes(*check))
    }
}

/// A data block to read.
#[derive(Debug, Clone, Copy)]
pub(super) struct View<'a> {
    bytes: &'a [u8],
    shape: Shape,
    count: usize,
}

impl<'a> View<'a> {
    /// Returns the block in `bytes`; `None` if its count is impossible.
    #[inline]
    pub(super) fn new(bytes: &'a [u8], shape: Shape) -> Option<Self> {
        let count = if shape.is_fixed() {
            bytes.len() / shape.stride()
        } else {
            let count = u32::from_le_bytes(*bytes.first_chunk::<4>()?) as usize;
            if count > bytes.len() / ITEM_BYTES || COUNT_BYTES + count * ITEM_BYTES > bytes.len() {
                return None;
            }
            count
        };
        Some(Self { bytes, shape, count })
    }

    /// Returns the block in `bytes`, known to have `count` items.
    #[inline]
    pub(super) fn counted(bytes: &'a [u8], shape: Shape, count: usize) -> Self {
        Self { bytes, shape, count }
    }

    #[inline]
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Returns item `at`; `None` if it does not exist or is no valid encoding. Its check is not
    /// compared.
    #[inline]
    pub(super) fn item(&self, at: usize) -> Option<Item<'a>> {
        self.found(at).map(|found| found.item)
    }

    /// Returns item `at` with its bytes; `None` as for [`item`](Self::item).
    #[inline]
    pub(super) fn found(&self, at: usize) -> Option<Found<'a>> {
        if self.shape.is_fixed() {
            let stride = self.shape.stride();
            let stored = self.bytes.get(at * stride..(at + 1) * stride)?;
            let (body, _) = stored.split_last_chunk::<CHECK_BYTES>()?;
            let (key, value) = body.split_at_checked(usize::from(self.shape.key))?;
            return Some(Found { item: Item { key, kind: ItemKind::Value, expiry: None, value }, stored });
        }
        if at >= self.count {
            return None;
        }
        let items = self.bytes.get(COUNT_BYTES + self.count * ITEM_BYTES..)?;
        let from = self.item_offset(at)?;
        let to = if at + 1 < self.count { self.item_offset(at + 1)? } else { items.len() };
        let stored = items.get(from..to)?;
        Some(Found { item: decode(stored)?, stored })
    }

    /// Returns where item `at` of a general block begins, from the first one.
    #[inline]
    fn item_offset(&self, at: usize) -> Option<usize> {
        let bytes = self.bytes.get(COUNT_BYTES + self.count + 2 * at..)?;
        bytes.first_chunk::<2>().map(|bytes| usize::from(u16::from_le_bytes(*bytes)))
    }

    /// Returns the key of item `at` of a fixed block.
    #[inline]
    fn fixed_key(&self, at: usize) -> Option<&'a [u8]> {
        let from = at * self.shape.stride();
        self.bytes.get(from..from + usize::from(self.shape.key))
    }

    /// Returns the item of `key`. Fails if an item that must be compared is no valid encoding.
    #[inline]
    pub(super) fn get(&self, key: &[u8], hash: u64, prefix: usize, guess: usize) -> Result<Option<Found<'a>>, Broken> {
        if self.shape.is_fixed() {
            if key.len() != usize::from(self.shape.key) {
                return Ok(None);
            }
            return Ok(self.search_fixed(key, prefix, guess)?.ok().and_then(|at| self.found(at)));
        }
        let tags = self.bytes.get(COUNT_BYTES..COUNT_BYTES + self.count).ok_or(Broken)?;
        let mut from = 0;
        while let Some(at) = find(tags, tag_of(hash), from) {
            let found = self.found(at).ok_or(Broken)?;
            if found.item.key == key {
                return Ok(Some(found));
            }
            from = at + 1;
        }
        Ok(None)
    }

    /// Like [`get`](Self::get), which stays small enough to be inlined on the path of most gets.
    #[inline(never)]
    pub(super) fn find(&self, key: &[u8], hash: u64, prefix: usize, guess: usize) -> Result<Option<Found<'a>>, Broken> {
        self.get(key, hash, prefix, guess)
    }

    /// Returns where `key` is, or would be, like a search in a slice. Keys of the block share
    /// `prefix` bytes with `key`.
    pub(super) fn search(&self, key: &[u8], prefix: usize, guess: usize) -> Result<Result<usize, usize>, Broken> {
        if self.shape.is_fixed() {
            return self.search_fixed(key, prefix, guess);
        }
        search_by_halves(0..self.count, |at| Ok(self.item(at).ok_or(Broken)?.key.cmp(key)))
    }

    /// [`search`](Self::search) in a fixed block: one by one from the expected position, then by
    /// halves.
    #[inline]
    fn search_fixed(&self, key: &[u8], prefix: usize, guess: usize) -> Result<Result<usize, usize>, Broken> {
        let head = head_of(key, prefix);
        let order = |at: usize| -> Result<Ordering, Broken> {
            let other = self.fixed_key(at).ok_or(Broken)?;
            Ok(head_of(other, prefix).cmp(&head).then_with(|| other.cmp(key)))
        };
        // Items before `from` are below the key, and items from `to` on above it.
        let (mut from, mut to) = (0, self.count);
        let mut at = guess.min(self.count.saturating_sub(1));
        for _ in 0..LINEAR_SEARCH_MAX {
            if at >= to || at < from {
                return Ok(Err(from));
            }
            match order(at)? {
                Ordering::Less => (from, at) = (at + 1, at + 1),
                Ordering::Equal => return Ok(Ok(at)),
                Ordering::Greater => (to, at) = (at, at.wrapping_sub(1)),
            }
        }
        search_by_halves(from..to, order)
    }
}

/// Returns the position in `range` at which `order` says `Equal`, or else the first position after
/// all items that are `Less`.
#[inline]
fn search_by_halves(
    Range { start: mut from, end: mut to }: Range<usize>,
    order: impl Fn(usize) -> Result<Ordering, Broken>,
) -> Result<Result<usize, usize>, Broken> {
    while from < to {
        let middle = from.midpoint(to);
        match order(middle)? {
            Ordering::Less => from = middle + 1,
            Ordering::Equal => return Ok(Ok(middle)),
            Ordering::Greater => to = middle,
        }
    }
    Ok(Err(from))
}

/// An item that is no valid encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Broken;

/// Returns the first index from `from` on at which `tags` has `tag`.
#[inline]
fn find(tags: &[u8], tag: u8, from: usize) -> Option<usize> {
    const EACH_BYTE_MASK: u64 = 0x0101_0101_0101_0101;
    let (words, last) = tags.get(from..)?.as_chunks::<8>();
    for (at, word) in words.iter().enumerate() {
        let differs = u64::from_le_bytes(*word) ^ (EACH_BYTE_MASK * u64::from(tag));
        // The lowest set bit is that of the first byte that is 0.
        let zero = differs.wrapping_sub(EACH_BYTE_MASK) & !differs & (EACH_BYTE_MASK << 7);
        if zero != 0 {
            return Some(from + at * 8 + zero.trailing_zeros() as usize / 8);
        }
    }
    last.iter().position(|other| *other == tag).map(|at| from + words.len() * 8 + at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_is_read_as_encoded_with_the_predicted_length() {
        for key_len in [1, 16, 17, 2048, 2049, 65_536] {
            for (kind, expiry) in [(ItemKind::Value, None), (ItemKind::Tombstone, Some(7)), (ItemKind::Pointer, None)] {
                let key = vec![3; key_len];
                let item = Item { key: &key, kind, expiry, value: b"value" };
                let mut bytes = Vec::new();
                encode(&item, 5, &mut bytes);
                assert_eq!(bytes.len(), encoded_len(&item));
                assert_eq!(decode(&bytes), Some(item));
                assert!(Found { item, stored: &bytes }.is_whole(5) && !Found { item, stored: &bytes }.is_whole(6));
            }
        }
    }

    #[test]
    fn a_tag_is_found_at_any_position() {
        for len in 0..40 {
            for at in 0..len {
                let mut tags = vec![1; len];
                tags[at] = 0;
                assert_eq!(find(&tags, 0, 0), Some(at));
                assert_eq!(find(&tags, 0, at), Some(at));
                assert_eq!(find(&tags, 0, at + 1), None);
                assert_eq!(find(&tags, 2, 0), None);
            }
        }
    }
}
