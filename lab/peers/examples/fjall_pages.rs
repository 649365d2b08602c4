//! An ordered index in fjall that is read in pages, from both ends.
//!
//! `cargo run --release -p lodestore-peers --features fjall --example fjall_pages -- DIR`
//!
//! The key of an event is its topic, a zero byte, and its number in big-endian bytes, so that the
//! events of a topic are in order. A topic has no zero byte. A client receives the cursor of a page
//! as text: the number of its last event. The cursor stays valid during writes, and nothing stays
//! open between two pages.

#![expect(clippy::big_endian_bytes, reason = "keys sort by their bytes")]

use std::error::Error;
use std::ops::Bound::{Excluded, Included};

use fjall::{Database, Guard, KeyspaceCreateOptions, PersistMode, UserValue};

const PAGE_EVENT_COUNT: usize = 25;

fn key(topic: &str, number: u64) -> Vec<u8> {
    [topic.as_bytes(), &[0], &number.to_be_bytes()].concat()
}

fn number_of(key: &[u8]) -> u64 {
    key.last_chunk().map_or(0, |number| u64::from_be_bytes(*number))
}

/// At most `PAGE_EVENT_COUNT` events.
struct Page {
    events: Vec<(u64, UserValue)>,
    /// The cursor of the next page: the number of the last event.
    next: Option<u64>,
}

/// Collects a page, and checks whether an event follows.
fn collect(mut pairs: impl Iterator<Item = Guard>) -> fjall::Result<Page> {
    let events = pairs.by_ref().take(PAGE_EVENT_COUNT);
    let events = events.map(|pair| pair.into_inner().map(|(key, event)| (number_of(&key), event)));
    let events: Vec<_> = events.collect::<Result<_, _>>()?;
    let next = pairs.next().map(Guard::key).transpose()?.and(events.last()).map(|(number, _)| *number);
    Ok(Page { events, next })
}

/// Returns a page of a topic, the oldest event first, after the cursor of the previous page.
fn page_after(events: &fjall::Keyspace, topic: &str, cursor: Option<u64>) -> fjall::Result<Page> {
    let from = cursor.map_or(Included(key(topic, 0)), |number| Excluded(key(topic, number)));
    collect(events.range((from, Included(key(topic, u64::MAX)))))
}

/// Returns a page of a topic, the newest event first, before the cursor of the previous page.
fn page_before(events: &fjall::Keyspace, topic: &str, cursor: Option<u64>) -> fjall::Result<Page> {
    let to = cursor.map_or(Included(key(topic, u64::MAX)), |number| Excluded(key(topic, number)));
    collect(events.range((Included(key(topic, 0)), to)).rev())
}

fn main() -> Result<(), Box<dyn Error>> {
    let Some(dir) = std::env::args().nth(1) else {
        eprintln!("usage: fjall_pages DIR");
        std::process::exit(2);
    };
    let db = Database::builder(dir).open()?;
    let events = db.keyspace("events", KeyspaceCreateOptions::default)?;
    for number in 0..110 {
        events.insert(key("weather", number), format!("day {number}"))?;
        events.insert(key("traffic", number), "another topic")?;
    }
    let (mut cursor, mut pages, mut seen) = (None, 0, Vec::new());
    loop {
        let page = page_after(&events, "weather", cursor)?;
        pages += 1;
        seen.extend(page.events.iter().map(|(number, _)| *number));
        // A writer between two pages.
        events.insert(key("weather", 1000 + pages), "written meanwhile")?;
        let Some(next) = page.next else { break };
        // The client returns the cursor as text.
        cursor = Some(next.to_string().parse()?);
    }
    assert!(seen.is_sorted() && (0..110).all(|number| seen.binary_search(&number).is_ok()));
    println!("{} events of one topic in {pages} pages", seen.len());
    let newest = page_before(&events, "weather", None)?;
    println!("newest: {:?}", newest.events.first().map(|(number, _)| number));
    let older = page_before(&events, "weather", newest.next)?;
    assert!(newest.events.iter().chain(&older.events).is_sorted_by(|a, b| a.0 > b.0));
    Ok(db.persist(PersistMode::SyncAll)?)
}
