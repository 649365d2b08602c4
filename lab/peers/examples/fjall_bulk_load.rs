//! A bulk load into fjall with progress, which resumes where an interrupted load ended.
//!
//! `cargo run --release -p lodestore-peers --features fjall --example fjall_bulk_load -- DIR`
//!
//! An ingestion is atomic, and writes sorted records to new tables, without the journal. The
//! records are in the order of their keys, so an interrupted load resumes after the last key.

use std::error::Error;
use std::io::{IsTerminal, Write, stderr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};

const RECORDS: u64 = 5_000_000;
const BATCH_RECORDS: u64 = 50_000;

type AnyResult<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// The source of the records: here they are computed.
fn record(number: u64) -> (String, String) {
    (format!("user:{number:09}"), format!("name {}", number.wrapping_mul(0x9E37_79B9_7F4A_7C15)))
}

/// Returns the number after the last record of the keyspace.
fn position(users: &Keyspace) -> AnyResult<u64> {
    Ok(match users.last_key_value() {
        Some(last) => str::from_utf8(&last.key()?)?.trim_start_matches("user:").parse::<u64>()? + 1,
        None => 0,
    })
}

/// Loads the records in ingestions, and counts them in `loaded`.
fn load(users: &Keyspace, records: u64, loaded: &AtomicU64) -> AnyResult<()> {
    let mut position = position(users)?;
    loaded.store(position.min(records), Ordering::Relaxed);
    while position < records {
        let end = records.min(position + BATCH_RECORDS);
        let mut ingestion = users.start_ingestion()?;
        for (key, value) in (position..end).map(record) {
            ingestion.write(key, value)?;
        }
        ingestion.finish()?;
        loaded.fetch_add(end - position, Ordering::Relaxed);
        position = end;
    }
    Ok(())
}

/// Shows the progress on a terminal until all records are loaded or the thread has failed.
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

fn main() -> AnyResult<()> {
    let mut arguments = std::env::args().skip(1);
    let Some(dir) = arguments.next() else {
        eprintln!("usage: fjall_bulk_load DIR [RECORDS]");
        std::process::exit(2);
    };
    let records = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(RECORDS);
    let db = Database::builder(&dir).open()?;
    let users = db.keyspace("users", KeyspaceCreateOptions::default)?;
    let (loaded, begun) = (AtomicU64::new(0), Instant::now());
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| load(&users, records, &loaded));
        show_progress(&loaded, records, &|| thread.is_finished());
        thread.join().expect("a thread that does not panic")
    })?;
    eprintln!("\r{} records in {:.1?}          ", loaded.into_inner(), begun.elapsed());
    let (key, value) = record(records - 1);
    let last = users.get(&key)?.ok_or_else(|| format!("{key} is missing"))?;
    assert_eq!(*last, *value.as_bytes());
    println!("the last record is {key}; the store has {} keys", users.len()?);
    Ok(db.persist(PersistMode::SyncAll)?)
}
