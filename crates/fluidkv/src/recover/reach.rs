//! How far the manifest must reach.
//!
//! A record that was cut off at the manifest's end and a damaged one look the same, and the logs of a flush are gone once its record was durable. So what
//! was durable is told by others:
//!
//! * A mark in the root area (`layout.rs`) says how far the manifest reached at the last flush, or at a clean stop. It is durable before the logs are let go, and before
//!   the pool says *clean*.
//! * Generations have no holes: a memtable is frozen when something in it is durable, and flushed when all before it are. So the logs that are not flushed
//!   begin right behind the flushed generation.
//! * A log count in the root area says how many segments of a generation held a durable record. All
//!   of them must be found.
//!
//! After a crash a record behind the last flush's, of a compaction say, that is damaged in several bits cannot be told from one that was cut off: the tables before it are
//! taken then, and one whose space was used again says so itself.

use std::collections::BTreeMap;

use lodestore_contract::{Error, Result};
use lodestore_media::Pool;

use super::Segment;
use crate::layout::{LogCount, Reach, log_count_ranges, reach, store_log_count};

fn damaged(what: &str) -> Error {
    Error::corrupt("manifest", what)
}

/// Compares how far a manifest was read with the mark; an error where that cannot be told behind a clean stop. Mostly nothing is
/// missing then, so it refuses nothing, and a second open would not know of it.
///
/// # Errors
/// [`Error::Corrupt`] where it must reach further.
pub(super) fn check(pool: &Pool, clean: bool, read: &Reach) -> Result<Option<Error>> {
    match reach(pool).filter(|mark| (mark.at, mark.nonce) == (read.at, read.nonce)) {
        Some(mark) if read.end >= mark.end && read.next_number >= mark.next_number => Ok(None),
        Some(mark) => {
            let (found, there) = (read.next_number, mark.next_number);
            Err(damaged(&format!("it ends before record {found}, and ended before {there} when that was durable")))
        }
        None => Ok(clean.then(|| {
            let what = "the mark of how far the manifest reached when the store was closed is not whole, or another's, so a damaged end would not be seen. \
                        Compare what was written last with its source";
            Error::corrupt("root area", what)
        })),
    }
}

/// Compares how far a manifest was read with the segments that are not flushed, by generation.
///
/// # Errors
/// [`Error::Corrupt`] where a flush is missing, or all logs of a generation.
pub(super) fn check_generations(flushed: u64, segments: &[Segment]) -> Result<()> {
    let mut before = flushed;
    for segment in segments {
        let generation = segment.header.generation;
        if generation > before + 1 {
            let missing = before + 1;
            let what = format!(
                "there are logs of generation {generation}, and neither logs nor a flush of generation {missing}"
            );
            return Err(damaged(&what));
        }
        before = generation;
    }
    Ok(())
}

/// Compares the log segments that were found to have a record, by generation, with the log counts.
///
/// # Errors
/// [`Error::Corrupt`] where a segment is missing.
pub(super) fn check_log_counts(expected: &BTreeMap<u64, u64>, flushed: u64, found: &BTreeMap<u64, u64>) -> Result<()> {
    for (generation, expected) in expected.iter().filter(|(generation, _)| **generation > flushed) {
        let found = found.get(generation).copied().unwrap_or(0);
        if found < *expected {
            let what = format!("{expected} segments of generation {generation} had a record, and {found} are found");
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

/// Stores the log counts that a power failure took: the records are durable now. A fence of the
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
