//! Backups of an open handle.

use std::path::Path;

use lodestore_contract::Result;

use super::Db;
use crate::backup::{BackupInfo, BackupProgress, backup};

/// Backups.
impl Db {
    /// Makes a backup of the store in the directory `dir`, which must not exist or be empty. Reads
    /// and writes go on. The backup has all keyspaces as they are at one moment of this call.
    ///
    /// A backup is a store that the ordinary open accepts. [`restore`](crate::backup::restore)
    /// makes a new store of it and leaves the backup as it is.
    ///
    /// ```
    /// # fn main() -> lodestore::Result<()> {
    /// # let dir = lodestore_contract::testing::Scratch::on_disk();
    /// # let dir = dir.path();
    /// let db = lodestore::Db::builder(dir.join("state")).capacity(64 << 20).open()?;
    /// db.put("user:17", "Ada")?;
    /// let info = db.backup(dir.join("backup"))?;
    /// assert_eq!(info.pairs, 1);
    /// db.close()?;
    ///
    /// lodestore::backup::restore(dir.join("backup"), dir.join("restored"), &mut |_| {})?;
    /// let restored = lodestore::Db::builder(dir.join("restored")).create(false).open()?;
    /// assert_eq!(restored.get("user:17")?.expect("a value"), "Ada");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`lodestore::backup::backup`](crate::backup::backup). After an error there is no
    /// directory `dir`.
    pub fn backup(&self, dir: impl AsRef<Path>) -> Result<BackupInfo> {
        self.backup_with(dir, &mut |_| {})
    }

    /// As [`Db::backup`]. `progress` is called often.
    ///
    /// # Errors
    /// As [`Db::backup`].
    pub fn backup_with(&self, dir: impl AsRef<Path>, progress: &mut dyn FnMut(BackupProgress)) -> Result<BackupInfo> {
        backup(self.store(), dir, progress)
    }
}
