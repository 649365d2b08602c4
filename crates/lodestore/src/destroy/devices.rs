//! The files of a matrix of devices (engine `mkvs`), and their removal.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use lodestore_contract::{Error, Result};
use lodestore_media::{NOTE_FILES, Pool, Removal, StoreFile, store_files};
use lodestore_mkvs::Part;

use super::{Destroyed, count_files};
use crate::header;
use crate::matrix::Matrix;
use crate::options::OpenOptions;

/// The files of a matrix in the directory of a device and next to the files of its stores.
const DEVICE_FILES: [&str; 2] = ["label", "label.new"];
/// Maximum bytes of such a file.
const DEVICE_FILE_BYTES_MAX: u64 = 64;

/// Returns the directory of the matrix's own store.
pub(super) fn host_dir(root: &Path) -> PathBuf {
    root.join(Part::Host.directory())
}

/// Returns the files of all stores in the directory of a matrix.
pub(super) fn matrix_files(root: &Path) -> Result<Vec<StoreFile>> {
    let mut found = Vec::new();
    let mut add = |prefix: String, dir: &Path| match store_files(dir) {
        Ok(files) => {
            found.extend(files.into_iter().map(|file| StoreFile { name: format!("{prefix}/{}", file.name), ..file }));
            Ok(())
        }
        Err(Error::Missing { .. }) => Ok(()),
        Err(refused) => Err(refused),
    };
    for name in file_names(root)? {
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

/// Removes a matrix with its devices.
///
/// # Errors
/// As [`destroy`](super::destroy).
pub(super) fn destroy_matrix(root: &Path, removes_devices_elsewhere: bool) -> Result<Destroyed> {
    // Returns the error of a missing matrix.
    header::inspect(root)?;
    let host_dir = host_dir(root);
    let status = Matrix::describe(root, &OpenOptions::new())?;
    let opening = Pool::inspect(&host_dir)?.opening;
    let host = Removal::begin(&host_dir, &[])?;
    if Pool::inspect(&host_dir)?.opening != opening {
        return Err(Error::Locked { path: root.into(), holder: "it opened the store a moment ago".into() });
    }
    let devices: Vec<PathBuf> = status.devices.iter().map(|device| root.join(&device.path)).collect();
    check_root(root, &devices)?;
    if let Some(elsewhere) = devices.iter().find(|device| !is_below(device, root))
        && !removes_devices_elsewhere
    {
        return Err(Error::DeviceElsewhere { path: elsewhere.clone() });
    }
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
    // The host names the devices, so it is removed last.
    removals.push(host);
    let destroyed = count_files(&removals);
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
    // A parent directory used by another program stays.
    let _ = fs::remove_dir(root);
    Ok(destroyed)
}

/// Returns whether a directory is below another one, or does not exist.
fn is_below(dir: &Path, root: &Path) -> bool {
    match (dir.canonicalize(), root.canonicalize()) {
        (Ok(dir), Ok(root)) => dir.starts_with(root),
        (Err(missing), _) => missing.kind() == ErrorKind::NotFound,
        (Ok(_), Err(_)) => false,
    }
}

/// Refuses the directory of a matrix that holds anything but its host and its devices.
fn check_root(root: &Path, devices: &[PathBuf]) -> Result<()> {
    for name in file_names(root)? {
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
    for name in file_names(device)? {
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
        // A directory to which another program has added files stays.
        let _ = fs::remove_dir(dir);
    }
    Ok(())
}

/// Returns the names in a directory; none if there is no directory.
fn file_names(dir: &Path) -> Result<Vec<String>> {
    let io = |refused| Error::io("reading", dir, refused);
    let entries = match fs::read_dir(dir) {
        Err(refused) if matches!(refused.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(vec![]),
        entries => entries.map_err(io)?,
    };
    entries.map(|entry| Ok(entry.map_err(io)?.file_name().to_string_lossy().into_owned())).collect()
}
