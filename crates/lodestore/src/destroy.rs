//! What a store is on its medium without opening it, and its removal.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use lodestore_contract::{Error, Result};
use lodestore_media::{HeaderSummary, NOTE_FILES, POOL_FORMAT, Pool, Removal, StoreFile, store_files, store_holder};
use lodestore_mkvs::Part;

use crate::matrix::{self, Matrix};
use crate::options::OpenOptions;

/// The files of a matrix in the directory of a device and next to the files of its stores.
const DEVICE_FILES: [&str; 2] = ["label", "label.new"];
/// The most bytes of such a file.
const DEVICE_FILE_BYTES_MAX: u64 = 64;

/// What [`info`] read.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Info {
    /// What the store says of itself. Of a matrix, what its host's store says.
    pub header: HeaderSummary,
    /// The version of the pool's format.
    pub pool_format: u32,
    /// The files, named from the store's directory on, sorted by name. Devices of a matrix outside
    /// of its directory are left out.
    pub files: Vec<StoreFile>,
    /// The process that has the store open, as `pid N (command)`. A process in another container may be hidden.
    pub holder: Option<String>,
}

/// Reads what the store in the directory `path` is, without opening it. The store may be in use.
///
/// # Errors
/// [`Error::Missing`]; [`Error::Corrupt`] if the header is damaged; [`Error::NewerFormat`];
/// [`Error::OlderFormat`]; [`Error::Io`].
pub fn info(path: impl AsRef<Path>) -> Result<Info> {
    let path = path.as_ref();
    let header = matrix::inspect(path)?;
    let is_matrix = header.engine == lodestore_mkvs::ENGINE;
    let main = if is_matrix { path.join(Part::Host.directory()) } else { path.into() };
    let holder = store_holder(&main)?;
    let files = if is_matrix { matrix_files(path)? } else { store_files(path)? };
    Ok(Info { header, pool_format: POOL_FORMAT, files, holder })
}

/// Returns the files of all stores in the directory of a matrix.
fn matrix_files(root: &Path) -> Result<Vec<StoreFile>> {
    let mut found = Vec::new();
    let mut add = |prefix: String, dir: &Path| match store_files(dir) {
        Ok(files) => {
            found.extend(files.into_iter().map(|file| StoreFile { name: format!("{prefix}/{}", file.name), ..file }));
            Ok(())
        }
        Err(Error::Missing { .. }) => Ok(()),
        Err(refused) => Err(refused),
    };
    for name in names(root)? {
        let dir = root.join(&name);
        if name == Part::Host.directory() {
            add(name, &dir)?;
            continue;
        }
        for part in [Part::Device, Part::Log] {
            add(format!("{name}/{}", part.directory()), &dir.join(part.directory()))?;
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

/// What [`destroy`] removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Destroyed {
    /// The number of files.
    pub files: u64,
    /// Their length in bytes.
    pub bytes: u64,
}

/// Removes the store in the directory `path`, and the directory. All pairs are lost.
///
/// The store may be damaged. Only files of the store are removed, and only if the directory holds
/// nothing else. Of a matrix, its devices are removed too. A removal that was interrupted can be
/// repeated.
///
/// # Errors
/// Before anything is removed: [`Error::Missing`]; [`Error::Locked`]; [`Error::Foreign`] with a
/// file that is not the store's; [`Error::Corrupt`] if nothing says that the files are a store's;
/// [`Error::NewerFormat`]. [`Error::Io`].
pub fn destroy(path: impl AsRef<Path>) -> Result<Destroyed> {
    let path = path.as_ref();
    match Removal::begin(path, &[]) {
        Ok(removal) => {
            let destroyed = sum(std::slice::from_ref(&removal));
            removal.finish()?;
            Ok(destroyed)
        }
        Err(Error::Missing { .. }) => destroy_matrix(path),
        Err(refused) => Err(refused),
    }
}

fn sum(removals: &[Removal]) -> Destroyed {
    let files = || removals.iter().flat_map(Removal::files);
    Destroyed { files: files().count() as u64, bytes: files().map(|file| file.bytes).sum() }
}

fn destroy_matrix(root: &Path) -> Result<Destroyed> {
    // Says what is missing where there is no matrix either.
    matrix::inspect(root)?;
    let host_dir = root.join(Part::Host.directory());
    let status = Matrix::describe(root, &OpenOptions::new())?;
    let opening = Pool::inspect(&host_dir)?.opening;
    let host = Removal::begin(&host_dir, &[])?;
    if Pool::inspect(&host_dir)?.opening != opening {
        return Err(Error::Locked { path: root.into(), holder: "which had it open a moment ago".into() });
    }
    let devices: Vec<PathBuf> = status.devices.iter().map(|device| root.join(&device.path)).collect();
    check_root(root, &devices)?;
    let mut removals = Vec::new();
    for device in &devices {
        check_device(device)?;
        for part in [Part::Device, Part::Log] {
            match Removal::begin(&device.join(part.directory()), &DEVICE_FILES) {
                Ok(removal) => removals.push(removal),
                Err(Error::Missing { .. }) => {}
                Err(refused) => return Err(refused),
            }
        }
    }
    // The host names the devices: it goes last.
    removals.push(host);
    let destroyed = sum(&removals);
    let host = removals.pop();
    removals.into_iter().try_for_each(Removal::finish)?;
    for device in &devices {
        remove_device(device)?;
    }
    host.map_or(Ok(()), Removal::finish)?;
    for path in NOTE_FILES.map(|name| root.join(name)) {
        match fs::remove_file(&path) {
            Err(refused) if refused.kind() != ErrorKind::NotFound => return Err(Error::io("removing", path, refused)),
            _ => {}
        }
    }
    // A directory above that another program uses stays.
    let _ = fs::remove_dir(root);
    Ok(destroyed)
}

/// Refuses the directory of a matrix that holds anything but its host and its devices.
fn check_root(root: &Path, devices: &[PathBuf]) -> Result<()> {
    for name in names(root)? {
        let path = root.join(&name);
        let is_note = NOTE_FILES.contains(&name.as_str()) && path.symlink_metadata().is_ok_and(|file| file.is_file());
        if name != Part::Host.directory() && !is_note && !devices.iter().any(|device| device.starts_with(&path)) {
            let what = "it is not a directory of the matrix".into();
            return Err(Error::Foreign { path, what });
        }
    }
    Ok(())
}

/// Refuses the directory of a device that holds anything but its stores and its label.
fn check_device(device: &Path) -> Result<()> {
    for name in names(device)? {
        let path = device.join(&name);
        let is_part = [Part::Device, Part::Log].iter().any(|part| part.directory() == name);
        let is_label = DEVICE_FILES.contains(&name.as_str())
            && path.symlink_metadata().is_ok_and(|file| file.is_file() && file.len() <= DEVICE_FILE_BYTES_MAX);
        if !is_part && !is_label {
            let what = "it is not a file of the matrix".into();
            return Err(Error::Foreign { path, what });
        }
    }
    Ok(())
}

/// Removes the label of a device whose stores are removed, and its directory.
fn remove_device(device: &Path) -> Result<()> {
    let parts = [Part::Device, Part::Log].map(|part| device.join(part.directory()));
    for dir in parts.iter().map(PathBuf::as_path).chain([device]) {
        for path in DEVICE_FILES.map(|name| dir.join(name)) {
            match fs::remove_file(&path) {
                Err(refused) if !matches!(refused.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                    return Err(Error::io("removing", path, refused));
                }
                _ => {}
            }
        }
        // A directory in which another program has put something meanwhile stays.
        let _ = fs::remove_dir(dir);
    }
    Ok(())
}

/// Returns the names in a directory; none if there is no directory.
fn names(dir: &Path) -> Result<Vec<String>> {
    let io = |refused| Error::io("reading", dir, refused);
    let entries = match fs::read_dir(dir) {
        Err(refused) if matches!(refused.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(vec![]),
        entries => entries.map_err(io)?,
    };
    entries.map(|entry| Ok(entry.map_err(io)?.file_name().to_string_lossy().into_owned())).collect()
}
