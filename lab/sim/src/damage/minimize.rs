//! Smaller cases with the same kind of violation.

use lodestore_media::PlantedFault;
use lodestore_media::sim::Rng;

use super::fault::{Fault, kind_of};
use super::plan::Planner;
use super::{Case, Failure, base, map, run_case, scripts, spec, structures};
use crate::subject::Engine;

/// Maximum runs of a minimization.
const RUNS_MAX: usize = 400;
/// Damages tried on a shorter history.
const DAMAGE_COUNT: u64 = 24;

struct Minimizer<'a> {
    engine: &'a dyn Engine,
    mutant: Option<PlantedFault>,
    failure: Failure,
    runs: usize,
}

/// Returns a failure of the same breach with fewer damages and fewer operations.
pub fn minimize(engine: &dyn Engine, failure: &Failure, mutant: Option<PlantedFault>) -> Failure {
    let mut minimizer = Minimizer { engine, mutant, failure: failure.clone(), runs: 0 };
    minimizer.drop_work();
    minimizer.drop_faults();
    minimizer.drop_ops();
    minimizer.drop_faults();
    minimizer.failure
}

impl Minimizer<'_> {
    /// Keeps `case` if it breaks the rule in the same way.
    fn try_case(&mut self, case: &Case) -> bool {
        self.runs += 1;
        match run_case(self.engine, case, self.mutant) {
            Err(violation) if violation.breach == self.failure.violation.breach => {
                self.failure = Failure { case: case.clone(), violation, ..self.failure.clone() };
                true
            }
            _ => false,
        }
    }

    fn drop_work(&mut self) {
        let mut case = self.failure.case.clone();
        case.effort.ops = 0;
        if self.try_case(&case) {
            case.effort.again = false;
            self.try_case(&case);
            return;
        }
        let mut ops = self.failure.case.effort.ops;
        while ops > 1 {
            ops /= 2;
            case.effort.ops = ops;
            if !self.try_case(&case) {
                break;
            }
        }
    }

    fn drop_faults(&mut self) {
        let mut at = 0;
        while at < self.failure.case.faults.len() && self.failure.case.faults.len() > 1 {
            let mut case = self.failure.case.clone();
            case.faults.remove(at);
            if !self.try_case(&case) {
                at += 1;
            }
        }
    }

    /// Removes operations, the largest ranges first.
    fn drop_ops(&mut self) {
        let mut len = self.failure.case.history.ops.len() / 2;
        while len > 0 && self.runs < RUNS_MAX {
            let mut at = 0;
            while at + len <= self.failure.case.history.ops.len() && self.runs < RUNS_MAX {
                let mut case = self.failure.case.clone();
                case.history.ops.drain(at..at + len);
                if case.history.ops.is_empty() || !(self.try_case(&case) || self.try_similar(&case)) {
                    at += len;
                }
            }
            len /= 2;
        }
    }

    /// Tries damage of the same kind to the same structure at other offsets, because a shorter
    /// history moves every record.
    fn try_similar(&mut self, case: &Case) -> bool {
        let Ok(base) = base::build(self.engine, &spec(self.mutant), &case.history, case.history_seed) else {
            return false;
        };
        let parts = map::map_of(&base.image, self.engine.name());
        let planner = Planner::new(&base, &parts, scripts::page_bytes(self.engine, case.history.shape));
        let is_similar = |faults: &[Fault]| {
            kind_of(faults) == kind_of(&case.faults) && structures(&parts, faults) == self.failure.structures
        };
        let found: Vec<Vec<Fault>> = (0..40 * DAMAGE_COUNT)
            .filter_map(|index| planner.damage(&mut Rng::part(case.history_seed, index), None))
            .map(|(faults, _)| faults)
            .filter(|faults| is_similar(faults))
            .take(DAMAGE_COUNT as usize)
            .collect();
        found.into_iter().any(|faults| self.try_case(&Case { faults, ..case.clone() }))
    }
}
