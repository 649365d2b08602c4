//! A background scrub: verifies an open store piece by piece, at a limited rate.
//!
//! Data that is never read can change on its medium. A scrub reads all data from time to time, and
//! reports damage while a copy may still exist. Reads do not rely on the scrub: each read checks
//! the data that its result depends on.
//!
//! Every engine runs the same loop ([`run`]) on a separate thread and supplies the pieces
//! ([`Scrubbed`]). A piece is verified without a pause. Between two pieces the loop pauses, and
//! holds nothing of the store.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::engine_statistics;
use crate::verify::{Finding, VerifyReport};

/// Pause before the first pass. A store that is open for less time is not scrubbed.
const FIRST_PAUSE: Duration = Duration::from_secs(60);
/// Minimum pause between two passes.
const PASS_PAUSE: Duration = Duration::from_secs(60);
const MIB: u64 = 1 << 20;

engine_statistics! {
    /// Statistics of the background scrub.
    pub struct ScrubStats {
        /// Passes of the scrub that verified the whole store.
        Counter Count scrub_passes,
        /// Damaged places that the scrub found.
        Counter Count scrub_findings,
    }
}

/// The state of the scrub of one store.
#[derive(Debug, Default)]
pub struct Scrub {
    /// 0: no scrub.
    bytes_per_second: u64,
    /// The next pass begins without a pause.
    is_due: AtomicBool,
    passes: AtomicU64,
    findings: AtomicU64,
}

impl Scrub {
    /// Returns the scrub state of a store that is about to open.
    #[must_use]
    pub fn new(mib_per_second: u64) -> Self {
        Self { bytes_per_second: mib_per_second.saturating_mul(MIB), ..Self::default() }
    }

    /// Returns whether the store has a scrub.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.bytes_per_second > 0
    }

    /// Lets the next pass begin without its pause. The caller unparks the thread.
    pub fn set_due(&self) {
        self.is_due.store(true, Ordering::Release);
    }

    /// Returns the statistics of the scrub.
    #[must_use]
    pub fn stats(&self) -> ScrubStats {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        ScrubStats { scrub_passes: load(&self.passes), scrub_findings: load(&self.findings) }
    }

    /// Returns the duration of a piece of `bytes` at the rate.
    fn pause_of(&self, bytes: u64) -> Duration {
        Duration::from_secs_f64(bytes as f64 / self.bytes_per_second.max(1) as f64)
    }
}

/// A store, from the view of its scrub.
pub trait Scrubbed {
    /// Returns the state of its scrub.
    fn scrub(&self) -> &Scrub;

    /// Returns whether the store is open. An unparked thread checks again.
    fn is_open(&self) -> bool;

    /// Verifies the store in pieces. Passes the report of each piece to `piece`, and stops when
    /// `piece` returns `false`. Holds nothing of the store while it calls `piece`.
    ///
    /// Returns whether it reached the end; `false` also if the store cannot be verified now.
    fn verify_pieces(&self, piece: &mut dyn FnMut(VerifyReport) -> bool) -> bool;

    /// Reports damage to the owner of the store.
    fn report_finding(&self, finding: &Finding);
}

/// Scrubs a store until it is closed.
pub fn run(store: &impl Scrubbed) {
    let scrub = store.scrub();
    let mut pause = FIRST_PAUSE;
    while wait(store, pause, true) {
        let is_whole = store.verify_pieces(&mut |report| {
            scrub.findings.fetch_add(report.findings.len() as u64, Ordering::Relaxed);
            report.findings.iter().for_each(|finding| store.report_finding(finding));
            wait(store, scrub.pause_of(report.bytes), false)
        });
        if is_whole {
            scrub.passes.fetch_add(1, Ordering::Relaxed);
        }
        pause = PASS_PAUSE;
    }
}

/// Waits for the pause to end. Returns `false` if the store is closed. A due pass ends the pause
/// before a pass.
fn wait(store: &impl Scrubbed, pause: Duration, is_before_pass: bool) -> bool {
    let begin = Instant::now();
    loop {
        if !store.is_open() {
            return false;
        }
        let is_due = is_before_pass && store.scrub().is_due.swap(false, Ordering::AcqRel);
        let left = pause.saturating_sub(begin.elapsed());
        if is_due || left.is_zero() {
            return true;
        }
        std::thread::park_timeout(left);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// A store of some pieces, which closes after `passes_max` passes have begun.
    struct Pieces {
        scrub: Scrub,
        passes: AtomicU64,
        passes_max: u64,
        is_cut_short: bool,
        reported: Mutex<Vec<String>>,
    }

    impl Scrubbed for Pieces {
        fn scrub(&self) -> &Scrub {
            &self.scrub
        }

        fn is_open(&self) -> bool {
            self.passes.load(Ordering::SeqCst) < self.passes_max
        }

        fn verify_pieces(&self, piece: &mut dyn FnMut(VerifyReport) -> bool) -> bool {
            let continues = (0..3).all(|number| {
                let mut report = VerifyReport { bytes: 10, ..VerifyReport::default() };
                if number == 1 {
                    report.find("piece 1", "the checksum differs");
                }
                piece(report)
            });
            self.scrub.set_due();
            self.passes.fetch_add(1, Ordering::SeqCst);
            continues && !self.is_cut_short
        }

        fn report_finding(&self, finding: &Finding) {
            self.reported.lock().expect("no panic").push(finding.place.clone());
        }
    }

    fn scrubbed(is_cut_short: bool) -> Pieces {
        let scrub = Scrub::new(1024);
        scrub.set_due();
        let store =
            Pieces { scrub, passes: AtomicU64::new(0), passes_max: 3, is_cut_short, reported: Mutex::default() };
        run(&store);
        store
    }

    #[test]
    fn a_pass_that_did_not_reach_the_end_is_not_counted() {
        let store = scrubbed(true);
        assert_eq!(store.scrub.stats(), ScrubStats { scrub_passes: 0, scrub_findings: 3 });
    }

    #[test]
    fn each_pass_reports_its_findings_until_the_store_is_closed() {
        let store = scrubbed(false);
        assert_eq!(store.scrub.stats(), ScrubStats { scrub_passes: 3, scrub_findings: 3 });
        assert_eq!(*store.reported.lock().expect("no panic"), ["piece 1"; 3]);
    }

    #[test]
    fn a_rate_of_0_disables_the_scrub() {
        assert!(!Scrub::new(0).is_on() && Scrub::new(1).is_on());
        assert_eq!(Scrub::new(2).pause_of(MIB), Duration::from_millis(500));
    }
}
