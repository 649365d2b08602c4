//! Measures how long servers need from `exec` to their first replies after kill -9 under load.
//!
//! `cargo build --release -p lodestore-cli`, then `cargo run --release -p lodestore-bench --example
//! restart -- --json`. `lodestore-plots restart` draws these lines.
//!
//! Each server is filled and then killed during writes. Then the server restarts several times, and
//! is killed each time under load. All files are on one medium, memory by default, so that no disk
//! slows a peer.

mod protocol;
mod server;

use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;

use server::{Kind, Place, Restart};

/// Numbers of keys that are measured by default.
const KEYS_DEFAULT: [usize; 4] = [100_000, 1_000_000, 5_000_000, 20_000_000];

type AnyResult<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Compares restarts of servers.
#[derive(Debug, Clone, Parser)]
pub(crate) struct Args {
    /// The program `lodestore`.
    #[arg(long, default_value = "target/release/lodestore")]
    program: PathBuf,
    /// A directory for all files.
    #[arg(long, default_value = "/dev/shm")]
    dir: PathBuf,
    /// Numbers of keys.
    #[arg(long, value_delimiter = ',', default_values_t = KEYS_DEFAULT)]
    keys: Vec<usize>,
    /// Bytes of a value.
    #[arg(long, default_value_t = 64)]
    value_bytes: usize,
    /// Kills of each server at each number of keys.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Milliseconds of load before each kill.
    #[arg(long, default_value_t = 500)]
    load_ms: u64,
    /// Only servers whose name contains one of these texts.
    #[arg(long, value_delimiter = ',')]
    servers: Vec<String>,
    /// Print a JSON object per line instead of a table.
    #[arg(long)]
    json: bool,
}

/// The restarts of one server at one number of keys.
#[derive(Debug)]
struct Row {
    kind: Kind,
    keys: usize,
    restarts: Vec<Restart>,
}

impl Row {
    /// Returns the median of a time over all restarts, with the minimum and the maximum.
    fn spread(&self, time: impl Fn(&Restart) -> Duration) -> [Duration; 3] {
        let mut times: Vec<Duration> = self.restarts.iter().map(time).collect();
        times.sort();
        [times[times.len() / 2], times[0], times[times.len() - 1]]
    }

    /// Returns the row as JSON, with times in milliseconds: median, minimum and maximum.
    fn json(&self, value_bytes: usize) -> serde_json::Value {
        let ms = |times: [Duration; 3]| times.map(|time| time.as_secs_f64() * 1e3);
        serde_json::json!({
            "server": self.kind.name(),
            "keys": self.keys,
            "value_bytes": value_bytes,
            "first_get_ms": ms(self.spread(|restart| restart.first_get)),
            "first_set_ms": ms(self.spread(|restart| restart.first_set)),
            "keys_found": self.keys_found(),
        })
    }

    /// Returns the row as a line of a Markdown table.
    fn line(&self) -> String {
        let (get, set) = (self.spread(|restart| restart.first_get), self.spread(|restart| restart.first_set));
        let (keys, server, found) = (self.keys, self.kind.name(), self.keys_found());
        format!("| {keys} | {server} | {} | {} | {found} |", text_of(get), text_of(set))
    }

    /// Returns the least number of keys that a restarted server reported.
    fn keys_found(&self) -> usize {
        self.restarts.iter().map(|restart| restart.keys).min().unwrap_or_default()
    }
}

fn text_of([median, least, most]: [Duration; 3]) -> String {
    let text = |time: Duration| match time.as_secs_f64() * 1e3 {
        ms if ms < 100.0 => format!("{ms:.1} ms"),
        ms => format!("{:.2} s", ms / 1e3),
    };
    format!("{} ({} to {})", text(median), text(least), text(most))
}

fn measure(kind: Kind, keys: usize, args: &Args) -> AnyResult<Row> {
    let place = Place::create(args)?;
    let mut server = server::start(kind, &place, args)?.0;
    server.fill(keys, args.value_bytes)?;
    let mut restarts = Vec::new();
    for _ in 0..args.rounds {
        server.kill_under_load(keys, args)?;
        let (next, restart) = server::start(kind, &place, args)?;
        server = next;
        restarts.push(restart);
    }
    Ok(Row { kind, keys, restarts })
}

fn main() -> AnyResult<()> {
    let args = Args::parse();
    if !args.json {
        println!("| keys | server | first GET after exec | first SET after exec | keys of the store |");
        println!("|---:|---|---|---|---:|");
    }
    for keys in args.keys.iter().copied() {
        for kind in Kind::ALL {
            let is_chosen = args.servers.is_empty() || args.servers.iter().any(|text| kind.name().contains(text));
            if !is_chosen {
                continue;
            }
            let row = measure(kind, keys, &args)?;
            println!("{}", if args.json { row.json(args.value_bytes).to_string() } else { row.line() });
        }
    }
    Ok(())
}
