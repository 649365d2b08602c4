//! The write-ahead log: its entries and batch records, its segments with their reader, and the
//! writer of the logs of a generation.

pub(crate) mod entry;
pub(crate) mod segment;
pub(crate) mod writer;
