//! A run: rounds over the stores, each store in a separate process (a cell), the code that drives
//! and watches the store there, and the cleanup.
//!
//! * In the main process: `session` (rounds and turns), `process` (starts cells), `scratch`,
//!   `control_group` and `prefault` (directories, limits and memory for cells).
//! * In a cell: `cell` (load and workloads), `store` (its store), `driver` (serving threads),
//!   `reopen`, `stall` (a store that makes no progress), `watch` (concurrent observation).
//! * Results: `phase` and `outcome` (of a workload), `pauses`, `failure`.

pub(crate) mod cell;
pub(crate) mod control_group;
pub(crate) mod driver;
pub(crate) mod failure;
pub(crate) mod outcome;
pub(crate) mod pauses;
pub(crate) mod phase;
pub(crate) mod prefault;
pub(crate) mod process;
pub(crate) mod reopen;
pub(crate) mod scratch;
pub(crate) mod session;
pub(crate) mod stall;
pub(crate) mod store;
pub(crate) mod watch;
