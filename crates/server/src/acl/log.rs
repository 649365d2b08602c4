//! `ACL LOG`: denied accesses of clients.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Most entries. Redis has the same default for `acllog-max-len`.
const ENTRIES_MAX: usize = 128;

/// Equal denials within this time share an entry, as in Redis.
const GROUPING_TIME: Duration = Duration::from_secs(60);

/// Longest object of an entry in bytes: a key may have 64 KiB.
const OBJECT_BYTES_MAX: usize = 1024;

/// A denial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LogEntry {
    pub(crate) count: u64,
    /// `command`, `key`, `channel` or `auth`.
    pub(crate) reason: &'static str,
    /// `toplevel` or `multi`.
    pub(crate) context: &'static str,
    pub(crate) object: Vec<u8>,
    pub(crate) user: Vec<u8>,
    pub(crate) created: Instant,
    /// The line of `CLIENT LIST` for the client.
    pub(crate) client: String,
}

/// The last denials, the newest first.
#[derive(Debug, Default)]
pub(crate) struct Log {
    entries: Mutex<VecDeque<LogEntry>>,
}

impl Log {
    /// Adds a denial, or counts an equal one of the last minute.
    pub(crate) fn add(&self, mut entry: LogEntry) {
        entry.object.truncate(OBJECT_BYTES_MAX);
        entry.user.truncate(OBJECT_BYTES_MAX);
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let is_equal = |known: &LogEntry| {
            (known.reason, known.context, &known.object, &known.user)
                == (entry.reason, entry.context, &entry.object, &entry.user)
                && entry.created.saturating_duration_since(known.created) <= GROUPING_TIME
        };
        if let Some(known) = entries.iter().position(is_equal).and_then(|index| entries.remove(index)) {
            entry.count = known.count.saturating_add(1);
        }
        entries.push_front(entry);
        entries.truncate(ENTRIES_MAX);
    }

    /// Returns at most `count` entries, the newest first.
    pub(crate) fn newest(&self, count: usize) -> Vec<LogEntry> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).iter().take(count).cloned().collect()
    }

    /// Removes all entries.
    pub(crate) fn clear(&self) {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(object: &str) -> LogEntry {
        LogEntry {
            count: 1,
            reason: "key",
            context: "toplevel",
            object: object.into(),
            user: b"u".to_vec(),
            created: Instant::now(),
            client: String::new(),
        }
    }

    #[test]
    fn equal_denials_share_an_entry_and_old_entries_are_dropped() {
        let log = Log::default();
        for number in 0..ENTRIES_MAX + 10 {
            log.add(entry(&number.to_string()));
        }
        log.add(entry("137"));
        log.add(entry("20"));
        let entries = log.newest(usize::MAX);
        assert_eq!(entries.len(), ENTRIES_MAX);
        assert_eq!((&entries[0].object[..], entries[0].count), (&b"20"[..], 2));
        assert_eq!((&entries[1].object[..], entries[1].count), (&b"137"[..], 2));
        log.clear();
        assert_eq!(log.newest(10), []);
    }
}
