//! Shared parts of the engines that change their medium in place. An engine is an index that names
//! records. This crate has everything that does not depend on the structure of the index.
//!
//! | file | contents |
//! |---|---|
//! | `base` | shared state of a store; begin of an operation; storing and persisting a record |
//! | `begin` | creating a store, or detecting an existing one |
//! | `copy` | the stripes that a copy of the whole store holds |
//! | `engine` | the interface of an engine, and the operations built on it |
//! | `lock` | locks that stay usable after a panic |
//! | `options` | options that all engines have |
//! | `record` | a key with its value on the medium |
//! | `recovery` | progress of the background recovery; helper threads of a rebuild |
//! | `seal` | the checksums that a clean stop stores and the next open compares |
//! | `running` | background threads from open to close; the run of the recovery |
//! | `testing` | (feature) shared test utilities of the engines |
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
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(any(test, feature = "testing"))]
mod testing_sink;

pub use base::{Base, Counted, Operation, Quick, Stored, random_seed};
pub use begin::{Begun, Shape};
pub use copy::HeldStripes;
pub use engine::{Decide, Engine, PIECE_BYTES, Step, When, note_finding};
pub use lock::lock;
pub use record::{Head, Record, copied_key, record_len};
pub use recovery::{Recovery, share_out};
pub use running::{Behind, Running};
pub use seal::{Seal, SealCheck, SealedExtent};
