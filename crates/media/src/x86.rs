//! All processor-dependent code: flushes and fences, non-temporal copies, 16-byte atomics, the time
//! stamp counter. x86-64 only; a port to another processor replaces this file.
//!
//! Sources: Intel 64 and IA-32 Software Developer's Manual, vol. 1 section 10.4.6 (non-temporal
//! stores), vol. 2 (CLWB, CLFLUSHOPT, CLFLUSH, SFENCE, CMPXCHG16B), vol. 3 section 8.1.1 (aligned
//! 16-byte loads are atomic on processors with AVX; AMD states the same).

use std::arch::asm;
use std::arch::x86_64 as arch;

/// Bytes of a cache line.
pub(crate) const LINE_BYTES: usize = 64;

/// The instruction that writes a line back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlushInstruction {
    /// Writes back and keeps the line.
    Clwb,
    /// Writes back and drops the line; unordered.
    ClflushOpt,
    /// Writes back and drops the line; ordered, slow.
    Clflush,
}

impl std::fmt::Display for FlushInstruction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Clwb => "clwb",
            Self::ClflushOpt => "clflushopt",
            Self::Clflush => "clflush",
        })
    }
}

/// Returns the best flush instruction of this processor (CPUID leaf 7: EBX bit 24 CLWB, bit 23
/// CLFLUSHOPT).
pub fn flush_instruction() -> FlushInstruction {
    // CPUID exits a virtual machine, which takes tens of microseconds: executed once.
    static FOUND: std::sync::OnceLock<FlushInstruction> = std::sync::OnceLock::new();
    *FOUND.get_or_init(detect_flush_instruction)
}

#[expect(unused_unsafe, reason = "Rust before 1.94 has no safe cpuid")]
fn detect_flush_instruction() -> FlushInstruction {
    // SAFETY: Inv 6: the instruction changes no byte; every x86-64 processor has it.
    if unsafe { arch::__cpuid(0) }.eax >= 7 {
        // SAFETY: as above (Inv 6).
        let features = unsafe { arch::__cpuid_count(7, 0) }.ebx;
        if features & 1 << 24 != 0 {
            return FlushInstruction::Clwb;
        }
        if features & 1 << 23 != 0 {
            return FlushInstruction::ClflushOpt;
        }
    }
    FlushInstruction::Clflush
}

/// Returns whether the processor swaps 16 bytes atomically (all since about 2006 do).
pub fn has_cmpxchg16b() -> bool {
    std::arch::is_x86_feature_detected!("cmpxchg16b")
}

/// Returns whether an aligned 16-byte load is atomic.
pub(crate) fn has_atomic_load16() -> bool {
    std::arch::is_x86_feature_detected!("avx")
}

/// Writes back the lines that hold `len` bytes from `start`; returns their number.
///
/// # Safety
/// The range is mapped memory.
#[inline]
pub(crate) unsafe fn flush_lines(kind: FlushInstruction, start: *const u8, len: usize) -> u64 {
    if len == 0 {
        return 0;
    }
    let first = start as usize & !(LINE_BYTES - 1);
    let last = (start as usize + len - 1) & !(LINE_BYTES - 1);
    let mut line = first;
    loop {
        // SAFETY: the caller guarantees that the range is mapped; the instructions change no byte
        // (Inv 6).
        unsafe {
            match kind {
                FlushInstruction::Clwb => asm!("clwb [{}]", in(reg) line, options(nostack, preserves_flags)),
                FlushInstruction::ClflushOpt => {
                    asm!("clflushopt [{}]", in(reg) line, options(nostack, preserves_flags))
                }
                FlushInstruction::Clflush => arch::_mm_clflush(line as *const u8),
            }
        }
        if line == last {
            return ((last - first) / LINE_BYTES + 1) as u64;
        }
        line += LINE_BYTES;
    }
}

/// Orders flushes and non-temporal stores before all later stores.
#[inline]
pub(crate) fn store_fence() {
    // SAFETY: SFENCE is part of x86-64's base and touches no memory operand (Inv 6).
    unsafe { arch::_mm_sfence() }
}

/// Copies whole lines, bypassing the cache: `len` and `dst` are multiples of 64.
///
/// # Safety
/// `src` is readable and `dst` writable for `len` bytes, nothing else accesses `dst`, and the two
/// do not overlap.
#[inline]
pub(crate) unsafe fn copy_non_temporal(dst: *mut u8, src: *const u8, len: usize) {
    debug_assert!((dst as usize).is_multiple_of(LINE_BYTES) && len.is_multiple_of(LINE_BYTES));
    let mut at = 0;
    while at < len {
        // SAFETY: the caller guarantees the ranges; dst + at is 16-aligned (Inv 6).
        unsafe {
            let from = src.add(at).cast::<arch::__m128i>();
            let to = dst.add(at).cast::<arch::__m128i>();
            let (a, b, c, d) = (
                arch::_mm_loadu_si128(from),
                arch::_mm_loadu_si128(from.add(1)),
                arch::_mm_loadu_si128(from.add(2)),
                arch::_mm_loadu_si128(from.add(3)),
            );
            arch::_mm_stream_si128(to, a);
            arch::_mm_stream_si128(to.add(1), b);
            arch::_mm_stream_si128(to.add(2), c);
            arch::_mm_stream_si128(to.add(3), d);
        }
        at += LINE_BYTES;
    }
}

#[inline]
pub(crate) fn prefetch_line(at: *const u8) {
    // SAFETY: a prefetch reads nothing and faults at no address (Inv 6).
    unsafe { arch::_mm_prefetch::<{ arch::_MM_HINT_T0 }>(at.cast()) }
}

/// Maximum lines of one [`prefetch_bytes`]: about the processor's limit of outstanding loads.
const PREFETCH_LINES: usize = 16;

/// Prefetches the first lines of these bytes, at most 16 of 64 bytes: a hint, nothing is read.
#[inline]
pub fn prefetch_bytes(bytes: &[u8]) {
    prefetch_lines(bytes.as_ptr(), bytes.len());
}

/// Like [`prefetch_bytes`], for bytes that may not exist: a hint never faults.
#[inline]
pub(crate) fn prefetch_lines(base: *const u8, len: usize) {
    let lines = (len + base as usize % LINE_BYTES).div_ceil(LINE_BYTES).min(PREFETCH_LINES);
    for line in 0..lines {
        prefetch_line(base.wrapping_add(line * LINE_BYTES));
    }
}

/// Prefetches the line where this value begins: a hint, nothing is read.
#[inline]
pub fn prefetch_value<T>(value: &T) {
    prefetch_line(std::ptr::from_ref(value).cast());
}

#[inline]
pub(crate) fn prefetch_line_to_write(at: *const u8) {
    // SAFETY: a prefetch reads nothing and faults at no address (Inv 6).
    unsafe { asm!("prefetchw [{}]", in(reg) at, options(nostack, preserves_flags)) }
}

#[inline]
fn split(word: u128) -> (u64, u64) {
    (word as u64, (word >> 64) as u64)
}

/// Executes one 16-byte compare-and-swap; returns the value found if it is not `old`.
///
/// # Safety
/// `at` is 16-aligned, mapped and writable, accessed by atomic operations only, and
/// [`has_cmpxchg16b`] holds.
#[inline]
pub(crate) unsafe fn cas16(at: *mut u8, old: (u64, u64), new: (u64, u64)) -> Result<(), (u64, u64)> {
    let (mut low, mut high) = old;
    let swapped: u8;
    // SAFETY: guaranteed by the caller (Inv 5). The compiler reserves rbx, so the new low half is
    // swapped in and out.
    unsafe {
        asm!(
            "xchg rsi, rbx",
            "lock cmpxchg16b [rdi]",
            "mov rbx, rsi",
            "sete r8b",
            in("rdi") at,
            inout("rsi") new.0 => _,
            out("r8b") swapped,
            in("rcx") new.1,
            inout("rax") low,
            inout("rdx") high,
            options(nostack),
        );
    }
    if swapped != 0 { Ok(()) } else { Err((low, high)) }
}

/// Executes one atomic 16-byte load.
///
/// # Safety
/// Like [`cas16`]; `plain` only if [`has_atomic_load16`] holds.
#[inline]
pub(crate) unsafe fn load16(at: *mut u8, plain: bool) -> (u64, u64) {
    if plain {
        let word: arch::__m128i;
        // SAFETY: the caller guarantees an aligned, mapped address; in assembly, so that the
        // compiler cannot split it (Inv 5).
        unsafe {
            asm!("movdqa {}, [{}]", out(xmm_reg) word, in(reg) at, options(nostack, preserves_flags, readonly));
            // SAFETY: both types are 16 plain bytes (Inv 6).
            return split(std::mem::transmute::<arch::__m128i, u128>(word));
        }
    }
    // Swapping zero for zero changes nothing and returns the current value.
    // SAFETY: guaranteed by the caller (Inv 5).
    match unsafe { cas16(at, (0, 0), (0, 0)) } {
        Ok(()) => (0, 0),
        Err(found) => found,
    }
}

/// Returns the time stamp counter.
#[cfg(feature = "lab")]
#[inline]
pub(crate) fn ticks() -> u64 {
    // SAFETY: RDTSC is part of x86-64's base and touches no memory (Inv 6).
    unsafe { arch::_rdtsc() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(C, align(64))]
    struct Lines([u8; 512]);

    #[test]
    fn sixteen_bytes_swap_only_from_the_value_expected() {
        assert!(has_cmpxchg16b(), "the tests need a processor with cmpxchg16b");
        let mut lines = Lines([0; 512]);
        let at = lines.0.as_mut_ptr();
        // SAFETY: aligned, owned by this test alone (Inv 5).
        unsafe {
            assert_eq!(cas16(at, (0, 0), (1, u64::MAX)), Ok(()));
            assert_eq!(cas16(at, (0, 0), (7, 7)), Err((1, u64::MAX)));
            assert_eq!(load16(at, false), (1, u64::MAX));
            assert_eq!(load16(at, has_atomic_load16()), (1, u64::MAX));
            assert_eq!(cas16(at, (1, u64::MAX), (2, 3)), Ok(()));
            assert_eq!(load16(at, has_atomic_load16()), (2, 3));
            assert_eq!(cas16(at.add(16), (0, 0), (5, 6)), Ok(()));
            assert_eq!(load16(at, false), (2, 3));
        }
    }

    #[test]
    fn non_temporal_copies_arrive_and_flushes_count_lines() {
        let source: Vec<u8> = (0..=255).cycle().take(512).collect();
        let mut lines = Lines([0; 512]);
        // SAFETY: both buffers are this test's own and long enough (Inv 6).
        unsafe {
            copy_non_temporal(lines.0.as_mut_ptr().add(64), source.as_ptr().add(1), 384);
            store_fence();
            assert_eq!(&lines.0[64..448], &source[1..385]);
            assert!(lines.0[..64].iter().chain(&lines.0[448..]).all(|byte| *byte == 0));
            let start = lines.0.as_ptr();
            for kind in [flush_instruction(), FlushInstruction::Clflush] {
                assert_eq!(flush_lines(kind, start, 0), 0);
                assert_eq!(flush_lines(kind, start, 1), 1);
                assert_eq!(flush_lines(kind, start.add(63), 2), 2);
                assert_eq!(flush_lines(kind, start.add(16), 296), 5);
            }
        }
    }
}
