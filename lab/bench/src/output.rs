//! A run with its output: what is printed, and the pictures.

use lodestore_contract::{Error, Result};

use crate::args::Args;
use crate::args::preset::Given;
use crate::plot;
use crate::plot::timeline;
use crate::report;
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

/// Prints and draws the results.
fn tell(args: &Args, findings: &Findings) -> Result<()> {
    let out = std::io::stdout().lock();
    let printed = if args.json { report::json(args, findings, out) } else { report::table(args, findings, out) };
    printed.map_err(|source| Error::io("printing the results", "", source))?;
    if args.json {
        // A table includes this itself.
        let failed = |label: &str| findings.failed.contains_key(label);
        args.unordered(|label| !failed(label)).iter().for_each(|line| eprintln!("{line}"));
    }
    if let Some(file) = &args.plot {
        match &args.sweep {
            Some(sweep) => plot::sweep::draw(args, sweep, findings, file)?,
            None => plot::draw(args, findings, file)?,
        }
    }
    if let Some(file) = &args.plot_latency {
        plot::latency::draw(args, findings, file)?;
    }
    if let Some(file) = &args.plot_memory {
        plot::memory::draw(args, findings, file)?;
    }
    args.timeline.iter().try_for_each(|file| timeline::write(args, findings, file))
}
