//! Place and time of a run: the machine, its file systems, the date.

use std::fs;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::procfs;

/// The machine of a run, without any paths.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Site {
    /// Processor, number of processors and kernel.
    pub(super) machine: String,
    /// Memory in MiB.
    pub(super) memory_mib: u64,
    /// The file systems of the directory in memory and of the directory on a disk.
    pub(super) memory_on: String,
    pub(super) disk_on: String,
}

impl Site {
    /// Returns this machine, and the file systems of these directories.
    pub(super) fn here(memory: &Path, disk: Option<&Path>) -> Self {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let on = |dir: &Path| fs::canonicalize(dir).map_or_else(|_| "unknown".into(), |dir| file_system(&mounts, &dir));
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        Self {
            machine: procfs::machine(),
            memory_mib: mib(&meminfo),
            memory_on: on(memory),
            disk_on: disk.map_or_else(|| "none".into(), on),
        }
    }
}

fn mib(meminfo: &str) -> u64 {
    let total = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    total.and_then(|text| text.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) / 1024
}

/// Returns the type of the file system of `dir`, by the text of `/proc/self/mountinfo`: the longest
/// mount point above it, the last of several.
fn file_system(mounts: &str, dir: &Path) -> String {
    let mount = |line: &str| {
        let (before, after) = line.split_once(" - ")?;
        // Blanks are written as \040. Such a mount point is not found; the one above it is
        // returned.
        let point = before.split(' ').nth(4)?;
        dir.starts_with(point).then(|| (point.len(), after.split(' ').next().unwrap_or_default().to_string()))
    };
    let found = mounts.lines().filter_map(mount).max_by_key(|(length, _)| *length);
    found.map_or_else(|| "unknown".into(), |(_, name)| name)
}

/// Returns the current date in UTC, as 2026-01-31.
pub(super) fn today() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    day(seconds / 86_400)
}

/// Returns the date `since_1970` days after 1970-01-01. The calculation uses 400-year cycles of
/// 146,097 days that begin on 1 March, so that a leap day ends a year. Source: H. Hinnant,
/// "chrono-Compatible Low-Level Date Algorithms", `civil_from_days`.
fn day(since_1970: u64) -> String {
    let days = since_1970 + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let march_based = (5 * of_year + 2) / 153;
    let day = of_year - (153 * march_based + 2) / 5 + 1;
    let month = if march_based < 10 { march_based + 3 } else { march_based - 9 };
    format!("{:04}-{month:02}-{day:02}", era * 400 + year + u64::from(month <= 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_is_written_by_its_calendar() {
        for (days, text) in
            [(0, "1970-01-01"), (59, "1970-03-01"), (789, "1972-02-29"), (10_957, "2000-01-01"), (20_454, "2026-01-01")]
        {
            assert_eq!(day(days), text);
        }
        assert!(today().as_str() > "2025-01-01");
    }

    #[test]
    fn the_file_system_is_that_of_the_nearest_mount_point() {
        let mounts = "21 1 254:0 / / rw,relatime - ext4 /dev/root rw\n\
                      22 21 0:5 / /dev rw,nosuid shared:2 - devtmpfs dev rw\n\
                      23 22 0:6 / /dev/shm rw - tmpfs shm rw\n";
        let of = |dir: &str| file_system(mounts, Path::new(dir));
        assert_eq!(
            (of("/dev/shm/a").as_str(), of("/dev/shma").as_str(), of("/home").as_str()),
            ("tmpfs", "devtmpfs", "ext4")
        );
        assert_eq!(file_system("", Path::new("/")), "unknown");
    }

    #[test]
    fn this_machine_is_told() {
        let site = Site::here(&std::env::temp_dir(), None);
        assert!(site.memory_mib > 0 && site.memory_on != "unknown" && site.disk_on == "none", "{site:?}");
        assert_eq!(mib("MemFree: 1 kB\nMemTotal:    4096000 kB\n"), 4000);
    }
}
