//! Determines the real type of a medium, by trying, never by its path.

mod stack;

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use lodestore_contract::{Durability, Error, Result};
use rustix::fs::StatFs;

use crate::memory::Persist;
use crate::region::{Advice, HUGE_PAGE_BYTES, Mapping};
use crate::region_layout::PAGE_BYTES;
use crate::x86::{self, FlushInstruction};

/// The guarantees of stores to a mapped file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MediumKind {
    /// Persistent memory mapped directly: a flushed and fenced line survives power loss.
    Dax,
    /// Shared memory (tmpfs): stores survive the process, never power loss.
    Shm,
    /// A file in the page cache: stores survive the process; `msync` makes pages survive power
    /// loss.
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

/// The result of a probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MediumReport {
    /// The medium.
    pub medium: MediumKind,
    /// The file system's name, or its number if it has no name here.
    pub file_system: String,
    /// The file system's magic number (`statfs`).
    pub magic: u64,
    /// Whether `MAP_SYNC` is granted.
    pub map_sync: bool,
    /// Whether the platform reports that its caches persist (`persistence_domain` is `cpu_cache`).
    pub caches_persist: bool,
    /// The flush instruction of this processor.
    pub flush: FlushInstruction,
    /// Bytes that can still be written there.
    pub free_bytes: u64,
    /// Bytes of the file system.
    pub total_bytes: u64,
    /// The system's setting for huge pages in shared memory (`shmem_enabled`).
    pub shmem_enabled: String,
    /// The system's setting for huge pages in other memory (`enabled`).
    pub thp_enabled: String,
    /// Whether a mapping there received a huge page on request (`madvise`).
    pub huge_pages: bool,
    /// The real guarantee of each durability level: how it would be kept, or why it is refused.
    pub durability: Vec<(Durability, Result<String, String>)>,
}

const TMPFS_MAGIC: u64 = 0x0102_1994;
const RAMFS_MAGIC: u64 = 0x8584_58f6;
const HUGETLBFS_MAGIC: u64 = 0x9584_58f6;
const OVERLAYFS_MAGIC: u64 = 0x794c_7630;

/// File systems whose syncs reach a medium, or a server that vouches for one, by their magic
/// numbers.
const SYNCED_FILE_SYSTEMS: [(u64, &str); 15] = [
    (0xef53, "ext4"),
    (0x5846_5342, "xfs"),
    (0x9123_683e, "btrfs"),
    (0xf2f5_2010, "f2fs"),
    (0x2fc1_2fc1, "zfs"),
    (0xca45_1a4e, "bcachefs"),
    (0x3153_464a, "jfs"),
    (0x3434, "nilfs2"),
    (0x7461_636f, "ocfs2"),
    (0x0116_1970, "gfs2"),
    (0x7366_746e, "ntfs3"),
    (0x2011_bab0, "exfat"),
    (0x4d44, "vfat"),
    (0x6969, "nfs"),
    (0x00c3_6400, "ceph"),
];

/// File systems that may or may not pass syncs on to a layer that is not visible from here.
const OPAQUE_FILE_SYSTEMS: [(u64, &str); 7] = [
    (0x6573_5546, "fuse"),
    (0x0102_1997, "9p"),
    (0xf15f, "ecryptfs"),
    (0x6175_6673, "aufs"),
    (0xff53_4d42, "cifs"),
    (0xfe53_4d42, "smb2"),
    (0x786f_4256, "vboxsf"),
];

fn file_system_name(magic: u64) -> String {
    let known = SYNCED_FILE_SYSTEMS.iter().chain(&OPAQUE_FILE_SYSTEMS).find(|(number, _)| *number == magic);
    match (magic, known) {
        (TMPFS_MAGIC, _) => "tmpfs".into(),
        (RAMFS_MAGIC, _) => "ramfs".into(),
        (HUGETLBFS_MAGIC, _) => "hugetlbfs".into(),
        (OVERLAYFS_MAGIC, _) => "overlayfs".into(),
        (_, Some((_, name))) => (*name).into(),
        (other, None) => format!("file system {other:#x}"),
    }
}

/// The medium under a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Medium {
    pub(crate) kind: MediumKind,
    /// The file system's name, with the layer under an overlay. Empty for a simulated medium.
    pub(crate) name: String,
    /// Why a sync there guarantees nothing; `None` if it does.
    pub(crate) unsynced: Option<String>,
}

impl Medium {
    #[cfg(feature = "sim")]
    pub(crate) fn simulated() -> Self {
        Self { kind: MediumKind::Sim, name: String::new(), unsynced: None }
    }

    /// Returns a rank: a medium of a higher rank keeps everything that one of a lower rank keeps.
    fn strength(&self) -> u8 {
        match self.kind {
            MediumKind::Shm => 0,
            MediumKind::File => 1 + u8::from(self.unsynced.is_none()),
            MediumKind::Dax | MediumKind::Sim => 3,
        }
    }
}

impl std::fmt::Display for Medium {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { kind, name, unsynced } = self;
        match unsynced {
            _ if name.is_empty() => write!(f, "{kind}"),
            Some(why) => write!(f, "{kind} ({name}: {why})"),
            None => write!(f, "{kind} ({name})"),
        }
    }
}

fn magic_of(found: &StatFs) -> u64 {
    // The field's type differs between systems; only its low 32 bits are the number.
    found.f_type as u64 & 0xffff_ffff
}

/// Describes the medium under an open file of at least one page, which still has its name.
///
/// # Errors
/// Those of the kernel.
pub(crate) fn medium_of(file: &File) -> rustix::io::Result<Medium> {
    describe(file, 0)
}

/// Like [`medium_of`], for a file under `depth` overlays.
fn describe(file: &File, depth: u32) -> rustix::io::Result<Medium> {
    let magic = magic_of(&rustix::fs::fstatfs(file)?);
    if magic == OVERLAYFS_MAGIC {
        return stack::describe_overlay(file, depth);
    }
    // A lower layer is open for reading only, and is no mapping of the store's.
    let kind = if depth == 0 && grants_map_sync(file) {
        MediumKind::Dax
    } else if matches!(magic, TMPFS_MAGIC | RAMFS_MAGIC | HUGETLBFS_MAGIC) {
        MediumKind::Shm
    } else {
        MediumKind::File
    };
    let is_synced = kind != MediumKind::File || SYNCED_FILE_SYSTEMS.iter().any(|(number, _)| *number == magic);
    let unsynced = (!is_synced).then(|| "it is unknown whether its syncs reach a device".into());
    Ok(Medium { kind, name: file_system_name(magic), unsynced })
}

fn grants_map_sync(file: &File) -> bool {
    file.try_clone().is_ok_and(|file| Mapping::of_file(file, PAGE_BYTES, true).is_ok())
}

/// Returns the bytes that can still be written to the file system of `file`.
///
/// # Errors
/// Those of the kernel.
pub(crate) fn free_bytes(file: &File) -> rustix::io::Result<u64> {
    rustix::fs::fstatvfs(file).map(|space| free_of(&space))
}

/// Refuses a file on a medium that keeps less than the medium of the pool's first region.
///
/// # Errors
/// [`Error::WeakerMedium`].
pub(crate) fn check_as_strong(path: &Path, found: &Medium, pool: &Medium) -> Result<()> {
    if found.strength() >= pool.strength() {
        return Ok(());
    }
    Err(Error::WeakerMedium { path: path.into(), found: found.to_string(), needed: pool.to_string() })
}

/// Returns the free bytes. A tmpfs without a limit reports no blocks at all.
fn free_of(space: &rustix::fs::StatVfs) -> u64 {
    if space.f_blocks == 0 { u64::MAX } else { space.f_bavail.saturating_mul(space.f_frsize) }
}

/// Returns whether every persistence domain that the kernel names includes the processor's caches.
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

/// Returns whether the system makes shared memory huge by advice alone; otherwise pages are
/// collapsed afterwards.
pub(crate) fn shmem_huge_by_advice() -> bool {
    let word = selected_setting("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
    !matches!(word.as_str(), "never" | "deny" | "unknown")
}

/// Returns the word in brackets of a kernel setting.
fn selected_setting(path: &str) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let word = text.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map(|(word, _)| word);
    word.unwrap_or("unknown").into()
}

/// Returns the flush and fence policy for this durability on this medium.
///
/// # Errors
/// [`Error::DurabilityRefused`] if the medium cannot provide it. `interval` is treated like `power`
/// here. The engine ensures that a crash loses only the newest writes and leaves a prefix; engines
/// that cannot do this refuse `interval` themselves.
pub(crate) fn policy(medium: &Medium, asked: Durability, emulate_dax: bool) -> Result<Persist> {
    let refused =
        |instead: &str| Err(Error::DurabilityRefused { asked, medium: medium.to_string(), instead: instead.into() });
    let lines = || if caches_persist() { Persist::Caches } else { Persist::Lines(x86::flush_instruction()) };
    match (asked, medium.kind) {
        _ if emulate_dax => Ok(Persist::Lines(x86::flush_instruction())),
        (Durability::Process, _) => Ok(Persist::Nothing),
        (Durability::Power | Durability::Interval(_), MediumKind::Shm) => refused(
            "a power failure clears shared memory; use durability process, or a path on a disk or on persistent memory",
        ),
        (Durability::Power | Durability::Interval(_), MediumKind::File) if medium.unsynced.is_some() => refused(
            "use durability process, or a path on ext4, xfs or btrfs (in a container: a volume or a bind mount)",
        ),
        (Durability::Power | Durability::Interval(_), MediumKind::File) => Ok(Persist::Pages),
        (Durability::Power | Durability::Interval(_), MediumKind::Dax) => Ok(lines()),
        (Durability::Power | Durability::Interval(_), MediumKind::Sim) => Ok(Persist::Lines(x86::flush_instruction())),
    }
}

/// Describes how a level would be kept.
fn describe_durability(medium: &Medium, asked: Durability) -> Result<String, String> {
    match policy(medium, asked, false) {
        Err(Error::DurabilityRefused { instead, .. }) => Err(format!("refused on {medium}: {instead}")),
        Err(other) => Err(other.to_string()),
        Ok(Persist::Nothing) => Ok("survives a panic, kill -9 and the OOM killer, without flushes and fences".into()),
        Ok(Persist::Lines(instruction)) => {
            Ok(format!("survives a power failure: {instruction} and sfence at each persist"))
        }
        Ok(Persist::Caches) => Ok("survives a power failure: the caches persist; sfence at each persist".into()),
        Ok(Persist::Pages) if matches!(asked, Durability::Interval(_)) => {
            Ok("survives a power failure except for the newest writes, in engines with a log (fluidkv): msync in the \
                background"
                .into())
        }
        Ok(Persist::Pages) => Ok("survives a power failure: msync at each persist, about 0.1 ms each on an SSD".into()),
    }
}

/// Returns the maximum bytes of a file of this process (`ulimit -f`). `None` without a limit.
#[must_use]
pub fn file_bytes_limit() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Fsize).current
}

/// Probes the file system at `path`, a directory, with a small file that is removed at once.
///
/// # Errors
/// [`Error::Missing`] if there is no such directory, [`Error::Io`] if nothing can be written there.
pub fn probe(path: &Path) -> Result<MediumReport> {
    if !path.exists() {
        return Err(Error::missing(path));
    }
    let io = |doing: &'static str| move |refused: rustix::io::Errno| Error::io(doing, path, refused.into());
    let (file, medium) = create_probe_file(path)?;
    let space = rustix::fs::fstatvfs(&file).map_err(io("probing"))?;
    let magic = magic_of(&rustix::fs::fstatfs(&file).map_err(io("probing"))?);
    let levels = [Durability::Process, Durability::Power, Durability::Interval(std::time::Duration::from_millis(100))];
    let durability = levels.map(|level| (level, describe_durability(&medium, level))).into();
    Ok(MediumReport {
        medium: medium.kind,
        file_system: medium.name,
        magic,
        map_sync: medium.kind == MediumKind::Dax,
        caches_persist: caches_persist(),
        flush: x86::flush_instruction(),
        free_bytes: space.f_bavail.saturating_mul(space.f_frsize),
        total_bytes: space.f_blocks.saturating_mul(space.f_frsize),
        shmem_enabled: selected_setting("/sys/kernel/mm/transparent_hugepage/shmem_enabled"),
        thp_enabled: selected_setting("/sys/kernel/mm/transparent_hugepage/enabled"),
        huge_pages: medium.kind == MediumKind::Shm && has_huge_page(file),
        durability,
    })
}

/// Creates a file in `path` and describes its medium; on return the file has no name.
fn create_probe_file(path: &Path) -> Result<(File, Medium)> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = path.join(format!(".lodestore-probe-{}-{number}", std::process::id()));
    let made = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&name);
    let file = made.map_err(|refused| Error::io("creating a file in", path, refused))?;
    // The layer under an overlay is found by the file's name.
    let medium = rustix::fs::ftruncate(&file, 2 * HUGE_PAGE_BYTES).and_then(|()| medium_of(&file));
    std::fs::remove_file(&name).map_err(|refused| Error::io("removing a file in", path, refused))?;
    let medium = medium.map_err(|refused| Error::io("probing a file in", path, refused.into()))?;
    Ok((file, medium))
}

/// Returns whether the file's first 2 MiB become one huge page on request.
fn has_huge_page(file: File) -> bool {
    let Ok(mapping) = Mapping::of_file(file, HUGE_PAGE_BYTES, false) else {
        return false;
    };
    let advised = mapping.advise(0, HUGE_PAGE_BYTES, Advice::HugePage).is_ok() && shmem_huge_by_advice();
    let populated = mapping.advise(0, HUGE_PAGE_BYTES, Advice::PopulateWrite).is_ok();
    populated && (advised || mapping.advise(0, HUGE_PAGE_BYTES, Advice::Collapse).is_ok())
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
    fn shared_memory_is_distinguished_from_files_and_power_is_refused_on_it() {
        let scratch = lodestore_contract::testing::Scratch::new();
        let Some(report) = probe(scratch.path()).ok().filter(|report| report.file_system == "tmpfs") else {
            println!("not tried: this machine has no tmpfs at the usual place that can be written");
            return;
        };
        assert_eq!(report.medium, MediumKind::Shm);
        assert!(!report.map_sync && report.free_bytes <= report.total_bytes && report.total_bytes > 0);
        let is_offered: Vec<_> = report.durability.iter().map(|(_, promise)| promise.is_ok()).collect();
        assert_eq!(is_offered, [true, false, false]);
        let left: Vec<_> = std::fs::read_dir(scratch.path()).expect("readable").collect();
        assert!(left.is_empty(), "{left:?}");
    }

    #[test]
    fn a_missing_path_is_named() {
        assert!(matches!(probe(Path::new("/nowhere/at/all")), Err(Error::Missing { .. })));
    }

    #[test]
    fn emulated_dax_executes_flushes_on_every_medium_and_interval_needs_what_power_needs() {
        for kind in [MediumKind::Shm, MediumKind::File, MediumKind::Sim] {
            let medium = &medium(kind, None);
            assert!(matches!(policy(medium, Durability::Process, true), Ok(Persist::Lines(_))));
            assert_eq!(policy(medium, Durability::Process, false).expect("process is had anywhere"), Persist::Nothing);
            let interval = Durability::Interval(std::time::Duration::from_millis(5));
            assert!(matches!(policy(medium, interval, true), Ok(Persist::Lines(_))));
            let both = [interval, Durability::Power].map(|level| policy(medium, level, false).ok());
            assert_eq!(both[0], both[1], "{medium}");
        }
    }

    fn medium(kind: MediumKind, unsynced: Option<&str>) -> Medium {
        Medium { kind, name: "x".into(), unsynced: unsynced.map(Into::into) }
    }

    #[test]
    fn power_is_refused_if_syncs_guarantee_nothing_and_the_error_says_why() {
        let unsynced = medium(MediumKind::File, Some("it is mounted volatile"));
        for asked in [Durability::Power, Durability::Interval(std::time::Duration::from_millis(5))] {
            let refused = policy(&unsynced, asked, false).expect_err("no promise");
            assert!(matches!(refused, Error::DurabilityRefused { .. }));
            assert!(refused.to_string().contains("mounted volatile"), "{refused}");
        }
        assert_eq!(policy(&unsynced, Durability::Process, false).expect("as anywhere"), Persist::Nothing);
        assert_eq!(policy(&medium(MediumKind::File, None), Durability::Power, false).expect("kept"), Persist::Pages);
    }

    #[test]
    fn a_file_on_a_weaker_medium_is_refused_by_name_and_on_a_stronger_one_is_not() {
        let ranks = [
            medium(MediumKind::Shm, None),
            medium(MediumKind::File, Some("it is opaque")),
            medium(MediumKind::File, None),
            medium(MediumKind::Dax, None),
        ];
        for (at, pool) in ranks.iter().enumerate() {
            for (found_at, found) in ranks.iter().enumerate() {
                let checked = check_as_strong(Path::new("a/pool.0001"), found, pool);
                assert_eq!(checked.is_ok(), found_at >= at, "{found} in a pool on {pool}");
                if let Err(refused) = checked {
                    assert!(matches!(refused, Error::WeakerMedium { .. }));
                    assert!(refused.to_string().contains("a/pool.0001"), "{refused}");
                }
            }
        }
    }

    #[test]
    fn no_number_names_two_file_systems() {
        let mut numbers: Vec<u64> =
            SYNCED_FILE_SYSTEMS.iter().chain(&OPAQUE_FILE_SYSTEMS).map(|(number, _)| *number).collect();
        numbers.extend([TMPFS_MAGIC, RAMFS_MAGIC, HUGETLBFS_MAGIC, OVERLAYFS_MAGIC]);
        let count = numbers.len();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), count);
    }
}
