//! The record of a creation that has not finished.
//!
//! Persist order of a creation:
//! 1. The file `creating` in the matrix's directory names the matrix and its devices' directories.
//!    The file is durable before anything else is created.
//! 2. The devices' labels and stores are created, then the host's store, then the description.
//! 3. The file is removed, durably. Only then does the creation return.
//!
//! An open that finds the file and a description does step 3 before it serves any call. Therefore a
//! directory with the file holds no acknowledged write, and a creation may start over there. The
//! directory is locked while a process creates the matrix or finishes its creation. Layout:
//! docs/format/mkvs.md.

use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use lodestore_contract::{Error, Result};
use xxhash_rust::xxh3::xxh3_64;

use crate::codec::VERSION;
use crate::host::Host;
use crate::label::{self, Label};
use crate::layout::Matrix;
use crate::places::{OpenMode, Part, Places};

const NAME: &str = "creating";
/// The record is written under this name, then renamed.
const UNFINISHED: &str = "creating.new";
const MAGIC: [u8; 8] = *b"LODECREA";
/// Bytes before the paths: magic, version, zeros, number of the matrix, number of paths.
const HEAD_BYTES: usize = 28;
const SUM_BYTES: usize = 8;

/// Returns whether a matrix may be created in `root`: it is missing or empty, or has an unfinished
/// creation.
///
/// # Errors
/// [`Error::Io`].
pub fn may_create_in(root: &Path) -> Result<bool> {
    let entries = match fs::read_dir(root) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(true),
        Err(error) if error.kind() == ErrorKind::NotADirectory => return Ok(false),
        Err(error) => return Err(Error::io("reading", root, error)),
    };
    let names: io::Result<Vec<_>> = entries.map(|entry| Ok(entry?.file_name())).collect();
    let names = names.map_err(|error| Error::io("reading", root, error))?;
    Ok(names.iter().any(|name| name == NAME) || names.iter().all(|name| name == UNFINISHED))
}

/// The contents of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Record {
    matrix: u64,
    /// The devices' directories, as the description names them.
    directories: Vec<PathBuf>,
}

impl Record {
    fn of(matrix: &Matrix) -> Self {
        Self { matrix: matrix.id, directories: matrix.members().map(|member| member.path.clone()).collect() }
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend([0; 6]);
        bytes.extend(self.matrix.to_le_bytes());
        bytes.extend((self.directories.len() as u32).to_le_bytes());
        for directory in &self.directories {
            let path = directory.as_os_str().as_bytes();
            bytes.extend((path.len() as u32).to_le_bytes());
            bytes.extend(path);
        }
        bytes.extend(xxh3_64(&bytes).to_le_bytes());
        bytes
    }

    /// Returns `None` if the bytes are not a whole record of this version.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let (body, sum) = bytes.split_at_checked(bytes.len().checked_sub(SUM_BYTES)?)?;
        if xxh3_64(body).to_le_bytes() != sum {
            return None;
        }
        let (head, mut rest) = body.split_at_checked(HEAD_BYTES)?;
        let count = u32::from_le_bytes(head[24..].try_into().ok()?);
        let mut directories = Vec::new();
        for _ in 0..count {
            let (len, after) = rest.split_at_checked(4)?;
            let (path, after) = after.split_at_checked(u32::from_le_bytes(len.try_into().ok()?) as usize)?;
            directories.push(PathBuf::from(std::ffi::OsString::from_vec(path.to_vec())));
            rest = after;
        }
        let record = Self { matrix: u64::from_le_bytes(head[16..24].try_into().ok()?), directories };
        (record.encode() == bytes).then_some(record)
    }

    /// Reads the record in `root`, if there is one.
    ///
    /// # Errors
    /// [`Error::Foreign`] if it is damaged; [`Error::Io`].
    fn read(root: &Path) -> Result<Option<Self>> {
        let path = root.join(NAME);
        match fs::read(&path) {
            Ok(bytes) => Self::decode(&bytes).map(Some).ok_or_else(|| Error::Foreign {
                path,
                what: "the record of an interrupted creation is damaged".into(),
            }),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
            Err(error) => Err(Error::io("reading", path, error)),
        }
    }

    /// Writes the record into `root`, durably.
    ///
    /// # Errors
    /// [`Error::Io`].
    fn write(&self, root: &Path) -> Result<()> {
        let write = || {
            let mut file = File::create(root.join(UNFINISHED))?;
            file.write_all(&self.encode())?;
            file.sync_all()?;
            fs::rename(root.join(UNFINISHED), root.join(NAME))?;
            File::open(root)?.sync_all()
        };
        write().map_err(|error| Error::io("writing", root.join(NAME), error))
    }

    /// Removes the stores of the interrupted creation: those in directories with its labels, and
    /// the host's.
    ///
    /// # Errors
    /// [`Error::Io`].
    fn remove_stores(&self, root: &Path, places: &dyn Places) -> Result<()> {
        for directory in self.directories.iter().map(|directory| root.join(directory)) {
            let is_ours = |label: Label| label.matrix == self.matrix && label.is_pending;
            if Label::read(&directory)?.is_some_and(is_ours) {
                for part in [Part::Device, Part::Log] {
                    remove_store(&directory, part, places)?;
                }
                Label::remove(&directory)?;
            }
            if directory.starts_with(root) {
                // The directory stays if it holds anything else.
                let _ = fs::remove_file(directory.join(label::UNFINISHED));
                let _ = fs::remove_dir(&directory);
            }
        }
        remove_store(root, Part::Host, places)
    }
}

fn remove_store(directory: &Path, part: Part, places: &dyn Places) -> Result<()> {
    if directory.join(part.directory()).exists() { places.remove(directory, part) } else { Ok(()) }
}

/// Returns whether an open that ends with this error found no description of a matrix.
fn has_no_description(error: &Error) -> bool {
    matches!(
        error,
        Error::Missing { .. } | Error::Corrupt { .. } | Error::Foreign { .. } | Error::MachineRestarted { .. }
    )
}

/// Returns whether the host's store in `root` has a complete description.
///
/// # Errors
/// Errors of its opening, such as [`Error::Locked`], except errors that mean that there is none.
fn is_described(root: &Path, places: &dyn Places) -> Result<bool> {
    let opened = places.open(root, Part::Host, "", OpenMode::Strict).and_then(|place| Host::open(place.store, root));
    match opened {
        Ok(host) => {
            host.store().close()?;
            Ok(true)
        }
        Err(error) if has_no_description(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Locks the matrix's directory against other processes that create the matrix or finish its
/// creation.
///
/// # Errors
/// [`Error::Locked`], [`Error::Io`].
fn lock(root: &Path) -> Result<File> {
    let directory = File::open(root).map_err(|error| Error::io("opening", root, error))?;
    match directory.try_lock() {
        // A file system without locks offers no protection.
        Ok(()) | Err(TryLockError::Error(_)) => Ok(directory),
        Err(TryLockError::WouldBlock) => {
            Err(Error::Locked { path: root.into(), holder: "it is creating the matrix".into() })
        }
    }
}

/// A creation that has not finished. Dropping it unfinished in the creating process removes its
/// record.
pub(crate) struct Creation {
    root: PathBuf,
    /// Directories that did not exist before, the deepest first.
    created: Vec<PathBuf>,
    /// Whether a drop removes the record.
    is_own: bool,
    _lock: File,
}

impl Creation {
    /// Removes the remains of an interrupted creation in `root`, and writes the record of a new
    /// one. Returns `None` if the stores of the matrix are not files.
    ///
    /// # Errors
    /// [`Error::Exists`] if the interrupted creation has a description; [`Error::Locked`],
    /// [`Error::Io`].
    pub(crate) fn begin(root: &Path, matrix: &Matrix, places: &dyn Places) -> Result<Option<Self>> {
        if !places.has_files() {
            return Ok(None);
        }
        let missing = |above: &&Path| !above.as_os_str().is_empty() && !above.exists();
        let created: Vec<_> = root.ancestors().take_while(missing).map(PathBuf::from).collect();
        fs::create_dir_all(root).map_err(|error| Error::io("creating", root, error))?;
        let lock = lock(root)?;
        if let Some(unfinished) = Record::read(root)? {
            if is_described(root, places)? {
                return Err(Error::exists(root));
            }
            unfinished.remove_stores(root, places)?;
        }
        // From here on, a failure removes the record and the directories.
        let creation = Self { root: root.into(), created, is_own: true, _lock: lock };
        Record::of(matrix).write(root)?;
        Ok(Some(creation))
    }

    /// Returns the unfinished creation of the matrix in `root`, if there is one, for an open to
    /// finish.
    ///
    /// # Errors
    /// [`Error::Locked`] if another process is creating the matrix; [`Error::Foreign`],
    /// [`Error::Io`].
    pub(crate) fn find_unfinished(root: &Path, places: &dyn Places) -> Result<Option<Self>> {
        if !places.has_files() || Record::read(root)?.is_none() {
            return Ok(None);
        }
        let lock = lock(root)?;
        // The other process may have finished meanwhile: a missing record is no error.
        Ok(Some(Self { root: root.into(), created: Vec::new(), is_own: false, _lock: lock }))
    }

    /// Replaces the error of an open that found no description by the error of a matrix that was
    /// never created.
    pub(crate) fn explain(&self, error: Error) -> Error {
        if has_no_description(&error) { Error::missing(self.root.clone()) } else { error }
    }

    /// Removes the record, durably: the matrix has its description and all its stores.
    ///
    /// # Errors
    /// [`Error::Io`]. The next open then finishes the creation.
    pub(crate) fn finish(mut self) -> Result<()> {
        self.is_own = false;
        let path = self.root.join(NAME);
        let removed = match fs::remove_file(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            removed => removed,
        };
        removed
            .and_then(|()| File::open(&self.root)?.sync_all())
            .map_err(|error| Error::io("finishing the creation of", &self.root, error))
    }
}

impl Drop for Creation {
    fn drop(&mut self) {
        if self.is_own {
            // The causing error is reported; the next creation removes leftovers.
            let _ = fs::remove_file(self.root.join(NAME));
            let _ = fs::remove_file(self.root.join(UNFINISHED));
            self.created.iter().for_each(|created| drop(fs::remove_dir(created)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_back_and_a_damaged_one_is_refused() {
        let record = Record { matrix: 7, directories: vec!["group0.device0".into(), "/elsewhere/ä".into()] };
        let bytes = record.encode();
        assert_eq!(Record::decode(&bytes), Some(record.clone()));
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Record::decode(&damaged), None, "bit {bit}");
        }
        (0..bytes.len()).for_each(|len| assert_eq!(Record::decode(&bytes[..len]), None));
        let scratch = lodestore_contract::testing::Scratch::on_disk();
        assert_eq!(Record::read(scratch.path()).expect("none"), None);
        record.write(scratch.path()).expect("written");
        assert_eq!(Record::read(scratch.path()).expect("read"), Some(record));
        assert!(may_create_in(scratch.path()).expect("readable"));
        fs::write(scratch.path().join(NAME), &bytes[1..]).expect("damaged");
        assert!(matches!(Record::read(scratch.path()), Err(Error::Foreign { .. })));
    }

    #[test]
    fn a_matrix_is_created_only_in_an_empty_directory_or_over_an_unfinished_creation() {
        let scratch = lodestore_contract::testing::Scratch::on_disk();
        let may = |path: &Path| may_create_in(path).expect("readable");
        assert!(may(scratch.path()) && may(&scratch.store()));
        fs::write(scratch.path().join(UNFINISHED), "cut").expect("a file");
        assert!(may(scratch.path()));
        fs::write(scratch.path().join("other"), "kept").expect("a file");
        assert!(!may(scratch.path()) && !may(&scratch.path().join("other")));
    }
}
