//! Measures how long a put waits during a backup.
//!
//! `cargo run --release -p lodestore-bench --example backup_pause -- --engine hikv --gib 1`
//!
//! The program loads a store. A thread then overwrites random keys at full speed, first without and
//! then during a backup by the main thread. The output has the longest put of each phase, the 99.99
//! and 99.999 percentiles, the puts of more than 50 ms, and the rates. The store and the backup are
//! removed at the end.

use std::error::Error;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use hdrhistogram::Histogram;
use lodestore::db::Engine;
use lodestore::options::MkvsSettings;
use lodestore::{Db, Durability};

type AnyResult<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Minimum duration of a long put.
const LONG_PUT_TIME: Duration = Duration::from_millis(50);
/// Bytes of capacity for each byte of values, and the minimum.
const CAPACITY_RATIO: f64 = 3.0;
const CAPACITY_MIN: u64 = 512 << 20;

/// Measures the longest put during a backup.
#[derive(Parser)]
struct Args {
    /// hikv, nvht, fluidkv, hashkv, mkvs (one device) or mkvs3 (three devices).
    #[arg(long, default_value = "hikv")]
    engine: String,
    /// The directory of the store.
    #[arg(long, default_value = "/dev/shm")]
    dir: PathBuf,
    /// The directory of the backup.
    #[arg(long, default_value = "/tmp")]
    target: PathBuf,
    /// GiB of values.
    #[arg(long, default_value_t = 1.0)]
    gib: f64,
    /// Bytes of a value.
    #[arg(long, default_value_t = 1024)]
    value_bytes: usize,
    /// Seconds of the phase without a backup.
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// process or power.
    #[arg(long, default_value = "process")]
    durability: Durability,
    /// Maximum puts per second; 0 for no limit.
    #[arg(long, default_value_t = 0)]
    rate: u64,
}

fn engine(name: &str) -> AnyResult<Engine> {
    Ok(match name {
        "hikv" => Engine::hikv(),
        "nvht" => Engine::nvht(),
        "fluidkv" => Engine::fluidkv(),
        "hashkv" => Engine::hashkv(),
        "mkvs" => Engine::mkvs(),
        "mkvs3" => Engine::Mkvs(MkvsSettings::new().devices(3)),
        other => return Err(format!("no engine {other}").into()),
    })
}

/// Returns the next number of a xorshift generator (Marsaglia, 2003).
fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

fn key(i: u64) -> [u8; 16] {
    let mut key = *b"key-000000000000";
    key[4..].copy_from_slice(format!("{i:012}").as_bytes());
    key
}

/// The puts of a phase.
struct Phase {
    nanos: Histogram<u64>,
    time: Duration,
    long: u64,
}

impl Phase {
    fn print(&self, name: &str) {
        let millis = |nanos: u64| nanos as f64 / 1e6;
        println!(
            "{name}: {} puts in {:.1} s ({:.0} a second), longest {:.3} ms, 99.99 % {:.3} ms, 99.999 % {:.3} ms, \
             {} above {} ms",
            self.nanos.len(),
            self.time.as_secs_f64(),
            self.nanos.len() as f64 / self.time.as_secs_f64(),
            millis(self.nanos.max()),
            millis(self.nanos.value_at_quantile(0.9999)),
            millis(self.nanos.value_at_quantile(0.99999)),
            self.long,
            LONG_PUT_TIME.as_millis(),
        );
    }
}

/// Overwrites random keys until `stop`.
fn write(db: &Db, args: &Args, keys: u64, stop: &AtomicBool) -> AnyResult<Phase> {
    let (mut state, value) = (0x2545_f491_4f6c_dd1d, vec![7; args.value_bytes]);
    let mut phase = Phase { nanos: Histogram::new(3)?, time: Duration::ZERO, long: 0 };
    let (begun, mut puts) = (Instant::now(), 0_u64);
    while !stop.load(Ordering::Relaxed) {
        let key = key(random(&mut state) % keys);
        let before = Instant::now();
        db.put(key, &value)?;
        let took = before.elapsed();
        phase.nanos.record(took.as_nanos() as u64)?;
        phase.long += u64::from(took > LONG_PUT_TIME);
        puts += 1;
        if let Some(due) = (puts * 1_000_000_000).checked_div(args.rate) {
            thread::sleep(Duration::from_nanos(due).saturating_sub(begun.elapsed()));
        }
    }
    phase.time = begun.elapsed();
    Ok(phase)
}

/// Runs `during` while a thread writes.
fn with_writer<T>(db: &Db, args: &Args, keys: u64, during: impl FnOnce() -> AnyResult<T>) -> AnyResult<(Phase, T)> {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let writer = scope.spawn(|| write(db, args, keys, &stop));
        let done = during();
        stop.store(true, Ordering::Relaxed);
        let phase = writer.join().map_err(|_| "the writer panicked")??;
        Ok((phase, done?))
    })
}

fn measure(args: &Args, store: &PathBuf, target: &PathBuf) -> AnyResult<()> {
    let bytes = (args.gib * f64::from(1 << 30)) as u64;
    let keys = bytes / args.value_bytes as u64;
    let capacity = (bytes as f64 * CAPACITY_RATIO) as u64 + CAPACITY_MIN;
    let db = Db::builder(store).engine(engine(&args.engine)?).capacity(capacity).durability(args.durability).open()?;
    let (begun, value) = (Instant::now(), vec![1; args.value_bytes]);
    (0..keys).try_for_each(|i| db.put(key(i), &value))?;
    println!(
        "{}, {} keys of 16 + {} bytes, {:.2} GiB, {}; loaded in {:.1} s",
        args.engine,
        keys,
        args.value_bytes,
        args.gib,
        db.durability(),
        begun.elapsed().as_secs_f64()
    );
    db.settle()?;
    let (alone, ()) = with_writer(&db, args, keys, || {
        thread::sleep(Duration::from_secs(args.seconds));
        Ok(())
    })?;
    alone.print("without a backup");
    let (beside, info) = with_writer(&db, args, keys, || Ok(db.backup(target)?))?;
    beside.print("with a backup");
    println!("the backup has {} pairs and took {:.1} s", info.pairs, beside.time.as_secs_f64());
    db.close()?;
    Ok(())
}

fn main() -> AnyResult<()> {
    let args = Args::parse();
    let name = format!("backup-pause-{}", std::process::id());
    let (store, target) = (args.dir.join(format!("{name}.store")), args.target.join(format!("{name}.backup")));
    let measured = measure(&args, &store, &target);
    for made in [&store, &target] {
        let _ = std::fs::remove_dir_all(made);
    }
    measured
}
