//! A backup of a store in use, and a store that is restored from it.
//!
//! `cargo run --release -p lodestore --example backup -- DIR`
//!
//! A thread sells tickets by transactions: a ticket goes from `free` to `sold`, so both together
//! are always 10,000. The backup is made meanwhile, and the sum holds in the restored store too.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use lodestore::backup::BackupPhase;
use lodestore::{Db, Result};

const TICKET_COUNT: u64 = 10_000;

fn number(value: Option<lodestore::Value>) -> u64 {
    value.and_then(|value| value[..].try_into().ok()).map_or(0, u64::from_le_bytes)
}

fn sell(db: &Db) -> Result<()> {
    db.transaction(|tx| {
        let (free, sold) = (number(tx.get(db, "free")?), number(tx.get(db, "sold")?));
        if free > 0 {
            tx.put(db, "free", (free - 1).to_le_bytes())?;
            tx.put(db, "sold", (sold + 1).to_le_bytes())?;
        }
        Ok(())
    })
}

/// Sells tickets until the backup is made.
fn backup_while_selling(db: &Db, target: &Path) -> Result<()> {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let seller = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                sell(db)?;
            }
            Ok(())
        });
        let made = db.backup_with(target, &mut |progress| {
            if progress.phase == BackupPhase::Verifying && progress.pairs.is_multiple_of(1000) {
                println!("verified {} of {} pairs", progress.pairs, progress.total);
            }
        });
        stop.store(true, Ordering::Relaxed);
        let sold: Result<()> = seller.join().expect("the seller does not panic");
        let info = made?;
        println!("backup: {} pairs, engine {}, version {}", info.pairs, info.engine, info.version);
        sold
    })
}

fn main() -> Result<()> {
    let Some(dir) = std::env::args().nth(1) else {
        eprintln!("usage: backup DIR");
        std::process::exit(2);
    };
    // The directory of a backup does not exist or is empty, so each run has new ones.
    let dir = Path::new(&dir).join(format!("run-{}", std::process::id()));
    let db = Db::builder(dir.join("state")).capacity(256 << 20).open()?;
    db.put("free", TICKET_COUNT.to_le_bytes())?;
    (0..5000).try_for_each(|seat| db.put(format!("seat-{seat}"), "row 1"))?;
    backup_while_selling(&db, &dir.join("backup"))?;
    println!("sold at the end: {}", number(db.get("sold")?));
    db.close()?;

    lodestore::backup::restore(dir.join("backup"), dir.join("restored"), &mut |_| {})?;
    let restored = Db::builder(dir.join("restored")).create(false).open()?;
    let (free, sold) = (number(restored.get("free")?), number(restored.get("sold")?));
    println!("restored: {sold} sold, {free} free");
    assert_eq!(free + sold, TICKET_COUNT, "the backup is of one moment");
    restored.close()
}
