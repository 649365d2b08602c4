//! The `lodestore-plots` program: makes pages and plots of the bench's results.
#![forbid(unsafe_code)]

use std::fs;
use std::io::{self, Result};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use lodestore_plots::Kind;

/// Makes pages and plots of the results of lodestore-bench.
#[derive(Debug, Parser)]
#[command(name = "lodestore-plots", version, about)]
struct Cli {
    /// The command.
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Write the page and the plots of each experiment, and their index
    Pages {
        /// The directory that `lodestore-bench evaluate --out` named.
        dir: PathBuf,
    },
    /// Draw operations per second
    Rates(Files),
    /// Draw bytes written for each byte put
    Written(Files),
    /// Draw percentiles of latencies
    Latency(Files),
    /// Draw DRAM per key
    Memory(Files),
    /// Draw the progress of each store, of `lodestore-bench run --timeline`
    Timeline(Files),
    /// Draw the restarts of servers, of the bench's example `restart`
    Restart(Files),
}

#[derive(Debug, Args)]
struct Files {
    /// The results, or `-` for standard input: of `lodestore-bench run --json`, unless the command
    /// names another source.
    results: PathBuf,
    /// The picture, as SVG.
    svg: PathBuf,
}

fn main() -> ExitCode {
    let (kind, files) = match Cli::parse().command {
        Command::Pages { dir } => return exit_code(&dir, write_pages(&dir)),
        Command::Rates(files) => (Kind::Rates, files),
        Command::Written(files) => (Kind::Written, files),
        Command::Latency(files) => (Kind::Latency, files),
        Command::Memory(files) => (Kind::Memory, files),
        Command::Timeline(files) => (Kind::Timeline, files),
        Command::Restart(files) => (Kind::Restart, files),
    };
    let drawn = read(&files.results).and_then(|text| lodestore_plots::plot(kind, &text));
    match drawn {
        Ok(svg) => exit_code(&files.svg, fs::write(&files.svg, svg)),
        Err(error) => exit_code(&files.results, Err(error)),
    }
}

/// Reports an error of a file, and returns the exit code.
fn exit_code(path: &Path, done: Result<()>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lodestore-plots: {}: {error}", path.display());
            ExitCode::FAILURE
        }
    }
}

fn read(path: &Path) -> Result<String> {
    if path == Path::new("-") { io::read_to_string(io::stdin()) } else { fs::read_to_string(path) }
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
