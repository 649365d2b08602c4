//! Bulk load of an empty tree from sorted entries. Threads build the leaves concurrently, 90 %
//! full; then the levels above are built.
//!
//! The whole tree is built privately; one store of the root publishes it. The leaves of
//! [`BPlusTree::bulk_load_headed`] are built from 8-byte heads alone where the heads distinguish
//! the keys. No record is read then.

use std::num::NonZeroUsize;
use std::ops::Range;
use std::thread::{self, ScopedJoinHandle};

use crossbeam_epoch::pin;

use crate::bytes::{common, head_at, key_head, separator, word_bytes};
use crate::inner::{Node, NodeBuilder};
use crate::leaf::Leaf;
use crate::reclaim::Space;
use crate::resolver::KeyResolver;
use crate::shape::{INNER_SEPARATORS_MAX, LEAF_ENTRIES_MAX};
use crate::split::leaf_node;
use crate::sync::{AtomicPtr, Ordering};
use crate::tree::BPlusTree;

/// Entries in a loaded leaf.
const LOADED_LEAF_ENTRIES: usize = (LEAF_ENTRIES_MAX * 9).div_ceil(10);
/// Children of a loaded inner node.
const LOADED_CHILD_COUNT: usize = (INNER_SEPARATORS_MAX * 9).div_ceil(10);

/// Why a bulk load was refused. The tree is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BulkError {
    /// The tree has entries, or other threads were changing it.
    NotEmpty,
    /// The key at this index is not greater than the key before it.
    Unsorted(usize),
}

impl std::fmt::Display for BulkError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotEmpty => f.write_str("the tree is not empty"),
            Self::Unsorted(index) => write!(f, "entry {index} is not above the previous entry"),
        }
    }
}

impl std::error::Error for BulkError {}

/// A payload with the first eight bytes of its key ([`key_head`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Headed {
    /// First eight bytes of the key, first byte highest, padded with zeros.
    pub head: u64,
    /// The payload.
    pub payload: u64,
}

impl Headed {
    /// Returns the entry of a key.
    #[must_use]
    pub fn new(key: &[u8], payload: u64) -> Self {
        Self { head: key_head(key), payload }
    }
}

/// Sorts entries by key. Records are read only where heads are equal.
pub fn sort_headed<R: KeyResolver>(r: &R, entries: &mut [Headed]) {
    entries.sort_unstable();
    for run in entries.chunk_by_mut(|a, b| a.head == b.head).filter(|run| run.len() > 1) {
        for entry in run.iter() {
            r.prefetch(entry.payload);
        }
        run.sort_unstable_by(|a, b| r.with_key(a.payload, |a| r.with_key(b.payload, |b| a.cmp(b))));
    }
}

/// An entry to load.
trait Entry: Copy + Sync {
    fn payload(self) -> u64;
    fn head(self) -> Option<u64>;
}

impl Entry for u64 {
    fn payload(self) -> u64 {
        self
    }
    fn head(self) -> Option<u64> {
        None
    }
}

impl Entry for Headed {
    fn payload(self) -> u64 {
        self.payload
    }
    fn head(self) -> Option<u64> {
        Some(self.head)
    }
}

/// A node and its lower separator (empty for the first node).
struct Built {
    separator: Vec<u8>,
    node: AtomicPtr<Node>,
}

impl BPlusTree {
    /// Fills an empty tree with payloads sorted by key, with up to `threads` threads. Every key is
    /// read once.
    ///
    /// # Errors
    /// The tree is not empty, or the keys do not strictly ascend.
    pub fn bulk_load<R: KeyResolver + Sync>(&self, r: &R, sorted: &[u64], threads: usize) -> Result<(), BulkError> {
        self.load(r, sorted, threads)
    }

    /// Fills an empty tree with entries sorted by key. Records are read only where the heads do not
    /// distinguish the keys.
    ///
    /// # Errors
    /// The tree is not empty, or the keys do not strictly ascend.
    pub fn bulk_load_headed<R: KeyResolver + Sync>(
        &self,
        r: &R,
        sorted: &[Headed],
        threads: usize,
    ) -> Result<(), BulkError> {
        self.load(r, sorted, threads)
    }

    fn load<R: KeyResolver + Sync, E: Entry>(&self, r: &R, sorted: &[E], threads: usize) -> Result<(), BulkError> {
        if self.root(&pin()).level() > 1 || !self.is_empty() {
            return Err(BulkError::NotEmpty);
        }
        if sorted.is_empty() {
            return Ok(());
        }
        let leaves = sorted.len().div_ceil(LOADED_LEAF_ENTRIES);
        let threads = threads.clamp(1, leaves.div_ceil(64).max(1));
        let results = if threads == 1 {
            vec![self.load_leaves(r, sorted, 0..sorted.len())]
        } else {
            self.load_shares(r, sorted, leaves, threads)
        };
        let mut error = None;
        let mut built = Vec::with_capacity(leaves);
        for result in results {
            match result {
                Ok(leaves) => built.extend(leaves),
                Err(reason) => error = error.or(Some(reason)),
            }
        }
        if let Some(reason) = error {
            self.retire_leaves(&built);
            return Err(reason);
        }
        self.publish(built, sorted.len())
    }

    /// Builds the leaves; each thread builds the leaves of its share.
    fn load_shares<R: KeyResolver + Sync, E: Entry>(
        &self,
        r: &R,
        sorted: &[E],
        leaves: usize,
        threads: usize,
    ) -> Vec<Result<Vec<Built>, BulkError>> {
        let threads_max = thread::available_parallelism().map_or(1, NonZeroUsize::get).max(1) * 2;
        let threads = threads.min(threads_max);
        let share = leaves.div_ceil(threads) * LOADED_LEAF_ENTRIES;
        thread::scope(|scope| {
            let start = |range: Range<usize>| {
                let own = range.clone();
                let load = move || self.load_leaves(r, sorted, own);
                thread::Builder::new().name("lodestore-load".into()).spawn_scoped(scope, load).map_err(|_| range)
            };
            let workers: Vec<_> = (0..threads)
                .map(|t| (t * share).min(sorted.len())..((t + 1) * share).min(sorted.len()))
                .map(start)
                .collect();
            let join = |worker: Result<ScopedJoinHandle<'_, Result<Vec<Built>, BulkError>>, Range<usize>>| match worker
            {
                Ok(worker) => worker.join().expect("a loading thread does not panic"),
                // The system refused to start a thread for this share.
                Err(range) => self.load_leaves(r, sorted, range),
            };
            workers.into_iter().map(join).collect()
        })
    }

    /// Builds the leaves of one range of entries.
    fn load_leaves<R: KeyResolver, E: Entry>(
        &self,
        r: &R,
        sorted: &[E],
        range: Range<usize>,
    ) -> Result<Vec<Built>, BulkError> {
        let guard = pin();
        let space = self.space(&guard);
        let mut built: Vec<Built> = Vec::with_capacity(range.len().div_ceil(LOADED_LEAF_ENTRIES));
        for start in range.clone().step_by(LOADED_LEAF_ENTRIES) {
            let entries = &sorted[start..(start + LOADED_LEAF_ENTRIES).min(range.end)];
            if E::head(entries[0]).is_none() {
                for later in sorted[start..].iter().skip(LOADED_LEAF_ENTRIES).take(LOADED_LEAF_ENTRIES) {
                    r.prefetch(later.payload());
                }
            }
            let result = separator_between(r, start.checked_sub(1).map(|before| sorted[before]), entries[0])
                .ok_or(0)
                .and_then(|separator| fill_leaf(r, entries, &space).map(|leaf| (separator, leaf)));
            match result {
                Ok((separator, leaf)) => built.push(Built { separator, node: AtomicPtr::new(leaf_node(leaf)) }),
                Err(index) => {
                    self.retire_leaves(&built);
                    return Err(BulkError::Unsorted(start + index));
                }
            }
        }
        Ok(built)
    }

    /// Retires leaves that were never published.
    fn retire_leaves(&self, built: &[Built]) {
        let guard = pin();
        for leaf in built {
            // SAFETY: Inv 4: made by `fill_leaf`, never published, and each leaf is in one list
            // only.
            unsafe { self.space(&guard).retire_leaf(leaf.node.load(Ordering::Relaxed).cast::<Leaf>()) };
        }
    }

    /// Builds the levels above and installs the root if the tree is still empty.
    fn publish(&self, leaves: Vec<Built>, entries: usize) -> Result<(), BulkError> {
        let guard = pin();
        let space = self.space(&guard);
        let root = self.root(&guard);
        let empty = root.leaf_of_single();
        if !empty.is_some_and(|leaf| leaf.latch.lock()) {
            self.retire_leaves(&leaves);
            return Err(BulkError::NotEmpty);
        }
        let empty = empty.expect("just locked");
        if empty.count() > 0 || !root.latch().lock() {
            empty.latch.unlock_unchanged();
            self.retire_leaves(&leaves);
            return Err(BulkError::NotEmpty);
        }
        let mut level = 1;
        let mut nodes = leaves;
        while level == 1 || nodes.len() > 1 {
            nodes = level_above(level, nodes, &space);
            level += 1;
        }
        self.root.store(nodes[0].node.load(Ordering::Relaxed), Ordering::Release);
        self.entries.add(isize::try_from(entries).expect("a slice is shorter"));
        root.latch().unlock_obsolete();
        empty.latch.unlock_obsolete();
        // SAFETY: Inv 4: the new root leads to neither node. Both were locked and live until now.
        unsafe {
            root.retire(&space);
            space.retire_leaf(empty);
        }
        Ok(())
    }
}

/// Groups nodes under new inner nodes of `level`.
fn level_above(level: u32, nodes: Vec<Built>, space: &Space<'_>) -> Vec<Built> {
    let groups = nodes.len().div_ceil(LOADED_CHILD_COUNT);
    let size = nodes.len().div_ceil(groups);
    let node_of = |built: &Built| built.node.load(Ordering::Relaxed);
    nodes
        .chunks(size)
        .map(|group| {
            let mut builder = NodeBuilder::single(level, node_of(&group[0]));
            for built in &group[1..] {
                builder.push([&built.separator, &[]], node_of(built));
            }
            Built { separator: group[0].separator.clone(), node: AtomicPtr::new(builder.build(space)) }
        })
        .collect()
}

/// Returns the separator between two neighbours, or `None` if they do not ascend.
fn separator_between<R: KeyResolver, E: Entry>(r: &R, left: Option<E>, right: E) -> Option<Vec<u8>> {
    let Some(left) = left else { return Some(Vec::new()) };
    if let (Some(a), Some(b)) = (left.head(), right.head())
        && a != b
    {
        return (a < b).then(|| separator(&word_bytes(a), &word_bytes(b)));
    }
    r.with_key(left.payload(), |a| r.with_key(right.payload(), |b| (a < b).then(|| separator(a, b))))
}

/// Builds a leaf of these entries. `Err` is the index of an entry that is not greater than the
/// entry before it.
fn fill_leaf<'g, R: KeyResolver, E: Entry>(r: &R, entries: &[E], space: &Space<'g>) -> Result<&'g Leaf, usize> {
    let mut heads = [0u32; LEAF_ENTRIES_MAX];
    let heads = &mut heads[..entries.len()];
    let prefix = match heads_from_words(entries, heads) {
        Some(prefix) => prefix,
        None => heads_from_keys(r, entries, heads)?,
    };
    let leaf = space.new_leaf();
    leaf.set_prefix(&prefix, space);
    for (index, (entry, head)) in entries.iter().zip(heads).enumerate() {
        leaf.set_entry(index, *head, entry.payload());
    }
    leaf.set_count(entries.len());
    Ok(leaf)
}

/// Derives heads and prefix from the 8-byte heads. Returns `None` if they do not distinguish the
/// keys.
fn heads_from_words<E: Entry>(entries: &[E], heads: &mut [u32]) -> Option<Vec<u8>> {
    let (first, last) = (word_bytes(entries[0].head()?), word_bytes(entries[entries.len() - 1].head()?));
    // A zero byte may be padding: it cannot be part of a prefix.
    let shared = common(&first, &last).min(first.iter().position(|byte| *byte == 0).unwrap_or(8));
    if shared > 4 {
        return None;
    }
    let mut before = None;
    for (entry, head) in entries.iter().zip(heads) {
        let word = entry.head()?;
        *head = head_at(&word_bytes(word), shared);
        if before.is_some_and(|(before_word, before_head)| word <= before_word || *head <= before_head) {
            return None;
        }
        before = Some((word, *head));
    }
    Some(first[..shared].to_vec())
}

/// Derives heads and prefix from the keys. `Err` is the index of an entry that is not greater than
/// the entry before it.
fn heads_from_keys<R: KeyResolver, E: Entry>(r: &R, entries: &[E], heads: &mut [u32]) -> Result<Vec<u8>, usize> {
    if entries[0].head().is_some() {
        entries.iter().for_each(|entry| r.prefetch(entry.payload()));
    }
    let key = |index: usize| entries[index].payload();
    let prefix =
        r.with_key(key(0), |first| r.with_key(key(entries.len() - 1), |last| first[..common(first, last)].to_vec()));
    for index in 0..entries.len() {
        let (head, fits) = r.with_key(key(index), |key| (head_at(key, prefix.len()), key.starts_with(&prefix)));
        heads[index] = head;
        let ascends = index == 0
            || heads[index - 1] < head
            || r.with_key(key(index - 1), |before| r.with_key(key(index), |this| before < this));
        if !fits || !ascends {
            return Err(index);
        }
    }
    Ok(prefix)
}
