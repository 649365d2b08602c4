//! A backup of a redb store in use, and a store that is restored from it.
//!
//! `cargo run --release -p lodestore-peers --features redb --example redb_backup -- DIR`
//!
//! A thread sells tickets by transactions: a ticket goes from `free` to `sold`, so both together
//! are always 10,000. The backup is made meanwhile, and the sum holds in the restored store too.

use std::error::Error;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{fs, thread};

use redb::{Database, Key, ReadTransaction, ReadableDatabase, ReadableTable, ReadableTableMetadata};
use redb::{StorageError, TableDefinition, Value, WriteTransaction};

const TICKET_COUNT: u64 = 10_000;
const COUNTERS: TableDefinition<&str, u64> = TableDefinition::new("counters");
const SEATS: TableDefinition<&str, &str> = TableDefinition::new("seats");

type AnyResult<T> = Result<T, Box<dyn Error + Send + Sync>>;

fn number(counters: &impl ReadableTable<&'static str, u64>, name: &str) -> Result<u64, StorageError> {
    Ok(counters.get(name)?.map_or(0, |number| number.value()))
}

fn sell(db: &Database) -> AnyResult<()> {
    let write = db.begin_write()?;
    {
        let mut counters = write.open_table(COUNTERS)?;
        let (free, sold) = (number(&counters, "free")?, number(&counters, "sold")?);
        if free > 0 {
            counters.insert("free", free - 1)?;
            counters.insert("sold", sold + 1)?;
        }
    }
    Ok(write.commit()?)
}

/// Copies a table, and returns its number of pairs.
fn copy_table<K: Key + 'static, V: Value + 'static>(
    table: TableDefinition<K, V>,
    from: &ReadTransaction,
    to: &WriteTransaction,
) -> AnyResult<u64> {
    let (source, mut target) = (from.open_table(table)?, to.open_table(table)?);
    let total = source.len()?;
    for (copied, pair) in (1u64..).zip(source.iter()?) {
        let (key, value) = pair?;
        target.insert(key.value(), value.value())?;
        if copied.is_multiple_of(1000) {
            println!("copied {copied} of {total} pairs");
        }
    }
    Ok(total)
}

/// Copies the tables as of one moment to a new file, and verifies the file. The file has another
/// name until it is complete.
fn backup(db: &Database, target: &Path) -> AnyResult<u64> {
    let unfinished = target.with_extension("unfinished");
    let (moment, mut copy) = (db.begin_read()?, Database::create(&unfinished)?);
    let write = copy.begin_write()?;
    let pairs = copy_table(COUNTERS, &moment, &write)? + copy_table(SEATS, &moment, &write)?;
    write.commit()?;
    if !copy.check_integrity()? {
        return Err("the copy was damaged".into());
    }
    copy.close()?;
    fs::rename(unfinished, target)?;
    Ok(pairs)
}

/// Sells tickets until the backup is complete.
fn backup_while_selling(db: &Database, target: &Path) -> AnyResult<()> {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let seller = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                sell(db)?;
            }
            Ok(())
        });
        let made = backup(db, target);
        stop.store(true, Ordering::Relaxed);
        let sold: AnyResult<()> = seller.join().expect("the seller does not panic");
        println!("backup: {} pairs", made?);
        sold
    })
}

fn main() -> AnyResult<()> {
    let Some(dir) = std::env::args().nth(1) else {
        eprintln!("usage: redb_backup DIR");
        std::process::exit(2);
    };
    // Each run has new files.
    let dir = Path::new(&dir).join(format!("run-{}", std::process::id()));
    fs::create_dir_all(&dir)?;
    let db = Database::create(dir.join("state"))?;
    let write = db.begin_write()?;
    write.open_table(COUNTERS)?.insert("free", TICKET_COUNT)?;
    {
        let mut seats = write.open_table(SEATS)?;
        (0..5000).try_for_each(|seat| seats.insert(format!("seat-{seat}").as_str(), "row 1").map(drop))?;
    }
    write.commit()?;
    backup_while_selling(&db, &dir.join("backup"))?;
    println!("sold at the end: {}", number(&db.begin_read()?.open_table(COUNTERS)?, "sold")?);
    db.close()?;

    fs::copy(dir.join("backup"), dir.join("restored"))?;
    let restored = Database::open(dir.join("restored"))?;
    let counters = restored.begin_read()?.open_table(COUNTERS)?;
    let (free, sold) = (number(&counters, "free")?, number(&counters, "sold")?);
    println!("restored: {sold} sold, {free} free");
    assert_eq!(free + sold, TICKET_COUNT, "the backup is of one moment");
    Ok(restored.close()?)
}
