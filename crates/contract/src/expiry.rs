//! Expiry of keys.

#[cfg(feature = "conformance")]
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

#[cfg(feature = "conformance")]
static AHEAD: AtomicU64 = AtomicU64::new(0);

/// Returns the milliseconds since the Unix epoch, by the system's clock.
pub fn now_millis() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX));
    #[cfg(feature = "conformance")]
    let now = now.saturating_add(AHEAD.load(Ordering::Relaxed));
    now
}

/// Advances [`now_millis`] by this many milliseconds against the system's clock, in the whole
/// process. 0 resets the offset. For tests of clock changes.
#[cfg(feature = "conformance")]
pub fn set_clock_ahead(millis: u64) {
    AHEAD.store(millis, Ordering::Relaxed);
}

/// The time from which a key is absent to every reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Expiry {
    millis: u64,
}

impl Expiry {
    /// Returns the expiry at this many milliseconds after the Unix epoch; 0 is long past.
    pub const fn at_millis(millis: u64) -> Self {
        Self { millis }
    }

    /// Returns the expiry at this duration from now.
    pub fn after(span: Duration) -> Self {
        let span = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        Self { millis: now_millis().saturating_add(span) }
    }

    /// Returns the milliseconds after the Unix epoch.
    pub const fn millis(self) -> u64 {
        self.millis
    }

    /// Returns whether the time has come.
    pub fn is_past(self) -> bool {
        self.millis <= now_millis()
    }
}

/// Effect of a write on the expiry of its key.
///
/// ```
/// use lodestore_contract::{Expiry, Lifetime};
///
/// let (old, new) = (Expiry::at_millis(1), Expiry::at_millis(2));
/// assert_eq!(Lifetime::Forever.resolve(Some(old)), None);
/// assert_eq!(Lifetime::Keep.resolve(Some(old)), Some(old));
/// assert_eq!(Lifetime::Until(new).resolve(Some(old)), Some(new));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Lifetime {
    /// The key has no expiry after the write.
    #[default]
    Forever,
    /// The key keeps its current expiry. A key that is absent or has expired gets none.
    Keep,
    /// The key has this expiry after the write.
    Until(Expiry),
}

impl Lifetime {
    /// Returns the expiry that a key has after the write. `present` is the expiry of the live pair
    /// that the write replaces, `None` if there is no such pair.
    #[inline]
    pub const fn resolve(self, present: Option<Expiry>) -> Option<Expiry> {
        match self {
            Self::Forever => None,
            Self::Keep => present,
            Self::Until(expiry) => Some(expiry),
        }
    }
}

impl From<Option<Expiry>> for Lifetime {
    fn from(expiry: Option<Expiry>) -> Self {
        expiry.map_or(Self::Forever, Self::Until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lifetime_resolves_to_none_the_present_or_the_given_expiry() {
        let (present, given) = (Some(Expiry::at_millis(1)), Expiry::at_millis(2));
        assert_eq!(Lifetime::default(), Lifetime::Forever);
        for lifetime in [Lifetime::Forever, Lifetime::Keep, Lifetime::from(None)] {
            assert_eq!(lifetime.resolve(None), None);
        }
        assert_eq!(Lifetime::Forever.resolve(present), None);
        assert_eq!(Lifetime::Keep.resolve(present), present);
        assert_eq!(Lifetime::from(Some(given)), Lifetime::Until(given));
        assert_eq!(Lifetime::Until(given).resolve(present), Some(given));
        assert_eq!(Lifetime::Until(given).resolve(None), Some(given));
    }

    #[test]
    fn a_past_expiry_has_expired_and_a_future_one_has_not() {
        assert!(Expiry::at_millis(0).is_past() && Expiry::at_millis(1).is_past());
        assert!(Expiry::at_millis(now_millis()).is_past(), "the moment itself counts as come");
        assert!(!Expiry::at_millis(u64::MAX).is_past());
        assert!(!Expiry::after(Duration::from_secs(3600)).is_past());
    }

    #[test]
    fn the_longest_span_does_not_overflow_into_the_past() {
        assert_eq!(Expiry::after(Duration::MAX), Expiry::at_millis(u64::MAX));
    }

    #[test]
    fn a_span_is_counted_from_now() {
        let before = now_millis();
        let millis = Expiry::after(Duration::from_secs(1)).millis();
        assert!((before + 1000..=now_millis() + 1000).contains(&millis));
        assert!(Expiry::at_millis(1) < Expiry::at_millis(2));
    }
}
