//! The memory and the processor time of this process, as the system counts them.

/// Resident memory in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ProcessMemory {
    /// All resident pages, with those of the mapped store.
    pub(crate) resident: u64,
    /// Resident pages that no file backs: DRAM of the server and of the store's structures.
    pub(crate) anonymous: u64,
}

/// Clock ticks a second in `/proc/self/stat` (`getconf CLK_TCK` of Linux).
const SECOND_TICK_COUNT: f64 = 100.0;

/// Processor time in seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct ProcessorTime {
    pub(crate) user: f64,
    pub(crate) system: f64,
}

/// Returns the processor time of this process. A time that the system does not report is 0.
pub(crate) fn read_processor_time() -> ProcessorTime {
    parse_processor_time(&std::fs::read_to_string("/proc/self/stat").unwrap_or_default())
}

/// Reads `/proc/self/stat`. After the name in parentheses, the state is field 0, the user time
/// field 11 and the system time field 12.
fn parse_processor_time(stat: &str) -> ProcessorTime {
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let seconds = |field: usize| {
        let ticks = fields.split_whitespace().nth(field).and_then(|ticks| ticks.parse::<f64>().ok());
        ticks.unwrap_or(0.0) / SECOND_TICK_COUNT
    };
    ProcessorTime { user: seconds(11), system: seconds(12) }
}

/// Returns the memory of this process. Numbers that the system does not report are 0.
pub(crate) fn read_memory() -> ProcessMemory {
    parse(&std::fs::read_to_string("/proc/self/status").unwrap_or_default())
}

/// Returns the memory of the machine in bytes, or 0 if the system does not report it.
pub(crate) fn read_system_memory() -> u64 {
    bytes_of(&std::fs::read_to_string("/proc/meminfo").unwrap_or_default(), "MemTotal")
}

/// Reads `/proc/self/status`.
fn parse(status: &str) -> ProcessMemory {
    ProcessMemory { resident: bytes_of(status, "VmRSS"), anonymous: bytes_of(status, "RssAnon") }
}

/// Returns the number of bytes in the line `name: ... kB`, or 0 if there is none.
fn bytes_of(lines: &str, name: &str) -> u64 {
    let value = lines.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let kib = value.and_then(|value| value.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kib.unwrap_or(0).saturating_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_systems_numbers_are_read() {
        let status = "Name:\tx\nVmRSS:\t    2048 kB\nRssAnon:\t     512 kB\nRssFile:\t 9 kB\n";
        assert_eq!(parse(status), ProcessMemory { resident: 2 << 20, anonymous: 512 << 10 });
        assert_eq!(parse("VmRSS: x kB"), ProcessMemory::default());
        assert!(read_memory().resident > 0);
        assert!(read_system_memory() > read_memory().resident);
    }

    #[test]
    fn the_times_after_a_name_with_a_parenthesis_are_read() {
        let stat = "7 (a ) b) S 1 7 7 0 -1 4194560 9 0 0 0 250 75 0 0 20 0 1 0 5 6 7";
        assert_eq!(parse_processor_time(stat), ProcessorTime { user: 2.5, system: 0.75 });
        assert_eq!(parse_processor_time(""), ProcessorTime::default());
    }
}
