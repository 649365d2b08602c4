//! The grammar of the program. Scripts depend on it, so names, positions and meanings never change.

use std::ffi::OsString;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use lodestore::Durability;
use lodestore::stats::parse_size;

use crate::format::Format;

/// The table of exit codes, as `--help` shows it.
const EXIT_CODES: &str = "\
Exit codes:
   0  done
   1  no: the key is absent (get, delete, update), or present (insert), there is no such keyspace,
      or destroy was not confirmed
   2  bad arguments, options, key or value
   3  no store at that path
   4  the store belongs to another engine, or to a newer or older format
   5  another process holds the store
   6  the store, the medium under it or under a new backup, or the index is full
   7  corrupt data (verify: something was found)
   8  any other failure, such as one of the operating system
   9  the medium cannot give the durability asked for, a file of the store is on a weaker medium,
      or the machine restarted under the store
  10  import stopped at a line, or refused a data file, that it cannot read
  11  something is at that path already (create, backup, restore, export, convert), or a foreign
      file is in the store's directory
  12  too few devices of a group are there
 130  stopped by SIGINT (143: SIGTERM), store closed";

/// A persistent key-value store for memory that lasts.
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
    /// Make a store in a new directory
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
    /// Read and check everything
    Verify(VerifyArgs),
    /// Write keys and values in the order of keys
    Scan(ScanArgs),
    /// Put every record of a file
    Import(ImportArgs),
    /// Write every record, in key order if the engine has one
    Export(ExportArgs),
    /// Make a verified copy of a store in a new directory
    ///
    /// The copy is a store of its own. The program opens STORE itself: a store that another process
    /// has open is refused, and that process makes the backup (Db::backup).
    Backup(BackupArgs),
    /// Make a store from a backup
    Restore(RestoreArgs),
    /// List the keyspaces with names, and the number of keys in each
    Keyspaces(PlainArgs),
    /// Remove a keyspace with all of its keys
    DropKeyspace(DropKeyspaceArgs),
    /// Describe a store without opening it, also a store in use
    Info(InfoArgs),
    /// Run the background work now: free deleted and overwritten data
    Compact(PlainArgs),
    /// Copy a store into a new one of any engine, and verify the copy
    Convert(ConvertArgs),
    /// Remove a store: its files, and nothing else
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
    /// Without STORE, $LODESTORE_STORE names the store, or a place for this user is chosen and
    /// printed. SIGTERM and SIGINT stop the server cleanly.
    #[cfg(feature = "serve")]
    Serve(crate::cmd::ServeArgs),
    /// Show or check the configuration of `serve`
    #[cfg(feature = "serve")]
    Config(crate::cmd::ConfigArgs),
    /// Write a sample data set: the names of all Unicode characters
    Sample(SampleArgs),
    /// List the engines and their options
    Engines(EnginesArgs),
    /// Write the manual: the main page, or with --dir a page for each command
    Man {
        /// The directory for all pages; made if it does not exist
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
    /// Refuse the store unless this engine made it
    #[arg(long, value_name = "NAME")]
    pub engine: Option<String>,
    /// Set an option of the engine for this opening; `lodestore engines` lists them
    #[arg(long = "set", value_name = "NAME=VALUE")]
    pub set: Vec<String>,
    /// Write JSON, one object per line
    #[arg(long)]
    pub json: bool,
}

/// The arguments of `backup`.
#[derive(Debug, Args)]
pub struct BackupArgs {
    /// The store
    #[command(flatten)]
    pub store: StoreArgs,
    /// The backup's directory, which does not exist or is empty
    pub directory: PathBuf,
}

/// The arguments of `restore`.
#[derive(Debug, Args)]
pub struct RestoreArgs {
    /// The backup's directory
    pub directory: PathBuf,
    /// The new store's directory, which does not exist or is empty
    pub store: PathBuf,
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

/// A change of a matrix.
#[cfg(feature = "mkvs")]
#[derive(Debug, Args)]
pub struct MkvsArgs {
    /// The command.
    #[command(subcommand)]
    pub command: MkvsCommand,
}

/// The commands on a matrix.
#[cfg(feature = "mkvs")]
#[derive(Debug, Subcommand)]
pub enum MkvsCommand {
    /// Write the state of the groups and devices
    Status(StoreArgs),
    /// Replace a dead or retired device by a new one, and wait until it has everything
    Replace {
        /// The matrix
        #[command(flatten)]
        store: StoreArgs,
        /// The group of the device, from 0
        group: usize,
        /// Its index in the group, from 0
        device: usize,
        /// The new device's directory
        directory: PathBuf,
        /// Open the matrix although too few devices are left to have all acknowledged writes, copy
        /// the new device from the others, and give up the writes that only lost devices had
        #[arg(long)]
        salvage: bool,
        /// Wait at most this many seconds
        #[arg(long, value_name = "SECONDS", default_value_t = 3600)]
        patience: u64,
    },
    /// Add a group of new devices, and wait until its keys have moved to it
    AddGroup {
        /// The matrix
        #[command(flatten)]
        store: StoreArgs,
        /// A directory for each device of the group; default: below the matrix's own
        directories: Vec<PathBuf>,
        /// Wait at most this many seconds
        #[arg(long, value_name = "SECONDS", default_value_t = 3600)]
        patience: u64,
    },
    /// Wait until every key is in its group and every working device has everything, as after an
    /// interrupted `add-group` or `replace`
    Rebalance {
        /// The matrix
        #[command(flatten)]
        store: StoreArgs,
        /// Wait at most this many seconds
        #[arg(long, value_name = "SECONDS", default_value_t = 3600)]
        patience: u64,
    },
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
    /// The directory to make
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
    /// Keep the present expiry of the key
    #[arg(long, conflicts_with = "ttl")]
    pub keep_ttl: bool,
}

/// `get`.
#[derive(Debug, Args)]
pub struct GetArgs {
    #[command(flatten)]
    pub key: KeyArgs,
    /// Write the exact bytes and no newline, also on a terminal
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

/// `convert`.
#[derive(Debug, Args)]
pub struct ConvertArgs {
    /// The store to copy; it must not be in use
    #[arg(value_name = "SRC")]
    pub source: PathBuf,
    /// The directory of the new store, which does not exist or is empty
    #[arg(value_name = "DST")]
    pub target: PathBuf,
    /// The engine of the new store; by default as SRC, with the fixed options of SRC
    #[arg(long, value_name = "NAME")]
    pub engine: Option<String>,
    /// Maximum bytes of the new store: a number with K, M, G or T; by default as SRC
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub size: Option<u64>,
    /// What an acknowledged write survives: process, power or interval:MS; by default as SRC
    #[arg(long, value_name = "LEVEL", value_parser = parse_durability)]
    pub durability: Option<Durability>,
    /// Set an option of the new store's engine; `lodestore engines` lists them
    #[arg(long = "set", value_name = "NAME=VALUE")]
    pub set: Vec<String>,
    /// Write JSON
    #[arg(long)]
    pub json: bool,
}

/// `destroy`.
#[derive(Debug, Args)]
pub struct DestroyArgs {
    /// The store's directory
    pub store: PathBuf,
    /// Do not ask. Needed if standard input is not a terminal
    #[arg(long)]
    pub yes: bool,
    /// Of a matrix, also remove its devices in other directories
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
    /// Open a store that is refused as damaged or after a restart of the machine, and list the
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
    /// Only keys that begin with this
    #[arg(long, value_name = "P", allow_hyphen_values = true)]
    pub prefix: Option<OsString>,
    /// Only keys at or after this one
    #[arg(long, value_name = "K", allow_hyphen_values = true)]
    pub from: Option<OsString>,
    /// Only keys before this one
    #[arg(long, value_name = "K", allow_hyphen_values = true)]
    pub to: Option<OsString>,
    /// At most this many
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
    /// Descending
    #[arg(long)]
    pub reverse: bool,
    /// Omit the values
    #[arg(long)]
    pub keys_only: bool,
}

/// A format of `import`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum ImportFormat {
    /// One JSON object a line.
    Jsonl,
    /// Tab-separated fields.
    Tsv,
    /// A data file of LMDB, data.mdb.
    Lmdb,
    /// A snapshot of Redis, dump.rdb.
    Rdb,
    /// The directory of a RocksDB database.
    Rocksdb,
}

/// `import`.
#[derive(Debug, Args)]
pub struct ImportArgs {
    #[command(flatten)]
    pub store: DataArgs,
    /// The file; - is standard input
    pub file: PathBuf,
    /// Its format; by default the first bytes identify lmdb and rdb, the files in a directory
    /// identify lmdb and rocksdb, .tsv and .txt files are tsv, all others are jsonl
    #[arg(long, value_enum)]
    pub format: Option<ImportFormat>,
    /// Of an LMDB file: the named database
    #[arg(long, value_name = "NAME")]
    pub database: Option<OsString>,
    /// Of a RocksDB database: the column family, "default" unless given
    #[arg(long, value_name = "NAME")]
    pub column_family: Option<String>,
    /// Of an RDB file: the separator of hash and field in the key of a record
    #[arg(long, value_name = "TEXT", default_value = ":")]
    pub hash_separator: OsString,
    /// Of LMDB, Redis and RocksDB: refuse the input if any part of it cannot be imported
    #[arg(long)]
    pub strict: bool,
    /// Write the number of acknowledged records: at every 10,000, when the input pauses, and at its
    /// end
    #[arg(long)]
    pub acks: bool,
}

/// `export`.
#[derive(Debug, Args)]
pub struct ExportArgs {
    #[command(flatten)]
    pub store: DataArgs,
    /// The format
    #[arg(long, value_enum, default_value = "jsonl")]
    pub format: Format,
    /// Write to this file. The file appears when it is whole
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Replace the file if it exists
    #[arg(long, requires = "output")]
    pub force: bool,
    /// Write the records of all keyspaces, with the name of the keyspace in each. Needs jsonl
    #[arg(long, conflicts_with = "keyspace")]
    pub all_keyspaces: bool,
    /// Open a store that is refused as damaged or after a restart of the machine, and write the
    /// readable records; values may be older. A store with a damaged index or extent table can only
    /// be salvaged afterwards
    #[arg(long)]
    pub salvage: bool,
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

/// `sample`.
#[derive(Debug, Args)]
pub struct SampleArgs {
    /// The file to write; - is standard output
    pub file: PathBuf,
    /// Its format; by default .tsv and .txt files are tsv, all others are jsonl
    #[arg(long, value_enum)]
    pub format: Option<Format>,
    /// Only this many records
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
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
    text.parse().map_err(|_| "give process, power or interval:MS with MS of at least 1".to_owned())
}

/// Parses a number of seconds, possibly with a fraction.
fn parse_seconds(text: &str) -> Result<Duration, String> {
    let refuse = || "give a number of seconds, such as 60 or 0.5".to_owned();
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
