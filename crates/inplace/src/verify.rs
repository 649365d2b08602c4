//! Verification of the whole store: the parts that do not depend on the index.

use lodestore_contract::{Error, Progress, Result, VerifyReport};

use crate::begin::Shape;
use crate::engine::Engine;

/// Verifies superblock and index of a store that may be in use. Returns whether its recovery has
/// succeeded.
///
/// # Errors
/// [`Error::Closed`], [`Error::ForeignProcess`].
pub fn verify_index<S: Shape>(
    engine: &impl Engine,
    shape: S,
    report: &mut VerifyReport,
    progress: &mut dyn FnMut(Progress),
) -> Result<bool> {
    drop(engine.enter()?);
    let recovered = engine.recovery.wait_done();
    if let Err(error) = &recovered {
        report.find("recovery", error.to_string());
    }
    match S::load(&engine.pool) {
        Ok(Some(found)) if found == shape => {}
        Ok(_) => report.find(format!("{} superblock", S::ENGINE), "the superblock changed since the store was opened"),
        Err(error) => note_finding(report, &error),
    }
    let partitions = engine.partition_count();
    for partition in 0..partitions {
        progress(Progress { done: partition as u64, total: partitions as u64 + 1 });
        engine.verify_partition(partition, &mut |piece| {
            report.add(piece);
            true
        })?;
    }
    Ok(recovered.is_ok())
}

/// Verifies batch logs and allocator, the last step of a verification.
pub fn verify_pool(engine: &impl Engine, report: &mut VerifyReport, progress: &mut dyn FnMut(Progress)) {
    engine.logs.verify(&engine.pool, report);
    engine.pool.allocator().verify(&engine.pool, report);
    let total = engine.partition_count() as u64 + 1;
    progress(Progress { done: total, total });
}

/// Adds an error to a report.
pub fn note_finding(report: &mut VerifyReport, error: &Error) {
    match error {
        Error::Corrupt { place, what, .. } => report.find(place.clone(), what.clone()),
        other => report.find("store", other.to_string()),
    }
}
