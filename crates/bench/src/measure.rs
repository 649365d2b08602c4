//! What the kernel tells of this process and this machine.

use std::fs;

/// Ticks a second in `/proc/self/stat`: fixed on Linux for x86-64.
const TICKS: f64 = 100.0;

/// Anonymous memory resident in this process, in bytes; 0 where the kernel does not tell.
pub(crate) fn rss_anon() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    field(&status, "RssAnon:").and_then(|text| text.split(' ').next()?.parse::<u64>().ok()).unwrap_or(0) * 1024
}

/// Processor time of all threads of this process, in seconds, to a hundredth.
pub(crate) fn cpu_seconds() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The second field is a name in brackets that may hold blanks; user and system time are the
    // 12th and 13th fields after it.
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks: u64 = after_name.split_whitespace().skip(11).take(2).filter_map(|text| text.parse::<u64>().ok()).sum();
    ticks as f64 / TICKS
}

/// Processor time of the calling thread, in seconds, to some milliseconds; 0 where the kernel does not tell.
pub(crate) fn thread_cpu_seconds() -> f64 {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|ns| ns.parse::<u64>().ok()).map_or(0.0, |ns| ns as f64 / 1e9)
}

/// Processor, processors in all and kernel, one line.
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

    #[test]
    fn resident_memory_grows_with_what_is_touched() {
        let before = rss_anon();
        let held = vec![1_u8; 64 << 20];
        let after = rss_anon();
        assert!(before > 0 && after >= before + (32 << 20), "{before} {after} {}", held.len());
    }

    #[test]
    fn the_machine_is_one_line() {
        assert!(!machine().contains('\n') && machine().contains("hardware threads"));
        assert!(cpu_seconds() >= 0.0 && thread_cpu_seconds() >= 0.0);
    }
}
