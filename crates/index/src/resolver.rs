//! The interface through which the tree reads keys, which it does not store.

/// Finds the key of a payload. The tree stores only 8-byte payloads and short key heads.
pub trait KeyResolver {
    /// Calls `f` with the key of the record that `payload` names. Must not call the tree.
    fn with_key<T>(&self, payload: u64, f: impl FnOnce(&[u8]) -> T) -> T;
    /// Prefetches the first cache line of the record.
    fn prefetch(&self, payload: u64);
    /// Prefetches all parts of the record that a scan reads. The payload may have just left the
    /// tree.
    #[inline]
    fn prefetch_whole(&self, payload: u64) {
        self.prefetch(payload);
    }
}
