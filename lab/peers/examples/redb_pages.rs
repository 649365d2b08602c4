//! An ordered index in redb that is read in pages, from both ends.
//!
//! `cargo run --release -p lodestore-peers --features redb --example redb_pages -- FILE`
//!
//! The key of an event is its topic and its number, as a tuple. A client receives the cursor of a
//! page as text: the number of its last event. The cursor stays valid during writes, and nothing
//! stays open between two pages.

use std::error::Error;
use std::ops::Bound::{Excluded, Included};

use redb::{AccessGuard, Database, ReadableDatabase, StorageError, TableDefinition};

const PAGE_EVENT_COUNT: usize = 25;
const EVENTS: TableDefinition<(&str, u64), &str> = TableDefinition::new("events");

type AnyResult<T> = Result<T, Box<dyn Error>>;
type Pair<'a> = (AccessGuard<'a, (&'static str, u64)>, AccessGuard<'a, &'static str>);

/// At most `PAGE_EVENT_COUNT` events.
struct Page {
    events: Vec<(u64, String)>,
    /// The cursor of the next page: the number of the last event.
    next: Option<u64>,
}

/// Collects a page, and checks whether an event follows.
fn collect<'a>(mut pairs: impl Iterator<Item = Result<Pair<'a>, StorageError>>) -> AnyResult<Page> {
    let events = pairs.by_ref().take(PAGE_EVENT_COUNT);
    let events = events.map(|pair| pair.map(|(key, event)| (key.value().1, event.value().to_owned())));
    let events: Vec<_> = events.collect::<Result<_, _>>()?;
    let next = pairs.next().transpose()?.and(events.last()).map(|(number, _)| *number);
    Ok(Page { events, next })
}

/// Returns a page of a topic, the oldest event first, after the cursor of the previous page.
fn page_after(db: &Database, topic: &str, cursor: Option<u64>) -> AnyResult<Page> {
    let from = cursor.map_or(Included((topic, 0)), |number| Excluded((topic, number)));
    collect(db.begin_read()?.open_table(EVENTS)?.range((from, Included((topic, u64::MAX))))?)
}

/// Returns a page of a topic, the newest event first, before the cursor of the previous page.
fn page_before(db: &Database, topic: &str, cursor: Option<u64>) -> AnyResult<Page> {
    let to = cursor.map_or(Included((topic, u64::MAX)), |number| Excluded((topic, number)));
    collect(db.begin_read()?.open_table(EVENTS)?.range((Included((topic, 0)), to))?.rev())
}

/// Writes one event.
fn put(db: &Database, topic: &str, number: u64, event: &str) -> AnyResult<()> {
    let write = db.begin_write()?;
    write.open_table(EVENTS)?.insert((topic, number), event)?;
    Ok(write.commit()?)
}

fn main() -> AnyResult<()> {
    let Some(file) = std::env::args().nth(1) else {
        eprintln!("usage: redb_pages FILE");
        std::process::exit(2);
    };
    let db = Database::create(file)?;
    let write = db.begin_write()?;
    {
        let mut events = write.open_table(EVENTS)?;
        for number in 0..110 {
            events.insert(("weather", number), format!("day {number}").as_str())?;
            events.insert(("traffic", number), "another topic")?;
        }
    }
    write.commit()?;
    let (mut cursor, mut pages, mut seen) = (None, 0, Vec::new());
    loop {
        let page = page_after(&db, "weather", cursor)?;
        pages += 1;
        seen.extend(page.events.iter().map(|(number, _)| *number));
        // A writer between two pages.
        put(&db, "weather", 1000 + pages, "written meanwhile")?;
        let Some(next) = page.next else { break };
        // The client returns the cursor as text.
        cursor = Some(next.to_string().parse()?);
    }
    assert!(seen.is_sorted() && (0..110).all(|number| seen.binary_search(&number).is_ok()));
    println!("{} events of one topic in {pages} pages", seen.len());
    let newest = page_before(&db, "weather", None)?;
    println!("newest: {:?}", newest.events.first().map(|(number, _)| number));
    let older = page_before(&db, "weather", newest.next)?;
    assert!(newest.events.iter().chain(&older.events).is_sorted_by(|a, b| a.0 > b.0));
    Ok(db.close()?)
}
