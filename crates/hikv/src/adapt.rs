//! The number of background threads: the paper's dynamic adaption (HiKV, ATC 2017, section 3.2),
//! stabilized.
//!
//! Of N threads, serving threads and threads that apply tree operations must finish a unit of load
//! in the same time:
//!
//! ```text
//! (N_g*L_g + N_s*L_s + L_sw) / N_serving = L_bw / N_backend,    N_serving + N_backend = N
//! so  N_backend = N * L_bw / (N_g*L_g + N_s*L_s + L_sw + L_bw)
//! ```
//!
//! with N_g gets and N_s scans per write. L is the mean latency of a get, a scan, a write on the
//! serving side (sw) and on the backend's side (bw). The paper applies the result each window. Here
//! it is the feed-forward term. Loads are smoothed, and a change needs two windows that agree and a
//! difference above rounding ([`DEADBAND_THREADS`]). At most one thread is added or removed per
//! window. The queues' depth, which must stay low, overrides the term.
//!
//! Pure functions and one state machine without a clock; [`backend`](super::backend) drives the
//! windows.

use super::sampler::Totals;

/// Weight of the newest window in the smoothed load.
pub const SMOOTHING_FACTOR: f64 = 0.3;
/// Minimum difference between target and current number of threads: half a thread for rounding, a
/// tenth for hysteresis.
pub const DEADBAND_THREADS: f64 = 0.6;
/// Share of the queues' capacity above which a thread is added, regardless of the formula.
pub const HIGH_DEPTH_RATIO: f64 = 0.75;
/// Share of the queues' capacity above which no thread is removed.
pub const LOW_DEPTH_RATIO: f64 = 0.10;

/// The load of a window, per write.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Gets per write (N_g).
    pub gets_per_write: f64,
    /// Scans per write (N_s).
    pub scans_per_write: f64,
    /// Mean latency of a get, in ns (L_g).
    pub get_ns: f64,
    /// Mean latency of a scan, in ns (L_s).
    pub scan_ns: f64,
    /// Mean latency of a write on the serving side, in ns (L_sw).
    pub write_ns: f64,
    /// Mean latency of a tree operation on the backend's side, in ns (L_bw).
    pub backend_ns: f64,
}

impl Load {
    /// Returns the backend threads, of `total` threads, that balance this load: the formula,
    /// neither rounded nor clamped. 0 if nothing was measured.
    pub fn backend_threads(&self, total: usize) -> f64 {
        let serving = self.gets_per_write * self.get_ns + self.scans_per_write * self.scan_ns + self.write_ns;
        let all = serving + self.backend_ns;
        if all > 0.0 { total as f64 * self.backend_ns / all } else { 0.0 }
    }

    /// Returns the load of `window`, if it has writes. Latencies that were not sampled in it come
    /// from `before`.
    fn of(window: &Totals, before: Option<Self>) -> Option<Self> {
        if window.writes.count == 0 {
            return None;
        }
        let writes = window.writes.count as f64;
        let known = |measured: Option<f64>, earlier: fn(&Self) -> f64| {
            measured.unwrap_or_else(|| before.as_ref().map_or(0.0, earlier))
        };
        Some(Self {
            gets_per_write: window.gets.count as f64 / writes,
            scans_per_write: window.scans.count as f64 / writes,
            get_ns: known(window.gets.mean_ns(), |load| load.get_ns),
            scan_ns: known(window.scans.mean_ns(), |load| load.scan_ns),
            write_ns: known(window.writes.mean_ns(), |load| load.write_ns),
            backend_ns: known(window.backend.mean_ns(), |load| load.backend_ns),
        })
    }

    fn smoothed(self, before: Self) -> Self {
        let smooth_latency =
            |now: f64, then: f64| if then == 0.0 { now } else { then + SMOOTHING_FACTOR * (now - then) };
        Self {
            gets_per_write: smooth(self.gets_per_write, before.gets_per_write),
            scans_per_write: smooth(self.scans_per_write, before.scans_per_write),
            get_ns: smooth_latency(self.get_ns, before.get_ns),
            scan_ns: smooth_latency(self.scan_ns, before.scan_ns),
            write_ns: smooth_latency(self.write_ns, before.write_ns),
            backend_ns: smooth_latency(self.backend_ns, before.backend_ns),
        }
    }
}

/// Exponential smoothing in which 0 is an ordinary value.
fn smooth(now: f64, then: f64) -> f64 {
    then + SMOOTHING_FACTOR * (now - then)
}

/// Returns the paper's split: backend threads of `total`, rounded, at least 1 and at most `total -
/// 1`; 0 if `total < 2`.
pub fn split(total: usize, load: &Load) -> usize {
    if total < 2 {
        return 0;
    }
    (load.backend_threads(total).round() as usize).clamp(1, total - 1)
}

/// Controls the number of backend threads, one step per window.
#[derive(Clone, Debug)]
pub struct Controller {
    total: usize,
    current: usize,
    load: Option<Load>,
    depth: f64,
    trend: i8,
    windows: u64,
}

impl Controller {
    /// Creates a controller for `total` threads, serving and backend together. Starts with one
    /// backend thread (none if `total < 2`).
    pub fn new(total: usize) -> Self {
        Self { total, current: usize::from(total >= 2), load: None, depth: 0.0, trend: 0, windows: 0 }
    }

    /// Returns the number of backend threads that must run now.
    pub fn current(&self) -> usize {
        self.current
    }

    /// Returns the total number of threads.
    pub fn total(&self) -> usize {
        self.total
    }

    /// Returns the number of windows.
    pub fn windows(&self) -> u64 {
        self.windows
    }

    /// Returns the result of the formula alone for the smoothed load; 0 before the first window
    /// with writes.
    pub fn formula(&self) -> usize {
        self.load.map_or(0, |load| split(self.total, &load))
    }

    /// Processes a window's counts and the used share of the fullest queue (0 to 1; 1 if a writer
    /// found one full). Returns the number of backend threads that must run.
    pub fn step(&mut self, window: &Totals, depth: f64) -> usize {
        self.windows += 1;
        if self.total < 2 {
            return self.current;
        }
        self.depth += (depth.clamp(0.0, 1.0) - self.depth) / 2.0;
        let target = match Load::of(window, self.load) {
            // Without writes one sleeping thread is kept.
            None => 1.0,
            Some(now) => {
                let load = self.load.map_or(now, |before| now.smoothed(before));
                self.load = Some(load);
                load.backend_threads(self.total).clamp(1.0, (self.total - 1) as f64)
            }
        };
        let current = self.current as f64;
        let is_overfull = self.depth > HIGH_DEPTH_RATIO;
        let trend = if is_overfull || target >= current + DEADBAND_THREADS {
            1
        } else if target <= current - DEADBAND_THREADS && self.depth < LOW_DEPTH_RATIO {
            -1
        } else {
            0
        };
        if trend != 0 && (is_overfull || trend == self.trend) {
            self.current = (self.current as isize + isize::from(trend)).clamp(1, self.total as isize - 1) as usize;
        }
        self.trend = trend;
        self.current
    }
}

#[cfg(test)]
mod tests {
    use super::super::sampler::Count;
    use super::*;

    /// Parameters that match the splits reported in the paper's Figure 11 (16 threads).
    fn paper(gets_per_write: f64) -> Load {
        Load { gets_per_write, scans_per_write: 0.0, get_ns: 185.0, scan_ns: 0.0, write_ns: 815.0, backend_ns: 1000.0 }
    }

    fn window(load: &Load, writes: u64) -> Totals {
        let count = |count: f64, ns: f64| Count { count: count as u64, timed: 100, ns: (ns * 100.0) as u64 };
        Totals {
            gets: count(load.gets_per_write * writes as f64, load.get_ns),
            writes: count(writes as f64, load.write_ns),
            scans: count(load.scans_per_write * writes as f64, load.scan_ns),
            backend: count(writes as f64, load.backend_ns),
        }
    }

    #[test]
    fn the_formula_gives_the_papers_three_splits() {
        // YCSB-A: one get per write; B: 19; F: 2 (a read-modify-write counts as a get and a write).
        assert_eq!(split(16, &paper(1.0)), 8);
        assert_eq!(split(16, &paper(19.0)), 3);
        assert_eq!(split(16, &paper(2.0)), 7);
    }

    #[test]
    fn the_split_is_clamped() {
        assert_eq!(split(16, &paper(100_000.0)), 1);
        assert_eq!(split(16, &Load { write_ns: 0.0, ..paper(0.0) }), 15);
        assert_eq!((split(0, &paper(1.0)), split(1, &paper(1.0)), split(2, &paper(1.0))), (0, 0, 1));
        let nothing = Load { write_ns: 0.0, backend_ns: 0.0, ..paper(0.0) };
        assert_eq!(split(16, &nothing), 1);
    }

    #[test]
    fn the_controller_reaches_the_papers_splits_one_thread_a_window_from_either_side() {
        for (gets, expected) in [(1.0, 8), (19.0, 3), (2.0, 7)] {
            for start in [1, 15] {
                let mut control = Controller { current: start, ..Controller::new(16) };
                for _ in 0..40 {
                    let before = control.current();
                    let after = control.step(&window(&paper(gets), 10_000), 0.02);
                    assert!(before.abs_diff(after) <= 1);
                }
                assert_eq!(control.current(), expected, "{gets} gets to a write, from {start}");
                assert_eq!(control.formula(), expected);
            }
        }
    }

    #[test]
    fn an_oscillating_load_does_not_change_the_number_of_threads() {
        let mut control = Controller::new(16);
        for _ in 0..40 {
            control.step(&window(&paper(1.0), 10_000), 0.0);
        }
        let mut changes = 0;
        for round in 0..100 {
            let before = control.current();
            let gets = if round % 2 == 0 { 0.8 } else { 1.2 };
            changes += usize::from(control.step(&window(&paper(gets), 10_000), 0.0) != before);
        }
        assert!(changes <= 1, "{changes} changes");
    }

    #[test]
    fn full_queues_add_and_keep_threads_regardless_of_the_formula() {
        let mut control = Controller::new(16);
        for _ in 0..30 {
            control.step(&window(&paper(19.0), 10_000), 1.0);
        }
        assert_eq!(control.current(), 15);
        for _ in 0..30 {
            control.step(&window(&paper(19.0), 10_000), 0.3);
        }
        assert_eq!(control.current(), 15, "taken away above the low mark");
        for _ in 0..30 {
            control.step(&window(&paper(19.0), 10_000), 0.0);
        }
        assert_eq!(control.current(), 3);
    }

    #[test]
    fn without_writes_one_thread_is_kept() {
        let mut control = Controller { current: 6, ..Controller::new(8) };
        for _ in 0..30 {
            control.step(&Totals::default(), 0.0);
        }
        assert_eq!(control.current(), 1);
        let mut alone = Controller::new(1);
        assert_eq!(alone.step(&window(&paper(1.0), 100), 1.0), 0);
    }
}
