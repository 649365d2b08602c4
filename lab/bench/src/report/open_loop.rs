//! The result of an open loop.

use serde::{Deserialize, Serialize};

use crate::run::phase::Phase;
use crate::workload::open_loop::Pace;

/// Final share of a schedule. In it, every thread of a store that keeps up is on time at least
/// once.
const END_RATIO: f64 = 0.1;

/// The result of an open loop.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct OpenLoop {
    /// Requested operations per second, of all threads together.
    pub(crate) asked_per_s: u64,
    /// Completed operations per second, the median of the rounds.
    pub(crate) reached_per_s: f64,
    /// The kind of arrivals.
    pub(crate) arrivals: String,
    /// Whether each thread was on time at least once in the last tenth of its schedule, in every
    /// round: the queue did not grow.
    pub(crate) kept_up: bool,
    /// Maximum over the rounds of the time from the last due time until all operations were done,
    /// in seconds.
    pub(crate) behind_s: f64,
}

impl OpenLoop {
    /// Returns the operations per second of a phase. Its last operation takes at least until the
    /// next one would be due. A store that keeps up therefore reaches the requested rate, and
    /// exceeds it only by chance with random arrivals.
    pub(crate) fn rate(pace: Pace, phase: &Phase) -> f64 {
        phase.ops as f64 / phase.wall_s.max(phase.due_s + 1.0 / pace.rate as f64)
    }

    /// Returns the result of a workload's phases, which reached this rate.
    pub(crate) fn of(pace: Pace, phases: &[Phase], reached_per_s: f64) -> Self {
        let behind = |phase: &Phase| (phase.wall_s - phase.due_s).max(0.0);
        Self {
            asked_per_s: pace.rate,
            reached_per_s,
            arrivals: pace.arrivals.name().into(),
            kept_up: phases.iter().all(|phase| phase.late_for_s <= phase.due_s * END_RATIO),
            behind_s: phases.iter().map(behind).fold(0.0, f64::max),
        }
    }
}
