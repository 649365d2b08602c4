//! Verifies everything that a table says of itself.

use lodestore_contract::{Error, Result};

use super::format::{FILTER_PART_ID, INDEX_PART_ID, KEYS_PART_ID, TableMeta, item_seed};
use super::index::{HEADS_PER_TOP_COUNT, head_in, head_of};
use super::reader::{Block, Table};
use super::{ItemKind, Reads, hash};

/// A finding: always an [`Error::Corrupt`] in effect.
pub type Finding = Error;

/// Counts of verified data.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Verified {
    /// Blocks whose checksum was computed and matched.
    pub blocks: u32,
    /// Items of these blocks.
    pub items: u64,
    /// Bytes of these blocks, decompressed.
    pub bytes: u64,
}

/// Reads all of a table: the checksums of all parts, each block's items, the order of the keys, the
/// counts, heads and tops. Also checks the filter's bits of every key, and the smallest and the
/// greatest key. Calls `each` for everything that is wrong.
pub fn verify(bytes: &[u8], identity: u64, each: &mut dyn FnMut(Finding)) -> Verified {
    let mut verified = Verified::default();
    let opened = TableMeta::read(bytes, identity);
    let (meta, bytes) = match &opened {
        Ok(meta) => (meta, &bytes[..meta.bytes()]),
        Err(_) => {
            opened.err().into_iter().for_each(each);
            return verified;
        }
    };
    for (name, part) in [("index", INDEX_PART_ID), ("filter", FILTER_PART_ID), ("least and greatest key", KEYS_PART_ID)]
    {
        if let Err(finding) = meta.check_part(bytes, name, part) {
            each(finding);
        }
    }
    let mut plain = Vec::new();
    let mut check = Check {
        table: Table::new(meta, bytes),
        each,
        last: Vec::new(),
        first: Vec::new(),
        counts: [0; 4],
        all_read: true,
        plain: 0,
    };
    check.tops();
    if !check.table.has_whole_filter() {
        check.find("filter", meta.filter_at as usize, "the check of a line differs");
    }
    for number in 0..meta.blocks as usize {
        match check.block(number, &mut plain, &mut verified) {
            Ok(()) => {}
            Err(finding) => {
                (check.each)(finding);
                check.all_read = false;
            }
        }
    }
    check.end();
    verified
}

struct Check<'t, 'b, 'e> {
    table: Table<'t, 'b>,
    each: &'e mut dyn FnMut(Finding),
    /// The last key that was read; empty if none was.
    last: Vec<u8>,
    first: Vec<u8>,
    /// Items, tombstones, pointers, items that expire.
    counts: [u32; 4],
    /// Whether no block was rejected, so that counts and ends can be compared.
    all_read: bool,
    /// Bytes of the blocks, decompressed.
    plain: u64,
}

impl Check<'_, '_, '_> {
    fn find(&mut self, part: &str, at: usize, what: &str) {
        let finding = self.table.meta.corrupt(part, at, what);
        (self.each)(finding);
    }

    fn heads(&self) -> &[u8] {
        let from = self.table.meta.index_at as usize;
        self.table.bytes.get(from..from + 8 * self.table.meta.blocks as usize).unwrap_or_default()
    }

    fn tops(&mut self) {
        let meta = self.table.meta;
        let at = meta.index_at as usize + 8 * meta.blocks as usize;
        let tops = self.table.bytes.get(at..at + meta.tops_len()).unwrap_or_default();
        let wrong =
            (0..tops.len() / 8).find(|top| head_in(tops, *top) != head_in(self.heads(), top * HEADS_PER_TOP_COUNT));
        if let Some(top) = wrong {
            self.find(&format!("top {top}"), at + 8 * top, "the top differs from the head in the index");
        }
    }

    fn block(&mut self, number: usize, plain: &mut Vec<u8>, verified: &mut Verified) -> Result<()> {
        let (table, meta) = (self.table, self.table.meta);
        let block = table.block(number)?;
        let view = table.view_in(&block, Reads::Verified, plain)?;
        let start = block.start as usize;
        let len = block.plain_len() as usize;
        if view.count() == 0 || block.shape.is_fixed() && !len.is_multiple_of(block.shape.stride()) {
            return Err(table.broken(&block));
        }
        verified.blocks += 1;
        verified.bytes += len as u64;
        self.plain += len as u64;
        for at in 0..view.count() {
            let found = view.found(at).ok_or_else(|| table.broken(&block))?;
            let item = found.item;
            let name = || format!("block {number}, item {at}");
            if !found.is_whole(item_seed(meta.identity, block.shape)) {
                self.find(&name(), start, "the check of the item differs");
            }
            if self.last.as_slice() >= item.key {
                self.find(&name(), start, "the key is not above the previous key");
            }
            if verified.items == 0 {
                self.first.extend_from_slice(item.key);
            }
            self.last.clear();
            self.last.extend_from_slice(item.key);
            let head = head_of(item.key, meta.prefix as usize);
            if at == 0 && head_in(self.heads(), number) != head {
                self.find(&name(), start, "the head of the key differs from the index");
            }
            let hash = hash(item.key);
            if !table.may_have(hash, Reads::Trusted) {
                self.find(&name(), start, "the filter lacks the key");
            }
            let located = table.locate(item.key);
            let finds = located.is_ok_and(|located| {
                let located = located.filter(|located| located.number == block.number);
                let get = |located: Block| view.find(item.key, hash, meta.prefix as usize, located.guess as usize);
                located.is_some_and(|located| get(located) == Ok(Some(found)))
            });
            if !finds {
                self.find(&name(), start, "a get does not find the key");
            }
            let [items, tombstones, pointers, expiring] = &mut self.counts;
            *items += 1;
            *tombstones += u32::from(item.kind == ItemKind::Tombstone);
            *pointers += u32::from(item.kind == ItemKind::Pointer);
            *expiring += u32::from(item.expiry.is_some());
            verified.items += 1;
        }
        Ok(())
    }

    fn end(&mut self) {
        if !self.all_read {
            return;
        }
        let meta = self.table.meta;
        if self.counts != [meta.items, meta.tombstones, meta.pointers, meta.expiring] {
            self.find("header", 28, "the number of items is wrong");
        }
        let plain = if meta.is_compressed() { self.plain.min(u32::MAX.into()) } else { 0 };
        if plain != u64::from(meta.plain_len) {
            self.find("header", 124, "the number of uncompressed bytes is wrong");
        }
        if self.table.keys().ok() != Some((self.first.as_slice(), self.last.as_slice())) {
            self.find("keys", meta.keys_at as usize, "the keys are not the least and the greatest key of the table");
        }
    }
}
