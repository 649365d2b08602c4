//! Builds the bytes of a table from items in ascending order.

use lodestore_contract::limits::KEY_MAX;

use super::block::{COUNT_BYTES, ITEM_BYTES, Shape, View, encode, encoded_len, push_check, tag_of};
use super::compress::Packer;
use super::filter::{self, LINE_BYTES};
use super::format::{
    FILTER_PART_ID, HEADER_BYTES, INDEX_PART_ID, KEYS_PART_ID, PART_ALIGN_BYTES, Summed, TableMeta, aligned, block_crc,
    item_seed, line_seed, part_crc,
};
use super::index::{HEADS_PER_TOP_COUNT, Line, head_of};
use super::{Item, ItemKind, TableOptions};
use crate::layout::STORED_MAX;

/// Maximum bytes that are reserved at once; larger tables grow.
const RESERVE_MAX: usize = 16 << 20;

/// A finished table.
#[derive(Debug)]
pub struct Built {
    /// Its bytes, a multiple of 64.
    pub bytes: Vec<u8>,
    /// The result of [`TableMeta::open`] for them.
    pub meta: TableMeta,
    /// Its smallest key.
    pub first_key: Vec<u8>,
    /// Its greatest key.
    pub last_key: Vec<u8>,
    /// Items, including tombstones and pointers.
    pub items: u32,
    /// Items that are tombstones.
    pub tombstones: u32,
}

/// A complete block.
#[derive(Debug, Clone, Copy)]
struct Closed {
    /// From the first block.
    offset: u32,
    shape: Shape,
    crc: u32,
    /// Its plain length, if it is compressed; else 0.
    plain: u32,
}

/// Builds a table from items in ascending order of their keys.
#[derive(Debug)]
pub struct TableBuilder {
    options: TableOptions,
    identity: u64,
    /// Header, still zeros, and blocks.
    out: Vec<u8>,
    data_at: usize,
    blocks: Vec<Closed>,
    hashes: Vec<u64>,
    first_key: Vec<u8>,
    last_key: Vec<u8>,
    tombstones: u32,
    pointers: u32,
    expiring: u32,
    /// The block that is being filled: its start in `out`, its shape, its number of items. Items of
    /// a fixed block are already in `out`. Items of a general block are in `encoded`, each from its
    /// offset in `offsets`.
    open_at: usize,
    shape: Shape,
    count: usize,
    encoded: Vec<u8>,
    offsets: Vec<u16>,
    packed: Packed,
}

/// Data of a builder that compresses its blocks.
#[derive(Debug, Default)]
struct Packed {
    packer: Packer,
    /// Bytes saved by compression so far.
    saved: usize,
    /// The first keys of the blocks, concatenated, and where each ends.
    firsts: Vec<u8>,
    ends: Vec<usize>,
}

impl Packed {
    fn first_key(&self, block: usize) -> Option<&[u8]> {
        let from = if block == 0 { 0 } else { *self.ends.get(block - 1)? };
        self.firsts.get(from..*self.ends.get(block)?)
    }
}

impl TableBuilder {
    /// Returns a builder of the table with this identity. Options outside their limits are clamped.
    #[must_use]
    pub fn new(options: &TableOptions, identity: u64) -> Self {
        let options = TableOptions {
            block_bytes: options.block_bytes.clamp(256, 64 << 10),
            table_bytes: options.table_bytes.clamp(4 << 10, 256 << 20),
            filter_bits: options.filter_bits.min(24),
            compress: options.compress,
        };
        // Blocks of the size of pages begin at page boundaries; compressed ones have no such size.
        let largest_power = if options.compress { 1 } else { 1 << options.block_bytes.ilog2() };
        let data_at = HEADER_BYTES.next_multiple_of(largest_power.clamp(PART_ALIGN_BYTES, 4096));
        let mut out = Vec::with_capacity((options.table_bytes + options.table_bytes / 8).min(RESERVE_MAX));
        out.resize(data_at, 0);
        Self {
            options,
            identity,
            out,
            data_at,
            blocks: Vec::new(),
            hashes: Vec::new(),
            first_key: Vec::new(),
            last_key: Vec::new(),
            tombstones: 0,
            pointers: 0,
            expiring: 0,
            open_at: data_at,
            shape: Shape::GENERAL,
            count: 0,
            encoded: Vec::new(),
            offsets: Vec::new(),
            packed: Packed::default(),
        }
    }

    /// Returns the last key that was added.
    #[must_use]
    #[inline]
    pub fn last_key(&self) -> Option<&[u8]> {
        Some(self.last_key.as_slice()).filter(|key| !key.is_empty())
    }

    /// Appends an item; `hash` is [`super::hash`] of its key. Panics if the key is not above all
    /// earlier keys, or a length is beyond the contract's limits. Also panics if a tombstone has a
    /// value, or the table would exceed 4 GiB.
    pub fn add(&mut self, item: &Item<'_>, hash: u64) {
        assert!(
            !item.key.is_empty() && item.key.len() <= KEY_MAX && item.value.len() <= STORED_MAX,
            "within the limits"
        );
        assert!(self.is_empty() || item.key > self.last_key.as_slice(), "keys ascend");
        assert!(item.kind != ItemKind::Tombstone || item.value.is_empty(), "a tombstone has no value");
        let room = u32::MAX as usize - self.bytes();
        assert!(item.key.len() + item.value.len() + 256 < room, "a table is shorter than 4 GiB");
        if self.is_empty() {
            self.first_key.extend_from_slice(item.key);
        }
        self.last_key.clear();
        self.last_key.extend_from_slice(item.key);
        self.tombstones += u32::from(item.kind == ItemKind::Tombstone);
        self.pointers += u32::from(item.kind == ItemKind::Pointer);
        self.expiring += u32::from(item.expiry.is_some());

        let shape = Shape::of(item);
        self.close_full_block(item, shape);
        if self.count == 0 {
            (self.open_at, self.shape) = (self.out.len(), shape);
            if self.options.compress {
                self.packed.firsts.extend_from_slice(item.key);
                self.packed.ends.push(self.packed.firsts.len());
            }
        }
        if self.shape.is_fixed() {
            let from = self.out.len();
            self.out.extend_from_slice(item.key);
            self.out.extend_from_slice(item.value);
            push_check(&mut self.out, from, item_seed(self.identity, self.shape));
        } else {
            self.push_encoded(item);
        }
        self.hashes.push(hash);
        self.count += 1;
    }

    /// Closes the open block if `item` does not go into it, or makes it a general one that accepts
    /// any item.
    fn close_full_block(&mut self, item: &Item<'_>, shape: Shape) {
        if self.count == 0 {
            return;
        }
        let most = self.options.block_bytes;
        if self.shape.is_fixed() {
            let len = self.out.len() - self.open_at;
            if shape == self.shape {
                if len + shape.stride() > most {
                    self.close_block();
                }
                return;
            }
            if len >= most / 2 {
                self.close_block();
                return;
            }
            self.make_general();
        }
        if self.general_len() + ITEM_BYTES + encoded_len(item) > most {
            self.close_block();
        }
    }

    /// Returns the bytes of the open general block.
    fn general_len(&self) -> usize {
        COUNT_BYTES + self.count * ITEM_BYTES + self.encoded.len()
    }

    fn push_encoded(&mut self, item: &Item<'_>) {
        // Only a block of one item is longer than 64 KiB.
        self.offsets.push(u16::try_from(self.encoded.len()).expect("a block of many items is at most 64 KiB"));
        encode(item, item_seed(self.identity, Shape::GENERAL), &mut self.encoded);
    }

    /// Turns the open fixed block into a general one.
    fn make_general(&mut self) {
        let bytes = self.out.split_off(self.open_at);
        let shape = std::mem::replace(&mut self.shape, Shape::GENERAL);
        let view = View::counted(&bytes, shape, self.count);
        for at in 0..self.count {
            self.push_encoded(&view.item(at).expect("written by this builder"));
        }
    }

    fn close_block(&mut self) {
        if self.count == 0 {
            return;
        }
        if !self.shape.is_fixed() {
            self.out.extend_from_slice(&(self.count as u32).to_le_bytes());
            let hashes = &self.hashes[self.hashes.len() - self.count..];
            self.out.extend(hashes.iter().map(|hash| tag_of(*hash)));
            self.out.extend(self.offsets.iter().flat_map(|offset| offset.to_le_bytes()));
            self.out.append(&mut self.encoded);
            self.offsets.clear();
        }
        let plain = if self.options.compress { self.pack() } else { 0 };
        let bytes = &self.out[self.open_at..];
        let block = Summed { number: self.blocks.len() as u32, shape: self.shape, plain, bytes };
        let crc = block_crc(self.identity, &block);
        self.blocks.push(Closed { offset: (self.open_at - self.data_at) as u32, shape: self.shape, crc, plain });
        (self.open_at, self.count) = (self.out.len(), 0);
    }

    /// Compresses the block that is being closed if that saves enough. Returns its plain length, or
    /// 0.
    fn pack(&mut self) -> u32 {
        let plain = self.out.len() - self.open_at;
        let Some(packed) = self.packed.packer.pack(&self.out[self.open_at..]) else { return 0 };
        self.out.truncate(self.open_at);
        self.out.extend_from_slice(packed);
        self.packed.saved += plain - packed.len();
        plain as u32
    }

    /// Returns whether it has no item yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }

    /// Returns the number of items.
    #[cfg(test)]
    pub fn items(&self) -> usize {
        self.hashes.len()
    }

    /// Returns whether the table has reached its target size.
    #[cfg(test)]
    pub fn is_full(&self) -> bool {
        self.bytes() >= self.options.table_bytes
    }

    /// Returns the approximate bytes of [`finish`](Self::finish) now: never fewer. The excess is a
    /// few hundred bytes, or 8 bytes per block if the table is uniform.
    #[must_use]
    #[inline]
    pub fn bytes(&self) -> usize {
        let open = if self.count == 0 || self.shape.is_fixed() { 0 } else { self.general_len() };
        let blocks = self.blocks.len() + 1;
        let index = blocks * if self.options.compress { 24 } else { 20 } + blocks / HEADS_PER_TOP_COUNT * 8 + 8;
        let filter = filter::lines_for(self.hashes.len(), self.options.filter_bits) * LINE_BYTES;
        self.out.len() + open + index + filter + self.first_key.len() + self.last_key.len() + 4 * PART_ALIGN_BYTES
    }

    /// Returns the table of all items. There must be at least one.
    #[must_use]
    pub fn finish(mut self) -> Built {
        assert!(!self.is_empty(), "a table has items");
        self.close_block();
        let data_len = self.out.len() - self.data_at;
        let prefix = self.first_key.iter().zip(&self.last_key).take_while(|(a, b)| a == b).count();
        let (uniform, block_len) = self.uniform(data_len).unwrap_or_default();
        let heads = self.heads(prefix);
        let line = Line::through(&heads, head_of(&self.last_key, prefix));

        let index_at = self.pad();
        self.write_index(&heads, uniform);
        let index_crc = part_crc(self.identity, INDEX_PART_ID, &self.out[index_at..]);
        let filter_at = self.pad();
        let probes = filter::probes_for(self.options.filter_bits);
        let filter_lines = self.write_filter(probes);
        let filter_crc = part_crc(self.identity, FILTER_PART_ID, &self.out[filter_at..]);
        let keys_at = self.pad();
        self.out.extend_from_slice(&self.first_key);
        self.out.extend_from_slice(&self.last_key);
        let keys_crc = part_crc(self.identity, KEYS_PART_ID, &self.out[keys_at..]);
        self.pad();

        let items = self.hashes.len() as u32;
        let meta = TableMeta {
            identity: self.identity,
            line,
            len: u32::try_from(self.out.len()).expect("checked as items were added"),
            items,
            tombstones: self.tombstones,
            pointers: self.pointers,
            expiring: self.expiring,
            blocks: self.blocks.len() as u32,
            data_at: self.data_at as u32,
            data_len: data_len as u32,
            index_at: index_at as u32,
            filter_at: filter_at as u32,
            filter_lines,
            keys_at: keys_at as u32,
            least_len: self.first_key.len() as u32,
            greatest_len: self.last_key.len() as u32,
            prefix: prefix as u32,
            block_len,
            uniform,
            probes,
            plain_len: match self.packed.saved {
                0 => 0,
                saved => u32::try_from(data_len + saved).unwrap_or(u32::MAX),
            },
        };
        self.out[..HEADER_BYTES].copy_from_slice(&meta.encode(index_crc, filter_crc, keys_crc));
        debug_assert_eq!(TableMeta::open(&self.out, self.identity).ok(), Some(meta), "it opens as what it is");
        Built {
            bytes: self.out,
            meta,
            first_key: self.first_key,
            last_key: self.last_key,
            items,
            tombstones: self.tombstones,
        }
    }

    /// Returns the shape and length of the blocks if all are fixed and uncompressed, of one shape,
    /// and of one length except the last.
    fn uniform(&self, data_len: usize) -> Option<(Shape, u32)> {
        let first = self.blocks.first().filter(|_| self.packed.saved == 0)?;
        let len = self.blocks.get(1).map_or(data_len as u32, |second| second.offset);
        let same = |(at, block): (usize, &Closed)| {
            block.shape == first.shape && u64::from(block.offset) == at as u64 * u64::from(len)
        };
        let last_fits = data_len <= self.blocks.len() * len as usize;
        (first.shape.is_fixed() && last_fits && self.blocks.iter().enumerate().all(same)).then_some((first.shape, len))
    }

    /// Returns the head of the first key of each block.
    fn heads(&self, prefix: usize) -> Vec<u64> {
        if self.options.compress {
            let first = |at| self.packed.first_key(at).map(|key| head_of(key, prefix));
            return (0..self.blocks.len()).map(first).collect::<Option<_>>().expect("noted as each was begun");
        }
        let data = &self.out[self.data_at..];
        let end_of = |at: usize| self.blocks.get(at + 1).map_or(data.len(), |next| next.offset as usize);
        let first_of = |(at, block): (usize, &Closed)| {
            let view = View::new(&data[block.offset as usize..end_of(at)], block.shape)?;
            view.item(0).map(|item| head_of(item.key, prefix))
        };
        self.blocks.iter().enumerate().map(first_of).collect::<Option<_>>().expect("written by this builder")
    }

    fn write_index(&mut self, heads: &[u64], uniform: Shape) {
        let tops = heads.iter().step_by(HEADS_PER_TOP_COUNT).filter(|_| heads.len() > HEADS_PER_TOP_COUNT);
        self.out.extend(heads.iter().chain(tops).flat_map(|head| head.to_le_bytes()));
        if !uniform.is_fixed() {
            for block in &self.blocks {
                self.out.extend_from_slice(&block.offset.to_le_bytes());
                self.out.extend_from_slice(&block.shape.key.to_le_bytes());
                self.out.extend_from_slice(&block.shape.value.to_le_bytes());
                if self.packed.saved > 0 {
                    self.out.extend_from_slice(&block.plain.to_le_bytes());
                }
            }
        }
        self.out.extend(self.blocks.iter().flat_map(|block| block.crc.to_le_bytes()));
    }

    /// Appends the filter and returns its number of lines.
    fn write_filter(&mut self, probes: u8) -> u32 {
        let lines = filter::lines_for(self.hashes.len(), self.options.filter_bits);
        let from = self.out.len();
        self.out.resize(from + lines * LINE_BYTES, 0);
        let filter = self.out[from..].as_chunks_mut::<LINE_BYTES>().0;
        if lines > 0 {
            for hash in &self.hashes {
                filter::set(&mut filter[filter::line_of(*hash, lines as u32)], *hash, probes);
            }
            for (number, line) in filter.iter_mut().enumerate() {
                filter::seal(line, line_seed(self.identity, number));
            }
        }
        lines as u32
    }

    /// Pads with zeros to where a part may begin.
    fn pad(&mut self) -> usize {
        self.out.resize(aligned(self.out.len()), 0);
        self.out.len()
    }
}
