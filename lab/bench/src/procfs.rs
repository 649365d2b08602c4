//! Kernel counters of this process, of a store's server, and of this machine.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::time::{ClockId, clock_gettime};

use crate::target::Target;

/// Bytes of a block in a file's metadata.
const BLOCK_BYTES: u64 = 512;

/// Ticks per second in `/proc/self/stat`: fixed on Linux for x86-64.
const SECOND_TICK_COUNT: f64 = 100.0;

/// The processes of a store: this process, and its server's if it has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Processes {
    server: Option<u32>,
}

impl Processes {
    /// Returns the processes of `target`.
    pub(crate) fn of(target: &dyn Target) -> Self {
        Self { server: target.server() }
    }

    /// Returns their resident anonymous memory, in bytes; 0 if the kernel does not report it.
    pub(crate) fn rss_anon(self) -> u64 {
        rss_anon() + self.server.map_or(0, |id| rss_anon_in(&proc(id, "status")))
    }

    /// Returns the CPU time of all their threads, in seconds; of a server with a precision of 10
    /// ms.
    pub(crate) fn cpu_seconds(self) -> f64 {
        cpu_seconds() + self.server.map_or(0.0, |id| cpu_seconds_in(&proc(id, "stat")))
    }

    /// Returns the bytes that they have written, or will write, to a device: `write_bytes` of
    /// `/proc/self/io`. None on tmpfs; whole pages for mapped files.
    pub(crate) fn bytes_to_devices(self) -> u64 {
        io_field("write_bytes:") + self.server.map_or(0, |id| io_field_in(&proc(id, "io"), "write_bytes:"))
    }

    /// Returns the bytes that this process passed to write calls on files. 0 if it uses a server,
    /// because bytes sent to sockets count as well.
    pub(crate) fn bytes_given_to_files(self) -> u64 {
        self.server.map_or_else(bytes_given_to_files, |_| 0)
    }
}

fn proc(id: u32, file: &str) -> String {
    fs::read_to_string(format!("/proc/{id}/{file}")).unwrap_or_default()
}

/// Returns the resident anonymous memory of this process, in bytes; 0 if the kernel does not report
/// it.
pub(crate) fn rss_anon() -> u64 {
    rss_anon_in(&fs::read_to_string("/proc/self/status").unwrap_or_default())
}

fn rss_anon_in(status: &str) -> u64 {
    field(status, "RssAnon:").and_then(|text| text.split(' ').next()?.parse::<u64>().ok()).unwrap_or(0) * 1024
}

/// Returns the CPU time of all threads of this process, including ended threads, in seconds.
fn cpu_seconds() -> f64 {
    clock(ClockId::ProcessCPUTime)
}

fn clock(id: ClockId) -> f64 {
    let time = clock_gettime(id);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn cpu_seconds_in(stat: &str) -> f64 {
    // The second field is a name in parentheses that may contain blanks. User and system time are
    // the 12th and 13th fields after it.
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks: u64 = after_name.split_whitespace().skip(11).take(2).filter_map(|text| text.parse::<u64>().ok()).sum();
    ticks as f64 / SECOND_TICK_COUNT
}

/// Returns the CPU time of the calling thread, in seconds.
pub(crate) fn thread_cpu_seconds() -> f64 {
    clock(ClockId::ThreadCPUTime)
}

/// Returns the bytes that this process passed to write calls on files, on any medium: `wchar` of
/// `/proc/self/io`.
pub(crate) fn bytes_given_to_files() -> u64 {
    io_field("wchar:")
}

/// Returns the bytes of the blocks of the files under `dir`, without holes. Files that disappear
/// meanwhile do not count.
pub(crate) fn bytes_of_blocks(dir: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(dir) else { return 0 };
    let size = |entry: fs::DirEntry| match entry.metadata() {
        Ok(found) if found.is_dir() => bytes_of_blocks(&entry.path()),
        Ok(found) => found.blocks() * BLOCK_BYTES,
        Err(_) => 0,
    };
    entries.flatten().map(size).sum()
}

fn io_field(name: &str) -> u64 {
    io_field_in(&fs::read_to_string("/proc/self/io").unwrap_or_default(), name)
}

fn io_field_in(io: &str, name: &str) -> u64 {
    field(io, name).and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Returns the CPU time that the machine's host gave to other machines, of all processors together,
/// in seconds.
pub(crate) fn stolen_seconds() -> f64 {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    // user nice system idle iowait irq softirq steal
    let ticks = field(&stat, "cpu ").and_then(|text| text.split_whitespace().nth(7)?.parse::<u64>().ok());
    ticks.unwrap_or(0) as f64 / SECOND_TICK_COUNT
}

/// Returns processor, number of processors and kernel, in one line.
pub(crate) fn machine() -> String {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = field(&cpuinfo, "model name").map_or("unknown processor", |text| text.trim_start_matches([':', ' ']));
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let threads = std::thread::available_parallelism().map_or(0, usize::from);
    format!("{model}, {threads} hardware threads, Linux {}", kernel.trim())
}

fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lodestore_contract::testing::{Scratch, runs_alone};

    #[test]
    fn resident_memory_grows_with_what_is_touched() {
        if !runs_alone("procfs::tests::resident_memory_grows_with_what_is_touched") {
            return;
        }
        let before = rss_anon();
        let held = vec![1_u8; 64 << 20];
        let after = rss_anon();
        assert!(before > 0 && after >= before + (32 << 20), "{before} {after} {}", held.len());
    }

    #[test]
    fn bytes_given_to_files_are_counted() {
        let (before, scratch) = (io_field("wchar:"), Scratch::on_disk());
        fs::write(scratch.path().join("file"), vec![1_u8; 1 << 20]).expect("written");
        let after = io_field("wchar:");
        assert!(after >= before + (1 << 20), "{before} {after}");
        assert!(stolen_seconds() >= 0.0);
    }

    #[test]
    fn files_in_directories_below_count_as_well_and_holes_do_not() {
        let scratch = Scratch::on_disk();
        let dir = scratch.path();
        fs::create_dir_all(dir.join("below")).expect("directories");
        fs::write(dir.join("below").join("file"), vec![1; 100_000]).expect("a file");
        fs::File::create(dir.join("hole")).and_then(|file| file.set_len(1 << 30)).expect("a file");
        let found = bytes_of_blocks(dir);
        assert!((100_000..1 << 29).contains(&found), "{found}");
    }

    #[test]
    fn the_machine_is_one_line() {
        assert!(!machine().contains('\n') && machine().contains("hardware threads"));
        assert!(cpu_seconds() >= 0.0 && thread_cpu_seconds() >= 0.0);
    }
}
