//! The `lodestore` program: stores, from a shell.
//!
//! Every failure is one line on standard error with advice, and an exit code (`lodestore --help`,
//! docs/cli.md). Layer 5: the program uses the library `lodestore`.
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
            Err(Failure::Usage("no command given; see lodestore --help".into()))
        }
        Err(error) => Err(Failure::Usage(usage_line(&error))),
    }
}
