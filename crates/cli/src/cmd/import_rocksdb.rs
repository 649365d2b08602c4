//! `import` from a RocksDB directory, by RocksDB's own library.
//!
//! The database is read twice. The first pass checks all pairs and has no effect, so nothing of a
//! damaged database is imported. Both passes read the same state: that of the open.

use std::path::Path;

use lodestore::Error;
use lodestore_peers::{Halt, RocksDbReader};

use super::import::{SourceContents, with_import};
use crate::advice::error_text;
use crate::args::ImportArgs;
use crate::failure::{Failure, Outcome, note};
use crate::format::Record;
use crate::stop_signal::StopSignal;

/// The default column family.
const DEFAULT_FAMILY: &str = "default";
/// Pairs between two checks of the signal.
const SIGNAL_STEP_RECORDS: u64 = 1024;

/// Imports all pairs of a column family.
///
/// # Errors
///
/// [`Failure::Usage`]; [`Failure::Source`] if RocksDB refuses the database, if a pair cannot be
/// imported, or if `--strict` refuses the contents; those of the store.
pub fn run(args: &ImportArgs) -> Outcome {
    let signal = StopSignal::watch();
    let source = Source::open(args)?;
    let mut pairs = 0;
    source.for_each_record(&mut |_| {
        pairs += 1;
        if u64::is_multiple_of(pairs, SIGNAL_STEP_RECORDS) { signal.check("import") } else { Ok(()) }
    })?;
    let skipped = source.report_other_families(pairs)?;
    with_import(args, "record", |import| {
        import.begin(SourceContents { records: pairs, skipped });
        source.for_each_record(&mut |record| match signal.number() {
            Some(number) => Err(import.signal_failure(number)),
            None => import.put_record(record),
        })
    })
}

/// A database that is open for reading.
struct Source<'a> {
    args: &'a ImportArgs,
    reader: RocksDbReader,
}

impl<'a> Source<'a> {
    fn open(args: &'a ImportArgs) -> Outcome<Self> {
        if args.file == Path::new("-") {
            return Err(Failure::Usage("a RocksDB database is a directory: use the name of the directory".into()));
        }
        let family = args.column_family.as_deref().unwrap_or(DEFAULT_FAMILY);
        match RocksDbReader::open(&args.file, family) {
            Ok(reader) => Ok(Self { args, reader }),
            Err(Error::InvalidOption { name, value, why }) if name == "column-family" => {
                Err(Failure::Usage(format!("--column-family {value}: {why}")))
            }
            Err(Error::InvalidOption { why, .. }) => Err(Failure::Usage(format!("importing from RocksDB: {why}"))),
            Err(error) => Err(refusal(args, &error_text(&error))),
        }
    }

    /// Calls `each` with every pair.
    fn for_each_record(&self, each: &mut dyn FnMut(Record) -> Outcome) -> Outcome {
        let read = self.reader.for_each_pair(&mut |key, value| {
            let record = Record { key: key.to_vec(), value: value.to_vec(), expiry: None, keyspace: None };
            record.check().map_err(|what| refusal(self.args, &what))?;
            each(record)
        });
        match read {
            Ok(_) => Ok(()),
            Err(Halt::Caller(failure)) => Err(failure),
            Err(Halt::Store(error)) => Err(refusal(self.args, &error_text(&error))),
        }
    }

    /// Reports the column families that are not imported. Returns their number.
    fn report_other_families(&self, pairs: u64) -> Outcome<u64> {
        if self.args.column_family.is_some() {
            return Ok(0);
        }
        let others: Vec<&str> =
            self.reader.families().iter().map(String::as_str).filter(|name| *name != DEFAULT_FAMILY).collect();
        let names = others.join(", ");
        match others.len() as u64 {
            0 => {}
            _ if pairs == 0 => {
                let what = format!("the default column family is empty: choose one of {names} with --column-family");
                return Err(Failure::Usage(what));
            }
            _ if self.args.strict => {
                let what = format!(
                    "the database has the column families {names}, which --strict refuses: add --column-family \
                     {DEFAULT_FAMILY} to import only the default column family"
                );
                return Err(refusal(self.args, &what));
            }
            _ => note(&format!("not imported: the column families {names} (--column-family imports one)")),
        }
        Ok(others.len() as u64)
    }
}

fn refusal(args: &ImportArgs, what: &str) -> Failure {
    let family = args.column_family.as_deref().unwrap_or(DEFAULT_FAMILY);
    Failure::Source { file: args.file.clone(), place: format!("column family {family}"), what: what.into() }
}
