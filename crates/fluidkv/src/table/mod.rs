//! Sorted tables: immutable runs of items with unique ascending keys, read where they lie. Code over bytes alone: no pool,
//! no I/O. The format is in `docs/format/fluidkv.md`, section "Tables".
//!
//! ```text
//! | header | data blocks ... | index: heads, tops, blocks, checksums | filter | least key, greatest key |
//! ```
//!
//! A [`TableBuilder`] takes items in ascending order and gives the bytes of a table. [`TableMeta`] is what the engine keeps in
//! DRAM of each table; with the bytes it makes a [`Table`], whose `get` touches one line of the filter, one or a few lines of
//! the index and a part of one block. A [`Walk`] goes over a table in order, both ways, and borrows nothing between two steps.
//!
//! Blocks may be compressed, each by itself (`pack.rs`). What is read of such a block is borrowed from its plain bytes: a get's in the
//! [`Slot`] that it is given, a walk's in a buffer of its own, one block at a time. Nothing else holds plain bytes; there is no cache of them.
//!
//! Every checksum is mixed with the table's *identity*, a number that the engine gives to no other table, so that bytes left by an
//! earlier table at the same place never pass for this one's.
//!
//! Whatever the bytes are, nothing here panics: each slice is checked. What was damaged after a table was opened is noticed by
//! [`Reads::Verified`] in blocks, by [`Reads::Once`] in those that were not read before, and by `verify` anywhere.

mod block;
mod builder;
mod filter;
mod head;
mod layout;
mod pack;
mod read;
mod seen;
mod verify;
mod walk;

#[cfg(test)]
mod tests;

#[cfg(test)]
pub use builder::Built;
pub use builder::TableBuilder;
pub use layout::TableMeta;
pub use pack::Slot;
pub use read::{Block, Table};
pub use seen::Seen;
pub use verify::verify;
pub use walk::{Cursor, Place, Step, Walk};

/// The hash of a key that a table's filter and blocks go by: XXH3, 64 bits. It is computed once per operation, by the caller.
#[must_use]
#[inline]
pub fn hash(key: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(key)
}

/// What an item is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ItemKind {
    /// A key with its value.
    Value,
    /// A key that was deleted; it has no value.
    Tombstone,
    /// A key whose value is kept elsewhere; the item's value says where and is opaque here.
    Pointer,
}

/// A key with what is known of it. It borrows from a table's bytes, or is what a builder is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Item<'a> {
    /// The key, 1 byte to 64 KiB.
    pub key: &'a [u8],
    /// What it is.
    pub kind: ItemKind,
    /// When it expires, in milliseconds after 1970.
    pub expiry: Option<u64>,
    /// The value, or where it is.
    pub value: &'a [u8],
}

/// Whether a read computes the checksums of the blocks that it reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reads {
    /// It does not.
    Trusted,
    /// It does where no read of this table before it did ([`Seen`]), and refuses a block whose checksum fails.
    Once,
    /// It does, and refuses a block whose checksum fails.
    Verified,
}

/// How tables are built. Tables of different options stand side by side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableOptions {
    /// Bytes of a data block, at most; a larger item has a block of its own. 256 bytes to 64 KiB.
    pub block_bytes: usize,
    /// Bytes at which a table is full. 4 KiB to 256 MiB.
    pub table_bytes: usize,
    /// Bits of the filter for each key; 0 for no filter, at most 24.
    pub filter_bits: u8,
    /// Whether blocks are compressed that shrink by an eighth or more.
    pub compress: bool,
}

impl Default for TableOptions {
    /// For byte-addressed media: blocks of 1 KiB, tables of 1 MiB, 10 bits a key.
    fn default() -> Self {
        Self { block_bytes: 1 << 10, table_bytes: 1 << 20, filter_bits: 10, compress: false }
    }
}
