//! Signals that stop the server.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use lodestore_server::Stopper;
use signal_hook::iterator::Signals;

use super::notify;
use crate::failure::{Failure, Outcome};
use crate::stop_signal::stop_signals;

/// Stops the server at the first signal. The second signal ends the process at once.
pub fn stop_on_signal(stopper: &Stopper) -> Outcome {
    let refused = |error| Failure::Other(format!("the system refused a signal handler: {error}"));
    let is_second = Arc::new(AtomicBool::new(false));
    let numbers = stop_signals();
    for number in numbers.iter().copied() {
        // In this order: the first signal only sets the flag, and the second one finds it set.
        signal_hook::flag::register_conditional_shutdown(number, 128 + number, Arc::clone(&is_second))
            .map_err(refused)?;
        signal_hook::flag::register(number, Arc::clone(&is_second)).map_err(refused)?;
    }
    let (mut signals, stopper) = (Signals::new(numbers).map_err(refused)?, stopper.clone());
    let thread = std::thread::Builder::new().name("signals".into()).spawn(move || {
        if let Some(number) = signals.forever().next() {
            tracing::info!(signal = number, "a signal stops the server");
            notify::send("STOPPING=1");
            stopper.stop();
        }
    });
    thread.map(drop).map_err(refused)
}
