//! The write-ahead log: its entries and batch records, its segments with their writer and reader,
//! and group commit.

pub(crate) mod entry;
pub(crate) mod reader;
pub(crate) mod segment;
pub(crate) mod shared_log;
pub(crate) mod writer;
