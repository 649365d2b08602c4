//! Iterators over pairs and keys, pages, views, and reads without a copy, in every engine.

use std::ops::Bound;
use std::path::Path;

use lodestore::db::{Engine, Page};
use lodestore::{Cursor, Db, Error};
use lodestore_contract::testing::Scratch;

const ENGINES: [Engine; 5] = [Engine::hikv(), Engine::nvht(), Engine::fluidkv(), Engine::hashkv(), Engine::mkvs()];
/// More than two groups of pairs per read.
const KEYS: u32 = 300;

fn open(engine: Engine, path: &Path) -> Db {
    let opened = Db::builder(path).engine(engine.clone()).capacity(64 << 20).open();
    opened.unwrap_or_else(|error| panic!("{engine:?}: {error}"))
}

/// Calls `test` with a new store of each engine.
fn each(test: impl Fn(&Db)) {
    for engine in ENGINES {
        let dir = Scratch::new();
        let db = open(engine, &dir.store());
        test(&db);
        db.close().expect("a clean stop");
    }
}

/// Calls `test` with a new store of each engine that keeps order, filled in both keyspaces.
fn each_ordered(test: impl Fn(&Db)) {
    each(|db| {
        if db.engine() == "nvht" {
            return;
        }
        let named = db.keyspace("named").expect("creates");
        for number in 0..KEYS {
            db.put(key(number), format!("value {number}")).expect("put");
            named.put(key(number), format!("named {number}")).expect("put");
        }
        db.put(b"\xff\xffkey", "reserved").expect("put");
        test(db);
    });
}

fn key(number: u32) -> String {
    format!("key{number:03}")
}

/// The keys of a page.
fn keys(page: &Page) -> Vec<String> {
    page.pairs.iter().map(|(key, _)| key.as_str().expect("text").to_string()).collect()
}

#[test]
fn get_with_shows_the_value_of_its_keyspace() {
    each(|db| {
        let named = db.keyspace("named").expect("creates");
        db.put("k", "of the default").expect("put");
        named.put("k", "of the named").expect("put");
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
        assert_eq!(db.get_with("k", text).expect("reads").as_deref(), Some("of the default"));
        assert_eq!(named.get_with("k", text).expect("reads").as_deref(), Some("of the named"));
        assert_eq!(db.get_with("absent", text).expect("reads"), None);
        db.drop_keyspace("named").expect("drops");
        assert!(matches!(named.get_with("k", text), Err(Error::KeyspaceDropped { .. })));
    });
}

#[test]
fn keys_are_walked_without_their_values_from_both_ends() {
    each_ordered(|db| {
        let named = db.keyspace("named").expect("opens");
        let all: Vec<String> = (0..KEYS).map(key).collect();
        let forward = named.prefix_keys("key").expect("keys").map(|key| key.expect("a key"));
        assert!(forward.eq(all.iter().map(String::as_str)));
        let mut both = db.range_keys("key100".."key103").expect("keys");
        assert_eq!(both.next_back().expect("a key").expect("reads"), "key102");
        assert_eq!(both.next().expect("a key").expect("reads"), "key100");
        assert_eq!(both.next().expect("a key").expect("reads"), "key101");
        assert!(both.next().is_none() && both.next_back().is_none());
        let last = db.range_keys::<&str>(..).expect("keys").next_back();
        assert_eq!(last.expect("a key").expect("reads"), &b"\xff\xffkey"[..]);
    });
}

#[test]
fn pages_show_each_pair_once_from_either_end_while_others_write() {
    each_ordered(|db| {
        let named = db.keyspace("named").expect("opens");
        let all: Vec<String> = (0..KEYS).map(key).collect();
        for size in [1, 7, 128, 300, 301] {
            let (mut seen, mut cursor) = (Vec::new(), None);
            loop {
                let pairs = named.prefix("key").expect("a walk");
                let pairs = cursor.as_ref().map_or(Ok(named.prefix("key").expect("a walk")), |at| pairs.after(at));
                let page = pairs.expect("after").page(size).expect("a page");
                seen.extend(keys(&page));
                // A key that sorts before the cursor is in no later page.
                named.put("key", "written meanwhile").expect("put");
                let Some(next) = page.next else { break };
                assert_eq!(page.pairs.len(), size);
                cursor = Some(next.to_string().parse::<Cursor>().expect("a cursor"));
            }
            assert_eq!(seen, all, "pages of {size}");
            named.delete("key").expect("delete");

            let mut page = named.prefix("key").expect("a walk").page_back(size).expect("a page");
            let mut seen = keys(&page);
            while let Some(cursor) = page.next {
                let pairs = named.prefix("key").expect("a walk").before(&cursor).expect("before");
                page = pairs.page_back(size).expect("a page");
                seen.extend(keys(&page));
            }
            assert!(seen.iter().rev().eq(&all), "pages of {size} from the end");
        }
    });
}

#[test]
fn a_cursor_never_leads_out_of_its_range() {
    each_ordered(|db| {
        let range = || db.range("key100".."key110").expect("a walk");
        let all: Vec<String> = (100..110).map(key).collect();
        for (at, rest) in [("a", 0), ("key099", 0), ("key100", 1), ("key1000", 1), ("key109", 10), ("z", 10)] {
            let after = range().after(&Cursor::at(at)).expect("after").page(99).expect("a page");
            assert_eq!(keys(&after), all[rest..], "after {at}");
            assert_eq!(after.next, None);
        }
        for (at, rest) in [("a", 0), ("key100", 0), ("key101", 1), ("key109", 9), ("key110", 10), ("z", 10)] {
            let before = range().before(&Cursor::at(at)).expect("before").page_back(99).expect("a page");
            assert!(keys(&before).iter().rev().eq(&all[..rest]), "before {at}");
        }
        assert_eq!(range().page(0).expect("a page").pairs.len(), 1, "a page is never empty before the end");
    });
}

#[test]
fn a_cursor_of_a_dropped_keyspace_is_refused() {
    each_ordered(|db| {
        let named = db.keyspace("named").expect("opens");
        let pairs = named.prefix("key").expect("a walk");
        db.drop_keyspace("named").expect("drops");
        assert!(matches!(pairs.after(&Cursor::at("key1")).err(), Some(Error::KeyspaceDropped { .. })));
    });
}

#[test]
fn a_view_is_walked_from_both_ends_and_never_changes() {
    each_ordered(|db| {
        let view = match db.snapshot() {
            Ok(view) => view.of(&db.keyspace("named").expect("opens")).expect("a view"),
            Err(Error::Unsupported { .. }) => return,
            Err(error) => panic!("{error}"),
        };
        let named = db.keyspace("named").expect("opens");
        for number in 0..KEYS {
            named.delete(key(number)).expect("delete");
        }
        named.put("key000x", "later").expect("put");
        assert!(view.contains("key000").expect("reads") && !view.contains("key000x").expect("reads"));
        let found = view.prefix("key").map(|pair| pair.expect("a pair").0);
        assert!(found.eq((0..KEYS).map(key)));
        let mut ends = view.range::<&str>((Bound::Excluded("key000"), Bound::Included("key299")));
        let mut found = Vec::new();
        while let (Some(first), Some(last)) = (ends.next(), ends.next_back()) {
            found.push((first.expect("a pair").0, last.expect("a pair").0));
        }
        assert_eq!(found.len(), 149);
        assert_eq!(found[0], (b"key001".to_vec().into(), b"key299".to_vec().into()));
        let page = view.prefix("key").after(&Cursor::at("key297")).expect("after").page(9).expect("a page");
        assert_eq!(keys(&page), ["key298", "key299"]);
    });
}

#[test]
fn the_approximate_length_needs_no_walk() {
    each(|db| {
        for number in 0..KEYS {
            db.put(key(number), "1").expect("put");
        }
        db.settle().expect("settles");
        assert_eq!(db.count().expect("counts, and waits for the work in the background"), u64::from(KEYS));
        let keys = db.approximate_len();
        assert!((u64::from(KEYS)..2 * u64::from(KEYS)).contains(&keys), "{}: {keys}", db.engine());
    });
}

#[test]
fn walks_over_long_values_show_each_pair_once_from_both_ends() {
    each_ordered(|db| {
        let long = db.keyspace("long").expect("creates");
        for number in 0..12 {
            long.put(key(number), vec![number as u8; 400 << 10]).expect("put");
        }
        let whole = |pair: lodestore::Result<(lodestore::Value, lodestore::Value)>| {
            let (key, value) = pair.expect("a pair");
            assert!(value.len() == 400 << 10 && value.iter().all(|byte| *byte == value[0]));
            key.as_str().expect("text").to_string()
        };
        let all: Vec<String> = (0..12).map(key).collect();
        assert!(long.prefix("key").expect("a walk").map(whole).eq(all.iter().cloned()));
        assert!(long.prefix("key").expect("a walk").rev().map(whole).eq(all.iter().rev().cloned()));
        if let Ok(view) = db.snapshot() {
            let view = view.of(&long).expect("a view");
            assert!(view.prefix("key").map(whole).eq(all.iter().cloned()));
        }
    });
}

/// Changes one byte of each occurrence of a text in the regions of a store.
fn damage(store: &Path, text: &str) {
    let mut places = 0;
    for entry in std::fs::read_dir(store).expect("a directory") {
        let path = entry.expect("an entry").path();
        let mut bytes = std::fs::read(&path).expect("a file");
        for at in 0..bytes.len().saturating_sub(text.len()) {
            if bytes[at..].starts_with(text.as_bytes()) {
                bytes[at] ^= 0x40;
                places += 1;
            }
        }
        std::fs::write(&path, bytes).expect("a file");
    }
    assert!(places > 0, "no file has {text}");
}

#[test]
fn a_walk_returns_the_pairs_before_a_damaged_one_and_then_the_error() {
    for engine in [Engine::hikv(), Engine::fluidkv(), Engine::hashkv()] {
        let dir = Scratch::new();
        let db = open(engine.clone(), &dir.store());
        let filler = "x".repeat(200);
        for number in 0..KEYS {
            db.put(key(number), format!("value {number} {filler}")).expect("put");
        }
        db.close().expect("a clean stop");
        damage(&dir.store(), &format!("value 100 {filler}"));
        let db = open(engine.clone(), &dir.store());
        let forward: Vec<_> = db.iter().expect("a walk").collect();
        let backward: Vec<_> = std::iter::from_fn({
            let mut walk = db.iter().expect("a walk");
            move || walk.next_back()
        })
        .collect();
        for (walk, last) in [(&forward, 0), (&backward, KEYS - 1)] {
            let (failure, pairs) = walk.split_last().expect("an error at least");
            assert!(matches!(failure, Err(Error::Corrupt { .. })), "{engine:?}: {failure:?}");
            assert!(!pairs.is_empty(), "{engine:?}");
            for (number, pair) in (0..).zip(pairs) {
                let (read, _) = pair.as_ref().unwrap_or_else(|error| panic!("{engine:?}: {error} comes early"));
                assert_eq!(*read, key(last.abs_diff(number)), "{engine:?}");
            }
        }
    }
}
