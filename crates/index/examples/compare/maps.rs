//! The structures, with one interface.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::ops::Bound;
use std::sync::RwLock;

use crossbeam_skiplist::SkipMap;
use lodestore_index::{BPlusTree, Direction, KeyResolver};
use scc::TreeIndex;

/// A key.
pub type Key = [u8; 16];

/// The structures, in the order of the table. `tree-batched` prefetches for 16 keys and then
/// inserts them, as the engine does. `btreemap` is the standard library's map with a read-write
/// lock.
pub const NAMES: [&str; 5] = ["tree-batched", "tree", "btreemap", "scc", "skiplist"];

/// A structure to measure.
pub trait Map: Sync {
    /// Inserts keys `first..` with their indexes as values.
    fn fill_from(&self, first: usize, keys: &[Key]);
    /// Looks up a key.
    fn get(&self, key: &Key) -> Option<u64>;
    /// Reads up to `count` values starting at `key`, and returns how many were read.
    fn scan(&self, key: &Key, count: usize) -> usize;
    /// Inserts all keys.
    fn fill(&self, keys: &[Key]) {
        for (at, batch) in keys.chunks(16).enumerate() {
            self.fill_from(at * 16, batch);
        }
    }
}

/// Returns the key of a number.
pub fn make_key(n: u64) -> Key {
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    let n = n ^ (n >> 31);
    std::array::from_fn(|i| b"0123456789abcdef"[(n >> (60 - 4 * i)) as usize & 15])
}

/// Returns an empty structure by name.
pub fn open<'k>(name: &str, records: &'k [Key]) -> Box<dyn Map + 'k> {
    match name {
        "tree-batched" => Box::new(Tree { tree: BPlusTree::new(), records: Records(records), batches: true }),
        "tree" => Box::new(Tree { tree: BPlusTree::new(), records: Records(records), batches: false }),
        "btreemap" => Box::new(Locked::default()),
        "scc" => Box::new(Scc(TreeIndex::new())),
        "skiplist" => Box::new(Skip(SkipMap::new())),
        other => panic!("no structure is named {other}"),
    }
}

/// Keys stored outside the tree. A payload is an index into them.
pub struct Records<'k>(pub &'k [Key]);

impl KeyResolver for Records<'_> {
    #[inline]
    fn with_key<T>(&self, payload: u64, f: impl FnOnce(&[u8]) -> T) -> T {
        f(&self.0[payload as usize])
    }
    #[inline]
    fn prefetch(&self, _payload: u64) {}
}

struct Tree<'k> {
    tree: BPlusTree,
    records: Records<'k>,
    batches: bool,
}

impl Map for Tree<'_> {
    fn fill_from(&self, first: usize, keys: &[Key]) {
        if self.batches {
            self.tree.prefetch_batch(keys.iter().map(|key| &key[..]));
        }
        for (index, key) in keys.iter().enumerate() {
            self.tree.insert(&self.records, key, (first + index) as u64);
        }
    }
    fn get(&self, key: &Key) -> Option<u64> {
        self.tree.get(&self.records, key)
    }
    fn scan(&self, key: &Key, count: usize) -> usize {
        let mut out = Vec::with_capacity(count);
        self.tree.read_range(&self.records, Bound::Included(key), Direction::Forward, count, &mut out);
        black_box(&out).len()
    }
}

#[derive(Default)]
struct Locked(RwLock<BTreeMap<Key, u64>>);

impl Map for Locked {
    fn fill_from(&self, first: usize, keys: &[Key]) {
        for (index, key) in keys.iter().enumerate() {
            self.0.write().expect("not poisoned").insert(*key, (first + index) as u64);
        }
    }
    fn get(&self, key: &Key) -> Option<u64> {
        self.0.read().expect("not poisoned").get(key).copied()
    }
    fn scan(&self, key: &Key, count: usize) -> usize {
        let map = self.0.read().expect("not poisoned");
        let mut out = Vec::with_capacity(count);
        out.extend(map.range::<Key, _>(key..).take(count).map(|(_, value)| *value));
        black_box(&out).len()
    }
}

struct Scc(TreeIndex<Key, u64>);

impl Map for Scc {
    fn fill_from(&self, first: usize, keys: &[Key]) {
        for (index, key) in keys.iter().enumerate() {
            let _ = self.0.insert_sync(*key, (first + index) as u64);
        }
    }
    fn get(&self, key: &Key) -> Option<u64> {
        self.0.peek_with(key, |_, value| *value)
    }
    fn scan(&self, key: &Key, count: usize) -> usize {
        let guard = scc::Guard::new();
        let mut out = Vec::with_capacity(count);
        out.extend(self.0.range(*key.., &guard).take(count).map(|(_, value)| *value));
        black_box(&out).len()
    }
}

struct Skip(SkipMap<Key, u64>);

impl Map for Skip {
    fn fill_from(&self, first: usize, keys: &[Key]) {
        for (index, key) in keys.iter().enumerate() {
            self.0.insert(*key, (first + index) as u64);
        }
    }
    fn get(&self, key: &Key) -> Option<u64> {
        self.0.get(key).map(|entry| *entry.value())
    }
    fn scan(&self, key: &Key, count: usize) -> usize {
        let mut out = Vec::with_capacity(count);
        out.extend(self.0.range(*key..).take(count).map(|entry| *entry.value()));
        black_box(&out).len()
    }
}
