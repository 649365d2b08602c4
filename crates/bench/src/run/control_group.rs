//! A limit on the memory of a cell's process, the page cache of the files that it touches included:
//! a control group of the kernel's, version 1 or 2.
//!
//! Each process has a group of its own, so that none finds pages that another left in the cache.
//! The process that starts it makes the group and removes it; the one that is to be limited joins
//! it, before it makes its store.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lodestore_contract::{Error, Result};

static NEXT: AtomicU64 = AtomicU64::new(0);

/// How the names of the groups begin.
const PREFIX: &str = "lodestore-bench-";
/// How often the removal of a group is tried that its process has not quite left.
const TRIES: u32 = 50;
/// How long between two of them.
const PAUSE: Duration = Duration::from_millis(20);
/// What to do where there is no group to be had.
const INSTEAD: &str = "run it as root, or in a group of your own (systemd-run --user --scope), or leave --memory away (0 beside a preset)";

/// A version of control groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

impl Version {
    /// The file that holds the limit.
    fn limit(self) -> &'static str {
        match self {
            Self::One => "memory.limit_in_bytes",
            Self::Two => "memory.max",
        }
    }

    /// The file that counts what is taken.
    fn taken(self) -> &'static str {
        match self {
            Self::One => "memory.usage_in_bytes",
            Self::Two => "memory.current",
        }
    }

    /// The file that limits what may go to swap, and what it is given for this limit: nothing may.
    fn swap(self, limit: u64) -> (&'static str, u64) {
        match self {
            Self::One => ("memory.memsw.limit_in_bytes", limit),
            Self::Two => ("memory.swap.max", 0),
        }
    }

    /// The file that counts the processes that the kernel ended for want of memory.
    fn ended(self) -> &'static str {
        match self {
            Self::One => "memory.oom_control",
            Self::Two => "memory.events",
        }
    }
}

/// Where groups for memory are here: their version, the directory that holds all of them, and this
/// process's own.
#[derive(Debug, PartialEq, Eq)]
struct Place {
    version: Version,
    mount: PathBuf,
    own: PathBuf,
}

impl Place {
    /// That of this process.
    fn here() -> Option<Self> {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        Self::of(&read("/proc/self/mountinfo"), &read("/proc/self/cgroup"))
    }

    /// That which these texts of the kernel tell of: of version 1 where it has memory, as the
    /// controller is in one of both.
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

    /// The directory in which a group can be made: of version 2 the nearest at or above our own
    /// that hands memory on to those below it.
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

/// A line of `mountinfo`, as far as it matters here.
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

/// The path of the first line of a text of the form of `/proc/self/cgroup` with such controllers.
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

/// A group with a limit. It goes when this is dropped, which is to be behind the end of its
/// process.
#[derive(Debug)]
pub(crate) struct Group {
    path: PathBuf,
    version: Version,
    limit: u64,
}

impl Group {
    /// Makes one for `limit` bytes.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] where there are no groups, or none can be made.
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
        // Without an account of swap there is no such file.
        if group.path.join(swap).exists() {
            set(swap, most)?;
        }
        Ok(group)
    }

    /// Its directory, for [`join`].
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The error of a process in it that the kernel ended because it needed more; none where it
    /// ended none.
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
    for _ in 0..TRIES {
        match fs::remove_dir(group) {
            Err(error) if error.kind() == ErrorKind::ResourceBusy => std::thread::sleep(PAUSE),
            // What cannot be removed is seen by whoever owns the groups; there is no more to do
            // here.
            _ => return,
        }
    }
}

/// Removes the groups that the process of this number made, which has ended and had no time to.
pub(crate) fn remove_groups(process: u32) {
    room().iter().for_each(|room| remove_groups_in(room, process));
}

/// The directory in which groups are made here, if one can be.
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

/// Puts this process, with all of its threads, into the group of this directory.
///
/// # Errors
/// [`Error::Io`].
pub(crate) fn join(group: &Path) -> Result<()> {
    let procs = group.join("cgroup.procs");
    fs::write(&procs, "0").map_err(|source| Error::io("joining the control group", procs, source))
}

/// The limit of this process as the kernel tells it, for the results.
pub(crate) fn own_limit() -> String {
    let told = Place::here().and_then(|place| {
        let limit = fs::read_to_string(place.own.join(place.version.limit())).ok()?;
        let version = if place.version == Version::One { 1 } else { 2 };
        Some(format!("{}, page cache included (cgroup v{version})", limit.trim()))
    });
    told.unwrap_or_else(|| "unknown".into())
}

/// How many bytes this process may yet take by its control group and those above it; `None` where
/// none of them has a limit.
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

    /// Calls `test` with a directory tree of this test that looks like a cgroup version 2 mount:
    /// group `a` delegates the memory controller, group `a/b` does not.
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
