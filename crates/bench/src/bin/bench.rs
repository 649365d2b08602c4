//! The bench as a program of its own; `lodestore bench` is the same.
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
