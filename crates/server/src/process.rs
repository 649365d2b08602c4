//! The memory of this process, as the system counts it.

/// Resident memory in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ProcessMemory {
    /// All resident pages, with those of the mapped store.
    pub(super) resident: u64,
    /// Resident pages that no file backs: DRAM of the server and of the store's structures.
    pub(super) anonymous: u64,
}

/// Returns the memory of this process. Numbers that the system does not report are 0.
pub(super) fn read_memory() -> ProcessMemory {
    parse(&std::fs::read_to_string("/proc/self/status").unwrap_or_default())
}

/// Reads the lines of `/proc/self/status`, which are in KiB.
fn parse(status: &str) -> ProcessMemory {
    let bytes_of = |name: &str| {
        let value = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let kib = value.and_then(|value| value.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
        kib.unwrap_or(0).saturating_mul(1024)
    };
    ProcessMemory { resident: bytes_of("VmRSS"), anonymous: bytes_of("RssAnon") }
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
    }
}
