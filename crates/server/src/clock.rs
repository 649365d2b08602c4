//! The clock of the machine.

use std::time::Duration;

use lodestore::Expiry;

/// Returns the milliseconds since the Unix epoch.
pub(crate) fn now_milliseconds() -> i64 {
    i64::try_from(Expiry::after(Duration::ZERO).millis()).unwrap_or(i64::MAX)
}
