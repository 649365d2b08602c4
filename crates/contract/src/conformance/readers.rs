//! Readers beyond `get`: `get_into`, `multi_get`, `for_each`.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::data::key;
use super::expiring::PAST;
use super::{Case, Harness, Pairs, assert_sound};
use crate::{Error, Lifetime, Store, Visit};

/// `get_into` replaces the buffer's contents, keeps its allocation, and empties it on a miss.
pub fn get_into_reuses_and_empties_its_buffer<H: Harness>(case: &Case<H>) {
    let store = case.create();
    store.put(b"short", b"abc").expect("put");
    store.put(b"long", &[7; 3000]).expect("put");
    store.put(b"none", b"").expect("put");
    let mut buffer = Vec::with_capacity(4096);
    buffer.extend_from_slice(b"left from before");
    let (address, capacity) = (buffer.as_ptr(), buffer.capacity());
    for (name, expected) in [(&b"long"[..], &[7; 3000][..]), (b"short", b"abc"), (b"none", b""), (b"short", b"abc")] {
        assert!(store.get_into(name, &mut buffer).expect("get_into"));
        assert_eq!(buffer, expected, "the buffer holds the value and nothing else");
    }
    assert!(!store.get_into(b"miss", &mut buffer).expect("get_into"));
    assert!(buffer.is_empty(), "a miss leaves the buffer empty");
    assert!(store.get_into(b"long", &mut buffer).expect("get_into"));
    assert_eq!(
        (buffer.as_ptr(), buffer.capacity()),
        (address, capacity),
        "a buffer that is large enough is not allocated anew"
    );
    let mut grown = Vec::new();
    assert!(store.get_into(b"long", &mut grown).expect("get_into"));
    assert_eq!(grown, [7; 3000], "a buffer that is too small grows");
    assert_sound(&store);
}

/// `get_with` shows the value once, and not on a miss. A panic of its closure leaves the store
/// unchanged.
pub fn get_with_shows_the_value_once<H: Harness>(case: &Case<H>) {
    let store = case.create();
    store.put(b"short", b"abc").expect("put");
    store.put(b"long", &[7; 3000]).expect("put");
    store.put(b"none", b"").expect("put");
    store.put_expiring(b"past", b"1", Some(PAST)).expect("put");
    store.settle().expect("settle");
    store.put(b"late", b"not settled").expect("put");
    let cases: [(&[u8], Option<&[u8]>); 6] = [
        (b"short", Some(b"abc")),
        (b"long", Some(&[7; 3000])),
        (b"none", Some(b"")),
        (b"late", Some(b"not settled")),
        (b"past", None),
        (b"miss", None),
    ];
    for (name, expected) in cases {
        let mut shown = Vec::new();
        let is_present = store.get_with(name, &mut |value| shown.push(value.to_vec())).expect("get_with");
        assert_eq!((is_present, shown), (expected.is_some(), expected.map(<[u8]>::to_vec).into_iter().collect()));
    }
    let refused = store.get_with(b"", &mut |_| panic!("an empty key has no value"));
    assert!(matches!(refused, Err(Error::KeyLength { len: 0, .. })), "{refused:?}");
    let panicked = catch_unwind(AssertUnwindSafe(|| store.get_with(b"long", &mut |_| panic!("in the closure"))));
    assert!(panicked.is_err());
    store.put(b"long", b"new").expect("put");
    assert_eq!(store.get(b"long").expect("get").as_deref(), Some(&b"new"[..]));
    assert_sound(&store);
}

/// `multi_get` calls back for each index once and in order: hits, misses, duplicates, none, a
/// thousand.
pub fn multi_get_answers_every_index_in_order<H: Harness>(case: &Case<H>) {
    let store = case.create();
    let names: Vec<Vec<u8>> = (0..500).map(|i| key("multi", i)).collect();
    for (i, name) in names.iter().enumerate().filter(|(i, _)| i % 3 != 0) {
        store.put(name, &vec![7; i % 90]).expect("put");
    }
    let mut rng = case.rng(3);
    for count in [0, 1, 2, 3, 7, 8, 15, 16, 17, 31, 32, 33, 64, 100, 1000] {
        let picked: Vec<usize> = (0..count).map(|_| rng.below(names.len())).collect();
        let keys: Vec<&[u8]> = picked.iter().map(|i| names[*i].as_slice()).collect();
        let mut answers = Vec::new();
        store
            .multi_get(&keys, &mut |index, value| answers.push((index, value.map(<[u8]>::to_vec))))
            .expect("multi_get");
        let expected: Vec<_> =
            picked.iter().enumerate().map(|(at, i)| (at, (i % 3 != 0).then(|| vec![7; i % 90]))).collect();
        assert_eq!(answers, expected, "multi_get of {count}");
    }
    let same = [&b"multi/00000001"[..]; 20];
    let mut hits = 0;
    store.multi_get(&same, &mut |_, value| hits += usize::from(value == Some(&[7]))).expect("multi_get");
    assert_eq!(hits, 20, "the same key twenty times is answered twenty times");
}

/// If a key of the list is refused, no key is answered.
pub fn multi_get_refuses_before_it_answers<H: Harness>(case: &Case<H>) {
    let store = case.create();
    store.put(b"a", b"1").expect("put");
    let long = vec![b'k'; crate::limits::KEY_MAX + 1];
    let filler = [&b"a"[..]; 40];
    for (refused, len) in [(&b""[..], 0), (&long, long.len())] {
        for before in [0, 1, 3, 40] {
            let mut keys = filler[..before].to_vec();
            keys.extend([refused, b"a"]);
            let answer = store.multi_get(&keys, &mut |_, _| panic!("answered before the refusal"));
            assert!(matches!(answer, Err(Error::KeyLength { len: reported, .. }) if reported == len), "{answer:?}");
        }
    }
}

/// `for_each` shows every live pair once, also after overwrites and deletes.
pub fn for_each_visits_every_key_once<H: Harness>(case: &Case<H>) {
    let store = case.create();
    let mut pairs = Pairs::new();
    for i in 0..case.plan.keys {
        store.put(&key("each", i), b"first").expect("put");
    }
    for i in 0..case.plan.keys {
        let name = key("each", i);
        match i % 4 {
            0 => assert!(store.delete(&name).expect("delete")),
            1 => drop(pairs.insert(name, b"first".to_vec())),
            _ => {
                let value = i.to_string().into_bytes();
                assert!(store.update(&name, &value, Lifetime::Forever).expect("update"));
                pairs.insert(name, value);
            }
        }
    }
    let mut seen = Pairs::new();
    let count = store.for_each(&mut |name, value| {
        assert!(seen.insert(name.to_vec(), value.to_vec()).is_none(), "each key once");
        Visit::More
    });
    assert_eq!(count.expect("for_each"), pairs.len() as u64);
    assert!(seen == pairs, "for_each shows {} keys, not the {} that live", seen.len(), pairs.len());
}

/// `for_each` stops when the visitor returns `Stop`, and counts the visited pairs up to there.
pub fn for_each_stops_when_told<H: Harness>(case: &Case<H>) {
    let store = case.create();
    for i in 0..100 {
        store.put(&key("stop", i), b"v").expect("put");
    }
    for visits_max in [1_u64, 2, 50, 99, 100] {
        let mut seen = 0;
        let count = store.for_each(&mut |_, _| {
            seen += 1;
            if seen == visits_max { Visit::Stop } else { Visit::More }
        });
        assert_eq!((count.expect("for_each"), seen), (visits_max, visits_max));
    }
}
