//! A change of the ordered index in an updating queue (HiKV, ATC 2017, section 3.3).

use lodestore_index::KeyResolver;
use lodestore_media::NvPtr;

/// Maximum bytes of an inline key. A longer key is read from the record, which exists until the
/// operation is applied: only the applying thread retires the old record.
pub const INLINE_KEY_BYTES_MAX: usize = 38;

/// A change of one key in the tree. With 56 bytes, a slot of the queue with its sequence number is
/// one cache line.
#[derive(Clone, Copy, Debug)]
pub struct TreeOp {
    old: NvPtr,
    new: NvPtr,
    /// The number of the tree; set when the operation is enqueued.
    tree: u8,
    /// 0: the key is not inline.
    key_len: u8,
    key: [u8; INLINE_KEY_BYTES_MAX],
}

const _: () = assert!(size_of::<TreeOp>() == 56);

/// The kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The key is inserted, at this position.
    Insert(NvPtr),
    /// The key's position changes from the first to the second.
    Replace(NvPtr, NvPtr),
    /// The key is removed; it was at this position.
    Delete(NvPtr),
}

impl TreeOp {
    /// Creates a change of `key` from `old` to `new`. Null `old` is an insert, null `new` a delete.
    ///
    /// # Panics
    /// If both are null.
    #[inline]
    pub fn new(key: &[u8], old: NvPtr, new: NvPtr) -> Self {
        assert!(!(old.is_null() && new.is_null()), "a tree operation that changes nothing");
        let mut op = Self { old, new, tree: 0, key_len: 0, key: [0; INLINE_KEY_BYTES_MAX] };
        if key.len() <= INLINE_KEY_BYTES_MAX {
            op.key[..key.len()].copy_from_slice(key);
            op.key_len = key.len() as u8;
        }
        op
    }

    /// Returns the kind of the operation.
    #[inline]
    pub fn change(&self) -> Change {
        match (self.old.is_null(), self.new.is_null()) {
            (true, _) => Change::Insert(self.new),
            (false, true) => Change::Delete(self.old),
            (false, false) => Change::Replace(self.old, self.new),
        }
    }

    /// Returns the position that is unreachable once this is applied; null for an insert.
    #[inline]
    pub fn old(&self) -> NvPtr {
        self.old
    }

    /// Returns a record that holds the key: the new one, or else the old one.
    #[inline]
    pub fn record(&self) -> NvPtr {
        if self.new.is_null() { self.old } else { self.new }
    }

    /// Returns the key, if it is inline.
    #[inline]
    pub fn inline_key(&self) -> Option<&[u8]> {
        (self.key_len > 0).then(|| &self.key[..usize::from(self.key_len)])
    }

    /// Calls `f` with the key.
    #[inline]
    pub fn with_key<R: KeyResolver, T>(&self, records: &R, f: impl FnOnce(&[u8]) -> T) -> T {
        match self.inline_key() {
            Some(key) => f(key),
            None => records.with_key(self.record().raw(), f),
        }
    }

    /// Returns the number of the operation's tree.
    #[inline]
    pub(crate) fn tree(&self) -> usize {
        usize::from(self.tree)
    }

    /// Returns the same operation for tree `tree`.
    #[inline]
    pub(crate) fn for_tree(mut self, tree: u8) -> Self {
        self.tree = tree;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_positions_determine_the_change() {
        let (a, b) = (NvPtr::new(0, 64), NvPtr::new(1, 128));
        assert_eq!(TreeOp::new(b"k", NvPtr::NULL, a).change(), Change::Insert(a));
        assert_eq!(TreeOp::new(b"k", a, b).change(), Change::Replace(a, b));
        assert_eq!(TreeOp::new(b"k", a, NvPtr::NULL).change(), Change::Delete(a));
        assert_eq!(TreeOp::new(b"k", a, NvPtr::NULL).record(), a);
        assert_eq!(TreeOp::new(b"k", a, b).record(), b);
    }

    #[test]
    fn only_short_keys_are_inline() {
        let at = NvPtr::new(0, 64);
        let longest = [7; INLINE_KEY_BYTES_MAX];
        assert_eq!(TreeOp::new(&longest, NvPtr::NULL, at).inline_key(), Some(&longest[..]));
        assert_eq!(TreeOp::new(&[7; INLINE_KEY_BYTES_MAX + 1], NvPtr::NULL, at).inline_key(), None);
    }
}
