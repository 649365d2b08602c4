//! NVHT engine (Journal of Parallel and Distributed Computing, 2018): one persistent hash table for
//! point access with little DRAM.
//!
//! The table is stored entirely on the medium, and an open reads no records. An open reads eight
//! bytes for each chunk of the medium. After a clean stop it also reads the allocator's occupancy
//! and, once and in order, the tables, to compare them with the stop's seal.
//!
//! The persist order of each operation is in the module docs of `write`, `growth` and `batch`.
//! `docs/crash.md` proves each order by case.
//!
//! # Guarantees
//! * Single-key operations are durably linearizable. A batch is one step, to readers and across a
//!   crash.
//! * There is no order, and thus no scan; `for_each` shows every key once.
//! * Readers acquire no lock, except the key's stripe while a batch is published.
//! * DRAM usage is fixed, except for the allocator's bitmaps.
//!
//! After damage to tables or records a read returns the right value or an error. A key that damage
//! may have hit is an error until it is put again. Two cases cannot be detected. A line or page of
//! a killed store may hold its content from earlier in the same run. A slot may name an older
//! record with a checksum that agrees in 11 bits. Bits of a tag that change on the medium while the
//! store is open are found by `verify` and by the next open.
//!
//! # Modules
//! * `murmur3`, `hash`: MurmurHash3; the values derived from a key's hash.
//! * `slot`, `line`, `record`, `layout`: bytes on the medium.
//! * `options`, `stripe`: options; writer locks.
//! * `table`, `partition`: linear-probing tables; mapping of keys to growing tables.
//! * `reconcile`: reconciliation of a line's check after a crash.
//! * `open_store`, `stats`: shared state of an open store; statistics.
//! * `lookup`: lookups in possibly damaged tables.
//! * `read`, `write`, `batch`: operations on single keys; batches.
//! * `walk`, `sweep`: walks, removal of expired keys.
//! * `growth`: growth without stopping.
//! * `recover`, `growth_repair`, `verify`: recovery while serving; repairs of an open;
//!   verification.
//! * [`planted`]: planted faults.
//! * `store`: opening and stop.
#![forbid(unsafe_code)]

mod batch;
mod growth;
mod growth_repair;
mod hash;
mod layout;
mod line;
mod lookup;
mod murmur3;
mod open_store;
mod options;
mod partition;
#[doc(hidden)]
pub mod planted;
mod read;
mod reconcile;
mod record;
mod recover;
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
