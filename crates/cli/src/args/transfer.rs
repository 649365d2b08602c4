//! The arguments of the commands that copy records: import, export, backup, restore, convert and
//! sample.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use lodestore::Durability;
use lodestore::stats::parse_size;

use super::{DataArgs, StoreArgs, parse_durability};
use crate::format::Format;

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
    /// The named database of an LMDB file
    #[arg(long, value_name = "NAME")]
    pub database: Option<OsString>,
    /// The column family of a RocksDB database; by default "default"
    #[arg(long, value_name = "NAME")]
    pub column_family: Option<String>,
    /// The separator of hash and field in the keys of records from an RDB file
    #[arg(long, value_name = "TEXT", default_value = ":")]
    pub hash_separator: OsString,
    /// Refuse a file of LMDB, Redis or RocksDB if a part of it cannot be imported
    #[arg(long)]
    pub strict: bool,
    /// Write the number of acknowledged records: every 10,000 records, when the input pauses, and
    /// at the end
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
    /// Write to this file. The file appears when the export is complete
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Replace the file if it exists
    #[arg(long, requires = "output")]
    pub force: bool,
    /// Write the records of all keyspaces, each with the name of its keyspace. Needs jsonl
    #[arg(long, conflicts_with = "keyspace")]
    pub all_keyspaces: bool,
    /// Also open a store that is damaged or was open at a restart of the machine, and write the
    /// readable records; values may be older. A store with a damaged index or extent table can only
    /// be salvaged afterwards
    #[arg(long)]
    pub salvage: bool,
}

/// `sample`.
#[derive(Debug, Args)]
pub struct SampleArgs {
    /// The file to write; - is standard output
    pub file: PathBuf,
    /// Its format; by default .tsv and .txt files are tsv, all others are jsonl
    #[arg(long, value_enum)]
    pub format: Option<Format>,
    /// Maximum number of records
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
}
