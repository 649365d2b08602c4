//! Common base of the engines that update their medium in place.
//!
//! Layer 2a. An engine is an index that names records. This crate has everything that does not
//! depend on the structure of the index: the open store ([`OpenStore`]), reads and writes, records,
//! writer locks, recovery threads, seals. An engine implements [`Engine`], [`Index`], [`Reads`],
//! [`Writes`], [`Batches`] and [`StoreEngine`].
//!
//! # Guarantees
//! * A record is written whole, out of place, and never changes after the index names it.
//!   [`Base::fence_before_publish`] refuses publication if a sync has failed.
//! * While an [`Operation`] exists, no data that it accesses is reused, `close` waits, and events
//!   are queued.
//! * A write into a full store is retried once, after waiting space was freed.
//! * A store after a clean stop is compared with its seal. After any other end it is recovered.
//! * A closed store, a store inherited by a fork, and writes to a poisoned store return typed
//!   errors.
//!
//! # Modules
//! * [`options`]: checks of options that all in-place engines have.
//! * `record`: a key with its value on the medium.
//! * `base`, `begin`: shared state and operations; creation or detection of a store.
//! * `careful`: the check of misses after damage.
//! * `stripe`: writer locks.
//! * [`planted`]: planted faults.
//! * `recovery_progress`: progress of the background recovery, and helper threads of a rebuild.
//! * `engine`: the life of an engine's state, its DRAM budget, its sweep.
//! * `full_store`: what a write does when the medium is full.
//! * `index`: how an engine finds keys, and the walk over all of them.
//! * `read`, `write`, `batch`: operations on single keys; batches.
//! * `seal`: checksums of the index from a clean stop.
//! * `copy`: copies of the whole store during writes.
//! * `verify`: the parts of a verification that do not depend on the index.
//! * `running`: background threads from open to close; the run of the recovery.
//! * `store`: the open store, with the operations of the contract.
//! * `testing_sink`, `testing` (feature): test utilities of the engines.
#![forbid(unsafe_code)]

mod base;
mod batch;
mod begin;
mod careful;
mod copy;
mod engine;
mod full_store;
mod index;
pub mod options;
#[doc(hidden)]
pub mod planted;
mod read;
mod record;
mod recovery_progress;
mod running;
mod seal;
mod store;
mod stripe;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(any(test, feature = "testing"))]
mod testing_sink;
mod verify;
mod write;

pub use base::{Base, BatchInProgress, BoxedResult, Operation, Stored, random_seed};
pub use batch::{Batches, ItemOf, RequiredOf};
pub use begin::{LoadedShape, Shape};
pub use careful::{CarefulMode, FirstDamage};
pub use engine::{Engine, PIECE_BYTES};
pub use index::{Found, FoundIn, Index, Target, TargetOf, WALK_POSITION_COUNT, unvouched};
pub use read::Reads;
pub use record::{Head, OwnField, Record, copied_key, record_len};
pub use recovery_progress::{Recovery, share_out};
pub use running::{BackgroundPlan, Running};
pub use seal::{Seal, SealCheck, SealedExtent};
pub use store::{OpenStore, StoreEngine};
pub use stripe::{Held, StripeIndex, Stripes};
pub use verify::{note_finding, verify_index, verify_pool};
pub use write::{Locked, Writes};
