//! Sorted tables: immutable runs of items with unique ascending keys, read in place. The code works
//! on bytes alone: no pool, no I/O. The format is in `docs/format/fluidkv.md`, section "Tables".
//!
//! ```text
//! | header | data blocks ... | index (heads, tops, blocks, checksums) | filter | first, last key |
//! ```
//!
//! A [`TableBuilder`] receives items in ascending order and returns the bytes of a table.
//! [`TableMeta`] is the part of each table that the engine keeps in DRAM. With the bytes it makes a
//! [`Table`]. A `get` reads one filter line, a few index lines at most, and a part of one block. A
//! [`Walk`] iterates over a table in both directions, and borrows nothing between two steps.
//!
//! Blocks may be compressed, each by itself (`compress.rs`). Items of such a block are borrowed
//! from its plain bytes: a get keeps them in its [`Slot`], a walk in its own buffer, one block at a
//! time. Nothing else holds plain bytes, and there is no cache of them.
//!
//! Every checksum is seeded with the table's *identity*, a number that no other table has. Bytes
//! left by an earlier table at the same place therefore never pass as this one's.
//!
//! Nothing here panics, whatever the bytes are: each slice is checked.
//!
//! # Damage after the open
//! With [`Reads::Verified`] a read of damaged bytes returns the right item, the right absence, or
//! an error:
//! * **A get that finds the key** compares the item's check, which is seeded with the table's
//!   identity. Keys are unique within a table, so it does not matter which bytes led the search
//!   there.
//! * **A get that does not find the key** compares the checksum of the block where it searched, and
//!   then the order: the key is not below the block's first key, and not above the next block's.
//!   Nothing of the index is trusted.
//! * **A filter line that says "absent"** is believed if its check is right. Otherwise the blocks
//!   are searched.
//! * **A walk** compares the checksum of each block that it enters. A block's checksum covers its
//!   number and its shape, so a walk cannot skip a block. A seek checks the order as a get does.
//!
//! Each check has 32 bits: random damage passes with a probability of 2^-32.

mod block;
mod builder;
mod compress;
mod cursor;
mod filter;
mod format;
mod index;
mod reader;
mod verify;

#[cfg(test)]
mod tests;

#[cfg(test)]
pub use builder::Built;
pub use builder::TableBuilder;
pub use compress::Slot;
pub use cursor::{Cursor, SeekPosition, Step, Walk};
pub use format::TableMeta;
pub use reader::{Block, Table};
pub use verify::verify;

/// Returns the hash of a key for a table's filter and blocks: XXH3, 64 bits. The caller computes it
/// once per operation.
#[must_use]
#[inline]
pub fn hash(key: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(key)
}

/// The kind of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ItemKind {
    /// A key with its value.
    Value,
    /// A deleted key, without a value.
    Tombstone,
    /// A key whose value is stored elsewhere; the item's value is its location, and opaque here.
    Pointer,
}

/// A key with its newest version in a table. Borrowed from a table's bytes, or the input of a
/// builder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Item<'a> {
    /// The key, 1 byte to 64 KiB.
    pub key: &'a [u8],
    /// The kind of the item.
    pub kind: ItemKind,
    /// When it expires, in milliseconds after 1970.
    pub expiry: Option<u64>,
    /// The value, or its location.
    pub value: &'a [u8],
}

/// Whether a read verifies the checksums of the bytes that it reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reads {
    /// Reads verify no checksum.
    Trusted,
    /// Reads verify each checksum that their answer depends on.
    Verified,
}

/// How tables are built. Tables with different options may coexist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableOptions {
    /// Maximum bytes of a data block; a larger item has its own block. 256 bytes to 64 KiB.
    pub block_bytes: usize,
    /// Bytes at which a table is full. 4 KiB to 256 MiB.
    pub table_bytes: usize,
    /// Filter bits per key; 0 for no filter, at most 24.
    pub filter_bits: u8,
    /// Whether to compress blocks that shrink by an eighth or more.
    pub compress: bool,
}

impl Default for TableOptions {
    /// For byte-addressed media: blocks of 1 KiB, tables of 1 MiB, 10 bits per key.
    fn default() -> Self {
        Self { block_bytes: 1 << 10, table_bytes: 1 << 20, filter_bits: 10, compress: false }
    }
}
