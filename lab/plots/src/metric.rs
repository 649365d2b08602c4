//! The measures that compare stores: their meaning, their comparability, and their format.

use serde::Deserialize;

use crate::row::Row;
use crate::text::{ns_text, rate_text};

/// A measure that compares stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Measure {
    /// Operations per second.
    Rate,
    /// The mean latency of a call in a closed loop.
    Mean,
    /// The 99th and the 99.9th percentile of the latency in an open loop.
    P99,
    P999,
    /// Growth of RssAnon per key.
    Dram,
    /// Bytes of the blocks of the files per record.
    Medium,
    /// Bytes written for each byte put, in memory: by two methods, because no method covers all
    /// stores.
    Written,
    /// The same on a disk, by the device's count for all.
    OnDevice,
    /// Time until a store is open, of the first get after that, and until its recovery is done.
    Open,
    FirstGet,
    Recovered,
}

impl Measure {
    /// Returns its heading.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Rate => "Operations a second",
            Self::Mean => "Mean latency of a call",
            Self::P99 => "99th percentile of the latency, from when an operation was due",
            Self::P999 => "99.9th percentile of the latency, from when an operation was due",
            Self::Dram => "Growth of the process's anonymous memory, bytes a record",
            Self::Medium => "Blocks that the files take, bytes a record",
            Self::Written => "Bytes written for each byte put",
            Self::OnDevice => "Bytes written to the device for each byte put",
            Self::Open => "Until the store is open",
            Self::FirstGet => "The first get after that",
            Self::Recovered => "Until recovery is done",
        }
    }

    /// Returns whether stores win and lose by it: the same method measures all stores.
    pub(crate) fn is_compared(self) -> bool {
        self != Self::Written
    }

    /// Returns the note that is needed to read its table.
    pub(crate) fn note(self) -> Option<&'static str> {
        match self {
            Self::Rate => Some(
                "In brackets the spread over the rounds, greatest less least, as a part of the median, **bold** where it is more than the median itself, so that another run may have quite another median; of one round there is none.",
            ),
            Self::Mean => {
                Some("Of the calls that were timed, each `latency_every`-th of the rows; medians of the rounds.")
            }
            Self::Dram => Some(
                "RssAnon above that of the empty store, by the kernel, for all alike. What a store says of itself is `DRAM B/key` in the details.",
            ),
            Self::Medium => Some(
                "Blocks of the files by the file system, for all alike: what a store takes ahead counts, and the more the fewer records there are (our \
                 engines take 32 MiB at first and then a quarter of what they have, the next one ahead); holes do not. What of it is live by our engines' own account is `live B/key` in the details.",
            ),
            Self::Written => Some(
                "**By two yardsticks**: of our engines their own count of the bytes that they store on the medium, since stores through a mapping pass no call; of \
                 peers the bytes that they give to files in calls (`wchar`), where what they store through mappings of their own counts for nothing. Of servers \
                 nothing is known. So nobody wins or loses by it here.",
            ),
            Self::OnDevice => Some(
                "By the kernel's count (`write_bytes`), for all alike: whole pages, each when it is first changed after it was written back. The engines' own \
                 count is `write x` in the details.",
            ),
            Self::Recovered => Some(
                "From the beginning of the open to the end of recovery. Our engines serve before it is done, and answer gets meanwhile, which take their share of the processors. A peer's ends with its open.",
            ),
            Self::P99 | Self::P999 | Self::Open | Self::FirstGet => None,
        }
    }

    /// Returns its name in tables.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Rate => "ops/s",
            Self::Mean => "mean latency",
            Self::P99 => "p99",
            Self::P999 => "p99.9",
            Self::Dram => "RSS B/key",
            Self::Medium => "blocks B/key",
            Self::Written => "write x",
            Self::OnDevice => "device x",
            Self::Open => "open",
            Self::FirstGet => "first get",
            Self::Recovered => "recovered",
        }
    }

    /// Returns its value for a row; `None` if it does not apply.
    pub(crate) fn of(self, row: &Row) -> Option<f64> {
        let timed = row.open_loop.is_some();
        let stays = row.reopen.is_none();
        match self {
            Self::Rate => Some(row.ops_per_s).filter(|rate| stays && !timed && *rate > 0.0),
            Self::Mean => Some(row.mean_ns).filter(|mean| stays && !timed && *mean > 0.0),
            Self::P99 => (timed && row.samples >= 100).then_some(row.p99_ns as f64),
            Self::P999 => (timed && row.samples >= 1000).then_some(row.p999_ns as f64),
            // Not by the stores' own counts, which differ in what they include.
            Self::Dram => stays.then_some(row.rss_anon_bytes_per_key),
            // A store that keeps nothing has not written the data yet.
            Self::Medium => {
                Some(row.medium_blocks_bytes_per_key).filter(|bytes| stays && *bytes > 0.0 && row.durability != "none")
            }
            Self::Written => row.write_amplification,
            Self::OnDevice => row.write_amplification_of_device,
            Self::Open => row.reopen.as_ref().map(|found| found.open_s * 1e9),
            Self::FirstGet => row.reopen.as_ref().map(|found| found.first_get_ns as f64),
            Self::Recovered => row.reopen.as_ref().map(|found| found.recovered_s * 1e9),
        }
    }

    /// Formats a value of it.
    pub(crate) fn text(self, figure: f64) -> String {
        match self {
            Self::Rate if figure < 1000.0 => format!("{figure:.0}"),
            Self::Rate => rate_text(figure),
            Self::Mean | Self::P99 | Self::P999 | Self::Open | Self::FirstGet | Self::Recovered => {
                ns_text(figure as u64)
            }
            Self::Dram | Self::Medium => format!("{figure:.1}"),
            Self::Written | Self::OnDevice => format!("{figure:.2}"),
        }
    }

    /// Returns how many times better one value is than another.
    pub(crate) fn times(self, ours: f64, theirs: f64) -> f64 {
        let (more, less) = if self == Self::Rate { (ours, theirs) } else { (theirs, ours) };
        // Two zeros are equal.
        if more == less { 1.0 } else { more / less }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pages::sample::{at, row};

    #[test]
    fn of_bytes_and_times_less_is_better() {
        assert!((Measure::Dram.times(20.0, 10.0) - 0.5).abs() < 1e-9);
        assert!((Measure::Mean.times(20.0, 10.0) - 0.5).abs() < 1e-9);
        assert!((Measure::Rate.times(20.0, 10.0) - 2.0).abs() < 1e-9);
        assert!((Measure::Dram.times(0.0, 0.0) - 1.0).abs() < 1e-9 && Measure::Dram.times(0.0, 3.0) > 1e9);
    }

    #[test]
    fn the_medium_is_compared_by_the_blocks_of_files_and_not_by_what_a_store_calls_live() {
        let found = Row { medium_bytes_per_key: 300.0, medium_blocks_bytes_per_key: 900.0, ..row("hikv", "load", 1.0) };
        assert_eq!(Measure::Medium.of(&found), Some(900.0));
        assert_eq!(Measure::Medium.of(&at("none", found)), None, "it has not written all of it");
        assert!(Measure::Medium.note().is_some_and(|note| note.contains("for all alike")));
    }

    #[test]
    fn bytes_written_in_memory_are_told_to_have_two_yardsticks_and_on_a_disk_have_that_of_the_device() {
        let found = Row {
            write_amplification: Some(1.5),
            write_amplification_of_device: Some(4.0),
            ..row("hikv", "load", 1.0)
        };
        assert_eq!((Measure::Written.of(&found), Measure::OnDevice.of(&found)), (Some(1.5), Some(4.0)));
        let note = |measure: Measure| measure.note().unwrap_or_default();
        assert!(note(Measure::Written).contains("wchar") && note(Measure::Written).contains("own count"));
        assert!(note(Measure::OnDevice).contains("write_bytes"));
    }

    #[test]
    fn a_mean_latency_is_of_a_closed_loop_in_which_calls_were_timed() {
        let timed = Row { mean_ns: 700.0, ..row("hikv", "get", 1.0) };
        assert_eq!(Measure::Mean.of(&timed), Some(700.0));
        assert_eq!(Measure::Mean.of(&row("hikv", "get", 1.0)), None);
        assert_eq!(Measure::Mean.text(15_000.0), "15.0 us");
    }
}
