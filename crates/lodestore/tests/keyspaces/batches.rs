//! Batches over keyspaces, and snapshots of them.

use std::ops::Bound;

use lodestore::store::{Batch, BatchOp, Commit, Condition, RangeCondition, ScanRange, Visit};
use lodestore::{Error, Expiry};
use lodestore_contract::testing::Scratch;

use crate::setup::{each, raw};

#[test]
fn a_batch_writes_to_all_of_its_keyspaces_in_order() {
    each(|setup, path| {
        let db = setup.open(path);
        let (users, emails) = (db.keyspace("users").expect("creates"), db.keyspace("emails").expect("creates"));
        emails.put("old", "v").expect("put");
        let expiry = Expiry::at_millis(u64::MAX / 2);
        let mut batch = db.batch();
        batch.put(&users, "k", "first").put(&emails, "k", "of emails").put(&db, b"\xff\xff", "of the default");
        batch.delete(&emails, "old").put_expiring(&users, "k", "last", expiry);
        let committed = batch.commit();
        if !setup.has_batches {
            assert!(matches!(committed, Err(Error::Unsupported { .. })), "{committed:?}");
            assert_eq!((users.count().expect("count"), emails.count().expect("count")), (0, 1), "{}", setup.name());
            return;
        }
        committed.expect("a commit");
        batch.commit().expect("an empty batch");
        drop((batch, users, emails, db));
        let db = setup.open(path);
        let (users, emails) = (db.keyspace("users").expect("opens"), db.keyspace("emails").expect("opens"));
        assert_eq!(users.get("k").expect("get").expect("there"), "last", "{}", setup.name());
        assert_eq!(users.expiry("k").expect("expiry"), Some(Some(expiry)));
        assert_eq!(emails.get("k").expect("get").expect("there"), "of emails");
        assert!(!emails.contains("old").expect("contains"));
        assert_eq!(db.get(b"\xff\xff").expect("get").expect("there"), "of the default");
        assert_eq!(db.count().expect("count"), 1);
    });
}

#[test]
fn a_batch_with_a_refused_operation_writes_nothing() {
    each(|setup, path| {
        let other_dir = Scratch::new();
        let (db, other) = (setup.open(path), setup.open(&other_dir.store()));
        let (users, dropped) = (db.keyspace("users").expect("creates"), db.keyspace("dropped").expect("creates"));
        let foreign = other.keyspace("users").expect("creates");
        assert!(db.drop_keyspace("dropped").expect("drops"));
        let commit = |batch: &mut lodestore::db::WriteBatch| batch.put(&users, "l", "v").commit();
        let refused = commit(db.batch().put(&users, "k", "v").put(&foreign, "k", "v"));
        assert!(matches!(&refused, Err(Error::OtherStore { keyspace }) if keyspace == "users"), "{refused:?}");
        let refused = commit(db.batch().delete(&other, "k"));
        assert!(matches!(&refused, Err(Error::OtherStore { keyspace }) if keyspace.is_empty()), "{refused:?}");
        let refused = commit(db.batch().put(&users, "k", "v").delete(&dropped, "k"));
        assert!(matches!(&refused, Err(Error::KeyspaceDropped { name }) if name == "dropped"), "{refused:?}");
        let refused = commit(db.batch().put(&users, "k", "v").put(&users, "", "v"));
        assert!(matches!(refused, Err(Error::KeyLength { len: 0, .. })), "{refused:?}");
        for map in [&users, &foreign] {
            assert_eq!(map.count().expect("count"), 0, "{}", setup.name());
        }
    });
}

#[test]
fn a_batch_of_the_contract_writes_to_the_default_keyspace() {
    each(|setup, path| {
        let db = setup.open(path);
        let put = |key: &[u8]| BatchOp::Put { key: key.to_vec(), value: b"v".to_vec(), expiry: None };
        let written = db.write(&Batch { ops: vec![put(b"a"), put(b"\xff\xff\x02"), put(b"b")] });
        if setup.has_batches {
            written.expect("a batch");
            assert_eq!(db.get(b"\xff\xff\x02").expect("get").expect("there"), "v", "{}", setup.name());
            drop(db);
            assert_eq!(raw(path)[2].0, b"\xff\xff\x01\xff\xff\x02");
        }
    });
}

#[test]
fn views_of_one_snapshot_show_all_keyspaces_at_one_moment() {
    each(|setup, path| {
        let db = setup.open(path);
        let (users, dropped) = (db.keyspace("users").expect("creates"), db.keyspace("dropped").expect("creates"));
        let keys: [&[u8]; 4] = [b"a", b"b", b"\xff\xff", b"\xff\xff\x03"];
        for (number, key) in keys.iter().enumerate() {
            users.put(key, [number as u8]).expect("put");
            db.put(key, [10 + number as u8]).expect("put");
        }
        let view = match db.snapshot() {
            Ok(view) => view,
            Err(error) => return assert!(matches!(error, Error::Unsupported { .. }), "{error}"),
        };
        let of_users = view.of(&users).expect("a view");
        for key in keys {
            users.delete(key).and_then(|_| db.put(key, "new")).expect("writes");
        }
        db.put("c", "new").expect("put");
        let later = db.keyspace("later").expect("creates");
        later.put("k", "v").expect("put");
        for (view, first) in [(&view, 10), (&of_users, 0), (&of_users.of(&db).expect("a view"), 10)] {
            assert_eq!(view.get("b").expect("get").expect("there"), vec![first + 1], "{}", setup.name());
            assert_eq!(view.get(b"\xff\xff").expect("get").expect("there"), vec![first + 2]);
            let pairs = |range: ScanRange| -> Vec<_> {
                view.scan(&range).expect("a scan").map(|entry| entry.expect("a pair").into_pair()).collect()
            };
            let mut all: Vec<_> = keys.iter().zip(first..).map(|(key, value)| (key.to_vec(), vec![value])).collect();
            assert_eq!(pairs(ScanRange::all()), all);
            assert_eq!(pairs(ScanRange::all().limit(3)), all[..3]);
            assert_eq!(pairs(ScanRange::from(*b"b").to(*b"\xff\xff\x03")), all[1..3]);
            all.reverse();
            assert_eq!(pairs(ScanRange::all().reverse().limit(3)), all[..3]);
        }
        assert_eq!(view.of(&later).expect("a view").get(b"k").expect("get"), None);
        assert!(db.drop_keyspace("dropped").expect("drops") && db.drop_keyspace("users").expect("drops"));
        assert!(matches!(view.of(&dropped).map(drop), Err(Error::KeyspaceDropped { .. })));
        db.settle().expect("a settle");
        assert_eq!(of_users.get("a").expect("get").expect("there"), vec![0], "{}", setup.name());
        let scan = of_users.scan(&ScanRange::all()).expect("a scan");
        drop((view, of_users, users, dropped, later, db));
        // The scan keeps the store open.
        assert_eq!(scan.filter_map(Result::ok).count(), keys.len(), "{}", setup.name());
    });
}

#[test]
fn a_keyspace_as_a_store_has_conditional_batches_and_snapshots_of_its_keys() {
    each(|setup, path| {
        let db = setup.open(path);
        let users = db.keyspace("users").expect("creates");
        for (store, other) in [(db.as_store(), users.as_store()), (users.as_store(), db.as_store())] {
            let what = setup.name();
            let (plain, odd) = (&b"k"[..], &b"\xff\xffk"[..]);
            store.put(plain, b"v").expect("put");
            store.put(odd, b"w").expect("put");
            other.put(plain, b"other").expect("put");
            let batch = Batch { ops: vec![BatchOp::Put { key: odd.into(), value: b"x".into(), expiry: None }] };
            let conditions = [Condition::value(plain, Some(b"v".into())), Condition::value(odd, Some(b"w".into()))];
            let done = store.write_if(&conditions, &batch);
            if !store.capabilities().batch {
                assert!(matches!(done, Err(Error::Unsupported { .. })), "{what}: {done:?}");
                continue;
            }
            assert_eq!(done.expect("written"), Commit::Done, "{what}");
            assert_eq!(store.write_if(&conditions, &batch).expect("unmet"), Commit::Unmet(1), "{what}");
            assert_eq!(store.get(odd).expect("get").expect("there"), b"x", "{what}");
            if store.capabilities().range_conditions {
                assert_ranges(&store, &what);
            }
            if store.capabilities().snapshot {
                let snapshot = store.snapshot().expect("snapshot");
                store.delete(odd).expect("delete");
                assert_eq!(snapshot.get(odd).expect("get").as_deref(), Some(&b"x"[..]), "{what}");
                let entries = snapshot.scan(&ScanRange::all()).expect("scan");
                let keys: Vec<_> = entries.map(|entry| entry.expect("an entry").key().to_vec()).collect();
                assert_eq!(keys, [plain, odd], "{what}");
            }
            assert_eq!(other.get(plain).expect("get").expect("there"), b"other", "{what}");
            [&store, &other].iter().for_each(|store| {
                [plain, odd].iter().for_each(|key| _ = store.delete(key).expect("delete"));
            });
        }
    });
}

/// Checks conditions on ranges of a store with the keys `k` and `FF FF k`.
fn assert_ranges(store: &lodestore::store::Lodestore, what: &str) {
    let condition = |keys: &[&[u8]]| RangeCondition {
        from: Bound::Unbounded,
        to: Bound::Unbounded,
        keys: keys.iter().map(|key| key.to_vec()).collect(),
    };
    let (plain, odd) = (&b"k"[..], &b"\xff\xffk"[..]);
    let met = condition(&[plain, odd]);
    let of = |ranges: &[RangeCondition]| {
        let conditions = [Condition::present(plain)];
        store.write_if_ranges(&conditions, ranges, &Batch::default()).expect("an answer")
    };
    assert_eq!(of(std::slice::from_ref(&met)), Commit::Done, "{what}");
    for keys in [&[plain][..], &[odd], &[odd, plain], &[plain, b"l", odd], &[]] {
        assert_eq!(of(&[met.clone(), condition(keys)]), Commit::Unmet(2), "{what}: {keys:?}");
    }
    let above = RangeCondition { from: Bound::Excluded(plain.to_vec()), ..condition(&[odd]) };
    assert_eq!(of(&[above.clone(), met.clone()]), Commit::Done, "{what}");
    let outside = RangeCondition { keys: vec![plain.to_vec(), odd.to_vec()], ..above };
    assert_eq!(of(&[met, outside]), Commit::Unmet(2), "{what}");
}

#[test]
fn pairs_of_a_keyspace_are_visited_with_their_expiries() {
    each(|setup, path| {
        let db = setup.open(path);
        let users = db.keyspace("users").expect("creates");
        let expiry = Expiry::at_millis(u64::MAX / 2);
        users.put("lasting", "1").expect("put");
        users.put_expiring(b"\xff\xff", "2", expiry).expect("put");
        db.put_expiring(b"\xff\xff", "3", expiry).expect("put");
        let (mut of_users, mut of_default) = (Vec::new(), Vec::new());
        let visit = |pairs: &mut Vec<_>, pair: lodestore::store::Pair<'_>| {
            pairs.push((pair.key.to_vec(), pair.value.to_vec(), pair.expiry));
            Visit::More
        };
        assert_eq!(users.for_each_pair(|pair| visit(&mut of_users, pair)).expect("a walk"), 2);
        assert_eq!(db.for_each_pair(|pair| visit(&mut of_default, pair)).expect("a walk"), 1);
        of_users.sort();
        let pair = |key: &[u8], value: &[u8], expiry| (key.to_vec(), value.to_vec(), expiry);
        assert_eq!(of_users, [pair(b"lasting", b"1", None), pair(b"\xff\xff", b"2", Some(expiry))], "{}", setup.name());
        assert_eq!(of_default, [pair(b"\xff\xff", b"3", Some(expiry))], "{}", setup.name());
        assert!(db.drop_keyspace("users").expect("drops"));
        let refused = users.for_each_pair(|_| Visit::More);
        assert!(matches!(refused, Err(Error::KeyspaceDropped { .. })), "{refused:?}");
    });
}
