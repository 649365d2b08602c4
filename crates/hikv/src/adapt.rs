//! How many threads should work behind: the paper's dynamic adaption (HiKV, ATC 2017, section 3.2), made steady.
//!
//! Of N threads, those that serve and those that apply tree operations must finish a unit of load in the same time:
//!
//! ```text
//! (N_g*L_g + N_s*L_s + L_sw) / N_serving = L_bw / N_backend,    N_serving + N_backend = N
//! so  N_backend = N * L_bw / (N_g*L_g + N_s*L_s + L_sw + L_bw)
//! ```
//!
//! with N_g gets and N_s scans to a write, and L the mean latencies of a get, a scan, a write on the serving side
//! (sw) and on the backend's side (bw). The paper takes that each window. Here it is the feed-forward term: loads
//! are smoothed, a change needs two windows that agree and more than rounding ([`DEADBAND`]), one thread comes or
//! goes a window, and the queues' depth, which is what really has to be held down, overrides it.
//!
//! Pure functions and one state machine without a clock; [`worker`](super::worker) turns the windows.

use super::sampler::Totals;

/// Weight of the newest window in the smoothed load.
pub const SMOOTHING: f64 = 0.3;
/// The wish must differ from what runs by more than this many threads: half a thread is rounding, a tenth is
/// hysteresis.
pub const DEADBAND: f64 = 0.6;
/// Share of the queues' capacity above which a thread is added, whatever the formula says.
pub const DEPTH_HIGH: f64 = 0.75;
/// Share of the queues' capacity above which no thread is taken away.
pub const DEPTH_LOW: f64 = 0.10;

/// The load of a window, for one write.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Gets to a write (N_g).
    pub gets_per_write: f64,
    /// Scans to a write (N_s).
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
    /// The backend threads that balance this load, of `total` threads: the formula, not rounded and not clamped.
    /// 0 where nothing was measured.
    pub fn backend_threads(&self, total: usize) -> f64 {
        let serving = self.gets_per_write * self.get_ns + self.scans_per_write * self.scan_ns + self.write_ns;
        let all = serving + self.backend_ns;
        if all > 0.0 { total as f64 * self.backend_ns / all } else { 0.0 }
    }

    /// The load of `window`, if it has writes; latencies that were not sampled in it are taken from `before`.
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
        let mix = |now: f64, then: f64| if then == 0.0 { now } else { then + SMOOTHING * (now - then) };
        Self {
            gets_per_write: then_mix(self.gets_per_write, before.gets_per_write),
            scans_per_write: then_mix(self.scans_per_write, before.scans_per_write),
            get_ns: mix(self.get_ns, before.get_ns),
            scan_ns: mix(self.scan_ns, before.scan_ns),
            write_ns: mix(self.write_ns, before.write_ns),
            backend_ns: mix(self.backend_ns, before.backend_ns),
        }
    }
}

/// Exponential smoothing where 0 is a value like any other.
fn then_mix(now: f64, then: f64) -> f64 {
    then + SMOOTHING * (now - then)
}

/// The paper's split: backend threads of `total`, rounded, at least 1 and at most `total - 1`; 0 where `total < 2`.
pub fn split(total: usize, load: &Load) -> usize {
    if total < 2 {
        return 0;
    }
    (load.backend_threads(total).round() as usize).clamp(1, total - 1)
}

/// Holds the number of backend threads; one step a window.
#[derive(Clone, Debug)]
pub struct Controller {
    total: usize,
    current: usize,
    load: Option<Load>,
    depth: f64,
    leaning: i8,
    windows: u64,
}

impl Controller {
    /// For `total` threads, serving and backend together; begins with one behind (none where `total < 2`).
    pub fn new(total: usize) -> Self {
        Self { total, current: usize::from(total >= 2), load: None, depth: 0.0, leaning: 0, windows: 0 }
    }

    /// Backend threads that should run now.
    pub fn current(&self) -> usize {
        self.current
    }

    /// Threads in all.
    pub fn total(&self) -> usize {
        self.total
    }

    /// Windows so far.
    pub fn windows(&self) -> u64 {
        self.windows
    }

    /// What the formula alone says of the smoothed load; 0 until a window had writes.
    pub fn formula(&self) -> usize {
        self.load.map_or(0, |load| split(self.total, &load))
    }

    /// Takes a window's counts, the share of the fullest queue that is in use (0 to 1; 1 where a writer found one
    /// full), and says how many backend threads should run.
    pub fn step(&mut self, window: &Totals, depth: f64) -> usize {
        self.windows += 1;
        if self.total < 2 {
            return self.current;
        }
        self.depth += (depth.clamp(0.0, 1.0) - self.depth) / 2.0;
        let wish = match Load::of(window, self.load) {
            // Nothing is written: one thread is kept, asleep, for what comes.
            None => 1.0,
            Some(now) => {
                let load = self.load.map_or(now, |before| now.smoothed(before));
                self.load = Some(load);
                load.backend_threads(self.total).clamp(1.0, (self.total - 1) as f64)
            }
        };
        let current = self.current as f64;
        let crowded = self.depth > DEPTH_HIGH;
        let leaning = if crowded || wish >= current + DEADBAND {
            1
        } else if wish <= current - DEADBAND && self.depth < DEPTH_LOW {
            -1
        } else {
            0
        };
        if leaning != 0 && (crowded || leaning == self.leaning) {
            self.current = (self.current as isize + isize::from(leaning)).clamp(1, self.total as isize - 1) as usize;
        }
        self.leaning = leaning;
        self.current
    }
}

#[cfg(test)]
mod tests {
    use super::super::sampler::Count;
    use super::*;

    /// The parameters that the splits reported in the paper's Figure 11 fit (16 threads).
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
        // YCSB-A: one get to a write; B: 19; F: 2 (a read-modify-write counts as a get and a write).
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
    fn a_load_that_swings_does_not_swing_the_threads() {
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
    fn full_queues_add_threads_whatever_the_formula_says_and_keep_them() {
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
