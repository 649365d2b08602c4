//! Finds the file system that receives the writes to a file: under an overlay, that of the upper
//! layer.
//!
//! `power` needs a file system whose syncs reach a medium that survives power loss. An overlay
//! passes syncs on to its upper layer, unless it is mounted `volatile`. The upper layer may be in
//! memory. This module therefore reads the overlay's options from `/proc/self/mountinfo`, and looks
//! up the file in the upper layer. If the path is not reachable from here (another mount namespace,
//! as in most containers), the answer is unknown, and `power` is refused.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use super::{Medium, MediumKind, describe};

/// Maximum stacked overlays (Linux allows two).
pub(super) const OVERLAY_DEPTH_MAX: u32 = 4;

/// A line of `mountinfo`: where part of a file system is mounted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mount {
    id: u64,
    /// The mounted directory of the file system.
    root: PathBuf,
    point: PathBuf,
    file_system: String,
    /// Options of the file system, each still escaped.
    options: Vec<String>,
}

/// Parses one line of `mountinfo`; returns `None` if it has another form.
fn parse_mount(line: &str) -> Option<Mount> {
    let (own, of_file_system) = line.split_once(" - ")?;
    let mut own = own.split(' ');
    let id = own.next()?.parse().ok()?;
    let root = own.nth(2)?;
    let point = own.next()?;
    let mut rest = of_file_system.split(' ');
    let file_system = rest.next()?.to_string();
    let options = rest.nth(1)?.split(',').map(str::to_string).collect();
    Some(Mount { id, root: unescape(root).into(), point: unescape(point).into(), file_system, options })
}

/// Finds the mount of this ID.
pub(super) fn find_mount(mountinfo: &str, id: u64) -> Option<Mount> {
    mountinfo.lines().filter_map(parse_mount).find(|mount| mount.id == id)
}

/// Replaces `\ooo`, the kernel's escape of a byte as three octal digits.
fn unescape(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let digits = tail.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) if *first == b'\\' => {
                bytes.push(byte);
                rest = &tail[3..];
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Returns the directory of an overlay's upper layer.
///
/// # Errors
/// The reason why syncs of the overlay guarantee nothing.
pub(super) fn upper_layer(mount: &Mount) -> Result<PathBuf, String> {
    if mount.file_system != "overlay" {
        return Err(format!("its mount is of type {}, not overlay", mount.file_system));
    }
    if mount.options.iter().any(|option| matches!(option.as_str(), "volatile" | "fsync=volatile")) {
        return Err("it is mounted volatile, so its syncs do nothing".into());
    }
    let named = mount.options.iter().find_map(|option| option.strip_prefix("upperdir="));
    let upper = PathBuf::from(unescape(named.ok_or("it has no upper layer")?));
    if upper.is_absolute() {
        Ok(upper)
    } else {
        Err(format!("the path of its upper layer {} is not absolute", upper.display()))
    }
}

/// Returns the path of the mount's file in the upper layer; `None` if the mount does not hold it.
pub(super) fn path_in_upper(mount: &Mount, upper: &Path, file: &Path) -> Option<PathBuf> {
    let below = file.strip_prefix(&mount.point).ok()?;
    Some(upper.join(mount.root.strip_prefix("/").ok()?).join(below))
}

/// Opens the file of the upper layer that receives the writes to `file`, a file of an overlay.
fn open_upper(file: &File) -> Result<File, String> {
    let fd = file.as_raw_fd();
    let read = |path: &str| std::fs::read_to_string(path).map_err(|refused| format!("{path}: {refused}"));
    let info = read(&format!("/proc/self/fdinfo/{fd}"))?;
    let id = info.lines().find_map(|line| line.strip_prefix("mnt_id:")?.trim().parse().ok());
    let id = id.ok_or("the system does not report its mount")?;
    let mount = find_mount(&read("/proc/self/mountinfo")?, id).ok_or("its mount is not listed in mountinfo")?;
    let upper = upper_layer(&mount)?;
    let path = std::fs::read_link(format!("/proc/self/fd/{fd}")).map_err(|refused| refused.to_string())?;
    let path = path_in_upper(&mount, &upper, &path).ok_or("its path is outside its mount")?;
    let unreachable = || format!("its upper layer {} is not reachable from this process", upper.display());
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let found = rustix::fs::open(&path, flags, Mode::empty()).map(File::from).map_err(|_| unreachable())?;
    // Another directory may have that path in this mount namespace. The overlay shows the inode
    // number of the upper file.
    let about =
        |file: &File| file.metadata().map(|about| (about.ino(), about.len(), about.mtime(), about.mtime_nsec()));
    match (about(file), about(&found)) {
        (Ok(own), Ok(other)) if own == other => Ok(found),
        _ => Err(unreachable()),
    }
}

/// Describes the medium under a file of an overlay, which `depth` overlays are on top of.
///
/// # Errors
/// Those of the kernel.
pub(super) fn describe_overlay(file: &File, depth: u32) -> rustix::io::Result<Medium> {
    let unsynced = |name: String, why: String| Medium { kind: MediumKind::File, name, unsynced: Some(why) };
    if depth == OVERLAY_DEPTH_MAX {
        return Ok(unsynced("overlayfs".into(), "too many overlays are stacked".into()));
    }
    let upper = match open_upper(file) {
        Ok(upper) => upper,
        Err(why) => return Ok(unsynced("overlayfs".into(), why)),
    };
    let below = describe(&upper, depth + 1)?;
    // A mapping of the overlay's file is not the medium itself.
    let kind = if below.kind == MediumKind::Dax { MediumKind::File } else { below.kind };
    Ok(Medium { kind, name: format!("overlayfs on {}", below.name), unsynced: below.unsynced })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Recorded on Linux 6.18 (first two), in a Docker container, with Podman, and from other file
    /// systems.
    const RECORDED: &str = "\
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard
65 60 0:39 / /dev/shm/a/m rw,relatime - overlay overlay rw,lowerdir=/dev/shm/a/l,upperdir=/dev/shm/a/u,workdir=/dev/shm/a/w,redirect_dir=nofollow,uuid=on,userxattr
66 60 0:40 / /v rw,relatime - overlay overlay rw,lowerdir=/l,upperdir=/u,workdir=/w,fsync=volatile,userxattr
612 498 0:51 / / rw,relatime master:171 - overlay overlay rw,lowerdir=/var/lib/docker/overlay2/l/A:/var/lib/docker/overlay2/l/B,upperdir=/var/lib/docker/overlay2/c0ffee/diff,workdir=/var/lib/docker/overlay2/c0ffee/work
700 1 0:60 /sub/dir /mnt/with\\040space rw shared:1 master:2 - overlay none rw,lowerdir=/l,upperdir=/up\\054per\\040dir,workdir=/w,volatile
701 1 0:60 /sub/dir /mnt/with\\040space rw shared:1 - overlay none rw,lowerdir=/l,upperdir=/up\\054per\\040dir,workdir=/w
702 1 0:61 / /ro ro - overlay overlay ro,lowerdir=/l1:/l2
703 1 0:62 / /rel rw - overlay overlay rw,lowerdir=l,upperdir=u,workdir=w
not a line of this form
";

    fn mount(id: u64) -> Mount {
        find_mount(RECORDED, id).expect("recorded")
    }

    #[test]
    fn recorded_mounts_are_read_by_their_ids() {
        assert_eq!(mount(27).file_system, "ext4");
        assert_eq!(mount(612).point, Path::new("/"));
        let escaped = mount(700);
        assert_eq!(
            (escaped.root.as_path(), escaped.point.as_path()),
            (Path::new("/sub/dir"), Path::new("/mnt/with space"))
        );
        assert_eq!(find_mount(RECORDED, 65_000), None);
        assert_eq!(find_mount("", 27), None);
    }

    #[test]
    fn an_upper_layer_is_found_unless_the_overlay_is_volatile_or_has_none() {
        assert_eq!(upper_layer(&mount(65)), Ok("/dev/shm/a/u".into()));
        assert_eq!(upper_layer(&mount(612)), Ok("/var/lib/docker/overlay2/c0ffee/diff".into()));
        assert_eq!(upper_layer(&mount(701)), Ok("/up,per dir".into()));
        for (id, says) in
            [(66, "volatile"), (700, "volatile"), (702, "no upper layer"), (703, "is not absolute"), (27, "ext4")]
        {
            let why = upper_layer(&mount(id)).expect_err("refused");
            assert!(why.contains(says), "{id}: {why}");
        }
    }

    #[test]
    fn a_file_of_a_bind_mount_is_searched_below_its_root() {
        let found = |id, path: &str| path_in_upper(&mount(id), Path::new("/upper"), Path::new(path));
        assert_eq!(found(65, "/dev/shm/a/m/store/pool.0000"), Some("/upper/store/pool.0000".into()));
        assert_eq!(found(701, "/mnt/with space/pool.0000"), Some("/upper/sub/dir/pool.0000".into()));
        assert_eq!(found(65, "/elsewhere/pool.0000"), None);
    }

    #[test]
    fn escapes_are_octal_and_other_backslashes_stay() {
        assert_eq!(unescape("a\\040b\\134c\\9d\\"), "a b\\c\\9d\\");
        assert_eq!(unescape("\\303\\244"), "ä");
    }
}
