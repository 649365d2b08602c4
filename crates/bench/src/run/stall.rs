//! A store that waits for room on a full medium, and never says so: its process is ended where it
//! does nothing for a minute.

use std::fs;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use crate::run::failure::FULL_BELOW;

/// How long a process may do nothing on a full medium.
const MOST: Duration = Duration::from_secs(60);
/// How long between two looks.
const LOOK: Duration = Duration::from_secs(1);
/// A process that takes less than one of so many parts of a processor's time does nothing: who
/// waits looks now and then whether there is room.
const PART: u32 = 20;
/// Clock ticks a second of `/proc/PID/stat`, on every Linux that Rust runs on.
const TICKS: u32 = 100;

/// Since when a process did nothing on a full medium, and its processor time at that moment.
#[derive(Debug, Clone, Copy)]
struct Since {
    at: Duration,
    cpu: Duration,
}

/// Whether it has done nothing for as long as it may. `at` is the time of the look.
fn stands(since: &mut Option<Since>, full: bool, at: Duration, cpu: Duration) -> bool {
    let now = Since { at, cpu };
    match since {
        Some(was) if full && (cpu - was.cpu) <= (at - was.at) / PART => at - was.at >= MOST,
        _ => {
            *since = full.then_some(now);
            false
        }
    }
}

/// Watches the process `id`, whose store is below `dir`, until `ended` is closed (false), or until
/// it stands (true).
pub(crate) fn watch(id: u32, dir: &Path, ended: &Receiver<()>) -> bool {
    let (began, mut since) = (Instant::now(), None);
    while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(LOOK) {
        let Some(cpu) = processor_time(&fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default()) else {
            continue;
        };
        let full = rustix::fs::statvfs(dir).is_ok_and(|medium| medium.f_bavail * medium.f_frsize < FULL_BELOW);
        if stands(&mut since, full, began.elapsed(), cpu) {
            return true;
        }
    }
    false
}

/// What a process has taken of processors, by the text of its `/proc/PID/stat`: user and system
/// time are the fields 14 and 15.
fn processor_time(stat: &str) -> Option<Duration> {
    // The name, in brackets, may have blanks and brackets in it.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<u32>().ok();
    Some(Duration::from_secs((ticks()? + ticks()?).into()) / TICKS)
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
