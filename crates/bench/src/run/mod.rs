//! A run: rounds over the stores, each store in a process of its own (a cell), what drives and
//! watches it there, and what is cleaned up behind it.
//!
//! * Of the process that is started: `session` (rounds and turns), `process` (the cells that it
//!   starts), `scratch`, `control_group` and `prefault` (directories, limits and memory for them).
//! * Of a cell: `cell` (load and workloads), `store` and `target` (the store it makes), `driver`
//!   (serving threads), `reopen`, `stall` (a store that makes no headway), `watch` (what is looked
//!   at beside).
//! * What is found: `phase` and `outcome` (of a workload), `pauses`, `failure`, `procfs` (what the
//!   kernel counts).

pub(crate) mod cell;
pub(crate) mod control_group;
pub(crate) mod driver;
pub(crate) mod failure;
pub(crate) mod outcome;
pub(crate) mod pauses;
pub(crate) mod phase;
pub(crate) mod prefault;
pub(crate) mod process;
pub(crate) mod procfs;
pub(crate) mod reopen;
pub(crate) mod scratch;
pub(crate) mod session;
pub(crate) mod stall;
pub(crate) mod store;
pub(crate) mod target;
pub(crate) mod watch;
