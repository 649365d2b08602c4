//! `backup` and `restore`.

use std::path::Path;

use lodestore::backup::{BackupInfo, BackupPhase, BackupProgress};

use super::{object, wait_recovered, with_opened};
use crate::args::{BackupArgs, RestoreArgs};
use crate::failure::Outcome;
use crate::out::Out;
use crate::progress::{ProgressBar, Unit};

/// Pairs between two moves of the progress bar.
const BAR_STEP_RECORDS: u64 = 1024;

/// Moves a bar. Its length and text follow the present phase.
fn show(bar: &ProgressBar, progress: BackupProgress) {
    if progress.pairs.is_multiple_of(BAR_STEP_RECORDS) {
        bar.set_length(progress.total);
        bar.set_position(progress.pairs);
        bar.set_message(if progress.phase == BackupPhase::Verifying { "verifying" } else { "copying" });
    }
}

/// Makes a backup of a store, and writes its contents' size.
pub fn backup(args: &BackupArgs) -> Outcome {
    with_opened(&args.store, false, |opened, out| {
        wait_recovered(&opened.store)?;
        let bar = ProgressBar::new("backup", Some(opened.db.approximate_len()), Unit::Records);
        let info = opened.db.backup_with(&args.directory, &mut |progress| show(&bar, progress))?;
        bar.finish_and_clear();
        let paths = [&*args.store.store, &*args.directory];
        opened.run_and_print_damage(out, |out| report(out, args.store.json, ("backup", "backed up"), paths, &info))
    })
}

/// Makes a store from a backup, and writes its contents' size.
pub fn restore(args: &RestoreArgs) -> Outcome {
    let bar = ProgressBar::new("restore", Some(0), Unit::Records);
    let info = lodestore::backup::restore(&args.directory, &args.store, &mut |progress| show(&bar, progress))?;
    bar.finish_and_clear();
    let mut out = Out::new();
    report(&mut out, args.json, ("restore", "restored"), [&args.directory, &args.store], &info)?;
    out.flush()
}

/// Writes the result of a copy from one directory to the other.
fn report(
    out: &mut Out,
    is_json: bool,
    (op, done): (&'static str, &str),
    [from, to]: [&Path; 2],
    info: &BackupInfo,
) -> Outcome {
    if !is_json {
        let (from, to) = (from.display(), to.display());
        return out.line(format!("{done} {from} to {to}: {} pairs, engine {}", info.pairs, info.engine));
    }
    out.json(object([
        ("op", op.into()),
        ("from", from.to_string_lossy().into()),
        ("to", to.to_string_lossy().into()),
        ("engine", info.engine.clone().into()),
        ("pairs", info.pairs.into()),
        ("source", info.source.map(|source| format!("{source:016x}")).into()),
        ("time_ms", info.time_millis.into()),
        ("version", info.version.clone().into()),
    ]))
}
