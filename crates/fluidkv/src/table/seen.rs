//! Which blocks of a table were compared with their checksums: a bit each, in DRAM.

use std::sync::atomic::{AtomicU64, Ordering};

/// See the module. Bits are only ever set; a bit that another thread does not see yet costs it a comparison more.
#[derive(Debug, Default)]
pub struct Seen(Box<[AtomicU64]>);

impl Seen {
    /// None of so many blocks.
    #[must_use]
    pub fn of(blocks: u32) -> Self {
        Self((0..blocks.div_ceil(64)).map(|_| AtomicU64::new(0)).collect())
    }

    /// Whether this block was compared.
    #[must_use]
    #[inline]
    pub fn has(&self, block: u32) -> bool {
        self.0.get(block as usize / 64).is_some_and(|word| word.load(Ordering::Relaxed) >> (block % 64) & 1 != 0)
    }

    /// Takes note that it was.
    #[inline]
    pub fn add(&self, block: u32) {
        if let Some(word) = self.0.get(block as usize / 64) {
            word.fetch_or(1 << (block % 64), Ordering::Relaxed);
        }
    }

    /// Bytes of DRAM.
    #[must_use]
    pub fn dram_bytes(&self) -> usize {
        size_of_val(&*self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_block_has_its_bit_and_others_have_none() {
        let seen = Seen::of(130);
        for block in [0, 63, 64, 129] {
            assert!(!seen.has(block));
            seen.add(block);
            assert!(seen.has(block));
        }
        assert!(!seen.has(1) && !seen.has(128));
        seen.add(1000);
        assert!(!seen.has(1000), "no such block");
    }
}
