//! The README's program with fjall: it counts its runs, even if they are killed.

use fjall::{Database, KeyspaceCreateOptions};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let db = Database::builder("state.fjall").open()?; // opens the store, or creates it
    let counters = db.keyspace("counters", KeyspaceCreateOptions::default)?;
    let runs = match counters.get("runs")? {
        Some(text) => str::from_utf8(&text)?.parse::<u64>()? + 1,
        None => 1,
    };
    counters.insert("runs", runs.to_string())?;
    println!("run {runs}: press Enter, or kill -9 this program");
    std::io::stdin().read_line(&mut String::new())?;
    Ok(())
}
