//! Walks over a table in order, both ways.

use std::cmp::Ordering;

use lodestore_contract::Result;

use super::block::View;
use super::read::{Block, Table};
use super::{Item, Reads};

/// A place between two items of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place<'k> {
    /// Before the first item.
    Start,
    /// Before this key, whether the table has it or not.
    Before(&'k [u8]),
    /// Behind this key, whether the table has it or not.
    After(&'k [u8]),
    /// Behind the last item.
    End,
}

/// What a step came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step<'b> {
    /// An item, where it stands in the table.
    Stored(Item<'b>),
    /// An item of a compressed block: [`Walk::item`] has it until the next step.
    Unpacked,
    /// There is no more item this way.
    End,
}

/// A place between two items of a table, to step from either way. It borrows nothing: each step is given the table, always the same one.
/// Another table gives other items, or none, and nothing worse. Of a compressed block it has the plain bytes while it stands there.
#[derive(Debug)]
pub struct Walk {
    reads: Reads,
    /// The block whose items stand before or behind the place, if it was looked at.
    block: Option<Block>,
    /// Its number, or that of the block to look at next.
    number: u32,
    /// Its items, and how many of them stand before the place.
    count: u32,
    at: u32,
    /// The plain bytes of `block`, if that is compressed, and which of its items the last step came to.
    plain: Vec<u8>,
    shown: u32,
}

impl Walk {
    /// A walk from before the first item.
    #[must_use]
    pub const fn new(reads: Reads) -> Self {
        Self { reads, block: None, number: 0, count: 0, at: 0, plain: Vec::new(), shown: 0 }
    }

    /// Goes before block `number`, of this table or another.
    pub fn restart(&mut self, number: u32) {
        *self = Self { number, plain: std::mem::take(&mut self.plain), ..Self::new(self.reads) };
    }

    /// The item that the last step came to, if that said [`Step::Unpacked`].
    #[must_use]
    #[inline]
    pub fn item(&self) -> Option<Item<'_>> {
        let block = self.block.as_ref().filter(|block| block.is_compressed())?;
        View::counted(&self.plain, block.shape, self.count as usize).item(self.shown as usize)
    }

    /// What a step in a compressed block comes to, whose item `at` it is.
    fn unpacked(&mut self, table: &Table<'_, '_>, at: u32) -> Result<Step<'static>> {
        self.shown = at;
        match (self.item(), &self.block) {
            (None, Some(block)) => Err(table.broken(block)),
            _ => Ok(Step::Unpacked),
        }
    }

    /// Goes to a place.
    ///
    /// # Errors
    /// [`lodestore_contract::Error::Corrupt`]; the walk is then behind the block that cannot be read, or at the start where it is not known which
    /// one that is.
    pub fn seek(&mut self, table: &Table<'_, '_>, place: Place<'_>) -> Result<()> {
        self.restart(0);
        let (key, behind) = match place {
            Place::Start => return Ok(()),
            Place::End => {
                self.number = table.meta.blocks;
                return Ok(());
            }
            Place::Before(key) => (key, false),
            Place::After(key) => (key, true),
        };
        let block = match table.locate(key)? {
            Some(block) => block,
            None => table.block(0)?,
        };
        self.number = block.number + 1;
        let view = table.view_in(&block, self.reads, &mut self.plain)?;
        // The index says where a key is only if the key begins as all keys of the table do.
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

    /// The item behind the place, which then is behind it.
    ///
    /// # Errors
    /// [`lodestore_contract::Error::Corrupt`]; the next call goes on behind the item or block that cannot be read.
    #[inline]
    pub fn next<'b>(&mut self, table: &Table<'_, 'b>) -> Result<Step<'b>> {
        loop {
            if let Some(block) = &self.block {
                if self.at < self.count {
                    if block.is_compressed() {
                        self.at += 1;
                        return self.unpacked(table, self.at - 1);
                    }
                    let view = View::counted(
                        table.bytes.get(block.range()).unwrap_or_default(),
                        block.shape,
                        self.count as usize,
                    );
                    let item = view.item(self.at as usize);
                    self.at += 1;
                    return item.map(Step::Stored).ok_or_else(|| table.broken(block));
                }
                self.number += 1;
                self.block = None;
            }
            if self.number >= table.meta.blocks {
                return Ok(Step::End);
            }
            let number = self.number;
            self.number += 1;
            let (block, count) = self.look_at(table, number)?;
            self.enter(block, count, 0);
        }
    }

    /// Visits the items behind the place, in order, until there is none or `visit` says false; whether the end was reached. As
    /// [`next`](Self::next) again and again, and quicker.
    ///
    /// # Errors
    /// As [`next`](Self::next).
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
            // Here the block is used up: the next one, as a step does it.
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

    /// The item before the place, which then is before it.
    ///
    /// # Errors
    /// [`lodestore_contract::Error::Corrupt`]; the next call goes on before the item or block that cannot be read.
    #[inline]
    pub fn prev<'b>(&mut self, table: &Table<'_, 'b>) -> Result<Step<'b>> {
        loop {
            if let Some(block) = &self.block {
                if self.at > 0 {
                    self.at -= 1;
                    if block.is_compressed() {
                        return self.unpacked(table, self.at);
                    }
                    let view = View::counted(
                        table.bytes.get(block.range()).unwrap_or_default(),
                        block.shape,
                        self.count as usize,
                    );
                    return view.item(self.at as usize).map(Step::Stored).ok_or_else(|| table.broken(block));
                }
                self.block = None;
            }
            let Some(number) = self.number.min(table.meta.blocks).checked_sub(1) else { return Ok(Step::End) };
            self.number = number;
            let (block, count) = self.look_at(table, number)?;
            self.enter(block, count, count);
        }
    }

    /// A block, whose plain bytes are those of this walk then, and how many items it has.
    fn look_at(&mut self, table: &Table<'_, '_>, number: u32) -> Result<(Block, usize)> {
        let block = table.block(number as usize)?;
        let view = table.view_in(&block, self.reads, &mut self.plain)?;
        Ok((block, view.count()))
    }

    fn enter(&mut self, block: Block, count: usize, at: usize) {
        self.number = block.number;
        // No block has as many as 2^32 items, since none has as many bytes.
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
    /// A cursor before the first item.
    #[must_use]
    pub fn new(table: Table<'m, 'b>, reads: Reads) -> Self {
        Self { table, walk: Walk::new(reads) }
    }

    /// The item that this step came to; none at an end.
    fn shown<'s>(&'s self, step: Step<'s>) -> Option<Item<'s>> {
        match step {
            Step::Stored(item) => Some(item),
            Step::Unpacked => self.walk.item(),
            Step::End => None,
        }
    }

    /// As [`Walk::next`].
    ///
    /// # Errors
    /// As [`Walk::next`].
    #[inline]
    pub fn next(&mut self) -> Result<Option<Item<'_>>> {
        let step = self.walk.next(&self.table)?;
        Ok(self.shown(step))
    }
}

#[cfg(test)]
impl Cursor<'_, '_> {
    /// As [`Walk::seek`].
    ///
    /// # Errors
    /// As [`Walk::seek`].
    pub fn seek(&mut self, place: Place<'_>) -> Result<()> {
        self.walk.seek(&self.table, place)
    }

    /// Goes behind the last item.
    pub fn seek_to_last(&mut self) {
        self.walk.restart(self.table.meta.blocks);
    }

    /// As [`Walk::prev`].
    ///
    /// # Errors
    /// As [`Walk::prev`].
    #[inline]
    pub fn prev(&mut self) -> Result<Option<Item<'_>>> {
        let step = self.walk.prev(&self.table)?;
        Ok(self.shown(step))
    }
}
