//! Compares Redis-protocol servers and memcached: requests per second, and CPU time of the server
//! for each request.
//!
//! `cargo build --release -p lodestore-cli`, then `cargo run --release -p lodestore-bench --example
//! servers`
//!
//! Load and servers share the processors. All servers run one after the other in each round. The
//! tables show the medians of all rounds, with the minimum and the maximum.

mod load;
mod open_loop;
mod report;
mod servers;
mod wire;

use std::collections::BTreeMap;
use std::error::Error;
use std::path::PathBuf;

use clap::Parser;

use load::{Cell, Operation, Transport};
use report::Sample;
use servers::{Kind, Running};

type AnyResult<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Compares servers over one machine's sockets.
#[derive(Debug, Clone, Parser)]
pub(crate) struct Args {
    /// The program `lodestore`.
    #[arg(long, default_value = "target/release/lodestore")]
    program: PathBuf,
    /// A directory in memory (tmpfs), for stores at `process` and for sockets.
    #[arg(long, default_value = "/dev/shm")]
    dir: PathBuf,
    /// A directory on a disk, for stores that survive a power failure.
    #[arg(long, default_value = "/tmp")]
    disk: PathBuf,
    /// Rounds.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Seconds of each cell.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Keys that are loaded.
    #[arg(long, default_value_t = 100_000)]
    keys: usize,
    /// Seed of the keys' order.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only servers whose name contains one of these texts.
    #[arg(long, value_delimiter = ',')]
    servers: Vec<String>,
    /// Only rows whose name contains one of these texts.
    #[arg(long, value_delimiter = ',')]
    rows: Vec<String>,
    /// Event loops of lodestore; 0 for one for each processor. Redis has one.
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Measure the open loop too: latency at half of the highest rate of Redis.
    #[arg(long)]
    open_loop: bool,
}

/// The rows of the comparison in memory.
fn cells() -> Vec<Cell> {
    let mut cells = Vec::new();
    for operation in [Operation::Get, Operation::Set] {
        for (connections, pipeline) in [(1, 1), (50, 1), (50, 16), (50, 64)] {
            cells.push(Cell { operation, connections, pipeline, value_bytes: 64, transport: Transport::Unix });
        }
        cells.push(Cell { operation, connections: 50, pipeline: 1, value_bytes: 64, transport: Transport::Tcp });
        for value_bytes in [1 << 10, 64 << 10] {
            cells.push(Cell { operation, connections: 50, pipeline: 1, value_bytes, transport: Transport::Unix });
        }
    }
    let operation = Operation::MultiGet;
    cells.push(Cell { operation, connections: 50, pipeline: 1, value_bytes: 64, transport: Transport::Unix });
    cells
}

/// The rows at `power`.
fn disk_cells() -> Vec<Cell> {
    let cell = |connections| Cell {
        operation: Operation::Set,
        connections,
        pipeline: 1,
        value_bytes: 64,
        transport: Transport::Unix,
    };
    vec![cell(1), cell(50)]
}

fn is_chosen(name: &str, chosen: &[String]) -> bool {
    chosen.is_empty() || chosen.iter().any(|text| name.contains(text.as_str()))
}

fn main() -> AnyResult<()> {
    let args = Args::parse();
    let mut samples: BTreeMap<(String, Kind), Vec<Sample>> = BTreeMap::new();
    for round in 0..args.rounds {
        for kind in Kind::ALL.into_iter().filter(|kind| is_chosen(kind.name(), &args.servers)) {
            let cells = if kind.is_on_disk() { disk_cells() } else { cells() };
            for cell in cells.into_iter().filter(|cell| is_chosen(&cell.name(), &args.rows)) {
                if !kind.takes(&cell) {
                    continue;
                }
                let server = Running::start(kind, &args)?;
                let sample = load::run(&server, &cell, &args)?;
                eprintln!("round {round}: {:<18} {:<26} {sample}", kind.name(), cell.name());
                let group = if kind.is_on_disk() { "power" } else { "memory" };
                samples.entry((format!("{group}: {}", cell.name()), kind)).or_default().push(sample);
            }
        }
    }
    report::print(&samples);
    if args.open_loop {
        open_loop::run(&args, &samples)?;
    }
    Ok(())
}
