//! `import`.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::time::{Duration, Instant};

use lodestore::medium::io_advice;
use lodestore::stats::format_size;
use lodestore::store::Lodestore;

use super::import_foreign::{CheckedFile, ForeignFormat};
#[cfg(feature = "peers")]
use super::import_rocksdb;
#[cfg(not(feature = "peers"))]
use super::no_rocksdb as import_rocksdb;
use super::{Access, Opened, object, with_opened};
use crate::args::{ImportArgs, ImportFormat};
use crate::failure::{Failure, Outcome, file_failure, note};
use crate::format::{Format, Record};
use crate::input::{Input, Item, Lines};
use crate::out::{Out, thousands};
use crate::progress::{ProgressBar, Unit};
use crate::stop_signal::StopSignal;

/// Records between two updates of the progress bar.
const BAR_STEP_RECORDS: u64 = 1024;
/// Records between two acknowledgements.
const ACK_STEP_RECORDS: u64 = 10_000;
/// An input without data for this long pauses.
const INPUT_PAUSE: Duration = Duration::from_millis(50);

/// Puts every record of a file. A put that returned is acknowledged, so the counted records are in
/// the store however the import ends.
pub fn run(args: &ImportArgs) -> Outcome {
    let format = match (args.format, ForeignFormat::detect(&args.file)) {
        (Some(ImportFormat::Rocksdb), _) => return import_rocksdb::run(args),
        (None, _) if is_rocksdb(&args.file) => return import_rocksdb::run(args),
        (Some(ImportFormat::Lmdb), _) | (None, Ok(Some(ForeignFormat::Lmdb))) => {
            return run_foreign(args, ForeignFormat::Lmdb);
        }
        (Some(ImportFormat::Rdb), _) | (None, Ok(Some(ForeignFormat::Rdb))) => {
            return run_foreign(args, ForeignFormat::Rdb);
        }
        (Some(ImportFormat::Jsonl), _) => Format::Jsonl,
        (Some(ImportFormat::Tsv), _) => Format::Tsv,
        // The code below reports a file that cannot be opened.
        (None, _) => Format::of(None, &args.file),
    };
    if args.strict || args.database.is_some() || args.column_family.is_some() {
        let what = "--strict, --database and --column-family are only for files of LMDB, Redis and RocksDB: leave \
                    them out, or add --format";
        return Err(Failure::Usage(what.into()));
    }
    let (source, size) = open(&args.file)?;
    with_import(args, "line", |import| {
        let input = Input::start(source).map_err(|error| start_failure(&error))?;
        import.bar = ProgressBar::new("importing", size, Unit::Bytes);
        import.import_lines(&input, format)
    })
}

/// Returns whether a path is the directory of a RocksDB database.
fn is_rocksdb(path: &Path) -> bool {
    // Other stores have only one of the two.
    ["CURRENT", "IDENTITY"].iter().all(|name| path.join(name).is_file())
}

fn run_foreign(args: &ImportArgs, foreign: ForeignFormat) -> Outcome {
    let signal = StopSignal::watch();
    let checked = CheckedFile::read(args, foreign, &signal)?;
    with_import(args, "record", |import| checked.import(import, &signal))
}

/// Opens the store, does `work`, and reports the result.
///
/// # Errors
///
/// Errors of the open and of `work`.
pub fn with_import(args: &ImportArgs, unit: &'static str, work: impl FnOnce(&mut Import<'_>) -> Outcome) -> Outcome {
    with_opened(&args.store, false, |opened, out| {
        opened.run_and_print_damage(out, |out| {
            let store = match &args.store.keyspace {
                Some(name) => opened.keyspace(name, Access::Create, args.store.path())?,
                None => opened.store.clone(),
            };
            let stores = Stores { opened, own: store, named: HashMap::new() };
            let bar = ProgressBar::hidden();
            let mut import = Import {
                args,
                unit,
                stores,
                out,
                bar,
                number: 0,
                imported: 0,
                acknowledged: 0,
                bytes: 0,
                skipped: None,
            };
            let begin = Instant::now();
            let done = work(&mut import);
            import.bar.finish_and_clear();
            let reported = if args.acks { import.acknowledge() } else { Ok(()) };
            let reported = reported.and_then(|()| import.write_summary(begin.elapsed(), done.is_ok()));
            done.and(reported)
        })
    })
}

/// Returns the failure of an import whose threads and signal handlers cannot be started.
fn start_failure(error: &io::Error) -> Failure {
    let advice = match error.raw_os_error() {
        // EAGAIN
        Some(11) => "an import needs 2 threads: raise the limit of threads (ulimit -u, or the container's limit)",
        // ENFILE and EMFILE
        Some(23 | 24) => "an import needs 8 file descriptors: raise the limit of open files (ulimit -n)",
        _ => io_advice(error),
    };
    Failure::Other(format!("starting the import: {error}; {advice}"))
}

/// Opens the file. Returns its length if it has one.
fn open(file: &Path) -> Outcome<(Box<dyn Read + Send>, Option<u64>)> {
    if file == Path::new("-") {
        return Ok((Box::new(io::stdin()), None));
    }
    let failed = file_failure("opening", file);
    let source = File::open(file).map_err(&failed)?;
    let metadata = source.metadata().map_err(&failed)?;
    if metadata.is_dir() {
        return Err(failed(io::ErrorKind::IsADirectory.into()));
    }
    Ok((Box::new(source), metadata.is_file().then_some(metadata.len())))
}

/// The keyspaces that records go to.
struct Stores<'a> {
    opened: &'a Opened,
    /// The keyspace of records without a keyspace name.
    own: Lodestore,
    named: HashMap<String, Lodestore>,
}

impl Stores<'_> {
    /// Puts a record. Its keyspace is created if it does not exist.
    fn put(&mut self, record: &Record) -> lodestore::Result<()> {
        let store = match &record.keyspace {
            None => &self.own,
            Some(name) => {
                if !self.named.contains_key(name) {
                    let store = self.opened.db.keyspace(name)?.as_store();
                    self.named.insert(name.clone(), store);
                }
                self.named.get(name).unwrap_or(&self.own)
            }
        };
        store.put_expiring(&record.key, &record.value, record.expiry)
    }
}

/// The contents of a data file.
pub struct SourceContents {
    /// Records to import.
    pub records: u64,
    /// The number of skipped items.
    pub skipped: u64,
}

/// An import under way.
pub struct Import<'a> {
    args: &'a ImportArgs,
    /// The unit of `number`.
    unit: &'static str,
    stores: Stores<'a>,
    out: &'a mut Out,
    bar: ProgressBar,
    /// Lines or records read.
    number: u64,
    /// Records put, each acknowledged by the store.
    imported: u64,
    /// Records whose acknowledgement was written.
    acknowledged: u64,
    /// Bytes of keys and values put.
    bytes: u64,
    /// Skipped items of a data file.
    skipped: Option<u64>,
}

impl Import<'_> {
    /// Begins the import of a data file.
    pub fn begin(&mut self, contents: SourceContents) {
        self.bar = ProgressBar::new("importing", Some(contents.records), Unit::Records);
        self.skipped = Some(contents.skipped);
    }

    fn import_lines(&mut self, input: &Input, format: Format) -> Outcome {
        let mut lines = Lines::new(format);
        loop {
            let timeout = (self.args.acks && self.acknowledged < self.imported).then_some(INPUT_PAUSE);
            match input.next(timeout) {
                Item::Block(block) => {
                    lines.feed(&block, |line| self.import_line(line, input))?;
                    self.bar.inc(block.len() as u64);
                }
                Item::Pause => self.acknowledge()?,
                Item::End if lines.may_be_cut() => {
                    note("the last line has no newline: if the input is truncated, the last value is too short");
                    return lines.finish().map_or(Ok(()), |line| self.import_line(line, input));
                }
                Item::End => return lines.finish().map_or(Ok(()), |line| self.import_line(line, input)),
                Item::Failed(error) => return Err(file_failure("reading", &self.args.file)(error)),
                Item::Signal => return Err(self.signal_failure(input.signal().unwrap_or(0))),
            }
        }
    }

    fn import_line(&mut self, line: Result<Record, String>, input: &Input) -> Outcome {
        if let Some(number) = input.signal() {
            return Err(self.signal_failure(number));
        }
        match line {
            Ok(record) => self.put_record(record),
            Err(what) => {
                self.number += 1;
                Err(self.line_failure(what))
            }
        }
    }

    /// Puts a record.
    ///
    /// # Errors
    /// [`Failure::Import`]; those of standard output.
    pub fn put_record(&mut self, record: Record) -> Outcome {
        self.number += 1;
        if self.skipped.is_some() && self.number.is_multiple_of(BAR_STEP_RECORDS) {
            self.bar.set_position(self.number);
        }
        self.stores.put(&record).map_err(|error| Failure::Import {
            error,
            imported: self.imported,
            number: self.number,
            unit: self.unit,
        })?;
        self.imported += 1;
        self.bytes += (record.key.len() + record.value.len()) as u64;
        if self.args.acks && self.imported.is_multiple_of(ACK_STEP_RECORDS) { self.acknowledge() } else { Ok(()) }
    }

    fn acknowledge(&mut self) -> Outcome {
        if self.acknowledged == self.imported {
            return Ok(());
        }
        self.acknowledged = self.imported;
        let reported = if self.args.store.json {
            self.out.json(object([("acknowledged", self.acknowledged.into())]))
        } else {
            self.out.line(format!("acknowledged {}", self.acknowledged))
        };
        // A missing reader of acknowledgements ends the import, but not as a success.
        reported.and_then(|()| self.out.flush()).map_err(|failure| {
            Failure::Other(format!("{failure}: import stopped after {} imported records", self.imported))
        })
    }

    fn write_summary(&mut self, took: Duration, complete: bool) -> Outcome {
        let seconds = took.as_secs_f64();
        let rate = self.imported as f64 / seconds.max(1e-9);
        if self.args.store.json {
            let mut line = object([
                ("imported", self.imported.into()),
                ("lines", self.number.into()),
                ("bytes", self.bytes.into()),
                ("seconds", seconds.into()),
                ("records_per_s", rate.round().into()),
                ("complete", complete.into()),
            ]);
            if let Some(skipped) = self.skipped {
                line.insert("skipped".into(), skipped.into());
            }
            return self.out.json(line);
        }
        self.out.line(format!(
            "imported {} records, {} of keys and values, in {seconds:.2} s: {} records/s",
            thousands(self.imported),
            format_size(self.bytes),
            thousands(rate as u64)
        ))
    }

    fn line_failure(&self, what: String) -> Failure {
        Failure::Line { file: self.args.file.clone(), line: self.number, what, imported: self.imported }
    }

    /// Returns the failure of an import that a signal ended.
    pub fn signal_failure(&self, number: i32) -> Failure {
        Failure::Signal { number, imported: self.imported }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_import_that_cannot_start_names_the_limit_to_raise() {
        for (number, says) in [(11, "ulimit -u"), (23, "ulimit -n"), (24, "ulimit -n"), (12, "free memory")] {
            let text = start_failure(&io::Error::from_raw_os_error(number)).to_string();
            assert!(text.starts_with("starting the import: ") && text.contains(says), "{text}");
        }
    }
}
