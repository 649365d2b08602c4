//! The contract of every Lodestore engine: the [`Store`] trait and its types.
//!
//! The contract includes errors, limits, durability levels, options, statistics and events. The
//! feature `conformance` adds the test suite that every engine passes.
//!
//! Layer 0: every other crate may import this one.
//!
//! # Guarantees
//! Every engine promises:
//! * All methods of [`Store`] may be called from any thread.
//! * Operations on one key are linearizable.
//! * An acknowledged write survives the failures that the store's [`Durability`] names.
//! * A batch is applied completely or not at all, also across a crash.
//! * A refused write changes nothing. After [`Error::Poisoned`] or [`Error::Io`], the next open may
//!   find a write applied or not. [`Error::TooFewDevices`] states whether its write is in doubt.
//! * An engine without a capability ([`Capabilities`]) refuses its operations with
//!   [`Error::Unsupported`].
//! * The text of each error is one line and states the remedy.
//!
//! The crate itself performs no I/O except in test support, has no threads of its own, and contains
//! no `unsafe` code.
//!
//! # Modules
//! * `event`, `metric`, `size`: events, named statistics, sizes as text.
//! * `bounds`, [`limits`]: limits of keys, values and batches, and their checks.
//! * `expiry`, `range`, `entry`: expiry of keys, scan ranges, found pairs.
//! * `error`, `durability`: error type; durability levels by survived failures.
//! * [`options`](mod@options): engine options as text, and the macro that declares them.
//! * `verify`, `scrub`: verification reports; background scrub.
//! * `stats`, `openmetrics`: statistics of a store, also as OpenMetrics text.
//! * `condition`, `capability`: conditions of puts and batches; optional capabilities of engines.
//! * [`copy`]: copies of a whole store during writes.
//! * `store`: the traits of stores and snapshots, batches and scans.
//! * `threads`: locks; thread starts that the system may refuse.
//! * `testing`, `conformance` (features): test support; test suite of all engines.
#![forbid(unsafe_code)]
#![warn(missing_debug_implementations)]

mod bounds;
mod capability;
mod condition;
#[cfg(feature = "conformance")]
#[expect(missing_debug_implementations, reason = "a harness needs no text")]
pub mod conformance;
pub mod copy;
mod durability;
mod entry;
mod error;
mod event;
mod expiry;
pub mod limits;
mod metric;
mod openmetrics;
pub mod options;
mod range;
#[doc(hidden)]
pub mod scrub;
mod size;
mod stats;
mod store;
#[cfg(feature = "testing")]
pub mod testing;
#[doc(hidden)]
pub mod threads;
mod verify;

pub use capability::Capabilities;
pub use condition::{Commit, Condition, Expected, PutWhen, RangeCondition};
pub use durability::Durability;
pub use entry::{Entry, EntryChunk, Pair};
pub use error::{Error, HiddenKeys, Result, io_advice};
pub use event::{Event, EventSink, FoundBy, PoisonReason};
#[cfg(feature = "conformance")]
pub use expiry::set_clock_ahead;
pub use expiry::{Expiry, Lifetime, now_millis};
pub use metric::{EngineCounters, EngineStatistics, Metric, MetricKind, Unit};
pub use openmetrics::{OPENMETRICS_TYPE, StoreStats, openmetrics};
pub use options::{OptionKind, OptionSpec, OptionTable, Options};
pub use range::{Direction, ScanRange};
pub use scrub::ScrubStats;
pub use size::{format_size, parse_size};
pub use stats::{MediumUse, RecoveryState, SegmentWear, Stats, Wear};
pub use store::{Batch, BatchOp, Change, ChangeFn, Scan, Snapshot, Store, Swap, Visit};
pub use verify::{Finding, Progress, VerifyReport};
