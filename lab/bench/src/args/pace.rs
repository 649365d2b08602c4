//! The pace of an open loop, from the arguments.

use crate::args::Args;
use crate::workload::Workload;
use crate::workload::open_loop::Pace;

impl Args {
    /// Returns the pace of a workload; `None` if it runs at full speed, as the load always does.
    pub(crate) fn pace(&self, workload: Workload) -> Option<Pace> {
        let rate = self.rate.filter(|_| workload != Workload::Load)?;
        Some(Pace { rate, arrivals: self.arrivals, seed: self.seed })
    }
}
