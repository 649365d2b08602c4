//! NVHT (Journal of Parallel and Distributed Computing, 2018): a hash table stored entirely on the
//! medium, for point access with little DRAM and an open that reads no records. An open reads eight
//! bytes for each chunk of the medium. After a clean stop it also reads the allocator's occupancy
//! and, once and in order, the tables, to compare them with the stop's seal.
//!
//! Modules:
//!
//! | file | contents |
//! |---|---|
//! | `store` | opening, closing, the contract's operations |
//! | `inner`, `options` | shared state, and its setup |
//! | `layout`, `slot`, `line`, `record` | bytes on the medium |
//! | `hash`, `murmur3`, `table`, `search`, `partition`, `stripe` | tables: lookups, locking |
//! | `resize` | growing without stopping |
//! | `read`, `write`, `batch`, `walk`, `sweep` | the operations |
//! | `copy` | copies of the whole store while it is written |
//! | `recover`, `repair`, `settle`, `verify` | recovery of a store, and its verification |
//!
//! The persist order of each operation is in the module docs of `write`, `resize` and `batch`.
//! `docs/crash.md` proves each order by case.
//!
//! # Guarantees
//! Single-key operations are durably linearizable. A batch is one step, to readers and across a
//! crash. There is no order, and thus no scan; `for_each` shows every key once. DRAM usage is
//! fixed, except for the allocator's bitmaps.
//!
//! After damage to tables or records a read returns the right value or an error. A key that damage
//! may have hit is an error until it is put again. Two cases cannot be detected. A line or page of
//! a killed store may hold its content from earlier in the same run. A slot may name an older
//! record with a checksum that agrees in 11 bits. Bits of a tag that change on the medium while the
//! store is open are found by `verify` and by the next open.
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
mod repair;
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
