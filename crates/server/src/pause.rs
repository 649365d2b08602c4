//! The pause of clients: `CLIENT PAUSE`.
//!
//! A command that a pause holds does not run. The command stays in the input of its connection, and
//! the socket is not read. The event loop runs the command after the pause. A stop of the server
//! keeps a present pause, so the held commands never run.
//!
//! No client changes a key between the reply to `CLIENT PAUSE` and the end of the pause:
//!
//! 1. `CLIENT PAUSE` begins the pause, and then waits for each command that holds a stripe.
//! 2. A command that changes keys checks the pause after it has locked its stripes. Either the
//!    command sees the pause, or `CLIENT PAUSE` waits for its commit.

use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Which commands a pause holds. The greater mode holds more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PauseMode {
    /// Commands that change keys, and `PUBLISH`.
    Write = 1,
    /// All commands.
    All = 2,
}

/// The pause of a server.
#[derive(Debug, Default)]
pub(crate) struct Pause {
    /// The number of the mode. 0 means that there is no pause.
    mode: AtomicU8,
    /// Number of pauses that began. An extended pause is the same one.
    number: AtomicU64,
    end: Mutex<Option<Instant>>,
    held_clients: AtomicUsize,
}

impl Pause {
    fn lock(&self) -> MutexGuard<'_, Option<Instant>> {
        self.end.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a pause at `now`. A present pause is extended: the later end and the greater mode
    /// count, as in Redis.
    pub(crate) fn begin(&self, mode: PauseMode, now: Instant, length: Duration) {
        let mut end = self.lock();
        let present = end.filter(|end| *end > now);
        if present.is_none() {
            self.mode.store(0, Ordering::SeqCst);
            self.number.fetch_add(1, Ordering::SeqCst);
        }
        // A length that no clock reaches is one that only `CLIENT UNPAUSE` ends.
        let wanted = now.checked_add(length).or_else(|| now.checked_add(PAUSE_TIME_MAX));
        *end = present.max(wanted);
        self.mode.fetch_max(mode as u8, Ordering::SeqCst);
    }

    /// Ends the pause.
    pub(crate) fn end(&self) {
        let mut end = self.lock();
        *end = None;
        self.mode.store(0, Ordering::SeqCst);
    }

    /// Makes a present pause outlast the server. Only `CLIENT UNPAUSE` ends it earlier.
    pub(crate) fn keep(&self) {
        let now = Instant::now();
        let mut end = self.lock();
        if end.is_some_and(|end| end > now) {
            *end = (*end).max(now.checked_add(PAUSE_TIME_MAX));
        }
    }

    /// Returns the number of the last pause that began. The mode never decreases within a pause.
    pub(crate) fn number(&self) -> u64 {
        self.number.load(Ordering::SeqCst)
    }

    /// Returns the mode of the pause at this moment.
    pub(crate) fn mode(&self) -> Option<PauseMode> {
        if self.mode.load(Ordering::Relaxed) == 0 {
            return None;
        }
        self.mode_at(Instant::now())
    }

    fn mode_at(&self, now: Instant) -> Option<PauseMode> {
        let mut end = self.lock();
        if end.is_none_or(|end| end <= now) {
            *end = None;
            self.mode.store(0, Ordering::SeqCst);
        }
        match self.mode.load(Ordering::SeqCst) {
            0 => None,
            mode if mode == PauseMode::Write as u8 => Some(PauseMode::Write),
            _ => Some(PauseMode::All),
        }
    }

    /// Returns the time to the end of the pause.
    pub(crate) fn remaining(&self) -> Duration {
        let end = *self.lock();
        end.map_or(Duration::ZERO, |end| end.saturating_duration_since(Instant::now()))
    }

    /// Returns the number of clients with a held command.
    pub(crate) fn held_clients(&self) -> usize {
        self.held_clients.load(Ordering::Relaxed)
    }

    /// Counts a client whose command is held, or no longer is.
    pub(crate) fn count_client(&self, is_held: bool) {
        if is_held {
            self.held_clients.fetch_add(1, Ordering::Relaxed);
        } else {
            self.held_clients.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Length of a pause whose end the clock cannot express.
const PAUSE_TIME_MAX: Duration = Duration::from_secs(u32::MAX as u64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_pause_extends_the_first_and_never_weakens_it() {
        let (pause, start) = (Pause::default(), Instant::now());
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        pause.begin(PauseMode::All, start, Duration::from_secs(100));
        pause.begin(PauseMode::Write, at(1), Duration::from_secs(1));
        assert_eq!(pause.mode_at(at(99)), Some(PauseMode::All));
        pause.begin(PauseMode::Write, at(99), Duration::from_secs(100));
        assert_eq!(pause.mode_at(at(198)), Some(PauseMode::All));
        assert_eq!(pause.mode_at(at(199)), None);
        assert_eq!(pause.mode(), None);
    }

    #[test]
    fn a_kept_pause_does_not_end_by_its_time() {
        let (pause, start) = (Pause::default(), Instant::now());
        pause.keep();
        assert_eq!(pause.mode(), None);
        pause.begin(PauseMode::Write, start, Duration::from_secs(100));
        pause.keep();
        assert_eq!(pause.mode_at(start + Duration::from_secs(101)), Some(PauseMode::Write));
    }

    #[test]
    fn a_pause_after_the_end_of_another_has_its_own_mode() {
        let (pause, start) = (Pause::default(), Instant::now());
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        pause.begin(PauseMode::All, start, Duration::from_secs(1));
        pause.begin(PauseMode::Write, at(2), Duration::from_secs(1000));
        assert_eq!(pause.mode_at(at(3)), Some(PauseMode::Write));
        pause.end();
        assert_eq!(pause.mode_at(at(3)), None);
        pause.begin(PauseMode::Write, start, Duration::MAX);
        assert_eq!(pause.mode_at(at(1_000_000)), Some(PauseMode::Write));
    }
}
