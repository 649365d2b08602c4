//! A leaf: up to `LEAF_ENTRIES_MAX` entries in key order, each with a 4-byte head and an 8-byte
//! payload.
//!
//! The keys are not stored in the leaf. All keys of a leaf share a prefix that is stored once. An
//! entry's head is the four key bytes after the prefix. A search compares the prefix, then the
//! heads. The resolver reads keys only where heads are equal.
//!
//! Invariants (numbers as in SAFETY.md):
//! * Every field is an atomic. Changes happen under the latch (Inv 1). Optimistic readers use
//!   relaxed loads and trust nothing before the version is validated (Inv 2). Indexes from torn
//!   reads are clamped, so no torn read leaves the arrays.
//! * Heads ascend. Each is the head of its entry's key after the prefix (Inv 3).
//! * `blob` is null, or points to a prefix of at least the stated length. A reader follows it only
//!   after validation. A replaced blob is retired through the epoch (Inv 5).
//!
//! The prefix may be shorter than the longest common prefix. The prefix is cut when a key without
//! it arrives; the new heads are computed without reading a record. Only [`Leaf::extend_prefix`]
//! extends the prefix, when too many heads are equal.

use std::cmp::Ordering as Order;

use crate::arena::SlotId;
use crate::bytes::{common, head_after_cut, head_at, head_bytes, key_head, word_bytes};
use crate::latch::{Latch, Version};
use crate::reclaim::Space;
use crate::resolver::KeyResolver;
use crate::shape::LEAF_ENTRIES_MAX;
use crate::sync::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// Prefix bytes stored in the leaf itself.
const INLINE_PREFIX_BYTES: usize = 32;
/// Set in `meta` while entries are appended at the end in ascending order.
const APPENDING_FLAG: u64 = 1 << 48;

/// How the caller accesses the leaf.
#[derive(Clone, Copy)]
pub(crate) enum Access {
    /// Without the latch, starting at this version.
    Optimistic(Version),
    /// With the latch held, or before the leaf is published.
    Exclusive,
}

/// Position of a key, or its insert position.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyPosition {
    /// Index of the first entry whose key is not below the sought key.
    pub(crate) index: usize,
    /// Payload of that entry, if its key is the sought key.
    pub(crate) payload: Option<u64>,
}

/// The node, only accessed through shared references.
#[repr(C)]
pub(crate) struct Leaf {
    pub(crate) latch: Latch,
    /// Bits 0-15: number of entries. Bits 16-47: prefix length. Bit 48: `APPENDING_FLAG`.
    meta: AtomicU64,
    blob: AtomicPtr<Box<[u8]>>,
    /// The leaf's position in the arena; constant.
    slot_id: SlotId,
    inline: [AtomicU64; INLINE_PREFIX_BYTES / 8],
    heads: [AtomicU32; LEAF_ENTRIES_MAX],
    payloads: [AtomicU64; LEAF_ENTRIES_MAX],
}

impl Leaf {
    /// Creates an empty leaf.
    pub(crate) fn new(slot_id: SlotId) -> Self {
        Self {
            slot_id,
            latch: Latch::new(),
            meta: AtomicU64::new(0),
            blob: AtomicPtr::new(std::ptr::null_mut()),
            inline: std::array::from_fn(|_| AtomicU64::new(0)),
            heads: std::array::from_fn(|_| AtomicU32::new(0)),
            payloads: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    /// Returns whether all data read so far is of one state.
    #[inline]
    fn is_valid(&self, access: Access) -> bool {
        match access {
            Access::Optimistic(version) => self.latch.validate(version),
            Access::Exclusive => true,
        }
    }

    /// Returns the number of entries: at most `LEAF_ENTRIES_MAX`, even if the read is torn.
    #[inline]
    pub(crate) fn count(&self) -> usize {
        ((self.meta.load(Ordering::Relaxed) & 0xffff) as usize).min(LEAF_ENTRIES_MAX)
    }

    /// Returns the length of the prefix.
    #[inline]
    pub(crate) fn prefix_len(&self) -> usize {
        (self.meta.load(Ordering::Relaxed) >> 16) as u32 as usize
    }

    /// Returns whether the last entries were appended at the end in ascending order.
    pub(crate) fn is_appending(&self) -> bool {
        self.meta.load(Ordering::Relaxed) & APPENDING_FLAG != 0
    }

    fn set_meta(&self, count: usize, prefix_len: usize, is_appending: bool) {
        debug_assert!(count <= LEAF_ENTRIES_MAX && u32::try_from(prefix_len).is_ok());
        let word = count as u64 | (prefix_len as u64) << 16 | if is_appending { APPENDING_FLAG } else { 0 };
        self.meta.store(word, Ordering::Relaxed);
    }

    /// Sets the number of entries. Requires exclusive access.
    pub(crate) fn set_count(&self, count: usize) {
        self.set_meta(count, self.prefix_len(), self.is_appending());
    }

    #[inline]
    pub(crate) fn head(&self, index: usize) -> u32 {
        self.heads[index].load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn payload(&self, index: usize) -> u64 {
        self.payloads[index].load(Ordering::Relaxed)
    }

    /// Writes an entry. Requires exclusive access.
    #[inline]
    pub(crate) fn set_entry(&self, index: usize, head: u32, payload: u64) {
        self.heads[index].store(head, Ordering::Relaxed);
        self.payloads[index].store(payload, Ordering::Relaxed);
    }

    /// Replaces a payload. Requires exclusive access.
    pub(crate) fn set_payload(&self, index: usize, payload: u64) {
        debug_assert!(index < self.count());
        self.payloads[index].store(payload, Ordering::Relaxed);
    }

    /// Calls `f` with the prefix. Returns `None` if the read is torn.
    pub(crate) fn with_prefix<T>(&self, access: Access, f: impl FnOnce(&[u8]) -> T) -> Option<T> {
        let len = self.prefix_len();
        if len <= INLINE_PREFIX_BYTES {
            let mut bytes = [0u8; INLINE_PREFIX_BYTES];
            for (chunk, word) in bytes.chunks_exact_mut(8).zip(&self.inline) {
                chunk.copy_from_slice(&word_bytes(word.load(Ordering::Relaxed)));
            }
            return Some(f(&bytes[..len]));
        }
        let blob = self.blob.load(Ordering::Acquire);
        if !self.is_valid(access) {
            return None;
        }
        // SAFETY: Inv 5: `len` and `blob` are of one state, so `blob` points to a prefix of at
        // least `len` bytes. The caller's epoch guard (or its latch) prevents its release.
        let prefix: &[u8] = unsafe { &*blob };
        Some(f(prefix.get(..len).unwrap_or(prefix)))
    }

    /// Compares `key` with the prefix: `Equal` if the key begins with it. Returns `None` if the
    /// read is torn.
    #[inline]
    fn compare_with_prefix(&self, key: &[u8], access: Access) -> Option<Order> {
        let len = self.prefix_len();
        if len == 0 {
            return Some(Order::Equal);
        }
        if len <= 8 && key.len() >= len {
            let shift = 64 - 8 * len as u32;
            return Some((key_head(key) >> shift).cmp(&(self.inline[0].load(Ordering::Relaxed) >> shift)));
        }
        self.with_prefix(access, |prefix| if key.starts_with(prefix) { Order::Equal } else { key.cmp(prefix) })
    }

    /// Returns the first index whose head is not below `head`.
    #[inline]
    fn lower_bound(&self, head: u32, count: usize) -> usize {
        let mut base = 0;
        let mut size = count;
        while size > 1 {
            let half = size / 2;
            base = if self.head(base + half - 1) < head { base + half } else { base };
            size -= half;
        }
        base + usize::from(size == 1 && self.head(base) < head)
    }

    /// Returns the range of entries whose head equals the head of `key` in this leaf. Returns
    /// `None` if the read is torn, and `Err(index)` if the prefix differs and the key belongs at
    /// `index`.
    #[inline]
    fn equal_heads(&self, key: &[u8], access: Access) -> Option<Result<(usize, usize), usize>> {
        let count = self.count();
        match self.compare_with_prefix(key, access)? {
            Order::Less => return Some(Err(0)),
            Order::Greater => return Some(Err(count)),
            Order::Equal => {}
        }
        let head = head_at(key, self.prefix_len());
        let first = self.lower_bound(head, count);
        let mut end = first;
        while end < count && self.head(end) == head {
            end += 1;
        }
        Some(Ok((first, end)))
    }

    /// Estimates the index of [`Leaf::locate`] without reading a record. Returns `None` if the read
    /// is torn.
    pub(crate) fn estimate_index(&self, key: &[u8], access: Access) -> Option<usize> {
        Some(self.equal_heads(key, access)?.map_or_else(|index| index, |(first, _)| first))
    }

    /// Finds a key, or its insert position. Returns `None` if the read is torn. An optimistic
    /// caller validates before it uses the result.
    pub(crate) fn locate<R: KeyResolver>(&self, r: &R, key: &[u8], access: Access) -> Option<KeyPosition> {
        let (first, end) = match self.equal_heads(key, access)? {
            Err(index) => return Some(KeyPosition { index, payload: None }),
            Ok(range) => range,
        };
        let (mut low, mut high) = (first, end);
        while low < high {
            let middle = low + (high - low) / 2;
            let payload = self.payload(middle);
            if !self.is_valid(access) {
                return None;
            }
            match r.with_key(payload, |found| found.cmp(key)) {
                Order::Less => low = middle + 1,
                Order::Greater => high = middle,
                Order::Equal => return Some(KeyPosition { index: middle, payload: Some(payload) }),
            }
        }
        Some(KeyPosition { index: low, payload: None })
    }

    /// Finds a key by its payload, without reading a record. Returns `None` if the read is torn. An
    /// optimistic caller validates before it uses the result.
    pub(crate) fn locate_payload(&self, key: &[u8], payload: u64, access: Access) -> Option<Option<usize>> {
        let Ok((first, end)) = self.equal_heads(key, access)? else { return Some(None) };
        Some((first..end).find(|index| self.payload(*index) == payload))
    }

    /// Inserts an entry at the index that [`Leaf::locate`] found. Requires exclusive access and a
    /// leaf that is not full.
    pub(crate) fn insert(&self, key: &[u8], index: usize, payload: u64, space: &Space<'_>) {
        let count = self.count();
        debug_assert!(count < LEAF_ENTRIES_MAX && index <= count);
        if self.compare_with_prefix(key, Access::Exclusive) != Some(Order::Equal) {
            let shared = self.with_prefix(Access::Exclusive, |prefix| common(prefix, key)).unwrap_or(0);
            self.cut_prefix(shared, space);
        }
        let prefix_len = self.prefix_len();
        for i in (index..count).rev() {
            self.heads[i + 1].store(self.head(i), Ordering::Relaxed);
        }
        for i in (index..count).rev() {
            self.payloads[i + 1].store(self.payload(i), Ordering::Relaxed);
        }
        self.set_entry(index, head_at(key, prefix_len), payload);
        self.set_meta(count + 1, prefix_len, index == count);
    }

    /// Removes an entry. Requires exclusive access.
    pub(crate) fn remove(&self, index: usize) {
        let count = self.count();
        debug_assert!(index < count);
        for i in index + 1..count {
            self.heads[i - 1].store(self.head(i), Ordering::Relaxed);
        }
        for i in index + 1..count {
            self.payloads[i - 1].store(self.payload(i), Ordering::Relaxed);
        }
        self.set_meta(count - 1, self.prefix_len(), false);
    }

    /// Sets the prefix; the caller adjusts the heads. Requires exclusive access.
    pub(crate) fn set_prefix(&self, prefix: &[u8], space: &Space<'_>) {
        let old = self.blob.load(Ordering::Relaxed);
        let mut new = std::ptr::null_mut();
        if prefix.len() > INLINE_PREFIX_BYTES {
            new = space.new_blob(prefix);
        } else {
            let mut bytes = [0u8; INLINE_PREFIX_BYTES];
            bytes[..prefix.len()].copy_from_slice(prefix);
            for (chunk, word) in bytes.chunks_exact(8).zip(&self.inline) {
                word.store(key_head(chunk), Ordering::Relaxed);
            }
        }
        self.blob.store(new, Ordering::Release);
        self.set_meta(self.count(), prefix.len(), self.is_appending());
        if !old.is_null() {
            // SAFETY: Inv 5: `old` came from `new_blob` and belonged to this leaf, which no longer
            // names it.
            unsafe { space.retire_blob(old) };
        }
    }

    /// Shortens the prefix and adjusts the heads without reading a record. Requires exclusive
    /// access.
    fn cut_prefix(&self, len: usize, space: &Space<'_>) {
        let prefix = self.prefix_copy();
        debug_assert!(len <= prefix.len());
        if len == prefix.len() {
            return;
        }
        for i in 0..self.count() {
            self.heads[i].store(head_after_cut(&prefix, len, self.head(i)), Ordering::Relaxed);
        }
        self.set_prefix(&prefix[..len], space);
    }

    /// Returns a copy of the prefix. Requires exclusive access.
    pub(crate) fn prefix_copy(&self) -> Vec<u8> {
        self.with_prefix(Access::Exclusive, <[u8]>::to_vec).unwrap_or_default()
    }

    /// Returns the key bytes that the leaf stores for an entry: prefix and head. Requires exclusive
    /// access.
    pub(crate) fn stored_key_bytes(&self, index: usize) -> Vec<u8> {
        let mut bytes = self.prefix_copy();
        bytes.extend_from_slice(&head_bytes(self.head(index)));
        bytes
    }

    /// Returns whether `key`, read from the entry's record, agrees with the entry's prefix and
    /// head. The record may have changed since the insert. Requires exclusive access.
    pub(crate) fn matches_entry(&self, index: usize, key: &[u8]) -> bool {
        self.compare_with_prefix(key, Access::Exclusive) == Some(Order::Equal)
            && head_at(key, self.prefix_len()) == self.head(index)
    }

    /// Returns the number of neighbours with equal heads. Requires exclusive access.
    fn count_equal_neighbours(&self) -> usize {
        (1..self.count()).filter(|i| self.head(*i) == self.head(i - 1)).count()
    }

    /// Reads all keys and extends the prefix, if many heads are equal and the keys share more than
    /// the prefix. Leaves everything unchanged if a record changed since its insert. Requires
    /// exclusive access.
    pub(crate) fn extend_prefix<R: KeyResolver>(&self, r: &R, space: &Space<'_>) {
        let count = self.count();
        if count < 2 || self.count_equal_neighbours() <= count / 16 {
            return;
        }
        let longer = r.with_key(self.payload(0), |first| {
            r.with_key(self.payload(count - 1), |last| {
                let shared = common(first, last);
                (shared > self.prefix_len()).then(|| first[..shared].to_vec())
            })
        });
        let Some(prefix) = longer else { return };
        for i in 1..count - 1 {
            r.prefetch(self.payload(i));
        }
        let mut heads = [0; LEAF_ENTRIES_MAX];
        for i in 0..count {
            let head = r.with_key(self.payload(i), |key| {
                (self.matches_entry(i, key) && key.starts_with(&prefix)).then(|| head_at(key, prefix.len()))
            });
            match head {
                Some(head) if i == 0 || heads[i - 1] <= head => heads[i] = head,
                _ => return,
            }
        }
        for (slot, head) in self.heads.iter().zip(&heads[..count]) {
            slot.store(*head, Ordering::Relaxed);
        }
        self.set_prefix(&prefix, space);
    }

    /// Copies the entries `from..` and the prefix to the empty leaf `to`. Requires exclusive access
    /// to both.
    pub(crate) fn copy_tail(&self, from: usize, to: &Leaf, space: &Space<'_>) {
        let count = self.count();
        debug_assert!(to.count() == 0 && from <= count);
        to.set_prefix(&self.prefix_copy(), space);
        for i in from..count {
            to.set_entry(i - from, self.head(i), self.payload(i));
        }
        to.set_count(count - from);
    }

    /// Appends all entries of `right`, whose keys are all greater. Requires exclusive access to
    /// both.
    pub(crate) fn absorb(&self, right: &Leaf, space: &Space<'_>) {
        let (left_count, right_count) = (self.count(), right.count());
        debug_assert!(left_count + right_count <= LEAF_ENTRIES_MAX);
        if right_count == 0 {
            return;
        }
        let other = right.prefix_copy();
        let shared = if left_count == 0 {
            self.set_prefix(&other, space);
            other.len()
        } else {
            let shared = self.with_prefix(Access::Exclusive, |prefix| common(prefix, &other)).unwrap_or(0);
            self.cut_prefix(shared, space);
            shared
        };
        for i in 0..right_count {
            self.set_entry(left_count + i, head_after_cut(&other, shared, right.head(i)), right.payload(i));
        }
        self.set_meta(left_count + right_count, shared, false);
    }

    /// Prefetches the cache lines that a search and an insert access.
    #[inline]
    pub(crate) fn prefetch(leaf: *const Leaf) {
        let first = leaf.cast::<u8>();
        for line in 0..size_of::<Leaf>().div_ceil(64) {
            crate::reclaim::prefetch_line(first.wrapping_add(line * 64));
        }
    }

    /// Prefetches the cache lines that a scan accesses first.
    #[inline]
    pub(crate) fn prefetch_scan(leaf: *const Leaf) {
        let first = leaf.cast::<u8>();
        crate::reclaim::prefetch_line(first);
        let payloads = first.wrapping_add(std::mem::offset_of!(Leaf, payloads));
        for line in 0..4 {
            crate::reclaim::prefetch_line(payloads.wrapping_add(line * 64));
        }
    }
}

impl<'g> Space<'g> {
    /// Allocates a leaf that is not yet in the tree.
    pub(crate) fn new_leaf(&self) -> &'g Leaf {
        let (at, slot_id) = self.allocate_leaf();
        let at = at.cast::<Leaf>();
        // SAFETY: Inv 12: `at` has no other owner, and has the leaf's size and alignment. Inv 4: no
        // leaf is freed while a guard of its time is held.
        unsafe {
            at.write(Leaf::new(slot_id));
            at.as_ref()
        }
    }

    /// Retires a leaf and its prefix: they are freed when no current guard is left.
    ///
    /// # Safety
    /// `leaf` came from [`Space::new_leaf`], the tree no longer leads to it, and this is the only
    /// such call.
    pub(crate) unsafe fn retire_leaf(&self, leaf: *const Leaf) {
        // SAFETY: Inv 4: the leaf is still allocated, by the caller's guard or latch.
        let (blob, slot_id) = unsafe { ((*leaf).blob.load(Ordering::Relaxed), (*leaf).slot_id) };
        if !blob.is_null() {
            // SAFETY: Inv 5: the leaf's blob leaves the tree with the leaf.
            unsafe { self.retire_blob(blob) };
        }
        // SAFETY: Inv 4 and 12: guaranteed by the caller.
        unsafe { self.retire_leaf_memory(slot_id) };
    }
}
