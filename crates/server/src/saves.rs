//! `SAVE`, `BGSAVE` and `LASTSAVE`: backups of the store.
//!
//! Acknowledged writes are in the store already. A save is a second copy of them: a verified backup
//! in a new directory within the configured one.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use lodestore::Db;

use crate::error::{CommandError, CommandResult};

/// Prefix of the names of backups.
const NAME_PREFIX: &str = "lodestore-backup-";

/// The state of saves.
#[derive(Debug)]
pub(crate) struct Saves {
    is_running: AtomicBool,
    /// Unix seconds of the last save that succeeded, or of the start of the server.
    last_seconds: AtomicU64,
    is_last_ok: AtomicBool,
    /// Duration of the last save in seconds, or -1.
    last_duration: AtomicI64,
    /// When the running save began.
    begun: Mutex<Option<Instant>>,
    /// Makes the names of backups of one millisecond different.
    next_number: AtomicU64,
}

impl Saves {
    pub(crate) fn new(started_unix_seconds: u64) -> Self {
        Self {
            is_running: AtomicBool::new(false),
            last_seconds: AtomicU64::new(started_unix_seconds),
            is_last_ok: AtomicBool::new(true),
            last_duration: AtomicI64::new(-1),
            begun: Mutex::default(),
            next_number: AtomicU64::new(0),
        }
    }

    pub(crate) fn is_running(&self) -> bool {
        self.is_running.load(Ordering::SeqCst)
    }

    pub(crate) fn last_seconds(&self) -> u64 {
        self.last_seconds.load(Ordering::SeqCst)
    }

    /// Returns `ok` or `err`, as `INFO` shows it.
    pub(crate) fn last_status(&self) -> &'static str {
        if self.is_last_ok.load(Ordering::SeqCst) { "ok" } else { "err" }
    }

    pub(crate) fn last_duration(&self) -> i64 {
        self.last_duration.load(Ordering::SeqCst)
    }

    /// Returns the seconds since the running save began, or -1.
    pub(crate) fn running_seconds(&self) -> i64 {
        let begun = *self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        begun.map_or(-1, |begun| i64::try_from(begun.elapsed().as_secs()).unwrap_or(i64::MAX))
    }

    /// Begins a save. Returns the directory of the backup.
    fn begin(&self, backup_dir: Option<&Path>) -> CommandResult<PathBuf> {
        let dir = backup_dir.ok_or(CommandError::new(
            "ERR no directory for backups is configured: set backup-dir (Redis' name: dir). Acknowledged writes are in \
             the store already",
        ))?;
        if self.is_running.swap(true, Ordering::SeqCst) {
            return Err(CommandError::new("ERR Background save already in progress"));
        }
        *self.begun.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        Ok(dir.join(format!("{NAME_PREFIX}{}-{number}", now.as_millis())))
    }

    /// Makes the backup, and keeps how it ended.
    fn run(&self, db: &Db, target: PathBuf) -> Result<(), lodestore::Error> {
        let result = db.backup(target);
        let begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner).take();
        let seconds = begun.map_or(0, |begun| begun.elapsed().as_secs());
        self.last_duration.store(i64::try_from(seconds).unwrap_or(i64::MAX), Ordering::SeqCst);
        self.is_last_ok.store(result.is_ok(), Ordering::SeqCst);
        if result.is_ok() {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            self.last_seconds.store(now.as_secs(), Ordering::SeqCst);
        }
        self.is_running.store(false, Ordering::SeqCst);
        result.map(drop)
    }

    /// Makes a backup in a new directory within `backup_dir`, on this thread.
    ///
    /// # Errors
    ///
    /// If no directory is configured, if a save runs, or if the backup failed.
    pub(crate) fn save(&self, db: &Db, backup_dir: Option<&Path>) -> CommandResult {
        let target = self.begin(backup_dir)?;
        Ok(self.run(db, target)?)
    }

    /// Makes a backup on a separate thread. The stop of the server does not wait for it: a backup
    /// that the stop interrupts leaves no directory with its name.
    ///
    /// # Errors
    ///
    /// If no directory is configured, if a save runs, or if the system refuses a thread.
    pub(crate) fn save_in_background(self: &Arc<Self>, db: &Db, backup_dir: Option<&Path>) -> CommandResult {
        let target = self.begin(backup_dir)?;
        let saves = Arc::clone(self);
        let db = db.clone();
        let work = move || {
            // `INFO` shows the failure.
            drop(saves.run(&db, target));
        };
        match std::thread::Builder::new().name("bgsave".into()).spawn(work) {
            Ok(_) => Ok(()),
            Err(error) => {
                self.is_running.store(false, Ordering::SeqCst);
                self.is_last_ok.store(false, Ordering::SeqCst);
                Err(CommandError::new(format!("ERR Can't start a thread for the save: {error}")))
            }
        }
    }
}
