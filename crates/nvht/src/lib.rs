//! NVHT (Journal of Parallel and Distributed Computing, 2018): one hash table wholly on the medium,
//! for point access with next to no DRAM and an open that reads no records: eight bytes for each
//! chunk of the medium, and after a clean stop the allocator's occupancy and, once and in order,
//! the tables, to compare them with the stop's seal.
//!
//! Rooms:
//!
//! | file | what it holds |
//! |---|---|
//! | `store` | opening, closing, the contract's operations |
//! | `inner`, `options` | what all of it shares, and how it is set up |
//! | `layout`, `slot`, `line`, `record` | bytes on the medium |
//! | `hash`, `murmur3`, `table`, `search`, `partition`, `stripe` | the table: placing, finding, which table, locking |
//! | `resize` | growing without stopping |
//! | `read`, `write`, `batch`, `walk`, `sweep` | the operations |
//! | `copy` | copies of the whole store while it is written |
//! | `recover`, `settle`, `verify` | from bytes to a whole store, and checking one |
//!
//! Persist order of each operation: the heads of `write`, `resize` and `batch`; docs/crash.md argues them by case.
//!
//! # What it promises
//! Single-key operations are durably linearizable, and a batch is one step, to readers and over a crash. There is no order, so no scan;
//! `for_each` shows every key once. What is in DRAM is of a fixed size, but for the allocator's bitmaps.
//!
//! After damage to the tables or records a read returns the right value or an error. A key that
//! damage may have hit is an error until it is put again. Two cases cannot be found: a line or page
//! that a killed store holds as it was earlier in the same run, and a slot that names an older
//! record whose checksum agrees in 11 bits. Bits of a tag that change on the medium while the store
//! is open are found by `verify` and by the next open.
#![forbid(unsafe_code)]

mod batch;
mod copy;
mod hash;
mod inner;
mod layout;
mod line;
mod murmur3;
mod options;
mod partition;
mod read;
mod record;
mod recover;
mod resize;
mod search;
mod settle;
mod slot;
mod stats;
mod store;
mod stripe;
mod sweep;
mod table;
mod verify;
mod walk;
mod write;

pub use hash::HashKind;
pub use layout::{ENGINE, FORMAT};
pub use options::{NvhtOptions, NvhtSettings};
pub use stats::NvhtStats;
pub use store::Nvht;
