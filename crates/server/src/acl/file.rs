//! The file of users: a line `user NAME RULES` for each one.

use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;

use super::user::{DEFAULT_USER, User};
use super::{Acl, Users};

/// Text of the error without a file, as in Redis.
const NO_FILE: &str = "ERR This Redis instance is not configured to use an ACL file. You may want to specify users via \
                       the ACL SETUSER command and then issue a CONFIG REWRITE (assuming you have a Redis \
                       configuration file set) in order to store users in the Redis configuration.";

/// Longest file of users in bytes.
const FILE_BYTES_MAX: u64 = 64 << 20;

impl Acl {
    /// Replaces all users by those of the file, or none if a line is refused. A user with the same
    /// passwords and permissions stays the same user, so its clients stay connected.
    ///
    /// # Errors
    ///
    /// The text of the reply, with file and line.
    pub(crate) fn load(&self) -> Result<(), String> {
        let path = self.file.as_deref().ok_or(NO_FILE)?;
        let text = read_file(path).map_err(|error| format!("ERR cannot read {}: {error}", path.display()))?;
        let parsed = self.parse_file(path, &text).map_err(|text| {
            format!(
                "ERR {text} WARNING: ACL errors detected, no change to the previously active ACL rules was performed"
            )
        })?;
        let mut users = self.write();
        let mut loaded: Users = parsed;
        loaded.entry(DEFAULT_USER.into()).or_insert_with(|| Arc::new(User::new_default()));
        for (name, user) in &mut loaded {
            self.check_exposure(user)?;
            if let Some(present) = users.get(name).filter(|present| present.is_equivalent(user)) {
                *user = Arc::clone(present);
            }
        }
        *users = loaded;
        self.publish();
        Ok(())
    }

    /// Reads the lines of a file of users.
    ///
    /// # Errors
    ///
    /// A text with the first refused line.
    pub(super) fn parse_file(&self, path: &Path, text: &[u8]) -> Result<Users, String> {
        let mut users = Users::new();
        for (index, line) in text.split(|byte| *byte == b'\n').enumerate() {
            let line = line.trim_ascii();
            if line.is_empty() || line.starts_with(b"#") {
                continue;
            }
            let location = format!("{}:{}", path.display(), index + 1);
            let words =
                line.strip_prefix(b"user ").ok_or_else(|| format!("{location}: the line must begin with 'user'."))?;
            let user = self.parse_user(words).map_err(|error| format!("{location}: {error}."))?;
            if let Some(twice) = users.insert(user.name.clone(), Arc::new(user)) {
                return Err(format!("{location}: the user '{}' is named twice.", twice.name));
            }
        }
        Ok(users)
    }

    /// Writes all users to the file. The file is replaced as one step.
    ///
    /// # Errors
    ///
    /// The text of the reply.
    pub(crate) fn save(&self) -> Result<(), String> {
        let path = self.file.as_deref().ok_or(NO_FILE)?;
        // Two saves at a time would write the same temporary file, so the lock stays held.
        let users = self.write();
        let mut text = Vec::new();
        for user in users.values() {
            text.extend_from_slice(&user.describe());
            text.push(b'\n');
        }
        replace_file(path, &text).map_err(|error| format!("ERR cannot save the users to {}: {error}", path.display()))
    }
}

fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    if std::fs::metadata(path)?.len() > FILE_BYTES_MAX {
        return Err(io::Error::other("the users file is too large"));
    }
    std::fs::read(path)
}

/// Replaces a file by a new one, which only its owner reads. A crash leaves the old file or the new
/// one.
fn replace_file(path: &Path, text: &[u8]) -> io::Result<()> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_string_lossy();
    let temporary = path.with_file_name(format!(".{name}.{}.tmp", std::process::id()));
    let written = write_synced(&temporary, text).and_then(|()| std::fs::rename(&temporary, path));
    if written.is_err() {
        // The first error is the one to report.
        drop(std::fs::remove_file(&temporary));
        return written;
    }
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    std::fs::File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
}

fn write_synced(path: &Path, text: &[u8]) -> io::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(text)?;
    file.sync_all()
}
