//! Faults of the toy.

use lodestore_media::sim::Source;
use lodestore_media::{PlantedFault, source};

const SOURCE: Source = source!("src/toy.rs");
/// The length is published before the data.
pub const LENGTH_FIRST: PlantedFault = PlantedFault::new("ToyLengthFirst");
/// The data is not flushed.
pub const DATA_NOT_FLUSHED: PlantedFault = PlantedFault::at(
    "ToyDataNotFlushed",
    &[SOURCE.line_after("fn append(&mut self", "recorder.flush(0, at, bytes.len()").without_flush()],
);
/// The length is not fenced.
pub const LENGTH_NOT_FENCED: PlantedFault = PlantedFault::at(
    "ToyLengthNotFenced",
    &[SOURCE.line_after("fn publish(&mut self", "recorder.fence()").without_fence()],
);
/// Recovery appends data that it has already appended.
pub const RECOVERY_TWICE: PlantedFault = PlantedFault::new("ToyRecoveryTwice");

/// Faults that an exploration of crashes sees.
pub const OF_CRASHES: &[PlantedFault] = &[LENGTH_FIRST, DATA_NOT_FLUSHED, LENGTH_NOT_FENCED, RECOVERY_TWICE];
