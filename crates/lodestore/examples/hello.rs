//! The program of the README: it counts its runs, also those that are killed.

use lodestore::Db;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let db = Db::open("state")?; // opens the store, or creates it
    let runs = match db.get("runs")? {
        Some(text) => text.as_str()?.parse::<u64>()? + 1,
        None => 1,
    };
    db.put("runs", runs.to_string())?;
    println!("run {runs}: press Enter, or kill -9 this program");
    std::io::stdin().read_line(&mut String::new())?;
    Ok(())
}
