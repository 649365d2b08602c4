//! Signals that end a long command in order: the command removes what is unfinished.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::failure::{Failure, Outcome};

/// The first signal that came.
#[derive(Debug, Clone, Default)]
pub struct StopSignal {
    number: Arc<AtomicUsize>,
}

impl StopSignal {
    /// Watches for SIGINT, SIGTERM and SIGHUP. A second signal ends the process at once.
    pub fn watch() -> Self {
        let (signal, seen) = (Self::default(), Arc::new(AtomicBool::new(false)));
        for number in [SIGINT, SIGTERM, SIGHUP] {
            // In this order: the first signal only sets `seen`, and the second finds it set. A
            // signal that cannot be watched ends the process.
            let _ = signal_hook::flag::register_conditional_shutdown(number, 128 + number, Arc::clone(&seen));
            let _ = signal_hook::flag::register(number, Arc::clone(&seen));
            let _ = signal_hook::flag::register_usize(number, Arc::clone(&signal.number), number as usize);
        }
        signal
    }

    /// Returns the signal that came, if one did.
    pub fn number(&self) -> Option<i32> {
        Some(self.number.load(Ordering::Relaxed) as i32).filter(|number| *number != 0)
    }

    /// Refuses to go on after a signal.
    ///
    /// # Errors
    /// [`Failure::Interrupted`].
    pub fn check(&self, doing: &'static str) -> Outcome {
        self.number().map_or(Ok(()), |number| Err(Failure::Interrupted { number, doing }))
    }
}
