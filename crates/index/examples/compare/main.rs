//! Compares ordered structures: insert, get, scan of 50, a writer concurrent with a scanner, bytes
//! per key.
//!
//! ```text
//! cargo run --release -p lodestore-index --example compare -- \
//!     [--keys 1000000,5000000] [--rounds 3] [--seconds 1] [--only NAME,..]
//! ```
//!
//! Rates are per second of the thread's own CPU time, so that other programs on the machine disturb
//! them less. Keys are 16 bytes, the hexadecimal digits of a mixed 64-bit number. Each cell runs in
//! its own process. Structures are interleaved, and the table shows medians over the rounds.
//! `bytes/key` is the growth of resident memory (RssAnon). The tree's keys are stored in an array
//! outside the tree (16 bytes per key, not counted). The array represents the records that the
//! engine stores anyway. The tree reads it as it would records.

mod maps;

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use lodestore_index::{BPlusTree, Headed, sort_headed};
use maps::{Key, Map, NAMES, make_key, open};

/// Columns of a child's output line, in order.
const COLUMNS: [&str; 6] = ["insert M/s", "get M/s", "scan-50 k/s", "writer M/s beside", "scanner k/s", "bytes/key"];

fn option(name: &str, default: &str) -> String {
    let args: Vec<String> = std::env::args().collect();
    args.iter().position(|arg| arg == name).and_then(|at| args.get(at + 1)).map_or(default.into(), String::clone)
}

fn resident_anonymous() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap_or("0 kB");
    line.trim().trim_end_matches(" kB").trim().parse::<usize>().unwrap_or(0) * 1024
}

/// Start of a measurement, in CPU time of this thread.
struct Busy(u64);

impl Busy {
    fn nanoseconds() -> u64 {
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
        text.split_whitespace().next().and_then(|ns| ns.parse().ok()).unwrap_or(0)
    }

    fn start() -> Self {
        Self(Self::nanoseconds())
    }

    /// Returns operations per second of CPU time.
    fn rate(&self, count: usize) -> f64 {
        count as f64 * 1e9 / (Self::nanoseconds() - self.0).max(1) as f64
    }
}

/// Measures one cell: one structure at one size.
fn child(name: &str, keys: usize, time: Duration) {
    let records: Vec<Key> = (0..keys as u64 + keys as u64 * 2).map(make_key).collect();
    let before = resident_anonymous();
    let map = open(name, &records);
    let busy = Busy::start();
    map.fill(&records[..keys]);
    let insert = busy.rate(keys);
    let bytes = resident_anonymous().saturating_sub(before) as f64 / keys as f64;

    let probe = |i: usize| &records[(i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20) % keys];
    let gets = keys.min(1_000_000);
    let busy = Busy::start();
    let found = (0..gets).filter(|i| map.get(probe(*i)).is_some()).count();
    let get = busy.rate(gets);
    assert_eq!(found, gets);

    let scans = 100_000;
    let (start, busy) = (Instant::now(), Busy::start());
    let mut seen = 0;
    let mut done = 0;
    while done < scans && start.elapsed() < time * 5 {
        seen += map.scan(probe(done), 50);
        done += 1;
    }
    let scan = busy.rate(done);
    assert!(seen >= done * 40, "{seen} entries in {done} scans");

    let (writer, scanner) = together(map.as_ref(), &records, keys, time, probe);
    println!("{insert} {get} {scan} {writer} {scanner} {bytes}");
}

/// Measures a writer of new keys concurrent with a scanner.
fn together<'k>(
    map: &dyn Map,
    records: &'k [Key],
    keys: usize,
    time: Duration,
    probe: impl Fn(usize) -> &'k Key + Sync,
) -> (f64, f64) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let (busy, mut at) = (Busy::start(), keys);
            while !stop.load(Ordering::Relaxed) && at + 16 <= records.len() {
                map.fill_from(at, &records[at..at + 16]);
                at += 16;
            }
            busy.rate(at - keys)
        });
        let scanner = scope.spawn(|| {
            let (busy, mut done) = (Busy::start(), 0);
            while !stop.load(Ordering::Relaxed) {
                map.scan(probe(done), 50);
                done += 1;
            }
            busy.rate(done)
        });
        std::thread::sleep(time);
        stop.store(true, Ordering::Relaxed);
        (writer.join().expect("the writer"), scanner.join().expect("the scanner"))
    })
}

/// Prints the rates of sorting by 8-byte heads and of both bulk loads with one thread. The loads
/// are measured by wall-clock time.
fn bulk(keys: usize) {
    let records: Vec<Key> = (0..keys as u64).map(make_key).collect();
    let resolver = maps::Records(&records);
    let mut entries: Vec<Headed> = records.iter().zip(0..).map(|(key, at)| Headed::new(key, at)).collect();
    let busy = Busy::start();
    sort_headed(&resolver, &mut entries);
    let sort = busy.rate(keys);
    let start = Instant::now();
    BPlusTree::new().bulk_load_headed(&resolver, &entries, 1).expect("sorted");
    let headed = keys as f64 / start.elapsed().as_secs_f64();
    let sorted: Vec<u64> = entries.iter().map(|entry| entry.payload).collect();
    let start = Instant::now();
    BPlusTree::new().bulk_load(&resolver, &sorted, 1).expect("sorted");
    let plain = keys as f64 / start.elapsed().as_secs_f64();
    let rates = [sort, headed, plain].map(|rate| format!("{:.1}", rate * 1e-6));
    println!(
        "\n{keys} keys in M/s: sort by head {}, bulk load from heads {}, from keys {}",
        rates[0], rates[1], rates[2]
    );
}

fn measure(name: &str, keys: usize, seconds: &str) -> Option<Vec<f64>> {
    let program = std::env::current_exe().ok()?;
    let keys = keys.to_string();
    let output = Command::new(program).args(["--child", name, "--keys", &keys, "--seconds", seconds]).output().ok()?;
    if !output.status.success() {
        eprintln!("{name}: {}", String::from_utf8_lossy(&output.stderr));
        return None;
    }
    let cells: Vec<f64> =
        String::from_utf8_lossy(&output.stdout).split_whitespace().filter_map(|cell| cell.parse().ok()).collect();
    (cells.len() == COLUMNS.len()).then_some(cells)
}

fn median(mut values: Vec<f64>) -> (f64, f64, f64) {
    values.sort_by(f64::total_cmp);
    (values[values.len() / 2], values[0], values[values.len() - 1])
}

fn cell(column: usize, runs: &[Vec<f64>]) -> String {
    let scale = match COLUMNS[column] {
        name if name.contains("M/s") => 1e-6,
        name if name.contains("k/s") => 1e-3,
        _ => 1.0,
    };
    let (middle, low, high) = median(runs.iter().map(|run| run[column] * scale).collect());
    let digits = usize::from(middle < 100.0) + usize::from(middle < 10.0);
    if COLUMNS[column] == "bytes/key" {
        return format!("{middle:.digits$}");
    }
    format!("{middle:.digits$} ({low:.digits$}-{high:.digits$})")
}

fn main() {
    let seconds = option("--seconds", "1");
    let time = Duration::from_secs_f64(seconds.parse().expect("--seconds is a number"));
    let name = option("--child", "");
    let sizes = option("--keys", "1000000,5000000");
    let sizes: Vec<usize> = sizes.split(',').map(|n| n.parse().expect("--keys is a list of numbers")).collect();
    if !name.is_empty() {
        child(&name, sizes[0], time);
        return;
    }
    let rounds: usize = option("--rounds", "3").parse().expect("--rounds is a number");
    let only = option("--only", "");
    let names: Vec<&str> =
        NAMES.iter().copied().filter(|name| only.is_empty() || only.split(',').any(|o| o == *name)).collect();
    for keys in sizes {
        let mut runs = vec![Vec::new(); names.len()];
        for round in 0..rounds {
            for (name, runs) in names.iter().zip(&mut runs) {
                eprintln!("{keys} keys, round {round}: {name}");
                runs.extend(measure(name, keys, &seconds));
            }
        }
        println!("\n{keys} keys, medians of {rounds} rounds (lowest-highest)\n");
        println!("| structure | {} |", COLUMNS.join(" | "));
        println!("|---|{}", "---|".repeat(COLUMNS.len()));
        for (name, runs) in names.iter().zip(&runs).filter(|(_, runs)| !runs.is_empty()) {
            let cells: Vec<String> = (0..COLUMNS.len()).map(|column| cell(column, runs)).collect();
            println!("| {name} | {} |", cells.join(" | "));
        }
        bulk(keys);
    }
}
