//! `verify`.

use lodestore::stats::{Finding, format_size};
use serde_json::json;

use super::{object, wait_recovered, with_opened};
use crate::advice::translate;
use crate::args::VerifyArgs;
use crate::failure::{Failure, Outcome};
use crate::out::thousands;
use crate::progress::{ProgressBar, Unit};

/// Reads and checks everything.
pub fn run(args: &VerifyArgs) -> Outcome {
    with_opened(&args.store, args.salvage, |opened, out| {
        let store = &opened.store;
        wait_recovered(store)?;
        let bar = ProgressBar::new("verifying", Some(0), Unit::Records);
        let mut report = store.verify(&mut |progress| {
            bar.set_length(progress.total);
            bar.set_position(progress.done);
        })?;
        bar.finish_and_clear();
        let corrupt = store.stats().recovery.corrupt;
        // The engine reports the remaining findings. Recovery may have left out damage that no walk
        // finds.
        if report.is_clean() && corrupt > 0 {
            report.find("recovery", format!("recovery found {corrupt} damaged entries, records or places"));
        }
        let path = args.store.store.display().to_string();
        let text_of = |finding: &Finding| translate(&finding.what, &[&path]).into_owned();
        if args.store.json {
            let shown = |finding: &Finding| json!({"place": finding.place, "what": text_of(finding)});
            let findings: Vec<_> = report.findings.iter().map(shown).collect();
            out.json(object([
                ("records", report.records.into()),
                ("bytes", report.bytes.into()),
                ("clean", report.is_clean().into()),
                ("findings", findings.into()),
            ]))?;
        } else {
            for finding in &report.findings {
                out.line(format!("{}: {}", finding.place, text_of(finding)))?;
            }
            out.line(format!(
                "checked {} records, {}: {}",
                thousands(report.records),
                format_size(report.bytes),
                if report.is_clean() { "clean".to_owned() } else { format!("{} damaged", report.findings.len()) }
            ))?;
        }
        match report.is_clean() {
            true => Ok(()),
            false => Err(Failure::Findings { count: report.findings.len(), salvage: args.salvage }),
        }
    })
}
