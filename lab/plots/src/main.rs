//! The `lodestore-plots` program: makes pages of the bench's results.
#![forbid(unsafe_code)]

use std::fs;
use std::io::Result;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Makes pages of the results of lodestore-bench.
#[derive(Debug, Parser)]
#[command(name = "lodestore-plots", version, about)]
struct Cli {
    /// The command.
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Write the page of each experiment, and their index
    Pages {
        /// The directory that `lodestore-bench evaluate --out` named.
        dir: PathBuf,
    },
}

fn main() -> ExitCode {
    let Command::Pages { dir } = Cli::parse().command;
    match write_pages(&dir) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lodestore-plots: {}: {error}", dir.display());
            ExitCode::FAILURE
        }
    }
}

fn write_pages(dir: &Path) -> Result<()> {
    let made = lodestore_plots::pages(dir)?;
    made.iter().try_for_each(|(name, text)| write(dir, name, text))
}

/// Writes a file. The file gets its name when it is complete.
fn write(dir: &Path, name: &str, text: &str) -> Result<()> {
    let part = dir.join(format!(".{name}.part"));
    let written = fs::write(&part, text).and_then(|()| fs::rename(&part, dir.join(name)));
    if written.is_err() {
        // A partial file would keep a full medium full. If the removal fails, the file does not
        // exist.
        let _ = fs::remove_file(&part);
    }
    written
}
