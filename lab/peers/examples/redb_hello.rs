//! The README's program with redb: it counts its runs, even if they are killed.

use redb::{Database, ReadableTable, TableDefinition};

const COUNTERS: TableDefinition<&str, u64> = TableDefinition::new("counters");

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let db = Database::create("state.redb")?; // opens the store, or creates it
    let write = db.begin_write()?;
    let runs = {
        let mut counters = write.open_table(COUNTERS)?;
        let runs = counters.get("runs")?.map_or(0, |runs| runs.value()) + 1;
        counters.insert("runs", runs)?;
        runs
    };
    write.commit()?;
    println!("run {runs}: press Enter, or kill -9 this program");
    std::io::stdin().read_line(&mut String::new())?;
    Ok(())
}
