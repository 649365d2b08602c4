//! Writes a record, given in parts, so that one fence makes it durable. Whole lines bypass the
//! cache. The two edge lines, which may hold a neighbour's bytes, are stored and written back.

use std::mem::MaybeUninit;

use crate::x86::{self, FlushInstruction, LINE_BYTES};

/// Bytes gathered before they are written: a multiple of a line.
const BUFFER_BYTES: usize = 1024;

/// Lines as they will be on the medium, with the alignment of their destination.
#[repr(C, align(64))]
pub(crate) struct Gather {
    bytes: [MaybeUninit<u8>; BUFFER_BYTES],
}

impl Gather {
    /// Writes the parts one after the other from `dst` on; returns the number of lines that the
    /// next fence makes durable.
    ///
    /// # Safety
    /// `dst` is writable for the length of all parts together, nothing else reads or writes that
    /// range meanwhile, and no part overlaps it.
    #[inline]
    pub(crate) unsafe fn write(dst: *mut u8, parts: &[&[u8]], instruction: FlushInstruction) -> u64 {
        let mut gather = Self { bytes: [MaybeUninit::uninit(); BUFFER_BYTES] };
        let buffer = gather.bytes.as_mut_ptr().cast::<u8>();
        let lead = dst as usize & (LINE_BYTES - 1);
        // The destination of the buffer's first byte: the start of dst's line.
        let mut base = dst.wrapping_sub(lead);
        let (mut start, mut fill) = (lead, lead);
        let mut lines = 0;
        for part in parts {
            let mut rest: &[u8] = part;
            while !rest.is_empty() {
                let take = rest.len().min(BUFFER_BYTES - fill);
                // SAFETY: fill + take <= BUFFER; the buffer is this function's own (Inv 6).
                unsafe { std::ptr::copy_nonoverlapping(rest.as_ptr(), buffer.add(fill), take) };
                (fill, rest) = (fill + take, &rest[take..]);
                if fill == BUFFER_BYTES {
                    // SAFETY: start..fill has just been filled, and is the caller's range from base
                    // on (Inv 3).
                    lines += unsafe { emit(base, buffer, start, fill, instruction) };
                    (base, start, fill) = (base.wrapping_add(BUFFER_BYTES), 0, 0);
                }
            }
        }
        if start < fill {
            // SAFETY: as above (Inv 3).
            lines += unsafe { emit(base, buffer, start, fill, instruction) };
        }
        lines
    }
}

/// Writes bytes `start..end` of the buffer to the same offsets after `base`, a line's start;
/// returns the lines touched.
///
/// # Safety
/// These bytes of the buffer are filled, and their destinations meet the conditions of
/// [`Gather::write`].
#[inline]
unsafe fn emit(base: *mut u8, buffer: *const u8, start: usize, end: usize, instruction: FlushInstruction) -> u64 {
    let mut at = start;
    // SAFETY: every copy below stays in start..end, as the caller guarantees (Inv 3, Inv 6).
    unsafe {
        let whole = at.next_multiple_of(LINE_BYTES);
        if at < whole {
            let stop = whole.min(end);
            edge(base, buffer, at, stop, instruction);
            at = stop;
        }
        let last = end & !(LINE_BYTES - 1);
        if at < last {
            x86::copy_non_temporal(base.wrapping_add(at), buffer.add(at), last - at);
            at = last;
        }
        if at < end {
            edge(base, buffer, at, end, instruction);
        }
    }
    ((end - 1) / LINE_BYTES - start / LINE_BYTES + 1) as u64
}

/// Stores part of one line and writes it back.
///
/// # Safety
/// Like [`emit`].
#[inline]
unsafe fn edge(base: *mut u8, buffer: *const u8, from: usize, to: usize, instruction: FlushInstruction) {
    let dst = base.wrapping_add(from);
    // SAFETY: guaranteed by the caller (Inv 3, Inv 6).
    unsafe {
        std::ptr::copy_nonoverlapping(buffer.add(from), dst, to - from);
        x86::flush_lines(instruction, dst, to - from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(C, align(64))]
    struct Lines([u8; 8192]);

    #[test]
    fn any_parts_at_any_offset_are_written_and_no_other_bytes() {
        let source: Vec<u8> = (0..251u8).cycle().take(6000).collect();
        let mut seed = 7u64;
        let mut random = |below: usize| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) as usize % below
        };
        for _round in 0..3000 {
            let offset = 64 + random(40) * 16;
            let cuts = [random(90), random(400), random(5) * random(1100)];
            let mut parts: Vec<&[u8]> = Vec::new();
            let mut from = 0;
            for cut in cuts {
                parts.push(&source[from..from + cut]);
                from += cut;
            }
            let mut lines = Lines([0xee; 8192]);
            // SAFETY: the buffer is this test's own and long enough (Inv 6).
            let count = unsafe { Gather::write(lines.0.as_mut_ptr().add(offset), &parts, x86::flush_instruction()) };
            x86::store_fence();
            assert_eq!(&lines.0[offset..offset + from], &source[..from], "place {offset}, cuts {cuts:?}");
            assert!(
                lines.0[..offset].iter().chain(&lines.0[offset + from..]).all(|byte| *byte == 0xee),
                "{offset} {cuts:?}"
            );
            let touched = if from == 0 { 0 } else { (offset + from - 1) / 64 - offset / 64 + 1 };
            assert_eq!(count, touched as u64, "place {offset}, cuts {cuts:?}");
        }
    }
}
