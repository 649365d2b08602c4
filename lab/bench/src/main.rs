//! The `lodestore-bench` program: measures and compares stores.
#![forbid(unsafe_code)]

use std::io::ErrorKind;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use lodestore::Error;

/// This program's version, and its commit if it was built in a checkout.
const PROGRAM: &str = env!("LODESTORE_PROGRAM");

/// The table of exit codes in `--help`.
const EXIT_CODES: &str = "\
Exit codes:
   0  done
   2  bad arguments or options
   6  a store or the medium is full
   8  any other failure, such as one of the operating system
   9  the medium cannot give the durability asked for
  13  experiments that were asked measured nothing (evaluate)";

/// Measures and compares key-value stores.
#[derive(Debug, Parser)]
#[command(name = "lodestore-bench", version, about, after_help = EXIT_CODES)]
struct Cli {
    /// The command.
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure an engine and other stores
    Run(Box<lodestore_bench::Given>),
    /// Run the whole comparison, experiment after experiment, and write the rows of each
    Evaluate(lodestore_bench::Evaluate),
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Run(given) => lodestore_bench::run(*given).map(|()| Vec::new()),
        Command::Evaluate(args) => lodestore_bench::evaluate(&args, PROGRAM),
    };
    match done {
        Ok(unmeasured) if unmeasured.is_empty() => ExitCode::SUCCESS,
        Ok(unmeasured) => {
            eprintln!(
                "lodestore-bench: {} measured nothing: see why in the line of each, mend it, and run them again with --only {}",
                unmeasured.join(", "),
                unmeasured.join(",")
            );
            ExitCode::from(13)
        }
        // The reader of the output has closed the pipe.
        Err(Error::Io { source, .. }) if source.kind() == ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            let text = lodestore_bench::translate(&error.to_string());
            eprintln!("lodestore-bench: {}", text.replace(['\n', '\r'], " "));
            ExitCode::from(code_of(&error))
        }
    }
}

/// Returns the exit code of an error.
fn code_of(error: &Error) -> u8 {
    let is_of_room =
        |source: &std::io::Error| matches!(source.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded);
    match error {
        Error::KeyLength { .. } | Error::ValueLength { .. } | Error::BatchLength { .. } => 2,
        Error::Unsupported { .. } | Error::InvalidOption { .. } => 2,
        Error::Full { .. } | Error::NoRoom { .. } | Error::IndexFull { .. } | Error::DramBudget { .. } => 6,
        Error::Io { source, .. } if is_of_room(source) => 6,
        Error::DurabilityRefused { .. } | Error::WeakerMedium { .. } | Error::MachineRestarted { .. } => 9,
        _ => 8,
    }
}
