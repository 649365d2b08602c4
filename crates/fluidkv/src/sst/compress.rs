//! Compressed blocks: LZ4's block format, each block by itself, and the buffer of its plain bytes
//! while they are read.
//!
//! Invariants
//! 1. The length of the plain bytes is known, and at most [`PLAIN_MAX`], before anything is
//!    decompressed. No more is allocated, whatever the bytes say, and a result of another length is
//!    rejected.
//! 2. A block is compressed only if that saves at least an eighth of it.

use std::cell::OnceCell;

/// Longest block that is compressed, and that is decompressed at a time; longer ones are stored as
/// they are.
pub(super) const PLAIN_MAX: usize = 64 << 10;
/// Minimum saving: one byte in this many.
const SAVING_DIVISOR: usize = 8;

/// Compresses blocks, one after the other.
#[derive(Debug, Default)]
pub(super) struct Packer {
    /// The compressed block, and working space.
    out: Vec<u8>,
}

impl Packer {
    /// Returns the compressed block; `None` if it saves too little.
    pub(super) fn pack(&mut self, plain: &[u8]) -> Option<&[u8]> {
        if plain.len() > PLAIN_MAX {
            return None;
        }
        let most = lz4_flex::block::get_maximum_output_size(plain.len());
        if self.out.len() < most {
            self.out.resize(most, 0);
        }
        let len = lz4_flex::block::compress_into(plain, &mut self.out).ok()?;
        if len > plain.len() - plain.len().div_ceil(SAVING_DIVISOR) { None } else { self.out.get(..len) }
    }
}

/// The bytes are not a compressed block of this length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Garbled;

/// Decompresses a block of `len` plain bytes, at most [`PLAIN_MAX`], into `out`, which then holds
/// exactly these bytes.
pub(super) fn unpack(packed: &[u8], len: usize, out: &mut Vec<u8>) -> Result<(), Garbled> {
    if len > PLAIN_MAX {
        return Err(Garbled);
    }
    // Old bytes are overwritten and need not be zeros.
    out.resize(len, 0);
    match lz4_flex::block::decompress_into(packed, out) {
        Ok(written) if written == len => Ok(()),
        _ => Err(Garbled),
    }
}

/// Keeps the plain bytes of the compressed block in which one get found its item: the item borrows
/// from here as it would from the table. Created by the caller, for one get. Nothing is allocated
/// if no block is compressed.
#[derive(Debug, Default)]
pub struct Slot(OnceCell<Vec<u8>>);

impl Slot {
    /// Returns an empty slot.
    #[must_use]
    #[inline]
    pub const fn new() -> Self {
        Self(OnceCell::new())
    }

    /// Keeps these bytes; `None` if it already has others, which is a second find in one get.
    pub(super) fn keep(&self, plain: Vec<u8>) -> Option<&[u8]> {
        self.0.set(plain).ok()?;
        self.0.get().map(Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_blocks_that_shrink_by_an_eighth_are_compressed() {
        let mut packer = Packer::default();
        for (random, worth) in [(0, true), (500, true), (850, true), (900, false), (1000, false)] {
            let mut x = 1u64;
            let mut plain = vec![7; 1000];
            for byte in &mut plain[..random] {
                x = x.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
                *byte = (x >> 33) as u8;
            }
            let packed = packer.pack(&plain).map(<[u8]>::to_vec);
            assert_eq!(packed.is_some(), worth, "{random} of 1000 bytes are random");
            let Some(packed) = packed else { continue };
            assert!(packed.len() <= 875, "{}", packed.len());
            let mut back = vec![9; 3];
            assert_eq!(unpack(&packed, 1000, &mut back), Ok(()));
            assert_eq!(back, plain);
        }
        assert!(packer.pack(&vec![0; PLAIN_MAX]).is_some() && packer.pack(&vec![0; PLAIN_MAX + 1]).is_none());
        assert!(packer.pack(&[]).is_none());
    }

    /// A few hundred bytes may decompress to very many: the stated length bounds the result, and
    /// the limit bounds that length.
    #[test]
    fn a_bomb_is_refused_before_its_bytes_are_allocated() {
        let zeros = vec![0; 8 << 20];
        let mut bomb = vec![0; lz4_flex::block::get_maximum_output_size(zeros.len())];
        let len = lz4_flex::block::compress_into(&zeros, &mut bomb).expect("room for it");
        bomb.truncate(len);
        for len in [0, 1, 1000, PLAIN_MAX] {
            let mut out = Vec::new();
            assert_eq!(unpack(&bomb, len, &mut out), Err(Garbled), "{len}");
            assert!(out.capacity() <= 2 * len.max(8), "{len}: {}", out.capacity());
        }
        let mut out = Vec::new();
        assert_eq!(unpack(&bomb, zeros.len(), &mut out), Err(Garbled));
        assert_eq!(out.capacity(), 0);
    }

    #[test]
    fn another_length_than_the_right_one_is_refused() {
        let mut packer = Packer::default();
        let plain: Vec<u8> = (0..3000u32).map(|at| (at / 7) as u8).collect();
        let packed = packer.pack(&plain).expect("worth it").to_vec();
        for len in [0, 1, 2999, 3001, 64 << 10] {
            assert_eq!(unpack(&packed, len, &mut Vec::new()), Err(Garbled), "{len}");
        }
        assert_eq!(unpack(&packed[..packed.len() - 1], 3000, &mut Vec::new()), Err(Garbled));
    }

    #[test]
    fn a_slot_keeps_the_first_block() {
        let slot = Slot::new();
        assert_eq!(slot.keep(vec![1, 2]), Some(&[1, 2][..]));
        assert_eq!(slot.keep(vec![3]), None);
    }
}
