//! Makes memory available before a cell begins, regardless of the store that was measured before.
//!
//! The host of a virtual machine may reclaim memory that has been free for some seconds. The next
//! access then waits for the host: about 0.5 GB per second, a tenth of the speed of available
//! memory (seen in loads of long values). Stores are interleaved. Without this, a store's result
//! would depend on how much memory the previous store had just freed.

use std::fs;
use std::hint::black_box;

use memmap2::{Advice, MmapMut};

use crate::run::control_group;

/// A store with fewer live bytes says nothing about speed, so nothing is touched for it.
const LIVE_BYTES_MIN: u64 = 256 << 10;
/// Minimum bytes touched: the initial memory of Lodestore's engines, a region and the next.
const TOUCHED_BYTES_MIN: u64 = 512 << 20;
/// Maximum bytes touched, before the largest stores.
const TOUCHED_BYTES_MAX: u64 = 8 << 30;
/// Approximate ratio of a store's memory and medium together to its live bytes.
const LIVE_BYTES_FACTOR: u64 = 3;

/// Bytes of the smallest page.
const PAGE_BYTES: usize = 4096;

/// Touches as much memory as a store with `live` bytes may use, and frees it.
pub(crate) fn touch(live: u64) {
    let free = available(&fs::read_to_string("/proc/meminfo").unwrap_or_default());
    // In a container the system has more memory than this process may use.
    let bytes = wanted(live, control_group::left().map_or(free, |left| left.min(free)));
    if let Ok(mut touched) = MmapMut::map_anon(bytes.max(1)) {
        // Huge pages come from the memory that the host may have reclaimed. Small pages come from
        // recently used memory and would leave the rest untouched. Without huge pages this needs
        // four times as long, and is as good as it can be.
        let _ = touched.advise(Advice::HugePage);
        touched.iter_mut().step_by(PAGE_BYTES).for_each(|byte| *byte = 1);
        drop(black_box(touched));
    }
}

/// Returns that number of bytes: at most a quarter of the available bytes.
fn wanted(live: u64, available: u64) -> usize {
    if live < LIVE_BYTES_MIN {
        return 0;
    }
    let bytes = live.saturating_mul(LIVE_BYTES_FACTOR).clamp(TOUCHED_BYTES_MIN, TOUCHED_BYTES_MAX).min(available / 4);
    usize::try_from(bytes).unwrap_or(0)
}

/// Returns the available bytes according to this kernel text; 0 if it does not report them.
fn available(meminfo: &str) -> u64 {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|rest| rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kib.map_or(0, |kib| kib.saturating_mul(1024))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_has_three_times_its_bytes_touched_and_none_more_than_a_quarter_of_what_is_available() {
        let plenty = 1 << 40;
        assert_eq!(wanted(100 << 10, plenty), 0);
        assert_eq!(wanted(1 << 20, plenty), 512 << 20);
        assert_eq!(wanted(1 << 30, plenty), 3 << 30);
        assert_eq!(wanted(1 << 50, plenty), 8 << 30);
        assert_eq!(wanted(1 << 30, 1 << 30), 256 << 20);
        assert_eq!(wanted(1 << 30, 0), 0);
    }

    #[test]
    fn the_kernels_text_tells_what_is_available() {
        assert_eq!(available("MemTotal:       100 kB\nMemAvailable:    7 kB\n"), 7 << 10);
        assert_eq!(available("MemTotal:       100 kB\n"), 0);
        assert_eq!(available("MemAvailable: much\n"), 0);
        touch(1 << 20);
    }
}
