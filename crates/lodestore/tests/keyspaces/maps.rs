//! Keyspaces as separate maps.

use std::sync::Barrier;

use lodestore::db::Keyspace;
use lodestore::store::limits::KEY_MAX;
use lodestore::store::{Change, Swap, Visit};
use lodestore::{Error, Expiry, Lifetime};

use crate::setup::{each, raw, raw_ids, slot};

#[test]
fn a_keyspace_has_its_own_pairs_after_a_reopen_too() {
    each(|setup, path| {
        let name = setup.name();
        for round in 0..3 {
            let db = setup.open(path);
            let (users, emails) = (db.keyspace("users").expect("opens"), db.keyspace("emails").expect("opens"));
            assert_eq!((users.name(), emails.name()), ("users", "emails"));
            if round > 0 {
                assert_eq!(users.get("k").expect("get").expect("there"), "of users", "{name}");
                assert_eq!(emails.get("k").expect("get").expect("there"), "of emails", "{name}");
                assert_eq!(db.get("k").expect("get").expect("there"), "of the default", "{name}");
            }
            users.put("k", "of users").expect("put");
            emails.put("k", "of emails").expect("put");
            db.put("k", "of the default").expect("put");
            for count in [users.count(), emails.count(), db.count()] {
                assert_eq!(count.expect("count"), 1, "{name}");
            }
            assert_eq!(db.keyspaces().expect("names"), ["emails", "users"], "{name}");
        }
    });
}

#[test]
fn every_operation_of_a_keyspace_sees_only_its_own_keys() {
    each(|setup, path| {
        let db = setup.open(path);
        let (one, other) = (db.keyspace("one").expect("opens"), db.keyspace("other").expect("opens"));
        let expiry = Expiry::at_millis(u64::MAX / 2);
        for key in ["k", "l", "m"] {
            other.put_expiring(key, "other", expiry).expect("put");
            db.put_expiring(key, "default", expiry).expect("put");
        }
        assert_eq!(one.get("k").expect("get"), None);
        assert!(!one.contains("k").expect("contains") && one.expiry("k").expect("expiry").is_none());
        let mut buffer = b"old".to_vec();
        assert!(!one.get_into("k", &mut buffer).expect("get") && buffer.is_empty());
        assert!(!one.update("k", "v", Lifetime::Keep).expect("update"));
        assert!(!one.delete("k").expect("delete"));
        assert!(one.insert("k", "v", Lifetime::Forever).expect("insert"));
        let swapped = one.compare_and_swap("l", Some(b"other"), Some(b"w"), Lifetime::Keep).expect("swap");
        assert_eq!(swapped, Swap::Differs(None));
        one.update_with("m", |value, expiry| {
            assert_eq!((value, expiry), (None, None));
            Change::Put(b"x".to_vec(), Lifetime::Forever)
        })
        .expect("update");
        let values = one.multi_get(["k", "l", "m"]).expect("multi_get");
        assert_eq!(
            values.iter().map(|value| value.as_deref()).collect::<Vec<_>>(),
            [Some(&b"v"[..]), None, Some(b"x")]
        );
        for key in ["k", "l", "m"] {
            assert_eq!(other.get(key).expect("get").expect("there"), "other", "{}", setup.name());
            assert_eq!(db.get(key).expect("get").expect("there"), "default");
            assert_eq!(other.expiry(key).expect("expiry"), Some(Some(expiry)));
        }
    });
}

#[test]
fn a_store_without_keyspaces_has_only_the_users_records() {
    each(|setup, path| {
        let db = setup.open(path);
        db.put("a", "1").expect("put");
        db.put(b"\xff", "2").expect("put");
        assert_eq!(db.count().expect("count"), 2);
        assert!(db.keyspaces().expect("names").is_empty() && !db.drop_keyspace("a").expect("drop"));
        drop(db);
        let pair = |key: &[u8], value: &[u8]| (key.to_vec(), value.to_vec());
        assert_eq!(raw(path), [pair(b"a", b"1"), pair(b"\xff", b"2")], "{}", setup.name());
        let db = setup.open(path);
        db.put(b"\xff\xff\x02k", "3").expect("put");
        assert_eq!(db.count().expect("count"), 3);
        drop(db);
        assert_eq!(raw(path)[2], pair(b"\xff\xff\x01\xff\xff\x02k", b"3"), "{}", setup.name());
    });
}

#[test]
fn the_count_of_the_default_keyspace_leaves_out_the_catalogue_and_all_others() {
    each(|setup, path| {
        let db = setup.open(path);
        let keys: [&[u8]; 5] = [b"a", b"\xff", b"\xff\xff", b"\xff\xff\0", b"\xff\xff\x02a"];
        keys.iter().try_for_each(|key| db.put(key, "v")).expect("puts");
        assert_eq!(db.count().expect("count"), 5);
        let users = db.keyspace("users").expect("creates");
        assert_eq!(db.count().expect("count"), 5, "{}", setup.name());
        (0..50_u8).try_for_each(|number| users.put([number], "v")).expect("puts");
        assert_eq!((db.count().expect("count"), users.count().expect("count")), (5, 50));
        let mut shown = Vec::new();
        let visits = db.for_each(|key, _| {
            shown.push(key.to_vec());
            if shown.len() < 3 { Visit::More } else { Visit::Stop }
        });
        assert_eq!((visits.expect("a walk"), shown.len()), (3, 3));
        assert!(shown.iter().all(|key| keys.contains(&&key[..])), "{shown:?}");
        assert!(db.drop_keyspace("users").expect("drops"));
        db.settle().expect("a settle");
        assert_eq!(db.count().expect("count"), 5, "{}", setup.name());
    });
}

#[test]
fn keys_are_as_long_as_the_prefix_allows() {
    each(|setup, path| {
        let db = setup.open(path);
        let users = db.keyspace("users").expect("creates");
        let longest = vec![0xFF; KEY_MAX - 7];
        for map in [&users, &db.keyspace("more").expect("creates")] {
            map.put(&longest, "v").expect("put");
            assert_eq!(map.get(&longest).expect("get").expect("there"), "v", "{}", setup.name());
        }
        db.put(&longest, "w").expect("put");
        db.put(vec![0xFE; KEY_MAX], "w").expect("put");
        let longer = vec![0xFF; KEY_MAX - 6];
        for refused in [users.put(&longer, "v"), db.put(&longer, "v"), users.get(&longer).map(drop)] {
            assert!(
                matches!(refused, Err(Error::KeyLength { len, max }) if len == KEY_MAX - 6 && max == KEY_MAX - 7),
                "{refused:?}"
            );
        }
        for refused in [users.put("", "v"), db.put("", "v"), users.multi_get(["a", ""]).map(drop)] {
            assert!(matches!(refused, Err(Error::KeyLength { len: 0, .. })), "{refused:?}");
        }
        if setup.has_order {
            let above = users.range(&longest[..longest.len() - 1]..).expect("a range");
            assert_eq!(above.count(), 1);
            assert_eq!(users.range(vec![0xFF; 2 * KEY_MAX]..).expect("a range").count(), 0);
            assert_eq!(db.range(..vec![0xFF; 2 * KEY_MAX]).expect("a range").count(), 2);
        }
    });
}

#[test]
fn names_have_1_to_255_bytes() {
    each(|setup, path| {
        let db = setup.open(path);
        let long = "\u{e4}".repeat(127) + "x";
        for name in ["x", "\0", " ", &long] {
            db.keyspace(name).expect("creates").put("k", name).expect("put");
        }
        for name in [String::new(), "x".repeat(256), "\u{e4}".repeat(128)] {
            let len = name.len();
            for refused in [db.keyspace(&name).map(drop), db.drop_keyspace(&name).map(drop)] {
                assert!(matches!(refused, Err(Error::KeyspaceName { len: told }) if told == len), "{refused:?}");
            }
        }
        drop(db);
        let db = setup.open(path);
        assert_eq!(db.keyspaces().expect("names"), ["\0", " ", "x", &long]);
        assert_eq!(db.keyspace(&long).expect("opens").get("k").expect("get").expect("there"), long.as_str());
    });
}

#[test]
fn threads_that_create_one_name_at_once_get_one_keyspace_and_other_names_get_their_own() {
    each(|setup, path| {
        let db = setup.open(path);
        let barrier = Barrier::new(4);
        let open = |thread: u8| {
            barrier.wait();
            let shared = db.keyspace("shared").expect("creates or opens");
            let own = db.keyspace(format!("own {thread}")).expect("creates");
            shared.put([thread], "v").and_then(|()| own.put("k", [thread])).expect("puts");
            (shared, own)
        };
        let maps: Vec<(Keyspace, Keyspace)> = std::thread::scope(|scope| {
            let open = &open;
            let threads: Vec<_> = (0..4).map(|thread| scope.spawn(move || open(thread))).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        for (thread, (shared, own)) in maps.iter().enumerate() {
            assert_eq!((shared.count().expect("count"), own.count().expect("count")), (4, 1), "{}", setup.name());
            assert_eq!(own.get("k").expect("get").expect("there"), vec![thread as u8]);
        }
        assert_eq!(db.keyspaces().expect("names").len(), 5);
        drop((maps, db));
        assert_eq!(raw_ids(path), [2, 3, 4, 5, 6], "{}", setup.name());
        let slots: Vec<_> =
            raw(path).into_iter().filter(|(key, _)| (0..9).any(|number| *key == slot(number))).collect();
        assert_eq!(slots.len(), 5, "{slots:?}");
    });
}

#[test]
fn a_keyspace_keeps_its_store_open() {
    each(|setup, path| {
        let users = setup.open(path).keyspace("users").expect("creates");
        users.put("k", "v").expect("put");
        let clone = users.clone();
        drop(users);
        assert_eq!(clone.get("k").expect("get").expect("there"), "v", "{}", setup.name());
        drop(clone);
        let db = setup.open(path);
        db.close().expect("a clean stop");
        assert!(matches!(db.keyspace("other").map(drop), Err(Error::Closed)));
    });
}
