//! Memory that is at hand when a cell begins, whichever store was measured before it.
//!
//! The host of a virtual machine may take back memory that has been free for some seconds. Who
//! touches it then waits for the host: some 0.5 GB a second came where memory at hand gave ten
//! times as much (seen in loads of long values). Stores are measured in turn, so without this a
//! store's figure would depend on how much the one before it had just given back.

use std::fs;
use std::hint::black_box;

use memmap2::{Advice, MmapMut};

use crate::run::control_group;

/// A store of less says nothing of speed: nothing is touched for it.
const LIVE_LEAST: u64 = 256 << 10;
/// Touched before any other: as much as our engines take at first, a region and the next.
const LEAST: u64 = 512 << 20;
/// Touched before the largest.
const MOST: u64 = 8 << 30;
/// How many times its live bytes a store takes of memory and medium together, about.
const TIMES: u64 = 3;

/// Bytes of the smallest page.
const PAGE: usize = 4096;

/// Touches as much memory as a store of so many live bytes may take, and gives it back.
pub(crate) fn touch(live: u64) {
    let free = available(&fs::read_to_string("/proc/meminfo").unwrap_or_default());
    // In a container the system has more than this process may take.
    let bytes = wanted(live, control_group::left().map_or(free, |left| left.min(free)));
    if let Ok(mut touched) = MmapMut::map_anon(bytes.max(1)) {
        // What is given back to a host is what makes huge pages: small ones are made of what was
        // used last, and leave the rest as it is. Where the system has none of them it takes four
        // times as long, and is as good as it can be.
        let _ = touched.advise(Advice::HugePage);
        touched.iter_mut().step_by(PAGE).for_each(|byte| *byte = 1);
        drop(black_box(touched));
    }
}

/// How much that is, where so much is available: at most a quarter of it.
fn wanted(live: u64, available: u64) -> usize {
    if live < LIVE_LEAST {
        return 0;
    }
    let bytes = live.saturating_mul(TIMES).clamp(LEAST, MOST).min(available / 4);
    usize::try_from(bytes).unwrap_or(0)
}

/// The bytes that this text of the kernel says are available; none where it does not.
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
