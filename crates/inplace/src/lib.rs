//! Common base of the engines that update their medium in place.
//!
//! Layer 2a. An engine is an index that names records. This crate has everything that does not
//! depend on the structure of the index: records, begin and end of operations, recovery threads,
//! seals.
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
//! * [`options`]: checks of options that all engines have.
//! * `record`: a key with its value on the medium.
//! * `base`, `begin`: shared state and operations; creation or detection of a store.
//! * `lock`: locks that stay usable after a panic.
//! * `recovery`: progress of the background recovery, and helper threads of a rebuild.
//! * `engine`: the interface of an engine, and the operations built on it.
//! * `seal`: checksums of the index from a clean stop.
//! * `stripe`: writer locks.
//! * `copy`: stripes that a copy of the whole store holds.
//! * `running`: background threads from open to close; the run of the recovery.
//! * `testing_sink`, `testing` (feature): test utilities of the engines.
#![forbid(unsafe_code)]

mod base;
mod begin;
mod copy;
mod engine;
mod lock;
pub mod options;
mod record;
mod recovery;
mod running;
mod seal;
mod stripe;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(any(test, feature = "testing"))]
mod testing_sink;

pub use base::{Base, Counted, Operation, Quick, Stored, random_seed};
pub use begin::{Begun, Shape};
pub use copy::HeldStripes;
pub use engine::{Decide, Engine, PIECE_BYTES, Step, When, note_finding};
pub use lock::lock;
pub use record::{Head, OwnField, Record, copied_key, record_len};
pub use recovery::{Recovery, share_out};
pub use running::{Behind, Running};
pub use seal::{Seal, SealCheck, SealedExtent};
pub use stripe::{Held, StripeContent, StripeIndex, Stripes};
