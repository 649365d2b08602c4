//! `export`.

use lodestore::{Error, Lodestore, ScanRange, Visit};

use super::{bar, wait_recovered, with_store_and_damage};
use crate::args::ExportArgs;
use crate::failure::{Failure, Outcome, note};
use crate::format::Format;
use crate::out::Out;

/// Records between two looks at the progress bar.
const STEP: u64 = 1024;

/// Writes every record, with its expiry. A record whose bytes are wrong is left out, and the export then fails at its end; so it
/// does where recovery had to leave something out. What recovery found wrong besides gets a note on standard error.
pub fn run(args: &ExportArgs) -> Outcome {
    // The output is JSON already where that is the format, so --json chooses it.
    let format = if args.store.json { Format::Jsonl } else { args.format };
    with_store_and_damage(&args.store, args.salvage, |store, out, damage| {
        wait_recovered(store)?;
        let total = count(store)?;
        let bar = bar("exporting", Some(total), false);
        let mut exported = 0;
        let mut each = |out: &mut Out, key: &[u8], value: &[u8]| {
            exported += 1;
            if exported % STEP == 0 {
                bar.set_position(exported);
            }
            record(store, format, out, key, value)
        };
        let mut wrong = Wrong::default();
        if store.capabilities().scan {
            in_order(store, out, &mut each, &mut wrong, total)?;
        } else {
            in_any(store, out, &mut each, &mut wrong)?;
        }
        bar.finish_and_clear();
        let recovery = store.stats().recovery;
        if recovery.left_out > 0 {
            let what = format!("recovery could not read {} entries or their records", recovery.left_out);
            let uncounted = match wrong.left_out {
                LeftOut::Uncounted => recovery.left_out,
                LeftOut::OneCounted => recovery.left_out - 1,
                LeftOut::Counted => 0,
            };
            wrong.add(Error::corrupt("the store", what), uncounted);
        }
        let Wrong { first, damaged, left_out } = wrong;
        if let Some(error) = first {
            let total = if left_out == LeftOut::Counted { total } else { total + recovery.left_out };
            return Err(Failure::Export { error, exported, total, damaged, salvage: args.salvage });
        }
        // Recovery may have found damage that hit no record. The walk does not meet it.
        let found = recovery.corrupt;
        if found > 0 {
            note(&format!(
                "all {exported} records that the store shows are out; recovery also found damage in {found} places that hold no record"
            ));
            damage.tell();
        }
        Ok(())
    })
}

/// The damage met.
#[derive(Default)]
struct Wrong {
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

impl Wrong {
    fn add(&mut self, error: Error, records: u64) {
        self.first.get_or_insert(error);
        self.damaged += records;
    }
}

/// Whether an engine ends a walk with this error because keys are missing from the walk, and not
/// because of a record that the walk met. Only the text of the error tells.
fn is_of_missing_keys(error: &Error) -> bool {
    matches!(error, Error::Corrupt { what, .. } if what.ends_with("missing from this answer"))
}

/// Whether an engine ends a whole walk with this error because damage to its index may hide keys.
/// Such an error is of no record.
fn may_hide_keys(error: &Error) -> bool {
    matches!(error, Error::Corrupt { what, .. } if what.ends_with("keys may be missing from this answer"))
}

/// What is done with a pair.
type Each<'a> = dyn FnMut(&mut Out, &[u8], &[u8]) -> Outcome + 'a;

/// The keys there are; where damage is in the way of counting them, about.
fn count(store: &Lodestore) -> Outcome<u64> {
    match store.len() {
        Err(Error::Corrupt { .. }) => Ok(store.stats().keys),
        counted => Ok(counted?),
    }
}

/// Walks in the order of keys.
fn in_order(store: &Lodestore, out: &mut Out, each: &mut Each<'_>, wrong: &mut Wrong, total: u64) -> Outcome {
    let (mut last, mut seen, mut damage) = (Vec::<u8>::new(), 0, None);
    for entry in store.scan(&ScanRange::all())? {
        match entry {
            Ok(entry) => {
                each(out, entry.key(), entry.value())?;
                last.clear();
                last.extend_from_slice(entry.key());
                seen += 1;
                damage.take().into_iter().for_each(|error| wrong.add(error, 1));
            }
            Err(error @ Error::Corrupt { .. }) => {
                damage.replace(error).into_iter().for_each(|error| wrong.add(error, 1));
            }
            Err(error) => return Err(error.into()),
        }
    }
    let Some(error) = damage else { return Ok(()) };
    // The last that it said: the damage may have ended it.
    let before = seen;
    walk(store, out, &mut |out, key, value| {
        if *key > *last {
            each(out, key, value)?;
            seen += 1;
        }
        Ok(())
    })?;
    let left_out = if seen > before { total.saturating_sub(seen + wrong.damaged) } else { 0 };
    if may_hide_keys(&error) {
        wrong.add(error, left_out);
        return Ok(());
    }
    if is_of_missing_keys(&error) {
        wrong.left_out = LeftOut::OneCounted;
    }
    wrong.add(error, left_out.max(1));
    Ok(())
}

/// The same in no order, for an engine that has none. Such an engine counts the keys of damaged
/// entries, so the count of the damaged records has what recovery left out.
fn in_any(store: &Lodestore, out: &mut Out, each: &mut Each<'_>, wrong: &mut Wrong) -> Outcome {
    let (total, mut seen) = (count(store)?, 0);
    let damage = walk(store, out, &mut |out, key, value| {
        seen += 1;
        each(out, key, value)
    })?;
    if let Some(error) = damage {
        wrong.left_out = LeftOut::Counted;
        wrong.add(error, total.saturating_sub(seen));
    }
    Ok(())
}

/// Walks over all that can be read; the damage that it met.
fn walk(store: &Lodestore, out: &mut Out, each: &mut Each<'_>) -> Outcome<Option<Error>> {
    let mut done = Ok(());
    let walked = store.for_each(&mut |key, value| {
        done = each(out, key, value);
        if done.is_ok() { Visit::More } else { Visit::Stop }
    });
    done?;
    match walked {
        Ok(_) => Ok(None),
        Err(error @ Error::Corrupt { .. }) => Ok(Some(error)),
        Err(error) => Err(error.into()),
    }
}

fn record(store: &Lodestore, format: Format, out: &mut Out, key: &[u8], value: &[u8]) -> Result<(), Failure> {
    let expiry = match store.capabilities().expiry {
        true => store.expiry(key)?,
        false => Some(None),
    };
    match expiry {
        Some(expiry) => out.with(|out| format.write(out, key, value, expiry)),
        // It expired since the walk met it.
        None => Ok(()),
    }
}
