//! The crash simulator: the possible content of a medium after a power cut.
//!
//! A simulated pool keeps its regions in heap memory and reports each verb to a [`Recorder`], which
//! keeps a [`Trace`] of [`Event`]s at 8-byte grain. A [`LineModel`] replays a trace and knows, at
//! every moment, which images of the medium a crash could leave. A [`CrashSet`] is that set at one
//! crash point; all its images or a sample can be drawn from it.
//!
//! ## The model
//! * A line is `grain` bytes: 64 for the processor's cache, 512 for the sectors of a regular file
//!   between two `msync` calls. Each line keeps the ordered list of 8-byte stores since it was last
//!   flushed *and* fenced.
//! * A flush of a line covers the stores made to it so far. The next fence of the same thread makes
//!   the covered stores durable; stores after the flush stay pending.
//! * At a crash each line holds its durable bytes and *any prefix* of its pending list,
//!   independently of the other lines. The cache may write a line back at any time, and stores to
//!   one line become durable in their order (x86-TSO). Eight bytes never tear; a 16-byte swap is
//!   two words, which may tear.
//! * The words of one bulk store (a copy, or non-temporal stores) are unordered within a line.
//!   Besides the prefixes, the model tries the words from the end.
//! * The values file next to the regions has its own rules; see the head of `file.rs`.
//!
//! The model is stricter than the platforms (`msync` also covers stores made after the flush),
//! never laxer.
//!
//! Built with the feature `sim` only.

mod changes;
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

pub use crate::fault::site::{Change, Site, Source};
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
/// Bytes of a sector: the unit that a disk writes atomically.
pub const SECTOR: u32 = 512;
