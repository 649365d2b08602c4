//! A bulk load into redb with progress, which resumes where an interrupted load ended.
//!
//! `cargo run --release -p lodestore-peers --features redb --example redb_bulk_load -- FILE`
//!
//! redb has one writer at a time, so one thread loads, in long transactions. The records are in the
//! order of their keys, so an interrupted load resumes after the last key.

use std::error::Error;
use std::io::{IsTerminal, Write, stderr};
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use redb::{Database, ReadableDatabase, ReadableTable, ReadableTableMetadata, TableDefinition};

const RECORDS: u64 = 5_000_000;
const BATCH_RECORDS: u64 = 50_000;
const USERS: TableDefinition<&str, &str> = TableDefinition::new("users");

type AnyResult<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// The source of the records: here they are computed.
fn record(number: u64) -> (String, String) {
    (format!("user:{number:09}"), format!("name {}", number.wrapping_mul(0x9E37_79B9_7F4A_7C15)))
}

/// Returns the number after the last record of the table.
fn position(db: &Database) -> AnyResult<u64> {
    let write = db.begin_write()?;
    let position = match write.open_table(USERS)?.last()? {
        Some((key, _)) => key.value().trim_start_matches("user:").parse::<u64>()? + 1,
        None => 0,
    };
    write.commit()?;
    Ok(position)
}

/// Loads the records in transactions, and counts them in `loaded`.
fn load(db: &Database, records: u64, loaded: &AtomicU64) -> AnyResult<()> {
    let mut position = position(db)?;
    loaded.store(position.min(records), Ordering::Relaxed);
    while position < records {
        let end = records.min(position + BATCH_RECORDS);
        let write = db.begin_write()?;
        {
            let mut users = write.open_table(USERS)?;
            let mut last = users.upper_bound_mut(Bound::<&str>::Unbounded)?;
            for (key, value) in (position..end).map(record) {
                last.insert_before(&*key, &*value)?;
            }
            last.close()?;
        }
        write.commit()?;
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
    let Some(file) = arguments.next() else {
        eprintln!("usage: redb_bulk_load FILE [RECORDS]");
        std::process::exit(2);
    };
    let records = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(RECORDS);
    let db = Database::create(&file)?;
    let (loaded, begun) = (AtomicU64::new(0), Instant::now());
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| load(&db, records, &loaded));
        show_progress(&loaded, records, &|| thread.is_finished());
        thread.join().expect("a thread that does not panic")
    })?;
    eprintln!("\r{} records in {:.1?}          ", loaded.into_inner(), begun.elapsed());
    let (key, value) = record(records - 1);
    let users = db.begin_read()?.open_table(USERS)?;
    let last = users.get(&*key)?.ok_or_else(|| format!("{key} is missing"))?;
    assert_eq!(last.value(), value);
    println!("the last record is {key}; the store has {} keys", users.len()?);
    Ok(db.close()?)
}
