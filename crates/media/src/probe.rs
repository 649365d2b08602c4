//! What a medium really is, found by trying, never by its path.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use lodestore_contract::{Durability, Error, Result};
use rustix::fs::StatFs;

use crate::memory::Persist;
use crate::region::{Advice, HUGE_BYTES, Mapping};
use crate::region_layout::PAGE_BYTES;
use crate::x86::{self, FlushInstruction};

/// What stores to a mapped file are worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MediumKind {
    /// Persistent memory mapped directly: a flushed and fenced line survives power loss.
    Dax,
    /// Shared memory (tmpfs): stores survive the process, never power loss.
    Shm,
    /// A file in the page cache: stores survive the process; `msync` makes pages survive power loss.
    File,
    /// Heap memory under the crash simulator.
    Sim,
}

impl std::fmt::Display for MediumKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Dax => "dax",
            Self::Shm => "shm",
            Self::File => "file",
            Self::Sim => "sim",
        })
    }
}

/// What a probe found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MediumReport {
    /// The medium.
    pub medium: MediumKind,
    /// The file system's name, or its number where it has no name here.
    pub file_system: String,
    /// The file system's magic number (`statfs`).
    pub magic: u64,
    /// Whether `MAP_SYNC` is granted.
    pub map_sync: bool,
    /// Whether the platform says that its caches persist (`persistence_domain` is `cpu_cache`).
    pub caches_persist: bool,
    /// The flush instruction of this processor.
    pub flush: FlushInstruction,
    /// Bytes that can still be written there.
    pub free_bytes: u64,
    /// Bytes of the file system.
    pub total_bytes: u64,
    /// The system's word on huge pages for shared memory (`shmem_enabled`).
    pub shmem_enabled: String,
    /// The system's word on huge pages for other memory (`enabled`).
    pub thp_enabled: String,
    /// Whether a mapping there got a huge page when it was asked for (`madvise`).
    pub huge_pages: bool,
    /// What each durability level would really be: how it would be kept, or why it is refused.
    pub durability: Vec<(Durability, Result<String, String>)>,
}

const TMPFS_MAGIC: u64 = 0x0102_1994;
const RAMFS_MAGIC: u64 = 0x8584_58f6;
const HUGETLBFS_MAGIC: u64 = 0x9584_58f6;

fn file_system_name(magic: u64) -> String {
    match magic {
        TMPFS_MAGIC => "tmpfs".into(),
        RAMFS_MAGIC => "ramfs".into(),
        HUGETLBFS_MAGIC => "hugetlbfs".into(),
        0xef53 => "ext4".into(),
        0x5846_5342 => "xfs".into(),
        0x9123_683e => "btrfs".into(),
        0xf2f5_2010 => "f2fs".into(),
        0x794c_7630 => "overlayfs".into(),
        0x6573_5546 => "fuse".into(),
        0x6969 => "nfs".into(),
        0x2fc1_2fc1 => "zfs".into(),
        other => format!("file system {other:#x}"),
    }
}

fn magic_of(found: &StatFs) -> u64 {
    // The field's type differs between systems; only its low 32 bits are the number.
    found.f_type as u64 & 0xffff_ffff
}

/// The medium under an open file of at least one page, and the file system's name.
///
/// # Errors
/// The kernel's.
pub(crate) fn medium_of(file: &File) -> rustix::io::Result<(MediumKind, String)> {
    let magic = magic_of(&rustix::fs::fstatfs(file)?);
    let medium = if grants_map_sync(file) {
        MediumKind::Dax
    } else if matches!(magic, TMPFS_MAGIC | RAMFS_MAGIC | HUGETLBFS_MAGIC) {
        MediumKind::Shm
    } else {
        MediumKind::File
    };
    Ok((medium, file_system_name(magic)))
}

fn grants_map_sync(file: &File) -> bool {
    file.try_clone().is_ok_and(|file| Mapping::of_file(file, PAGE_BYTES, true).is_ok())
}

/// Bytes that can still be written to the file system of `file`.
///
/// # Errors
/// The kernel's.
pub(crate) fn free_bytes(file: &File) -> rustix::io::Result<u64> {
    rustix::fs::fstatvfs(file).map(|space| free_of(&space))
}

/// As [`free_bytes`], of what a directory lies on; without an end where the kernel does not say.
pub(crate) fn room_under(dir: &Path) -> u64 {
    rustix::fs::statvfs(dir).map_or(u64::MAX, |space| free_of(&space))
}

/// A tmpfs without a limit says that it has no blocks at all.
fn free_of(space: &rustix::fs::StatVfs) -> u64 {
    if space.f_blocks == 0 { u64::MAX } else { space.f_bavail.saturating_mul(space.f_frsize) }
}

/// Whether every persistence domain that the kernel names holds the processor's caches.
pub(crate) fn caches_persist() -> bool {
    let Ok(devices) = std::fs::read_dir("/sys/bus/nd/devices") else {
        return false;
    };
    let domains: Vec<_> = devices
        .flatten()
        .filter_map(|device| std::fs::read_to_string(device.path().join("persistence_domain")).ok())
        .collect();
    !domains.is_empty() && domains.iter().all(|domain| domain.trim() == "cpu_cache")
}

/// Whether the system makes shared memory huge by advice alone; where it does not, pages are collapsed afterwards.
pub(crate) fn shmem_huge_by_advice() -> bool {
    let word = chosen("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
    !matches!(word.as_str(), "never" | "deny" | "unknown")
}

/// The word in brackets of a kernel setting.
fn chosen(path: &str) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let word = text.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map(|(word, _)| word);
    word.unwrap_or("unknown").into()
}

/// What flush and fence must do for this durability on this medium.
///
/// # Errors
/// [`Error::DurabilityRefused`] where the medium cannot give it. `interval` is what `power` is here: that the newest writes may be lost,
/// and what is left is a prefix, is the engine's affair, and engines that cannot cut at a prefix refuse it themselves.
pub(crate) fn policy(medium: MediumKind, asked: Durability, emulate_dax: bool, name: &str) -> Result<Persist> {
    let refused = |instead: &str| {
        Err(Error::DurabilityRefused { asked, medium: format!("{medium} ({name})"), instead: instead.into() })
    };
    let lines = || if caches_persist() { Persist::Caches } else { Persist::Lines(x86::flush_instruction()) };
    match (asked, medium) {
        _ if emulate_dax => Ok(Persist::Lines(x86::flush_instruction())),
        (Durability::Power | Durability::Interval(_), MediumKind::Shm) => refused(
            "shared memory is lost with power; use durability process, or a path on a disk or on persistent memory",
        ),
        (Durability::Power | Durability::Interval(_), MediumKind::File) => Ok(Persist::Pages),
        (Durability::Power | Durability::Interval(_), MediumKind::Dax) => Ok(lines()),
        (Durability::Power | Durability::Interval(_), MediumKind::Sim) => Ok(Persist::Lines(x86::flush_instruction())),
        (Durability::Process, _) => Ok(Persist::Nothing),
    }
}

/// How a level would be kept, in words.
fn promise(medium: MediumKind, asked: Durability, name: &str) -> Result<String, String> {
    match policy(medium, asked, false, name) {
        Err(Error::DurabilityRefused { instead, .. }) => Err(format!("refused on {medium} ({name}): {instead}")),
        Err(other) => Err(other.to_string()),
        Ok(Persist::Nothing) => {
            Ok("survives panic, kill -9 and the OOM killer; no flush and no fence is executed".into())
        }
        Ok(Persist::Lines(instruction)) => {
            Ok(format!("survives power loss: {instruction} and sfence on every persist"))
        }
        Ok(Persist::Caches) => Ok("survives power loss: the caches persist, sfence on every persist".into()),
        Ok(Persist::Pages) if matches!(asked, Durability::Interval(_)) => {
            Ok("survives power loss less the newest writes, in engines that log (fluidkv): msync behind the writers"
                .into())
        }
        Ok(Persist::Pages) => Ok("survives power loss: msync on every persist, about 0.1 ms each on an SSD".into()),
    }
}

/// Probes the file system at `path`, a directory, by a small file that is removed at once.
///
/// # Errors
/// [`Error::Missing`] where there is no such directory, [`Error::Io`] where nothing can be written there.
pub fn probe(path: &Path) -> Result<MediumReport> {
    if !path.exists() {
        return Err(Error::Missing { path: path.into() });
    }
    let io = |doing: &'static str| move |refused: rustix::io::Errno| Error::io(doing, path, refused.into());
    let file = scratch(path)?;
    rustix::fs::ftruncate(&file, 2 * HUGE_BYTES).map_err(io("sizing a file in"))?;
    let (medium, file_system) = medium_of(&file).map_err(io("probing"))?;
    let space = rustix::fs::fstatvfs(&file).map_err(io("probing"))?;
    let magic = magic_of(&rustix::fs::fstatfs(&file).map_err(io("probing"))?);
    let levels = [Durability::Process, Durability::Power, Durability::Interval(std::time::Duration::from_millis(100))];
    let durability = levels.map(|level| (level, promise(medium, level, &file_system))).into();
    Ok(MediumReport {
        medium,
        file_system,
        magic,
        map_sync: medium == MediumKind::Dax,
        caches_persist: caches_persist(),
        flush: x86::flush_instruction(),
        free_bytes: space.f_bavail.saturating_mul(space.f_frsize),
        total_bytes: space.f_blocks.saturating_mul(space.f_frsize),
        shmem_enabled: chosen("/sys/kernel/mm/transparent_hugepage/shmem_enabled"),
        thp_enabled: chosen("/sys/kernel/mm/transparent_hugepage/enabled"),
        huge_pages: medium == MediumKind::Shm && gets_huge_page(file),
        durability,
    })
}

/// A file in `path` that has no name.
fn scratch(path: &Path) -> Result<File> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = path.join(format!(".lodestore-probe-{}-{number}", std::process::id()));
    let made = OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(0o600).open(&name);
    let file = made.map_err(|refused| Error::io("creating a file in", path, refused))?;
    std::fs::remove_file(&name).map_err(|refused| Error::io("removing a file in", path, refused))?;
    Ok(file)
}

/// Whether the file's first 2 MiB become one huge page when asked.
fn gets_huge_page(file: File) -> bool {
    let Ok(mapping) = Mapping::of_file(file, HUGE_BYTES, false) else {
        return false;
    };
    let advised = mapping.advise(0, HUGE_BYTES, Advice::HugePage).is_ok() && shmem_huge_by_advice();
    let populated = mapping.advise(0, HUGE_BYTES, Advice::PopulateWrite).is_ok();
    populated && (advised || mapping.advise(0, HUGE_BYTES, Advice::Collapse).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_that_has_no_count_of_blocks_is_not_full() {
        let mut space = rustix::fs::statvfs(".").expect("a file system");
        (space.f_blocks, space.f_bavail) = (1000, 0);
        assert_eq!(free_of(&space), 0);
        space.f_blocks = 0;
        assert_eq!(free_of(&space), u64::MAX);
    }

    #[test]
    fn shared_memory_is_told_from_files_and_power_is_refused_on_it() {
        let Some(report) = probe(Path::new("/dev/shm")).ok().filter(|report| report.file_system == "tmpfs") else {
            println!("not tried: this machine has no tmpfs at the usual place that can be written");
            return;
        };
        assert_eq!(report.medium, MediumKind::Shm);
        assert!(!report.map_sync && report.free_bytes <= report.total_bytes && report.total_bytes > 0);
        let told: Vec<_> = report.durability.iter().map(|(_, promise)| promise.is_ok()).collect();
        assert_eq!(told, [true, false, false]);
        assert!(std::fs::read_dir("/dev/shm").expect("readable").flatten().all(|entry| {
            !entry.file_name().to_string_lossy().starts_with(&format!(".lodestore-probe-{}-", std::process::id()))
        }));
    }

    #[test]
    fn a_missing_path_is_named() {
        assert!(matches!(probe(Path::new("/nowhere/at/all")), Err(Error::Missing { .. })));
    }

    #[test]
    fn emulated_dax_executes_flushes_everywhere_and_interval_is_kept_where_power_is() {
        for medium in [MediumKind::Shm, MediumKind::File, MediumKind::Sim] {
            assert!(matches!(policy(medium, Durability::Process, true, "x"), Ok(Persist::Lines(_))));
            assert_eq!(
                policy(medium, Durability::Process, false, "x").expect("process is had anywhere"),
                Persist::Nothing
            );
            let interval = Durability::Interval(std::time::Duration::from_millis(5));
            assert!(matches!(policy(medium, interval, true, "x"), Ok(Persist::Lines(_))));
            let both = [interval, Durability::Power].map(|level| policy(medium, level, false, "x").ok());
            assert_eq!(both[0], both[1], "{medium}");
        }
    }
}
