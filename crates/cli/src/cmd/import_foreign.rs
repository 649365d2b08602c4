//! `import` from data files of other stores: LMDB and Redis.
//!
//! The file is read twice. The first pass checks all of it and has no effect, so nothing of a
//! damaged file is imported.

use std::collections::HashSet;
use std::collections::hash_map::RandomState;
use std::fs::File;
use std::hash::BuildHasher;
use std::io::{BufReader, Seek};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::import::{Import, SourceContents};
use crate::args::ImportArgs;
use crate::failure::{Failure, Outcome, file_failure, note};
use crate::format::Record;
use crate::stop_signal::StopSignal;
use crate::text::display_key;
use crate::{lmdb, rdb};

/// First bytes that identify the format.
const MAGIC_BYTES: usize = 24;
const BUFFER_BYTES: usize = 1 << 20;
/// The name of the data file in the directory of an LMDB environment.
const LMDB_FILE: &str = "data.mdb";

/// The origin of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForeignFormat {
    /// LMDB.
    Lmdb,
    /// Redis.
    Rdb,
}

/// A data file that was checked.
pub struct CheckedFile<'a> {
    args: &'a ImportArgs,
    foreign: ForeignFormat,
    path: PathBuf,
    file: File,
    /// The number of its records.
    records: u64,
    /// The number of skipped items.
    skipped: u64,
}

impl ForeignFormat {
    /// Returns the store that wrote the data file at this path, by its first bytes.
    ///
    /// # Errors
    ///
    /// [`Failure::File`].
    pub fn detect(path: &Path) -> Outcome<Option<Self>> {
        if path == Path::new("-") {
            return Ok(None);
        }
        if path.join(LMDB_FILE).is_file() {
            return Ok(Some(Self::Lmdb));
        }
        let failed = file_failure("opening", path);
        let metadata = path.metadata().map_err(&failed)?;
        if !metadata.is_file() {
            return Ok(None);
        }
        let mut start = [0; MAGIC_BYTES];
        let len = File::open(path).and_then(|file| file.read_at(&mut start, 0)).map_err(&failed)?;
        Ok(match &start[..len] {
            start if lmdb::is_magic(start) => Some(Self::Lmdb),
            start if rdb::is_magic(start) => Some(Self::Rdb),
            _ => None,
        })
    }
}

impl<'a> CheckedFile<'a> {
    /// Reads the whole file once, and reports what cannot be imported.
    ///
    /// # Errors
    ///
    /// [`Failure::Source`] if the file is damaged, or has contents that `--strict` refuses;
    /// [`Failure::Usage`]; [`Failure::File`].
    pub fn read(args: &'a ImportArgs, foreign: ForeignFormat, signal: &StopSignal) -> Outcome<Self> {
        if args.file == Path::new("-") {
            let what = "a data file is read twice, so standard input is not possible: use the name of a file";
            return Err(Failure::Usage(what.into()));
        }
        let inside = args.file.join(LMDB_FILE);
        let path = if foreign == ForeignFormat::Lmdb && inside.is_file() { inside } else { args.file.clone() };
        let opened = File::open(&path).and_then(|file| file.metadata().map(|metadata| (file, metadata.is_file())));
        let (file, is_file) = opened.map_err(file_failure("opening", &path))?;
        if !is_file {
            return Err(Failure::Usage(format!(
                "{} is not a regular file: use the name of a regular file",
                path.display()
            )));
        }
        let mut checked = Self { args, foreign, path, file, records: 0, skipped: 0 };
        let (mut count, mut keys) = (0u64, KeySet::default());
        let found = checked.for_each_record(&mut |record| {
            count += 1;
            // The keys of an LMDB database differ by its format.
            if foreign == ForeignFormat::Rdb && !keys.insert(args.store.keyspace.as_deref(), &record) {
                let what = format!(
                    "two records have the key {}: choose another --hash-separator, which joins the keys and the \
                     fields of hashes, and a --keyspace that is not the name of a database (db1, db2 ...)",
                    display_key(&record.key)
                );
                return Err(checked.refusal("the file".into(), what));
            }
            if count.is_multiple_of(1024) { signal.check("import") } else { Ok(()) }
        })?;
        checked.records = count;
        checked.skipped = found.count;
        if let Some(what) = found.what {
            if args.strict {
                let what = format!(
                    "the file has {what}, which --strict refuses: leave out --strict to import the other records"
                );
                return Err(checked.refusal("the file".into(), what));
            }
            note(&format!("not imported: {what}"));
        }
        Ok(checked)
    }

    /// Imports the records.
    ///
    /// # Errors
    /// Errors of the store; [`Failure::Signal`].
    pub fn import(&self, import: &mut Import<'_>, signal: &StopSignal) -> Outcome {
        import.begin(SourceContents { records: self.records, skipped: self.skipped });
        self.for_each_record(&mut |record| match signal.number() {
            Some(number) => Err(import.signal_failure(number)),
            None => import.put_record(record),
        })?;
        Ok(())
    }

    /// Calls `each` with every record of the file.
    fn for_each_record(&self, each: &mut dyn FnMut(Record) -> Outcome) -> Outcome<SkippedItems> {
        match self.foreign {
            ForeignFormat::Lmdb => self.read_lmdb(each),
            ForeignFormat::Rdb => self.read_rdb(each),
        }
    }

    fn refusal(&self, place: String, what: String) -> Failure {
        Failure::Source { file: self.path.clone(), place, what }
    }

    fn read_rdb(&self, each: &mut dyn FnMut(Record) -> Outcome) -> Outcome<SkippedItems> {
        let failed = file_failure("reading", &self.path);
        let mut file = &self.file;
        file.rewind().map_err(&failed)?;
        let input = BufReader::with_capacity(BUFFER_BYTES, file);
        let summary = match rdb::read(input, self.args.hash_separator.as_bytes(), each) {
            Ok(summary) => summary,
            Err(rdb::Halt::Bad { at, what }) => return Err(self.refusal(format!("byte {at}"), what)),
            Err(rdb::Halt::Io(error)) => return Err(failed(error)),
            Err(rdb::Halt::Caller(failure)) => return Err(failure),
        };
        let kinds: Vec<String> = summary.skipped.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        let what = (!kinds.is_empty()).then(|| format!("{} (only strings and hashes are imported)", kinds.join(", ")));
        Ok(SkippedItems { count: summary.skipped.values().sum(), what })
    }

    fn read_lmdb(&self, each: &mut dyn FnMut(Record) -> Outcome) -> Outcome<SkippedItems> {
        let database = self.args.database.as_deref().map(OsStrExt::as_bytes);
        let summary = match lmdb::read(&self.file, database, each) {
            Ok(summary) => summary,
            Err(lmdb::Halt::Bad { page, what }) => return Err(self.refusal(format!("page {page}"), what)),
            Err(lmdb::Halt::NoDatabase) => {
                let name = display_key(database.unwrap_or_default());
                return Err(Failure::Usage(format!(
                    "no database {name} in {}: leave out --database for a list of all names",
                    self.path.display()
                )));
            }
            Err(lmdb::Halt::Io(error)) => return Err(file_failure("reading", &self.path)(error)),
            Err(lmdb::Halt::Caller(failure)) => return Err(failure),
        };
        let names: Vec<String> = summary.databases.iter().map(|name| display_key(name)).collect();
        let names = names.join(", ");
        if summary.records == 0 && !names.is_empty() {
            let what =
                format!("{} has only named databases: choose one of {names} with --database", self.path.display());
            return Err(Failure::Usage(what));
        }
        let mut what = Vec::new();
        if summary.duplicates > 0 {
            what.push(format!("{} keys with several values", summary.duplicates));
        }
        if !names.is_empty() {
            what.push(format!("the named databases {names} (--database imports one)"));
        }
        let skipped = summary.duplicates + summary.databases.len() as u64;
        Ok(SkippedItems { count: skipped, what: (!what.is_empty()).then(|| what.join(" and ")) })
    }
}

/// The keys of records, by two hashes of 64 bits each. With 4 billion keys, two are considered
/// equal with a probability below 10^-19.
#[derive(Default)]
struct KeySet {
    hashers: [RandomState; 2],
    seen: HashSet<[u64; 2]>,
}

impl KeySet {
    /// Adds the key of a record. A record without a keyspace goes to the keyspace `own`. Returns
    /// whether the key is new.
    fn insert(&mut self, own: Option<&str>, record: &Record) -> bool {
        let key = (record.keyspace.as_deref().or(own), &record.key);
        self.seen.insert(self.hashers.each_ref().map(|hasher| hasher.hash_one(key)))
    }
}

/// The contents of a file that are not imported.
struct SkippedItems {
    count: u64,
    what: Option<String>,
}
