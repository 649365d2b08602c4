//! The directory of a store, open as a descriptor.
//!
//! Every file operation of an open store is relative to the descriptor. A store whose directory is
//! renamed continues in the renamed directory, and never touches a store created at the old path.
//! The path is kept for error texts only.
//!
//! No operation follows a symbolic link in the last component of a name.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use lodestore_contract::{Error, Result};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

const FILE_MODE_BITS: u32 = 0o600;

/// The identity of a file, by descriptor or name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    fn of(found: &Stat) -> Self {
        Self { device: found.st_dev, inode: found.st_ino }
    }

    /// Returns the identity of an open file.
    ///
    /// # Errors
    /// Those of the kernel.
    pub(crate) fn of_file(file: &File) -> rustix::io::Result<Self> {
        rustix::fs::fstat(file).map(|found| Self::of(&found))
    }
}

/// A directory entry, without following a link.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    pub(crate) id: FileId,
    pub(crate) kind: FileType,
    /// The length of a regular file in bytes.
    pub(crate) bytes: u64,
}

impl Entry {
    pub(crate) fn is_file(&self) -> bool {
        self.kind == FileType::RegularFile
    }
}

/// The access mode of an open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    ReadWrite,
    /// For reading and writing; the name must not exist.
    CreateNew,
    /// For reading and writing; created if the name does not exist.
    CreateIfMissing,
}

impl Access {
    fn flags(self) -> OFlags {
        match self {
            Self::Read => OFlags::RDONLY,
            Self::ReadWrite => OFlags::RDWR,
            Self::CreateNew => OFlags::RDWR | OFlags::CREATE | OFlags::EXCL,
            Self::CreateIfMissing => OFlags::RDWR | OFlags::CREATE,
        }
    }
}

/// An open directory; see the module.
#[derive(Debug)]
pub struct StoreDir {
    file: File,
    path: PathBuf,
}

impl StoreDir {
    /// Opens the directory at `path`.
    ///
    /// # Errors
    /// Those of the kernel: `NotFound`, `NotADirectory`, and others.
    pub(crate) fn open(path: &Path) -> std::io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let file = rustix::fs::open(path, flags, Mode::empty())?;
        Ok(Self { file: file.into(), path: path.into() })
    }

    /// Opens the directory at `path`, which must exist.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn open_existing(path: &Path) -> Result<Self> {
        Self::open(path).map_err(|refused| Error::io("opening", path, refused))
    }

    /// Returns the path at which the directory was opened, for texts.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of a file in the directory, for texts.
    pub(crate) fn path_of(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Opens a file of the store. A pipe never blocks the open, and a link is refused with `ELOOP`.
    ///
    /// # Errors
    /// Those of the kernel.
    pub(crate) fn open_file(&self, name: &str, access: Access, more: OFlags) -> rustix::io::Result<File> {
        let flags = access.flags() | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC | more;
        rustix::fs::openat(&self.file, name, flags, Mode::from_raw_mode(FILE_MODE_BITS)).map(File::from)
    }

    /// Returns the entry of a name; `None` if it does not exist.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn entry(&self, name: &str) -> Result<Option<Entry>> {
        match rustix::fs::statat(&self.file, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) => {
                let kind = FileType::from_raw_mode(found.st_mode);
                Ok(Some(Entry { id: FileId::of(&found), kind, bytes: found.st_size as u64 }))
            }
            Err(Errno::NOENT) => Ok(None),
            Err(refused) => Err(Error::io("reading the attributes of", self.path_of(name), refused.into())),
        }
    }

    /// Returns whether the directory was removed: it has no name any more.
    pub(crate) fn is_removed(&self) -> bool {
        rustix::fs::fstat(&self.file).is_ok_and(|found| found.st_nlink == 0)
    }

    /// Removes a file.
    ///
    /// # Errors
    /// Those of the kernel.
    pub(crate) fn remove_file(&self, name: &str) -> std::io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.file, name, AtFlags::empty())?)
    }

    /// Renames a file in the directory.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn rename(&self, from: &str, to: &str) -> Result<()> {
        rustix::fs::renameat(&self.file, from, &self.file, to)
            .map_err(|refused| Error::io("naming", self.path_of(to), refused.into()))
    }

    /// Writes a file durably, and replaces one that has the name. A crash leaves the old file or
    /// the new one, and perhaps a file with the name `unfinished`.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn replace_file(&self, name: &str, unfinished: &str, bytes: &[u8]) -> Result<()> {
        let write = || -> std::io::Result<()> {
            let mut file = self.open_file(unfinished, Access::CreateIfMissing, OFlags::TRUNC)?;
            file.write_all(bytes)?;
            file.sync_all()?;
            rustix::fs::renameat(&self.file, unfinished, &self.file, name)?;
            self.file.sync_all()
        };
        write().map_err(|refused| Error::io("writing", self.path_of(name), refused))
    }

    /// Lists the names in the directory. A name that is not UTF-8 is shown with replacements.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn names(&self) -> Result<Vec<String>> {
        let io = |refused: Errno| Error::io("reading", &self.path, refused.into());
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(&self.file).map_err(io)? {
            let entry = entry.map_err(io)?;
            let name = std::ffi::OsStr::from_bytes(entry.file_name().to_bytes());
            if name != "." && name != ".." {
                names.push(name.to_string_lossy().into_owned());
            }
        }
        Ok(names)
    }

    /// Makes changes of names in the directory durable.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn sync(&self) -> Result<()> {
        self.file.sync_all().map_err(|refused| Error::io("syncing", &self.path, refused))
    }

    /// Returns the bytes that can still be written to the file system under the directory, or
    /// `u64::MAX` if the kernel does not say.
    pub(crate) fn free_bytes(&self) -> u64 {
        crate::probe::free_bytes(&self.file).unwrap_or(u64::MAX)
    }
}

/// Returns the nearest existing directory above `dir`: directories below it are created with the
/// store.
pub(crate) fn known_ancestor(dir: &Path) -> PathBuf {
    let above = std::path::absolute(dir).unwrap_or_else(|_| dir.into());
    above.ancestors().skip(1).find(|above| above.is_dir()).unwrap_or(Path::new("/")).into()
}

/// Makes the names of `dir` and of the directories above it durable, up to the name in `known`.
/// Skips directories that may not be read, and file systems that do not sync directories.
///
/// # Errors
/// [`Error::Io`].
pub(crate) fn sync_parents(dir: &Path, known: &Path) -> Result<()> {
    let own = std::path::absolute(dir).map_err(|refused| Error::io("finding", dir, refused))?;
    for above in own.ancestors().skip(1) {
        match File::open(above).and_then(|open| open.sync_all()) {
            Err(refused) if !matches!(refused.kind(), ErrorKind::PermissionDenied | ErrorKind::InvalidInput) => {
                return Err(Error::io("syncing", above, refused));
            }
            _ => {}
        }
        if above == known {
            break;
        }
    }
    Ok(())
}
