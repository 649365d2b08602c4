//! The error type of every engine. Each text is one line and states the remedy.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use crate::bounds::{BATCH_OPS_MAX, VALUE_MAX};
use crate::durability::Durability;

/// Shorthand for results of this workspace.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The keys that a result about all keys (a walk, or a number of keys) lacks because of damage
/// ([`Error::Corrupt`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum HiddenKeys {
    /// None except the keys of the damaged record.
    #[default]
    None,
    /// The keys of the records that the recovery has left out
    /// ([`RecoveryState::left_out`](crate::RecoveryState::left_out)).
    LeftOut,
    /// Any number: an index is damaged.
    Unknown,
}

/// Why an operation was refused.
///
/// A refused write has changed nothing, with three exceptions. After [`Error::Poisoned`] and
/// [`Error::Io`], the next open may find the write applied or not. After [`Error::TooFewDevices`]
/// with `may_stand`, a later read may find the write applied or not.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The key has 0 bytes, or more than `max`.
    KeyLength {
        /// Length given, in bytes.
        len: usize,
        /// Maximum bytes of a key in this keyspace: [`limits::KEY_MAX`](crate::limits::KEY_MAX), or
        /// 65,529 in a named keyspace.
        max: usize,
    },
    /// The value has more than [`limits::VALUE_MAX`](crate::limits::VALUE_MAX) bytes.
    ValueLength {
        /// Length given, in bytes.
        len: usize,
    },
    /// The batch has more than [`limits::BATCH_OPS_MAX`](crate::limits::BATCH_OPS_MAX) operations.
    BatchLength {
        /// Operations given.
        ops: usize,
    },
    /// The write does not fit. Reads and deletes still succeed. For a batch, the store's log may be
    /// too small for all of its operations together ([`Store::write`](crate::Store::write)).
    /// Smaller batches then succeed.
    Full {
        /// Bytes needed.
        needed: u64,
        /// Capacity of the store, in bytes.
        capacity: u64,
    },
    /// The medium lacks the space that a new store needs.
    NoRoom {
        /// Path of the new store.
        path: PathBuf,
        /// Bytes needed.
        needed: u64,
        /// Free bytes on the medium.
        free: u64,
    },
    /// The index accepts no more keys like this one: too many have the same hash bits. Reads and
    /// deletes still succeed, and so do writes of most other keys.
    IndexFull {
        /// Hash bits that the index has used.
        depth: u32,
        /// The remedy, which names options of the engine.
        instead: &'static str,
    },
    /// Bytes on the medium cannot be the bytes that were written.
    Corrupt {
        /// File and offset, or structure and index.
        place: String,
        /// Description of the damage.
        what: String,
        /// The keys that a result about all keys lacks because of the damage.
        hidden: HiddenKeys,
    },
    /// The operating system refused a call.
    Io {
        /// The operation that failed.
        doing: &'static str,
        /// The path concerned.
        path: PathBuf,
        /// The system's own error.
        source: io::Error,
    },
    /// The operating system refused to start a thread that the store requires.
    ThreadRefused {
        /// The thread's name.
        name: String,
        /// The system's own error.
        source: io::Error,
    },
    /// Another process, or another handle of this process, holds the store.
    Locked {
        /// The store's directory.
        path: PathBuf,
        /// The holder that the lock file names. The text begins with [`Error::OWN_PROCESS`] if this
        /// process is the holder.
        holder: String,
    },
    /// There is no store at this path.
    Missing {
        /// The requested path.
        path: PathBuf,
        /// Why no store can be created there either. `None` if one can.
        obstacle: Option<String>,
    },
    /// A store, or something else, already exists at this path.
    Exists {
        /// The requested path.
        path: PathBuf,
        /// Why the path cannot be opened as a store either. `None` if it may be opened.
        obstacle: Option<String>,
    },
    /// The target of a backup, a restore or a conversion exists, and is not an empty directory.
    TargetExists {
        /// The target.
        path: PathBuf,
    },
    /// The target of a backup, a restore or a conversion is the root of a file system. A new
    /// directory cannot take its place.
    TargetIsMount {
        /// The target.
        path: PathBuf,
    },
    /// A foreign file exists where the store creates its own files. The file is left unchanged.
    Foreign {
        /// The file.
        path: PathBuf,
        /// Why the file does not belong to the store.
        what: String,
    },
    /// Another engine created the store.
    WrongEngine {
        /// The engine that created the store.
        found: String,
        /// The engine that tried to open the store.
        asked: String,
    },
    /// The engine is not compiled into this build of the library.
    EngineNotBuilt {
        /// The requested engine, or the engine that created the store.
        engine: String,
        /// The cargo feature of the crate `lodestore` that compiles the engine.
        feature: &'static str,
    },
    /// The store was created with a mode that is not compiled into this build of the library.
    ModeNotBuilt {
        /// The engine that created the store.
        engine: &'static str,
        /// The mode, as an option and its value: `wal=on`.
        mode: String,
        /// The cargo feature of the crate `lodestore` that compiles the mode.
        feature: &'static str,
    },
    /// The store has a newer format than this program supports.
    NewerFormat {
        /// The part with the version: `pool`, or an engine's name.
        part: String,
        /// Version found.
        found: u32,
        /// Newest supported version.
        known: u32,
    },
    /// The store has an older format, which this program no longer reads.
    OlderFormat {
        /// The part with the version: an engine's name, or a part of its format.
        part: String,
        /// Version found.
        found: u32,
        /// Oldest supported version.
        oldest: u32,
    },
    /// The medium does not support the requested durability.
    DurabilityRefused {
        /// The requested durability.
        asked: Durability,
        /// The medium, and why it does not support the durability.
        medium: String,
        /// The remedy.
        instead: String,
    },
    /// A file of the store is on a medium with weaker durability than the medium of the store's
    /// first region.
    WeakerMedium {
        /// The file.
        path: PathBuf,
        /// The medium of the file.
        found: String,
        /// The weakest accepted medium.
        needed: String,
    },
    /// Another process opened the store, and this process inherited it by a fork.
    ForeignProcess,
    /// The machine stopped while the store was open, and its writes survive only the process.
    MachineRestarted {
        /// The store's directory.
        path: PathBuf,
    },
    /// The engine does not support this operation.
    Unsupported {
        /// The engine asked.
        engine: &'static str,
        /// The operation or option.
        what: String,
        /// The engine or call that supports it.
        instead: &'static str,
    },
    /// The option does not exist, or does not accept the value.
    InvalidOption {
        /// Its name.
        name: String,
        /// The value given.
        value: String,
        /// The values that the option accepts.
        why: String,
    },
    /// The store refuses writes because of a failed sync, a failed write to its file, or a panic in
    /// the middle of a write.
    Poisoned {
        /// The first failure.
        cause: String,
    },
    /// A write, or a snapshot, would exceed the DRAM budget of the store's structures. Reads and
    /// deletes still succeed, and so do updates in engines whose updates need no DRAM.
    DramBudget {
        /// Bytes in use.
        used: u64,
        /// Bytes allowed.
        budget: u64,
    },
    /// Requested work did not finish in its time. Completed work is kept. The store continues, and
    /// so does the rest of the work in the background.
    Unfinished {
        /// The unfinished operation.
        doing: &'static str,
        /// Time spent on the operation.
        after: Duration,
        /// The obstacle, and the remedy.
        instead: &'static str,
    },
    /// A group has too few devices present, or active, for the operation. Earlier acknowledged
    /// writes are unaffected.
    TooFewDevices {
        /// The group, from 0.
        group: usize,
        /// Usable devices of the group.
        live: usize,
        /// Required devices.
        needed: usize,
        /// Whether the write is in doubt: some devices have it. A later acknowledged write of the
        /// group, or the next open of the store, resolves it; no read returns its key before.
        /// `false`: nothing was done.
        may_stand: bool,
    },
    /// The name of a keyspace has 0 bytes, or more than 255.
    KeyspaceName {
        /// Length given, in bytes.
        len: usize,
    },
    /// A read-only handle was requested for a keyspace that does not exist.
    KeyspaceMissing {
        /// The keyspace's name.
        name: String,
    },
    /// The keyspace of this handle was dropped.
    KeyspaceDropped {
        /// The keyspace's name.
        name: String,
    },
    /// Other writers changed data that a transaction read, or a requirement of a batch was not met.
    /// Nothing was written.
    Conflict {
        /// Number of times the transaction ran.
        tries: u32,
    },
    /// A transaction aborted itself. Nothing was written.
    Aborted {
        /// The caller's reason.
        reason: String,
    },
    /// The store has assigned all 2^32 keyspace ids.
    KeyspacesExhausted,
    /// A handle of a keyspace was used with a store other than its own.
    OtherStore {
        /// The keyspace's name; empty for the default keyspace.
        keyspace: String,
    },
    /// The store was opened read-only.
    ReadOnly,
    /// A matrix has a device outside its own directory, and removal of such devices was not
    /// requested.
    DeviceElsewhere {
        /// The directory of the device.
        path: PathBuf,
    },
    /// The medium of a backup lacks the space for the backup. No backup was made.
    BackupNoRoom {
        /// The directory of the backup.
        path: PathBuf,
        /// Bytes that did not fit.
        needed: u64,
    },
    /// A directory is not a complete backup, or a backup could not be made in it.
    Backup {
        /// The directory of the backup.
        path: PathBuf,
        /// The fault, and the remedy.
        what: String,
    },
    /// The store was closed.
    Closed,
}

impl Error {
    /// The beginning of the holder's text in [`Error::Locked`] if this process holds the store.
    pub const OWN_PROCESS: &'static str = "this process";

    /// Returns an [`Error::Missing`] for a path at which a store can be created.
    pub fn missing(path: impl Into<PathBuf>) -> Self {
        Self::Missing { path: path.into(), obstacle: None }
    }

    /// Returns an [`Error::Exists`] for a path that may be opened.
    pub fn exists(path: impl Into<PathBuf>) -> Self {
        Self::Exists { path: path.into(), obstacle: None }
    }

    /// Returns an [`Error::Io`] for this path.
    pub fn io(doing: &'static str, path: impl Into<PathBuf>, source: io::Error) -> Self {
        Self::Io { doing, path: path.into(), source }
    }

    /// Returns an [`Error::Corrupt`] for this place, which hides no other keys.
    pub fn corrupt(place: impl Into<String>, what: impl Into<String>) -> Self {
        Self::hiding(place, what, HiddenKeys::None)
    }

    /// Returns an [`Error::Corrupt`] for this place. A result about all keys lacks the keys
    /// `hidden`.
    pub fn hiding(place: impl Into<String>, what: impl Into<String>, hidden: HiddenKeys) -> Self {
        Self::Corrupt { place: place.into(), what: what.into(), hidden }
    }

    /// Returns whether a write was refused for lack of space, in the store or in memory.
    pub fn is_for_space(&self) -> bool {
        matches!(self, Self::Full { .. } | Self::IndexFull { .. } | Self::DramBudget { .. })
    }

    /// Returns an [`Error::TooFewDevices`] after which nothing was done.
    pub fn too_few_devices(group: usize, live: usize, needed: usize) -> Self {
        Self::TooFewDevices { group, live, needed, may_stand: false }
    }
}

/// Returns a short remedy for a refusal by the operating system.
pub fn io_advice(refusal: &io::Error) -> &'static str {
    use io::ErrorKind as Kind;
    // ENFILE and EMFILE, which have no name in the standard library.
    if let Some(23 | 24) = refusal.raw_os_error() {
        return "close other files, or raise the limit of open files (ulimit -n)";
    }
    match refusal.kind() {
        Kind::PermissionDenied => "give your user access to the path (chmod, chown), or choose another path",
        Kind::StorageFull | Kind::QuotaExceeded => "free space on the medium, or choose another medium",
        Kind::FileTooLarge => "raise the limit of file sizes (ulimit -f)",
        Kind::ReadOnlyFilesystem => "mount the file system for writing, or choose another path",
        Kind::OutOfMemory => "free memory, or raise the memory limits (ulimit -v, vm.max_map_count)",
        Kind::NotFound => "check the path, and create its parent directories",
        Kind::AlreadyExists | Kind::NotADirectory | Kind::IsADirectory | Kind::InvalidFilename => "choose another path",
        Kind::Interrupted | Kind::WouldBlock | Kind::TimedOut | Kind::ResourceBusy => "try again",
        Kind::Unsupported => "use a file system that supports this, such as tmpfs, ext4 or xfs",
        Kind::BrokenPipe => "keep the program that reads the output running",
        Kind::InvalidData | Kind::UnexpectedEof => "check the input",
        _ if refusal.raw_os_error().is_none() => "try again",
        _ => "check the medium and the system log, then try again",
    }
}

impl Error {
    /// Writes the texts of errors that only a creation or an open returns.
    #[expect(clippy::too_many_lines, reason = "one arm for each variant")]
    fn fmt_opening(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRoom { path, needed, free } => write!(
                f,
                "a new store at {} needs {needed} bytes, and its medium has {free} free: free space, choose another \
                 medium, or create a smaller store (`Builder::capacity`, or `Builder::set(\"region\", ..)` for a \
                 small start that grows)",
                path.display()
            ),
            Self::Locked { path, holder } if holder.starts_with(Self::OWN_PROCESS) => {
                write!(f, "{} is already open in this process: clone that `Db`", path.display())
            }
            Self::Locked { path, holder } => write!(
                f,
                "{} is open in another process ({holder}); close it there, or use another store",
                path.display()
            ),
            Self::Missing { path, obstacle: Some(obstacle) } | Self::Exists { path, obstacle: Some(obstacle) } => {
                write!(
                    f,
                    "{} holds no store ({obstacle}): choose an empty directory, or restore all files of the store from one copy",
                    path.display()
                )
            }
            Self::Missing { path, obstacle: None } => {
                write!(f, "no store at {}: create one with `Db::open`", path.display())
            }
            Self::Exists { path, obstacle: None } => {
                write!(f, "{} already exists: open it, or choose another path", path.display())
            }
            Self::TargetExists { path } => {
                write!(f, "{} already exists: choose a path that does not exist, or an empty directory", path.display())
            }
            Self::TargetIsMount { path } => {
                write!(f, "{} is the root of a file system: choose a new directory below it", path.display())
            }
            Self::Foreign { path, what } => write!(
                f,
                "{} does not belong to this store ({what}), and its name is reserved for the store: move it out of \
                 the directory and try again",
                path.display()
            ),
            Self::WrongEngine { found, asked } => {
                write!(f, "this store was created by engine {found}, not {asked}: open it with {found}")
            }
            Self::EngineNotBuilt { engine, feature } => write!(
                f,
                "engine {engine} is not compiled into this build: enable the feature `{feature}` of the crate lodestore"
            ),
            Self::ModeNotBuilt { engine, mode, feature } => write!(
                f,
                "this store of engine {engine} was created with {mode}, a mode that is not compiled into this build: \
                 enable the feature `{feature}` of the crate lodestore"
            ),
            Self::NewerFormat { part, found, known } => write!(
                f,
                "the {part} format of this store has version {found}, and this program supports no version above \
                 {known}: use a newer lodestore"
            ),
            Self::OlderFormat { part, found, oldest } => write!(
                f,
                "the {part} format of this store has version {found}, and this program supports no version below \
                 {oldest}: export the store with the lodestore that created it, and import the export into a new \
                 store"
            ),
            Self::WeakerMedium { path, found, needed } => write!(
                f,
                "{} is on {found}, which is less durable than {needed}, the medium of the store: move all files of \
                 the store to one medium of that kind, restore the attributes of its directory (for dax: `chattr \
                 +x`), and open the store again",
                path.display()
            ),
            Self::MachineRestarted { path } => write!(
                f,
                "{}: the machine restarted while a store with durability process was open, so the newest writes may \
                 be torn; salvage it with `Builder::salvage(true)`, or restore it from a backup",
                path.display()
            ),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Error {
    #[expect(clippy::too_many_lines, reason = "one arm for each variant")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::KeyLength { len, max } => write!(f, "the key has {len} bytes: use 1 to {max} bytes"),
            Self::ValueLength { len } => {
                write!(f, "the value has {len} bytes: use at most {VALUE_MAX} bytes, or split it over several keys")
            }
            Self::BatchLength { ops } => {
                write!(
                    f,
                    "the batch has {ops} operations: use at most {BATCH_OPS_MAX}, or split it into several batches"
                )
            }
            Self::Full { needed, capacity } => write!(
                f,
                "the store is full: {needed} more bytes do not fit into its capacity of {capacity} bytes or on its \
                 medium; delete keys, write smaller batches, free space on the medium, or create a larger store and \
                 import the data"
            ),
            Self::IndexFull { depth, instead } => write!(
                f,
                "the index has no space for this key, because too many keys have the same {depth} hash bits: {instead}"
            ),
            Self::Corrupt { place, what, .. } => {
                write!(
                    f,
                    "corrupt data at {place}: {what}; run `Db::verify` for a list of all damage (opened with \
                     `Builder::salvage(true)` if the open is refused), and restore the listed data from a backup"
                )
            }
            Self::Io { doing, path, source } => {
                write!(f, "{doing} {}: {source}; {}", path.display(), io_advice(source))
            }
            Self::ThreadRefused { name, source } => write!(
                f,
                "thread {name} cannot be started: {source}; raise the limit of threads (ulimit -u, or the \
                 container's pids limit), or end other processes"
            ),
            Self::DurabilityRefused { asked, medium, instead } => {
                write!(f, "durability {asked} is not available on {medium}: {instead}")
            }
            Self::Unsupported { engine, what, instead } => {
                write!(f, "engine {engine} does not support {what}: {instead}")
            }
            Self::InvalidOption { name, value, why } => write!(f, "option {name}={value}: {why}"),
            Self::Poisoned { cause } => {
                write!(
                    f,
                    "the store refuses writes after a failure ({cause}): close the store, repair the medium, and \
                     open the store again"
                )
            }
            Self::DramBudget { used, budget } => write!(
                f,
                "the operation would exceed the DRAM budget: {used} of {budget} bytes are in use; delete keys, drop \
                 snapshots, or open the store with a larger budget"
            ),
            Self::Unfinished { doing, after, instead } => {
                write!(f, "{doing} did not finish within {} s: {instead}", after.as_secs())
            }
            Self::TooFewDevices { group, live, needed, may_stand } => {
                let what = if *may_stand { " (the write is in doubt: read the key later)" } else { "" };
                write!(
                    f,
                    "group {group} has {live} usable devices, and the operation needs {needed}{what}: restore the \
                     other devices and open the store again, or replace them (`Matrix::replace`; if the open is \
                     refused, `Builder::salvage(true)` continues with the data of the usable devices and gives up \
                     the rest)"
                )
            }
            Self::ForeignProcess => f.write_str(
                "another process opened this store, and this process inherited the handle by a fork: drop the \
                 handle, and open the store only in the process that uses it (after the fork or exec)",
            ),
            Self::KeyspaceName { len } => write!(f, "the keyspace name has {len} bytes: use 1 to 255 bytes"),
            Self::KeyspaceMissing { name } => write!(
                f,
                "no keyspace {name:?}: check the name, or open the store without `Builder::read_only(true)` to create it"
            ),
            Self::KeyspaceDropped { name } => {
                write!(f, "keyspace {name:?} was dropped: open it again by name to create a new, empty keyspace")
            }
            Self::Conflict { tries: 1 } => f.write_str(
                "a condition of the batch is not met, or a value that the transaction read has changed: read the \
                 values again and retry",
            ),
            Self::Conflict { tries } => write!(
                f,
                "other writers changed keys of the transaction in each of its {tries} attempts: let fewer writers \
                 change the same keys"
            ),
            Self::Aborted { reason } => write!(f, "the transaction aborted itself: {reason}"),
            Self::KeyspacesExhausted => {
                f.write_str("the store has used all ids of keyspaces: create a new store, and copy the pairs into it")
            }
            Self::OtherStore { keyspace } if keyspace.is_empty() => f.write_str(
                "this handle of a default keyspace belongs to another store: use a handle of the store that is called",
            ),
            Self::OtherStore { keyspace } => {
                write!(f, "keyspace {keyspace:?} belongs to another store: use a handle of the store that is called")
            }
            Self::ReadOnly => f.write_str("the store was opened read-only: open it without `Builder::read_only(true)`"),
            Self::DeviceElsewhere { path } => write!(
                f,
                "the matrix has a device in another directory, {}, and nothing was removed, because a copy of a \
                 matrix names the devices of its original: to remove this device too, call \
                 `store::destroy_with_devices`",
                path.display()
            ),
            Self::BackupNoRoom { path, needed } => write!(
                f,
                "backup {}: {needed} more bytes do not fit on its medium, so no backup was made: free space on the \
                 medium, or choose another medium",
                path.display()
            ),
            Self::Backup { path, what } => write!(f, "backup {}: {what}", path.display()),
            Self::Closed => f.write_str("the store is closed: open it again"),
            Self::NoRoom { .. }
            | Self::Locked { .. }
            | Self::Missing { .. }
            | Self::Exists { .. }
            | Self::TargetExists { .. }
            | Self::TargetIsMount { .. }
            | Self::Foreign { .. }
            | Self::WrongEngine { .. }
            | Self::EngineNotBuilt { .. }
            | Self::ModeNotBuilt { .. }
            | Self::NewerFormat { .. }
            | Self::OlderFormat { .. }
            | Self::WeakerMedium { .. }
            | Self::MachineRestarted { .. } => self.fmt_opening(f),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } | Self::ThreadRefused { source, .. } => Some(source),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
