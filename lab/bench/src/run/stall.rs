//! Detects a store that waits for free space on a full medium without an error. Its process is
//! killed after a minute without activity.

use std::fs;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use crate::run::failure::FREE_BYTES_MIN;

/// Maximum time without activity on a full medium.
const STALL_TIMEOUT: Duration = Duration::from_secs(60);
/// Interval of the checks.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// A process that uses less than this fraction (1/20) of a processor's time is inactive. A waiting
/// store polls for free space now and then.
const ACTIVE_TIME_DIVISOR: u32 = 20;
/// Clock ticks per second of `/proc/PID/stat`, on every Linux that Rust supports.
const SECOND_TICK_COUNT: u32 = 100;

/// Start of inactivity on a full medium, and the CPU time of the process at that moment.
#[derive(Debug, Clone, Copy)]
struct Since {
    at: Duration,
    cpu: Duration,
}

/// Returns whether the process has been inactive for the maximum time. `at` is the time of the
/// check.
fn stands(since: &mut Option<Since>, full: bool, at: Duration, cpu: Duration) -> bool {
    let now = Since { at, cpu };
    match since {
        Some(was) if full && (cpu - was.cpu) <= (at - was.at) / ACTIVE_TIME_DIVISOR => at - was.at >= STALL_TIMEOUT,
        _ => {
            *since = full.then_some(now);
            false
        }
    }
}

/// Watches the process `id`, whose store is below `dir`. Returns `false` when `ended` is closed,
/// `true` when the process is stalled.
pub(crate) fn watch(id: u32, dir: &Path, ended: &Receiver<()>) -> bool {
    let (began, mut since) = (Instant::now(), None);
    while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(CHECK_INTERVAL) {
        let Some(cpu) = processor_time(&fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default()) else {
            continue;
        };
        let full = rustix::fs::statvfs(dir).is_ok_and(|medium| medium.f_bavail * medium.f_frsize < FREE_BYTES_MIN);
        if stands(&mut since, full, began.elapsed(), cpu) {
            return true;
        }
    }
    false
}

/// Returns the CPU time of a process from the text of its `/proc/PID/stat`: user and system time
/// are fields 14 and 15.
fn processor_time(stat: &str) -> Option<Duration> {
    // The name, in parentheses, may contain blanks and parentheses.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<u32>().ok();
    Some(Duration::from_secs((ticks()? + ticks()?).into()) / SECOND_TICK_COUNT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn a_process_stands_that_does_nothing_on_a_full_medium_for_a_minute() {
        let second = Duration::from_secs;
        let mut since = None;
        let mut look = |full, at, cpu| stands(&mut since, full, second(at), Duration::from_millis(cpu));
        assert!(!look(true, 0, 500) && !look(true, 59, 600));
        assert!(look(true, 60, 700), "a tenth of a second in sixty is nothing");
        assert!(!look(false, 61, 700) && !look(true, 62, 700), "there was room");
        assert!(!look(true, 121, 9_000), "it works");
        assert!(!look(true, 180, 9_000) && look(true, 181, 9_100));
    }

    #[test]
    fn processor_time_is_that_of_user_and_system() {
        let stat = "17 (a (b) c) S 1 17 17 0 -1 4194560 1 2 3 4 150 50 7 8 20 0 1 0 99";
        assert_eq!(processor_time(stat), Some(Duration::from_secs(2)));
        assert_eq!(processor_time("17"), None);
        let own = fs::read_to_string("/proc/self/stat").expect("Linux");
        assert!(processor_time(&own).is_some(), "{own}");
    }

    #[test]
    fn a_process_that_has_ended_is_watched_no_more() {
        let (send, ended) = channel::<()>();
        drop(send);
        assert!(!watch(std::process::id(), &std::env::temp_dir(), &ended));
    }
}
