//! The write-ahead log: its entries and batch records, and its segments with their reader.

pub(crate) mod entry;
pub(crate) mod segment;
