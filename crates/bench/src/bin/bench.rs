//! The bench as a program of its own, whose exit code is 0 or 1; `lodestore bench` is the same with the exit codes of docs/cli.md.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;

/// Measures stores side by side.
#[derive(Debug, Parser)]
#[command(version, about)]
struct Cli {
    #[command(flatten)]
    given: lodestore_bench::Given,
}

fn main() -> ExitCode {
    match lodestore_bench::run(Cli::parse().given) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}
