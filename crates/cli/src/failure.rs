//! The reasons why a command fails, and their exit codes.

use std::fmt;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use lodestore::Error;
use lodestore::medium::io_advice;
#[cfg(feature = "serve")]
use lodestore_server::options::OptionError;

use crate::advice::{error_text, translate};

/// Advice for damage of a store that opens.
const VERIFY_ADVICE: &str = "run `lodestore verify` for a list of all damage";
/// Advice for damage of a store that only a salvage opens.
const VERIFY_SALVAGE_ADVICE: &str = "run `lodestore verify --salvage` for a list of all damage";
/// Advice for a store that is refused as damaged.
const RESTORE_OR_SALVAGE_ADVICE: &str = "restore the store from a backup, or copy its directory and export the \
                                         readable pairs of the copy (`lodestore export --salvage`)";
/// Advice for a store that even a salvage does not open.
const RESTORE_ADVICE: &str = "restore the store from a backup";

/// The result of a command.
pub type Outcome<T = ()> = Result<T, Failure>;

/// The reason why a command ends without success. Each has one exit code ([`Failure::code`]) and a
/// text of one line.
#[derive(Debug)]
pub enum Failure {
    /// Nothing failed, but the answer is no: a key is absent, or present.
    No(String),
    /// Bad arguments.
    Usage(String),
    /// The store refused an operation.
    Store(Error),
    /// The open of the store was refused.
    Open {
        /// The store's error.
        error: Error,
        /// Whether the open was a salvage.
        salvage: bool,
    },
    /// The store to serve does not exist.
    #[cfg(feature = "serve")]
    Unserved {
        /// The store's error.
        error: Error,
    },
    /// The store refused in the middle of an import.
    Import {
        /// The store's error.
        error: Error,
        /// Imported records.
        imported: u64,
        /// The number of the refused record, from 1.
        number: u64,
        /// The unit of the number: lines or records.
        unit: &'static str,
    },
    /// Not every record could be exported.
    Export {
        /// The first damage found.
        error: Error,
        /// Exported records.
        exported: u64,
        /// Keys of the store.
        total: u64,
        /// Damaged records that the export left out.
        damaged: u64,
        /// Whether the export opened the store as a salvage.
        salvage: bool,
        /// Whether the file of the export was not written because of the damage.
        unwritten: bool,
    },
    /// A line that cannot be read.
    Line {
        /// The file, as given.
        file: PathBuf,
        /// Its number, from 1.
        line: u64,
        /// The fault.
        what: String,
        /// Imported records.
        imported: u64,
    },
    /// A data file of another store is damaged, or cannot be imported as a whole.
    Source {
        /// The file.
        file: PathBuf,
        /// The location in the file.
        place: String,
        /// The fault.
        what: String,
    },
    /// `verify` found something.
    Findings {
        /// The number of findings.
        count: usize,
        /// Whether the open was a salvage.
        salvage: bool,
    },
    /// A signal ended the work, and the store is closed.
    Signal {
        /// Its number.
        number: i32,
        /// Imported records.
        imported: u64,
    },
    /// A signal ended work that leaves nothing unfinished.
    Interrupted {
        /// Its number.
        number: i32,
        /// The command.
        action: &'static str,
    },
    /// The target file already exists.
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// A file could not be read or written.
    File {
        /// The action.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Standard output could not be written.
    Output(io::Error),
    /// Anything else.
    Other(String),
}

impl Failure {
    /// The exit code: stable, documented in `--help` and docs/cli.md.
    pub fn code(&self) -> u8 {
        match self {
            Self::No(_) => 1,
            Self::Usage(_) => 2,
            Self::Store(error) | Self::Open { error, .. } | Self::Import { error, .. } | Self::Export { error, .. } => {
                store_error_code(error)
            }
            #[cfg(feature = "serve")]
            Self::Unserved { error } => store_error_code(error),
            Self::Line { .. } | Self::Source { .. } => 10,
            Self::Findings { .. } => 7,
            Self::Exists { .. } => 11,
            Self::Signal { number, .. } | Self::Interrupted { number, .. } => {
                128u8.saturating_add(u8::try_from(*number).unwrap_or(0))
            }
            Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => 0,
            Self::File { .. } | Self::Output(_) | Self::Other(_) => 8,
        }
    }

    /// Writes the line to standard error. A pipe closed by the reader is no error.
    pub fn report(&self) {
        if self.code() != 0 {
            let text = self.to_string().replace(['\n', '\r'], " ");
            // If standard error is closed too, there is no reader.
            let _ = writeln!(io::stderr(), "lodestore: {text}");
        }
    }
}

/// Writes a line that is no failure to standard error.
pub fn note(text: &str) {
    // If standard error is closed, there is no reader.
    let _ = writeln!(io::stderr(), "lodestore: {text}");
}

/// Returns whether the library's text of damage contains advice. Such a text has no words of the
/// user.
fn has_advice(what: &str) -> bool {
    ["restore", "salvage", "put ", "export"].iter().any(|word| what.contains(word))
}

/// Returns a function that converts the system's error into a failure of this file.
pub fn file_failure<'a>(action: &'static str, path: &'a Path) -> impl Fn(io::Error) -> Failure + use<'a> {
    move |source| Failure::File { action, path: path.to_path_buf(), source }
}

/// Whether the medium is full.
fn is_full(refusal: &io::Error) -> bool {
    matches!(refusal.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Returns the exit code of an error of the store.
fn store_error_code(error: &Error) -> u8 {
    match error {
        Error::KeyLength { .. } | Error::ValueLength { .. } | Error::BatchLength { .. } => 2,
        Error::Unsupported { .. } | Error::InvalidOption { .. } | Error::KeyspaceName { .. } => 2,
        Error::Missing { .. } => 3,
        Error::WrongEngine { .. } | Error::EngineNotBuilt { .. } | Error::ModeNotBuilt { .. } => 4,
        Error::NewerFormat { .. } | Error::OlderFormat { .. } => 4,
        Error::Locked { .. } => 5,
        Error::Full { .. } | Error::NoRoom { .. } | Error::IndexFull { .. } | Error::DramBudget { .. } => 6,
        Error::BackupNoRoom { .. } => 6,
        Error::Io { source, .. } if is_full(source) => 6,
        Error::Corrupt { .. } | Error::Backup { .. } => 7,
        Error::DurabilityRefused { .. } | Error::WeakerMedium { .. } | Error::MachineRestarted { .. } => 9,
        Error::Exists { .. } | Error::TargetExists { .. } | Error::TargetIsMount { .. } => 11,
        Error::Foreign { .. } | Error::DeviceElsewhere { .. } => 11,
        Error::TooFewDevices { .. } => 12,
        _ => 8,
    }
}

/// Returns the text for a store in which `verify` found damage.
fn findings_text(count: usize, salvage: bool) -> String {
    let places = if count == 1 { "place" } else { "places" };
    let option = if salvage { " --salvage" } else { "" };
    format!(
        "verify found {count} damaged {places}: restore the store from a backup, or export the readable pairs \
         (`lodestore export{option}`) and import the export into a new store"
    )
}

/// Returns the text for an export that lacks records, or may lack some.
fn incomplete_export_text(exported: u64, total: u64, damaged: u64) -> String {
    match damaged {
        0 => {
            format!("the export may lack records that damage hides: {exported} of {total} known records were exported")
        }
        _ => {
            format!("the export is incomplete: {exported} of {total} records were exported, and {damaged} are damaged")
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::No(text) | Self::Usage(text) | Self::Other(text) => f.write_str(text),
            Self::Store(error) => f.write_str(&error_text(error)),
            Self::Import { error, imported, number, unit } => {
                write!(f, "import stopped at {unit} {number} after {imported} imported records: {}", error_text(error))
            }
            Self::Open { error: Error::Corrupt { place, what, .. }, salvage } => {
                write!(f, "corrupt data at {place}: {}", translate(what, &[]))?;
                // Most errors of an open have their own advice.
                if has_advice(what) {
                    return Ok(());
                }
                write!(f, "; {}", if *salvage { RESTORE_ADVICE } else { RESTORE_OR_SALVAGE_ADVICE })
            }
            Self::Open { error, .. } => f.write_str(&error_text(error)),
            #[cfg(feature = "serve")]
            Self::Unserved { error } => write!(f, "{}, or add --create", error_text(error)),
            Self::Export { error, exported, total, damaged, salvage, unwritten } => {
                f.write_str(&incomplete_export_text(*exported, *total, *damaged))?;
                f.write_str("; the first damage is: ")?;
                match error {
                    Error::Corrupt { place, what, .. } => {
                        write!(f, "corrupt data at {place}: {}", translate(what, &[]))?;
                    }
                    other => f.write_str(&error_text(other))?,
                }
                let kept =
                    if *unwritten { "; no file was written: add --salvage to write the readable records" } else { "" };
                write!(f, "{kept}; {}", if *salvage { VERIFY_SALVAGE_ADVICE } else { VERIFY_ADVICE })
            }
            Self::Line { file, line, what, imported } => write!(
                f,
                "line {line} of {}: {what}; {imported} records before this line were imported: correct the line, and \
                 import again",
                file.display()
            ),
            Self::Source { file, place, what } => {
                write!(f, "{place} of {}: {what}; no record was imported", file.display())
            }
            Self::Findings { count, salvage } => f.write_str(&findings_text(*count, *salvage)),
            Self::Signal { number, imported } => {
                write!(
                    f,
                    "import stopped by signal {number} after {imported} imported records: the store is closed; \
                     import again to continue"
                )
            }
            Self::Interrupted { number, action } => {
                write!(
                    f,
                    "{action} stopped by signal {number}, and its unfinished files were removed: run the command again"
                )
            }
            Self::Exists { path } => {
                write!(f, "{} already exists: choose another name, or replace the file with --force", path.display())
            }
            Self::File { action, path, source } => {
                write!(f, "{action} {}: {source}; {}", path.display(), io_advice(source))
            }
            Self::Output(source) => write!(f, "writing to standard output: {source}; {}", io_advice(source)),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

#[cfg(feature = "serve")]
impl From<OptionError> for Failure {
    fn from(error: OptionError) -> Self {
        Self::Usage(error.to_string())
    }
}

/// Returns the one line for arguments that the grammar refuses: clap's text, then the usage.
pub fn usage_line(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let mut message = String::new();
    let mut usage = None;
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("For more information"))
    {
        if let Some(rest) = line.strip_prefix("Usage: ") {
            usage = Some(rest);
        } else if usage.is_none() {
            let tip = if line.starts_with("tip: ") { ";" } else { "" };
            let gap = if message.is_empty() { "" } else { " " };
            message += &format!("{tip}{gap}{}", line.strip_prefix("error: ").unwrap_or(line));
        }
    }
    match usage {
        Some(usage) => format!("{message}; usage: {usage}"),
        None => format!("{message}; see lodestore --help"),
    }
}
