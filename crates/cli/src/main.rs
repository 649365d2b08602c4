//! The `lodestore` program: creates, reads, changes, converts and serves stores from a shell.
//!
//! Layer 5: the program uses the library `lodestore`. `docs/cli.md` describes all commands.
//!
//! # Guarantees
//! * A failed command writes one line with advice to standard error, and returns a documented exit
//!   code.
//! * Names, positions and meanings of arguments never change, because scripts depend on them.
//! * An output file appears under its name only after it is complete.
//! * A signal ends a long command in an orderly way: the command removes its unfinished files.
//!
//! # Modules
//! * `advice`, `failure`: advice with the program's flags; failures and exit codes.
//! * `base64`, `hex`, `text`: encodings of bytes as text.
//! * `stop_signal`, `new_file`: signals that end a command; files renamed when complete.
//! * `out`, `progress`: standard output or a file; the progress bar.
//! * `format`: record formats: JSON lines and tab-separated fields.
//! * `long_line`: piecewise decoding of long lines.
//! * `input`: read-ahead of an import, split into lines.
//! * `lmdb`, `rdb`: readers of LMDB data files and Redis snapshots.
//! * `sample`: the sample data set.
//! * `open_damage`: notes about damage that an open found.
//! * `args`: the grammar of the command line.
//! * `cmd`: the commands.
//! * `fuzzed` (tests): fuzz targets of the import formats.
#![forbid(unsafe_code)]

mod advice;
mod args;
mod base64;
mod cmd;
mod failure;
mod format;
#[cfg(test)]
mod fuzzed;
mod hex;
mod input;
mod lmdb;
mod long_line;
mod new_file;
mod open_damage;
mod out;
mod progress;
mod rdb;
mod sample;
mod stop_signal;
mod text;

use std::process::ExitCode;
use std::sync::OnceLock;
use std::time::Instant;

use clap::Parser;
use clap::error::ErrorKind;

use crate::failure::{Failure, Outcome, usage_line};

/// The start time of the program.
static BEGUN: OnceLock<Instant> = OnceLock::new();

fn main() -> ExitCode {
    BEGUN.get_or_init(Instant::now);
    // A file size limit is a reported error (EFBIG), not a silent end.
    let unread = std::sync::Arc::default();
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, unread);
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.report();
            ExitCode::from(failure.code())
        }
    }
}

fn run() -> Outcome {
    match args::Cli::try_parse() {
        Ok(cli) => cmd::run(cli.command),
        Err(error) if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => {
            error.print().map_err(Failure::Output)
        }
        Err(error) if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            Err(Failure::Usage("no command was given; see lodestore --help".into()))
        }
        Err(error) => Err(Failure::Usage(usage_line(&error))),
    }
}
