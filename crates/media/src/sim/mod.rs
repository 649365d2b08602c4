//! The crash simulator: what a medium may hold after a power cut.
//!
//! A simulated pool keeps its regions in heap memory and tells each verb to a [`Recorder`], which
//! keeps a [`Trace`] of [`Event`]s at 8-byte grain. A [`LineModel`] replays a trace and knows, at every
//! moment, which images of the medium a crash could leave; a [`CrashSet`] is that set at one crash point,
//! from which all images or a sample are taken.
//!
//! ## The model
//! * A line is `grain` bytes: 64 for the processor's cache, 512 for the sectors of an ordinary file between two
//!   `msync` calls. Each line keeps the ordered list of 8-byte stores since it was last flushed *and* fenced.
//! * A flush of a line covers the stores made to it so far. The next fence of the same thread makes
//!   the covered stores durable; stores after the flush stay pending.
//! * At a crash each line holds its durable bytes and *any prefix* of its pending list, whatever the other
//!   lines hold: the cache may write a line back at any time, and stores to one line become durable in their order
//!   (x86-TSO). Eight bytes never tear; a 16-byte swap is two words, which may tear.
//! * The words of one bulk store (a copy, or non-temporal stores) have no order among themselves within
//!   a line: besides the prefixes, the words taken from the end are tried.
//! * The values file beside the regions has rules of its own, at the head of `file.rs`.
//!
//! This is stricter than the platforms are (`msync` also covers what was stored after the flush), never laxer.
//!
//! Built with the feature `sim` only.

mod crash_set;
mod event;
mod file;
mod fork;
mod image;
mod model;
mod recorder;
mod rng;
#[cfg(test)]
mod tests;

pub use crash_set::{Choice, CrashSet, LineChoices};
pub use event::{Event, Trace, Verb, What};
pub use file::{BrokenPlace, FailingCall, FileCall, FileFault, VALUES};
pub use fork::{Forked, exit_now, fork, wait_for};
pub use image::{DropSite, SimImage, SimSpec};
pub use model::LineModel;
pub use recorder::{Log, Recorder, Watch};
pub use rng::Rng;

/// Bytes of a cache line.
pub const LINE: u32 = 64;
/// Bytes of a sector: what a disk writes whole.
pub const SECTOR: u32 = 512;
