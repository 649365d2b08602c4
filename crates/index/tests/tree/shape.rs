//! Memory, fill, and record reads per operation for patterns of keys.

use std::ops::Bound;

use crate::common::{Hex, Random, Records, hex, mix};
use lodestore_index::{BPlusTree, BulkError, Direction, Headed, KeyResolver};

const KEYS: u64 = if cfg!(miri) { 200 } else { 300_000 };

#[test]
fn random_keys_use_at_most_22_bytes_each() {
    let tree = BPlusTree::new();
    for n in 0..KEYS {
        tree.insert(&Hex, &hex(mix(n)), mix(n));
    }
    let per_key = tree.dram_bytes() as f64 / KEYS as f64;
    println!("{per_key:.2} bytes a key");
    assert!(cfg!(miri) || per_key <= 22.0, "{per_key}");
}

#[test]
fn ascending_keys_fill_their_leaves() {
    let tree = BPlusTree::new();
    for n in 0..KEYS {
        tree.insert(&Hex, &hex(n), n);
    }
    tree.check(&Hex).unwrap();
    let per_key = tree.dram_bytes() as f64 / KEYS as f64;
    println!("{per_key:.2} bytes a key");
    assert!(cfg!(miri) || per_key <= 15.0, "{per_key}");
}

/// Maximum bytes of a tree with one leaf: the leaf's chunk, at most a huge page, and an inner node.
const ONE_LEAF_BYTES_MAX: usize = (2 << 20) + (16 << 10);

/// Returns the bytes of the tree after the epoch collector, which frees later, is done. Each read
/// lets the collector progress.
fn bytes_after_reclaim(tree: &BPlusTree) -> usize {
    for _ in 0..if cfg!(miri) { 2_000 } else { 20_000_000 } {
        if tree.dram_bytes() < ONE_LEAF_BYTES_MAX {
            break;
        }
        tree.get(&Hex, b"-");
    }
    tree.dram_bytes()
}

#[test]
fn memory_is_freed_after_all_keys_are_deleted() {
    let tree = BPlusTree::new();
    let empty = tree.dram_bytes();
    for n in 0..KEYS {
        tree.insert(&Hex, &hex(mix(n)), mix(n));
    }
    let full = tree.dram_bytes();
    for n in 0..KEYS {
        assert_eq!(tree.remove(&Hex, &hex(mix(n)), Some(mix(n))), Some(mix(n)));
    }
    tree.check(&Hex).unwrap();
    let left = bytes_after_reclaim(&tree);
    println!("{empty} bytes empty, {full} full, {left} after deleting everything");
    assert!(left < ONE_LEAF_BYTES_MAX, "{left}");
    let mut out = Vec::new();
    assert!(tree.read_range(&Hex, Bound::Unbounded, Direction::Forward, 10, &mut out));
    assert!(out.is_empty());
}

#[test]
fn memory_is_freed_by_ascending_and_descending_deletes() {
    for descending in [false, true] {
        let tree = BPlusTree::new();
        for n in 0..KEYS / 4 {
            tree.insert(&Hex, &hex(n), n);
        }
        for n in 0..KEYS / 4 {
            let n = if descending { KEYS / 4 - 1 - n } else { n };
            assert_eq!(tree.remove(&Hex, &hex(n), None), Some(n));
        }
        tree.check(&Hex).unwrap();
        let left = bytes_after_reclaim(&tree);
        assert!(left < ONE_LEAF_BYTES_MAX, "{left}");
    }
}

/// Inserts in random order and returns the record reads per key.
fn reads_per_insert(key: impl Fn(u64) -> Vec<u8>, count: u64) -> f64 {
    let (tree, records) = (BPlusTree::new(), Records::default());
    let mut order: Vec<u64> = (0..count).collect();
    let mut random = Random(5);
    for i in (1..order.len()).rev() {
        order.swap(i, random.below(i as u64 + 1) as usize);
    }
    for n in order {
        let key = key(n);
        let payload = records.add(&key);
        assert_eq!(tree.insert(&records, &key, payload), None);
    }
    let reads = records.reads() as f64 / count as f64;
    tree.check(&records).unwrap();
    reads
}

/// A name, the maximum reads per insert, and the keys.
type Case = (&'static str, f64, Box<dyn Fn(u64) -> Vec<u8>>);

#[test]
fn records_are_read_rarely_for_every_key_pattern() {
    let count = KEYS / 10;
    let spread = |n: u64| hex(mix(n)).to_vec();
    let cases: [Case; 5] = [
        ("random", 2.0, Box::new(spread)),
        ("numbered", 3.0, Box::new(|n| format!("user{n:012}").into_bytes())),
        ("long prefix", 3.0, Box::new(|n| [vec![b'p'; 100], hex(n).to_vec()].concat())),
        ("two long prefixes", 4.0, Box::new(|n| [vec![b'p' + (n % 2) as u8; 100], hex(n).to_vec()].concat())),
        ("long middle", 9.0, Box::new(|n| [hex(n % 999)[13..].to_vec(), vec![b'm'; 50], hex(n).to_vec()].concat())),
    ];
    for (name, reads_max, key) in cases {
        let reads = reads_per_insert(key, count);
        println!("{name}: {reads:.2} records read for each insert");
        assert!(cfg!(miri) || reads <= reads_max, "{name}: {reads}");
    }
}

#[test]
fn keys_of_64_kib_work() {
    let (tree, records) = (BPlusTree::new(), Records::default());
    let count = if cfg!(miri) { 66 } else { 600 };
    let size = if cfg!(miri) { 1000 } else { 65_536 };
    let key = |n: u64| {
        let mut key = vec![b'k'; size];
        key[(mix(n) % 7) as usize] = b'l';
        key[size - 9..size - 1].copy_from_slice(&hex(n)[8..]);
        key
    };
    for n in 0..count {
        let payload = records.add(&key(n));
        assert_eq!(tree.insert(&records, &key(n), payload), None);
    }
    tree.check(&records).unwrap();
    for n in 0..count {
        assert_eq!(tree.get(&records, &key(n)), Some(n));
    }
    for n in 0..count {
        assert_eq!(tree.remove(&records, &key(n), Some(n)), Some(n));
    }
    tree.check(&records).unwrap();
}

#[test]
fn a_load_refuses_unsorted_entries_and_full_trees() {
    let tree = BPlusTree::new();
    let mut sorted: Vec<u64> = (0..1000).collect();
    sorted.swap(700, 701);
    assert_eq!(tree.bulk_load(&Hex, &sorted, 2), Err(BulkError::Unsorted(701)));
    let headed: Vec<Headed> = sorted.iter().map(|n| Headed::new(&hex(*n), *n)).collect();
    assert_eq!(tree.bulk_load_headed(&Hex, &headed, 1), Err(BulkError::Unsorted(701)));
    sorted.swap(700, 701);
    sorted.insert(500, 499);
    assert_eq!(tree.bulk_load(&Hex, &sorted, 1), Err(BulkError::Unsorted(500)));
    assert!(tree.is_empty());
    tree.check(&Hex).unwrap();
    sorted.remove(500);
    tree.bulk_load(&Hex, &sorted, 2).unwrap();
    tree.check(&Hex).unwrap();
    assert_eq!(tree.bulk_load(&Hex, &sorted, 2), Err(BulkError::NotEmpty));
    assert_eq!(tree.len(), 1000);
}

/// Panics on every record read, so that a load without reads is proved.
struct NoReads;

impl KeyResolver for NoReads {
    fn with_key<T>(&self, payload: u64, _f: impl FnOnce(&[u8]) -> T) -> T {
        panic!("the record of payload {payload} was read")
    }
    fn prefetch(&self, _payload: u64) {}
}

#[test]
fn a_load_from_distinct_heads_reads_no_record() {
    let tree = BPlusTree::new();
    let mut entries: Vec<Headed> =
        (0..2000).map(|n| Headed { head: mix(n) | 1 << 63 | 0x0101_0101_0101_0101, payload: n }).collect();
    entries.sort_unstable();
    entries.dedup_by_key(|entry| entry.head);
    tree.bulk_load_headed(&NoReads, &entries, 2).unwrap();
    assert_eq!(tree.len(), entries.len());
}
