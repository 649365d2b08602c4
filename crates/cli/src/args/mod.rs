//! The grammar of the program. Scripts depend on it, so names, positions and meanings never change.

#[cfg(feature = "mkvs")]
mod mkvs;
#[cfg(feature = "serve")]
mod serve;
mod transfer;

use std::ffi::OsString;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use lodestore::Durability;
use lodestore::stats::parse_size;

#[cfg(feature = "mkvs")]
pub use mkvs::{MkvsArgs, MkvsCommand};
#[cfg(feature = "serve")]
pub use serve::{ConfigArgs, ConfigCommand, ServeArgs, ShowArgs};
pub use transfer::{BackupArgs, ConvertArgs, ExportArgs, ImportArgs, ImportFormat, RestoreArgs, SampleArgs};

/// The table of exit codes, as `--help` shows it.
const EXIT_CODES: &str = "\
Exit codes:
   0  done
   1  no: the key is absent (get, delete, update) or present (insert), the keyspace does not exist,
      or destroy was not confirmed
   2  invalid arguments, options, key or value
   3  no store at that path
   4  the store has another engine, or a newer or older format
   5  another process holds the store
   6  the store, its index, its medium or the medium of a new backup is full
   7  corrupt data (verify: damage was found)
   8  any other failure, such as an error of the operating system
   9  the medium does not support the requested durability, a file of the store is on a less
      durable medium, or the machine restarted while the store was open
  10  import stopped at an unreadable line, or refused an unreadable data file
  11  the path already exists (create, backup, restore, export, convert), or a foreign file is in
      the store's directory
  12  a group has too few usable devices
 130  stopped by SIGINT (143: SIGTERM) after closing the store";

/// A persistent key-value store for persistent memory and files.
#[derive(Debug, Parser)]
#[command(name = "lodestore", version, about, after_help = EXIT_CODES, infer_subcommands = false)]
pub struct Cli {
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Create a store in a new directory
    Create(CreateArgs),
    /// Set the value of KEY, whether or not it exists
    Put(WriteArgs),
    /// Set the value of KEY only if it is absent
    Insert(WriteArgs),
    /// Set the value of KEY only if it is present
    ///
    /// Without --ttl and --keep-ttl the key no longer expires.
    Update(UpdateArgs),
    /// Write the value of KEY: its exact bytes, and on a terminal a newline
    Get(GetArgs),
    /// Remove KEY
    Delete(KeyArgs),
    /// Write the number of keys
    Count(CountArgs),
    /// Write the store's statistics
    Stats(StatsArgs),
    /// Read and check all data of a store
    Verify(VerifyArgs),
    /// Write keys and values in key order
    Scan(ScanArgs),
    /// Put every record of a file
    Import(ImportArgs),
    /// Write every record, in key order if the engine has one
    Export(ExportArgs),
    /// Copy a store to a new directory, and verify the copy
    ///
    /// The copy is a store of its own. The program opens STORE itself: a store that another process
    /// has open is refused, and that process makes the backup (Db::backup).
    Backup(BackupArgs),
    /// Create a store from a backup
    Restore(RestoreArgs),
    /// List the named keyspaces with their numbers of keys
    Keyspaces(PlainArgs),
    /// Remove a keyspace with all of its keys
    DropKeyspace(DropKeyspaceArgs),
    /// Describe a store without opening it, even if it is in use
    Info(InfoArgs),
    /// Run the background work now: free deleted and overwritten data
    Compact(PlainArgs),
    /// Copy a store into a new one of any engine, and verify the copy
    Convert(ConvertArgs),
    /// Remove the files of a store
    Destroy(DestroyArgs),
    /// Describe the medium under PATH, and the meaning of each durability on it
    Doctor(DoctorArgs),
    /// Inspect and change a matrix of devices (engine mkvs)
    #[cfg(feature = "mkvs")]
    Mkvs(MkvsArgs),
    /// Serve a store to Redis clients
    ///
    /// Options come from flags, from variables of the environment (LODESTORE_MAXCLIENTS for
    /// --maxclients), and from a TOML file, in this order; `lodestore config show` lists them.
    /// Redis' names work too.
    /// Without STORE, $LODESTORE_STORE names the store, or the server chooses a directory for this
    /// user and prints it. SIGTERM and SIGINT stop the server cleanly.
    #[cfg(feature = "serve")]
    Serve(ServeArgs),
    /// Show or check the configuration of `serve`
    #[cfg(feature = "serve")]
    Config(ConfigArgs),
    /// Write a sample data set: the names of all Unicode characters
    Sample(SampleArgs),
    /// List the engines and their options
    Engines(EnginesArgs),
    /// Write the manual: the main page, or with --dir a page for each command
    Man {
        /// The directory for all pages; it is created if it does not exist
        #[arg(long, value_name = "DIR")]
        dir: Option<PathBuf>,
    },
    /// Write the completions of a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

/// The arguments of every command on an open store.
#[derive(Debug, Args)]
pub struct StoreArgs {
    /// The store's directory
    pub store: PathBuf,
    /// Refuse the store unless this engine created it
    #[arg(long, value_name = "NAME")]
    pub engine: Option<String>,
    /// Set an option of the engine for this opening; `lodestore engines` lists them
    #[arg(long = "set", value_name = "NAME=VALUE")]
    pub set: Vec<String>,
    /// Write JSON, one object per line
    #[arg(long)]
    pub json: bool,
}

impl StoreArgs {
    /// Returns the store's directory.
    pub fn path(&self) -> &Path {
        &self.store
    }
}

/// The arguments of every command on keys.
#[derive(Debug, Args)]
pub struct DataArgs {
    #[command(flatten)]
    pub store: StoreArgs,
    /// Use the keys of this keyspace; without it, those of the default keyspace
    #[arg(long, value_name = "NAME")]
    pub keyspace: Option<String>,
}

impl Deref for DataArgs {
    type Target = StoreArgs;

    fn deref(&self) -> &StoreArgs {
        &self.store
    }
}

/// The encoding of keys and values on the command line and in the output.
#[derive(Debug, Clone, Copy, Args)]
pub struct CodingArgs {
    /// Keys and values are hexadecimal, in and out
    #[arg(long, conflicts_with = "base64")]
    pub hex: bool,
    /// Keys and values are base64, in and out
    #[arg(long)]
    pub base64: bool,
}

/// `create`.
#[derive(Debug, Args)]
pub struct CreateArgs {
    /// The directory to create
    pub store: PathBuf,
    /// The engine; auto: the best one for the medium
    #[arg(long, value_name = "NAME", default_value = lodestore::options::AUTO_ENGINE)]
    pub engine: String,
    /// Maximum bytes of the store: a number with K, M, G or T
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "8G")]
    pub size: u64,
    /// What an acknowledged write survives: process, power or interval:MS. By default the medium
    /// decides if the engine is auto, else process
    #[arg(long, value_name = "LEVEL", value_parser = parse_durability)]
    pub durability: Option<Durability>,
    /// Treat the medium as DAX and execute every flush and fence (for measurements)
    #[arg(long)]
    pub emulate_dax: bool,
    /// Set an option of the engine; `lodestore engines` lists them
    #[arg(long = "set", value_name = "NAME=VALUE")]
    pub set: Vec<String>,
    /// Write JSON
    #[arg(long)]
    pub json: bool,
}

/// The arguments of `put` and `insert`, and their part of those of `update`.
#[derive(Debug, Args)]
pub struct WriteArgs {
    #[command(flatten)]
    pub store: DataArgs,
    #[command(flatten)]
    pub coding: CodingArgs,
    /// The key: 1 B to 64 KiB
    #[arg(allow_negative_numbers = true)]
    pub key: OsString,
    /// The value: at most 1 GiB
    #[arg(allow_negative_numbers = true, required_unless_present = "value_file")]
    pub value: Option<OsString>,
    /// Read the value's exact bytes from this file; - is standard input
    #[arg(long, value_name = "FILE", conflicts_with = "value")]
    pub value_file: Option<PathBuf>,
    /// Let the key expire after this many seconds
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds, allow_hyphen_values = true)]
    pub ttl: Option<Duration>,
}

/// `update`.
#[derive(Debug, Args)]
pub struct UpdateArgs {
    #[command(flatten)]
    pub write: WriteArgs,
    /// Keep the current expiry of the key
    #[arg(long, conflicts_with = "ttl")]
    pub keep_ttl: bool,
}

/// `get`.
#[derive(Debug, Args)]
pub struct GetArgs {
    #[command(flatten)]
    pub key: KeyArgs,
    /// Write the exact bytes and no newline, even on a terminal
    #[arg(long, conflicts_with_all = ["hex", "base64", "json"])]
    pub raw: bool,
}

/// A command on one key.
#[derive(Debug, Args)]
pub struct KeyArgs {
    #[command(flatten)]
    pub store: DataArgs,
    #[command(flatten)]
    pub coding: CodingArgs,
    /// The key
    #[arg(allow_negative_numbers = true)]
    pub key: OsString,
}

/// `count`.
#[derive(Debug, Args)]
pub struct CountArgs {
    #[command(flatten)]
    pub store: DataArgs,
}

/// `drop-keyspace`.
#[derive(Debug, Args)]
pub struct DropKeyspaceArgs {
    #[command(flatten)]
    pub store: StoreArgs,
    /// The name of the keyspace
    pub name: String,
}

/// `info`.
#[derive(Debug, Args)]
pub struct InfoArgs {
    /// The store's directory
    pub store: PathBuf,
    /// Write JSON
    #[arg(long)]
    pub json: bool,
}

/// `destroy`.
#[derive(Debug, Args)]
pub struct DestroyArgs {
    /// The store's directory
    pub store: PathBuf,
    /// Do not ask for confirmation. Needed if standard input is not a terminal
    #[arg(long)]
    pub yes: bool,
    /// Also remove devices of a matrix in other directories
    #[arg(long)]
    pub devices: bool,
    /// Write JSON
    #[arg(long)]
    pub json: bool,
}

/// A command with a store as its only argument.
#[derive(Debug, Args)]
pub struct PlainArgs {
    #[command(flatten)]
    pub store: StoreArgs,
}

/// `stats`.
#[derive(Debug, Args)]
pub struct StatsArgs {
    #[command(flatten)]
    pub store: StoreArgs,
    /// Do not wait for the end of recovery: show its progress
    #[arg(long)]
    pub no_wait: bool,
    /// Write OpenMetrics 1.0 text, for Prometheus and other monitors
    #[arg(long, conflicts_with = "json")]
    pub openmetrics: bool,
}

/// `verify`.
#[derive(Debug, Args)]
pub struct VerifyArgs {
    #[command(flatten)]
    pub store: StoreArgs,
    /// Also open a store that is damaged or was open at a restart of the machine, and list the
    /// losses. A store with a damaged index or extent table can only be salvaged afterwards
    #[arg(long)]
    pub salvage: bool,
}

/// `scan`.
#[derive(Debug, Args)]
pub struct ScanArgs {
    #[command(flatten)]
    pub store: DataArgs,
    #[command(flatten)]
    pub coding: CodingArgs,
    /// Only keys with this prefix
    #[arg(long, value_name = "P", allow_hyphen_values = true)]
    pub prefix: Option<OsString>,
    /// Only keys at or after this one
    #[arg(long, value_name = "K", allow_hyphen_values = true)]
    pub from: Option<OsString>,
    /// Only keys before this one
    #[arg(long, value_name = "K", allow_hyphen_values = true)]
    pub to: Option<OsString>,
    /// At most this number of keys
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
    /// In descending order
    #[arg(long)]
    pub reverse: bool,
    /// Omit the values
    #[arg(long)]
    pub keys_only: bool,
}

/// `doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// A directory, or the path of a store to create
    pub path: PathBuf,
    /// Write JSON
    #[arg(long)]
    pub json: bool,
}

/// `engines`.
#[derive(Debug, Args)]
pub struct EnginesArgs {
    /// Write JSON
    #[arg(long)]
    pub json: bool,
}

/// Parses a durability. Returns an error text without the option's name, which clap adds.
fn parse_durability(text: &str) -> Result<Durability, String> {
    text.parse().map_err(|_| "use process, power or interval:MS with MS of at least 1".to_owned())
}

/// Parses a number of seconds, possibly with a fraction.
fn parse_seconds(text: &str) -> Result<Duration, String> {
    let refuse = || "use a number of seconds, such as 60 or 0.5".to_owned();
    let seconds: f64 = text.parse().map_err(|_| refuse())?;
    Duration::try_from_secs_f64(seconds).map_err(|_| refuse())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_grammar_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn seconds_are_read_with_fractions_and_never_negative() {
        assert_eq!(parse_seconds("0.5"), Ok(Duration::from_millis(500)));
        for text in ["", "-1", "x", "inf", "NaN", "1e40"] {
            assert!(parse_seconds(text).is_err(), "{text:?}");
        }
    }
}
