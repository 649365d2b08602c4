//! Signals that end a long command in an orderly way: the command removes unfinished files.
//!
//! A signal that the parent of the process ignores stays ignored: `nohup` ignores SIGHUP, and a
//! shell ignores SIGINT for its background jobs.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::failure::{Failure, Outcome};

/// Returns the signals that stop a command: those of SIGINT, SIGTERM and SIGHUP that the parent of
/// this process does not ignore.
pub fn stop_signals() -> Vec<i32> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = ignored_signals(&status);
    [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|number| ignored >> (number - 1) & 1 == 0).collect()
}

/// Returns the mask of ignored signals from the text of `/proc/PID/status`. Bit 0 is signal 1.
fn ignored_signals(status: &str) -> u64 {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// The first signal that arrived.
#[derive(Debug, Clone, Default)]
pub struct StopSignal {
    number: Arc<AtomicUsize>,
}

impl StopSignal {
    /// Watches for SIGINT, SIGTERM and SIGHUP. A second signal ends the process at once.
    pub fn watch() -> Self {
        let (signal, seen) = (Self::default(), Arc::new(AtomicBool::new(false)));
        for number in stop_signals() {
            // In this order: the first signal only sets `seen`, and the second finds it set. A
            // signal that cannot be watched ends the process.
            let _ = signal_hook::flag::register_conditional_shutdown(number, 128 + number, Arc::clone(&seen));
            let _ = signal_hook::flag::register(number, Arc::clone(&seen));
            let _ = signal_hook::flag::register_usize(number, Arc::clone(&signal.number), number as usize);
        }
        signal
    }

    /// Returns the signal that arrived, if any.
    pub fn number(&self) -> Option<i32> {
        Some(self.number.load(Ordering::Relaxed) as i32).filter(|number| *number != 0)
    }

    /// Returns an error after a signal.
    ///
    /// # Errors
    ///
    /// [`Failure::Interrupted`].
    pub fn check(&self, action: &'static str) -> Outcome {
        self.number().map_or(Ok(()), |number| Err(Failure::Interrupted { number, action }))
    }
}
