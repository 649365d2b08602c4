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

/// A place between two items of a table, to step from either way. It borrows nothing: each step is given the table, always the same one.
/// Another table gives other items, or none, and nothing worse.
#[derive(Debug, Clone, Copy)]
pub struct Walk {
    reads: Reads,
    /// The block whose items stand before or behind the place, if it was looked at.
    block: Option<Block>,
    /// Its number, or that of the block to look at next.
    number: u32,
    /// Its items, and how many of them stand before the place.
    count: u32,
    at: u32,
}

impl Walk {
    /// A walk from before the first item.
    #[must_use]
    pub fn new(reads: Reads) -> Self {
        Self { reads, block: None, number: 0, count: 0, at: 0 }
    }

    /// Goes to a place.
    ///
    /// # Errors
    /// [`lodestore_contract::Error::Corrupt`]; the walk is then behind the block that cannot be read, or at the start where it is not known which
    /// one that is.
    pub fn seek(&mut self, table: &Table<'_, '_>, place: Place<'_>) -> Result<()> {
        *self = Self::new(self.reads);
        let (key, behind) = match place {
            Place::Start => return Ok(()),
            Place::End => {
                self.number = table.meta.blocks;
                return Ok(());
            }
            Place::Before(key) => (key, false),
            Place::After(key) => (key, true),
        };
        // Heads say where a key is only if it begins as all keys of the table do.
        let prefix = table.meta.prefix as usize;
        let shared = table.keys()?.0.get(..prefix).unwrap_or_default();
        let start = &key[..prefix.min(key.len())];
        match start.cmp(&shared[..start.len().min(shared.len())]) {
            Ordering::Greater => {
                self.number = table.meta.blocks;
                return Ok(());
            }
            Ordering::Equal if key.len() >= prefix => {}
            _ => return Ok(()),
        }
        let Some(block) = table.locate(key, self.reads)? else { return Ok(()) };
        self.number = block.number + 1;
        let view = table.view(&block, self.reads)?;
        let at = match view.search(key, prefix, block.guess as usize) {
            Ok(Ok(at)) => at + usize::from(behind),
            Ok(Err(at)) => at,
            Err(_) => return Err(table.broken(&block)),
        };
        self.enter(block, &view, at);
        Ok(())
    }

    /// The item behind the place, which then is behind it; none at the end.
    ///
    /// # Errors
    /// [`lodestore_contract::Error::Corrupt`]; the next call goes on behind the item or block that cannot be read.
    #[inline]
    pub fn next<'b>(&mut self, table: &Table<'_, 'b>) -> Result<Option<Item<'b>>> {
        loop {
            if let Some(block) = &self.block {
                if self.at < self.count {
                    let view = View::counted(
                        table.bytes.get(block.range()).unwrap_or_default(),
                        block.shape,
                        self.count as usize,
                    );
                    let item = view.item(self.at as usize);
                    self.at += 1;
                    return item.map(Some).ok_or_else(|| table.broken(block));
                }
                self.number += 1;
                self.block = None;
            }
            if self.number >= table.meta.blocks {
                return Ok(None);
            }
            let number = self.number;
            self.number += 1;
            let (block, view) = self.look_at(table, number)?;
            self.enter(block, &view, 0);
        }
    }

    /// Visits the items behind the place, in order, until there is none or `visit` says false; whether the end was reached. As
    /// [`next`](Self::next) again and again, and quicker.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    pub fn visit<'b>(&mut self, table: &Table<'_, 'b>, visit: &mut dyn FnMut(Item<'b>) -> bool) -> Result<bool> {
        loop {
            if let Some(block) = self.block {
                let bytes = table.bytes.get(block.range()).unwrap_or_default();
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
            match self.next(table)? {
                Some(item) if visit(item) => {}
                Some(_) => return Ok(false),
                None => return Ok(true),
            }
        }
    }

    /// The item before the place, which then is before it; none at the start.
    ///
    /// # Errors
    /// [`lodestore_contract::Error::Corrupt`]; the next call goes on before the item or block that cannot be read.
    #[inline]
    pub fn prev<'b>(&mut self, table: &Table<'_, 'b>) -> Result<Option<Item<'b>>> {
        loop {
            if let Some(block) = &self.block {
                if self.at > 0 {
                    self.at -= 1;
                    let view = View::counted(
                        table.bytes.get(block.range()).unwrap_or_default(),
                        block.shape,
                        self.count as usize,
                    );
                    return view.item(self.at as usize).map(Some).ok_or_else(|| table.broken(block));
                }
                self.block = None;
            }
            let Some(number) = self.number.min(table.meta.blocks).checked_sub(1) else { return Ok(None) };
            self.number = number;
            let (block, view) = self.look_at(table, number)?;
            self.enter(block, &view, view.count());
        }
    }

    fn look_at<'b>(&self, table: &Table<'_, 'b>, number: u32) -> Result<(Block, View<'b>)> {
        let block = table.block(number as usize)?;
        let view = table.view(&block, self.reads)?;
        Ok((block, view))
    }

    fn enter(&mut self, block: Block, view: &View<'_>, at: usize) {
        self.number = block.number;
        // No block has as many as 2^32 items, since none has as many bytes.
        (self.count, self.at) = (view.count() as u32, at as u32);
        self.block = Some(block);
    }
}

/// A [`Walk`] together with its table, for tests.
#[cfg(test)]
#[derive(Debug, Clone, Copy)]
pub struct Cursor<'m, 'b> {
    table: Table<'m, 'b>,
    walk: Walk,
}

#[cfg(test)]
impl<'m, 'b> Cursor<'m, 'b> {
    /// A cursor before the first item.
    #[must_use]
    pub fn new(table: Table<'m, 'b>, reads: Reads) -> Self {
        Self { table, walk: Walk::new(reads) }
    }

    /// As [`Walk::seek`].
    ///
    /// # Errors
    /// As [`Walk::seek`].
    pub fn seek(&mut self, place: Place<'_>) -> Result<()> {
        self.walk.seek(&self.table, place)
    }

    /// Goes behind the last item.
    pub fn seek_to_last(&mut self) {
        self.walk = Walk { number: self.table.meta.blocks, ..Walk::new(self.walk.reads) };
    }

    /// As [`Walk::next`].
    ///
    /// # Errors
    /// As [`Walk::next`].
    #[inline]
    pub fn next(&mut self) -> Result<Option<Item<'b>>> {
        self.walk.next(&self.table)
    }

    /// As [`Walk::prev`].
    ///
    /// # Errors
    /// As [`Walk::prev`].
    #[inline]
    pub fn prev(&mut self) -> Result<Option<Item<'b>>> {
        self.walk.prev(&self.table)
    }
}
