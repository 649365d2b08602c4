//! Reading a table: gets, and what they will touch.

use std::ops::Range;

use lodestore_contract::Result;
use lodestore_media::{prefetch_bytes, u32_at};

use super::block::{Shape, View};
use super::filter::{self, LINE};
use super::head::{FAN, head_in, head_of, not_above};
use super::layout::{FILTER_PART, KEYS_PART, TableMeta, part_crc};
use super::{Item, Reads, Seen};

/// A table to read: what is kept of it in DRAM, and its bytes. Items borrow from the bytes alone.
#[derive(Debug, Clone, Copy)]
pub struct Table<'m, 'b> {
    pub(super) meta: &'m TableMeta,
    pub(super) bytes: &'b [u8],
    /// Blocks that need no comparing with [`Reads::Once`].
    seen: Option<&'m Seen>,
}

/// The one data block that may have a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    pub(super) number: u32,
    pub(super) start: u32,
    pub(super) end: u32,
    pub(super) shape: Shape,
    /// Where among the items of a fixed block the key should be.
    pub(super) guess: u32,
}

impl Block {
    /// Its bytes in the table.
    #[must_use]
    pub fn range(&self) -> Range<usize> {
        self.start as usize..self.end as usize
    }

    /// Of its bytes those that a get reads first: a line's length both ways from where the key should be.
    #[must_use]
    #[inline]
    pub fn near(&self) -> Range<usize> {
        let middle = (self.start as usize + self.guess as usize * self.shape.stride()).min(self.end as usize);
        middle.saturating_sub(LINE).max(self.start as usize)..(middle + LINE).min(self.end as usize)
    }
}

impl<'m, 'b> Table<'m, 'b> {
    #[inline]
    pub(super) fn new(meta: &'m TableMeta, bytes: &'b [u8]) -> Self {
        Self { meta, bytes, seen: None }
    }

    /// With a memory for [`Reads::Once`], which without one is [`Reads::Verified`].
    #[must_use]
    #[inline]
    pub fn remembering(self, seen: &'m Seen) -> Self {
        Self { seen: Some(seen), ..self }
    }

    /// Whether a read of a block computes its checksum.
    #[inline]
    fn compares(&self, block: &Block, reads: Reads) -> bool {
        match reads {
            Reads::Trusted => false,
            Reads::Once => self.seen.is_none_or(|seen| !seen.has(block.number)),
            Reads::Verified => true,
        }
    }

    /// Which of a block's bytes a get reads first.
    #[must_use]
    #[inline]
    pub fn reads_first(&self, block: &Block, reads: Reads) -> Range<usize> {
        if self.compares(block, reads) { block.range() } else { block.near() }
    }

    /// Its least and its greatest key.
    ///
    /// # Errors
    /// [`lodestore_contract::Error::Corrupt`].
    pub fn keys(&self) -> Result<(&'b [u8], &'b [u8])> {
        let range = self.meta.part(KEYS_PART);
        let keys = self.bytes.get(range.clone());
        keys.and_then(|keys| keys.split_at_checked(self.meta.least_len as usize))
            .ok_or_else(|| self.meta.corrupt("its keys", range.start, "they are cut off"))
    }

    /// The item of `key`, if the table has it; `hash` is [`super::hash`] of the key.
    ///
    /// # Errors
    /// [`lodestore_contract::Error::Corrupt`].
    #[inline]
    pub fn get(&self, key: &[u8], hash: u64, reads: Reads) -> Result<Option<Item<'b>>> {
        if !self.may_have(hash) {
            return Ok(None);
        }
        match self.locate(key, reads)? {
            Some(block) => self.get_in(&block, key, hash, reads),
            None => Ok(None),
        }
    }

    /// Whether the table may have a key of this hash; if not, it has none.
    #[must_use]
    #[inline]
    pub fn may_have(&self, hash: u64) -> bool {
        let line = self.bytes.get(self.filter_range(hash)).and_then(|line| line.first_chunk::<LINE>());
        line.is_none_or(|line| filter::test(line, hash, self.meta.probes))
    }

    /// The bytes that [`may_have`](Self::may_have) reads; none where there is no filter.
    #[must_use]
    #[inline]
    pub fn filter_range(&self, hash: u64) -> Range<usize> {
        let meta = self.meta;
        if meta.filter_lines == 0 {
            let none = meta.part(FILTER_PART).start;
            return none..none;
        }
        let from = meta.filter_at as usize + filter::line_of(hash, meta.filter_lines) * LINE;
        from..from + LINE
    }

    /// The bytes that [`locate`](Self::locate) reads first: all that it reads, in most tables.
    #[must_use]
    #[inline]
    pub fn index_range(&self, key: &[u8]) -> Range<usize> {
        let meta = self.meta;
        let at = meta.index_at as usize;
        match meta.line.window(head_of(key, meta.prefix as usize), meta.blocks as usize) {
            Some((from, to)) => at + 8 * from..at + 8 * to,
            None => {
                let tops = at + 8 * meta.blocks as usize;
                tops..tops + meta.tops_len().min(8 * FAN)
            }
        }
    }

    /// The block that has `key` if the table does; none where the key is below all of the table's. Blocks that begin alike are told apart
    /// by their first items, read as `reads` says.
    ///
    /// # Errors
    /// [`lodestore_contract::Error::Corrupt`].
    #[inline]
    pub fn locate(&self, key: &[u8], reads: Reads) -> Result<Option<Block>> {
        let meta = self.meta;
        let prefix = meta.prefix as usize;
        let head = head_of(key, prefix);
        let blocks = meta.blocks as usize;
        let from = meta.index_at as usize;
        let heads = self.bytes.get(from..from + 8 * blocks).unwrap_or_default();
        let above = self.heads_not_above(heads, head);
        let Some(number) = above.checked_sub(1) else { return Ok(None) };
        let low = head_in(heads, number);
        let key_len = usize::from(meta.uniform.key);
        let told_by_head = key_len != 0 && key_len <= prefix + 8 && key.len() >= key_len;
        if low == head && !told_by_head {
            return self.locate_tie(heads, number, head, key, reads);
        }
        let mut block = self.block(number)?;
        if above < blocks && block.shape.is_fixed() {
            // As far into the block as the head is between those of this block and the next one.
            let part = (head.wrapping_sub(low) >> 1) as i64 as f32
                / (head_in(heads, above).wrapping_sub(low) >> 1) as i64 as f32;
            block.guess = (part * (block.end - block.start) as f32 / block.shape.stride() as f32) as u32;
        }
        Ok(Some(block))
    }

    /// How many of the blocks have a head not above `head`.
    #[inline]
    fn heads_not_above(&self, heads: &[u8], head: u64) -> usize {
        let blocks = self.meta.blocks as usize;
        if let Some((from, to)) = self.meta.line.window(head, blocks) {
            return from + not_above(heads.get(8 * from..8 * to).unwrap_or_default(), head);
        }
        if blocks <= FAN {
            return not_above(heads, head);
        }
        let tops_at = self.meta.index_at as usize + 8 * blocks;
        let tops = self.bytes.get(tops_at..tops_at + self.meta.tops_len()).unwrap_or_default();
        let from = not_above(tops, head).saturating_sub(1) * FAN;
        from + not_above(heads.get(8 * from..8 * blocks.min(from + FAN)).unwrap_or_default(), head)
    }

    /// [`locate`](Self::locate) where block `last`, and others before it perhaps, have the head of the key.
    #[cold]
    fn locate_tie(&self, heads: &[u8], last: usize, head: u64, key: &[u8], reads: Reads) -> Result<Option<Block>> {
        // The first of those blocks; then, among them, how many begin with a key that is not above.
        let mut first = match head.checked_sub(1) {
            Some(less) => not_above(heads.get(..8 * last).unwrap_or_default(), less),
            None => 0,
        };
        let mut end = last + 1;
        while first < end {
            let middle = first.midpoint(end);
            let block = self.block(middle)?;
            let least = self.view(&block, reads)?.item(0).ok_or_else(|| self.broken(&block))?.key;
            if least <= key {
                first = middle + 1;
            } else {
                end = middle;
            }
        }
        first.checked_sub(1).map(|number| self.block(number)).transpose()
    }

    /// The item of `key` in the block that [`locate`](Self::locate) gave for it.
    ///
    /// # Errors
    /// [`lodestore_contract::Error::Corrupt`].
    #[inline]
    pub fn get_in(&self, block: &Block, key: &[u8], hash: u64, reads: Reads) -> Result<Option<Item<'b>>> {
        // All lines at once that the search may touch, which would wait for one after the other.
        prefetch_bytes(self.bytes.get(block.near()).unwrap_or_default());
        let view = self.view(block, reads)?;
        match view.get(key, hash, self.meta.prefix as usize, block.guess as usize) {
            Ok(item) => Ok(item),
            Err(_) => Err(self.broken(block)),
        }
    }

    /// Block `number` of the table.
    #[inline]
    pub(super) fn block(&self, number: usize) -> Result<Block> {
        let meta = self.meta;
        let (from, to, shape);
        if meta.uniform.is_fixed() {
            let len = u64::from(meta.block_len);
            from = number as u64 * len;
            to = (from + len).min(u64::from(meta.data_len));
            shape = meta.uniform;
        } else {
            let at = meta.descriptions_at() + 8 * number;
            let lengths = u32_at(self.bytes, at + 4);
            from = u64::from(u32_at(self.bytes, at));
            shape = Shape { key: lengths as u16, value: (lengths >> 16) as u16 };
            let is_last = number + 1 >= meta.blocks as usize;
            to = if is_last { u64::from(meta.data_len) } else { u64::from(u32_at(self.bytes, at + 8)) };
        }
        if number >= meta.blocks as usize || from >= to || to > u64::from(meta.data_len) {
            return Err(meta.corrupt_block(number, meta.descriptions_at() + 8 * number, "the index puts it nowhere"));
        }
        // Both are at most where the blocks end, which is a u32.
        let (start, end) = (meta.data_at + from as u32, meta.data_at + to as u32);
        Ok(Block { number: number as u32, start, end, shape, guess: 0 })
    }

    /// The block to read, its checksum checked if asked for.
    #[inline]
    pub(super) fn view(&self, block: &Block, reads: Reads) -> Result<View<'b>> {
        let bytes = self.bytes.get(block.range()).unwrap_or_default();
        if self.compares(block, reads) {
            self.check_block(block, bytes)?;
            if let Some(seen) = self.seen {
                seen.add(block.number);
            }
        }
        View::new(bytes, block.shape).ok_or_else(|| self.broken(block))
    }

    fn check_block(&self, block: &Block, bytes: &[u8]) -> Result<()> {
        let crc = u32_at(self.bytes, self.meta.checksums_at() + 4 * block.number as usize);
        if part_crc(self.meta.identity, block.number, bytes) == crc {
            return Ok(());
        }
        Err(self.meta.corrupt_block(block.number as usize, block.start as usize, "its checksum fails"))
    }

    #[cold]
    pub(super) fn broken(&self, block: &Block) -> lodestore_contract::Error {
        self.meta.corrupt_block(block.number as usize, block.start as usize, "its items are not whole")
    }
}
