//! Emulated latency of a slower medium, for evaluation: DRAM replaces persistent memory. Each
//! persist (and optionally each first read of a record) spins for the additional time of the real
//! medium. The HiKV paper (ATC 2017, section 4.1) adds 600 ns to each persist.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::options::PoolOptions;
use crate::x86::ticks;

/// Spin times, in ticks of the time stamp counter.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Latency {
    persist: u64,
    per_block: bool,
    read: u64,
}

/// Returns the ticks per microsecond, measured once per process over two milliseconds.
fn ticks_per_us() -> u64 {
    static MEASURED: OnceLock<u64> = OnceLock::new();
    *MEASURED.get_or_init(|| {
        let (start, first) = (Instant::now(), ticks());
        while start.elapsed() < Duration::from_millis(2) {
            std::hint::spin_loop();
        }
        let (span, passed) = (start.elapsed(), ticks().wrapping_sub(first));
        (u128::from(passed) * 1000 / span.as_nanos().max(1)).max(1) as u64
    })
}

impl Latency {
    /// Returns the latency that the options request.
    pub(crate) fn of(options: &PoolOptions) -> Self {
        Self::new(options.persist_ns, options.persist_per_block, options.read_ns)
    }

    /// Creates a latency: `persist_ns` after each fence that persists something (for each 256-byte
    /// block if `per_block`), `read_ns` at each first read.
    fn new(persist_ns: u64, per_block: bool, read_ns: u64) -> Self {
        if persist_ns == 0 && read_ns == 0 {
            return Self::default();
        }
        let rate = ticks_per_us();
        let in_ticks = |ns: u64| u64::try_from(u128::from(ns) * u128::from(rate) / 1000).unwrap_or(u64::MAX);
        Self { persist: in_ticks(persist_ns), per_block, read: in_ticks(read_ns) }
    }

    /// Spins for a fence that persisted `blocks` 256-byte blocks.
    #[inline]
    pub(crate) fn persisted(&self, blocks: u64) {
        if self.persist != 0 && blocks != 0 {
            spin(self.persist.saturating_mul(if self.per_block { blocks } else { 1 }));
        }
    }

    /// Spins for the first read of a record.
    #[inline]
    pub(crate) fn first_read(&self) {
        if self.read != 0 {
            spin(self.read);
        }
    }
}

#[cold]
fn spin(span: u64) {
    let start = ticks();
    while ticks().wrapping_sub(start) < span {
        std::hint::spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spin_lasts_at_least_the_requested_time() {
        let latency = Latency::new(200_000, true, 100_000);
        assert!(latency.persist > 0 && latency.read > 0);
        // Measured by the clock that the spin uses: no machine is too slow or too busy for this.
        let spent = |work: &dyn Fn()| {
            let start = ticks();
            work();
            ticks().wrapping_sub(start)
        };
        assert!(spent(&|| latency.persisted(3)) >= 3 * latency.persist);
        assert!(spent(&|| Latency { per_block: false, ..latency }.persisted(3)) >= latency.persist);
        assert!(spent(&|| latency.first_read()) >= latency.read);
        latency.persisted(0);
        Latency::default().persisted(5);
    }
}
