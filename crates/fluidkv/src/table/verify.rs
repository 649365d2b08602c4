//! Verifying a table: all that it says of itself.

use lodestore_contract::{Error, Result};

use super::head::{FAN, head_in, head_of};
use super::layout::{FILTER_PART, INDEX_PART, KEYS_PART, TableMeta};
use super::read::Table;
use super::{ItemKind, Reads, hash};

/// One thing that is wrong with a table: an [`Error::Corrupt`], in effect.
pub type Finding = Error;

/// What was looked at and found right.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Verified {
    /// Blocks whose checksum was computed and matched.
    pub blocks: u32,
    /// Items of these blocks.
    pub items: u64,
    /// Bytes of these blocks.
    pub bytes: u64,
}

/// Reads all of a table: the checksums of all parts, each block's items, the order of the keys, the counts, heads and tops, that the filter
/// has every key, the least and the greatest key. Calls `each` for everything that is wrong.
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
    for (name, part) in [("index", INDEX_PART), ("filter", FILTER_PART), ("least and greatest key", KEYS_PART)] {
        if let Err(finding) = meta.check_part(bytes, name, part) {
            each(finding);
        }
    }
    let mut check = Check { table: Table::new(meta, bytes), each, last: None, counts: [0; 4], all_read: true };
    check.tops();
    for number in 0..meta.blocks as usize {
        match check.block(number, &mut verified) {
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
    /// The last key that was read.
    last: Option<&'b [u8]>,
    /// Items, tombstones, pointers, items that expire.
    counts: [u32; 4],
    /// Whether no block was refused, so that counts and ends can be compared.
    all_read: bool,
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
        let wrong = (0..tops.len() / 8).find(|top| head_in(tops, *top) != head_in(self.heads(), top * FAN));
        if let Some(top) = wrong {
            self.find(&format!("top {top}"), at + 8 * top, "it is not the head that it stands for");
        }
    }

    fn block(&mut self, number: usize, verified: &mut Verified) -> Result<()> {
        let (table, meta) = (self.table, self.table.meta);
        let block = table.block(number)?;
        let view = table.view(&block, Reads::Verified)?;
        let start = block.start as usize;
        if view.count() == 0 || block.shape.is_fixed() && !block.range().len().is_multiple_of(block.shape.stride()) {
            return Err(table.broken(&block));
        }
        verified.blocks += 1;
        verified.bytes += block.range().len() as u64;
        for at in 0..view.count() {
            let item = view.item(at).ok_or_else(|| table.broken(&block))?;
            let name = || format!("block {number}, item {at}");
            if self.last.is_some_and(|last| last >= item.key) {
                self.find(&name(), start, "its key is not above the one before");
            }
            self.last = Some(item.key);
            let head = head_of(item.key, meta.prefix as usize);
            if at == 0 && head_in(self.heads(), number) != head {
                self.find(&name(), start, "its key has another head than the index says");
            }
            let hash = hash(item.key);
            if !table.may_have(hash) {
                self.find(&name(), start, "the filter does not have its key");
            }
            match table.get(item.key, hash, Reads::Trusted) {
                Ok(Some(found)) if found == item => {}
                _ => self.find(&name(), start, "a get does not find it"),
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
            self.find("its header", 28, "its items are counted wrong");
        }
        let first = self.table.block(0).and_then(|block| Ok(self.table.view(&block, Reads::Trusted)?.item(0)));
        let ends = first.ok().flatten().map(|item| item.key).zip(self.last);
        if ends.is_none() || ends != self.table.keys().ok() {
            self.find("its keys", meta.keys_at as usize, "they are not the least and the greatest one");
        }
    }
}
