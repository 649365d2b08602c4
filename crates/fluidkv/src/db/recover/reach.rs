//! How far the manifest must reach.
//!
//! A truncated record at the manifest's end looks like a damaged one, and the logs of a flush are
//! freed once its record is durable. Other places therefore record the durable length:
//!
//! * A mark in the root area (`layout.rs`) has the reach of the manifest at the last flush or clean
//!   stop. The mark is durable before the logs are freed, and before the pool says *clean*.
//! * Generations have no holes: a memtable is frozen when something in it is durable, and flushed
//!   when all before it are. The unflushed logs therefore begin directly after the flushed
//!   generation.
//! * A log count in the root area says how many segments of a generation held a durable record. All
//!   of them must be found.
//!
//! After a crash, a record after the last flush's (of a compaction, say) with damage in several
//! bits looks like a truncated record. Then the earlier tables are used. A table whose space was
//! reused detects that itself.

use std::collections::BTreeMap;

use lodestore_contract::{Error, Result};
use lodestore_media::Pool;

use super::Segment;
use crate::layout::{LogCount, Reach, log_count_ranges, reach, store_log_count};

fn damaged(what: &str) -> Error {
    Error::corrupt("manifest", what)
}

/// Compares the reach of the manifest that was read with the mark. Returns an error if the mark is
/// unusable after a clean stop. Such an error does not fail the open: mostly nothing is missing,
/// and a second open would not notice.
///
/// # Errors
/// [`Error::Corrupt`] if the manifest must reach further.
pub(super) fn check(pool: &Pool, clean: bool, read: &Reach) -> Result<Option<Error>> {
    match reach(pool).filter(|mark| (mark.at, mark.nonce) == (read.at, read.nonce)) {
        Some(mark) if read.end >= mark.end && read.next_number >= mark.next_number => Ok(None),
        Some(mark) => {
            let (found, there) = (read.next_number, mark.next_number);
            Err(damaged(&format!("the manifest ends before record {found}, and its durable mark is at record {there}")))
        }
        None => Ok(clean.then(|| {
            let what = "the mark of the manifest's end is damaged or belongs to another manifest, so a damaged end \
                        may be undetected: compare the newest writes with their source";
            Error::corrupt("root area", what)
        })),
    }
}

/// Compares the flushed generation of the manifest with the unflushed segments, by generation.
///
/// # Errors
/// [`Error::Corrupt`] if a flush, or all logs of a generation, are missing.
pub(super) fn check_generations(flushed: u64, segments: &[Segment]) -> Result<()> {
    let mut before = flushed;
    for segment in segments {
        let generation = segment.header.generation;
        if generation > before + 1 {
            let missing = before + 1;
            let what =
                format!("generation {generation} has logs, and generation {missing} has neither logs nor a flush");
            return Err(damaged(&what));
        }
        before = generation;
    }
    Ok(())
}

/// Compares the number of log segments with a record, by generation, with the log counts.
///
/// # Errors
/// [`Error::Corrupt`] if a segment is missing.
pub(super) fn check_log_counts(expected: &BTreeMap<u64, u64>, flushed: u64, found: &BTreeMap<u64, u64>) -> Result<()> {
    for (generation, expected) in expected.iter().filter(|(generation, _)| **generation > flushed) {
        let found = found.get(generation).copied().unwrap_or(0);
        if found < *expected {
            let what =
                format!("generation {generation} had {expected} log segments with records, and {found} were found");
            return Err(Error::corrupt("log", what));
        }
    }
    Ok(())
}

/// Counts the segments that hold a record, by generation.
pub(super) fn count_segments(segments: &[Segment]) -> BTreeMap<u64, u64> {
    let mut counts = BTreeMap::new();
    for segment in segments {
        *counts.entry(segment.header.generation).or_default() += u64::from(segment.has_record);
    }
    counts
}

/// Stores the log counts that a power failure lost: the records are durable now. A fence of the
/// open makes the counts durable.
pub(super) fn restore_log_counts(pool: &Pool, known: &BTreeMap<u64, u64>, segments: &[Segment]) {
    for (generation, found) in count_segments(segments) {
        if found > known.get(&generation).copied().unwrap_or(0) {
            store_log_count(pool, LogCount { generation, segments: found });
            log_count_ranges(pool, generation).iter().for_each(|(at, len)| pool.flush(*at, *len));
        }
    }
    pool.fence();
}
