//! Adaptive migration (FluidKV, PVLDB 2024): which thread flushes and compacts, when, and how
//! writers are throttled.
//!
//! Rule: a frozen memtable is flushed before anything is compacted. A range is compacted when its
//! buffered bytes reach `buffer-percent` of its stable bytes, or when it has `runs-max` runs. The
//! stable bytes count as at least an eighth of a full range. Of several such ranges, the one
//! furthest beyond its trigger is compacted first.
//!
//! `background/governor.rs` decides from measurements how many workers may do this. It also scales
//! the trigger by bytes, but not the one by runs.
//!
//! While there are no writes, migration serves reads (the paper's read-optimised and read-only
//! modes). A memtable that is worth a flush is frozen, and ranges are compacted at an eighth of
//! their trigger by bytes. After a long time without writes, everything is flushed and compacted:
//! reads find all data in one place, and DRAM is freed. An occasional write thus causes no rewrite
//! of ranges.
//!
//! Garbage of the value log is collected (`background/gc.rs`) when its share exceeds
//! `value-garbage`. The collection has priority if it is further beyond its trigger than any range.
//! A segment without live bytes is collected first: each of its keys is looked up, but nothing is
//! moved.
//!
//! Further tasks, by priority:
//! * If nothing else is due, a range without runs is compacted if it has many small tables
//!   (`background/compact.rs`).
//! * If that is not due either, two neighbouring ranges with little data are joined
//!   (`version/range.rs` has the limits).
//! * If the reserve lacks free space, the largest range is halved, if the split costs less space
//!   than it saves (`background/compact.rs`).
//!
//! `background/policy.rs` chooses by these rules, and `background/worker.rs` runs the task.
//! `background/reclaim.rs` runs everything that is due at once (`settle`: flush and compact).
//!
//! If a task lacks space while others run, it is retried *alone*, and so are all later tasks, until
//! the reserve is whole. The reserve holds the space of one task (`space/reserve.rs`).
//!
//! Writers are throttled to the speed of flushes once one memtable waits in addition to the one
//! that is being flushed (`background/throttle.rs`). Writers are stalled when the memtables have
//! used up their share of the DRAM budget, until one is flushed. `stats` reports how often and how
//! long.
//!
//! A failed task waits until it may succeed (`background/failures.rs`), and `settle` reports the
//! failure.
//!
//! Invariants
//! 1. One thread flushes at a time, the oldest memtable first. One thread at a time compacts or
//!    joins a range. One thread collects. A flush that finds other ranges at its end than at its
//!    beginning is built again. A thread that works on a range holds it (`busy.ranges`). A range is
//!    split by its holder alone. A thread that splits a range that has waited for its split holds
//!    the range until the view shows its halves.
//! 2. No thread waits here while it holds a stripe or the publisher's lock. The lock of `busy` is
//!    acquired after the publisher's lock, never before it.
//! 3. The count of waiting memtables, and whether writers are stalled, are read and changed under
//!    the publisher's lock. The count never exceeds its maximum, and the last count recorded is the
//!    last one published. A count that came late would stall writers for a flush that no thread has
//!    to make.

pub(crate) mod compact;
mod failed_reclaim;
pub(crate) mod failures;
pub(crate) mod flush;
mod gc;
pub(crate) mod governor;
pub(crate) mod merge_expired;
mod policy;
mod reclaim;
mod rotate;
pub(crate) mod scheduler;
mod separate;
mod table_writer;
pub(crate) mod throttle;
mod worker;

use std::time::Duration;

pub(crate) use reclaim::RECLAIM_TIMEOUT;
pub(crate) use rotate::Rotation;

/// Longest time that a writer waits before it checks again.
const WRITER_WAIT_TIMEOUT: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests;
