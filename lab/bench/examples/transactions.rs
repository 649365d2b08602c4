//! Transactions of two reads and two writes, compared with redb and fjall.
//!
//! `cargo run --release -p lodestore-bench --features peers --example transactions -- DIR`. The
//! number of accounts may follow.
//!
//! Each transaction moves money between two random accounts: it reads both balances and writes
//! both. All stores keep the writes of a killed process, and sync nothing: durability `process`,
//! redb with `Durability::None`, fjall without `PersistMode`. redb's commits at `None` are its
//! fastest, but do not survive a kill of the process. Rounds are interleaved. The output has the
//! medians of the rates, with their range, as ratios to redb and fjall.

use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};

use fjall::{KeyspaceCreateOptions, OptimisticTxDatabase, OptimisticTxKeyspace, Readable};
use lodestore::db::Engine;
use lodestore::{Db, Durability};
use redb::{Database, ReadableTable, TableDefinition};

type AnyResult<T> = Result<T, Box<dyn Error + Send + Sync>>;

const ACCOUNT_COUNT: u64 = 100_000;
const BALANCE_DEFAULT: u64 = 1000;
const ROUND_COUNT: usize = 5;
const ROUND_TIME: Duration = Duration::from_secs(2);
/// Transactions between two reads of the clock.
const TURN_TRANSACTION_COUNT: u64 = 64;
const TABLE: TableDefinition<&[u8], &[u8]> = TableDefinition::new("accounts");

/// Two accounts and an amount.
struct Transfer {
    from: [u8; 16],
    to: [u8; 16],
    amount: u64,
}

fn key(account: u64) -> [u8; 16] {
    let mut key = *b"account 00000000";
    key[8..].copy_from_slice(format!("{account:08}").as_bytes());
    key
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(*bytes.first_chunk().expect("8 bytes"))
}

/// Returns the next number of a xorshift generator (Marsaglia, 2003).
fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

impl Transfer {
    fn random(state: &mut u64, accounts: u64) -> Self {
        let from = random(state) % accounts;
        let to = (from + 1 + random(state) % (accounts - 1)) % accounts;
        Self { from: key(from), to: key(to), amount: random(state) % 10 }
    }

    /// Returns the new balances.
    fn apply(&self, from: u64, to: u64) -> ([u8; 8], [u8; 8]) {
        let amount = self.amount.min(from);
        ((from - amount).to_le_bytes(), (to + amount).to_le_bytes())
    }
}

/// A store with accounts.
trait Bank: Sync {
    fn transfer(&self, transfer: &Transfer) -> AnyResult<()>;
}

impl Bank for Db {
    fn transfer(&self, transfer: &Transfer) -> AnyResult<()> {
        self.transaction(|tx| {
            let from = tx.get(self, transfer.from)?.map_or(0, |value| number(&value));
            let to = tx.get(self, transfer.to)?.map_or(0, |value| number(&value));
            let (from, to) = transfer.apply(from, to);
            tx.put(self, transfer.from, from)?;
            tx.put(self, transfer.to, to)
        })?;
        Ok(())
    }
}

impl Bank for Database {
    fn transfer(&self, transfer: &Transfer) -> AnyResult<()> {
        let mut tx = self.begin_write()?;
        tx.set_durability(redb::Durability::None)?;
        {
            let mut table = tx.open_table(TABLE)?;
            let from = table.get(&transfer.from[..])?.map_or(0, |value| number(value.value()));
            let to = table.get(&transfer.to[..])?.map_or(0, |value| number(value.value()));
            let (from, to) = transfer.apply(from, to);
            table.insert(&transfer.from[..], &from[..])?;
            table.insert(&transfer.to[..], &to[..])?;
        }
        tx.commit()?;
        Ok(())
    }
}

struct Fjall {
    database: OptimisticTxDatabase,
    accounts: OptimisticTxKeyspace,
}

impl Bank for Fjall {
    fn transfer(&self, transfer: &Transfer) -> AnyResult<()> {
        loop {
            let mut tx = self.database.write_tx()?;
            let from = tx.get(&self.accounts, transfer.from)?.map_or(0, |value| number(&value));
            let to = tx.get(&self.accounts, transfer.to)?.map_or(0, |value| number(&value));
            let (from, to) = transfer.apply(from, to);
            tx.insert(&self.accounts, transfer.from, from);
            tx.insert(&self.accounts, transfer.to, to);
            if tx.commit()?.is_ok() {
                return Ok(());
            }
        }
    }
}

fn open_lodestore(path: &Path, engine: Engine, accounts: u64) -> AnyResult<Box<dyn Bank>> {
    let db = Db::builder(path).engine(engine).durability(Durability::Process).capacity(1 << 30).open()?;
    for account in 0..accounts {
        db.put(key(account), BALANCE_DEFAULT.to_le_bytes())?;
    }
    db.settle()?;
    Ok(Box::new(db))
}

fn open_redb(path: &Path, accounts: u64) -> AnyResult<Box<dyn Bank>> {
    let database = Database::create(path)?;
    let tx = database.begin_write()?;
    {
        let mut table = tx.open_table(TABLE)?;
        for account in 0..accounts {
            table.insert(&key(account)[..], &BALANCE_DEFAULT.to_le_bytes()[..])?;
        }
    }
    tx.commit()?;
    Ok(Box::new(database))
}

fn open_fjall(path: &Path, accounts: u64) -> AnyResult<Box<dyn Bank>> {
    let database = OptimisticTxDatabase::builder(path).open()?;
    let keyspace = database.keyspace("accounts", KeyspaceCreateOptions::default)?;
    for account in 0..accounts {
        keyspace.insert(key(account), BALANCE_DEFAULT.to_le_bytes())?;
    }
    Ok(Box::new(Fjall { database, accounts: keyspace }))
}

/// Returns the transfers per second of `threads` threads.
fn measure(bank: &dyn Bank, threads: u64, accounts: u64, round: usize) -> AnyResult<f64> {
    let begun = Instant::now();
    let done = std::thread::scope(|scope| -> AnyResult<u64> {
        let run = |thread: u64| {
            move || -> AnyResult<u64> {
                let (mut state, mut done) = (0x9E37_79B9_7F4A_7C15 ^ (thread + 1) << 32 ^ round as u64, 0);
                while begun.elapsed() < ROUND_TIME {
                    for _ in 0..TURN_TRANSACTION_COUNT {
                        bank.transfer(&Transfer::random(&mut state, accounts))?;
                    }
                    done += TURN_TRANSACTION_COUNT;
                }
                Ok(done)
            }
        };
        let threads: Vec<_> = (0..threads).map(|thread| scope.spawn(run(thread))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a thread that does not panic")).sum()
    })?;
    Ok(done as f64 / begun.elapsed().as_secs_f64())
}

fn main() -> AnyResult<()> {
    let mut arguments = std::env::args().skip(1);
    let dir = arguments.next().ok_or("usage: transactions DIR [ACCOUNTS]")?;
    let accounts = arguments.next().map_or(Ok(ACCOUNT_COUNT), |text| text.parse())?;
    let dir = Path::new(&dir).join("transactions");
    std::fs::create_dir(&dir)?;
    let mut banks: Vec<(&str, Box<dyn Bank>)> = Vec::new();
    for engine in [Engine::hikv(), Engine::nvht(), Engine::fluidkv(), Engine::hashkv()] {
        let name = engine.name().expect("an engine");
        banks.push((name, open_lodestore(&dir.join(name), engine, accounts)?));
    }
    banks.push(("redb", open_redb(&dir.join("redb"), accounts)?));
    banks.push(("fjall", open_fjall(&dir.join("fjall"), accounts)?));
    println!("{accounts} accounts, transfers a second: median (least to most) of {ROUND_COUNT} rounds");
    println!("{:<8} {:>7} {:>32} {:>8} {:>8}", "store", "threads", "transfers", "of redb", "of fjall");
    for threads in [1, 2] {
        let mut rates = vec![Vec::new(); banks.len()];
        for round in 0..ROUND_COUNT {
            for ((_, bank), rates) in banks.iter().zip(&mut rates) {
                rates.push(measure(&**bank, threads, accounts, round)?);
            }
        }
        rates.iter_mut().for_each(|rates| rates.sort_by(f64::total_cmp));
        let median = |bank: usize| rates[bank][ROUND_COUNT / 2];
        for (bank, (name, _)) in banks.iter().enumerate() {
            let range = format!("{:.0} ({:.0} to {:.0})", median(bank), rates[bank][0], rates[bank][ROUND_COUNT - 1]);
            let ratios = [banks.len() - 2, banks.len() - 1].map(|peer| median(bank) / median(peer));
            println!("{name:<8} {threads:>7} {range:>32} {:>8.2} {:>8.2}", ratios[0], ratios[1]);
        }
    }
    drop(banks);
    std::fs::remove_dir_all(&dir)?;
    Ok(())
}
