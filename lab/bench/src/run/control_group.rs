//! A limit on the memory of a cell's process, including the page cache of its files: a kernel
//! control group, version 1 or 2.
//!
//! Each process has its own group, so that no process finds pages that another left in the cache.
//! The parent creates and removes the group. The limited process joins the group before it creates
//! its store.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lodestore_contract::{Error, Result};

static NEXT: AtomicU64 = AtomicU64::new(0);

/// Prefix of the names of the groups.
const PREFIX: &str = "lodestore-bench-";
/// Attempts to remove a group that its process has not quite left.
const REMOVAL_ATTEMPTS: u32 = 50;
/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(20);
/// The remedy if no group is available.
const INSTEAD: &str = "run it as root, or in a group of your own (systemd-run --user --scope), or leave --memory away (0 beside a preset)";

/// A version of control groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

impl Version {
    /// Returns the file with the limit.
    fn limit(self) -> &'static str {
        match self {
            Self::One => "memory.limit_in_bytes",
            Self::Two => "memory.max",
        }
    }

    /// Returns the file with the memory in use.
    fn taken(self) -> &'static str {
        match self {
            Self::One => "memory.usage_in_bytes",
            Self::Two => "memory.current",
        }
    }

    /// Returns the file that limits swap, and its value for this memory limit: no swap.
    fn swap(self, limit: u64) -> (&'static str, u64) {
        match self {
            Self::One => ("memory.memsw.limit_in_bytes", limit),
            Self::Two => ("memory.swap.max", 0),
        }
    }

    /// Returns the file that counts the processes that the kernel killed for lack of memory.
    fn ended(self) -> &'static str {
        match self {
            Self::One => "memory.oom_control",
            Self::Two => "memory.events",
        }
    }
}

/// The control groups for memory of this machine: their version, the root directory, and this
/// process's own group.
#[derive(Debug, PartialEq, Eq)]
struct Place {
    version: Version,
    mount: PathBuf,
    own: PathBuf,
}

impl Place {
    /// Returns the groups of this process.
    fn here() -> Option<Self> {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        Self::of(&read("/proc/self/mountinfo"), &read("/proc/self/cgroup"))
    }

    /// Returns the groups that these kernel texts describe. Version 1 is used if it has the memory
    /// controller, because a controller is in only one of both versions.
    fn of(mounts: &str, own: &str) -> Option<Self> {
        let one = |line: &str| {
            let mount = Mount::of(line)?;
            let memory = mount.kind == "cgroup" && mount.options.split(',').any(|option| option == "memory");
            memory.then(|| mount.place(Version::One, path_in(own, |names| names.split(',').any(|it| it == "memory"))))
        };
        let two = |line: &str| {
            let mount = Mount::of(line)?;
            (mount.kind == "cgroup2").then(|| mount.place(Version::Two, path_in(own, str::is_empty)))
        };
        mounts.lines().find_map(one).or_else(|| mounts.lines().find_map(two))
    }

    /// Returns the directory in which a group can be created. For version 2 that is the nearest
    /// group, at or above this process's own, that delegates memory to its children.
    fn room(&self) -> Option<PathBuf> {
        let hands_on = |dir: &&Path| {
            let all = fs::read_to_string(dir.join("cgroup.subtree_control")).unwrap_or_default();
            all.split_ascii_whitespace().any(|name| name == "memory")
        };
        let below = |dir: &&Path| dir.starts_with(&self.mount) && dir.is_dir();
        match self.version {
            Version::One => self.own.ancestors().find(below).map(Path::to_path_buf),
            Version::Two => self.own.ancestors().filter(below).find(hands_on).map(Path::to_path_buf),
        }
    }
}

/// The relevant part of a line of `mountinfo`.
struct Mount<'a> {
    root: &'a str,
    point: &'a str,
    kind: &'a str,
    options: &'a str,
}

impl<'a> Mount<'a> {
    fn of(line: &'a str) -> Option<Self> {
        let (mount, system) = line.split_once(" - ")?;
        let mut words = mount.split(' ').skip(3);
        let (root, point) = (words.next()?, words.next()?);
        let mut words = system.split(' ');
        Some(Self { root, point, kind: words.next()?, options: words.nth(1)? })
    }

    fn place(&self, version: Version, own: &str) -> Place {
        let mount = PathBuf::from(self.point);
        let below = Path::new(own).strip_prefix(self.root).unwrap_or(Path::new(""));
        Place { version, own: mount.join(below), mount }
    }
}

/// Returns the path in the first line with such controllers of a text like `/proc/self/cgroup`.
fn path_in(own: &str, wanted: impl Fn(&str) -> bool) -> &str {
    own.lines()
        .find_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            let (names, path) = (parts.next()?, parts.next()?);
            wanted(names).then_some(path)
        })
        .unwrap_or("/")
}

fn refuse(limit: u64, why: impl std::fmt::Display) -> Error {
    Error::InvalidOption { name: "memory".into(), value: limit.to_string(), why: format!("{why}: {INSTEAD}") }
}

/// A group with a limit. Dropping it removes the group; its process must have ended.
#[derive(Debug)]
pub(crate) struct Group {
    path: PathBuf,
    version: Version,
    limit: u64,
}

impl Group {
    /// Creates a group for `limit` bytes.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] if there are no groups, or none can be created.
    pub(crate) fn new(limit: u64) -> Result<Self> {
        let place = Place::here().ok_or_else(|| refuse(limit, "no control groups for memory are mounted here"))?;
        Self::made(&place, limit)
    }

    fn made(place: &Place, limit: u64) -> Result<Self> {
        let none = || refuse(limit, "no control group here hands memory on to those below it");
        let room = place.room().ok_or_else(none)?;
        let name = format!("{PREFIX}{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = room.join(name);
        let cannot = |what: &str, source: std::io::Error| refuse(limit, format!("{what}: {source}"));
        fs::create_dir(&path).map_err(|source| cannot("a control group cannot be made", source))?;
        let group = Self { path, version: place.version, limit };
        let set = |file: &str, bytes: u64| {
            let written = fs::write(group.path.join(file), bytes.to_string());
            written.map_err(|source| cannot("the control group takes no limit", source))
        };
        set(place.version.limit(), limit)?;
        let (swap, most) = place.version.swap(limit);
        // Without swap accounting the file does not exist.
        if group.path.join(swap).exists() {
            set(swap, most)?;
        }
        Ok(group)
    }

    /// Returns its directory, for [`join`].
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the error of a process in the group that the kernel killed for exceeding the limit,
    /// or `None`.
    pub(crate) fn overrun(&self) -> Option<Error> {
        let text = fs::read_to_string(self.path.join(self.version.ended())).unwrap_or_default();
        let ended = text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse::<u64>().ok());
        let why =
            "the kernel ended the store's process, which needed more: give it more, or the store a smaller --budget";
        let error = || Error::InvalidOption { name: "memory".into(), value: self.limit.to_string(), why: why.into() };
        ended.filter(|count| *count > 0).map(|_| error())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

fn remove(group: &Path) {
    for _ in 0..REMOVAL_ATTEMPTS {
        match fs::remove_dir(group) {
            Err(error) if error.kind() == ErrorKind::ResourceBusy => std::thread::sleep(PAUSE),
            // A directory that cannot be removed stays visible to the owner of the groups. Nothing
            // more can be done here.
            _ => return,
        }
    }
}

/// Removes the groups of the ended process with this id, which could not remove them itself.
pub(crate) fn remove_groups(process: u32) {
    room().iter().for_each(|room| remove_groups_in(room, process));
}

/// Returns the directory in which groups can be created, if any.
pub(crate) fn room() -> Option<PathBuf> {
    Place::here().and_then(|place| place.room())
}

fn remove_groups_in(room: &Path, process: u32) {
    let prefix = format!("{PREFIX}{process}-");
    let groups = fs::read_dir(room).into_iter().flatten().flatten();
    groups
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix))
        .for_each(|entry| remove(&entry.path()));
}

/// Moves this process, with all of its threads, to the group of this directory.
///
/// # Errors
/// [`Error::Io`].
pub(crate) fn join(group: &Path) -> Result<()> {
    let procs = group.join("cgroup.procs");
    fs::write(&procs, "0").map_err(|source| Error::io("joining the control group", procs, source))
}

/// Returns the kernel's limit of this process, for the results.
pub(crate) fn own_limit() -> String {
    let told = Place::here().and_then(|place| {
        let limit = fs::read_to_string(place.own.join(place.version.limit())).ok()?;
        let version = if place.version == Version::One { 1 } else { 2 };
        Some(format!("{}, page cache included (cgroup v{version})", limit.trim()))
    });
    told.unwrap_or_else(|| "unknown".into())
}

/// Returns the bytes that this process may still use by its control group and the groups above it;
/// `None` if none of them has a limit.
pub(crate) fn left() -> Option<u64> {
    Place::here().and_then(|place| left_in(&place))
}

fn left_in(place: &Place) -> Option<u64> {
    let number = |path: PathBuf| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let of = |dir: &Path| {
        let limit = number(dir.join(place.version.limit()))?;
        Some(limit.saturating_sub(number(dir.join(place.version.taken()))?))
    };
    place.own.ancestors().take_while(|dir| dir.starts_with(&place.mount)).filter_map(of).min()
}

#[cfg(test)]
mod tests {
    use super::*;
    use lodestore_contract::testing::Scratch;

    const ONE: &str = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n\
                       32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n\
                       35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n\
                       41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";

    fn place(version: Version, mount: &str, own: &str) -> Option<Place> {
        Some(Place { version, mount: mount.into(), own: own.into() })
    }

    #[test]
    fn the_kernels_texts_tell_where_groups_are() {
        let own = "9:name=systemd:/\n5:cpu,memory:/a/b\n0::/c\n";
        let memory = "/sys/fs/cgroup/memory";
        assert_eq!(Place::of(ONE, own), place(Version::One, memory, "/sys/fs/cgroup/memory/a/b"));
        let two = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";
        assert_eq!(
            Place::of(two, "0::/a.slice/b\n"),
            place(Version::Two, "/sys/fs/cgroup", "/sys/fs/cgroup/a.slice/b")
        );
        // A container sees a part of the tree.
        let part = "30 23 0:26 /box/1 /sys/fs/cgroup ro - cgroup2 cgroup2 rw\n";
        assert_eq!(Place::of(part, "0::/box/1/x\n"), place(Version::Two, "/sys/fs/cgroup", "/sys/fs/cgroup/x"));
        assert_eq!(Place::of(part, "0::/\n"), place(Version::Two, "/sys/fs/cgroup", "/sys/fs/cgroup"));
        assert_eq!(Place::of("", own), None);
        assert_eq!(Place::of("nonsense\n1 2 3 - cgroup\n", own), None);
    }

    /// Calls `test` with a directory tree that looks like a cgroup version 2 mount: group `a`
    /// delegates the memory controller, group `a/b` does not.
    fn tree(test: impl FnOnce(&Path, &Place)) {
        let scratch = Scratch::on_disk();
        let mount = scratch.path().to_path_buf();
        let own = mount.join("a").join("b");
        fs::create_dir_all(&own).expect("directories");
        fs::write(mount.join("a").join("cgroup.subtree_control"), "cpu memory pids\n").expect("a file");
        fs::write(own.join("cgroup.subtree_control"), "\n").expect("a file");
        test(&mount, &Place { version: Version::Two, mount: mount.clone(), own });
    }

    #[test]
    fn a_group_of_version_2_stands_where_memory_is_handed_on_and_has_its_limit() {
        tree(|mount, place| {
            let group = Group::made(place, 1 << 20).expect("a group");
            assert_eq!(group.path().parent(), Some(&*mount.join("a")));
            assert_eq!(fs::read_to_string(group.path().join("memory.max")).expect("a limit"), "1048576");
            join(group.path()).expect("joined");
            assert_eq!(fs::read_to_string(group.path().join("cgroup.procs")).expect("a process"), "0");
            assert!(group.overrun().is_none());
            fs::write(group.path().join("memory.events"), "low 0\noom 1\noom_kill 1\n").expect("a file");
            assert!(group.overrun().is_some_and(|error| error.to_string().contains("--budget")));
            fs::write(mount.join("a").join("cgroup.subtree_control"), "cpu\n").expect("a file");
            let refused = Group::made(place, 1 << 20).expect_err("there is no room").to_string();
            assert!(refused.contains("systemd-run") && refused.contains("memory"), "{refused}");
        });
    }

    #[test]
    fn what_is_left_is_the_least_of_the_groups_above_that_have_a_limit() {
        tree(|mount, place| {
            assert_eq!(left_in(place), None);
            let set = |dir: &Path, limit: &str, taken: &str| {
                fs::write(dir.join("memory.max"), limit)
                    .and_then(|()| fs::write(dir.join("memory.current"), taken))
                    .expect("files");
            };
            set(&place.own, "max\n", "70\n");
            assert_eq!(left_in(place), None);
            set(&mount.join("a"), "100\n", "70\n");
            assert_eq!(left_in(place), Some(30));
            set(&place.own, "90\n", "95\n");
            assert_eq!(left_in(place), Some(0));
        });
    }

    #[test]
    fn the_groups_of_a_process_that_had_no_time_to_are_removed_and_no_others() {
        tree(|mount, _| {
            let names = ["lodestore-bench-12-0", "lodestore-bench-12-1", "lodestore-bench-123-0", "other-12-0"];
            names.iter().for_each(|name| fs::create_dir(mount.join(name)).expect("a directory"));
            remove_groups_in(mount, 12);
            assert_eq!(names.map(|name| mount.join(name).exists()), [false, false, true, true]);
        });
    }
}
