//! An ordered index that is read in pages, from both ends.
//!
//! `cargo run --release -p lodestore --example pages -- DIR`
//!
//! The key of an event is its topic, a zero byte, and its number in big-endian bytes, so that the
//! events of a topic are in order. A topic has no zero byte. The cursor of a page is its last key:
//! the cursor stays right while others write, and needs nothing kept open between two pages.

#![expect(clippy::big_endian_bytes, reason = "keys sort by their bytes")]

use std::ops::Bound;

use lodestore::{Db, Result};

const PAGE_EVENTS: usize = 25;

/// A page of events, and the cursor of the next one.
struct Page {
    events: Vec<(u64, String)>,
    next: Option<Vec<u8>>,
}

fn key(topic: &str, number: u64) -> Vec<u8> {
    [topic.as_bytes(), &[0], &number.to_be_bytes()].concat()
}

/// Returns a page of a topic, the oldest event first. `cursor` is the `next` of the page before.
fn page_after(db: &Db, topic: &str, cursor: Option<Vec<u8>>) -> Result<Page> {
    let from = cursor.map_or_else(|| Bound::Included(key(topic, 0)), Bound::Excluded);
    collect(db.range((from, Bound::Included(key(topic, u64::MAX))))?)
}

/// Returns a page of a topic, the newest event first. `cursor` is the `next` of the page before.
fn page_before(db: &Db, topic: &str, cursor: Option<Vec<u8>>) -> Result<Page> {
    let to = cursor.map_or_else(|| Bound::Included(key(topic, u64::MAX)), Bound::Excluded);
    collect(db.range((Bound::Included(key(topic, 0)), to))?.rev())
}

fn collect(pairs: impl Iterator<Item = Result<(lodestore::db::Value, lodestore::db::Value)>>) -> Result<Page> {
    let mut page = Page { events: Vec::new(), next: None };
    for pair in pairs.take(PAGE_EVENTS) {
        let (key, text) = pair?;
        let number = key.last_chunk().map_or(0, |number| u64::from_be_bytes(*number));
        page.events.push((number, String::from_utf8_lossy(&text).into_owned()));
        page.next = Some(key.into_vec());
    }
    if page.events.len() < PAGE_EVENTS {
        page.next = None;
    }
    Ok(page)
}

fn main() -> Result<()> {
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
        let page = page_after(&db, "weather", cursor)?;
        pages += 1;
        seen.extend(page.events.into_iter().map(|(number, _)| number));
        // A writer between two pages.
        db.put(key("weather", 1000 + pages), "written meanwhile")?;
        let Some(next) = page.next else { break };
        cursor = Some(next);
    }
    assert!(seen.is_sorted() && (0..110).all(|number| seen.binary_search(&number).is_ok()));
    println!("{} events of one topic in {pages} pages", seen.len());
    let newest = page_before(&db, "weather", None)?;
    println!("newest: {:?}", newest.events.first());
    assert!(newest.events.iter().rev().is_sorted());
    let older = page_before(&db, "weather", newest.next)?;
    assert!(older.events.first() < newest.events.last());
    db.close()
}
