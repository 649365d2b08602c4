//! An ordered index that is read in pages, from both ends.
//!
//! `cargo run --release -p lodestore --example pages -- DIR`
//!
//! The key of an event is its topic, a zero byte, and its number in big-endian bytes, so that the
//! events of a topic are in order. A topic has no zero byte. A client gets the cursor of a page as
//! text. The cursor stays right while others write, and nothing is kept open between two pages.

#![expect(clippy::big_endian_bytes, reason = "keys sort by their bytes")]

use std::error::Error;

use lodestore::{Cursor, Db, Page, Result};

const PAGE_EVENTS_MAX: usize = 25;

fn key(topic: &str, number: u64) -> Vec<u8> {
    [topic.as_bytes(), &[0], &number.to_be_bytes()].concat()
}

fn number_of(key: &[u8]) -> u64 {
    key.last_chunk().map_or(0, |number| u64::from_be_bytes(*number))
}

fn numbers(page: &Page) -> impl Iterator<Item = u64> {
    page.pairs.iter().map(|(key, _)| number_of(key))
}

/// Returns a page of a topic, the oldest event first, after the cursor of the page before.
fn page_after(db: &Db, topic: &str, cursor: Option<&Cursor>) -> Result<Page> {
    let events = db.prefix([topic.as_bytes(), &[0]].concat())?;
    match cursor {
        Some(cursor) => events.after(cursor)?.page(PAGE_EVENTS_MAX),
        None => events.page(PAGE_EVENTS_MAX),
    }
}

/// Returns a page of a topic, the newest event first, before the cursor of the page before.
fn page_before(db: &Db, topic: &str, cursor: Option<&Cursor>) -> Result<Page> {
    let events = db.prefix([topic.as_bytes(), &[0]].concat())?;
    match cursor {
        Some(cursor) => events.before(cursor)?.page_back(PAGE_EVENTS_MAX),
        None => events.page_back(PAGE_EVENTS_MAX),
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let Some(dir) = std::env::args().nth(1) else {
        eprintln!("usage: pages DIR");
        std::process::exit(2);
    };
    // The medium chooses `hikv` or `fluidkv`. Both keep keys in order.
    let db = Db::builder(&dir).capacity(256 << 20).open()?;
    println!("{}", db.choice());
    for number in 0..110 {
        db.put(key("weather", number), format!("day {number}"))?;
        db.put(key("traffic", number), "another topic")?;
    }
    let (mut cursor, mut pages, mut seen) = (None, 0, Vec::new());
    loop {
        let page = page_after(&db, "weather", cursor.as_ref())?;
        pages += 1;
        seen.extend(numbers(&page));
        // A writer between two pages.
        db.put(key("weather", 1000 + pages), "written meanwhile")?;
        let Some(next) = page.next else { break };
        // What the client sends back.
        cursor = Some(next.to_string().parse()?);
    }
    assert!(seen.is_sorted() && (0..110).all(|number| seen.binary_search(&number).is_ok()));
    println!("{} events of one topic in {pages} pages", seen.len());
    let newest = page_before(&db, "weather", None)?;
    println!("newest: {:?}", numbers(&newest).next());
    let older = page_before(&db, "weather", newest.next.as_ref())?;
    assert!(numbers(&newest).chain(numbers(&older)).is_sorted_by(|a, b| a > b));
    Ok(db.close()?)
}
