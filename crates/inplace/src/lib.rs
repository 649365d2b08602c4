//! What the engines that change their medium in place have in common. An engine is an index that names records; all that does not depend
//! on how the index is built is here.
//!
//! | file | what it holds |
//! |---|---|
//! | `base` | the state that every such store has, beginning an operation, storing and persisting a record |
//! | `begin` | making a store, or finding that it was made |
//! | `copy` | the stripes that a copy of the whole store holds |
//! | `engine` | what an engine adds to it, and the operations that follow from that |
//! | `options` | the options that all have |
//! | `record` | a key with its value on the medium |
//! | `recovery` | how far the recovery behind the open is, and its threads |
//! | `seal` | the checksums that a clean stop stores and the next open compares |
//! | `running` | from opening to closing: the threads behind the operations |
//! | `testing` | (feature) what the tests of the engines share |
#![forbid(unsafe_code)]

mod base;
mod begin;
mod copy;
mod engine;
pub mod options;
mod record;
mod recovery;
mod running;
mod seal;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(any(test, feature = "testing"))]
mod testing_sink;

pub use base::{Base, Counted, Operation, Stored, lock, random_seed};
pub use begin::{Begun, Shape};
pub use copy::HeldStripes;
pub use engine::{Decide, Engine, PIECE_BYTES, Quick, Step, When, note_finding};
pub use record::{Head, Record, copied_key, record_len};
pub use recovery::{Recovery, share_out};
pub use running::{Behind, Running};
pub use seal::{Seal, SealCheck, SealedExtent};
