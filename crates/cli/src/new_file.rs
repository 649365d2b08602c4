//! A file that appears under its name when it is whole.
//!
//! The bytes go to a file with a temporary name in the same directory. [`NewFile::finish`] syncs
//! and renames it. A new file that is dropped earlier is removed.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::failure::{Failure, Outcome, file_failure};

/// Bytes per write.
const BUFFER_BYTES: usize = 256 << 10;
/// Maximum attempts to find an unused name.
const NAME_ATTEMPTS: u32 = 100;

/// A file that is being written.
#[derive(Debug)]
pub struct NewFile {
    target: PathBuf,
    unfinished: PathBuf,
    replaces: bool,
    /// `None` after the end.
    writer: Option<BufWriter<File>>,
}

impl NewFile {
    /// Creates the unfinished file. `replaces` says whether a file at `target` may be replaced. A
    /// link or a device is never replaced.
    ///
    /// # Errors
    /// [`Failure::Exists`]; [`Failure::File`]; [`Failure::Other`] for a target that is no file.
    pub fn create(target: &Path, replaces: bool) -> Outcome<Self> {
        let failed = file_failure("creating", target);
        match target.symlink_metadata() {
            Ok(found) if found.is_dir() => return Err(failed(io::ErrorKind::IsADirectory.into())),
            Ok(_) if !replaces => return Err(Failure::Exists { path: target.into() }),
            Ok(found) if !found.is_file() => {
                let shown = target.display();
                let what = "is not a regular file: choose another name, or leave out -o and redirect the output";
                return Err(Failure::Other(format!("{shown} {what}")));
            }
            _ => {}
        }
        let name = target.file_name().ok_or_else(|| failed(io::ErrorKind::InvalidInput.into()))?;
        for attempt in 0..NAME_ATTEMPTS {
            let mut unfinished_name = std::ffi::OsString::from(".");
            unfinished_name.push(name);
            unfinished_name.push(format!(".{}-{attempt}.part", std::process::id()));
            let unfinished = target.with_file_name(unfinished_name);
            match OpenOptions::new().write(true).create_new(true).open(&unfinished) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                opened => {
                    let writer = Some(BufWriter::with_capacity(BUFFER_BYTES, opened.map_err(failed)?));
                    return Ok(Self { target: target.into(), unfinished, replaces, writer });
                }
            }
        }
        Err(failed(io::ErrorKind::AlreadyExists.into()))
    }

    /// Returns the final name of the file.
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// Makes the file durable and gives it its name.
    ///
    /// # Errors
    /// [`Failure::Exists`] if another program has made a file of this name meanwhile;
    /// [`Failure::File`]. The unfinished file is removed then.
    pub fn finish(mut self) -> Outcome {
        let path = self.target.clone();
        let failed = file_failure("writing", &path);
        let Some(writer) = self.writer.take() else { return Ok(()) };
        let file = writer.into_inner().map_err(|error| failed(error.into_error()));
        let done = file.and_then(|file| file.sync_all().map_err(&failed)).and_then(|()| self.rename());
        if done.is_err() {
            self.remove();
        }
        done?;
        sync_name(&path)
    }

    fn rename(&self) -> Outcome {
        let failed = file_failure("naming", &self.target);
        if self.replaces {
            return fs::rename(&self.unfinished, &self.target).map_err(failed);
        }
        // A hard link never replaces a file.
        match fs::hard_link(&self.unfinished, &self.target) {
            Ok(()) => {
                self.remove();
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Err(Failure::Exists { path: self.target.clone() })
            }
            // The file system has no hard links.
            Err(_) if self.target.symlink_metadata().is_ok() => Err(Failure::Exists { path: self.target.clone() }),
            Err(_) => fs::rename(&self.unfinished, &self.target).map_err(failed),
        }
    }

    fn remove(&self) {
        // A failed removal is not reported: the first failure is.
        let _ = fs::remove_file(&self.unfinished);
    }
}

/// Makes a new name durable.
///
/// # Errors
/// [`Failure::File`].
fn sync_name(path: &Path) -> Outcome {
    match File::open(parent(path)).and_then(|dir| dir.sync_all()) {
        // A directory that cannot be read, or a file system without directory syncs, is accepted.
        Err(error) if !matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::InvalidInput) => {
            Err(file_failure("syncing the directory of", path)(error))
        }
        _ => Ok(()),
    }
}

/// Returns the directory of a file.
fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.writer.as_mut().map_or(Ok(0), |writer| writer.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.as_mut().map_or(Ok(()), Write::flush)
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if self.writer.is_some() {
            self.remove();
        }
    }
}
