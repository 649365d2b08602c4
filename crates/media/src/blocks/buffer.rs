//! Buffers of whole blocks at aligned addresses, for direct I/O.
//!
//! Invariant: all bytes after the content are zero to the buffer's end. The content is therefore
//! padded with zeros to the end of its last block.

use std::ops::{Deref, DerefMut};

use crate::blocks::BlockFile;

const BLOCK_BYTES: usize = BlockFile::BLOCK as usize;

/// Bytes that begin at a multiple of [`BlockFile::BLOCK`] in memory and grow like a `Vec`. A write
/// of them writes whole blocks, the last one padded with zeros. Dereferences to the content.
#[derive(Debug, Default)]
pub struct Blocks {
    /// Longer than the buffer by the maximum alignment loss; fully initialized.
    bytes: Vec<u8>,
    /// Offset of the buffer's first byte, aligned.
    start: usize,
    /// Bytes of content.
    len: usize,
}

impl Blocks {
    /// Returns an empty buffer, which allocates memory at the first byte.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns an empty buffer with space for `bytes` bytes.
    pub fn with_capacity(bytes: usize) -> Self {
        let mut blocks = Self::new();
        blocks.reserve(bytes);
        blocks
    }

    /// Returns a buffer whose content is `bytes` zeros.
    pub fn zeroed(bytes: usize) -> Self {
        let mut blocks = Self::with_capacity(bytes);
        blocks.len = bytes;
        blocks
    }

    /// Returns the bytes of content that fit without more memory, a multiple of a block.
    pub fn capacity(&self) -> usize {
        self.bytes.len().saturating_sub(BLOCK_BYTES - 1) / BLOCK_BYTES * BLOCK_BYTES
    }

    /// Reserves space for `more` bytes after the content.
    ///
    /// # Panics
    /// If no memory can be that long.
    pub fn reserve(&mut self, more: usize) {
        let needed = self.len.checked_add(more).expect("a length");
        if needed > self.capacity() {
            self.move_to(needed.max(self.capacity() * 2));
        }
    }

    #[cold]
    fn move_to(&mut self, capacity: usize) {
        let capacity = capacity.checked_next_multiple_of(BLOCK_BYTES).expect("a length");
        let mut bytes = vec![0; capacity.checked_add(BLOCK_BYTES - 1).expect("a length")];
        let start = bytes.as_ptr().addr().wrapping_neg() % BLOCK_BYTES;
        bytes[start..start + self.len].copy_from_slice(self);
        (self.bytes, self.start) = (bytes, start);
    }

    /// Appends bytes.
    pub fn extend_from_slice(&mut self, more: &[u8]) {
        self.reserve(more.len());
        let at = self.start + self.len;
        self.bytes[at..at + more.len()].copy_from_slice(more);
        self.len += more.len();
    }

    /// Makes the content `len` bytes long: cuts it or appends zeros.
    pub fn resize(&mut self, len: usize) {
        self.reserve(len.saturating_sub(self.len));
        if len < self.len {
            self[len..].fill(0);
        }
        self.len = len;
    }

    /// Removes the content; the memory stays.
    pub fn clear(&mut self) {
        self.resize(0);
    }

    /// Returns the content and the zeros that pad its last block, as written by a write. Aligned.
    pub fn whole(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.len.next_multiple_of(BLOCK_BYTES)]
    }
}

impl Deref for Blocks {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.len]
    }
}

impl DerefMut for Blocks {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }
}

impl Clone for Blocks {
    /// Copies the content into another aligned buffer.
    fn clone(&self) -> Self {
        Self::from(&**self)
    }
}

impl From<&[u8]> for Blocks {
    fn from(bytes: &[u8]) -> Self {
        let mut blocks = Self::with_capacity(bytes.len());
        blocks.extend_from_slice(bytes);
        blocks
    }
}

/// Returns whether direct I/O may use these bytes directly: whole blocks at an aligned address.
pub(super) fn is_aligned(bytes: &[u8]) -> bool {
    bytes.as_ptr().addr().is_multiple_of(BLOCK_BYTES) && bytes.len().is_multiple_of(BLOCK_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_stays_aligned_and_padded_with_zeros_however_it_grows_and_shrinks() {
        let (mut blocks, mut model) = (Blocks::new(), Vec::new());
        let mut random = 7u64;
        for step in 0..2000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let number = (random >> 33) as usize;
            match step % 3 {
                0 => {
                    let more = vec![step as u8 | 1; number % 3000];
                    blocks.extend_from_slice(&more);
                    model.extend_from_slice(&more);
                }
                1 => {
                    let len = number % (model.len() + 500);
                    blocks.resize(len);
                    model.resize(len, 0);
                }
                _ if number.is_multiple_of(20) => {
                    blocks.clear();
                    model.clear();
                }
                _ => blocks = blocks.clone(),
            }
            assert_eq!(*blocks, model[..], "step {step}");
            let whole = blocks.whole();
            assert!(is_aligned(whole) && whole.len() == model.len().next_multiple_of(BLOCK_BYTES));
            assert!(whole[model.len()..].iter().all(|byte| *byte == 0), "step {step}");
            assert!(blocks.capacity() >= whole.len() && blocks.capacity().is_multiple_of(BLOCK_BYTES));
        }
    }

    #[test]
    fn an_empty_buffer_has_no_blocks_and_a_zeroed_one_its_length() {
        assert!(Blocks::new().whole().is_empty() && Blocks::new().capacity() == 0);
        assert_eq!(Blocks::zeroed(5).whole().len(), BLOCK_BYTES);
        assert_eq!(*Blocks::zeroed(5), [0; 5]);
        assert_eq!(Blocks::with_capacity(1).capacity(), BLOCK_BYTES);
    }
}
