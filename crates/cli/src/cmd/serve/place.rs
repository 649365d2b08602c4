//! The location of the served store, and its open.

use std::fs;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use lodestore::events::{Event, EventSink};
use lodestore::options::{CreateOptions, OpenOptions};
use lodestore::{Db, Error};
use lodestore_server::options::{OPTIONS, Origin, Resolved};
use lodestore_server::{StoreConfig, StoreEvents};

use crate::failure::{Failure, Outcome, file_failure};

/// Directory in memory for the stores of all users.
const SHARED_MEMORY: &str = "/dev/shm";

/// Permissions of a chosen directory: only its owner may read or change it.
const OWNER_ACCESS_MASK: u32 = 0o700;

/// Permissions that a chosen directory must not have.
const OTHERS_WRITE_MASK: u32 = 0o022;

/// The directory of the served store.
#[derive(Debug)]
pub struct StoreLocation {
    /// The directory.
    pub path: PathBuf,
    /// Whether the store is created if there is none.
    creates: bool,
    /// Whether the program chose the directory.
    is_chosen: bool,
}

/// Returns the location of the store. An argument may be mistyped, so the named store must exist,
/// unless the configuration creates stores.
pub fn locate(resolved: &Resolved) -> Outcome<StoreLocation> {
    let store = &resolved.config.store;
    if let Some(path) = &store.path {
        let index = OPTIONS.iter().position(|option| option.name == "store");
        let is_argument = index.is_some_and(|index| matches!(resolved.origins[index], Origin::Flag { .. }));
        return Ok(StoreLocation { path: path.clone(), creates: store.creates || !is_argument, is_chosen: false });
    }
    let path = choose_directory()?;
    Ok(StoreLocation { path, creates: true, is_chosen: true })
}

/// Chooses a directory of the user: in memory, where an acknowledged write costs no system call, or
/// below the directory for the state of programs.
fn choose_directory() -> Outcome<PathBuf> {
    // The owner of an entry of /proc is the user of the process.
    let user = fs::metadata("/proc/self").map(|metadata| metadata.uid());
    if let (Ok(user), true) = (user, is_tmpfs(SHARED_MEMORY)) {
        return Ok(Path::new(SHARED_MEMORY).join(format!("lodestore-{user}")));
    }
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let state = variable("XDG_STATE_HOME").or_else(|| variable("HOME").map(|home| home.join(".local/state")));
    let none = || {
        Failure::Usage("no directory for a store is available: name one, as in `lodestore serve STORE --create`".into())
    };
    state.map(|state| state.join("lodestore")).ok_or_else(none)
}

fn is_tmpfs(directory: &str) -> bool {
    let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
    mounts.lines().any(|line| {
        let mut words = line.split(' ').skip(1);
        words.next() == Some(directory) && words.next() == Some("tmpfs")
    })
}

/// Opens the store, or creates it. `events` receives the store's events.
pub fn open_or_create(location: &StoreLocation, config: &StoreConfig, events: &StoreEvents) -> Outcome<Db> {
    if location.is_chosen {
        make_private_directory(&location.path)?;
    }
    match open_existing(&location.path, config, events) {
        Err(Error::Missing { .. }) if location.creates => Ok(create(&location.path, config, events)?),
        Err(error @ Error::Missing { obstacle: None, .. }) => Err(Failure::Unserved { error }),
        opened => opened.map_err(|error| Failure::Open { error, salvage: false }),
    }
}

/// Creates a directory that only this user may change. Other users may write to the parent
/// directory, so a directory of another user is refused.
fn make_private_directory(path: &Path) -> Outcome {
    let created = fs::DirBuilder::new().recursive(true).mode(OWNER_ACCESS_MASK).create(path);
    created.map_err(file_failure("creating the directory", path))?;
    let found = fs::symlink_metadata(path).map_err(file_failure("reading", path))?;
    let user = fs::metadata("/proc/self").map_err(file_failure("reading", Path::new("/proc/self")))?.uid();
    if !found.is_dir() || found.uid() != user || found.mode() & OTHERS_WRITE_MASK != 0 {
        let text = format!(
            "{} is not a private directory of this user: name another STORE, or remove the write permission of other \
             users",
            path.display()
        );
        return Err(Failure::Usage(text));
    }
    Ok(())
}

fn open_existing(path: &Path, config: &StoreConfig, events: &StoreEvents) -> lodestore::Result<Db> {
    let mut options = OpenOptions::new().events(event_sink(events));
    if let Some(engine) = &config.engine {
        options = options.engine(engine);
    }
    if let Some(durability) = config.durability {
        options = options.durability(durability);
    }
    for text in &config.set {
        options = options.set_text(text)?;
    }
    Ok(Db::from(lodestore::store::open(path, &options)?))
}

fn create(path: &Path, config: &StoreConfig, events: &StoreEvents) -> lodestore::Result<Db> {
    let mut options = CreateOptions::new().size(config.size).events(event_sink(events));
    options = options.engine(config.engine.as_deref().unwrap_or(lodestore::options::AUTO_ENGINE));
    if let Some(durability) = config.durability {
        options = options.durability(durability);
    }
    for text in &config.set {
        options = options.set_text(text)?;
    }
    let choice = options.choice(path)?;
    tracing::info!(store = %path.display(), reason = choice.reason, "a store is created");
    Ok(Db::from(lodestore::store::create(path, &options)?))
}

/// Returns the sink that counts the events of the store and writes them to the log.
fn event_sink(events: &StoreEvents) -> EventSink {
    let events = events.clone();
    std::sync::Arc::new(move |event: &Event| {
        events.observe(event);
        match event {
            Event::Corruption { .. } | Event::Poisoned { .. } => tracing::error!(event = event.name(), "{event}"),
            Event::DeviceFailed { .. } | Event::CopyIncomplete { .. } => {
                tracing::warn!(event = event.name(), "{event}");
            }
            // A cache has a sweep each second.
            Event::Swept { .. } => tracing::debug!(event = event.name(), "{event}"),
            _ => tracing::info!(event = event.name(), "{event}"),
        }
    })
}
