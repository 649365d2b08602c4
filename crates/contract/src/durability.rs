//! Durability levels, named by the failures they survive.

use std::fmt;
use std::time::Duration;

/// The failures that an acknowledged write survives. The caller requests a level. An open that
/// cannot provide it on the given medium is refused, never downgraded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// Death of the process: panic, `kill -9`, the OOM killer. Not power loss.
    #[default]
    Process,
    /// Also power loss and kernel crash.
    Power,
    /// Power loss, except for at most this window of the newest writes. The remaining writes are a
    /// prefix of all writes.
    Interval(Duration),
}

impl Durability {
    /// Returns whether this level survives every failure that `other` survives.
    pub fn covers(self, other: Self) -> bool {
        match (self, other) {
            (Self::Power, _) | (_, Self::Process) => true,
            (Self::Interval(own), Self::Interval(window)) => own <= window,
            _ => false,
        }
    }
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process => f.write_str("process"),
            Self::Power => f.write_str("power"),
            Self::Interval(window) => write!(f, "interval:{}", window.as_millis()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_forms_round_trip() {
        for level in [Durability::Process, Durability::Power, Durability::Interval(Duration::from_millis(20))] {
            assert_eq!(level.to_string().parse::<Durability>().expect("own text parses"), level);
        }
    }

    #[test]
    fn a_level_covers_itself_and_weaker_levels() {
        let interval = |ms| Durability::Interval(Duration::from_millis(ms));
        let ascending = [Durability::Process, interval(20), interval(10), Durability::Power];
        for (at, level) in ascending.into_iter().enumerate() {
            for (other, less) in ascending.into_iter().enumerate() {
                assert_eq!(level.covers(less), other <= at, "{level} and {less}");
            }
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for text in ["", "none", "interval", "interval:", "interval:0", "interval:x", "Process"] {
            assert!(text.parse::<Durability>().is_err(), "{text:?} must be refused");
        }
    }
}
