//! The failure of a cell, passed from its process to the bench's process.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use lodestore_contract::Error;
use serde::{Deserialize, Serialize};

/// Why a cell failed, so that the bench can report it as its own refusal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum Failure {
    /// [`Error::Full`].
    Full { needed: u64, capacity: u64 },
    /// [`Error::NoRoom`].
    NoRoom { path: PathBuf, needed: u64, free: u64 },
    /// [`Error::InvalidOption`].
    InvalidOption { name: String, value: String, why: String },
    /// [`Error::DurabilityRefused`], with the durability as text.
    DurabilityRefused { asked: String, medium: String, instead: String },
    /// [`Error::DramBudget`].
    DramBudget { used: u64, budget: u64 },
    /// [`Error::Io`]: the operation and its object; the system's error number, or else its text,
    /// and whether the medium is full.
    Io { doing: String, code: Option<i32>, words: String, full: bool },
    /// Any other error, as its text.
    Other(String),
}

impl Failure {
    /// Converts an error.
    pub(crate) fn of(error: Error) -> Self {
        match error {
            Error::Full { needed, capacity } => Self::Full { needed, capacity },
            Error::NoRoom { path, needed, free } => Self::NoRoom { path, needed, free },
            Error::InvalidOption { name, value, why } => Self::InvalidOption { name, value, why },
            Error::DurabilityRefused { asked, medium, instead } => {
                Self::DurabilityRefused { asked: asked.to_string(), medium, instead }
            }
            Error::DramBudget { used, budget } => Self::DramBudget { used, budget },
            Error::Io { doing, path, source } => Self::Io {
                doing: at(doing, &path),
                code: source.raw_os_error(),
                words: source.to_string(),
                full: is_full(&source),
            },
            other => Self::Other(other.to_string()),
        }
    }

    /// Returns the error of the store of this name.
    pub(crate) fn into_error(self, target: &str) -> Error {
        match self {
            Self::Full { needed, capacity } => Error::Full { needed, capacity },
            Self::NoRoom { path, needed, free } => Error::NoRoom { path, needed, free },
            Self::InvalidOption { name, value, why } => Error::InvalidOption { name, value, why },
            Self::DurabilityRefused { asked, medium, instead } => match asked.parse() {
                Ok(asked) => Error::DurabilityRefused { asked, medium, instead },
                Err(refused) => refused,
            },
            Self::DramBudget { used, budget } => Error::DramBudget { used, budget },
            Self::Io { doing, code: Some(code), .. }
                if io::Error::from_raw_os_error(code).kind() != ErrorKind::BrokenPipe =>
            {
                Error::io("measuring", format!("{target}: {doing}"), io::Error::from_raw_os_error(code))
            }
            Self::Io { doing, words, full, .. } => {
                let kind = if full { ErrorKind::StorageFull } else { ErrorKind::Other };
                Error::io("measuring", target, io::Error::new(kind, format!("{doing}: {words}")))
            }
            Self::Other(text) => Error::io("measuring", target, io::Error::other(text)),
        }
    }
}

/// Returns whether the error means that the medium is full.
fn is_full(source: &io::Error) -> bool {
    matches!(source.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

/// Returns the operation and its object, if it is known.
fn at(doing: &str, path: &Path) -> String {
    if path.as_os_str().is_empty() { doing.into() } else { format!("{doing} {}", path.display()) }
}

/// A store that failed with fewer free bytes than this is assumed to have filled its medium.
pub(crate) const FREE_BYTES_MIN: u64 = 1 << 20;

/// Returns the same error, with a note if the medium under `dir` is full. Peers report a full
/// medium in many ways, or die of it.
pub(crate) fn with_medium(error: Error, dir: &Path) -> Error {
    let Error::Io { doing, path, source } = error else { return error };
    let free = match lodestore::medium::doctor(dir) {
        Ok(found) => found.medium.free_bytes,
        Err(Error::Io { source, .. }) if is_full(&source) => 0,
        Err(_) => u64::MAX,
    };
    with_free(doing, path, source, (dir, free))
}

fn with_free(doing: &'static str, path: PathBuf, source: io::Error, (dir, free): (&Path, u64)) -> Error {
    if free >= FREE_BYTES_MIN {
        return Error::io(doing, path, source);
    }
    let words = format!("{source}; the medium under {} is full, {free} bytes of it are free", dir.display());
    Error::io(doing, path, io::Error::new(ErrorKind::StorageFull, words))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns an error as the bench reports it when it comes from a cell's process.
    fn told(error: Error) -> Error {
        let text = serde_json::to_string(&Failure::of(error)).expect("JSON");
        serde_json::from_str::<Failure>(&text).expect("JSON").into_error("leveldb")
    }

    fn kind(error: &Error) -> ErrorKind {
        match error {
            Error::Io { source, .. } => source.kind(),
            other => panic!("{other}"),
        }
    }

    #[test]
    fn a_refusal_of_the_system_keeps_its_kind_and_has_one_advice() {
        let full = told(Error::io("putting", "", io::Error::new(ErrorKind::StorageFull, "No space left on device")));
        assert_eq!(kind(&full), ErrorKind::StorageFull);
        let should =
            "measuring leveldb: putting: No space left on device; free space on the medium, or choose another medium";
        assert_eq!(full.to_string(), should);
        let full = told(Error::io("writing", "a/b", io::Error::from_raw_os_error(28)));
        assert_eq!(kind(&full), ErrorKind::StorageFull);
        assert!(full.to_string().starts_with("measuring leveldb: writing a/b: No space left on device"), "{full}");
        let files = told(Error::io("opening", "a/b", io::Error::from_raw_os_error(24))).to_string();
        assert!(files.contains("ulimit -n"), "{files}");
        let other = told(Error::io("putting", "", io::Error::other("odd"))).to_string();
        assert_eq!(other, "measuring leveldb: putting: odd; try again");
        // Not a broken pipe of the bench's own output.
        assert_eq!(kind(&told(Error::io("sending", "", io::Error::from_raw_os_error(32)))), ErrorKind::Other);
    }

    #[test]
    fn a_store_that_failed_on_a_full_medium_is_told_of_as_full() {
        let died = |free| {
            with_free(
                "measuring",
                "lmdb".into(),
                io::Error::other("its process was ended by SIGBUS"),
                (Path::new("d"), free),
            )
        };
        let text = died(4096).to_string();
        assert!(
            text.contains("SIGBUS; the medium under d is full, 4096 bytes") && text.contains("free space"),
            "{text}"
        );
        assert_eq!((kind(&died(0)), kind(&died(1 << 30))), (ErrorKind::StorageFull, ErrorKind::Other));
        let other = with_medium(Error::Closed, Path::new("."));
        assert!(matches!(other, Error::Closed));
    }
}
