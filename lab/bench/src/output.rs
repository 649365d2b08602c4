//! A run with its output: what is printed, and the timeline.

use lodestore_contract::{Error, Result};

use crate::args::Args;
use crate::args::preset::Given;
use crate::report;
use crate::report::timeline;
use crate::run::session::{self, Findings};

/// Runs the bench, and prints the results. A run that fails prints its earlier results.
///
/// # Errors
/// [`Error::InvalidOption`] for arguments that cannot be run; errors of a store; a wrong or missing
/// answer as [`Error::Corrupt`]. If the run continues after failures and every store failed, the
/// first error.
pub fn run(given: Given) -> Result<()> {
    session::run(given, tell)
}

/// Prints the results, and writes the timeline.
fn tell(args: &Args, findings: &Findings) -> Result<()> {
    let out = std::io::stdout().lock();
    let printed = if args.json { report::json(args, findings, out) } else { report::table(args, findings, out) };
    printed.map_err(|source| Error::io("printing the results", "", source))?;
    if args.json {
        // A table includes this itself.
        let failed = |label: &str| findings.failed.contains_key(label);
        args.unordered(|label| !failed(label)).iter().for_each(|line| eprintln!("{line}"));
    }
    args.timeline.iter().try_for_each(|file| timeline::write(findings, file))
}
