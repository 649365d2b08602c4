//! The contract of every Lodestore engine: the [`Store`] trait, its errors, limits, durability
//! levels, options, statistics and events, and (feature `conformance`) the suite that every engine
//! passes.
//!
//! Floor 0 of the crate graph: no I/O, no threads of its own, no `unsafe`. Every other crate may
//! import it.
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
pub use condition::{Commit, Condition, Expected, RangeCondition};
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
