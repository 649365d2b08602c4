//! Iteration over a table in both directions.

use std::cmp::Ordering;

use lodestore_contract::Result;

use super::block::View;
use super::reader::{Block, Table};
use super::{Item, Reads};

/// A position between two items of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SeekPosition<'k> {
    /// Before the first item.
    Start,
    /// Before this key, whether the table has it or not.
    Before(&'k [u8]),
    /// After this key, whether the table has it or not.
    After(&'k [u8]),
    /// After the last item.
    End,
}

/// The result of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step<'b> {
    /// An item in the table's bytes.
    Stored(Item<'b>),
    /// An item of a compressed block: [`Walk::item`] returns it until the next step.
    Unpacked,
    /// There is no more item in this direction.
    End,
}

/// A position between two items of a table, for steps in both directions. A walk borrows nothing:
/// each step gets the same table. Another table would return other items, or none, and nothing
/// worse. In a compressed block, the walk has its plain bytes.
#[derive(Debug)]
pub struct Walk {
    reads: Reads,
    /// The block whose items are before or after the position, once it was read.
    block: Option<Block>,
    /// Its number, or that of the next block to read.
    number: u32,
    /// Its number of items, and how many of them are before the position.
    count: u32,
    at: u32,
    /// The plain bytes of `block`, if it is compressed, and the item of the last step.
    plain: Vec<u8>,
    shown: u32,
}

impl Walk {
    /// Returns a walk from before the first item.
    #[must_use]
    pub const fn new(reads: Reads) -> Self {
        Self { reads, block: None, number: 0, count: 0, at: 0, plain: Vec::new(), shown: 0 }
    }

    /// Moves before block `number`, of this table or another.
    pub fn restart(&mut self, number: u32) {
        *self = Self { number, plain: std::mem::take(&mut self.plain), ..Self::new(self.reads) };
    }

    /// Returns the item of the last step, if that returned [`Step::Unpacked`].
    #[must_use]
    #[inline]
    pub fn item(&self) -> Option<Item<'_>> {
        let block = self.block.as_ref().filter(|block| block.is_compressed())?;
        View::counted(&self.plain, block.shape, self.count as usize).item(self.shown as usize)
    }

    /// Returns the result of a step to item `at` of a compressed block.
    fn unpacked(&mut self, table: &Table<'_, '_>, at: u32) -> Result<Step<'static>> {
        self.shown = at;
        match (self.item(), &self.block) {
            (None, Some(block)) => Err(table.broken(block)),
            _ => Ok(Step::Unpacked),
        }
    }

    /// Moves to a position.
    ///
    /// # Errors
    /// [`lodestore_contract::Error::Corrupt`]. The walk is then after the block that cannot be
    /// read, or at the start if that block is unknown.
    pub fn seek(&mut self, table: &Table<'_, '_>, position: SeekPosition<'_>) -> Result<()> {
        self.restart(0);
        let (key, behind) = match position {
            SeekPosition::Start => return Ok(()),
            SeekPosition::End => {
                self.number = table.meta.blocks;
                return Ok(());
            }
            SeekPosition::Before(key) => (key, false),
            SeekPosition::After(key) => (key, true),
        };
        let block = match table.locate(key)? {
            Some(block) => block,
            None => table.block(0)?,
        };
        self.number = block.number + 1;
        let view = table.view_in(&block, self.reads, &mut self.plain)?;
        // The index locates a key only if the key has the shared prefix of the table.
        let prefix = table.meta.prefix as usize;
        let first = view.item(0).ok_or_else(|| table.broken(&block))?.key;
        let shared = first.get(..prefix).unwrap_or_default();
        let start = &key[..prefix.min(key.len())];
        match start.cmp(&shared[..start.len().min(shared.len())]) {
            Ordering::Greater => {
                self.number = table.meta.blocks;
                return Ok(());
            }
            Ordering::Equal if key.len() >= prefix => {}
            _ => {
                self.number = 0;
                return Ok(());
            }
        }
        let count = view.count();
        let at = match view.search(key, prefix, block.guess as usize) {
            Ok(Ok(at)) => at + usize::from(behind),
            Ok(Err(at)) => {
                if self.reads == Reads::Verified {
                    table.check_between(&block, &view, key, at)?;
                }
                at
            }
            Err(_) => return Err(table.broken(&block)),
        };
        self.enter(block, count, at);
        Ok(())
    }

    /// Returns the item after the position and moves past it.
    ///
    /// # Errors
    /// [`lodestore_contract::Error::Corrupt`]; the next call continues after the item or block that
    /// cannot be read.
    #[inline]
    pub fn next<'b>(&mut self, table: &Table<'_, 'b>) -> Result<Step<'b>> {
        loop {
            if let Some(block) = &self.block {
                if self.at < self.count {
                    self.at += 1;
                    if block.is_compressed() {
                        return self.unpacked(table, self.at - 1);
                    }
                    return self.stored_item(table, block, self.at - 1);
                }
                self.number += 1;
                self.block = None;
            }
            if self.number >= table.meta.blocks {
                return Ok(Step::End);
            }
            let number = self.number;
            self.number += 1;
            let (block, count) = self.read_block(table, number)?;
            self.enter(block, count, 0);
        }
    }

    /// Visits the items after the position, in order, until there is none or `visit` returns false.
    /// Returns whether the end was reached. Equivalent to repeated [`next`](Self::next), and
    /// faster.
    ///
    /// # Errors
    /// Those of [`next`](Self::next).
    pub fn visit(&mut self, table: &Table<'_, '_>, visit: &mut dyn FnMut(Item<'_>) -> bool) -> Result<bool> {
        loop {
            if let Some(block) = self.block {
                let stored = || table.bytes.get(block.range()).unwrap_or_default();
                let bytes = if block.is_compressed() { &self.plain } else { stored() };
                let view = View::counted(bytes, block.shape, self.count as usize);
                while self.at < self.count {
                    let item = view.item(self.at as usize);
                    self.at += 1;
                    if !visit(item.ok_or_else(|| table.broken(&block))?) {
                        return Ok(false);
                    }
                }
            }
            // The block is finished: moves to the next one, like a step.
            let more = match self.next(table)? {
                Step::Stored(item) => visit(item),
                Step::Unpacked => self.item().is_none_or(&mut *visit),
                Step::End => return Ok(true),
            };
            if !more {
                return Ok(false);
            }
        }
    }

    /// Returns the item before the position and moves before it.
    ///
    /// # Errors
    /// [`lodestore_contract::Error::Corrupt`]; the next call continues before the item or block
    /// that cannot be read.
    #[inline]
    pub fn prev<'b>(&mut self, table: &Table<'_, 'b>) -> Result<Step<'b>> {
        loop {
            if let Some(block) = &self.block {
                if self.at > 0 {
                    self.at -= 1;
                    if block.is_compressed() {
                        return self.unpacked(table, self.at);
                    }
                    return self.stored_item(table, block, self.at);
                }
                self.block = None;
            }
            let Some(number) = self.number.min(table.meta.blocks).checked_sub(1) else { return Ok(Step::End) };
            self.number = number;
            let (block, count) = self.read_block(table, number)?;
            self.enter(block, count, count);
        }
    }

    /// Returns the item at this index of the current block, which is not compressed.
    #[inline]
    fn stored_item<'b>(&self, table: &Table<'_, 'b>, block: &Block, at: u32) -> Result<Step<'b>> {
        let bytes = table.bytes.get(block.range()).unwrap_or_default();
        let item = View::counted(bytes, block.shape, self.count as usize).item(at as usize);
        item.map(Step::Stored).ok_or_else(|| table.broken(block))
    }

    /// Returns a block and its number of items. If it is compressed, this walk then has its plain
    /// bytes.
    fn read_block(&mut self, table: &Table<'_, '_>, number: u32) -> Result<(Block, usize)> {
        let block = table.block(number as usize)?;
        let view = table.view_in(&block, self.reads, &mut self.plain)?;
        Ok((block, view.count()))
    }

    fn enter(&mut self, block: Block, count: usize, at: usize) {
        self.number = block.number;
        // No block has 2^32 items, since none has as many bytes.
        (self.count, self.at) = (count as u32, at as u32);
        self.block = Some(block);
    }
}

/// A [`Walk`] together with its table.
#[derive(Debug)]
pub struct Cursor<'m, 'b> {
    table: Table<'m, 'b>,
    walk: Walk,
}

impl<'m, 'b> Cursor<'m, 'b> {
    /// Returns a cursor before the first item.
    #[must_use]
    pub fn new(table: Table<'m, 'b>, reads: Reads) -> Self {
        Self { table, walk: Walk::new(reads) }
    }

    /// Returns the item of this step; `None` at an end.
    fn shown<'s>(&'s self, step: Step<'s>) -> Option<Item<'s>> {
        match step {
            Step::Stored(item) => Some(item),
            Step::Unpacked => self.walk.item(),
            Step::End => None,
        }
    }

    /// Like [`Walk::next`].
    ///
    /// # Errors
    /// Those of [`Walk::next`].
    #[inline]
    pub fn next(&mut self) -> Result<Option<Item<'_>>> {
        let step = self.walk.next(&self.table)?;
        Ok(self.shown(step))
    }
}

#[cfg(test)]
impl Cursor<'_, '_> {
    /// Like [`Walk::seek`].
    ///
    /// # Errors
    /// Those of [`Walk::seek`].
    pub fn seek(&mut self, position: SeekPosition<'_>) -> Result<()> {
        self.walk.seek(&self.table, position)
    }

    /// Moves after the last item.
    pub fn seek_to_last(&mut self) {
        self.walk.restart(self.table.meta.blocks);
    }

    /// Like [`Walk::prev`].
    ///
    /// # Errors
    /// Those of [`Walk::prev`].
    #[inline]
    pub fn prev(&mut self) -> Result<Option<Item<'_>>> {
        let step = self.walk.prev(&self.table)?;
        Ok(self.shown(step))
    }
}
