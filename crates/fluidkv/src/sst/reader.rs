//! Reads of a table: gets, and the bytes that they will read.

use std::ops::Range;

use lodestore_contract::Result;
use lodestore_media::{prefetch_bytes, u32_at};

use super::block::{Shape, View};
use super::compress::{PLAIN_MAX, Slot, unpack};
use super::filter::{self, LINE_BYTES};
use super::format::{FILTER_PART_ID, KEYS_PART_ID, Summed, TableMeta, block_crc, item_seed, line_seed};
use super::index::{HEADS_PER_TOP_COUNT, head_in, head_of, not_above};
use super::{Item, Reads};

/// A table to read: its part in DRAM, and its bytes. Items borrow from the bytes alone.
#[derive(Debug, Clone, Copy)]
pub struct Table<'m, 'b> {
    pub(super) meta: &'m TableMeta,
    pub(super) bytes: &'b [u8],
}

/// The only data block that may have a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    pub(super) number: u32,
    pub(super) start: u32,
    pub(super) end: u32,
    pub(super) shape: Shape,
    /// Its plain bytes if it is compressed, at most [`PLAIN_MAX`]; else 0.
    pub(super) plain: u32,
    /// Expected index of the key among the items of a fixed block.
    pub(super) guess: u32,
}

impl Block {
    /// Returns its byte range in the table.
    #[must_use]
    pub fn range(&self) -> Range<usize> {
        self.start as usize..self.end as usize
    }

    /// Returns whether it is compressed.
    #[must_use]
    #[inline]
    pub fn is_compressed(&self) -> bool {
        self.plain != 0
    }

    /// Returns its length when it is read.
    #[inline]
    pub(super) fn plain_len(&self) -> u32 {
        if self.is_compressed() { self.plain } else { self.end - self.start }
    }

    /// Returns the range that a get reads first: a line's length in both directions from the
    /// expected place of the key.
    #[must_use]
    #[inline]
    pub fn near(&self) -> Range<usize> {
        if self.is_compressed() {
            return self.range();
        }
        let middle = (self.start as usize + self.guess as usize * self.shape.stride()).min(self.end as usize);
        middle.saturating_sub(LINE_BYTES).max(self.start as usize)..(middle + LINE_BYTES).min(self.end as usize)
    }
}

impl<'m, 'b> Table<'m, 'b> {
    #[inline]
    pub(super) fn new(meta: &'m TableMeta, bytes: &'b [u8]) -> Self {
        Self { meta, bytes }
    }

    /// Returns its smallest and its greatest key.
    ///
    /// # Errors
    /// [`lodestore_contract::Error::Corrupt`].
    pub fn keys(&self) -> Result<(&'b [u8], &'b [u8])> {
        let range = self.meta.part(KEYS_PART_ID);
        let keys = self.bytes.get(range.clone());
        keys.and_then(|keys| keys.split_at_checked(self.meta.least_len as usize))
            .ok_or_else(|| self.meta.corrupt("keys", range.start, "the keys are truncated"))
    }

    /// Returns the item of `key`, if the table has it; `hash` is [`super::hash`] of the key, and
    /// `slot` belongs to this get.
    ///
    /// # Errors
    /// [`lodestore_contract::Error::Corrupt`].
    #[cfg(test)]
    #[inline]
    pub fn get(&self, key: &[u8], hash: u64, reads: Reads, slot: &'b Slot) -> Result<Option<Item<'b>>> {
        if !self.may_have(hash, reads) {
            return Ok(None);
        }
        match self.locate(key)? {
            Some(block) => self.get_in(&block, key, hash, reads, slot),
            None => self.get_below(key, hash, reads, slot),
        }
    }

    /// Returns whether the table may have a key of this hash; if not, it has none. A damaged filter
    /// line may have any.
    #[must_use]
    #[inline]
    pub fn may_have(&self, hash: u64, reads: Reads) -> bool {
        let meta = self.meta;
        if meta.filter_lines == 0 {
            return true;
        }
        let number = filter::line_of(hash, meta.filter_lines);
        let from = meta.filter_at as usize + number * LINE_BYTES;
        let line = self.bytes.get(from..from + LINE_BYTES).and_then(|line| line.first_chunk::<LINE_BYTES>());
        line.is_none_or(|line| {
            filter::test(line, hash, meta.probes)
                || reads == Reads::Verified && !filter::is_whole(line, line_seed(meta.identity, number))
        })
    }

    /// Returns whether every filter line has the right check for its bits.
    pub(super) fn has_whole_filter(&self) -> bool {
        let lines = self.bytes.get(self.meta.part(FILTER_PART_ID)).unwrap_or_default().as_chunks::<LINE_BYTES>().0;
        lines.iter().enumerate().all(|(number, line)| filter::is_whole(line, line_seed(self.meta.identity, number)))
    }

    /// Returns the bytes that [`may_have`](Self::may_have) reads; empty without a filter.
    #[must_use]
    #[inline]
    pub fn filter_range(&self, hash: u64) -> Range<usize> {
        let meta = self.meta;
        if meta.filter_lines == 0 {
            let none = meta.part(FILTER_PART_ID).start;
            return none..none;
        }
        let from = meta.filter_at as usize + filter::line_of(hash, meta.filter_lines) * LINE_BYTES;
        from..from + LINE_BYTES
    }

    /// Returns the bytes that [`locate`](Self::locate) reads first: in most tables all that it
    /// reads.
    #[must_use]
    #[inline]
    pub fn index_range(&self, key: &[u8]) -> Range<usize> {
        let meta = self.meta;
        let at = meta.index_at as usize;
        match meta.line.window(head_of(key, meta.prefix as usize), meta.blocks as usize) {
            Some((from, to)) => at + 8 * from..at + 8 * to,
            None => {
                let tops = at + 8 * meta.blocks as usize;
                tops..tops + meta.tops_len().min(8 * HEADS_PER_TOP_COUNT)
            }
        }
    }

    /// Returns the block that has `key` if the table does; `None` if the key is below all keys of
    /// the table. Blocks with equal heads are distinguished by their first items. Verifies no
    /// checksum: [`get_in`](Self::get_in) does not rely on the block being the right one.
    ///
    /// # Errors
    /// [`lodestore_contract::Error::Corrupt`].
    #[inline]
    pub fn locate(&self, key: &[u8]) -> Result<Option<Block>> {
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
            return self.locate_tie(heads, number, head, key);
        }
        let mut block = self.block(number)?;
        if above < blocks && block.shape.is_fixed() {
            // Interpolates between the heads of this block and the next one.
            let part = (head.wrapping_sub(low) >> 1) as i64 as f32
                / (head_in(heads, above).wrapping_sub(low) >> 1) as i64 as f32;
            block.guess = (part * block.plain_len() as f32 / block.shape.stride() as f32) as u32;
        }
        Ok(Some(block))
    }

    /// Returns how many blocks have a head not above `head`.
    #[inline]
    fn heads_not_above(&self, heads: &[u8], head: u64) -> usize {
        let blocks = self.meta.blocks as usize;
        if let Some((from, to)) = self.meta.line.window(head, blocks) {
            return from + not_above(heads.get(8 * from..8 * to).unwrap_or_default(), head);
        }
        if blocks <= HEADS_PER_TOP_COUNT {
            return not_above(heads, head);
        }
        let tops_at = self.meta.index_at as usize + 8 * blocks;
        let tops = self.bytes.get(tops_at..tops_at + self.meta.tops_len()).unwrap_or_default();
        let from = not_above(tops, head).saturating_sub(1) * HEADS_PER_TOP_COUNT;
        from + not_above(heads.get(8 * from..8 * blocks.min(from + HEADS_PER_TOP_COUNT)).unwrap_or_default(), head)
    }

    /// [`locate`](Self::locate) if block `last`, and perhaps others before it, have the head of the
    /// key.
    #[cold]
    fn locate_tie(&self, heads: &[u8], last: usize, head: u64, key: &[u8]) -> Result<Option<Block>> {
        // The first of those blocks; then, among them, how many begin with a key that is not above.
        let mut first = match head.checked_sub(1) {
            Some(less) => not_above(heads.get(..8 * last).unwrap_or_default(), less),
            None => 0,
        };
        let mut end = last + 1;
        let mut plain = Vec::new();
        while first < end {
            let middle = first.midpoint(end);
            let block = self.block(middle)?;
            let view = self.view_in(&block, Reads::Trusted, &mut plain)?;
            let least = view.item(0).ok_or_else(|| self.broken(&block))?.key;
            if least <= key {
                first = middle + 1;
            } else {
                end = middle;
            }
        }
        first.checked_sub(1).map(|number| self.block(number)).transpose()
    }

    /// Returns the item of `key` in the block that [`locate`](Self::locate) returned for it.
    ///
    /// # Errors
    /// [`lodestore_contract::Error::Corrupt`].
    #[inline]
    pub fn get_in(
        &self,
        block: &Block,
        key: &[u8],
        hash: u64,
        reads: Reads,
        slot: &'b Slot,
    ) -> Result<Option<Item<'b>>> {
        if block.is_compressed() {
            return self.get_in_compressed(block, key, hash, reads, slot);
        }
        // Prefetches all lines that the search may read, which would otherwise wait for each in
        // turn.
        prefetch_bytes(self.bytes.get(block.near()).unwrap_or_default());
        let view = self.view(block, Reads::Trusted)?;
        let found = view.get(key, hash, self.meta.prefix as usize, block.guess as usize);
        if reads == Reads::Verified {
            return match found {
                Ok(Some(found)) if found.is_whole(item_seed(self.meta.identity, block.shape)) => Ok(Some(found.item)),
                _ => self.get_verified(block, key),
            };
        }
        found.map(|found| found.map(|found| found.item)).map_err(|_| self.broken(block))
    }

    /// Looks for `key` in a block whose checksum it verifies: for a get that found no item, or a
    /// damaged one.
    #[cold]
    #[inline(never)]
    fn get_verified(&self, block: &Block, key: &[u8]) -> Result<Option<Item<'b>>> {
        let view = self.view(block, Reads::Verified)?;
        match self.search_verified(block, &view, key)? {
            Some(at) => view.item(at).map(Some).ok_or_else(|| self.broken(block)),
            None => Ok(None),
        }
    }

    /// Looks for `key`, which is below all keys of the table according to the index.
    ///
    /// # Errors
    /// [`lodestore_contract::Error::Corrupt`].
    #[cold]
    #[inline(never)]
    pub fn get_below(&self, key: &[u8], hash: u64, reads: Reads, slot: &'b Slot) -> Result<Option<Item<'b>>> {
        match reads {
            Reads::Trusted => Ok(None),
            Reads::Verified => self.get_in(&self.block(0)?, key, hash, reads, slot),
        }
    }

    /// Returns where `key` is in the items of a block whose checksum is right. `None`: the table
    /// does not have the key.
    fn search_verified(&self, block: &Block, view: &View<'_>, key: &[u8]) -> Result<Option<usize>> {
        let prefix = self.meta.prefix as usize;
        let first = view.item(0).ok_or_else(|| self.broken(block))?.key;
        // All keys of the table share the prefix, and the order of the blocks says nothing about
        // other keys.
        if key.get(..prefix).is_none_or(|start| Some(start) != first.get(..prefix)) {
            return Ok(None);
        }
        match view.search(key, prefix, block.guess as usize).map_err(|_| self.broken(block))? {
            Ok(at) => Ok(Some(at)),
            Err(at) => self.check_between(block, view, key, at).map(|()| None),
        }
    }

    /// Checks that `key`, which would be item `at` of a block whose checksum is right, is in no
    /// other block.
    ///
    /// # Errors
    /// [`lodestore_contract::Error::Corrupt`].
    pub(super) fn check_between(&self, block: &Block, view: &View<'_>, key: &[u8], at: usize) -> Result<()> {
        let misled = || {
            self.meta.corrupt_block(
                block.number as usize,
                block.start as usize,
                "the index names this block instead of the block of the key",
            )
        };
        if at == 0 && block.number > 0 && view.item(0).is_none_or(|first| *key < *first.key) {
            return Err(misled());
        }
        if at < view.count() || block.number + 1 >= self.meta.blocks {
            return Ok(());
        }
        let (next, mut plain) = (self.block(block.number as usize + 1)?, Vec::new());
        let first = self.view_in(&next, Reads::Verified, &mut plain)?.item(0).ok_or_else(|| self.broken(&next))?;
        if *first.key > *key { Ok(()) } else { Err(misled()) }
    }

    /// [`get_in`](Self::get_in) for a compressed block. Its plain bytes are kept only if the key is
    /// among them, so that a get keeps one block.
    #[inline(never)]
    fn get_in_compressed(
        &self,
        block: &Block,
        key: &[u8],
        hash: u64,
        reads: Reads,
        slot: &'b Slot,
    ) -> Result<Option<Item<'b>>> {
        let mut plain = Vec::new();
        let find = |view: &View<'_>| {
            let found = view.find(key, hash, self.meta.prefix as usize, block.guess as usize);
            found.map(|found| found.is_some()).map_err(|_| self.broken(block))
        };
        // All of a compressed block is read, so its own checksum is verified instead of an item's.
        let view = self.view_in(block, reads, &mut plain)?;
        if !find(&view)? {
            if reads == Reads::Verified && self.search_verified(block, &view, key)?.is_some() {
                return Err(self.broken(block));
            }
            return Ok(None);
        }
        let plain = slot.keep(plain).ok_or_else(|| self.broken(block))?;
        let view = View::new(plain, block.shape).ok_or_else(|| self.broken(block))?;
        let found = view.find(key, hash, self.meta.prefix as usize, block.guess as usize);
        found.map(|found| found.map(|found| found.item)).map_err(|_| self.broken(block))
    }

    /// Returns block `number` of the table.
    #[inline]
    pub(super) fn block(&self, number: usize) -> Result<Block> {
        let meta = self.meta;
        if meta.uniform.is_fixed() {
            let len = u64::from(meta.block_len);
            let from = number as u64 * len;
            return self.block_at(number, (from, (from + len).min(u64::from(meta.data_len))), meta.uniform, 0);
        }
        let step = meta.described();
        let at = meta.descriptions_at() + step * number;
        let lengths = u32_at(self.bytes, at + 4);
        let from = u32_at(self.bytes, at);
        let shape = Shape { key: lengths as u16, value: (lengths >> 16) as u16 };
        let is_last = number + 1 >= meta.blocks as usize;
        let to = if is_last { meta.data_len } else { u32_at(self.bytes, at + step) };
        let plain = if meta.is_compressed() { u32_at(self.bytes, at + 8) } else { 0 };
        if plain != 0 && (plain <= to.saturating_sub(from) || plain as usize > PLAIN_MAX) {
            return Err(meta.corrupt_block(number, at, "the length in the index is invalid"));
        }
        self.block_at(number, (from.into(), to.into()), shape, plain)
    }

    /// Returns block `number`, at this range among the blocks.
    #[inline]
    fn block_at(&self, number: usize, (from, to): (u64, u64), shape: Shape, plain: u32) -> Result<Block> {
        let meta = self.meta;
        if number >= meta.blocks as usize || from >= to || to > u64::from(meta.data_len) {
            let at = meta.descriptions_at() + meta.described() * number;
            return Err(meta.corrupt_block(number, at, "the position in the index is invalid"));
        }
        // Both are at most the end of the blocks, which is a u32.
        let (start, end) = (meta.data_at + from as u32, meta.data_at + to as u32);
        Ok(Block { number: number as u32, start, end, shape, plain, guess: 0 })
    }

    /// Returns the view of a block, decompressed into `plain` if it is compressed. The checksum of
    /// the stored bytes is verified first, if requested.
    pub(super) fn view_in<'v>(&self, block: &Block, reads: Reads, plain: &'v mut Vec<u8>) -> Result<View<'v>>
    where
        'b: 'v,
    {
        if !block.is_compressed() {
            return self.view(block, reads);
        }
        self.unpack(block, reads, plain)?;
        View::new(plain, block.shape).ok_or_else(|| self.broken(block))
    }

    /// Decompresses a compressed block.
    pub(super) fn unpack(&self, block: &Block, reads: Reads, plain: &mut Vec<u8>) -> Result<()> {
        unpack(self.stored(block, reads)?, block.plain as usize, plain)
            .map_err(|_| self.meta.corrupt_block(block.number as usize, block.start as usize, "decompression failed"))
    }

    /// Returns the view of an uncompressed block, with its checksum verified if requested.
    #[inline]
    pub(super) fn view(&self, block: &Block, reads: Reads) -> Result<View<'b>> {
        View::new(self.stored(block, reads)?, block.shape).ok_or_else(|| self.broken(block))
    }

    /// Returns the block's stored bytes, with their checksum verified if requested.
    #[inline]
    fn stored(&self, block: &Block, reads: Reads) -> Result<&'b [u8]> {
        let bytes = self.bytes.get(block.range()).unwrap_or_default();
        if reads == Reads::Verified {
            self.check_block(block, bytes)?;
        }
        Ok(bytes)
    }

    fn check_block(&self, block: &Block, bytes: &[u8]) -> Result<()> {
        let crc = u32_at(self.bytes, self.meta.checksums_at() + 4 * block.number as usize);
        let summed = Summed { number: block.number, shape: block.shape, plain: block.plain, bytes };
        if block_crc(self.meta.identity, &summed) == crc {
            return Ok(());
        }
        Err(self.meta.corrupt_block(block.number as usize, block.start as usize, "the checksum differs"))
    }

    #[cold]
    pub(super) fn broken(&self, block: &Block) -> lodestore_contract::Error {
        self.meta.corrupt_block(block.number as usize, block.start as usize, "the items are incomplete or damaged")
    }
}
