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
//! Whatever the bytes are, nothing here panics: each slice is checked.
//!
//! # Damage after the open With [`Reads::Verified`] a read of damaged bytes returns the right item,
//! the right absence, or an error:
//! * **A get that finds the key** compares the item's check, which is seeded with the table's
//!   identity. Keys are unique within a table, so it does not matter which bytes led the search
//!   there.
//! * **A get that does not find the key** compares the checksum of the block where it searched, and
//!   then the order: the key is not below the block's first key, and not above the next block's. So
//!   nothing of the index is trusted.
//! * **A filter line that says "absent"** is believed if its check is right. Otherwise the blocks
//!   are asked.
//! * **A walk** compares the checksum of each block that it enters. A block's checksum covers its
//!   number and its shape, so a walk cannot pass over a block. A seek checks the order as a get
//!   does.
//!
//! Each check has 32 bits: random damage passes with a probability of 2^-32.

mod block;
mod builder;
mod filter;
mod head;
mod layout;
mod pack;
mod read;
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

/// Whether a read compares the checksums of what it reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reads {
    /// A read compares none.
    Trusted,
    /// A read compares each checksum that its answer depends on.
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
