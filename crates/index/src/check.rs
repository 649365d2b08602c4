//! Structural verification of an idle tree, for tests and `verify`.

use crossbeam_epoch::pin;

use crate::bytes::head_at;
use crate::inner::Inner;
use crate::leaf::{Access, Leaf};
use crate::resolver::KeyResolver;
use crate::tree::BPlusTree;

/// State of the walk.
struct Walk<'r, R> {
    resolver: &'r R,
    last: Option<Vec<u8>>,
    entries: usize,
}

impl BPlusTree {
    /// Verifies the whole tree: order, heads, prefixes, separators, levels, latches and the entry
    /// count. No other thread may write during the check.
    ///
    /// # Errors
    /// Describes the first fault found.
    pub fn check<R: KeyResolver>(&self, r: &R) -> Result<(), String> {
        let guard = pin();
        let mut walk = Walk { resolver: r, last: None, entries: 0 };
        walk.inner(self.root(&guard), None, None)?;
        let len = self.len();
        if len != walk.entries {
            return Err(format!("the tree counts {len} entries and has {}", walk.entries));
        }
        Ok(())
    }
}

impl<R: KeyResolver> Walk<'_, R> {
    fn inner(&mut self, node: Inner<'_>, low: Option<&[u8]>, high: Option<&[u8]>) -> Result<(), String> {
        let level = node.level();
        if node.latch().is_locked() || node.latch().is_obsolete() {
            return Err(format!("an inner node of level {level} is locked or obsolete"));
        }
        let separators: Vec<Vec<u8>> = (0..node.count()).map(|i| node.separator(i).concat()).collect();
        if !separators.is_sorted_by(|a, b| a < b) {
            return Err(format!("separators of a node of level {level} do not ascend"));
        }
        let below = |bound: Option<&[u8]>, key: &[u8]| bound.is_none_or(|bound| bound < key);
        if separators.iter().any(|s| !below(low, s) || high.is_some_and(|high| high <= s.as_slice())) {
            return Err(format!("a separator of level {level} lies outside its node's range"));
        }
        for index in 0..=node.count() {
            let low = if index == 0 { low } else { Some(separators[index - 1].as_slice()) };
            let high = separators.get(index).map(Vec::as_slice).or(high);
            if level == 1 {
                self.leaf(node.leaf(index), low, high)?;
            } else if node.inner(index).level() + 1 == level {
                self.inner(node.inner(index), low, high)?;
            } else {
                return Err(format!("a child of level {level} has level {}", node.inner(index).level()));
            }
        }
        Ok(())
    }

    fn leaf(&mut self, leaf: &Leaf, low: Option<&[u8]>, high: Option<&[u8]>) -> Result<(), String> {
        if leaf.latch.is_locked() || leaf.latch.is_obsolete() {
            return Err("a leaf is locked or obsolete".into());
        }
        let prefix = leaf.with_prefix(Access::Exclusive, <[u8]>::to_vec).unwrap_or_default();
        for index in 0..leaf.count() {
            let key = self.resolver.with_key(leaf.payload(index), <[u8]>::to_vec);
            if !key.starts_with(&prefix) {
                return Err(format!("key {key:02x?} does not have its leaf's prefix {prefix:02x?}"));
            }
            if leaf.head(index) != head_at(&key, prefix.len()) {
                return Err(format!("key {key:02x?} has head {:08x} after {} bytes", leaf.head(index), prefix.len()));
            }
            if low.is_some_and(|low| key.as_slice() < low) || high.is_some_and(|high| high <= key.as_slice()) {
                return Err(format!("key {key:02x?} lies outside its leaf's range {low:02x?}..{high:02x?}"));
            }
            if self.last.as_ref().is_some_and(|last| *last >= key) {
                return Err(format!("key {key:02x?} is not above the previous key"));
            }
            self.last = Some(key);
            self.entries += 1;
        }
        Ok(())
    }
}
