//! Options and numbers among the arguments of commands.

use lodestore::Expiry;
use lodestore_wire::parse_integer;

use crate::clock::now_milliseconds;
use crate::error::{CommandError, CommandResult, NOT_AN_INTEGER};
pub(crate) use crate::words::is_word;

/// Reads an integer.
pub(crate) fn integer(argument: &[u8]) -> CommandResult<i64> {
    parse_integer(argument).ok_or(NOT_AN_INTEGER)
}

/// The unit and origin of a time that a client sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TimeKind {
    /// Seconds from now.
    Seconds,
    /// Milliseconds from now.
    Milliseconds,
    /// Seconds after the Unix epoch.
    UnixSeconds,
    /// Milliseconds after the Unix epoch.
    UnixMilliseconds,
}

impl TimeKind {
    /// Reads the name of an option: `EX`, `PX`, `EXAT` or `PXAT`.
    pub(crate) fn of_option(word: &[u8]) -> Option<Self> {
        let kinds = [
            ("ex", Self::Seconds),
            ("px", Self::Milliseconds),
            ("exat", Self::UnixSeconds),
            ("pxat", Self::UnixMilliseconds),
        ];
        kinds.into_iter().find(|(name, _)| is_word(word, name)).map(|(_, kind)| kind)
    }

    /// Returns the milliseconds after the Unix epoch of a time, or `None` on an overflow.
    pub(crate) fn to_unix_milliseconds(self, time: i64) -> Option<i64> {
        /// Milliseconds of a second.
        const SECOND_MILLIS: i64 = 1000;
        let milliseconds = match self {
            Self::Seconds | Self::UnixSeconds => time.checked_mul(SECOND_MILLIS)?,
            Self::Milliseconds | Self::UnixMilliseconds => time,
        };
        match self {
            Self::Seconds | Self::Milliseconds => milliseconds.checked_add(now_milliseconds()),
            Self::UnixSeconds | Self::UnixMilliseconds => Some(milliseconds),
        }
    }

    /// Reads the time of an option of `command`. A time must be positive.
    pub(crate) fn expiry(self, argument: &[u8], command: &str) -> CommandResult<Expiry> {
        let time = integer(argument)?;
        let milliseconds = self.to_unix_milliseconds(time).filter(|_| time > 0);
        let milliseconds = milliseconds.ok_or_else(|| CommandError::invalid_expiry(command))?;
        Ok(expiry_at(milliseconds))
    }
}

/// Returns the expiry at a number of milliseconds after the Unix epoch. A negative number is past.
pub(crate) fn expiry_at(unix_milliseconds: i64) -> Expiry {
    Expiry::at_millis(u64::try_from(unix_milliseconds).unwrap_or(0))
}
