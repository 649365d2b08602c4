//! A bulk load with progress, which goes on where an interrupted one ended.
//!
//! `cargo run --release -p lodestore --example bulk_load -- DIR [RECORDS]`
//!
//! Two threads write atomic batches. Each thread notes in its last batch how far it came, so that
//! a load that is killed and started again repeats nothing.

use std::io::{IsTerminal, Write, stderr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lodestore::{Db, Error, Keyspace, Result};

const RECORDS: u64 = 5_000_000;
const THREADS: u64 = 2;
const BATCH_RECORDS: u64 = 256;

/// The source of the records: here they are computed.
fn record(number: u64) -> (String, String) {
    (format!("user:{number:09}"), format!("name {}", number.wrapping_mul(0x9E37_79B9_7F4A_7C15)))
}

/// Loads every `THREADS`-th batch, and counts the records of both threads in `loaded`.
fn load(db: &Db, positions: &Keyspace, thread: u64, records: u64, loaded: &AtomicU64) -> Result<()> {
    let name = format!("thread {thread} of {THREADS}, batches of {BATCH_RECORDS}");
    let position = positions.get(&name)?.and_then(|text| text.as_str().ok()?.parse().ok());
    let mut position: u64 = position.unwrap_or(0);
    loaded.fetch_add(position.min(records.div_ceil(THREADS)), Ordering::Relaxed);
    loop {
        let block = (position / BATCH_RECORDS * THREADS + thread) * BATCH_RECORDS;
        let (start, end) = (block + position % BATCH_RECORDS, records.min(block + BATCH_RECORDS));
        if start >= end {
            return Ok(());
        }
        let mut batch = db.batch();
        for (key, value) in (start..end).map(record) {
            batch.put(db, key, value);
        }
        position += end - start;
        batch.put(positions, &name, position.to_string());
        batch.commit()?;
        loaded.fetch_add(end - start, Ordering::Relaxed);
    }
}

/// Shows the progress on a terminal until all records are loaded or a thread has failed.
fn show_progress(loaded: &AtomicU64, records: u64, has_ended: &dyn Fn() -> bool) {
    let begun = Instant::now();
    while !has_ended() && stderr().is_terminal() {
        let done = loaded.load(Ordering::Relaxed);
        let per_second = done as f64 / begun.elapsed().as_secs_f64();
        eprint!("\r{done} of {records}, {per_second:.0} a second  ");
        let _ = stderr().flush();
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let Some(dir) = arguments.next() else {
        eprintln!("usage: bulk_load DIR [RECORDS]");
        std::process::exit(2);
    };
    let records = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(RECORDS);
    let db = Db::builder(&dir).capacity(4 << 30).open()?;
    println!("{}", db.choice());
    let (positions, loaded, begun) = (db.keyspace("positions")?, AtomicU64::new(0), Instant::now());
    std::thread::scope(|scope| -> Result<()> {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (db, positions, loaded) = (&db, &positions, &loaded);
                scope.spawn(move || load(db, positions, thread, records, loaded))
            })
            .collect();
        show_progress(&loaded, records, &|| threads.iter().all(|thread| thread.is_finished()));
        threads.into_iter().try_for_each(|thread| thread.join().expect("a thread that does not panic"))
    })?;
    eprintln!("\r{} records in {:.1?}          ", loaded.into_inner(), begun.elapsed());
    let (key, value) = record(records - 1);
    let last = db.get(&key)?.ok_or(Error::Aborted { reason: format!("{key} is missing") })?;
    assert_eq!(last, value);
    db.wait_recovered()?;
    println!("the last record is {key}; the store has {} keys", db.count()?);
    db.close()
}
