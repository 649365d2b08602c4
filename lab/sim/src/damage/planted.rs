//! Planted faults that only damage shows.

use lodestore_media::PlantedFault;

use super::model::Violation;
use super::{CaseId, Config, Progress, Report, explore};
use crate::subject::Engine;

/// Returns the first case that breaks the rule with the planted fault and not without it.
/// `without` is the report of the same exploration without a fault.
pub fn seen_case(
    engine: &dyn Engine,
    config: &Config,
    mutant: PlantedFault,
    without: &Report,
    progress: Option<&Progress>,
) -> Option<(CaseId, Violation)> {
    let config = Config { mutant: Some(mutant), stops: false, ..config.clone() };
    let with = explore(engine, &config, progress);
    with.broken.into_iter().find(|(id, _)| !without.broken.contains_key(id))
}
