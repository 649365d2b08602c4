//! Persistent bytes: pools of mapped regions, flushes and fences, allocation, and epochs.
//!
//! Layer 1. A [`Pool`] is the mapped regions of one store, its two-copy header and its lock. Its
//! verbs are the only access to a medium, except for its [`BlockFile`]. This values file is read
//! and written by calls, and mapped for reading at most. [`NvPtr`] is a position in a pool. The
//! [`Allocator`] allocates extents and records; [`Epochs`] guards their reuse. [`probe`](probe())
//! reports the real type of a medium.
//!
//! # Guarantees
//! * No other crate of the workspace writes a store's pairs to a medium.
//! * Flushed bytes are durable after the next fence of the same thread, at the pool's durability.
//! * A failed sync poisons the pool, which refuses writes until it is reopened.
//! * A crash leaves at least one intact copy of a pool's header.
//! * At most one open at a time holds a store, within a process and between processes.
//! * Retired space is reused only when no guard of its time is left. After a crash, recovery frees
//!   all space that the engine does not mark as reachable.
//! * Verbs acquire no lock, and may be called from any thread.
//! * The owner's event sink is called under no lock.
//!
//! `unsafe` is allowed here; each use cites an invariant of SAFETY.md.
//!
//! # Modules
//! * `x86`: flushes, fences, non-temporal copies and 16-byte atomics.
//! * `nvptr`, `little_endian`, `crc`: pool positions, stored numbers, CRC32C.
//! * `slot`, `counters`, `mutex`: thread slots, operation counts, locks after a panic.
//! * `boot`, `open_state`: boot identity, state of an open.
//! * `fault`, [`planted`]: planted faults, those of the pool.
//! * `gather`: record writes from parts.
//! * `latency`, `no_latency`: emulated latency (feature `lab`), or none.
//! * `simulated`, `not_simulated`: observer of the verbs and memory of a simulated pool (feature
//!   `sim`), or their stand-ins. `blocks/not_sim` and `fault/no_site` are stand-ins too.
//! * `region`, [`region_layout`]: mappings and address translation; offsets within a region.
//! * `options`: pool options.
//! * `header`, `region_header`, `header_writes`: headers on the medium, and their writes.
//! * `file_names`, `store_dir`, `files`: names of files, store directory, its files.
//! * `lock`: one process per store.
//! * `probe`, `fill_rate`: real type of a medium; fill rate of a pool.
//! * `memory`: reads, writes, flushes and fences, by persist policy.
//! * `pool`, `verbs`, `words`: the pool, and access to it.
//! * `events`: reports to the owner, outside all locks.
//! * `panic_guard`: poisons a pool if work on it panics.
//! * [`epoch`]: reuse of space after its last reader.
//! * [`alloc`]: extents from buddy trees; records from slabs.
//! * `batch_log`: redo logs for atomic writes of several words.
//! * [`blocks`]: the values file.
//! * `create`, `open`, `destroy`: creation, opening and removal.
//! * `background`: background growth, prefaulting and file removal.
//! * `sim`, `fuzz` (feature): crash simulator; entry points for fuzz targets.

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
compile_error!("lodestore runs only on Linux on x86-64: x86.rs has the code that depends on the processor");

pub mod alloc;
mod background;
mod batch_log;
pub mod blocks;
mod boot;
mod counters;
mod crc;
mod create;
mod destroy;
pub mod epoch;
mod events;
mod fault;
mod file_names;
mod files;
mod fill_rate;
#[cfg(feature = "sim")]
#[doc(hidden)]
pub mod fuzz;
mod gather;
mod header;
mod header_writes;
#[cfg_attr(not(feature = "lab"), path = "no_latency.rs")]
mod latency;
mod little_endian;
mod lock;
mod memory;
mod mutex;
mod nvptr;
mod open;
mod open_state;
mod options;
mod panic_guard;
#[doc(hidden)]
pub mod planted;
mod pool;
mod probe;
mod region;
mod region_header;
pub mod region_layout;
#[cfg(feature = "sim")]
pub mod sim;
#[cfg_attr(not(feature = "sim"), path = "not_simulated.rs")]
mod simulated;
mod slot;
mod store_dir;
mod verbs;
mod words;
mod x86;

pub use alloc::{Allocator, AllocatorUse, ExtentKind, SweepReport};
pub use batch_log::{BatchLogs, BatchTurn, Word};
pub use blocks::{BlockCounts, BlockFile, BlockOptions, Blocks};
pub use crc::{crc32c, crc32c_seeded};
pub use create::CreatedPool;
pub use destroy::{Removal, StoreFile, store_files, store_holder};
pub use epoch::{Epochs, Guard};
pub use events::{Quiet, own_work};
pub use fault::PlantedFault;
pub use file_names::NOTE_FILES;
pub use header::POOL_FORMAT;
pub use little_endian::{u32_at, u64_at};
pub use nvptr::NvPtr;
pub use open::HeaderSummary;
pub use open_state::OpenState;
pub use options::{ENGINE_NAME_MAX, PoolOptions, PoolSettings, Prefault, RegionShare};
pub use panic_guard::PoisonOnPanic;
pub use pool::{OpenReport, Pool};
pub use probe::{MediumKind, MediumReport, file_bytes_limit, probe};
pub use region_layout::{MAX_REGIONS, RegionLayout};
pub use slot::{MAX_SLOTS, slots_used, thread_slot};
pub use store_dir::StoreDir;
pub use x86::{FlushInstruction, flush_instruction, has_cmpxchg16b, prefetch_bytes, prefetch_value};
