//! Backups of stores in use, and restores. docs/backup.md has the guarantees.

mod account;
mod file;
mod staging;
mod target;

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use lodestore_contract::{Error, Result, Store};

use account::Account;
pub(crate) use file::BACKUP_FILE;
pub use file::BackupInfo;
use file::{BackupFile, refusal};
use staging::{Staging, StoreLocks};
use target::{FinishedTarget, Target};

use crate::made::nearest_directory;
use crate::options::OpenOptions;

/// The parts that the program `lodestore` uses for its own copies. They may change in any release.
#[doc(hidden)]
pub mod parts {
    pub use super::account::Account;
    pub use super::staging::Staging;
}

/// The phase of a backup or a restore.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum BackupPhase {
    /// Pairs, or files, are copied.
    Copying,
    /// The copy is read back and compared.
    Verifying,
}

/// The progress of a backup or a restore.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackupProgress {
    /// The present phase.
    pub phase: BackupPhase,
    /// Pairs done in this phase. A restore copies files, and reports no pairs for them.
    pub pairs: u64,
    /// Approximate number of all pairs.
    pub total: u64,
}

/// Makes a backup of an open store in the directory `dir`, which must not exist or be empty.
///
/// The backup is the store as it is at one moment of this call, with its batches whole and its
/// expiries. A backup is a store of the same engine, durability and capacity, which the ordinary
/// open accepts. Reads and writes of the source continue. The backup is read back and compared
/// before it gets its name. After an error or a kill there is no directory `dir`.
///
/// `progress` is called often.
///
/// # Errors
/// [`Error::TargetExists`]; [`Error::BackupNoRoom`]; [`Error::Corrupt`] if a pair of the source is
/// damaged; [`Error::Backup`] if the backup differs when it is read back; [`Error::Unfinished`] if
/// more keys change than the copy can follow; [`Error::TooFewDevices`] if devices of a `mkvs` store
/// are missing, or a write of it is undecided; [`Error::DurabilityRefused`] if the medium under
/// `dir` does not give the durability of the source; [`Error::Io`].
pub fn backup(
    store: &dyn Store,
    dir: impl AsRef<Path>,
    progress: &mut dyn FnMut(BackupProgress),
) -> Result<BackupInfo> {
    let dir = dir.as_ref();
    check_source(store)?;
    let staging = Staging::begin(dir)?;
    let content = staging.content();
    let copied = Target::create(&content, store, progress).and_then(|mut target| {
        store.copy_all(&mut target)?;
        target.finish()
    });
    let FinishedTarget { account, raise } = copied.map_err(|error| target::replace_path(error, dir))?;
    let mut options = OpenOptions::new().engine(store.engine());
    if let Some(durability) = raise {
        options = options.durability(durability);
    }
    verify_copy(&content, &options, &account, progress)?.ok_or_else(|| {
        refusal(dir, "the copy differs from the store: check the medium of the backup, and try again")
    })?;
    let info = BackupInfo {
        engine: store.engine().into(),
        source: store.identity(),
        time_millis: account.begun_millis,
        version: env!("CARGO_PKG_VERSION").into(),
        pairs: account.pairs(),
    };
    let file = BackupFile { info, account };
    let path = content.join(BACKUP_FILE);
    fs::write(&path, file.encode()).map_err(|error| Error::io("writing", &path, error))?;
    staging.finish()?;
    Ok(file.info)
}

/// Refuses a store whose recovery found damage: the backup would silently lack what a salvage left
/// out.
///
/// # Errors
///
/// [`Error::Corrupt`]; those of the recovery.
fn check_source(store: &dyn Store) -> Result<()> {
    store.wait_recovered()?;
    match store.stats().recovery.corrupt {
        0 => Ok(()),
        found => {
            let what = format!(
                "the recovery found {found} damaged places, so pairs may be missing, and no backup was made: verify \
                 the store, export the readable pairs, and import the export into a new store"
            );
            Err(Error::corrupt("the store", what))
        }
    }
}

/// Makes a store in the directory `target` from the backup in the directory `backup`. `target` must
/// not exist or be empty. The backup is left as it is.
///
/// The new store is read and compared with the file `BACKUP` before it gets its name. After an
/// error or a kill there is no directory `target`.
///
/// # Errors
/// [`Error::Missing`]; [`Error::Backup`] if the directory is no backup, its file `BACKUP` is
/// damaged, or its pairs are not those of the backup any more; [`Error::Locked`] if the backup is
/// open as a store; [`Error::TargetExists`]; [`Error::Corrupt`] if the backup is damaged;
/// [`Error::DurabilityRefused`] and [`Error::WeakerMedium`] if the medium under `target` does not
/// give its durability; [`Error::Io`].
pub fn restore(
    backup: impl AsRef<Path>,
    target: impl AsRef<Path>,
    progress: &mut dyn FnMut(BackupProgress),
) -> Result<BackupInfo> {
    let (backup, target) = (backup.as_ref(), target.as_ref());
    let file = BackupFile::load(backup)?;
    if is_below(target, backup) {
        return Err(refusal(backup, "the target is in the directory of the backup: choose another target"));
    }
    // Held until the end, so that no process opens the backup and writes to it while its files are
    // copied.
    let _locks = StoreLocks::acquire(backup)?;
    let staging = Staging::begin(target)?;
    let content = staging.content();
    progress(BackupProgress { phase: BackupPhase::Copying, pairs: 0, total: file.info.pairs });
    copy_directory(backup, &content, true)?;
    verify_copy(&content, &OpenOptions::new().engine(&file.info.engine), &file.account, progress)?.ok_or_else(
        || {
            let what = "the pairs differ from the file BACKUP, so the backup was changed or is damaged: use another \
                        backup, or copy the directory and open the copy as a store";
            refusal(backup, what)
        },
    )?;
    staging.finish()?;
    Ok(file.info)
}

/// Whether `path`, which need not exist, is in the directory `above`.
fn is_below(path: &Path, above: &Path) -> bool {
    let real = |path: &Path| nearest_directory(path).canonicalize().ok();
    matches!((real(path), real(above)), (Some(path), Some(above)) if path.starts_with(&above))
}

/// Opens a copy, and compares its pairs with `expected`. Returns `None` if they differ.
fn verify_copy(
    directory: &Path,
    options: &OpenOptions,
    expected: &Account,
    progress: &mut dyn FnMut(BackupProgress),
) -> Result<Option<()>> {
    let store = crate::store::open(directory, options)?;
    let total = expected.pairs();
    let found = Account::of_store(&*store, expected.begun_millis, &mut |pairs| {
        progress(BackupProgress { phase: BackupPhase::Verifying, pairs, total });
    });
    // A close before the end of a recovery would leave the store as after a crash.
    let recovered = store.wait_recovered();
    let closed = store.close();
    let found = found?;
    recovered.and(closed)?;
    Ok(expected.agrees_with(&found).then_some(()))
}

/// Copies the files of a directory and of its subdirectories, except the file `BACKUP` at the top.
fn copy_directory(from: &Path, to: &Path, is_top: bool) -> Result<()> {
    let io = |error: io::Error| Error::io("copying", from, error);
    // The mode of all store directories.
    DirBuilder::new().mode(0o700).create(to).map_err(|error| Error::io("making", to, error))?;
    for entry in fs::read_dir(from).map_err(io)? {
        let entry = entry.map_err(io)?;
        if is_top && entry.file_name() == BACKUP_FILE {
            continue;
        }
        let (source, copy) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type().map_err(io)?.is_dir() {
            copy_directory(&source, &copy, false)?;
        } else {
            fs::copy(&source, &copy).map_err(|error| Error::io("copying", &source, error))?;
        }
    }
    Ok(())
}
