//! A backup of a fjall store in use, and a store that is restored from it.
//!
//! `cargo run --release -p lodestore-peers --features fjall --example fjall_backup -- DIR`
//!
//! A thread sells tickets by transactions: a ticket goes from `free` to `sold`, so both together
//! are always 10,000. The backup is made meanwhile, and the sum holds in the restored store too.

use std::error::Error;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{fs, thread};

use fjall::{Database, Guard, Keyspace, KeyspaceCreateOptions, PersistMode, Readable};
use fjall::{SingleWriterTxDatabase, SingleWriterTxKeyspace, Snapshot, UserValue};

const TICKET_COUNT: u64 = 10_000;

type AnyResult<T> = Result<T, Box<dyn Error + Send + Sync>>;

fn number(value: Option<UserValue>) -> u64 {
    value.and_then(|value| value[..].try_into().ok()).map_or(0, u64::from_le_bytes)
}

fn sell(db: &SingleWriterTxDatabase, tickets: &SingleWriterTxKeyspace) -> fjall::Result<()> {
    let mut tx = db.write_tx();
    let (free, sold) = (number(tx.get(tickets, "free")?), number(tx.get(tickets, "sold")?));
    if free > 0 {
        tx.insert(tickets, "free", (free - 1).to_le_bytes());
        tx.insert(tickets, "sold", (sold + 1).to_le_bytes());
    }
    tx.commit()
}

/// Copies a keyspace, reads the copy back, and returns the number of pairs.
fn copy_keyspace(moment: &Snapshot, source: impl AsRef<Keyspace>, target: &Keyspace) -> AnyResult<usize> {
    let mut ingestion = target.start_ingestion()?;
    for pair in moment.iter(&source) {
        let (key, value) = pair.into_inner()?;
        ingestion.write(key, value)?;
    }
    ingestion.finish()?;
    let (total, mut copied, mut verified) = (target.len()?, target.iter(), 0);
    for pair in moment.iter(&source) {
        if copied.next().map(Guard::into_inner).transpose()? != Some(pair.into_inner()?) {
            return Err("the copy differs".into());
        }
        verified += 1;
        if verified % 1000 == 0 {
            println!("verified {verified} of {total} pairs");
        }
    }
    Ok(total)
}

/// Copies all keyspaces as of one moment to a new directory. The directory has another name until
/// the copy is complete.
fn backup(db: &SingleWriterTxDatabase, target: &Path) -> AnyResult<usize> {
    let unfinished = target.with_extension("unfinished");
    let (moment, copy) = (db.read_tx(), Database::builder(&unfinished).open()?);
    let mut pairs = 0;
    for name in db.list_keyspace_names() {
        let source = db.keyspace(&name, KeyspaceCreateOptions::default)?;
        pairs += copy_keyspace(&moment, source, &copy.keyspace(&name, KeyspaceCreateOptions::default)?)?;
    }
    copy.persist(PersistMode::SyncAll)?;
    drop(copy);
    fs::rename(unfinished, target)?;
    Ok(pairs)
}

/// Sells tickets until the backup is complete.
fn backup_while_selling(db: &SingleWriterTxDatabase, tickets: &SingleWriterTxKeyspace, target: &Path) -> AnyResult<()> {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let seller = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                sell(db, tickets)?;
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
        eprintln!("usage: fjall_backup DIR");
        std::process::exit(2);
    };
    // Each run has new directories.
    let dir = Path::new(&dir).join(format!("run-{}", std::process::id()));
    let db = SingleWriterTxDatabase::builder(dir.join("state")).open()?;
    let tickets = db.keyspace("tickets", KeyspaceCreateOptions::default)?;
    tickets.insert("free", TICKET_COUNT.to_le_bytes())?;
    (0..5000).try_for_each(|seat| tickets.insert(format!("seat-{seat}"), "row 1"))?;
    backup_while_selling(&db, &tickets, &dir.join("backup"))?;
    println!("sold at the end: {}", number(tickets.get("sold")?));
    db.persist(PersistMode::SyncAll)?;

    // A restore is a backup of the backup.
    backup(&SingleWriterTxDatabase::builder(dir.join("backup")).open()?, &dir.join("restored"))?;
    let restored = Database::builder(dir.join("restored")).open()?;
    let tickets = restored.keyspace("tickets", KeyspaceCreateOptions::default)?;
    let (free, sold) = (number(tickets.get("free")?), number(tickets.get("sold")?));
    println!("restored: {sold} sold, {free} free");
    assert_eq!(free + sold, TICKET_COUNT, "the backup is of one moment");
    Ok(restored.persist(PersistMode::SyncAll)?)
}
