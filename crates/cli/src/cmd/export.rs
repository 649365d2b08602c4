//! `export`.

use std::path::Path;

use lodestore::Error;
use lodestore::store::{HiddenKeys, Lodestore, ScanRange, Visit};

use super::{Access, Opened, object, wait_recovered, with_opened};
use crate::args::ExportArgs;
use crate::failure::{Failure, Outcome, note};
use crate::format::{Format, Pair};
use crate::new_file::NewFile;
use crate::out::{Out, thousands};
use crate::progress::{ProgressBar, Unit};
use crate::stop_signal::StopSignal;

/// Records between two updates of the progress bar.
const BAR_STEP_RECORDS: u64 = 1024;

/// The file that each store has, and each device of a matrix.
const FIRST_REGION: &str = "pool.0000";

/// Writes every record, with its expiry, to standard output or to a file.
///
/// A record with wrong bytes is left out, and the export then fails at its end. The export also
/// fails if recovery left something out. A file is then written only in a salvage. Other findings
/// of recovery are printed as a note on standard error.
pub fn run(args: &ExportArgs) -> Outcome {
    // The output is JSON already in this format, so --json selects it.
    let format = if args.store.json { Format::Jsonl } else { args.format };
    if args.all_keyspaces && format != Format::Jsonl {
        let what = "only the format jsonl has the keyspace of each record: leave out --format, or export one \
                    keyspace with --keyspace";
        return Err(Failure::Usage(what.into()));
    }
    if let Some(path) = &args.output {
        refuse_store_file(path, args.store.path())?;
    }
    let file = args.output.as_ref().map(|path| NewFile::create(path, args.force)).transpose()?;
    let signal = file.as_ref().map(|_| StopSignal::watch()).unwrap_or_default();
    with_opened(&args.store, args.salvage, |opened, stdout| {
        let Some(file) = file else { return Export::begin(opened, format, stdout, signal).run(args) };
        let mut out = Out::to_file(file);
        let mut export = Export::begin(opened, format, &mut out, signal);
        let done = export.run(args);
        let exported = export.exported;
        match done {
            Err(Failure::Export { unwritten, .. }) if unwritten => return done,
            Err(Failure::Export { .. }) | Ok(()) => {}
            Err(_) => return done,
        }
        let path = out.finish()?.unwrap_or_default();
        done.and(report_file(args, stdout, exported, &path))
    })
}

/// Refuses a file in the directory of a store: it could replace a file of the store.
fn refuse_store_file(target: &Path, store: &Path) -> Outcome {
    let Some(parent) =
        target.parent().map(|parent| if parent.as_os_str().is_empty() { Path::new(".") } else { parent })
    else {
        return Ok(());
    };
    // The later use of a path reports that it does not resolve.
    let (Ok(parent), Ok(store)) = (parent.canonicalize(), store.canonicalize()) else { return Ok(()) };
    if parent.starts_with(&store) || parent.join(FIRST_REGION).exists() {
        let shown = target.display();
        return Err(Failure::Other(format!(
            "{shown} is in the directory of a store: choose a file in another directory"
        )));
    }
    Ok(())
}

/// Reports what was written to a file.
fn report_file(args: &ExportArgs, out: &mut Out, exported: u64, path: &Path) -> Outcome {
    match args.store.json {
        true => out.json(object([("exported", exported.into()), ("file", path.to_string_lossy().into())])),
        false => out.line(format!("exported {} records to {}", thousands(exported), path.display())),
    }
}

/// A keyspace that is exported.
struct Source {
    /// The name in each record; `None` omits it.
    name: Option<String>,
    store: Lodestore,
    /// The number of keys; `None` if damage hides it.
    total: Option<u64>,
}

/// An export under way.
struct Export<'a> {
    opened: &'a Opened,
    format: Format,
    out: &'a mut Out,
    signal: StopSignal,
    exported: u64,
}

impl<'a> Export<'a> {
    fn begin(opened: &'a Opened, format: Format, out: &'a mut Out, signal: StopSignal) -> Self {
        Self { opened, format, out, signal, exported: 0 }
    }

    /// Returns the keyspaces that the arguments name.
    fn sources(&self, args: &ExportArgs) -> Outcome<Vec<Source>> {
        // Damage may hide the names of keyspaces. Then the engine's number is the best available.
        let is_only_keyspace = self.opened.db.keyspaces().map_or(true, |names| names.is_empty());
        let of = |name: Option<String>, store: Lodestore| -> Outcome<Source> {
            Ok(Source { total: count_keys(&store, is_only_keyspace)?, name, store })
        };
        if let Some(name) = &args.store.keyspace {
            return Ok(vec![of(None, self.opened.keyspace(name, Access::Read, args.store.path())?)?]);
        }
        let mut sources = vec![of(None, self.opened.store.clone())?];
        if args.all_keyspaces {
            for name in self.opened.db.keyspaces()? {
                let store = self.opened.db.keyspace(&name)?.as_store();
                sources.push(of(Some(name), store)?);
            }
        }
        Ok(sources)
    }

    fn run(&mut self, args: &ExportArgs) -> Outcome {
        wait_recovered(&self.opened.store)?;
        let sources = self.sources(args)?;
        let total = sources.iter().map(|source| source.total).sum();
        let bar = ProgressBar::new("exporting", total, Unit::Records);
        let mut losses = Losses::default();
        for source in &sources {
            self.export_keyspace(source, &bar, &mut losses)?;
        }
        bar.finish_and_clear();
        self.check_complete(args, losses, total)
    }

    /// Writes the records of one keyspace.
    fn export_keyspace(&mut self, source: &Source, bar: &ProgressBar, losses: &mut Losses) -> Outcome {
        let Source { name, store, total } = source;
        let (format, signal, exported) = (self.format, &self.signal, &mut self.exported);
        let mut each = |out: &mut Out, pair: Pair<'_>| {
            *exported += 1;
            if *exported % BAR_STEP_RECORDS == 0 {
                bar.set_position(*exported);
                signal.check("export")?;
            }
            out.with(|out| format.write_in(out, name.as_deref(), pair))
        };
        if store.capabilities().scan {
            export_in_order(store, self.out, &mut each, losses, *total)
        } else {
            export_unordered(store, self.out, &mut each, losses, *total)
        }
    }

    /// Returns whether everything was exported.
    fn check_complete(&self, args: &ExportArgs, mut losses: Losses, total: Option<u64>) -> Outcome {
        let (recovery, exported) = (self.opened.store.stats().recovery, self.exported);
        if recovery.left_out > 0 {
            let what = format!("recovery could not read {} entries or their records", recovery.left_out);
            let uncounted = match losses.left_out {
                LeftOut::Uncounted => recovery.left_out,
                LeftOut::OneCounted => recovery.left_out - 1,
                LeftOut::Counted => 0,
            };
            losses.add(Error::corrupt("the store", what), uncounted);
        }
        let Losses { first, damaged, left_out } = losses;
        if let Some(error) = first {
            let counted =
                total.map(|total| if left_out == LeftOut::Counted { total } else { total + recovery.left_out });
            // This number lacks records that neither the walk nor recovery found.
            let total = counted.unwrap_or(exported + damaged);
            let unwritten = args.output.is_some() && !args.salvage;
            return Err(Failure::Export { error, exported, total, damaged, salvage: args.salvage, unwritten });
        }
        // Recovery may have found damage without records, which the walk does not find.
        let found = recovery.corrupt;
        if found > 0 {
            note(&format!(
                "all {exported} visible records were exported; recovery also found {found} damaged places without \
                 records"
            ));
            self.opened.damage.print();
        }
        Ok(())
    }
}

/// The first damage, and the number of records that the export lacks.
#[derive(Default)]
struct Losses {
    first: Option<Error>,
    damaged: u64,
    left_out: LeftOut,
}

/// Whether the walk has counted the records that recovery left out as damaged.
#[derive(Default, PartialEq, Eq)]
enum LeftOut {
    #[default]
    Uncounted,
    /// The walk ended in one error for all of them, which counts as one record.
    OneCounted,
    /// All are counted, and the store's count of keys has them too.
    Counted,
}

impl Losses {
    fn add(&mut self, error: Error, records: u64) {
        self.first.get_or_insert(error);
        self.damaged += records;
    }
}

/// Returns which keys an engine reports as missing from a walk by this error.
fn hidden_keys(error: &Error) -> HiddenKeys {
    match error {
        Error::Corrupt { hidden, .. } => *hidden,
        _ => HiddenKeys::None,
    }
}

/// The action for a pair.
type Each<'a> = dyn FnMut(&mut Out, Pair<'_>) -> Outcome + 'a;

/// Returns the number of keys, or `None` if damage hides it. The engine's own number is that of all
/// keyspaces together, so it helps only a store with one keyspace (`is_only_keyspace`).
fn count_keys(store: &Lodestore, is_only_keyspace: bool) -> Outcome<Option<u64>> {
    match store.len() {
        Err(Error::Corrupt { .. }) => Ok(is_only_keyspace.then(|| store.stats().keys)),
        counted => Ok(Some(counted?)),
    }
}

/// Walks in key order.
fn export_in_order(
    store: &Lodestore,
    out: &mut Out,
    each: &mut Each<'_>,
    losses: &mut Losses,
    total: Option<u64>,
) -> Outcome {
    let (mut last, mut seen, mut damage) = (Vec::<u8>::new(), 0, None);
    for entry in store.scan(&ScanRange::all())? {
        match entry {
            Ok(entry) => {
                each(out, pair_of(entry.pair()))?;
                last.clear();
                last.extend_from_slice(entry.key());
                seen += 1;
                damage.take().into_iter().for_each(|error| losses.add(error, 1));
            }
            Err(error @ Error::Corrupt { .. }) => {
                damage.replace(error).into_iter().for_each(|error| losses.add(error, 1));
            }
            Err(error) => return Err(error.into()),
        }
    }
    let Some(error) = damage else { return Ok(()) };
    // This was the last error; the damage may have ended the walk.
    let before = seen;
    walk_pairs(store, out, &mut |out, pair| {
        if *pair.key > *last {
            each(out, pair)?;
            seen += 1;
        }
        Ok(())
    })?;
    let unseen = total.map_or(0, |total| total.saturating_sub(seen + losses.damaged));
    let left_out = if seen > before { unseen } else { 0 };
    let records = match hidden_keys(&error) {
        // The error concerns no record.
        HiddenKeys::Unknown => left_out,
        HiddenKeys::LeftOut => {
            losses.left_out = LeftOut::OneCounted;
            left_out.max(1)
        }
        _ => left_out.max(1),
    };
    losses.add(error, records);
    Ok(())
}

/// Walks in any order, for an engine without order. Such an engine counts the keys of damaged
/// entries, so the number of damaged records includes those that recovery left out.
fn export_unordered(
    store: &Lodestore,
    out: &mut Out,
    each: &mut Each<'_>,
    losses: &mut Losses,
    total: Option<u64>,
) -> Outcome {
    let mut seen = 0;
    let damage = walk_pairs(store, out, &mut |out, pair| {
        seen += 1;
        each(out, pair)
    })?;
    if let Some(error) = damage {
        losses.left_out = LeftOut::Counted;
        // A walk of another keyspace may have found the same record, whose key is unreadable.
        let is_new = losses.first.as_ref().is_none_or(|first| first.to_string() != error.to_string());
        let is_counted = is_new && hidden_keys(&error) != HiddenKeys::Unknown;
        losses.add(error, total.map_or(u64::from(is_counted), |total| total.saturating_sub(seen)));
    }
    Ok(())
}

/// Walks over all readable pairs. Returns the damage found.
fn walk_pairs(store: &Lodestore, out: &mut Out, each: &mut Each<'_>) -> Outcome<Option<Error>> {
    let mut done = Ok(());
    let walked = store.for_each_pair(&mut |pair| {
        done = each(out, pair_of(pair));
        if done.is_ok() { Visit::More } else { Visit::Stop }
    });
    done?;
    match walked {
        Ok(_) => Ok(None),
        Err(error @ Error::Corrupt { .. }) => Ok(Some(error)),
        Err(error) => Err(error.into()),
    }
}

/// Returns a pair of a store in the type of the formats.
fn pair_of(lodestore::store::Pair { key, value, expiry }: lodestore::store::Pair<'_>) -> Pair<'_> {
    Pair { key, value, expiry }
}
