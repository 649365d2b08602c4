//! The slow log: the slowest commands.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::client::PublicState;
use crate::messaging::monitor::{REDACTED, is_secret};

/// Most arguments of an entry, as in Redis.
const ARGUMENTS_MAX: usize = 32;

/// Most bytes of an argument in an entry, as in Redis.
const ARGUMENT_BYTES_MAX: usize = 128;

/// A slow command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SlowEntry {
    pub(crate) number: u64,
    pub(crate) unix_seconds: u64,
    pub(crate) microseconds: u64,
    pub(crate) arguments: Vec<Vec<u8>>,
    pub(crate) address: String,
    pub(crate) name: String,
}

#[derive(Debug, Default)]
struct Entries {
    /// The newest entry is the first.
    entries: VecDeque<SlowEntry>,
    next_number: u64,
}

/// The newest slow commands.
#[derive(Debug, Default)]
pub(crate) struct SlowLog {
    entries: Mutex<Entries>,
}

impl SlowLog {
    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a command. At most `max` entries stay.
    pub(crate) fn add(&self, max: usize, elapsed: Duration, client: &PublicState, arguments: &[&[u8]]) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let name = client.with_details(|details| details.name.clone());
        let mut entries = self.entries();
        let number = entries.next_number;
        entries.next_number += 1;
        entries.entries.push_front(SlowEntry {
            number,
            unix_seconds: now.as_secs(),
            microseconds: u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX),
            arguments: shorten(arguments),
            address: client.address.clone(),
            name,
        });
        entries.entries.truncate(max);
    }

    /// Returns at most `count` entries, with the newest as the first.
    pub(crate) fn newest(&self, count: usize) -> Vec<SlowEntry> {
        self.entries().entries.iter().take(count).cloned().collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.entries().entries.len()
    }

    pub(crate) fn clear(&self) {
        self.entries().entries.clear();
    }
}

/// Returns the arguments of an entry: without secrets, and with bounded number and length.
fn shorten(arguments: &[&[u8]]) -> Vec<Vec<u8>> {
    let kept = if arguments.len() > ARGUMENTS_MAX { ARGUMENTS_MAX - 1 } else { arguments.len() };
    let mut shown: Vec<Vec<u8>> = Vec::with_capacity(kept + 1);
    for (index, argument) in arguments.iter().enumerate().take(kept) {
        if is_secret(arguments, index) {
            shown.push(REDACTED.to_vec());
            continue;
        }
        let mut text = argument[..argument.len().min(ARGUMENT_BYTES_MAX)].to_vec();
        if argument.len() > ARGUMENT_BYTES_MAX {
            text.extend(format!("... ({} more bytes)", argument.len() - ARGUMENT_BYTES_MAX).bytes());
        }
        shown.push(text);
    }
    if arguments.len() > kept {
        shown.push(format!("... ({} more arguments)", arguments.len() - kept).into_bytes());
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_short_and_has_no_secrets() {
        let long = [b'x'; 200];
        let many: Vec<&[u8]> = std::iter::once(&b"mget"[..]).chain((0..50).map(|_| &long[..])).collect();
        let shown = shorten(&many);
        assert_eq!(shown.len(), ARGUMENTS_MAX);
        assert!(shown[1].ends_with(b"... (72 more bytes)"));
        assert_eq!(shown[31], b"... (20 more arguments)");
        assert_eq!(shorten(&[b"AUTH", b"secret"]), [b"AUTH".to_vec(), REDACTED.to_vec()]);
    }
}
